"""Records of a comparison, as `lmp diff --json` prints them. ``a`` is the first result, ``b`` the second.

A change is the value in ``b`` minus the value in ``a``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lmp.link.records import Figure, ViolatedAssumption
from lmp.records import ClassPath, ConfigOrigin, Formula, Record, Status

State = Literal["added", "removed", "changed"]
Quantity = Literal["flops", "bytes", "parameters"]
TotalName = Literal["flops", "matmul_flops", "read", "write", "compulsory", "parameters_count"]


class Compared(Record):
    """One of the two results."""

    given: str = Field(description="what it was asked for as: a file, a class or a model's id")
    class_name: ClassPath
    config: ConfigOrigin
    distribution: str
    version: str
    attn_implementation: str | None
    dtype: str
    verification: Status = Field(description="the worst among the class and everything it refers to")
    not_verified: dict[ClassPath, Status]
    uncounted: dict[ClassPath, list[str]] = Field(description="operators without a rule: their cost is missing")
    values: dict[str, Figure] | None = Field(description="the point that it was evaluated at; null without one")
    assumptions: list[Formula] = Field(description="conditions that its formulas need, and those of the other do not")
    violated_assumptions: list[ViolatedAssumption]


class Costs(Record):
    """What all runs in one call of the model cost at the point; bytes for read and write."""

    flops: int
    matmul_flops: int
    read: Figure
    write: Figure


class Term(Record):
    """A quantity in one of the two: its formula, and its value at the point."""

    formula: Formula
    value: Figure | None


class Total(Record):
    """A quantity of the whole model. A side is null where its analysis does not say it."""

    a: Term | None
    b: Term | None
    same_formula: bool
    change: Figure | None
    relative: float | None = Field(description="change / a; null where a is 0, and beyond what a float holds")


class KernelPlace(Record):
    """An operator at one line, in one of the two. The formulas are those of one run, in the model's variables."""

    path: str = Field(description="the module that runs it, from the model down; empty for the model itself")
    class_name: ClassPath
    file: str | None
    line: int
    operation: str
    category: str
    code: str
    runs: Formula = Field(description="how often it runs in one call of the model")
    flops: Formula
    read: Formula
    write: Formula
    cost: Costs | None


class KernelChange(Record):
    """An operator that one of the two lacks, or that does not cost the same in both."""

    state: State
    same_formulas: bool = Field(description="whether it is the values alone that differ")
    a: KernelPlace | None
    b: KernelPlace | None
    change: Costs | None


class LinePlace(Record):
    """A line of a module's forward(), or of a function it calls, with everything that runs because of it."""

    path: str
    class_name: ClassPath
    file: str | None
    line: int
    code: str
    cost: Costs | None


class LineChange(Record):
    state: State
    a: LinePlace | None
    b: LinePlace | None
    change: Costs | None


class ModulePlace(Record):
    path: str
    class_name: ClassPath
    runs: Formula
    cost: Costs | None


class ModuleChange(Record):
    """A module with everything in it. ``outermost`` is one that the other lacks while it has the module around it."""

    state: State
    outermost: bool
    a: ModulePlace | None
    b: ModulePlace | None
    change: Costs | None


class Exceeded(Record):
    """A quantity that rose by more than the limit."""

    quantity: Quantity
    a: Figure
    b: Figure
    relative: float | None


class Difference(Record):
    """Two results side by side. Lists are in the order of the models, not of the cost."""

    a: Compared
    b: Compared
    values_differ: dict[str, tuple[Figure | None, Figure | None]] = Field(
        description="values of the point, or of the configs, that are not the same in both"
    )
    totals: dict[TotalName, Total]
    kernels: list[KernelChange]
    lines: list[LineChange]
    modules: list[ModuleChange]
    unchanged: int = Field(description="operators that cost the same in both")
    free: int = Field(description="operators that one of the two lacks, and that cost nothing: not in the lists")
    fail_above: str | None = Field(default=None, description="the limit that was asked for")
    exceeded: list[Exceeded] = Field(default_factory=list, description="what rose by more than the limit")
