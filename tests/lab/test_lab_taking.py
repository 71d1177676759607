"""Captures: refusals, missing tools, binary output, redaction, runs, interruption."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lmp.errors import BrokenPostFile, Interrupted, UsageError
from lmp.lab import post as stores
from lmp.lab import taking
from lmp.lab.config import CaptureRule
from lmp.lab.machine import Machine, changes
from lmp.lab.post import Post, Stored, load, read_post
from lmp.lab.records import Capture
from lmp.lab.redaction import Redactor, as_text


def post_with(folder: Path, captures: str) -> Post:
    post = folder / "posts" / "some"
    (folder / "posts" / "workloads").mkdir(parents=True, exist_ok=True)
    post.mkdir(parents=True, exist_ok=True)
    (post / "lab.toml").write_text(f'title = "t"\nquestion = "q"\n{captures}')
    return read_post(post)


def taken(folder: Path, rule: str) -> Stored:
    """The one capture of that rule, taken and loaded."""
    post = post_with(folder, f"[capture.one]\n{rule}")
    taking.take(post, post.captures, folder / "build", ())
    stored = load(post.captures, "one")
    assert stored is not None
    return stored


def python(script: str) -> str:
    return f"argv = ['{{python}}', '-c', {json.dumps(script)}]\ntool = 'python'\n"


def test_a_capture_has_what_a_reader_needs(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("print('a'); print('b')") + "env = {OMP_NUM_THREADS = '1'}")
    record = stored.record
    assert stored.lines == ["a", "b"]
    assert (record.status, record.exit_code, record.message, record.threads) == ("ok", 0, "", 1)
    assert record.argv_template[0] == "{python}"
    assert sys.prefix not in " ".join(record.argv)
    assert record.cpus >= 1
    assert record.memory > 2**20
    assert record.tool_version == "Python " + ".".join(map(str, sys.version_info[:3]))
    assert len(record.load_before) == len(record.load_after) == 3


def test_a_tool_that_is_missing_is_a_capture_that_names_the_package(tmp_path: Path) -> None:
    stored = taken(tmp_path, 'argv = ["no-such-tool", "x"]\ntool = "no-such-tool"\npackage = "tools"')
    assert stored.record.status == "missing"
    assert stored.record.message == "no-such-tool is not installed; the package tools has it"
    assert (stored.text, stored.record.exit_code) == ("", None)


def test_a_module_that_is_missing(tmp_path: Path) -> None:
    stored = taken(tmp_path, 'argv = ["{python}", "-m", "no_such_module"]\ntool = "x"\npackage = "y"')
    assert (stored.record.status, stored.record.message) == (
        "missing",
        "no_such_module is not installed; the package y has it",
    )


def test_a_wrapper_that_finds_no_tool(tmp_path: Path) -> None:
    assert taken(tmp_path, python("import sys; sys.exit(127)")).record.status == "missing"


def test_a_program_that_was_not_built(tmp_path: Path) -> None:
    stored = taken(tmp_path, 'argv = ["{build}/prog"]\ntool = "prog"')
    assert stored.record.status == "missing"
    assert stored.record.message.startswith("{build}/prog was not built")


def test_a_refusal_keeps_the_words_of_the_tool(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("import sys; print('counting'); sys.exit('Operation not permitted')"))
    assert (stored.record.status, stored.record.exit_code) == ("refused", 1)
    assert stored.record.message == "Operation not permitted"
    assert stored.lines == ["counting", "Operation not permitted"]


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        # bpftrace and perf give advice below the reason, Python nothing.
        ("ERROR: failed to create map: Operation not permitted\nCreation has failed.\nSee dmesg", "ERROR: failed to"),
        ("Traceback (most recent call last):\n  line 1\nValueError: no", "ValueError: no"),
        ("counting\nerror: no such event\ntry list", "error: no such event"),
        ("one\ntwo", "two"),
    ],
)
def test_a_refusal_is_told_by_its_reason(tmp_path: Path, printed: str, said: str) -> None:
    stored = taken(tmp_path, python(f"import sys; print({printed!r}); sys.exit(1)"))
    assert stored.record.status == "refused"
    assert stored.record.message.startswith(said)


def test_a_refusal_at_exit_code_0(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("print('cycles: <not supported>')") + "refusal = 'not supported'")
    assert (stored.record.status, stored.record.message) == ("refused", "cycles: <not supported>")


def test_a_program_that_the_kernel_refuses(tmp_path: Path) -> None:
    captures = (
        "[capture.make]\nargv = ['{python}', '-c', 'open(\"prog\", \"wb\").write(bytes(64)); "
        "import os; os.chmod(\"prog\", 0o755)']\ntool = 'python'\n"
        "[capture.use]\nargv = ['{build}/prog']\ntool = 'prog'\nafter = ['make']\n"
    )
    post = post_with(tmp_path, captures)
    _, use = taking.take(post, post.captures, tmp_path / "build", ())
    assert (use.status, use.message) == ("refused", "{build}/prog: Exec format error")


def test_an_exit_code_that_is_no_refusal(tmp_path: Path) -> None:
    assert taken(tmp_path, python("import sys; sys.exit(1)") + "ok_exit = [0, 1]").record.status == "ok"


def test_a_tool_that_hangs_is_a_capture(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("import time; print('x', flush=True); time.sleep(600)") + "limit_s = 0.5")
    assert (stored.record.status, stored.record.message) == ("timed_out", "stopped after its limit of 0.5 s")
    assert stored.lines == ["x"]


def test_large_output_is_cut_and_said_so(tmp_path: Path) -> None:
    # 10,000 lines of 10 bytes.
    stored = taken(tmp_path, python("print('123456789\\n' * 10_000, end='')") + "max_bytes = 1000")
    kept = sum(line == "123456789" for line in stored.lines)
    assert stored.record.status == "cut"
    assert stored.record.left_out == 100_000 - 10 * kept
    assert f"@@cut {stored.record.left_out} bytes left out" in stored.lines


def test_output_that_is_no_text_is_escaped_and_counted(tmp_path: Path) -> None:
    # \xff and \xfe are no UTF-8, \x00 and \x1b are control characters: 4 bytes.
    script = "import os; os.write(1, bytes([255, 254, 0, 27]) + 'µ ok\\r\\n'.encode())"
    stored = taken(tmp_path, python(script))
    assert stored.text == "\\xff\\xfe\\x00\\x1bµ ok\n"
    assert stored.record.escaped == 4


@pytest.mark.parametrize("raw", [b"plain\n", "µs → ns\n".encode(), b"tab\tand\nline"])
def test_text_stays_as_it_is(raw: bytes) -> None:
    assert as_text(raw) == (raw.decode(), 0)


def test_runs_stand_behind_their_marks(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("print('x')") + "repeat = 3")
    assert stored.lines == ["@@run 1", "x", "@@run 2", "x", "@@run 3", "x"]
    assert stored.record.repeat == 3


def test_nothing_runs_behind_a_failure(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("import sys; sys.exit('no')") + "repeat = 3")
    assert stored.lines == ["@@run 1", "no"]
    assert stored.record.repeat == 1


def test_the_file_of_a_tool_stands_behind_its_output(tmp_path: Path) -> None:
    rule = "argv = ['{python}', '-c', 'import sys; print(1); open(sys.argv[1], \"w\").write(sys.argv[1])', '{out}']\n"
    assert taken(tmp_path, rule + "tool = 'python'").lines == ["1", "@@out", "<out>"]


def test_tools_share_the_build_folder_and_run_in_it(tmp_path: Path) -> None:
    captures = (
        "[capture.use]\nargv = ['cat', '{build}/made']\ntool = 'cat'\nafter = ['make']\n"
        "[capture.make]\nargv = ['{python}', '-c', 'open(\"made\", \"w\").write(\"it\")']\ntool = 'python'\n"
    )
    post = post_with(tmp_path, captures)
    records = taking.take(post, post.captures, tmp_path / "build", ["use"])
    assert [record.id for record in records] == ["make", "use"]
    stored = load(post.captures, "use")
    assert stored is not None
    assert stored.text == "it\n"


def test_captures_that_wait_for_one_another(tmp_path: Path) -> None:
    rule = "argv = ['true']\ntool = 'true'\n"
    post = post_with(tmp_path, f"[capture.a]\n{rule}after = ['b']\n[capture.b]\n{rule}after = ['a']\n")
    with pytest.raises(BrokenPostFile, match="captures wait for one another: a -> b -> a"):
        post.lab  # noqa: B018


def test_an_unknown_capture_is_refused(tmp_path: Path) -> None:
    post = post_with(tmp_path, "[capture.a]\nargv = ['true']\ntool = 'true'")
    with pytest.raises(UsageError, match=r"b is no capture of some\ncaptures are: a"):
        taking.take(post, post.captures, tmp_path / "build", ["b"])


def test_counters_before_and_after(tmp_path: Path) -> None:
    stored = taken(tmp_path, python("pass") + "before = ['loadavg']")
    assert stored.lines[:2] == ["@@loadavg", "name before after change"]


def test_changes_of_counters() -> None:
    before = {"LOC": (10, "Local timer interrupts"), "NMI": (4, "")}
    after = {"LOC": (17, "Local timer interrupts"), "NMI": (4, ""), "RES": (2, "")}
    assert changes("interrupts", before, after) == [
        "@@interrupts",
        "name before after change",
        "LOC 10 17 7 Local timer interrupts",
        "RES 0 2 2",
    ]


def test_a_capture_that_needs_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking.m, "machine", lambda: Machine("Linux", "cpu", 2, 2**30, None))
    stored = taken(tmp_path, "argv = ['true']\ntool = 'true'\nneeds = 'gpu'")
    assert (stored.record.status, stored.record.message) == ("missing", taking.NO_GPU)


# --- redaction -------------------------------------------------------------------------------------------------------


def test_paths_of_the_machine_are_redacted_and_counted(tmp_path: Path) -> None:
    script = "import os; print(os.environ['HERE'] + '/posts/x', os.environ['HERE'] + '2', os.getcwd())"
    rule = python(script) + "env = {HERE = '" + str(tmp_path) + "'}"
    stored = taken(tmp_path, rule)
    # A folder whose name only begins alike is another one; it is still below the folder for temporary files.
    assert stored.lines[0].split()[0] == "<repo>/posts/x"
    assert stored.lines[0].split()[2] == "<build>"
    assert str(tmp_path) + " " not in stored.text
    assert stored.record.redactions["repo"] >= 1


def test_where_a_path_begins_and_ends() -> None:
    by = Redactor([("/work/ab", "<repo>", "repo"), ("box7", "<host>", "host")])
    assert by.text("-I/work/ab/x:/work/abc:/work/ab;/work/ab-2 box7 xbox7 box77") == (
        "-I<repo>/x:/work/abc:<repo>;/work/ab-2 <host> xbox7 box77"
    )
    assert by.counts == {"repo": 2, "host": 1}


def test_other_processes_are_redacted_and_own_ones_stay() -> None:
    by = Redactor((), own={41: {"python"}})
    pattern = r"(?P<name>\w+)\[(?P<pid>\d+)\]"
    assert by.text("python[41] woke sshd[977] and cron[5]", pattern) == (
        "python[41] woke [other][[other]] and [other][[other]]"
    )
    assert by.counts == {"other": 2}


def test_names_alone_are_compared_with_own_names() -> None:
    by = Redactor((), own={41: {"python"}})
    assert by.text("python:41 8\nsshd 3", r"^(?P<name>\w+)") == "python:41 8\n[other] 3"


def test_a_running_capture_knows_its_own_processes(tmp_path: Path) -> None:
    script = "import os, time; print(f'p[{os.getpid()}] q[1]', flush=True); time.sleep(1)"
    stored = taken(tmp_path, python(script) + "others = '(?P<pid>\\d+)'")
    first, second = stored.lines[0].split()
    assert first.startswith("p[")
    assert "[other]" not in first
    assert second == "q[[other]]"


def test_a_disk_that_is_full_leaves_the_capture_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = taken(tmp_path, python("print('a')"))
    whole = stores.write_whole

    def full(path: Path, content: str) -> None:
        if path.name.startswith(".one.json"):
            raise OSError(28, "No space left on device")
        whole(path, content)

    monkeypatch.setattr(stores, "write_whole", full)
    with pytest.raises(OSError, match="No space"):
        stores.save(stored.folder, stored.record.model_copy(update={"tool": "other"}), "b\n")
    again = load(stored.folder, "one")
    assert again is not None
    assert (again.text, again.record) == ("a\n", stored.record)
    assert sorted(file.name for file in stored.folder.iterdir()) == ["one.json", "one.txt"]


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_whole_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = "argv = ['echo', 'x']\ntool = 'echo'\n"
    post = post_with(tmp_path, f"[capture.a]\n{rule}[capture.b]\n{rule}")
    one = taking.take_one

    def interrupted(where: taking.Taking, name: str, rule: CaptureRule) -> tuple[Capture, str]:
        if name == "b":
            raise KeyboardInterrupt
        return one(where, name, rule)

    monkeypatch.setattr(taking, "take_one", interrupted)
    with pytest.raises(Interrupted, match="interrupted in b: 1 of 2 captures are whole") as raised:
        taking.take(post, post.captures, tmp_path / "build", ())
    assert "--only b --replace" in str(raised.value)
    assert load(post.captures, "a") is not None
    assert load(post.captures, "b") is None
