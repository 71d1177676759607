"""What the reader of numbers has to know about them, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lmp.formula import Number, number_text
from lmp.link.numbers import KernelNumbers
from lmp.link.records import ViolatedAssumption
from lmp.records import ModelAnalysis


def of_the_model(model: ModelAnalysis) -> Iterator[str]:
    """Classes that are not verified, operators that are not counted, and weights that are not as in the checkpoint."""
    for name, part in model.parts.items():
        if part.status != "verified":
            failed = part.status == "failed"
            yield f"the formulas of {name} are {'NOT in agreement with execution' if failed else part.status}"
    yield from of_the_whole(model)
    for name, part in model.parts.items():
        if part.uncounted:
            yield f"{name} has operators without a rule, whose cost is missing: {', '.join(part.uncounted)}"
    if model.quantization is not None:
        yield from model.quantization.warnings


def of_the_whole(model: ModelAnalysis) -> Iterator[str]:
    """That the model is not verified as a whole, where no part of it says so."""
    whole = model.verification
    if whole.status != "verified" and all(part.status == "verified" for part in model.parts.values()):
        why = f": {whole.reason}" if whole.reason else ""
        yield f"the formulas of {model.class_name} as a whole are {whole.status}{why}"


def of_costs(kernels: Iterable[KernelNumbers]) -> Iterator[str]:
    """Operators that cost less than nothing: no execution does, so the formulas do not hold at these values."""
    wrong = [one for one in kernels if min(one.total) < 0]
    if wrong:
        first, more = wrong[0].kernel, f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        where = f"{first.operation} in line {first.line} of {wrong[0].path or 'the model'}{more}"
        yield f"the formulas are WRONG at these values, verified or not: {where} cost less than 0"


def of_the_values(model: ModelAnalysis, cache_len: Number) -> Iterator[str]:
    """Values that change nothing."""
    if cache_len and "cache_len" not in model.parameters:
        yield f"{_short(model.class_name)} has no cache: cache_len = {cache_len} changes nothing"


def of_assumptions(violated: list[ViolatedAssumption]) -> Iterator[str]:
    for broken in violated:
        values = ", ".join(f"{name} = {number_text(value)}" for name, value in broken.values.items())
        yield (
            f"assumption {broken.assumption} of {_short(broken.class_name)} does not hold ({values}): "
            "the formulas were derived for where it does"
        )


def of_a_sweep(broken: Mapping[str, int], size: int) -> Iterator[str]:
    """``broken`` is how many of ``size`` points break each assumption."""
    for assumption, count in broken.items():
        yield (
            f"assumption {assumption} does not hold at {count:,} of {size:,} points: "
            "the formulas were derived for where it does"
        )


def _short(class_path: str) -> str:
    return class_path.rpartition(".")[2]
