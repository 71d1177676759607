"""Deriving one formula for each cost of each line, by running the module.

    run symbolically at one point                      -> formulas that hold on that path
    run concretely at points on other paths            -> samples
    where a sample contradicts the formulas            -> run symbolically there too, and split (lmp.trace.fit)

What comes out holds at every sample; the judge then holds it against points that were not used here.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from lmp.errors import TraceFailed
from lmp.formula import (
    Condition,
    Expr,
    evaluate_condition,
    free_variables,
    ge,
    gt,
    maximum,
    minimum,
    num,
    simplify,
    substitute,
    to_text,
    var,
)
from lmp.trace.fit import Fitter, Point, Sample, negated
from lmp.trace.observe import (
    CallSite,
    Interface,
    Item,
    Key,
    Observation,
    Observer,
    attribute,
    call_site,
    differs,
    forward_arguments,
)
from lmp.trace.recording import Recorder, Recording
from lmp.trace.rules import Size
from lmp.trace.sizes import Sizes
from lmp.trace.symbols import ConcolicShapeEnv, expression, fake_mode, symbolic_int
from lmp.workload.base import RUNTIME, Workload
from lmp.workload.calls import Call

MAX_SYMBOLIC_RUNS = 12
CACHE_PATH = "inputs.past_key_values.layers[0].keys.shape[2]"
BYTES = {"w_bytes": 3, "a_bytes": 5}


ZERO = num(0)


@dataclass
class Run:
    """One execution, symbolic or concrete. ``numbers`` are the values of all variables in it."""

    numbers: dict[str, int]
    values: dict[str, Any]
    recording: Recording
    size: Callable[[Any], Size]
    sizes: Sizes | None
    conditions: list[Any]
    model: torch.nn.Module

    def calls_of(self, class_path: str) -> list[Call]:
        return [c for c in self.recording.calls if c.class_path == class_path]


@dataclass
class Derived:
    """Formulas of one class: for each key its fields, and what is known of the variables in them."""

    class_path: str
    items: list[tuple[Item, dict[str, Expr]]]
    parameters: dict[str, str]
    numbers: dict[str, int]
    assumptions: list[Condition]
    calls: list[Call]
    interface: dict[str, list[Size]] = field(default_factory=dict)
    parameters_count: Expr = ZERO
    compulsory: dict[str, Expr] = field(default_factory=dict)


class Deriver:
    """Derives the classes of one workload. ``interfaces`` are the parameters of classes that may be referred to."""

    def __init__(
        self,
        workload: Workload,
        source_root: str,
    ) -> None:
        self.workload, self.source_root = workload, source_root
        self.interfaces: dict[str, Interface] = {}
        self.ranks: dict[str, Mapping[str, int]] = {}
        self.symbolic: list[Run] = []
        self.concrete: list[Run] = []
        self.compared: dict[str, None] = {}
        """Sizes of the config that the source compares with one another."""
        self.alone: set[str] = set()
        """Classes whose analysis was made on inputs of their own, not in this workload."""
        self.written_out: set[CallSite] = set()
        self._flipped: set[Condition] = set()
        self._done: set[tuple[tuple[str, int], ...]] = set()
        self._base = dict(workload.hints)

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, numbers: dict[str, int], *, symbolic: bool) -> Run:
        """Execute the workload once at ``numbers``. Sizes that make a path of their own (1, no cache) stay numbers."""
        env, sizes = None, None
        values: dict[str, Any] = dict(numbers)
        size: Callable[[Any], Size] = int
        if symbolic:
            env = ConcolicShapeEnv()
            env.source_root = self.source_root
            sizes = Sizes(env.values)
            size = _symbolic_size(sizes)
            for name, number in numbers.items():
                if name in self.workload.flags or (name in RUNTIME and number <= 1):
                    continue
                values[name] = env.size(name, number)
            with fake_mode(env), symbolic_int(self._source_modules()):
                model, recorder = self._execute(values, size)
        else:
            model, recorder = self._execute(values, size)
        conditions = list(env.conditions.values()) if env else []
        shown = {name: size(v) if not isinstance(v, int) else v for name, v in values.items()}
        return Run(numbers, shown, recorder.recording, size, sizes, conditions, model)

    def _source_modules(self) -> list[str]:
        """Python modules of the analysed tree that are loaded and define modules."""
        prefix = os.path.basename(self.source_root.rstrip("/"))
        return [n for n in sys.modules if n.startswith(f"{prefix}.") and ".modeling_" in n]

    def _execute(self, values: dict[str, Any], size: Callable[[Any], Size]) -> tuple[torch.nn.Module, Recorder]:
        model = self.workload.build(values)
        recorder = Recorder(model, self.workload.dtype, size)
        self.workload.run(model, values, recorder, recorder.before)
        return model, recorder

    def explore(self, points: Iterable[dict[str, int]]) -> None:
        """Run concretely at points (missing variables are the defaults); a point that cannot run is left out."""
        for point in points:
            numbers = {**self._base, **point}
            key = tuple(sorted(numbers.items()))
            if key in self._done:
                continue
            self._done.add(key)
            try:
                self.concrete.append(self.run(numbers, symbolic=False))
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
                continue

    def prepare(self) -> None:
        """The base run, and the points at which other paths may be taken: phases, windows, switches of the config."""
        start = {**self._base, "batch_size": 2, "seq_len": 5, "cache_len": 7 if self.workload.has_cache else 0}
        self.symbolic.append(self.run(start, symbolic=True))
        self.explore(self.corners({}))
        for changed in self._other_settings():
            self.explore(self.corners(changed))
        self._explore_comparisons(self.symbolic[0])
        for window in self._windows():
            self.explore(window)

    def explore_layers(self) -> None:
        """Points with other numbers of layers, for the classes that hold lists of them."""
        start = self.symbolic[0].numbers
        if "num_hidden_layers" in self._base:
            for more in (1, 2, 5):
                self.explore([{**start, "num_hidden_layers": start["num_hidden_layers"] + more}])
            small = [n for n in self._base if 0 < start[n] < start["num_hidden_layers"] and n != "num_hidden_layers"]
            for other in (start["num_hidden_layers"] - 2, start["num_hidden_layers"] + 2):
                self.explore({**start, name: other} for name in small if other > 0)

    def corners(self, changed: dict[str, int]) -> list[dict[str, int]]:
        """Batches and sequences of one and of several, with and without a cache."""
        cached = (7, 0) if self.workload.has_cache else (0,)
        return [
            {**changed, "batch_size": b, "seq_len": s, "cache_len": c} for b in (2, 1) for s in (5, 1) for c in cached
        ]

    def _other_settings(self) -> list[dict[str, int]]:
        """Values of flags, and of sizes that the source compares, under which another path is taken."""
        flags = sorted(self.workload.flags)
        found = [
            dict(zip(flags, chosen, strict=True))
            for chosen in itertools.product((1, 0), repeat=len(flags))
            if 0 < len(flags) <= 3 or sum(c != self._base[f] for c, f in zip(chosen, flags, strict=True)) == 1
        ]
        if not self.workload.has_cache:
            found += [{n: v * 2} for n, v in self._base.items() if n not in flags]
            found += [{n: v.default} for n, v in self.workload.variables.items() if v.default != self._base[n]]
        return [dict(t) for t in dict.fromkeys(tuple(sorted(f.items())) for f in found)]

    def _explore_comparisons(self, run: Run) -> None:
        """Settings in which a comparison of the config's sizes comes out the other way than in this run."""
        here = {n: v for n, v in run.numbers.items() if n not in RUNTIME and v != self._base[n]}
        for asked in run.conditions:
            condition = run.sizes.condition(asked.expression) if run.sizes else None
            names = free_variables(condition) if condition is not None else frozenset()
            if condition is None or condition in self._flipped or not names or names & set(RUNTIME):
                continue
            self._flipped.add(condition)
            bounds = [int(c) for c in asked.expression.atoms(sympy.Integer)]
            for name, value in ((n, v) for n in sorted(names) for v in _nearby(run.numbers[n], bounds)):
                if evaluate_condition(condition, {**run.numbers, name: value}) != asked.holds:
                    before = len(self.concrete)
                    # One value on the other side, and 1: a dimension of one element broadcasts and needs no copy.
                    self.explore(self.corners({**here, name: value}))
                    self.explore(self.corners({**here, name: 1}))
                    self.compared[name] = None
                    if len(self.concrete) > before:
                        break

    def _windows(self) -> list[list[dict[str, int]]]:
        """Points on both sides of every size that the source compares a number of tokens with."""
        first = self.symbolic[0]
        names: dict[str, None] = {}
        for asked in first.conditions:
            condition = first.sizes.condition(asked.expression) if first.sizes else None
            if condition is not None and free_variables(condition) & {"seq_len", "cache_len"}:
                names.update(dict.fromkeys(n for n in sorted(free_variables(condition)) if n not in RUNTIME))
        return [
            [
                {"batch_size": 2, "seq_len": s, "cache_len": c}
                for s in (1, 5, w - 1, w, w + 3)
                for c in (0, 7, w - 2, w - 1, w, w + 6)
                if s >= w - 1 or c >= w - 2
            ]
            for w in (first.numbers[n] for n in names)
        ]

    # -- deriving --------------------------------------------------------------------------------------------------

    def derive(self, class_path: str) -> Derived:
        """Formulas of one class that this workload runs. The classes that it calls must be derived before."""
        self._find_written_out(class_path)
        variables = ClassVariables(class_path, self.symbolic[0])
        paths = {name: v.path for name, v in self.workload.variables.items()}
        for _ in range(MAX_SYMBOLIC_RUNS):
            table = Table(class_path, self.symbolic, self.concrete, self._observer, variables, paths, self.compared)
            contradiction = table.contradiction()
            if contradiction is None:
                break
            if any(r.numbers == contradiction.numbers for r in self.symbolic):
                raise TraceFailed(table.explain(contradiction))
            self.symbolic.append(self.run(contradiction.numbers, symbolic=True))
            self._explore_comparisons(self.symbolic[-1])
        derived = table.derived()
        self.interfaces[class_path] = derived.parameters
        shapes = [s for s in derived.interface.values() if s[:2] == [var("batch_size"), var("seq_len")]]
        if shapes and not self.workload.has_cache:
            self.ranks[class_path] = {n: len(s) for n, s in derived.interface.items() if s is shapes[0]}
        return derived

    def _find_written_out(self, class_path: str) -> None:
        """Calls of modules that are analysed by themselves, with inputs for which those analyses do not hold."""
        for run in (*self.symbolic, *self.concrete):
            for call in run.recording.calls:
                inner = call.parent is not None and call.parent.class_path == class_path
                site = call_site(call)
                if inner and site is not None and call.class_path in self.alone and site not in self.written_out:
                    if differs(call, run.recording):
                        self.written_out.add(site)

    def _observer(self, run: Run) -> Observer:
        return Observer(run.recording, run.values, run.size, self.interfaces, self.ranks, self.written_out)


def _symbolic_size(sizes: Sizes) -> Callable[[Any], Size]:
    def size(value: Any) -> Size:
        return sizes.formula(expression(value))

    return size


def _nearby(value: int, bounds: Sequence[int]) -> list[int]:
    """Other values to try for a size: halves and multiples keep most of what a config promises; then the bounds."""
    tries = (value // 2, value * 2, value // 4, 1, value + 1, *(b * 2 for b in bounds), *(b + d for b in bounds for d in (1, -1)))
    return [v for v in dict.fromkeys(tries) if v > 0 and v != value]


class ClassVariables:
    """Which attributes of a module make one instance cost other than another one of the same class.

    ``overrides`` are variables that an instance may have its own value of (a shared expert's intermediate size);
    ``switches`` are attributes that are there, or on, in some instances only (a sliding window, experts).
    """

    def __init__(self, class_path: str, base: Run) -> None:
        calls = base.calls_of(class_path)
        if not calls:
            raise TraceFailed(f"{class_path} is not executed by {type(base.model).__name__}.forward()")
        primary = calls[0].module
        self.paths: dict[str, str] = {}
        self.switches: dict[str, str] = {}
        others = [c.module for c in calls[1:]]
        if not others:
            return
        for name, value in vars(primary).items():
            if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
                continue
            expressions = {str(_plain(getattr(m, name, None), base.size)) for m in (primary, *others)}
            if len(expressions) > 1:
                own = base.size(value)
                if isinstance(own, Expr) and len(free_variables(own)) == 1 and own == var(next(iter(free_variables(own)))):
                    self.paths[next(iter(free_variables(own)))] = f"self.{name}"
        self._find_switches(primary, others)

    def _find_switches(self, primary: torch.nn.Module, others: Sequence[torch.nn.Module]) -> None:
        """Attributes that are true or present in some instances and false or absent in others, nearest first."""
        instances = (primary, *others)
        for prefix, _ in [("", None), *((f"{n}.", None) for n, _ in primary.named_children())]:
            names: dict[str, None] = {}
            for instance in instances:
                holder = attribute(instance, prefix[:-1]) if prefix else instance
                names.update(dict.fromkeys([*vars(holder or object), *getattr(holder, "_modules", {})]) if holder else {})
            for name in names:
                if name.startswith("_") or name in ("training", "layer_idx"):
                    continue
                found = [_attribute_or_missing(i, prefix + name) for i in instances]
                if not all(isinstance(v, (bool, int, type(None), torch.nn.Module, torch.SymInt, _Missing)) for v in found):
                    continue
                present = [not (v is None or v is False or isinstance(v, _Missing)) for v in found]
                if all(present) or not any(present):
                    continue
                missing = any(isinstance(v, _Missing) for v in found)
                if any(isinstance(v, torch.nn.Module) for v in found):
                    self.switches.setdefault(f"has_{name}", f"self.{prefix}{name}")
                elif not missing:
                    self.switches.setdefault(name, f"self.{prefix}{name}")
        # What the first instance lacks says best what is special about the others.
        first = {n: attribute(primary, p.removeprefix("self.")) for n, p in self.switches.items()}
        self.switches = dict(sorted(self.switches.items(), key=lambda kv: bool(first[kv[0]])))

    def numbers(self, run: Run, call: Call) -> dict[str, int]:
        """Values of all variables at this call."""
        found = dict(run.numbers)
        for name, path in (*self.paths.items(), *self.switches.items()):
            found[name] = _number(attribute(call.module, path.removeprefix("self.")), run)
        return found


class _Missing:
    """Stands for an attribute that is not there."""


def _attribute_or_missing(instance: Any, path: str) -> Any:
    for part in path.split("."):
        if instance is None or not hasattr(instance, part):
            return _Missing()
        instance = getattr(instance, part)
    return instance


def _plain(value: Any, size: Callable[[Any], Size]) -> Any:
    return size(value) if isinstance(value, torch.SymInt) else value


def _number(value: Any, run: Run) -> int:
    if value is None:
        return 0
    if isinstance(value, torch.nn.Module):
        return 1
    if isinstance(value, torch.SymInt):
        return int(value.node._hint) if value.node._hint is not None else int(value.node.shape_env._value(value.node.expr))
    return int(value)


class Table:
    """All observations of one class: rows are keys, columns are points; symbolic runs give candidates for each cell."""

    def __init__(
        self,
        class_path: str,
        symbolic: Sequence[Run],
        concrete: Sequence[Run],
        observer: Callable[[Run], Observer],
        variables: ClassVariables,
        own_paths: Mapping[str, str],
        compared: Iterable[str],
    ) -> None:
        self.class_path, self.variables, self.own_paths = class_path, variables, own_paths
        self.compared = list(compared)
        self.symbolic, self.concrete = list(symbolic), list(concrete)
        self.formulas = [(r, o) for r in symbolic for o in _observe(observer(r), r, class_path)]
        self.samples: list[tuple[Run, Point, Observation]] = []
        for run in concrete:
            seen: set[str] = set()
            for observation in _observe(observer(run), run, class_path):
                numbers = {**variables.numbers(run, observation.call), **BYTES}
                # Layers that are alike and cost the same are one sample.
                content = f"{sorted(numbers.items())}{_content(observation)}"
                if content not in seen:
                    seen.add(content)
                    self.samples.append((run, Point(numbers), observation))
        self.rows = self._rows()
        flags = frozenset(
            name
            for name, path in variables.switches.items()
            if all(p.values[name] in (0, 1) for _, p, _ in self.samples)
        )
        self.fitter = Fitter(self._conditions(), flags | self._workload_flags())

    def _workload_flags(self) -> frozenset[str]:
        base = self.symbolic[0].numbers
        return frozenset(n for n in base if n not in RUNTIME and isinstance(self.symbolic[0].values[n], int))

    def _rows(self) -> dict[tuple[Key, int], Item]:
        """Every key that any run saw, with the item that describes it; in the order of the first run that saw it."""
        found: dict[tuple[Key, int], Item] = {}
        for observation in (*(o for _, o in self.formulas), *(o for _, _, o in self.samples)):
            previous: tuple[Key, int] | None = None
            for key, item in observation.items.items():
                if key not in found:
                    found = _insert_after(found, previous, key, item)
                previous = key
        return found

    def _conditions(self) -> list[Condition]:
        """What formulas may be split by: flags, phases, single tokens, windows, and comparisons the source makes."""
        numbers = self.symbolic[0].numbers
        found: list[Condition] = [gt(var(n), 0) for n in (*self.variables.switches, *self._workload_flags())]
        found += [gt(var("seq_len"), 1), gt(var("cache_len"), 0), gt(var("batch_size"), 1)]
        found += [gt(var("batch_size") * var("seq_len"), 1)]
        asked: list[Condition] = []
        for run in self.symbolic:
            for c in run.conditions:
                condition = run.sizes.condition(c.expression) if run.sizes else None
                if condition is not None and condition not in asked:
                    asked.append(condition)
        windows = sorted(
            {n for c in asked for n in _condition_variables(c) if n in numbers and n not in RUNTIME}
            & {n for c in asked if _condition_variables(c) & {"seq_len", "cache_len"} for n in _condition_variables(c)}
        )
        for name in windows:
            found += [ge(var("cache_len"), var(name)), ge(var("seq_len"), var(name))]
            found += [ge(var("seq_len") + var("cache_len"), var(name))]
        return [*found, *asked, *(gt(var(name), 1) for name in self.compared)]

    def candidates(self, key: tuple[Key, int], name: str) -> list[Expr]:
        found: dict[Expr, None] = {}
        for _, observation in self.formulas:
            item = observation.items.get(key)
            if item is not None:
                value = item.count if name == "count" else item.fields.get(name, 0)
                found[simplify(value) if isinstance(value, Expr) else num(value)] = None
        if name == "count" and len(self._column(key, name)) > 0:
            counts = {s.value for s in self._column(key, name)}
            if len(counts) > 1 and max(counts) > 1:
                found.update(dict.fromkeys(_structural(self.symbolic[0].numbers, max(counts))))
        return list(found)

    def _column(self, key: tuple[Key, int], name: str) -> list[Sample]:
        found = []
        composite = key[0].composite
        for _, point, observation in self.samples:
            item = observation.items.get(key)
            if item is not None:
                value = item.count if name == "count" else item.fields.get(name, 0)
                found.append(Sample(point, int(value)))
            elif (name == "count") == composite:
                # What does not run costs nothing: a call is repeated 0 times, an operator has 0 of everything.
                found.append(Sample(point, 0))
        return found

    def fields(self, key: tuple[Key, int]) -> list[str]:
        names: dict[str, None] = {}
        for observation in (*(o for _, o in self.formulas), *(o for _, _, o in self.samples)):
            if key in observation.items:
                names.update(dict.fromkeys(observation.items[key].fields))
        return [*names, "count"]

    def contradiction(self) -> Run | None:
        """A run that shows something that no formula explains yet."""
        for key in self.rows:
            for name in self.fields(key):
                missing = self.fitter.unexplained(self._column(key, name), self.candidates(key, name))
                if missing:
                    return next(r for r, p, _ in self.samples if p is missing[0].point)
        return None

    def explain(self, run: Run) -> str:
        for key in self.rows:
            for name in self.fields(key):
                missing = self.fitter.unexplained(self._column(key, name), self.candidates(key, name))
                if missing:
                    place = key[0].chain[0] if key[0].chain else None
                    where = f"{os.path.basename(place.file)}:{place.line}" if place else "an unknown line"
                    values = ", ".join(f"{k}={v}" for k, v in run.numbers.items() if k in RUNTIME)
                    return (
                        f"{self.class_path}: {name} of {key[0].name} at {where} is {missing[0].value} at {values}, "
                        f"which no formula explains.\nThe path depends on values that lmp has no rule for."
                    )
        return f"{self.class_path}: not explained"

    def fitted(self) -> list[tuple[Item, dict[str, Expr]]]:
        """For each key the formulas of its fields. Keys that never cost anything are left out."""
        result = []
        for key, item in self.rows.items():
            formulas: dict[str, Expr] = {}
            for name in self.fields(key):
                found = self.fitter.fit(self._column(key, name), self.candidates(key, name))
                if found is None:
                    raise TraceFailed(
                        f"{self.class_path}: {name} of {key[0].name} takes several values that no condition tells apart."
                    )
                formulas[name] = simplify(found)
            result.append((item, formulas))
        return result

    def derived(self) -> Derived:
        """Everything that is known of the class, in its own variables."""
        items = self.fitted()
        shapes = self.input_shapes()
        paths = self._paths(shapes)
        items, paths, shapes = self._in_own_variables(items, paths, shapes)
        used: set[str] = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        kernels = [(item, f) for item, f in items if item.category not in ("parameters", "compulsory")]
        count = [f["elements"] * f["count"] for item, f in items if item.category == "parameters"]
        compulsory: dict[str, Expr] = {}
        for item, formulas in items:
            for name, formula in formulas.items() if item.category == "compulsory" else ():
                if name != "count":
                    compulsory[name] = simplify(compulsory.get(name, ZERO) + formula * formulas["count"])
        missing = sorted(n for n in used if n not in paths and n not in BYTES)
        if missing:
            raise TraceFailed(
                f"{self.class_path}: its cost depends on {', '.join(missing)}, which cannot be told from its inputs."
            )
        return Derived(
            self.class_path,
            kernels,
            {n: paths[n] for n in sorted(used, key=_variable_order) if n not in BYTES},
            self.numbers(),
            [c for c in self.assumptions(kernels) if free_variables(c) <= used],
            [self.symbolic[0].calls_of(self.class_path)[0]],
            shapes,
            simplify(sum(count, start=ZERO)),
            compulsory,
        )

    def _in_own_variables(
        self,
        items: list[tuple[Item, dict[str, Expr]]],
        paths: dict[str, str],
        shapes: dict[str, list[Size]],
    ) -> tuple[list[tuple[Item, dict[str, Expr]]], dict[str, str], dict[str, list[Size]]]:
        """A module that sees tokens flat, [batch_size * seq_len, ...], has batch_size for all of them, seq_len 1."""
        tokens = simplify(var("batch_size") * var("seq_len"))
        used = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        flat = [(n, d) for n, shape in shapes.items() for d, size in enumerate(shape) if size == tokens]
        if not flat or not used & {"batch_size", "seq_len"} - set(paths):
            return items, paths, shapes
        name, dim = flat[0]

        def flatten(formula: Any) -> Any:
            if not isinstance(formula, Expr):
                return formula
            return simplify(substitute(formula, {"seq_len": num(1)}))

        points = [p for _, p, _ in self.samples]
        for _, formulas in items:
            for field_name, formula in formulas.items():
                own = flatten(formula)
                for point in points:
                    at = Point({**point.values, "batch_size": point.values["batch_size"] * point.values["seq_len"]})
                    if self.fitter.value(own, at) != self.fitter.value(formula, point):
                        raise TraceFailed(f"{self.class_path}: {field_name} depends on more than the number of tokens.")
                formulas[field_name] = own
        paths = {**{n: p for n, p in paths.items() if n != "seq_len"}, "batch_size": f"inputs.{name}.shape[{dim}]"}
        return items, paths, {n: [flatten(s) for s in shape] for n, shape in shapes.items()}

    def _paths(self, shapes: dict[str, list[Size]]) -> dict[str, str]:
        """Where the value of each variable comes from, for a module of this class wherever it is called."""
        run = self.symbolic[0]
        found = dict(self.own_paths)
        found.update(self.variables.paths)
        found.update(self.variables.switches)
        for name, shape in shapes.items():
            for dim, size in enumerate(shape):
                for runtime in RUNTIME:
                    if size == var(runtime):
                        found.setdefault(runtime, f"inputs.{name}.shape[{dim}]")
        if "past_key_values" in forward_arguments(run.calls_of(self.class_path)[0]):
            found["cache_len"] = CACHE_PATH
        return found

    def numbers(self) -> dict[str, int]:
        run = self.symbolic[0]
        return self.variables.numbers(run, run.calls_of(self.class_path)[0])

    def assumptions(self, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Divisibility of the sizes that the formulas went through, and decisions of the source seen one way only."""
        found: dict[Condition, None] = {}
        for run, observation in self.formulas:
            if run.sizes is None:
                continue
            sizes = {s for item in observation.items.values() for s in _sizes_of(item) if isinstance(s, Expr)}
            for size in sorted(sizes, key=to_text):
                found.update(dict.fromkeys(sorted(run.sizes.relied.get(size, ()), key=to_text)))
        lines = {(p.file, p.line) for item, _ in items for p in item.key.chain}
        for run in self.symbolic:
            for asked in run.conditions:
                condition = run.sizes.condition(asked.expression) if run.sizes else None
                if condition is None or (asked.file, asked.line) not in lines:
                    continue
                met = {self.fitter.holds(condition, p) for _, p, _ in self.samples}
                if len(met) == 1:
                    found[condition if asked.holds else negated(condition)] = None
        return list(found)

    def input_shapes(self) -> dict[str, list[Size]]:
        """Shapes of the tensors among forward()'s arguments, tuples of tensors included."""
        run = self.symbolic[0]
        found: dict[str, list[Size]] = {}
        for name, value in forward_arguments(run.calls_of(self.class_path)[0]).items():
            parts = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
            for index, tensor in parts:
                if isinstance(tensor, torch.Tensor):
                    found[name if index is None else f"{name}[{index}]"] = [run.size(s) for s in tensor.shape]
        return found


def _sizes_of(item: Item) -> list[Size]:
    """Every size that an item's numbers were made from."""
    if item.operator is None:
        return list(item.fields.values())
    return [s for t in (*item.operator.inputs, *item.operator.outputs) for s in t.shape]


def _observe(observer: Observer, run: Run, class_path: str) -> list[Observation]:
    return [observer.observe(call) for call in run.calls_of(class_path)]


def _content(observation: Observation) -> str:
    return str([(str(k[0].name), i.count, sorted(i.fields.items())) for k, i in observation.items.items()])


def _insert_after(
    found: dict[tuple[Key, int], Item], previous: tuple[Key, int] | None, key: tuple[Key, int], item: Item
) -> dict[tuple[Key, int], Item]:
    if previous is None or previous not in found:
        return {**found, key: item} if found else {key: item}
    result: dict[tuple[Key, int], Item] = {}
    for old, old_item in found.items():
        result[old] = old_item
        if old == previous:
            result[key] = item
    return result


def _condition_variables(condition: Condition) -> set[str]:
    return set(free_variables(condition))


def _structural(numbers: Mapping[str, int], most: int) -> list[Expr]:
    """Counts that a model's structure gives: of its layers, of those before or after some layer, of every n-th."""
    layers = var("num_hidden_layers")
    small = [n for n, v in numbers.items() if n not in RUNTIME and n != "num_hidden_layers" and 0 < v <= most]
    found: list[Expr] = [layers]
    found += [var(n) for n in small]
    found += [minimum(layers, var(n)) for n in small]
    found += [simplify(layers - var(n)) for n in small]
    found += [maximum(simplify(layers - var(n)), num(0)) for n in small]
    found += [layers // 2, (layers + 1) // 2]
    found += [layers // var(n) for n in small]
    found += [simplify(layers - layers // var(n)) for n in small]
    found += [simplify(layers - k) for k in (1, 2, 3)]
    return found


def _variable_order(name: str) -> tuple[int, str]:
    return (RUNTIME.index(name) if name in RUNTIME else len(RUNTIME), name)

