"""What reconnaissance finds. Files are posix paths relative to the repository; lines count from 1.

Plain values, small enough that a repository of thousands of files fits in memory: no syntax tree is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lmp.codebase.graph.records import FileGraph


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A class, function or method of Python; a function or struct of C++ and CUDA."""

    kind: Literal["class", "function", "method"]
    name: str
    qualname: str
    """``Scheduler.step``."""
    place: Place
    end: int
    bases: tuple[str, ...] = ()
    """As written."""
    decorators: tuple[str, ...] = ()
    """As written, without the arguments."""
    doc: str = ""
    """First line of the docstring."""
    methods: tuple[str, ...] = ()
    """Of a class."""


@dataclass(frozen=True, slots=True)
class EnvRead:
    """One read of an environment variable in the code."""

    name: str
    """The variable; where it cannot be told, the expression as written."""
    place: Place
    default: str | None = None
    """As written; None where there is none."""
    derived: bool = False
    """The name was followed through a wrapper (a prefix and an attribute): it does not stand in the code as such."""
    resolved: bool = True
    """False: ``name`` is an expression that reading cannot work out."""
    via: str = ""
    """The wrapper or accessor, as written: ``os.environ.get``, ``get_bool_env_var``."""
    value: str = ""
    """What the default stands for, where it is the name of a constant."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag or argument of a command line."""

    names: tuple[str, ...]
    place: Place
    parser: Literal["argparse", "click", "typer", "fire", "absl", "dataclass", "argv", "c++"]
    default: str | None = None
    help: str = ""
    value: str = ""
    """What the default stands for, where it is the name of a constant: ``0.0`` of ``DEFAULT_TEMP``."""
    required: bool = False
    """Without it the command does not start."""

    @property
    def long(self) -> str:
        """The name that says most: the first with two dashes."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of settings, with its first keys."""

    file: str
    kind: str
    keys: tuple[Place, ...] = ()
    names: tuple[str, ...] = ()
    """One for each of ``keys``."""
    composed: tuple[str, ...] = ()
    """Other files that its list of defaults puts in, without folder and ending."""

    @property
    def stem(self) -> str:
        """As code names it: without folder and ending."""
        return self.file.rpartition("/")[2].rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One configuration of an autotuned kernel, or what could not be worked out by reading."""

    place: Place
    values: Mapping[str, int | str] = field(default_factory=dict)
    """``BLOCK_M`` and the like, ``num_warps``, ``num_stages``."""
    expression: str = ""
    """What stands there, where it is "not resolved statically"."""
    stopped: str = ""
    """What of it reading could not work out: ``NUM_WARPS = [2, 4] if IS_HOPPER else [2, 4, 8]``."""
    stopped_at: Place | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A place that starts a kernel: ``kernel[grid](…, BLOCK_M=64)``, ``kernel<<<grid, block>>>(…)``."""

    kernel: str
    place: Place
    inside: str
    """The function around it."""
    grid: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    """Keyword arguments that name a configuration, as written."""
    of: Place | None = None
    """The kernel that is started; None where several have its name and reading does not tell which is meant."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A GPU kernel."""

    language: Literal["triton", "cuda", "metal", "tilelang", "cute", "cutile", "flydsl", "pallas", "numba"]
    name: str
    """Of a kernel inside of a function with the function's name: ``make_gemm.main``."""
    place: Place
    end: int
    parameters: tuple[str, ...] = ()
    constexprs: tuple[str, ...] = ()
    autotuned: Place | None = None
    """Where the autotuner stands."""
    key: tuple[str, ...] = ()
    """What the autotuner chooses by."""
    configs: tuple[KernelConfig, ...] = ()
    launch_bounds: str = ""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    kind: Literal["cli", "server", "benchmark", "example", "script", "library"]
    name: str
    place: Place
    what: str = ""
    """How it is started, or what it is, from the code."""


@dataclass(frozen=True, slots=True)
class Skipped:
    file: str
    why: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file that was read."""

    file: str
    language: str
    lines: int
    sha256: str
    imports: tuple[str, ...] = ()
    doc: str = ""
    role: Literal["source", "test", "example", "benchmark", "vendored", "legacy", "docs", "build"] = "source"


@dataclass
class RepoFacts:
    """Everything, in the order of the files' names."""

    root_name: str
    files: list[FileFacts] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    env: list[EnvRead] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    config_files: list[ConfigFile] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    macros: list[tuple[str, str, Place]] = field(default_factory=list)
    """A size in C++ that has a name, by ``#define`` or ``constexpr``: name, value as written, place."""
    entries: list[EntryPoint] = field(default_factory=list)
    told: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """Module and name of what the README imports, and the methods that it calls by that name."""
    shown_imports: list[tuple[str, str, Place]] = field(default_factory=list)
    """Module and name of what the README imports, as it is written, and where."""
    shown: dict[str, int] = field(default_factory=dict)
    """Paths that the README has, without ending, and how often."""
    commands: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Of tables that a call is given: file and function of the call, a command, and the name of what it starts."""
    install: list[tuple[str, Place]] = field(default_factory=list)
    """How it is installed or built, from its own files: command, and where that stands."""
    requires: dict[str, bool] = field(default_factory=dict)
    """Packages that its files name, in small letters with hyphens, and whether each is installed without an extra."""
    builds_with: set[str] = field(default_factory=set)
    """Packages that a build of its own is given."""
    graphs: dict[str, FileGraph] = field(default_factory=dict, repr=False, compare=False)
    """By file: the records of the call graph."""
    also: dict[str, object] = field(default_factory=dict, repr=False, compare=False)
    """What the caller of the reading made of each Python file while its tree was there."""

    @property
    def counts(self) -> dict[str, int]:
        """What a report states as numbers, by name."""
        by_language: dict[str, int] = {}
        for kernel in self.kernels:
            by_language[f"kernels.{kernel.language}"] = by_language.get(f"kernels.{kernel.language}", 0) + 1
        return {
            "files": len(self.files),
            "skipped": len(self.skipped),
            "lines": sum(file.lines for file in self.files),
            "definitions": len(self.definitions),
            "env_reads": len(self.env),
            "env_variables": len({read.name for read in self.env if read.resolved}),
            "flags": len(self.flags),
            "config_files": len(self.config_files),
            "kernels": len(self.kernels),
            "autotuned": sum(kernel.autotuned is not None for kernel in self.kernels),
            "autotune_configs": sum(len(kernel.configs) for kernel in self.kernels),
            "launches": len(self.launches),
            **dict(sorted(by_language.items())),
        }


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files are read. Patterns are gitignore's, relative to the repository."""

    include: Sequence[str] = ()
    """Only what meets one of these; empty means all."""
    exclude: Sequence[str] = ()
    largest: int = 2_000_000
    """Bytes; a larger file is listed as skipped."""
