"""Runs of a class for its data flow and its memory peak.

One run with numbers gives the operators and the live memory. One run with symbolic sizes, on the same path, gives the
shapes as formulas. A formula whose value differs from the run with numbers is left out. Imports torch when it runs.
"""

from __future__ import annotations

import inspect
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError, TraceFailed
from lmp.observe.flow import KEPT, Flow, Flows, Frame, Line, Op, Peak, Tensor
from lmp.observe.flow_formulas import Formulas, Told, key_of
from lmp.records import UNIVERSAL

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution
    from lmp.observe.lifetimes import Lifetimes, Operated, Storage
    from lmp.observe.lifetimes import Peak as Top
    from lmp.trace.runs import Run
    from lmp.workload.calls import Segment


def flows_of(
    execution: Execution, phases: Mapping[str, Mapping[str, int]], peaks: Mapping[str, Mapping[str, int]]
) -> Flows:
    """Run a class: in detail at one point of each phase, and for the peak at every point.

    The points are values of the runtime variables. A class that does not run has a reason and no flows.
    """
    from lmp.workload.load import quiet_warnings

    try:
        with quiet_warnings():
            running = _Running(execution)
            found = {phase: running.flow(values) for phase, values in phases.items() if running.has(values)}
            tops = {key: running.peak(values) for key, values in peaks.items() if running.is_whole}
            kept = {key: running.kept(values) for key, values in peaks.items() if key in tops and running.keeps(values)}
    except LmpError as error:
        return Flows(reason=str(error).splitlines()[0])
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, NotImplementedError) as error:
        first = (str(error).splitlines() or [""])[0]
        return Flows(reason=f"it does not run at these sizes: {type(error).__name__}: {first[:160]}")
    return Flows(found, tops, kept)


class _Running:
    def __init__(self, execution: Execution) -> None:
        self.execution, self.workload = execution, execution.workload
        self.name = execution.source.class_path
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
        """True if there are several positions, and the class can return logits of one only."""
        return self._takes_kept and values["seq_len"] > 1 and not values["cache_len"]

    def kept(self, values: Mapping[str, int]) -> Peak:
        """The peak with logits of the last position only."""
        return self.peak(values, {KEPT: 1})

    def peak(self, values: Mapping[str, int], given: Mapping[str, Any] | None = None) -> Peak:
        """The peak of the class with all its layers, in bytes."""
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
        known = Formulas(symbolic, {**numbers, **dict.fromkeys(UNIVERSAL, 2)}) if symbolic is not None else None
        ops, sizes = [], {}
        counted: Tally[Any] = Tally()
        for operated in seen.operators:
            key = key_of(operated.segments, operated.name)
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
            tensors=tuple(self._told_whole(s, checked.get(s.index), sizes, ops, known) for s in seen.storages),
            returned=seen.returned,
            outputs=known.outputs(self._output_sizes(seen)) if known is not None else {},
            given=dict(seen.given),
        )

    def _output_sizes(self, seen: Lifetimes) -> dict[str, tuple[int, ...]]:
        return seen.output_shapes

    def _observed(
        self, numbers: Mapping[str, int], *, detail: bool, given: Mapping[str, Any] | None = None
    ) -> Lifetimes:
        from lmp.observe.lifetimes import Lifetimes

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
        """Run the same path with symbolic sizes; None if it fails.

        The batch is at least 2, because PyTorch treats a size of 1 as a number.
        """
        from lmp.trace.runs import Runs

        runs = Runs(self.workload, self.execution.roots[0])
        try:
            return runs.run({**numbers, "batch_size": max(2, numbers["batch_size"])}, symbolic=True)
        except TraceFailed:
            return None

    def _op(self, operated: Operated, told: Told | None) -> Op:
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
        """The module calls of an operator, up to the call of the class itself."""
        for segment in segments:
            lines = (Line(self.execution.file_of(p.file), p.line, p.function) for p in segment.chain)
            yield Frame(segment.call.class_path, segment.call.path, tuple(lines))
            if segment.call.class_path == self.name:
                return

    def _told_whole(
        self, storage: Storage, formula: str | None, sizes: Mapping[int, str], ops: Sequence[Op], known: Formulas | None
    ) -> Tensor:
        """The tensor of a storage. If its maker wrote only a part, shape and bytes come from a reader of the whole."""
        if formula is not None or known is None or storage.index not in sizes:
            return self._tensor(storage, formula)
        read = (shape for index in storage.readers for shape in ops[index].operands or ())
        whole = next((shape for shape in read if known.is_shape(shape, storage.shape)), None)
        if whole is None:
            return self._tensor(storage, None)
        text = known.bytes_like(whole, sizes[storage.index])
        return self._tensor(storage, text if known.holds(text, storage.bytes) else None, whole)

    def _tensor(self, storage: Storage, formula: str | None, whole: tuple[str, ...] | None = None) -> Tensor:
        return Tensor(
            storage.index, storage.kind, storage.bytes, formula, storage.shape, storage.dtype, storage.name,
            storage.maker, tuple(dict.fromkeys(storage.readers)), storage.end, whole,
        )  # fmt: skip

    @staticmethod
    def _words(name: str, arguments: Mapping[str, Any], causal: bool = False) -> str:
        from lmp.trace.rules import Operator
        from lmp.trace.words import operation

        return operation(Operator(name, arguments, ()), causal)
