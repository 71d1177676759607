"""What every format is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Any, Literal

from lmp.formula import Number
from lmp.link.numbers import CostNumbers, KernelNumbers, ModelNumbers, ModuleNumbers
from lmp.link.records import Evaluation
from lmp.link.sweep import Chunk, Sweep
from lmp.link.values import Point
from lmp.predict.one_gpu import OneGpuHolds
from lmp.predict.screen.records import Card
from lmp.records import ModelAnalysis, Operands
from lmp.report.formats.times import Times
from lmp.source.trees import Trees

Weight = Literal["flops", "bytes", "read", "write"]


@dataclass(frozen=True)
class Show:
    """What of it is asked for."""

    depth: int | None = None
    """Levels of modules below the root; None is the format's own choice."""
    kernels: bool | None = None
    """Whether the operators of a module stand one by one; None is the format's own choice."""
    sort: str = "order"
    """order, flops, bytes, read, write or intensity: how the parts of a module stand among one another."""
    top: int | None = None
    """The parts of a module that are shown; the others are summed up in one row."""
    by: Weight = "flops"
    """What shares are shares of."""
    weight: Weight = "flops"
    """What a flame graph's widths are."""
    exact: bool = False
    """Integers instead of units."""
    each: str | None = None
    """operator, line, category or module: a flat list in place of the tree, most expensive first."""
    columns: tuple[str, ...] | None = None
    """Columns of the table by their names; None is as many as the width takes, ("all",) is all."""
    values: bool = False
    """Whether the values of the config are shown, not those of the call alone."""
    width: int = 120
    color: bool = False


@dataclass(frozen=True)
class Result:
    """A model at one point."""

    numbers: ModelNumbers
    tree: ModuleNumbers
    evaluation: Evaluation
    warnings: list[str]
    at_w_bytes: ModelAnalysis | None = None
    """The same model with all weights at w_bytes, if ``numbers`` has those of a quantised checkpoint."""
    trees: Trees | None = None
    """Where the sources of the classes are, if they are to be shown."""
    card: Card | None = None
    """What the call takes on a device; None without one."""
    stored: Fraction | None = None
    """Bytes of the weights where ``w_bytes`` is given, as quantising leaves some wider; None if not known."""
    one_gpu: OneGpuHolds | None = None
    """What one GPU of several holds; None where the figures are of the whole model."""

    @property
    def model(self) -> ModelAnalysis:
        return self.numbers.model

    def operators(self) -> Iterator[tuple[KernelNumbers, Operands | None]]:
        """The operators in order, each with its operands in numbers; None where it costs nothing or has none."""
        records = (record.operands for record in self.evaluation.kernels)
        return zip(self.tree.kernels(), records, strict=True)


@dataclass(frozen=True)
class SweepResult:
    """A model at many points."""

    model: ModelAnalysis
    sweep: Sweep
    chunks: Callable[[], Iterator[Chunk]]
    """From the first point on, every time it is called."""
    warnings: Callable[[], list[str]]
    """What there is to say once all chunks have been seen."""
    times: Times | None = None
    """What each point takes on a device; None without one."""


@dataclass(frozen=True)
class Format:
    """What it writes one point, many, or the formulas themselves with; None where it has no such.

    The stream is one of text unless the format is ``binary``.
    """

    point: Callable[[Result, Show, IO[Any]], None] | None = None
    sweep: Callable[[SweepResult, Show, IO[Any]], None] | None = None
    model: Callable[[ModelNumbers, Point, IO[Any]], None] | None = None
    binary: bool = False
    warns: bool = False
    """Whether it writes the warnings too."""


def weighed(cost: CostNumbers, weight: Weight) -> Number:
    """FLOPs, or bytes."""
    found: Number = getattr(cost, weight)
    return found


def one_line(text: str) -> str:
    """The text without line ends and other signs that cannot be printed."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
