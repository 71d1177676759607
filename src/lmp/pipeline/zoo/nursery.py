"""A process that has torch and transformers loaded, and forks a child for each family.

Loading them takes four seconds, forking none. The child that runs a family may crash, hang or eat memory: it costs
itself alone. The nursery is told of a family by a line of JSON, and answers with one.
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

from lmp.errors import LmpError, TraceFailed
from lmp.pipeline.zoo.reasons import place_of
from lmp.pipeline.zoo.requests import PATIENCE, Limits, Request
from lmp.records import ZooEntry
from lmp.source.trees import find_trees


class Nursery:
    """One nursery process, started when it is first needed and again when it has died. For one thread."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._process: subprocess.Popen[str] | None = None

    def run(self, request: Request) -> ZooEntry:
        """What became of one family. Raises TraceFailed where torch and transformers cannot be loaded at all."""
        with tempfile.TemporaryDirectory(prefix="lmp-zoo-") as folder:
            answer = Path(folder) / "entry.json"
            outcome = self._asked({**request.to_json(), "answer": str(answer), **vars(self.limits)}, request)
            return entry_of(request, self.limits, outcome, _read(answer))

    def close(self) -> None:
        """Kill the nursery with whatever it runs."""
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

    def _asked(self, task: dict[str, Any], request: Request) -> dict[str, Any]:
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
            [sys.executable, "-m", "lmp.pipeline.zoo.forking", request.transformers or "", request.pytorch or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # A group of its own: Ctrl-C is the caller's to answer, and the group is killed as one.
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
    """The entry that a child wrote, with what it took; where it wrote none, an entry that says why."""
    took = {
        "seconds": round(outcome.get("seconds", 0.0), 2),
        "cpu_seconds": round(outcome.get("cpu_seconds", 0.0), 2),
        "peak_bytes": outcome.get("peak_bytes", 0),
        "fingerprint": request.fingerprint,
    }
    if entry is not None and not outcome.get("limit"):
        return entry.model_copy(update=took)
    place = outcome.get("place") or None
    if place is None and "at" in outcome:
        with contextlib.suppress(LmpError):
            place = place_of(outcome["at"], find_trees(None, request.transformers_dir, request.pytorch_dir, []))
    return ZooEntry(
        family=request.family,
        task=request.task,
        class_name=outcome.get("class_name"),
        status="stopped",
        cause="lmp",
        reason=_why(limits, outcome) + _at(outcome),
        place=place,
        **took,
    )


def _why(limits: Limits, outcome: dict[str, Any]) -> str:
    match outcome.get("limit"):
        case "time":
            return f"it took more than {limits.seconds:g} s of CPU time; --time-limit gives it more"
        case "wall":
            return f"it took more than {PATIENCE * limits.seconds:g} s of wall time; --time-limit gives it more"
        case "memory":
            return f"it took more than {limits.memory / 2**30:.3g} GB of memory; --memory-limit gives it more"
    code = outcome.get("code", 0)
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with code {code} and said nothing"


def _at(outcome: dict[str, Any]) -> str:
    """What it was doing."""
    return f" (at {outcome['at'].rpartition('.')[2]}: {outcome['stage']})" if "at" in outcome else ""


def _read(answer: Path) -> ZooEntry | None:
    try:
        return ZooEntry.model_validate_json(answer.read_bytes())
    except (OSError, ValidationError):
        return None
