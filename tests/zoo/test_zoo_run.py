"""A run over families with an executor that runs nothing: what is kept, what is made again, what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lmp.errors import InvalidAnalysis, UsageError
from lmp.records import ZooEntry, ZooSummary
from lmp.source.auto import Family, families
from lmp.zoo.comparing import compared
from lmp.zoo.entries import Entries, read_summary, summary_text
from lmp.zoo.requests import Request
from lmp.zoo.run import ZooOptions, run_zoo
from synthetic_zoo import NAMES, SyntheticExecutor, clone


class Silent:
    def known(self, entries: Sequence[ZooEntry], to_do: int) -> None: ...
    def started(self, request: Request) -> None: ...
    def ended(self, entry: ZooEntry) -> None: ...


@pytest.fixture
def options(tmp_path: Path) -> ZooOptions:
    return ZooOptions(tmp_path / "results", transformers=clone(tmp_path))


def run(options: ZooOptions, executor: SyntheticExecutor) -> ZooSummary:
    chosen = families(options.trees(), "base")
    (found,) = run_zoo(chosen, options, executor, Silent())
    return found


def test_what_was_done_is_not_done_again(options: ZooOptions) -> None:
    assert run(options, SyntheticExecutor(bee="error")).verified == 2
    again = SyntheticExecutor()
    found = run(options, again)
    assert again.asked == []
    assert [entry.status for entry in found.entries] == ["verified", "error", "verified"]


def test_an_interrupted_run_goes_on_where_it_was(options: ZooOptions) -> None:
    first = SyntheticExecutor(cat="killed")
    with pytest.raises(KeyboardInterrupt):
        run(options, first)
    assert first.closed
    second = SyntheticExecutor()
    assert run(options, second).verified == 3
    assert second.asked == ["cat"]


def test_retry_makes_again_what_was_not_verified(options: ZooOptions) -> None:
    run(options, SyntheticExecutor(bee="stopped"))
    again = SyntheticExecutor()
    retried = ZooOptions(options.results, options.transformers, retry=True)
    assert run(retried, again).verified == 3
    assert again.asked == ["bee"]


def test_entries_of_other_rules_are_made_again(options: ZooOptions) -> None:
    run(options, SyntheticExecutor())
    entries = Entries(options.results)
    bee = Family("bee", "base", "BeeModel")
    kept = entries.load(bee)
    assert kept is not None
    entries.save(kept.model_copy(update={"fingerprint": "of an older lmp"}))
    again = SyntheticExecutor()
    run(options, again)
    assert again.asked == ["bee"]


def test_an_entry_that_cannot_be_read_is_made_again(options: ZooOptions) -> None:
    run(options, SyntheticExecutor())
    (options.results / ".zoo" / "base" / "ant.json").write_text('{"family": "ant"')
    again = SyntheticExecutor()
    run(options, again)
    assert again.asked == ["ant"]


def test_families_that_were_not_run_are_named(options: ZooOptions) -> None:
    (found,) = run_zoo([Family("bee", "base", "BeeModel")], options, SyntheticExecutor(), Silent())
    assert (found.families, found.not_run) == (3, ["ant", "cat"])


def test_a_summary_comes_back_from_its_file(options: ZooOptions, tmp_path: Path) -> None:
    found = run(options, SyntheticExecutor(bee="failed"))
    (tmp_path / "base.json").write_text(summary_text(found))
    assert read_summary(tmp_path / "base.json") == found


@pytest.mark.parametrize(
    ("text", "error"), [("{", InvalidAnalysis), ('{"task": 3}', InvalidAnalysis), (None, UsageError)]
)
def test_a_file_that_is_no_summary_is_refused(tmp_path: Path, text: str | None, error: type[Exception]) -> None:
    file = tmp_path / "no.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(error):
        read_summary(file)


def test_what_was_verified_and_is_not_any_more_is_found(options: ZooOptions) -> None:
    before = run(options, SyntheticExecutor(cat="error"))
    options = ZooOptions(options.results, options.transformers, fresh=True)
    after = run(options, SyntheticExecutor(ant="failed"))
    found = compared(before, after)
    assert [change.family for change in found.regressed] == ["ant"]
    assert [change.family for change in found.gained] == ["cat"]


def test_a_family_whose_numbers_changed_is_found(options: ZooOptions) -> None:
    before = run(options, SyntheticExecutor())
    ant = before.entries[0].model_copy(update={"totals": {"flops": 7}})
    now = ant.model_copy(update={"totals": {"flops": 8}})
    found = compared(before.model_copy(update={"entries": [ant]}), before.model_copy(update={"entries": [now]}))
    assert [(c.family, c.before, c.now) for c in found.changed] == [("ant", "flops 7", "8")]
    assert compared(before, before.model_copy(update={"entries": []})).absent == NAMES
