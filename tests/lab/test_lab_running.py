"""Tools that run, hang, flood, and leave children behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.lab import running
from lmp.lab.running import HeadAndTail, Limits, Ran, members, read_capped, run_tool


def python(script: str, folder: Path, limits: Limits | None = None, out: Path | None = None) -> Ran:
    return run_tool([sys.executable, "-c", script], os.environ, folder, limits or Limits(60, 10_000), out)


def test_output_of_both_streams_and_the_exit_code(tmp_path: Path) -> None:
    script = "import os, sys; os.write(1, b'out\\n'); os.write(2, b'err\\n'); sys.exit(3)"
    ran = python(script, tmp_path)
    assert (ran.output, ran.exit_code, ran.left_out, ran.timed_out) == (b"out\nerr\n", 3, 0, False)


def test_a_tool_that_hangs_is_stopped_and_keeps_what_it_printed(tmp_path: Path) -> None:
    ran = python("import time; print('begun', flush=True); time.sleep(600)", tmp_path, Limits(0.5, 1000))
    assert ran.timed_out
    assert ran.exit_code is None
    assert ran.output == b"begun\n"


def test_children_are_stopped_with_the_tool_even_in_a_group_of_their_own(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, time\n"
        "same = subprocess.Popen(['sleep', '600'])\n"
        "own = subprocess.Popen(['sleep', '600'], process_group=0)\n"
        "print(os.getsid(0), same.pid, own.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    ran = python(script, tmp_path, Limits(2, 1000))
    session, same, own = map(int, ran.output.split())
    assert len({session, same, own}) == 3
    assert members(session) == []


def test_members_sees_a_session() -> None:
    assert os.getpid() in members(os.getsid(0))


def test_a_child_that_keeps_the_pipe_open_does_not_hold_the_run(tmp_path: Path) -> None:
    ran = python("import subprocess; subprocess.Popen(['sleep', '600']); print('done')", tmp_path)
    assert (ran.output, ran.exit_code, ran.timed_out) == (b"done\n", 0, False)


def test_a_tool_that_closes_its_output_and_works_on(tmp_path: Path) -> None:
    script = "import os, time; os.write(1, b'x\\n'); os.close(1); os.close(2); time.sleep(0.5); os._exit(5)"
    assert python(script, tmp_path).exit_code == 5


def test_a_flood_is_cut_while_it_is_written(tmp_path: Path) -> None:
    # 100 bytes a line, 1,000 lines a write, 1,000 writes: 100,000,000 bytes.
    script = "import os\nline = b'x' * 99 + b'\\n'\nfor _ in range(1000): os.write(1, line * 1000)"
    ran = python(script, tmp_path, Limits(300, 1000))
    lines = ran.output.splitlines()
    marks = [line for line in lines if line.startswith(b"@@cut")]
    kept = [line for line in lines if line == b"x" * 99]
    assert len(marks) == 1
    assert len(kept) + 1 == len(lines)
    assert ran.left_out == 100_000_000 - 100 * len(kept)
    assert len(kept) <= 10
    assert marks[0] == b"@@cut %d bytes left out" % ran.left_out


def test_a_file_that_grows_without_end_stops_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_FILE", 10_000)
    out = tmp_path / "out"
    script = f"import time\nwith open({str(out)!r}, 'w') as f:\n    f.write('y' * 20_000); f.flush(); time.sleep(600)"
    ran = python(script, tmp_path, out=out)
    assert ran.too_large
    assert not ran.timed_out
    content, left_out = read_capped(out, 100)
    assert left_out == 20_000 - 100
    assert content.startswith(b"y" * 50 + b"\n@@cut")


@given(st.lists(st.binary(max_size=40)), st.integers(2, 60))
def test_head_and_tail_of_any_stream(pieces: list[bytes], most: int) -> None:
    kept = HeadAndTail(most)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    found, left_out = kept.kept()
    if len(whole) <= most:
        assert (found, left_out) == (whole, 0)
        return
    head, _, tail = found.partition(b"@@cut %d bytes left out\n" % left_out)
    assert whole.endswith(tail)
    assert whole.startswith(head) or whole.startswith(head.removesuffix(b"\n"))
    assert len(kept.head) + kept.in_tail < most + 41
