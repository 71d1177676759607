"""Runs one tool in a process group of its own: with a limit of time, and with a cap on what is kept of its output."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICK_S = 0.1
_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL; also the wait for output that a child still holds open."""
_PIECE = 1 << 16
MAX_FILE = 256 << 20
"""Bytes at which a tool that writes to ``{out}`` is stopped."""


class HeadAndTail:
    """Keeps the first and the last bytes of a stream of any length; memory does not grow with the stream."""

    def __init__(self, most: int) -> None:
        self.head_size = most // 2
        self.tail_size = most - self.head_size
        self.head, self.tail = bytearray(), deque[bytes]()
        self.in_tail = self.seen = 0

    def add(self, piece: bytes) -> None:
        self.seen += len(piece)
        room = self.head_size - len(self.head)
        self.head += piece[:room]
        rest = piece[room:] if room > 0 else piece
        if rest:
            self.tail.append(rest)
            self.in_tail += len(rest)
        while self.in_tail - len(self.tail[0] if self.tail else b"") >= self.tail_size:
            self.in_tail -= len(self.tail.popleft())

    def kept(self) -> tuple[bytes, int]:
        """The bytes, with a line ``@@cut`` in the middle if any were left out, and how many were."""
        tail = b"".join(self.tail)
        if self.seen <= self.head_size + self.tail_size:
            return bytes(self.head) + tail, 0
        # Whole lines on both sides of the cut, unless a line is longer than the piece.
        head, tail = bytes(self.head), tail[-self.tail_size :]
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :] or tail
        left_out = self.seen - len(head) - len(tail)
        edge = b"" if head.endswith(b"\n") else b"\n"
        return head + edge + b"@@cut %d bytes left out\n" % left_out + tail, left_out


@dataclass
class Ran:
    """What became of one run."""

    output: bytes
    left_out: int
    exit_code: int | None
    seconds: float
    timed_out: bool = False
    too_large: bool = False
    """The file that the tool wrote reached `MAX_FILE`."""
    processes: dict[int, set[str]] = field(default_factory=dict)
    """Process and thread ids of the run -> their names."""


@dataclass(frozen=True)
class Limits:
    seconds: float
    keep: int
    """Bytes of output that are kept."""
    watch: bool = False
    """Note the processes of the run."""


def run_tool(argv: Sequence[str], env: Mapping[str, str], folder: Path, limits: Limits, out: Path | None = None) -> Ran:
    """Run the tool to its end or to its limit. Nothing that it started in its session is left running.

    Raises OSError if it cannot be started.
    """
    start = time.monotonic()
    process = subprocess.Popen(
        argv, env=dict(env), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    stream, keep, ran = process.stdout.fileno(), HeadAndTail(limits.keep), Ran(b"", 0, None, 0)
    os.set_blocking(stream, False)
    ended: float | None = None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                at_end = bool(selector.select(_TICK_S)) and _drain(stream, keep)
                now = time.monotonic()
                if limits.watch:
                    _note_processes(process.pid, ran.processes)
                if process.poll() is not None:
                    ended = now if ended is None else ended
                    # A child in the background may hold the pipe open for ever.
                    if at_end or now - ended > _GRACE_S:
                        break
                elif at_end:
                    # The tool closed its output and works on: wait without reading an ended stream in a loop.
                    selector.unregister(stream)
                    time.sleep(_TICK_S)
                    selector.register(stream, selectors.EVENT_READ)
                ran.timed_out = now - start > limits.seconds and process.poll() is None
                ran.too_large = _size(out) > MAX_FILE
                if ran.timed_out or ran.too_large:
                    break
    finally:
        _stop(process)
        _drain(stream, keep)
        process.stdout.close()
    ran.seconds = (ended or time.monotonic()) - start
    ran.exit_code = None if ran.timed_out or ran.too_large else process.returncode
    ran.output, ran.left_out = keep.kept()
    return ran


def read_capped(path: Path, keep: int) -> tuple[bytes, int]:
    """The content of a file that may be large, cut in the middle, and the number of bytes left out."""
    kept = HeadAndTail(keep)
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            kept.add(piece)
    return kept.kept()


def _drain(stream: int, keep: HeadAndTail) -> bool:
    """Read what is there; true at the end of the stream."""
    for _ in range(64):
        try:
            piece = os.read(stream, _PIECE)
        except BlockingIOError:
            return False
        if not piece:
            return True
        keep.add(piece)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the session of the tool: first politely, so that a tracer can detach."""
    try:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    finally:
        _signal(process.pid, signal.SIGKILL)
        # A process that the kernel does not end must not hold the run for ever.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _signal(session: int, number: int) -> None:
    """To the process group, and to groups that its members made inside the session, as `timeout` does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, number)
    for pid in members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _size(out: Path | None) -> int:
    try:
        return out.stat().st_size if out is not None else 0
    except OSError:
        return 0


def members(session: int) -> list[int]:
    """The ids of the processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name is in parentheses and may hold anything; the session is the fourth field behind it.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # A zombie has ended; it waits for its parent.
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


def _note_processes(session: int, found: dict[int, set[str]]) -> None:
    """Add the processes of a session, with their threads and their names."""
    for pid in members(session):
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                name = (task / "comm").read_text(errors="replace").strip()
                found.setdefault(int(task.name), set()).add(name)
