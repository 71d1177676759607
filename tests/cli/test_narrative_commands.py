"""Parts and a narrative by any agent: the prompt printed, the submission checked, refuted, and in the report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import Lmp

sys.path.insert(0, str(Path(__file__).parents[1] / "report" / "repository"))

from engine_files import FILES
from small_repository import line_of, written

SCHEDULER = "nanoserve/scheduler.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return written(tmp_path / "nanoserve", FILES)


@pytest.fixture
def place(root: Path) -> str:
    return f"`{SCHEDULER}:{line_of(root, SCHEDULER, 'def preempt')}` (`preempt`)"


def run(lmp: Lmp, root: Path, command: str, *more: str) -> tuple[int, str, str]:
    done = lmp(command, str(root), *more, "--reports", str(root.parent / "reports"))
    return done.exit_code, done.stdout, done.stderr


def given(root: Path, content: Any) -> str:
    file = root.parent / "given.json"
    file.write_text(json.dumps(content))
    return str(file)


def submit(lmp: Lmp, root: Path, content: Any, stage: str = "narrate") -> tuple[int, str, str]:
    return run(lmp, root, "submit", given(root, content), "--stage", stage, "--by", "Ada")


def test_from_the_prompt_to_the_report(lmp: Lmp, root: Path, place: str) -> None:
    report = root.parent / "reports/repositories/nanoserve-analysis.md"
    code, out, err = run(lmp, root, "prompt", "--stage", "narrate")
    assert code == 0, err
    assert "Write the narrative of the report on `nanoserve`." in out
    sha = err.splitlines()[-1].removeprefix("sha256 of both: ")
    tldr = [
        f"Preemption gives up all blocks of a sequence: {place}.",
        f"It swaps nothing out: {place}.",
        f"So: {place}.",
    ]
    code, _, err = submit(lmp, root, {"tldr": tldr})
    assert code == 0, err
    assert "no second pass yet" in err
    assert f"written by Ada from this report and the code (prompt `sha256 {sha[:16]}`)" in report.read_text()
    code, out, _ = run(lmp, root, "prompt", "--stage", "refute", "--json")
    assert "## tldr[2]" in json.loads(out)["prompt"]
    assert json.loads(out)["submission"]["title"] == "Refutation"
    judged = [{"text": f"tldr[{n}]", "holds": True, "why": "The lines show it."} for n in range(3)]
    code, _, err = submit(lmp, root, {"judged": judged}, "refute")
    assert code == 0, err
    assert "a second pass held its 3 texts against the code: none refuted" in report.read_text()
    assert lmp("review", str(report), "--root", str(root)).exit_code == 0


def test_what_is_refused_is_not_written(lmp: Lmp, root: Path) -> None:
    code, out, err = submit(lmp, root, {"tldr": ["See `nanoserve/engine.py:1` (`leap`)."]})
    assert code == 4
    assert "1. pointer: tldr[0]: nanoserve/engine.py:1: leap does not stand within 3 lines" in out
    assert "error: refused, with 1 finding\nnothing was written" in err
    assert not (root.parent / "reports").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("submit", "FILE", "--stage", "narrate"), "--by is missing"),
        (("submit", "FILE", "--stage", "refute", "--by", "Ada"), "there is no narrative in"),
        (("prompt", "--stage", "refute"), "there is no narrative in"),
    ],
)
def test_what_has_to_be_there(lmp: Lmp, root: Path, more: tuple[str, ...], message: str) -> None:
    command, *rest = (given(root, {}) if one == "FILE" else one for one in more)
    code, _, err = run(lmp, root, command, *rest)
    assert code == 2
    assert message in err


def test_options_of_a_narrative_alone(lmp: Lmp, root: Path) -> None:
    done = lmp("prompt", "torch.nn.Linear", "--reports", str(root))
    assert done.exit_code == 2
    assert "--reports: for a report only" in done.stderr


def test_a_review_without_the_list_of_numbers_makes_the_report_again(lmp: Lmp, root: Path) -> None:
    assert run(lmp, root, "report")[0] == 0
    report = root.parent / "reports/repositories/nanoserve-analysis.md"
    (root.parent / "reports/assets/nanoserve-numbers.json").unlink()
    done = lmp("review", str(report), "--root", str(root))
    assert done.exit_code == 0
    assert "the report was made again, as no list of numbers lies beside it: from nanoserve/" in done.stdout
    assert not (root.parent / "reports/assets/nanoserve-numbers.json").exists()
    report.write_text(
        report.read_text().replace("Controlled by 2 environment variables", "Controlled by 3 environment variables")
    )
    done = lmp("review", str(report), "--root", str(root))
    assert done.exit_code == 4
    assert "number: 3 stands where lmp wrote 2" in done.stdout


def test_a_code_base_outside_of_the_folders_is_not_read(lmp: Lmp, root: Path, tmp_path: Path) -> None:
    assert run(lmp, root, "report")[0] == 0
    (root.parent / "reports/assets/nanoserve-numbers.json").unlink()
    other = tmp_path / "other"
    other.mkdir()
    done = lmp("review", str(root.parent / "reports/repositories/nanoserve-analysis.md"), "--root", str(other))
    assert "its code base was not read: name its folder with --root" in done.stdout


# --- parts -----------------------------------------------------------------------------------------------------------


def a_part(root: Path, **changes: Any) -> dict[str, Any]:
    line = line_of(root, SCHEDULER, "def preempt")
    given = {
        "section": "scheduler",
        "role": "preemption",
        "symbol": "Scheduler.preempt",
        "file": SCHEDULER,
        "line": line,
    }
    return {**given, "why": "Gives up the blocks of a sequence.", **changes}


def test_parts_from_the_prompt_to_the_report(lmp: Lmp, root: Path) -> None:
    code, out, err = run(lmp, root, "prompt", "--stage", "parts")
    assert code == 0, err
    assert "Name the parts of the code base `nanoserve`." in out
    assert f"{SCHEDULER}  python, {len((root / SCHEDULER).read_text().splitlines())} lines\n" in out
    assert "\nscheduler: " in out
    sha = err.splitlines()[-1].removeprefix("sha256 of both: ")
    code, _, err = submit(lmp, root, {"parts": [a_part(root)], "absent": ["attention"]}, "parts")
    assert code == 0, err
    report = root.parent / "reports/repositories/nanoserve-analysis.md"
    text = report.read_text()
    assert f"**Parts:** named by Ada from the code (prompt `sha256 {sha[:16]}`) and submitted with lmp submit" in text
    assert (
        "1 place and 0 calls of scheduler; each place was opened; said to be absent: attention; by rules: entry points"
        in text
    )
    place = f"`{SCHEDULER}:{a_part(root)['line']}` (`preempt`)"
    assert f"| scheduler | preemption | {place} | Gives up the blocks of a sequence |" in text
    assert f"**Chunking / preemption** (preemption): {place}" in text
    assert "Said to be absent: attention. Found by rules and not named, so left out: " in text
    # They are kept: a later report has them, in the other template too, and so has a review that makes it again.
    assert run(lmp, root, "report")[2].splitlines()[-1] != ""
    assert report.read_text() == text
    assert run(lmp, root, "report", "--template", "implementation")[0] == 0
    assert (
        "**Parts:** named by Ada"
        in (report.parents[1] / "implementations/nanoserve-implementation-analysis.md").read_text()
    )
    (root.parent / "reports/assets/nanoserve-numbers.json").unlink()
    done = lmp("review", str(report), "--root", str(root))
    assert done.exit_code == 0
    assert "the report was made again" in done.stdout
    # A narrative is of the report with them.
    code, out, _ = run(lmp, root, "prompt", "--stage", "narrate")
    assert "**Parts:** named by Ada" in out


def test_parts_that_do_not_hold_any_more_are_left_out(lmp: Lmp, root: Path) -> None:
    assert submit(lmp, root, {"parts": [a_part(root)]}, "parts")[0] == 0
    kept = root.parent / "reports/assets/nanoserve-parts.json"
    kept.write_text(kept.read_text().replace("Scheduler.preempt", "Scheduler.leap"))  # as if the code had changed
    code, _, err = run(lmp, root, "report")
    assert code == 0, err
    assert "are left out, as they do not hold any more; submit others with --stage parts" in err
    assert "parts[0]: leap does not stand within 3 lines" in err
    kept.write_text("{")
    assert "is none of lmp's; submit others with --stage parts" in run(lmp, root, "report")[2]
    assert "**Parts:**" not in (root.parent / "reports/repositories/nanoserve-analysis.md").read_text()


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"symbol": "Scheduler.leap"}, "1. pointer: parts[0]: leap does not stand within 3 lines of"),
        ({"file": "../secret.py"}, "1. pointer: the parts: none of their files is one of the code base"),
        ({"section": "brain"}, "1. schema: parts.0.section: Input should be 'entry_points'"),
    ],
)
def test_parts_that_are_refused_are_not_written(lmp: Lmp, root: Path, changes: dict[str, str], finding: str) -> None:
    code, out, err = submit(lmp, root, {"parts": [a_part(root, **changes)]}, "parts")
    assert (code, finding in out) == (4, True), out
    assert "nothing was written" in err
    assert not (root.parent / "reports").exists()


def test_only_a_code_base_has_parts(lmp: Lmp) -> None:
    done = lmp("prompt", "torch.nn.Linear", "--stage", "parts")
    assert done.exit_code == 2
    assert "--stage parts is for a code base\ngive its folder" in done.stderr
