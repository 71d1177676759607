"""The data flow of one call of a class: operators with their lines, real dependencies, shapes and lifetimes.

One run with numbers says what ran and what was alive; one run with symbolic sizes, on the same path, says the shapes as
formulas. A formula that does not come to the number of the run with numbers is left out. Imports torch when it runs.
"""

from __future__ import annotations

import inspect
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError, TraceFailed

if TYPE_CHECKING:
    from lmp.pipeline.lifetimes import Lifetimes, Operated, Storage
    from lmp.pipeline.lifetimes import Peak as Top
    from lmp.pipeline.making import Making
    from lmp.trace.runs import Run
    from lmp.workload.calls import Segment

Shape = tuple[str, ...]
"""Sizes as formulas."""


@dataclass(frozen=True)
class Line:
    """A line that led to an operator. ``file`` is relative to its tree."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Frame:
    """A module call that an operator is part of, with its lines, the innermost first."""

    class_name: str
    path: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Op:
    """One executed operator. Views and allocations are none."""

    index: int
    name: str
    """ATen's."""
    words: str
    category: str
    frames: tuple[Frame, ...]
    """The innermost module first."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Tensors, by index."""
    depends: tuple[int, ...]
    """Operators whose results it takes."""
    shape: Shape | None
    """Of its first result; None where no formula was found."""
    sizes: tuple[int, ...]
    """The same in numbers."""
    product: tuple[str, ...] | None = None
    """Of a matrix product: batches, M, N, K; of attention: batch, heads, queries, keys, head size."""
    causal: bool = False
    operands: tuple[Shape, ...] | None = None
    """Shapes of the tensors that went in; None where no formulas were found."""


@dataclass(frozen=True)
class Tensor:
    """Memory of one tensor, with all views of it."""

    index: int
    kind: str
    """weight, cache, input, activation."""
    bytes: int
    formula: str | None
    """Its bytes, in the model's variables; None where none was found."""
    sizes: tuple[int, ...]
    dtype: str
    name: str
    maker: int | None
    readers: tuple[int, ...]
    end: int | None
    """The first operator that ran without it; None: it outlives the call."""


@dataclass(frozen=True)
class Flow:
    """One call at ``values``, of a model with one layer of each kind."""

    values: Mapping[str, int]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    returned: tuple[int, ...]
    outputs: Mapping[str, Shape]
    """Module path -> shape of what its call returned."""
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Module path -> names of the arguments that its call was given and that were not None."""


@dataclass(frozen=True)
class Peak:
    """Where most was alive beside the weights in one call of the whole class, with all its layers."""

    total: int
    activations: int
    cache: int
    cache_before: int
    cache_after: int
    words: str
    frames: tuple[Frame, ...]
    alive: tuple[tuple[str, int, int], ...]
    """What was alive: words, bytes, how many; the most bytes first. The cache is one of them."""


@dataclass(frozen=True)
class Flows:
    """The flows of the phases that a class has, and its peaks at stated points; ``reason`` is why there are none."""

    phases: Mapping[str, Flow] = field(default_factory=dict)
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    kept: Mapping[str, Peak] = field(default_factory=dict)
    """The same with logits of the last position alone, where the class can be asked for that."""
    reason: str | None = None

    @property
    def measured(self) -> dict[str, int]:
        """Numbers that only execution gives, by name."""
        found: dict[str, int] = {}
        for key, peak in self.kept.items():
            found |= {f"peak.{key}.kept.{name}": getattr(peak, name) for name in ("total", "activations")}
        for key, peak in self.peaks.items():
            for name in ("total", "activations", "cache", "cache_before", "cache_after"):
                found[f"peak.{key}.{name}"] = getattr(peak, name)
            for number, (_, size, _) in enumerate(peak.alive):
                found[f"peak.{key}.alive.{number}"] = size
        for phase, flow in self.phases.items():
            found |= {f"tensor.{phase}.{t.index}": t.bytes for t in flow.tensors if t.formula is None}
        return found


def flows_of(making: Making, phases: Mapping[str, Mapping[str, int]], peaks: Mapping[str, Mapping[str, int]]) -> Flows:
    """Run a class: in detail at one point of each phase, and for the peak at every point.

    The points are values of the runtime variables. A class that cannot be run so has a reason and no flows.
    """
    from lmp.workload.load import quiet_warnings

    try:
        with quiet_warnings():
            running = _Running(making)
            found = {phase: running.flow(values) for phase, values in phases.items() if running.has(values)}
            tops = {key: running.peak(values) for key, values in peaks.items() if running.is_whole}
            kept = {key: running.kept(values) for key, values in peaks.items() if key in tops and running.keeps(values)}
    except LmpError as error:
        return Flows(reason=str(error).splitlines()[0])
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, NotImplementedError) as error:
        first = (str(error).splitlines() or [""])[0]
        return Flows(reason=f"it does not run at these sizes: {type(error).__name__}: {first[:160]}")
    return Flows(found, tops, kept)


KEPT = "logits_to_keep"
"""The argument of transformers' models that says of how many positions logits are made; ``generate()`` gives 1."""


class _Running:
    def __init__(self, making: Making) -> None:
        self.making, self.workload = making, making.workload
        self.name = making.source.class_path
        model = self.workload.build(self.workload.hints)
        self.is_whole = self._name_of(model) == self.name
        self._takes_kept = KEPT in inspect.signature(type(model).forward).parameters

    def has(self, values: Mapping[str, int]) -> bool:
        return self.workload.has_cache or not values["cache_len"]

    @staticmethod
    def _name_of(module: Any) -> str:
        cls = type(module)
        return f"{cls.__module__}.{cls.__qualname__}"

    # -- the peak --------------------------------------------------------------------------------------------------

    def keeps(self, values: Mapping[str, int]) -> bool:
        """Whether there are several positions, and one alone can be asked for."""
        return self._takes_kept and values["seq_len"] > 1 and not values["cache_len"]

    def kept(self, values: Mapping[str, int]) -> Peak:
        """The peak with logits of the last position alone."""
        return self.peak(values, {KEPT: 1})

    def peak(self, values: Mapping[str, int], given: Mapping[str, Any] | None = None) -> Peak:
        """Of the class with all its layers."""
        numbers = {**self.workload.hints, **self.workload.full_layers, **values}
        seen = self._observed(numbers, detail=False, given=given or {})
        assert seen.peak is not None, "a call without operators"
        top = seen.peak
        return Peak(
            top.total,
            top.activations,
            top.cache,
            seen.held_before,
            seen.held_after,
            self._words(top.name, {}),
            tuple(self._frames(top.segments)),
            tuple(self._composition(top)),
        )

    def _composition(self, top: Top) -> Iterator[tuple[str, int, int]]:
        groups: dict[str, list[int]] = {}
        for storage in top.alive:
            label = {"cache": "KV cache", "input": "inputs of the call"}.get(storage.kind)
            if label is None:
                label = f"{storage.dtype} [{', '.join(map(str, storage.shape))}]"
                made = top.makers.get(storage.index)
                label = label if made is None else f"{self._made_by(made)}, {label}"
            groups.setdefault(label, []).append(storage.bytes)
        ordered = sorted(groups.items(), key=lambda item: -sum(item[1]))
        yield from ((label, sum(sizes), len(sizes)) for label, sizes in ordered)

    def _made_by(self, made: tuple[str, tuple[Segment, ...]]) -> str:
        name, segments = made
        words = self._words(name, {})
        frames = list(self._frames(segments))
        return f"{words} in {frames[0].path}" if frames and frames[0].path else words

    # -- one call in detail ----------------------------------------------------------------------------------------

    def flow(self, values: Mapping[str, int]) -> Flow:
        numbers = {**self.workload.hints, **values}
        seen = self._observed(numbers, detail=True)
        symbolic = self._symbolic(numbers)
        known = _Formulas(symbolic, {**numbers, "w_bytes": 2, "a_bytes": 2}) if symbolic is not None else None
        ops, sizes = [], {}
        counted: Tally[Any] = Tally()
        for operated in seen.operators:
            key = _key(operated.segments, operated.name)
            counted[key] += 1
            told = known.of(key, counted[key], operated) if known is not None else None
            ops.append(self._op(operated, told))
            for tensor, text in zip(operated.outputs, told.bytes if told else (), strict=False):
                if text is not None and seen.storages[tensor].maker == operated.index:
                    sizes[tensor] = text
        checked = {i: t for i, t in sizes.items() if known is not None and known.holds(t, seen.storages[i].bytes)}
        return Flow(
            values=numbers,
            ops=tuple(ops),
            tensors=tuple(self._tensor(s, checked.get(s.index)) for s in seen.storages),
            returned=seen.returned,
            outputs=known.outputs(self._output_sizes(seen)) if known is not None else {},
            given=dict(seen.given),
        )

    def _output_sizes(self, seen: Lifetimes) -> dict[str, tuple[int, ...]]:
        return seen.output_shapes

    def _observed(
        self, numbers: Mapping[str, int], *, detail: bool, given: Mapping[str, Any] | None = None
    ) -> Lifetimes:
        from lmp.pipeline.lifetimes import Lifetimes

        module = self.workload.build(numbers)
        subject = next((m for m in module.modules() if self._name_of(m) == self.name), None)
        if subject is None:
            raise TraceFailed(f"there is no {self.name} in the model that it is run in")
        seen = Lifetimes(module, subject, detail=detail)
        asked = subject.register_forward_pre_hook(
            lambda _, args, kwargs: (args, {**kwargs, **(given or {})}), with_kwargs=True
        )
        try:
            self.workload.run(module, numbers, seen)
        finally:
            asked.remove()
        return seen

    def _symbolic(self, numbers: Mapping[str, int]) -> Run | None:
        """The same path with symbolic sizes: two sequences, as one is a number to PyTorch and not a size."""
        from lmp.trace.runs import Runs

        runs = Runs(self.workload, self.making.roots()[0])
        try:
            return runs.run({**numbers, "batch_size": max(2, numbers["batch_size"])}, symbolic=True)
        except TraceFailed:
            return None

    def _op(self, operated: Operated, told: _Told | None) -> Op:
        return Op(
            index=operated.index,
            name=operated.name,
            words=self._words(operated.name, operated.arguments, operated.causal),
            category=told.category if told else "",
            frames=tuple(self._frames(operated.segments)),
            inputs=operated.inputs,
            outputs=operated.outputs,
            depends=operated.depends,
            shape=told.shape if told else None,
            sizes=operated.shapes[0] if operated.shapes else (),
            product=told.product if told else None,
            causal=operated.causal,
            operands=told.operands if told else None,
        )

    def _frames(self, segments: Sequence[Segment]) -> Iterator[Frame]:
        """Up to the call of the class itself."""
        for segment in segments:
            lines = (Line(self.making.file_of(p.file), p.line, p.function) for p in segment.chain)
            yield Frame(segment.call.class_path, segment.call.path, tuple(lines))
            if segment.call.class_path == self.name:
                return

    def _tensor(self, storage: Storage, formula: str | None) -> Tensor:
        return Tensor(
            storage.index, storage.kind, storage.bytes, formula, storage.shape, storage.dtype, storage.name,
            storage.maker, tuple(dict.fromkeys(storage.readers)), storage.end,
        )  # fmt: skip

    @staticmethod
    def _words(name: str, arguments: Mapping[str, Any], causal: bool = False) -> str:
        from lmp.trace.rules import Operator
        from lmp.trace.words import operation

        return operation(Operator(name, arguments, ()), causal)


# --- formulas --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Told:
    shape: Shape | None
    bytes: tuple[str | None, ...]
    category: str
    product: tuple[str, ...] | None
    operands: tuple[Shape, ...] | None


def _key(segments: Sequence[Segment], name: str) -> Any:
    return name.strip("_"), tuple((s.call.path, s.chain) for s in segments)


class _Formulas:
    """What a symbolic run says of the operators of a run with numbers, as far as the numbers agree."""

    def __init__(self, run: Run, values: Mapping[str, int]) -> None:
        self.run, self.values = run, values
        self._by_key: dict[Any, list[Any]] = {}
        for executed in run.recording.operators:
            key = _key(executed.segments, executed.operator.name)
            self._by_key.setdefault(key, []).append(executed)

    def of(self, key: Any, nth: int, operated: Operated) -> _Told | None:
        found = self._by_key.get(key, [])
        if len(found) < nth:
            return None
        executed = found[nth - 1]
        outputs = executed.operator.outputs
        shape = self._shape(outputs[0].shape, operated.shapes[0]) if outputs and operated.shapes else None
        product = _product(executed.operator)
        sizes = tuple(_text(size) for size in product) if product is not None else None
        operands = self._operands(executed.operator.arguments, operated.arguments)
        return _Told(shape, tuple(self._bytes(t) for t in outputs), executed.cost.category, sizes, operands)

    def _operands(self, symbolic: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Shape, ...] | None:
        """Of every tensor that went in, where all of them agree with the run with numbers."""
        from lmp.trace.rules import Tensor as Traced

        tensors = [item for item in _items(symbolic) if isinstance(item, Traced)]
        numbers = [item[1] for item in _items(given) if isinstance(item, tuple) and item[:1] == ("tensor",)]
        if len(tensors) != len(numbers):
            return None
        shapes = [self._shape(tensor.shape, sizes) for tensor, sizes in zip(tensors, numbers, strict=True)]
        found = [shape for shape in shapes if shape is not None]
        return tuple(found) if len(found) == len(shapes) else None

    def holds(self, text: str, number: int) -> bool:
        return self._worth(text) == number

    def outputs(self, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Shape]:
        """Module path -> shape of the first tensor that its call returned."""
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
    """Arguments one by one, those of lists too; a tensor of a run with numbers is ``("tensor", its shape)``."""
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
"""Matrix products -> where among their tensors the two factors begin."""


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
