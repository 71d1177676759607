"""Measures families per minute of `lmp zoo`: with 1 and 2 processes, and with two Dask workers on loopback.

    .venv/bin/python benchmarks/zoo_speed.py [--task causal-lm] [FAMILY...]

All three run the same families, in one run and into fresh results folders. The time includes loading torch and
transformers, but not starting the scheduler and workers. Ends with 1 if the three do not produce the same entries.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lmp.records import ZooEntry, ZooSummary
from lmp.source.auto import chosen, families
from lmp.source.trees import find_trees
from lmp.zoo.cluster import DaskCluster
from lmp.zoo.local import LocalProcesses
from lmp.zoo.requests import Executor, Limits, Request
from lmp.zoo.run import ZooOptions, run_zoo

FAMILIES = ("gpt2", "openai-gpt", "opt", "gpt_neox", "llama", "phi")
LIMITS = Limits()


class Silent:
    """Watches, and says nothing."""

    def known(self, entries: object, to_do: int) -> None: ...

    def started(self, request: Request) -> None: ...

    def ended(self, entry: ZooEntry) -> None: ...


@dataclass(frozen=True)
class Measured:
    name: str
    summary: ZooSummary

    @property
    def rate(self) -> float:
        """Families a minute."""
        assert self.summary.run is not None
        return 60 * self.summary.run.made / self.summary.run.wall_seconds

    @property
    def found(self) -> list[tuple[str, str, dict[str, int]]]:
        """What does not depend on who made it."""
        return [(entry.family, entry.status, entry.totals) for entry in self.summary.entries]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--task", default="causal-lm")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmp-zoo-speed-") as name:
        folder = Path(name)
        one = measure("1 process", LocalProcesses(1, LIMITS), given, folder / "one")
        two = measure("2 processes", LocalProcesses(2, LIMITS), given, folder / "two")
        with cluster(folder) as address:
            dask = measure("Dask, 2 workers", DaskCluster(address, LIMITS), given, folder / "dask")
    for measured in (one, two, dask):
        run = measured.summary.run
        assert run is not None
        print(
            f"{measured.name}: {run.made} families in {run.wall_seconds:.1f} s, {measured.rate:.2f} a minute, "
            f"{measured.rate / one.rate:.2f} x 1 process, {measured.rate / two.rate:.2f} x 2 processes; "
            f"the caller took {run.parent_peak_bytes / 1e6:.0f} MB"
        )
    verified = one.summary.verified
    print(f"{verified} of {len(one.summary.entries)} verified")
    if one.found == two.found == dask.found:
        return 0
    print("THE THREE DO NOT COME TO THE SAME ENTRIES")
    return 1


def measure(name: str, executor: Executor, given: argparse.Namespace, results: Path) -> Measured:
    print(f"{name} ...", file=sys.stderr, flush=True)
    options = ZooOptions(results)
    picked = chosen(families(find_trees(), given.task), given.families)
    (summary,) = run_zoo(picked, options, executor, Silent())
    return Measured(name, summary)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a scheduler that has two workers, of one thread each."""
    file = folder / "scheduler.json"
    started = [_started("dask_scheduler", "--port", "0", "--scheduler-file", str(file))]
    try:
        address = _address(file)
        for index in range(2):
            local = str(folder / f"worker-{index}")
            started.append(
                _started("dask_worker", address, "--nthreads", "1", "--no-nanny", "--local-directory", local)
            )
        _wait_for_workers(address, 2)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()


def _started(program: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{program}", "--host", "127.0.0.1", "--no-dashboard", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _address(file: Path, patience: float = 60) -> str:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(file.read_text())["address"])
        time.sleep(0.05)
    sys.exit("the scheduler did not start")


def _wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)


if __name__ == "__main__":
    sys.exit(main())
