"""One cap over parallel tasks, resumes and crashes. The sums stand beside the cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.agents.ledger import Ledger, Share
from lmp.errors import CapReached, InvalidAnalysis


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "ledger.json"


def test_shares_of_parallel_tasks_never_pass_the_cap(path: Path) -> None:
    ledger = Ledger(path, cap_usd=10.0)
    # 10 / 4; then (10 - 2.5) / 3 and so on: the same for each
    shares = [ledger.grant(name, waiting).usd for name, waiting in (("a", 4), ("b", 3), ("c", 2), ("d", 1))]
    assert shares == [2.5, 2.5, 2.5, 2.5]
    with pytest.raises(CapReached, match=r"^\$0.00 of \$10.00 spent: nothing is left for e\n"):
        ledger.grant("e")


def test_what_is_not_used_is_free_again(path: Path) -> None:
    ledger = Ledger(path, cap_usd=10.0)
    ledger.grant("a", 2)
    ledger.grant("b", 1)
    ledger.settle("a", "session-a", 1.0, turns=3)
    assert (ledger.spent, ledger.left, ledger.turns) == (1.0, 9.0, 3)
    # 10 - 1 spent - 5 of b
    assert ledger.grant("a again").usd == 4.0


def test_a_resumed_session_counts_its_difference(path: Path) -> None:
    ledger = Ledger(path, cap_usd=10.0)
    ledger.grant("a")
    ledger.settle("a", "s", 1.5, turns=3)
    ledger = Ledger(path, cap_usd=10.0)
    assert ledger.grant("a").usd == 8.5
    ledger.settle("a", "s", 2.25, turns=2)
    assert (ledger.spent, ledger.turns) == (2.25, 5)
    # a session that tells less than before has forgotten, and has not paid back
    ledger.settle("a", "s", 0.5)
    assert ledger.spent == 2.25


def test_a_share_that_was_never_settled_stays_set_aside(path: Path) -> None:
    Ledger(path, cap_usd=10.0).grant("a", 2)  # and lmp is killed
    ledger = Ledger(path, cap_usd=10.0)
    assert ledger.unknown == [("a", 5.0)]
    assert ledger.state() == "$0.00 of $10.00 spent, 1 of unknown cost (at most $5.00)"
    # another 5 for the same task, and nothing for a third
    assert ledger.grant("a").usd == 5.0
    ledger.settle("a", None, None)
    with pytest.raises(CapReached, match="2 of unknown cost"):
        ledger.grant("a")
    assert Ledger(path, cap_usd=12.0).grant("a").usd == 2.0


def test_a_task_that_was_never_begun_gives_its_share_back(path: Path) -> None:
    ledger = Ledger(path, cap_usd=10.0)
    ledger.grant("a")
    ledger.release("a")
    assert ledger.grant("b").usd == 10.0


def test_turns_are_shared_as_dollars_are(path: Path) -> None:
    ledger = Ledger(path, cap_turns=7)
    assert ledger.grant("a", 3) == Share(None, 2)
    assert ledger.grant("b", 2) == Share(None, 2)
    assert ledger.grant("c", 5) == Share(None, 1)  # at least one each
    ledger.settle("a", "s", 0.5, turns=2)
    assert ledger.grant("d", 1) == Share(None, 2)
    with pytest.raises(CapReached, match="all 7 turns are used or set aside"):
        ledger.grant("e")


def test_without_caps_everything_is_counted_and_nothing_limited(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.grant("a", 3) == Share(None, None)
    ledger.settle("a", "s", 123.0, turns=9)
    assert (ledger.spent, ledger.left, ledger.turns) == (123.0, None, 9)


def test_less_than_a_cent_is_nothing(path: Path) -> None:
    ledger = Ledger(path, cap_usd=1.0)
    ledger.grant("a")
    ledger.settle("a", "s", 0.995)
    with pytest.raises(CapReached):
        ledger.grant("b")


def test_a_file_of_another_kind_is_not_written_over(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("[]")
    with pytest.raises(InvalidAnalysis, match="is not a ledger of lmp's\nmove it away"):
        Ledger(path)
    assert path.read_text() == "[]"
