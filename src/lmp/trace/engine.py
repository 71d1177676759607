"""The trace engine: derives the formulas of a class and writes them by line into a ``ModuleAnalysis``."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lmp.errors import EvaluationError
from lmp.formula import (
    Condition,
    Expr,
    Num,
    eq,
    evaluate_condition,
    free_variables,
    ge,
    num,
    ref,
    simplify,
    simplify_condition,
    to_text,
    var,
)
from lmp.records import UNIVERSAL, ConfigOrigin, Kernel, Lookup, MemoryAccess, ModuleAnalysis, Operands, Source
from lmp.source.lines import FunctionSource, enclosing_function, line_text
from lmp.trace import operands
from lmp.trace.called import CalledCosts
from lmp.trace.coverage import LineCoverage
from lmp.trace.dataflow import ItemKey, Made
from lmp.trace.dataflow import Source as FlowSource
from lmp.trace.derive import Callee, Deriver, known_callee
from lmp.trace.observe import Item
from lmp.trace.runs import Run
from lmp.trace.table import Derived
from lmp.trace.words import explanation, operation
from lmp.workload.base import RUNTIME, Workload
from lmp.workload.calls import Call, Place


@dataclass(frozen=True)
class Setting:
    """Metadata of an analysis beside the class: the config, and the settings that the model is run with."""

    config: ConfigOrigin
    attention: str
    dtype: str
    roots: tuple[str, ...]
    """Folders whose files are quoted: absolute paths with a trailing slash."""
    file_of: Callable[[str], str]
    """Path of an executed file -> the path that analyses use."""


class TraceEngine:
    """Analyses the classes of one workload, callees before callers."""

    def __init__(
        self,
        workload: Workload,
        setting: Setting,
    ) -> None:
        self.workload, self.setting = workload, setting
        self.deriver = Deriver(workload, setting.roots[0])
        self.coverage = LineCoverage(*setting.roots)

    def know(self, analysis: ModuleAnalysis, lookup: Lookup, applies: Callable[[Call], bool] | None = None) -> None:
        """Register a standalone analysis, so that calls which it applies to become references.

        ``lookup``: the analyses that it refers to. A verified analysis is held against each call; if another one
        differs from a call, the caller's judge is to find it.
        """
        costs = CalledCosts(analysis, lookup) if analysis.verification.status == "verified" else None
        self.deriver.callees[analysis.class_name] = known_callee(analysis, applies, costs)

    def refer(self, analysis: ModuleAnalysis) -> None:
        """Register an analysis that is taken for every call of its class: all of them become references."""
        self.deriver.callees[analysis.class_name] = Callee(analysis.parameters)

    def rebind(self, analysis: ModuleAnalysis) -> None:
        """Let later references bind all parameters of a derived class: an assumption may have one of its own."""
        known = self.deriver.callees[analysis.class_name]
        self.deriver.callees[analysis.class_name] = replace(known, parameters=analysis.parameters)

    def inline(self, class_path: str, why: str) -> None:
        """Inline the operators of a called class at its calls, because it has no analysis to refer to."""
        self.deriver.inline(class_path, why)

    def applies(self, call: Call, run: Run) -> bool:
        """True if a call of a known class can be a reference, judged by its constructor, inputs and costs."""
        callee = self.deriver.callees.get(call.class_path)
        return callee is not None and self.deriver.fits(callee, call, run)

    def calls(self) -> list[Call]:
        """The module calls of the base run."""
        return self.deriver.runs.symbolic[0].recording.calls

    def pinned(self, class_path: str | None = None) -> dict[str, int]:
        """Config values that the base run turned into numbers, without the numbers of layers, which are counted.

        With ``class_path``, only the values turned into numbers during calls of that class.
        """
        run = self.deriver.runs.symbolic[0]
        found = {n: v for n, v in run.pinned.items() if n not in (*RUNTIME, *self.workload.full_layers)}
        return {n: v for n, v in found.items() if class_path is None or class_path in run.pinned_in[n]}

    def prepare(self, target: str) -> None:
        """Run the workload at the points that the formulas of ``target`` are derived from."""
        self.deriver.runs.start(target)
        start = self.deriver.runs.start_point()
        cached = (start["cache_len"], 0) if self.workload.has_cache else (0,)
        with self.coverage:
            for new in (start["seq_len"], self.deriver.runs.tokens(1)):
                for cache in cached:
                    point = {**start, "seq_len": new, "cache_len": cache}
                    if self.deriver.runs.at(point) is not None:
                        self.deriver.runs.run(point, symbolic=False)

    def analyse(
        self,
        class_path: str,
        source: Source,
        held_out: Callable[[bool], Iterable[Mapping[str, int]]],
        specialised: bool = False,
    ) -> ModuleAnalysis:
        """The analysis of one class. The classes that it calls must be analysed or known.

        ``held_out`` returns the held-out points; its argument is true if they must have all layers. Compulsory traffic
        is omitted if it is wrong at one of them: no number is better than a wrong one. With ``specialised``, config
        values are numbers in the formulas.
        """
        derived = self.deriver.derive(class_path, specialised)
        compulsory = None
        full = any(name in derived.pinned for name in self.workload.full_layers)
        points = [
            p for p in held_out(full) if all(p[n] == v for n, v in derived.pinned.items()) and _within(derived, p)
        ]
        if self.deriver.compulsory_holds(derived, points):
            read, write = (_text(_bytes(derived.compulsory, direction)) for direction in ("read", "write"))
            compulsory = MemoryAccess(read=read, write=write)
        lines = _Lines(derived, source, self.setting, self.coverage.lines)
        uncounted = sorted({i.operator.name for i, _ in derived.items if i.operator is not None and not i.counted})
        return ModuleAnalysis(
            class_name=class_path,
            engine="trace",
            source=source,
            config=self.setting.config,
            attn_implementation=self.workload.attention,
            attn_requested=self.setting.attention,
            dtype=self.setting.dtype,
            parameters=derived.parameters,
            values={n: v for n, v in self._values(derived).items() if n in derived.parameters},
            aliases={o: n for o, n in self.workload.aliases.items() if n in derived.parameters},
            interface={n: [_text(s) for s in shape] for n, shape in derived.interface.items()},
            assumptions=_stated([*derived.assumptions, *self._fewest_tokens(derived)]),
            pinned=derived.pinned,
            fixed=self.workload.fixed,
            called_with=self._called_with(derived),
            inlined=self.deriver.inlined_in(class_path),
            kernels=lines.kernels(),
            outputs_from=lines.outputs_from(),
            free_lines=lines.free_lines(),
            free_lines_elsewhere=lines.free_lines_elsewhere(),
            not_taken_lines=lines.not_taken(),
            uncounted=uncounted,
            compulsory=compulsory,
            parameters_count=_text(derived.parameters_count),
        )

    def _called_with(self, derived: Derived) -> dict[str, str]:
        """Model inputs other than token ids, with shapes in the class's variables if the class is the model."""
        given = self.workload.called_with
        own = derived.interface if derived.calls[0].parent is None else {}
        shapes = {n: ", ".join(_text(s) for s in own[n]) for n in given if n in own}
        return {n: f"[{shapes[n]}]{text.partition(']')[2]}" if n in own else text for n, text in given.items()}

    def _fewest_tokens(self, derived: Derived) -> Iterator[Condition]:
        """The condition on the fewest tokens that the model runs with, unless another assumption implies it.

        A submodule may be called with another number of tokens than its model.
        """
        few = self.workload.fewest_tokens
        fewer = {**self.workload.hints, "batch_size": 2, "seq_len": few - 1, "cache_len": 0}
        called = derived.calls[0].parent is None and "seq_len" in derived.parameters
        if few > 1 and called and _within(derived, fewer):
            yield ge(var("seq_len"), num(few))

    def _values(self, derived: Derived) -> dict[str, int]:
        """Default values of the analysis's variables, from the config and not from the sizes of the runs."""
        values = {n: v.default for n, v in self.workload.variables.items()}
        values.update({n: v for n, v in derived.numbers.items() if n not in values})
        values.update(self.workload.full_layers)
        given = {*RUNTIME, *UNIVERSAL, *self.workload.required}
        return {n: v for n, v in values.items() if n not in given}


class _Lines:
    """Converts derived formulas to kernels at their lines, and classifies the lines without a kernel."""

    def __init__(self, derived: Derived, source: Source, setting: Setting, executed: Iterable[tuple[str, int]]) -> None:
        self.derived, self.source, self.setting = derived, source, setting
        self.executed = set(executed)
        self.places = {id(item): item.key.chain[0] for item, _ in derived.items}

    def kernels(self) -> list[Kernel]:
        """Kernels in execution order; the call of a helper function precedes the operators of that function."""
        return [self._connected(number, *pair) for number, pair in enumerate(self._pairs, 1)]

    def outputs_from(self) -> list[list[str]]:
        """Sources of each output of the module."""
        return [self._sources(found) for found in self.derived.flow.outputs]

    @functools.cached_property
    def _pairs(self) -> list[tuple[Kernel, Item | None]]:
        """Kernels, each with its item. Calls of helpers have none; of several kernels of an item the first has it."""
        found: list[tuple[Kernel, Item | None]] = []
        announced: set[tuple[str, int]] = {(p.file, p.line) for p in self.places.values()}
        for item, formulas in self.derived.items:
            place = self.places[id(item)]
            chain = item.key.chain
            for caller in reversed(chain[chain.index(place) + 1 :]):
                if (caller.file, caller.line) not in announced:
                    announced.add((caller.file, caller.line))
                    inner = chain[chain.index(caller) - 1]
                    found.append((self._call(caller, inner), None))
            make = self._composite if item.key.composite else self._basic
            made = make(item, place, formulas)
            found += zip(made, [item, *[None] * len(made)], strict=False)
        return found

    @functools.cached_property
    def _ids(self) -> dict[ItemKey, str]:
        """Item -> id of its kernel."""
        keys = self.derived.keys
        return {keys[id(item)]: str(n) for n, (_, item) in enumerate(self._pairs, 1) if item is not None}

    def _connected(self, number: int, kernel: Kernel, item: Item | None) -> Kernel:
        """The kernel with its id, and with the kernels that made its inputs."""
        update: dict[str, Any] = {"id": str(number)}
        if item is None and kernel.category != "call":
            update["inputs_from"] = [str(number - 1)]  # the bias of the matmul before it
        if item is not None:
            key, flow = self.derived.keys[id(item)], self.derived.flow
            update["inputs_from"] = self._sources(flow.inputs.get(key, ()))
            given = {name: self._sources(found) for name, found in flow.arguments.get(key, {}).items()}
            update["arguments_from"] = {name: found for name, found in given.items() if found}
        return kernel.model_copy(update=update)

    def _sources(self, found: Iterable[FlowSource]) -> list[str]:
        """Ids of kernels, with ``.N`` for output N of a module call; names of inputs; ``cache``."""
        texts = {
            f"{self._ids[one.key]}.{one.output}" if one.output is not None else self._ids[one.key]
            for one in found
            if isinstance(one, Made) and one.key in self._ids
        }
        numbered = sorted(texts, key=lambda text: [int(part) for part in text.split(".")])
        return [*sorted(one for one in found if isinstance(one, str)), *numbered]

    def _call(self, place: Place, inner: Place) -> Kernel:
        where = self.setting.file_of(inner.file)
        at = f"from line {inner.line}" if where == self.source.file else f"{where}, from line {inner.line}"
        return self._kernel(
            place,
            kernel_type="basic",
            operation=f"call of {inner.function}()",
            analysis=f"costs nothing itself; the operators of {inner.function}() stand at their own lines ({at})",
            category="call",
        )

    def _basic(self, item: Item, place: Place, formulas: dict[str, Expr]) -> list[Kernel]:
        matmul, scalar = formulas.get("matmul", num(0)), formulas.get("scalar", num(0))
        read, write = _bytes(formulas, "read"), _bytes(formulas, "write")
        if all(f == num(0) for f in (matmul, scalar, read, write)):
            return []
        is_matmul = matmul != num(0)
        shared: dict[str, Any] = {
            "kernel_type": "basic",
            "operation": operation(item.operator, item.causal) + (f", {item.times} times" if item.times > 1 else ""),
            "analysis": explanation(item.operator) + (", the first of them; the sum of all" if item.times > 1 else ""),
            "category": item.category,
            "repeat": _repeat(formulas["count"]),
            "causal": item.causal,
        }
        main = self._kernel(
            place,
            flops=_text(matmul if is_matmul else scalar),
            memory_access=MemoryAccess(read=_text(read), write=_text(write)),
            operands=self._operands(item),
            **shared,
        )
        if not is_matmul or scalar == num(0):
            return [main]
        shared |= {
            "operation": "bias addition",
            "category": "elementwise",
            "analysis": f"the addition inside aten.{item.operator.name}; its bytes are in the kernel above",
        }
        return [main, self._kernel(place, flops=_text(scalar), **shared)]

    def _operands(self, item: Item) -> Operands | None:
        found = self.derived.operands.get(id(item))
        return None if found is None else operands.record(item.operator, found)

    def _composite(self, item: Item, place: Place, formulas: dict[str, Expr]) -> list[Kernel]:
        if formulas["count"] == num(0) or item.child is None:
            return []
        call = item.child
        owner = call.parent
        while owner is not None and owner.class_path != self.derived.class_path:
            owner = owner.parent
        parent = owner.path if owner is not None else ""
        path = call.path.removeprefix(parent).lstrip(".") if call.path.startswith(parent) else call.path
        bindings = {n: f for n, f in formulas.items() if n != "count"}
        reference = to_text(ref(call.class_path, **bindings))
        name = call.class_path.rpartition(".")[2]
        return [
            self._kernel(
                place,
                kernel_type="composite",
                operation=f"{path}: {name}" if path else name,
                analysis=f"calls {name}.forward(); its own analysis says what it costs",
                category="module",
                path=path or None,
                repeat=_repeat(formulas["count"]),
                flops=reference,
                memory_access=MemoryAccess(read=reference, write=reference),
            )
        ]

    def _kernel(self, place: Place, **fields: Any) -> Kernel:
        file = self.setting.file_of(place.file)
        nothing = {"flops": "0", "memory_access": MemoryAccess(read="0", write="0")}
        return Kernel(
            **{
                **nothing,
                "line": place.line,
                "code": line_text(Path(place.file), place.line),
                "file": None if file == self.source.file else file,
                "function": None if place.function == "forward" else place.function,
                **fields,
            }
        )

    # -- lines without a kernel ------------------------------------------------------------------------------------

    def _functions(self) -> list[FunctionSource]:
        """``forward()`` and the plain functions on the way to an operator or a module, where their source is known."""
        names: dict[tuple[str, str, int], None] = {}
        for item, _ in self.derived.items:
            for place in item.key.chain:
                names.setdefault((place.file, place.function, place.line))
        found: dict[tuple[str, str], FunctionSource] = {}
        for call in self.derived.calls:
            code = getattr(inspect.unwrap(type(call.module).forward), "__code__", None)
            if code is not None:
                source = enclosing_function(Path(code.co_filename), code.co_firstlineno)
                if source is not None:
                    found[code.co_filename, source.qualname] = source
        for file, function, line in names:
            if function not in ("<listcomp>", "<genexpr>", "<lambda>", "forward"):
                source = enclosing_function(Path(file), line)
                if source is not None:
                    found[file, source.qualname] = source
        return list(found.values())

    @functools.cached_property
    def _split(self) -> tuple[dict[str, list[int]], list[int]]:
        """Free lines per file, and the lines of the class's own file that were not taken."""
        with_kernel = {(p.file, p.line) for item, _ in self.derived.items for p in item.key.chain}
        free: dict[str, set[int]] = {}
        missed: set[int] = set()
        for function in self._functions():
            path = str(function.path)
            file = self.setting.file_of(path)
            for statement in function.statements:
                span = range(statement.first, statement.last + 1)
                if any((path, line) in with_kernel for line in span):
                    continue
                if any((path, line) in self.executed for line in span):
                    free.setdefault(file, set()).add(statement.first)
                elif file == self.source.file:
                    missed.add(statement.first)
        return {f: sorted(lines) for f, lines in free.items()}, sorted(missed)

    def free_lines(self) -> list[int]:
        return self._split[0].get(self.source.file, [])

    def free_lines_elsewhere(self) -> dict[str, list[int]]:
        return {f: lines for f, lines in sorted(self._split[0].items()) if f != self.source.file}

    def not_taken(self) -> list[int]:
        return self._split[1]


def _within(derived: Derived, point: Mapping[str, int]) -> bool:
    """False if an assumption is known to fail at a point. Assumptions with variables outside the point are skipped."""
    for condition in derived.assumptions:
        if free_variables(condition) <= point.keys():
            with contextlib.suppress(EvaluationError):
                if not evaluate_condition(condition, point):
                    return False
    return True


def _stated(conditions: Iterable[Condition]) -> list[str]:
    """Conditions as text, each once, without those that always hold, such as ``{dim} % {dim} == 0``."""
    return list(dict.fromkeys(to_text(condition) for condition in conditions if not _always_holds(condition)))


def _always_holds(condition: Condition) -> bool:
    try:
        return simplify_condition(condition) == eq(num(0), num(0))
    except EvaluationError:
        return False


def _bytes(formulas: Mapping[str, Expr], direction: str) -> Expr:
    """Bytes moved: elements times bytes per element, plus the bytes of tensors in other dtypes."""
    total: Expr = num(0)
    for name, formula in formulas.items():
        kind, _, unit = name.partition(":")
        if kind == direction:
            total = total + (formula * var(unit) if unit else formula)
    return simplify(total)


def _repeat(count: Expr) -> int | str:
    return count.value if isinstance(count, Num) and isinstance(count.value, int) else to_text(count)


def _text(size: Any) -> str:
    return to_text(simplify(size)) if isinstance(size, Expr) else str(size)
