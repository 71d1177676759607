"""The sizes that numbers are put in at, as the command line gives them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from lmp.expand.point import Values

    Axes: TypeAlias = Mapping[str, Values]


class Phase(StrEnum):
    prefill = "prefill"
    decode = "decode"


class DataType(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    float8 = "float8"
    w8a16 = "w8a16"


BYTES = {"float32": (4, 4), "bfloat16": (2, 2), "float16": (2, 2), "float8": (1, 1), "w8a16": (1, 2)}
"""Bytes of a weight and of an activation element."""

PhaseName = Annotated[
    Phase | None, typer.Option("--phase", help="prefill: no cache; decode: one new token on a cache.")
]
BatchSize = Annotated[str | None, typer.Option("--batch-size", metavar="N", help="Sequences.")]
SeqLen = Annotated[str | None, typer.Option("--seq-len", metavar="N", help="New tokens of a sequence.")]
CacheLen = Annotated[
    str | None, typer.Option("--cache-len", metavar="N", help="Tokens that the cache holds already [default: 0].")
]
ElementType = Annotated[
    DataType | None, typer.Option("--dtype", help="Sets w_bytes and a_bytes; w8a16 has 1-byte weights alone.")
]


def given_values(phase: Phase | None, sizes: Mapping[str, str | None], settings: Sequence[str]) -> dict[str, Values]:
    """All values that the command line gives, by name. Two that contradict each other are a UsageError."""
    from lmp.errors import UsageError
    from lmp.expand.point import canonical, parse_axes, parse_values

    given = parse_axes(settings)
    for name, text in sizes.items():
        if text is not None:
            option = f"--{name.replace('_', '-')}"
            values = parse_values(name, text, f"{option} ")
            for written, other in given.items():
                if canonical(written) == name and list(other) != list(values):
                    raise UsageError(f"{name} is set twice: by {option} {text} and by --set\ngive it once")
            given[name] = values
    if phase is not None:
        _apply_phase(phase, given)
    return given


def _apply_phase(phase: Phase, given: dict[str, Values]) -> None:
    from lmp.errors import UsageError

    if phase is Phase.prefill:
        if any(given.get("cache_len", ())):
            raise UsageError(
                "--phase prefill begins with an empty cache, and --cache-len is not 0\n"
                "leave out one of them: without --phase, both may be larger than 0 (a prefill in chunks)"
            )
        if "seq_len" not in given:
            raise UsageError("--phase prefill needs the tokens of a prompt\ngive --seq-len, as in --seq-len 2048")
        given["cache_len"] = (0,)
        return
    if any(length != 1 for length in given.get("seq_len", ())):
        raise UsageError("--phase decode is one new token, and --seq-len is not 1\nleave out --seq-len, or --phase")
    if not all(given.get("cache_len", (0,))):
        raise UsageError(
            "--phase decode needs the tokens that the cache holds, at least 1\ngive --cache-len, as in --cache-len 2048"
        )
    given["seq_len"] = (1,)


def with_dtype(given: dict[str, Values], dtype: DataType | None, parameters: Container[str]) -> None:
    """Puts the sizes of the dtype's elements with what is given. ``parameters`` are the names that formulas use."""
    from lmp.errors import UsageError

    if dtype is None:
        return
    weights, activations = BYTES[dtype]
    sizes = {"w_bytes": weights, "a_bytes": activations, "kv_bytes": activations}
    for name, size in sizes.items():
        if name == "kv_bytes" and name not in parameters:
            continue
        if name in given and tuple(given[name]) != (size,):
            raise UsageError(f"{name} is set twice: to {size} by --dtype {dtype} and by --set\ngive it once")
        given[name] = (size,)
