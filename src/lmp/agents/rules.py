"""The rules that a prompt states, made from what lmp itself counts by: they cannot differ from it."""

from __future__ import annotations

from lmp.flops import FREE, GELU_TANH, TABLE, ScalarOps, pow_operations
from lmp.records import CATEGORIES, MATMUL_CATEGORIES


def flop_table() -> str:
    """Operators with FLOPs, as a markdown table."""
    rows = [f"| {name} | {_number(entry)} | {entry.definition} |" for name, entry in TABLE.items() if entry != FREE]
    return "\n".join(["| operator | FLOPs | what is counted |", "| --- | --- | --- |", *rows])


def free_operators() -> str:
    """Names of the operators without FLOPs."""
    return ", ".join(sorted(name for name, entry in TABLE.items() if entry == FREE))


def powers() -> str:
    """What ``x ** e`` costs an element, by the exponent."""
    known = {
        "2": 2, "3": 3, "4": 4, "0.5": 0.5, "-0.5": -0.5, "-1": -1, "0 or 1": 1,
    }  # fmt: skip
    counted = ", ".join(f"{pow_operations(e)} for e = {name}" for name, e in known.items())
    return f"{counted}, {pow_operations(5)} for any other exponent"


def gelu() -> str:
    return f"{TABLE['gelu'].per_output}, in its tanh form {GELU_TANH}"


def categories() -> str:
    return ", ".join(CATEGORIES)


def matmul_categories() -> str:
    return ", ".join(name for name in CATEGORIES if name in MATMUL_CATEGORIES)


def _number(entry: ScalarOps) -> str:
    parts = [(entry.per_input, "an input"), (entry.per_output, "an output"), (entry.per_row, "a row")]
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "depends"
