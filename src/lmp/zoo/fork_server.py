"""The caller's side of the fork server, a process with torch and transformers loaded that forks a child per family.

Loading takes four seconds, and forking almost none. A child that crashes, hangs or uses too much memory ends without
others. The server reads each request as a line of JSON and answers with one. `lmp.zoo.fork_server_main` is the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lmp.errors import TraceFailed
from lmp.records import ZooEntry
from lmp.zoo.reasons import line_of_class
from lmp.zoo.requests import WALL_TIME_FACTOR, Limits, Request


class ForkServer:
    """Handle of one fork server. It starts the process on first use, and again after it died. For one thread only."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._process: subprocess.Popen[str] | None = None

    def run(self, request: Request) -> ZooEntry:
        """Run one family in a child. Raises TraceFailed if torch and transformers cannot be loaded at all."""
        with tempfile.TemporaryDirectory(prefix="lmp-zoo-") as folder:
            answer = Path(folder) / "entry.json"
            outcome = self._ask({**request.to_json(), "answer": str(answer), **vars(self.limits)}, request)
            return entry_of(request, self.limits, outcome, _read_entry(answer))

    def close(self) -> None:
        """Kill the server and the child that it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _ask(self, task: dict[str, Any], request: Request) -> dict[str, Any]:
        process = self._process or self._start(request)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if line:
                found: dict[str, Any] = json.loads(line)
                return found
        code = process.wait()
        self.close()
        return {"code": code}

    def _start(self, request: Request) -> subprocess.Popen[str]:
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "lmp.zoo.fork_server_main", request.transformers or "", request.pytorch or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # A separate process group: Ctrl-C reaches only the caller, and the group is killed as a whole.
            start_new_session=True,
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            self.close()
            raise TraceFailed(
                "the process that runs families does not start: torch or transformers cannot be loaded\n"
                "run `lmp doctor`, then `lmp analyze-module torch.nn.Linear --fresh` to see why"
            )
        said = json.loads(ready)
        if "error" in said:
            self.close()
            raise TraceFailed(str(said["error"]))
        return process


def entry_of(request: Request, limits: Limits, outcome: dict[str, Any], entry: ZooEntry | None) -> ZooEntry:
    """The child's entry with the used time and memory. If the child wrote none, an entry with the reason."""
    used = {
        "seconds": round(outcome.get("seconds", 0.0), 2),
        "cpu_seconds": round(outcome.get("cpu_seconds", 0.0), 2),
        "peak_bytes": outcome.get("peak_bytes", 0),
        "fingerprint": request.fingerprint,
    }
    if entry is not None and not outcome.get("limit"):
        return entry.model_copy(update=used)
    place = outcome.get("place") or None
    if place is None and "at" in outcome:
        place = line_of_class(outcome["at"], request)
    return ZooEntry(
        family=request.family,
        task=request.task,
        class_name=outcome.get("class_name"),
        status="stopped",
        cause="lmp",
        reason=_reason(limits, outcome) + _stage(outcome),
        place=place,
        **used,
    )


def _reason(limits: Limits, outcome: dict[str, Any]) -> str:
    match outcome.get("limit"):
        case "time":
            return f"it took more than {limits.seconds:g} s of CPU time; --time-limit gives it more"
        case "wall":
            return f"it took more than {WALL_TIME_FACTOR * limits.seconds:g} s of wall time; --time-limit gives it more"
        case "memory":
            return f"it took more than {limits.memory / 2**30:.3g} GB of memory; --memory-limit gives it more"
    code = outcome.get("code", 0)
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with code {code} and said nothing"


def _stage(outcome: dict[str, Any]) -> str:
    """The class and the stage of the child, as text."""
    return f" (at {outcome['at'].rpartition('.')[2]}: {outcome['stage']})" if "at" in outcome else ""


def _read_entry(answer: Path) -> ZooEntry | None:
    try:
        return ZooEntry.model_validate_json(answer.read_bytes())
    except (OSError, ValidationError):
        return None
