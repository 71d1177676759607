"""The request for one family with its limits and its result, and the protocol of executors."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lmp.records import ZooEntry

FOLDER = ".zoo"
"""Folder for the entries of `lmp zoo`, inside the results folder."""

SECONDS = 300.0
"""Default limit of a family's CPU time, in seconds. CPU time does not depend on the machine's other load."""
WALL_TIME_FACTOR = 4
"""Wall time limit as a multiple of the CPU time limit. It stops a family that waits for ever or gets no processor."""
MEMORY = 4 * 2**30
"""Default limit of a family's resident memory, in bytes."""


@dataclass(frozen=True)
class Limits:
    """Limits for one family: seconds of CPU time and bytes of resident memory."""

    seconds: float = SECONDS
    memory: int = MEMORY


@dataclass(frozen=True)
class Request:
    """One family to expand and verify. It holds text and numbers only, because it is sent as JSON."""

    family: str
    task: str
    class_name: str
    """The name in transformers' mapping, without its module."""
    results: str
    transformers: str | None
    pytorch: str | None
    attention: str | None
    dtype: str
    fingerprint: str
    """Hash of lmp's rules, the sources and the options. The resulting entry has the same hash."""
    fresh: bool = False
    """True to analyse again even if a result is stored."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def config_name(self) -> str:
        """Path of a repaired default config, relative to the results folder."""
        return f"{FOLDER}/configs/{self.task}/{self.family}.json"

    @property
    def folder(self) -> Path:
        return Path(self.results)

    @property
    def transformers_dir(self) -> Path | None:
        return Path(self.transformers) if self.transformers else None

    @property
    def pytorch_dir(self) -> Path | None:
        return Path(self.pytorch) if self.pytorch else None


@dataclass(frozen=True)
class Finished:
    """The entry of a completed family, and ``files`` from other machines: path in the results folder -> content."""

    entry: ZooEntry
    files: Mapping[str, bytes] = field(default_factory=dict)


class Executor(Protocol):
    """Runs several families at a time and yields them in order of completion."""

    workers: str
    """Description of the worker processes, such as "2 processes"."""

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        """Run the requests. ``started`` is called when a family begins, from any thread."""
        ...

    def close(self) -> None:
        """Stop all running families."""
        ...


def peak_bytes(used: resource.struct_rusage) -> int:
    """The largest resident memory of a process, in bytes. Systems report kilobytes, and macOS bytes."""
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
