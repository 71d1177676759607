"""Records of an evaluation, as `lmp evaluate --json` prints them."""

from __future__ import annotations

from pydantic import Field

from lmp.records import ClassPath, Record, Status


class EvaluatedTotals(Record):
    """Sums over all kernels of ``repeat`` times the kernel's own cost; bytes for read, write and compulsory."""

    flops: int
    matmul_flops: int
    read: int
    write: int
    compulsory: int | None = Field(description="inputs, weights and cache read once, outputs written once")
    parameters_count: int | None


class EvaluatedKernel(Record):
    """One operator at one line, anywhere below the evaluated class. Its costs are those of one execution."""

    path: str = Field(description="the module that runs it, from the evaluated class down; empty for the class itself")
    class_name: ClassPath = Field(description="the class whose forward() the line belongs to")
    line: int
    operation: str
    category: str
    repeat: int = Field(description="how often it runs in all")
    flops: int
    read: int
    write: int


class ViolatedAssumption(Record):
    """A condition under which formulas were derived, and which these values do not meet."""

    path: str
    class_name: ClassPath
    assumption: str
    values: dict[str, int]


class Evaluation(Record):
    """The cost of one ``forward()`` at one point, in exact integers."""

    class_name: ClassPath
    values: dict[str, int]
    totals: EvaluatedTotals
    kernels: list[EvaluatedKernel]
    verification: Status = Field(description="the worst among the class and everything it refers to")
    not_verified: dict[ClassPath, Status] = Field(description="the classes that are failed or unverified")
    uncounted: dict[ClassPath, list[str]] = Field(description="operators without a rule: their cost is missing above")
    violated_assumptions: list[ViolatedAssumption]
