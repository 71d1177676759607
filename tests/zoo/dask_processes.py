"""A real scheduler and real workers, as processes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PATIENCE = 60.0


class Dask:
    """Processes that `stop` ends, each by its id."""

    def __init__(self, folder: Path, allowed_failures: int = 3) -> None:
        self.folder = folder
        self._all: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures)}
        self.scheduler = self._process(
            "dask_scheduler", "--port", "0", "--scheduler-file", str(file), settings=settings
        )
        self.address = self._address(file)

    def worker(self, name: str, *options: str, threads: int = 1, **settings: str) -> subprocess.Popen[bytes]:
        """``settings`` are of its environment."""
        local = str(self.folder / name)
        fixed = ["--nthreads", str(threads), "--no-nanny", "--name", name, "--local-directory", local]
        return self._process("dask_worker", self.address, *fixed, *options, settings=settings)

    def stop(self) -> None:
        for process in reversed(self._all):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()

    def _process(self, program: str, *options: str, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(PROJECT / "src"), str(Path(__file__).parent)])
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{program}", "--host", "127.0.0.1", "--no-dashboard", *options],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": path, **settings},
            stdout=subprocess.DEVNULL,
            stderr=open(self.folder / f"{program}-{len(self._all)}.log", "wb"),  # noqa: SIM115
        )
        self._all.append(process)
        return process

    def _address(self, file: Path) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                return str(json.loads(file.read_text())["address"])
            time.sleep(0.05)
        raise AssertionError("the scheduler did not start")
