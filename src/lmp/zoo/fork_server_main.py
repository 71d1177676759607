"""The fork server's process: ``python -m lmp.zoo.fork_server_main TRANSFORMERS PYTORCH``, started by `ForkServer`.

Each line of stdin is a request with its limits. The answer gives the child's exit code, time and memory. When stdin
closes, the caller has ended: the server kills its child and exits.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from lmp.zoo.requests import WALL_TIME_FACTOR, Request, peak_bytes

POLL = 0.05
"""Seconds between two checks of a child."""

PRELOADED = (
    "torch",
    "transformers.modeling_utils",
    "lmp.link.link",
    "lmp.analyze.job",
    "lmp.zoo.family",
)

STAGE = "stage.json"
"""File beside the answer with the child's current class and stage."""

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def main(transformers: str, pytorch: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # models may print: that must not reach the caller's pipe
    try:
        _load(Path(transformers) if transformers else None, Path(pytorch) if pytorch else None)
    except Exception as error:
        _answer(answers, {"error": str(error) or type(error).__name__})
        return
    _answer(answers, {"ready": True})
    requests = os.fdopen(0, "rb", buffering=0)
    while line := _read_line(requests):
        _answer(answers, _run(json.loads(line), requests))


def _load(transformers: Path | None, pytorch: Path | None) -> None:
    """Import the modules that every family needs, so that each child inherits them."""
    from lmp.source.trees import find_trees
    from lmp.workload.load import use_transformers_tree

    tree = find_trees(None, transformers, pytorch, []).need("transformers")
    use_transformers_tree(tree.package_dir.parent)
    for name in PRELOADED:
        importlib.import_module(name)
    # Threads do not survive a fork and are not needed: the meta device computes nothing.
    sys.modules["torch"].set_num_threads(1)

    gc.collect()
    gc.freeze()


def _run(task: dict[str, Any], requests: BinaryIO) -> dict[str, Any]:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(task)
    limit, place = "", ""
    while True:
        found, status, used = os.wait4(child, os.WNOHANG)
        if found:
            break
        if not limit:
            limit = _exceeded(task, child, time.monotonic() - began)
            if limit:
                place = _line_of(child, Path(task["answer"]))
                os.kill(child, signal.SIGKILL)
        if select.select([requests], [], [], POLL)[0]:
            # A caller sends nothing before the answer, so readable input means that stdin was closed: the caller has
            # ended.
            os.kill(child, signal.SIGKILL)
            os._exit(0)
    return {
        **_read_stage(Path(task["answer"]).with_name(STAGE)),
        "code": os.waitstatus_to_exitcode(status),
        "limit": limit,
        "place": place,
        "seconds": time.monotonic() - began,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": peak_bytes(used),
    }


def _child(task: dict[str, Any]) -> None:
    code = 1
    try:
        from lmp.store.files import write_whole
        from lmp.zoo.family import analyse_family

        answer = Path(task.pop("answer"))
        os.close(0)
        stacks = open(answer.with_name("stacks"), "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
        for name in ("seconds", "memory"):
            task.pop(name)
        entry = analyse_family(Request(**task), _progress_to(answer.with_name(STAGE)))
        write_whole(answer, entry.model_dump_json())
        code = 0
    finally:
        os._exit(code)


def _progress_to(file: Path) -> Callable[[str, str], None]:
    """A progress callback that writes to a file. The server reads the file if the child is stopped."""
    from lmp.analyze.session import WAITING

    first: list[str] = []

    def write(class_path: str, stage: str) -> None:
        if stage == WAITING:  # said of other classes than the current one
            return
        first[:] = first or [class_path]
        file.write_text(json.dumps({"class_name": first[0], "at": class_path, "stage": stage}))

    return write


def _exceeded(task: dict[str, Any], child: int, seconds: float) -> str:
    if _cpu_seconds(child) > task["seconds"]:
        return "time"
    if seconds > WALL_TIME_FACTOR * task["seconds"]:
        return "wall"
    return "memory" if _resident(child) > task["memory"] else ""


def _read_stage(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    return {}


def _cpu_seconds(child: int) -> float:
    """CPU seconds of a child; 0 on a system without /proc, where only the wall time limit applies."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # User and system time are fields 12 and 13 after the name in parentheses, which may contain spaces.
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def _resident(child: int) -> int:
    """Bytes of resident memory; 0 on a system without /proc."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{child}/statm").read_text().split()[1]) * PAGE
    return 0


def _line_of(child: int, answer: Path) -> str:
    """``file:line`` of the innermost transformers frame on a child's stack; empty if there is none."""
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGUSR1)
        time.sleep(0.5)
        for line in answer.with_name("stacks").read_text().splitlines():
            head, _, rest = line.strip().removeprefix('File "').partition('", line ')
            if "/transformers/models/" in head:
                return f"{os.path.basename(head)}:{rest.split()[0]}"
    return ""


def _read_line(requests: BinaryIO) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        more = requests.read(65536)
        if not more:
            return b""
        found += more
    return found


def _answer(stream: Any, data: dict[str, Any]) -> None:
    stream.write(json.dumps(data) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(*sys.argv[1:3])
