"""Shapes and bytes of operators as formulas, from a run with symbolic sizes that agrees with a run with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError
from lmp.observe.flow import Shape

if TYPE_CHECKING:
    from lmp.observe.lifetimes import Operated
    from lmp.trace.runs import Run
    from lmp.workload.calls import Segment


@dataclass(frozen=True)
class Told:
    shape: Shape | None
    bytes: tuple[str | None, ...]
    category: str
    product: tuple[str, ...] | None
    operands: tuple[Shape, ...] | None


def key_of(segments: Sequence[Segment], name: str) -> Any:
    return name.strip("_"), tuple((s.call.path, s.chain) for s in segments)


class Formulas:
    """Formulas of a symbolic run for the operators of a run with numbers, if both agree."""

    def __init__(self, run: Run, values: Mapping[str, int]) -> None:
        self.run, self.values = run, values
        self._by_key: dict[Any, list[Any]] = {}
        for executed in run.recording.operators:
            key = key_of(executed.segments, executed.operator.name)
            self._by_key.setdefault(key, []).append(executed)

    def of(self, key: Any, nth: int, operated: Operated) -> Told | None:
        found = self._by_key.get(key, [])
        if len(found) < nth:
            return None
        executed = found[nth - 1]
        outputs = executed.operator.outputs
        shape = self._shape(outputs[0].shape, operated.shapes[0]) if outputs and operated.shapes else None
        product = _product(executed.operator)
        sizes = tuple(_text(size) for size in product) if product is not None else None
        operands = self._operands(executed.operator.arguments, operated.arguments)
        return Told(shape, tuple(self._bytes(t) for t in outputs), executed.cost.category, sizes, operands)

    def _operands(self, symbolic: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Shape, ...] | None:
        """Shapes of all input tensors; None unless all agree with the run with numbers."""
        from lmp.trace.rules import Tensor as Traced

        tensors = [item for item in _items(symbolic) if isinstance(item, Traced)]
        numbers = [item[1] for item in _items(given) if isinstance(item, tuple) and item[:1] == ("tensor",)]
        if len(tensors) != len(numbers):
            return None
        shapes = [self._shape(tensor.shape, sizes) for tensor, sizes in zip(tensors, numbers, strict=True)]
        found = [shape for shape in shapes if shape is not None]
        return tuple(found) if len(found) == len(shapes) else None

    def is_shape(self, shape: Shape, numbers: Sequence[int]) -> bool:
        """True if a shape equals a tensor's shape in the run with numbers."""
        return [self._worth(size) for size in shape] == list(numbers)

    def bytes_like(self, shape: Shape, text: str) -> str:
        """Formula of the bytes of a tensor with this shape. ``text`` is that of a tensor with the same element size."""
        from lmp.formula import free_variables, num, parse, simplify, var
        from lmp.trace.rules import product

        used = free_variables(parse(text))
        width = next((var(name) for name in ("kv_bytes", "a_bytes", "w_bytes") if name in used), num(1))
        return _text(simplify(width * product(map(parse, shape))))

    def holds(self, text: str, number: int) -> bool:
        return self._worth(text) == number

    def outputs(self, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Shape]:
        """Module path -> shape of the first tensor in the output of its call."""
        found: dict[str, Shape] = {}
        for call in self.run.recording.calls:
            tensor = _first_tensor(call.output)
            if tensor is not None and call.path in sizes and call.path not in found:
                shape = self._shape([self.run.size(s) for s in tensor.shape], sizes[call.path])
                if shape is not None:
                    found[call.path] = shape
        return found

    def _shape(self, sizes: Sequence[Any], numbers: Sequence[int]) -> Shape | None:
        texts = tuple(_text(size) for size in sizes)
        if len(texts) != len(numbers):
            return None
        return texts if all(self._worth(t) == n for t, n in zip(texts, numbers, strict=True)) else None

    def _bytes(self, tensor: Any) -> str | None:
        from lmp.formula import num, simplify, var
        from lmp.trace.rules import product

        unit = var(tensor.unit) if isinstance(tensor.unit, str) else num(int(tensor.unit))
        return _text(simplify(unit * product(tensor.shape)))

    def _worth(self, text: str) -> int | None:
        from lmp.formula import evaluate, parse

        try:
            return evaluate(parse(text), self.values)
        except LmpError:
            return None


def _items(arguments: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments, with lists flattened. A tensor of a run with numbers is ``("tensor", its shape)``."""
    for value in arguments.values():
        is_list = isinstance(value, list) or (isinstance(value, tuple) and value[:1] != ("tensor",))
        yield from value if is_list else (value,)


def _text(size: Any) -> str:
    from lmp.formula import Expr, to_text

    return to_text(size) if isinstance(size, Expr) else str(size)


def _first_tensor(value: Any) -> Any:
    from lmp.verify.operators import tensors_of

    given = list(value.values()) if isinstance(value, dict) else value
    return next(iter(tensors_of([given])), None)


PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_grouped_mm": 0}
"""Matrix product -> position of its first factor among its tensors."""


def _product(operator: Any) -> tuple[Any, ...] | None:
    """Batches, M, N, K of a matrix product; batch, heads, queries, keys, head size of attention."""
    tensors = operator.inputs
    if operator.name == "scaled_dot_product_attention":
        query, key = tensors[0].shape, tensors[1].shape
        return (*query[:-2], query[-2], key[-2], query[-1]) if len(query) == 4 else None
    start = PRODUCTS.get(operator.name)
    if start is None or len(tensors) < start + 2:
        return None
    left, right = tensors[start].shape, tensors[start + 1].shape
    batches = right[0] if len(right) == 3 else 1
    return batches, left[-2], right[-1], left[-1]
