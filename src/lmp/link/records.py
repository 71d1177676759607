"""Records of an evaluation, as `lmp evaluate --json` prints them."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from lmp.formula import json_number, read_number
from lmp.records import ClassPath, Operands, Record, Status

Figure = Annotated[
    int | Fraction,
    PlainValidator(read_number),
    PlainSerializer(json_number),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^-?[0-9]+/[0-9]+$"}]}),
]
"""An exact number. In JSON: an integer if it is whole; else a number if its decimal text is exact and a double holds
it; else the text "p/q". Bytes are fractions where those of an element are."""


class EvaluatedTotals(Record):
    """Sums over all kernels of ``repeat`` times the kernel's own cost; bytes for read, write and compulsory."""

    flops: int
    matmul_flops: int
    read: Figure
    write: Figure
    compulsory: Figure | None = Field(description="inputs, weights and cache read once, outputs written once")
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
    read: Figure
    write: Figure
    id: str | None = Field(default=None, description="as in model_analysis.json")
    inputs_from: list[str] = Field(default=[], description="ids of the kernels that made its inputs")
    operands: Operands | None = Field(
        default=None, description="its operands with numbers; none if it does not run at this point"
    )


class ViolatedAssumption(Record):
    """A condition under which formulas were derived, and which these values do not meet."""

    path: str
    class_name: ClassPath
    assumption: str
    values: dict[str, Figure]


class Evaluation(Record):
    """The cost of one ``forward()`` at one point, exact.

    Bytes are whole numbers unless those of an element are fractions: then a figure is a JSON number where its decimal
    text is exact and a double holds it, else the text "p/q".
    """

    class_name: ClassPath
    values: dict[str, Figure]
    totals: EvaluatedTotals
    kernels: list[EvaluatedKernel]
    verification: Status = Field(
        description="the worst among the class and everything it refers to; unverified if an assumption does not hold"
    )
    not_verified: dict[ClassPath, Status] = Field(description="the classes that are failed or unverified")
    uncounted: dict[ClassPath, list[str]] = Field(description="operators without a rule: their cost is missing above")
    violated_assumptions: list[ViolatedAssumption]
    quantization: str | None = Field(
        default=None,
        description="method of the checkpoint whose bytes its modules have; null: every weight has w_bytes",
    )
    warnings: list[str] = Field(default=[], description="what the reader of the figures has to know, one sentence each")
