"""The shapes of what a class's forward() takes, in the variables of an analysis: what references to it are bound by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmp.trace.observe import input_tensors
from lmp.verify.judge import Point
from lmp.verify.resolve import resolve_all

Sample = tuple[Mapping[str, int], dict[str, tuple[int, ...]]]
"""Values of the parameters at one call, and the shapes of its tensors."""


def interface_of(class_path: str, parameters: Mapping[str, str], points: Sequence[Point]) -> dict[str, list[str]]:
    """Shape of each tensor that forward() takes, as formulas: a number, a variable, or all tokens so far.

    A tensor with a size that none of these explains at every executed call is left out.
    """
    samples = list(_samples(class_path, parameters, points))
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for _, shapes in samples for name in shapes):  # a mask is not always given
        seen = [(values, shapes[name]) for values, shapes in samples if name in shapes]
        first = seen[0][1]
        if any(len(shape) != len(first) for _, shape in seen):
            continue
        sizes = [_size([(values, shape[dim]) for values, shape in seen]) for dim in range(len(first))]
        if None not in sizes:
            found[name] = [size for size in sizes if size is not None]
    return found


def _samples(class_path: str, parameters: Mapping[str, str], points: Sequence[Point]) -> Iterator[Sample]:
    for point in points:
        for call in point.calls:
            if call.class_path == class_path:
                values, _ = resolve_all(parameters, call, point.values, point.config)
                # A module alone is run with sizes of its own, which are in no formula where nothing depends on them.
                yield (
                    {**values, **{n: v for n, v in point.values.items() if n not in values}},
                    {name: tuple(tensor.shape) for name, tensor in input_tensors(call)},
                )


def _size(seen: Sequence[tuple[Mapping[str, int], int]]) -> str | None:
    first = seen[0][1]
    if all(size == first for _, size in seen):
        return str(first)
    for name in seen[0][0]:
        if all(values.get(name) == size for values, size in seen):
            return f"{{{name}}}"
    if all(values.get("seq_len", 0) + values.get("cache_len", 0) == size for values, size in seen):
        return "{seq_len} + {cache_len}"
    return None
