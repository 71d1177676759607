"""What a family's process is asked for, and what comes back from whoever runs it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lmp.records import ZooEntry

FOLDER = ".zoo"
"""In the results folder: what `lmp zoo` keeps beside the results themselves."""

SECONDS = 300.0
"""CPU time that a family may take unless another is given: what becomes of it is not decided by what else runs."""
PATIENCE = 4
"""So many times as much of wall time, within which one that waits for ever, or gets no processor, is stopped."""
MEMORY = 4 * 2**30
"""Bytes of resident memory that a family's process may take."""


@dataclass(frozen=True)
class Limits:
    """What one family may take, in seconds of CPU time and bytes of resident memory."""

    seconds: float = SECONDS
    memory: int = MEMORY


@dataclass(frozen=True)
class Request:
    """One family to expand and verify. Plain text and numbers: it travels as JSON."""

    family: str
    task: str
    class_name: str
    """As transformers' mapping has it, without its module."""
    results: str
    transformers: str | None
    pytorch: str | None
    attention: str | None
    dtype: str
    fingerprint: str
    """Of lmp's rules, the sources and what is asked for: what comes back is of this."""
    fresh: bool = False
    """Analyse again, whatever is stored."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def config_name(self) -> str:
        """Where a default config that was made consistent is kept, relative to the results folder."""
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
    """What became of a family. ``files``, relative to the results folder, are there where another machine made them."""

    entry: ZooEntry
    files: Mapping[str, bytes] = field(default_factory=dict)


class Executor(Protocol):
    """Runs families, several at a time, and gives them back in the order in which they end."""

    workers: str
    """What runs them, in words, as "2 processes"."""

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        """``started`` is called when a family begins, from any thread."""
        ...

    def close(self) -> None:
        """Stop everything that still runs."""
        ...


def peak_bytes(used: resource.struct_rusage) -> int:
    """The largest resident memory of a process, which systems tell in kilobytes, and macOS in bytes."""
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
