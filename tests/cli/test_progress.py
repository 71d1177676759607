"""Progress on stderr: steps with counts, and an estimate only where there is something to estimate from."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from lmp.analyze.session import WAITING
from lmp.cli.output import ascii_only, is_one_stream
from lmp.cli.progress import FIRST_TIME, BarWatch, PlainWatch, progress_text, steps, time_left


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "12 s, starting"),
        ({"of": "1 of 9 classes", "finished": 1, "classes": 9}, "1 of 9 classes, 12 s, starting"),
        # 3 classes in 12 s, 6 are left: 24 s
        ({"of": "3 of 9 classes", "finished": 3, "classes": 9}, "3 of 9 classes, 12 s, about 24 s left, starting"),
        ({"of": "9 of 9 classes", "finished": 9, "classes": 9}, "9 of 9 classes, 12 s, starting"),
    ],
)
def test_steps_elapsed_and_rest(fields: dict[str, Any], text: str) -> None:
    assert progress_text(fields, "starting", 12.2, 100) == text


def test_what_does_not_fit_is_cut_with_a_mark() -> None:
    assert progress_text({}, "LlamaForCausalLM: verifying", 1, 20) == "1 s, LlamaForCaus..."


def test_a_bar_counts_the_classes_that_wait() -> None:
    out = Console(file=io.StringIO(), width=80)
    progress = Progress(console=out, disable=True)
    watch = BarWatch(progress, ["a.Model"], says_first_time=True)
    for name, stage in (
        ("a.Model", "reading"), ("a.Model", "tracing"), ("a.Block", WAITING), ("a.Norm", WAITING),
        ("a.Norm", "verifying"), ("a.Norm", "stored"), ("a.Block", "tracing"),
    ):  # fmt: skip
        watch(name, stage)
    task = progress.tasks[0]
    assert task.fields["of"] == "1 of 3 classes"
    # reading is step 0 of 4, tracing 1, stored all 4: Model 1, Norm 4, Block 1
    assert (task.completed, task.total) == (6, 3 * 4)
    assert watch.current == "a.Block"
    assert out.file.getvalue().count(FIRST_TIME) == 1  # type: ignore[attr-defined]


def test_waiting_is_no_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    watch = PlainWatch()
    watch("a.Block", WAITING)
    watch("a.Norm", "verifying")
    assert capsys.readouterr().err == "a.Norm: verifying\n"
    assert watch.current == "a.Norm"


class Screen(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "ascii_text"),
    [
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX"}, True),
        ({"LANG": "C"}, True),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
        ({}, False),
    ],
)
def test_a_terminal_of_the_c_locale_has_ascii_alone(
    variables: dict[str, str], ascii_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ascii_only(Screen()) is ascii_text
    assert ascii_only(io.StringIO()) is False  # a file gets what it always got


def test_each_long_step_has_a_line_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    with steps("model", quiet=False) as say:
        for done, name in enumerate(("a/b", "c/d", "")):
            say(done, 2, name)
    assert capsys.readouterr().err == "model 1 of 2: a/b\nmodel 2 of 2: c/d\n"
    with steps("model", quiet=True) as say:
        say(0, 2, "a/b")
    assert capsys.readouterr().err == ""


def test_the_rest_is_estimated_once_two_are_done() -> None:
    # 3 in 12 s, 6 are left: 24 s.
    assert [time_left(done, 9, 12.0) for done in (0, 1, 3, 9)] == ["", "", ", about 24 s left", ""]


@pytest.mark.parametrize(("together", "is_one"), [(True, "True"), (False, "False")])
def test_whether_both_streams_go_to_one_place(process: None, together: bool, is_one: str) -> None:
    code = "from lmp.cli.output import is_one_stream; print(is_one_stream())"
    errors = subprocess.STDOUT if together else subprocess.PIPE
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=errors, text=True, check=True)
    assert done.stdout == f"{is_one}\n"


def test_streams_of_no_file_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not is_one_stream()
