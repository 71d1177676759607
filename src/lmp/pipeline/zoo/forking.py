"""The nursery's own side: ``python -m lmp.pipeline.zoo.forking TRANSFORMERS PYTORCH``, spoken to by `Nursery`.

Each line of stdin is a request with its limits; the answer tells how its child ended and what it took. Where stdin
ends, whoever started the nursery is gone, and so is what it runs.
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

from lmp.pipeline.zoo.requests import PATIENCE, Request, peak_bytes

POLL = 0.05
"""Seconds between two looks at a child."""

PRELOADED = (
    "torch",
    "transformers.modeling_utils",
    "lmp.expand.link",
    "lmp.pipeline.making",
    "lmp.pipeline.zoo.family",
)

STAGE = "stage.json"
"""Beside the answer: what the child does at present."""

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def main(transformers: str, pytorch: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what models print is no answer
    try:
        _load(Path(transformers) if transformers else None, Path(pytorch) if pytorch else None)
    except Exception as error:
        _answer(answers, {"error": str(error) or type(error).__name__})
        return
    _answer(answers, {"ready": True})
    requests = os.fdopen(0, "rb", buffering=0)
    while line := _line(requests):
        _answer(answers, _run(json.loads(line), requests))


def _load(transformers: Path | None, pytorch: Path | None) -> None:
    """Import what every family needs, so that children have it at once."""
    from lmp.source.trees import find_trees
    from lmp.workload.load import use_transformers_tree

    tree = find_trees(None, transformers, pytorch, []).need("transformers")
    use_transformers_tree(tree.package_dir.parent)
    for name in PRELOADED:
        importlib.import_module(name)
    # Threads do not survive a fork; nothing is computed on the meta device.
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
            limit = _over(task, child, time.monotonic() - began)
            if limit:
                place = _stopped_at(child, Path(task["answer"]))
                os.kill(child, signal.SIGKILL)
        if select.select([requests], [], [], POLL)[0]:
            # Nothing is asked before the answer: the caller has gone.
            os.kill(child, signal.SIGKILL)
            os._exit(0)
    return {
        **_stage(Path(task["answer"]).with_name(STAGE)),
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
        from lmp.pipeline.zoo.family import analyse_family
        from lmp.store.files import write_whole

        answer = Path(task.pop("answer"))
        os.close(0)
        stacks = open(answer.with_name("stacks"), "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
        for name in ("seconds", "memory"):
            task.pop(name)
        entry = analyse_family(Request(**task), _told(answer.with_name(STAGE)))
        write_whole(answer, entry.model_dump_json())
        code = 0
    finally:
        os._exit(code)


def _told(file: Path) -> Callable[[str, str], None]:
    """Keeps what is being done in a file: if the child is stopped, it can be said."""
    first: list[str] = []

    def tell(class_path: str, stage: str) -> None:
        first[:] = first or [class_path]
        file.write_text(json.dumps({"class_name": first[0], "at": class_path, "stage": stage}))

    return tell


def _over(task: dict[str, Any], child: int, seconds: float) -> str:
    if _cpu_seconds(child) > task["seconds"]:
        return "time"
    if seconds > PATIENCE * task["seconds"]:
        return "wall"
    return "memory" if _resident(child) > task["memory"] else ""


def _stage(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    return {}


def _cpu_seconds(child: int) -> float:
    """CPU time of a child; 0 where the system does not tell it in /proc: wall time alone stops it there."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # After the name in parentheses, which may hold spaces, the times in user and system mode are 12th and 13th.
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def _resident(child: int) -> int:
    """Bytes of resident memory; 0 where the system does not tell it in /proc."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{child}/statm").read_text().split()[1]) * PAGE
    return 0


def _stopped_at(child: int, answer: Path) -> str:
    """``file:line`` in transformers that a child is at: the innermost that its stack has."""
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGUSR1)
        time.sleep(0.5)
        for line in answer.with_name("stacks").read_text().splitlines():
            head, _, rest = line.strip().removeprefix('File "').partition('", line ')
            if "/transformers/models/" in head:
                return f"{os.path.basename(head)}:{rest.split()[0]}"
    return ""


def _line(requests: BinaryIO) -> bytes:
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
