"""Deriving one formula for each cost of each line, by running the module.

    run symbolically at one point                      -> formulas that hold on that path
    run with numbers at points on other paths          -> samples
    where a sample contradicts the formulas            -> run symbolically there too, and split (lmp.trace.fit)

What comes out holds at every sample; the judge then holds it against points that were not used here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from lmp.errors import TraceFailed
from lmp.formula import (
    Compare,
    Condition,
    Expr,
    Mod,
    Num,
    Var,
    evaluate,
    evaluate_condition,
    free_variables,
    gt,
    parse_condition,
    substitute,
    var,
)
from lmp.trace.observe import (
    CallSite,
    Interface,
    Item,
    Key,
    Observation,
    Observer,
    cache_argument,
    call_site,
    differs,
    input_tensors,
)
from lmp.trace.runs import ALL_SIZES, Run, Runs
from lmp.trace.table import Derived, Table
from lmp.trace.variables import ClassVariables
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME, Workload
from lmp.workload.calls import Call

MAX_SYMBOLIC_RUNS = 12


class Deriver:
    """Derives the classes of one workload. ``interfaces`` are the parameters of classes that may be referred to."""

    def __init__(self, workload: Workload, source_root: str) -> None:
        self.workload = workload
        self.runs = Runs(workload, source_root)
        self.interfaces: dict[str, Interface] = {}
        self.ranks: dict[str, Mapping[str, int]] = {}
        self.alone: dict[str, Set[str]] = {}
        """Classes whose analysis was made on inputs of their own, not in this workload -> the tensors they took."""
        self.others: dict[str, Set[str]] = {}
        """Of those, tensors that are not about the new tokens (an encoder's states) and that every call was given."""
        self.shapes: dict[str, Mapping[str, Sequence[str]]] = {}
        """Of those, the shapes of the inputs that they took, where batch and tokens come first."""
        self.without_cache: set[str] = set()
        """Of those, classes whose analysis was made without a cache."""
        self.assumed: dict[str, Sequence[str]] = {}
        """Of those, what their analyses assume."""
        self.unlike: dict[str, Callable[[Call], bool]] = {}
        """Of those, what tells a call for which the analysis does not hold: of an instance of another kind."""
        self.nameless: set[str] = set()
        """Classes of which there is no analysis: what they do is written out where they are called."""
        self.written_out: set[CallSite] = set()
        self._observed: dict[int, list[Observation]] = {}
        self._unresolved: dict[int, tuple[Call, bool]] = {}
        self._looked_at: set[tuple[Run, str, int, int]] = set()
        """Runs that were searched for calls to be written out, and what was known then."""

    def derive(self, class_path: str, numbers_alone: bool = False) -> Derived:
        """Formulas of one class that this workload runs. The classes that it calls must be derived before.

        With ``numbers_alone``, in the sizes of the call alone: those of the config stand as numbers. That is so anyway
        where the module cannot be run with symbolic ones, or no formula explains what it shows with them.
        Raises TraceFailed when no formula explains what the runs show.
        """
        numbers_alone |= self.runs.rung != ALL_SIZES
        self._observed = {}
        seen = (*self.runs.symbolic, *self.runs.concrete)
        variables = ClassVariables(class_path, self.runs.symbolic[0], self.runs.lengths, seen)

        def observe(run: Run) -> list[Observation]:
            if id(run) not in self._observed:
                observer = self._observer(run)
                self._observed[id(run)] = [observer.observe(call) for call in run.calls_of(class_path)]
            return self._observed[id(run)]

        def explained(all_layers: bool = False, measured: bool = False) -> Derived:
            for _ in range(MAX_SYMBOLIC_RUNS):
                if self._find_written_out(class_path):
                    self._observed = {}
                if counts:
                    self._see_more_layers(class_path, observe, all_layers)
                table = Table(class_path, self.runs, observe, variables, all_layers, measured)
                contradiction = table.contradiction()
                if contradiction is None:
                    break
                run, is_count = contradiction
                # Formulas are looked for in few layers: how many there are is counted.
                few = {name: self.runs.base[name] for name in self.workload.full_layers}
                tries = [{**run.numbers, **few}]
                # A later layer may be called with something else than the first one. How many of them there are is a
                # number in every run.
                tries += [] if is_count else [run.numbers]
                known = [r.numbers for r in self.runs.symbolic]
                numbers = next((n for n in tries if n not in known), None)
                if numbers is None:
                    if table.give_up_compulsory():
                        break
                    raise table.refusal()
                try:
                    self.runs.add_symbolic(numbers, class_path)
                except TraceFailed:
                    if table.give_up_compulsory():
                        break
                    raise
            else:
                table.give_up_compulsory()
            return table.derived(self._degenerate if not measured else lambda table, items: [])

        counts = bool(self.workload.stacks) and self.runs.holds_layers(class_path)
        if counts:
            self.runs.explore_layers_in_phases()
        derived: Derived | None = None
        first: TraceFailed | None = None
        for all_layers, measured in ((False, False), (True, False), (False, True), (True, True)):
            if (all_layers and not counts) or (numbers_alone and not measured):
                continue
            if measured and self.runs.lowest == ALL_SIZES:
                continue  # a module alone is for any sizes: those that it ran at are lmp's own inventions
            if all_layers and not measured:
                self.runs.explore_all_layers()
            if measured:
                self.runs.explore_sizes(all_layers)
            try:
                derived = explained(all_layers, measured)
                break
            except TraceFailed as error:
                first = first or error
        if derived is None:
            raise first or TraceFailed(f"{class_path}: it has sizes of its own, which its formulas must be in.")
        if self.runs.lowest == ALL_SIZES or getattr(self.workload, "vary", False):
            assumptions = dict.fromkeys([*derived.assumptions, *self._inherited(derived)])
            derived = dataclasses.replace(derived, assumptions=list(assumptions))
        self.interfaces[class_path] = derived.parameters
        return derived

    def _see_more_layers(self, class_path: str, observe: Callable[[Run], list[Observation]], all_layers: bool) -> None:
        """Run with other numbers of layers where something runs that was seen with too few of them.

        A mask that is made beyond a window only, or what runs for one sequence only: seen with one number of layers,
        it is run once, and nothing tells that from once in each of them.
        """
        full = self.workload.full_layers
        for name in full:
            looked_at: set[Run] = set()
            while True:
                met: dict[Key, dict[Run, int]] = {}
                for run in self.runs.shown(class_path):
                    for key, count in _counts(observe(run)).items():
                        met.setdefault(key, {})[run] = count
                lacking = [runs for runs in met.values() if _lacks(runs, name, full if all_layers else {})]
                shown = Counter(run for runs in lacking for run in runs if run not in looked_at)
                if not shown:
                    break
                run = shown.most_common(1)[0][0]
                if not self.runs.explore_other_layers(run, name, all_layers):
                    looked_at.add(run)

    def compulsory_holds(self, derived: Derived, points: Iterable[Mapping[str, int]]) -> bool:
        """Whether compulsory traffic is what the runs at these points show, where they can run."""
        runs = [run for point in points if (run := self.runs.at(dict(point))) is not None]
        return all(
            derived.compulsory_holds(run, [self._observer(run).observe(c) for c in run.calls_of(derived.class_path)])
            for run in runs
        )

    def _inherited(self, derived: Derived) -> Iterable[Condition]:
        """What the classes that it calls assume of its own sizes: it is for any of them."""
        for item, formulas in derived.items:
            for condition in map(parse_condition, self.assumed.get(item.child.class_path, ()) if item.child else ()):
                if free_variables(condition) <= formulas.keys():
                    own = substitute(condition, {n: formulas[n] for n in free_variables(condition)})
                    if free_variables(own):
                        yield own

    def _degenerate(self, table: Table, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Sizes of the config that must not be 1 for the formulas to hold: they would broadcast, or need no copy."""
        used = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        used |= table.sizes_used(items)
        found: list[Condition] = []
        for name in sorted(used & set(self.runs.base) - set(self.workload.flags) - set(RUNTIME)):
            # Of a size that instances have each their own of, those that have the config's are looked at.
            own = name in table.variables.switches or name in table.variables.kinds
            if (
                self.runs.base[name] <= 1
                or name in self.runs.lengths
                or name in self.runs.compared
                or name in self.workload.full_layers
                or own
            ):
                continue
            with_one = functools.partial(self._run_with_one, name, used)
            if not self._holds_with_phases(table, items, with_one):
                found.append(gt(var(name), 1))
        if getattr(self.workload, "vary", False):
            found += self._degenerate_quotients(table, items)
        return found

    def _degenerate_quotients(self, table: Table, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Of sizes that are divided by one another, those whose quotient must not be 1 either, as a head's size."""
        found: list[Condition] = []
        kernels = [(item, f) for item, f in items if item.category not in ("parameters", "compulsory")]
        for condition in table.assumptions(kernels):
            match condition:
                case Compare("==", Mod(Var(whole), Var(part)), Num(0)) if {whole, part} <= set(self.runs.base):
                    equal = functools.partial(self._run_with, {part: self.runs.base[whole]})
                    if not self._holds_with_phases(table, items, equal):
                        found.append(gt(var(whole), var(part)))
        return found

    def _holds_with_phases(
        self,
        table: Table,
        items: list[tuple[Item, dict[str, Expr]]],
        run_at: Callable[[Mapping[str, int]], Run | None],
    ) -> bool:
        """Whether fitted formulas hold in every phase in which there is a run."""
        kernels = [(item, f) for item, f in items if item.category != "compulsory"]
        one = {"seq_len": self.runs.tokens(1)}
        for phase in ({}, one, {"cache_len": 0}, {"batch_size": 1}, {"batch_size": 1, **one}):
            run = run_at(phase)
            if run is None:
                continue
            observer = self._observer(run)
            observed = [observer.observe(call) for call in run.calls_of(table.class_path)]
            if not table.holds_at(kernels, run, observed):
                return False
        return True

    def _run_with(self, values: Mapping[str, int], phase: Mapping[str, int]) -> Run | None:
        return self.runs.at({**self.runs.start_point(), **phase, **values})

    def _run_with_one(self, name: str, used: Set[str], phase: Mapping[str, int]) -> Run | None:
        """The run in which a size is 1; together with one that must not be larger, where it does not run alone."""
        point = {**self.runs.start_point(), **phase, name: 1}
        smaller = [n for n, v in self.runs.base.items() if n in used and 1 < v <= self.runs.base[name] and n != name]
        tries = [point, *({**point, other: 1} for other in smaller if other not in self.workload.full_layers)]
        return next((run for p in tries if (run := self.runs.at(p)) is not None), None)

    def _find_written_out(self, class_path: str) -> bool:
        """Calls of modules that are analysed by themselves, with inputs for which those analyses do not hold."""
        before = len(self.written_out)
        for run in (*self.runs.symbolic, *self.runs.concrete):
            looked = (run, class_path, len(self.written_out), len(self.nameless))
            if looked in self._looked_at:
                continue
            self._looked_at.add(looked)
            for call in run.recording.calls:
                site = call_site(call)
                if site is None or site in self.written_out or not self._written_in(call, class_path):
                    continue
                if call.class_path in self.nameless:
                    self.written_out.add(site)
                    continue
                if call.class_path in self.interfaces and self._unbound(call, run):
                    self.written_out.add(site)
                    continue
                if call.class_path not in self.alone:
                    continue
                given = {name for name, _ in input_tensors(call)}
                more = given - self.alone[call.class_path]
                fewer = self.others.get(call.class_path, frozenset()) - given
                unlike = self.unlike.get(call.class_path)
                misfit = run.sizes is None and self._misfits(call)
                outside = run is self.runs.symbolic[0] and self._is_outside(call, run)
                cached = call.class_path in self.without_cache and cache_argument(call) is not None
                other = cached or misfit or outside or (unlike is not None and unlike(call))
                if more or fewer or other or differs(call, run.recording):
                    self.written_out.add(site)
        return len(self.written_out) > before

    def _misfits(self, call: Call) -> bool:
        """Whether an input is not as wide as the constructor was told: a norm without weights takes any width.

        Asked of runs with numbers, where equal sizes are equal however they are written.
        """
        paths, arguments = self.interfaces[call.class_path], constructor_arguments(call.module)
        given = dict(input_tensors(call))
        for name, shape in self.shapes.get(call.class_path, {}).items():
            tensor = given.get(name)
            # Leading dimensions are folded: a call may have any number of them.
            for index, text in enumerate(reversed(shape[2:])):
                origin, _, argument = paths.get(text.strip("{}"), "").partition(".")
                told = arguments.get(argument) if origin == "init" else None
                fits = tensor is None or index >= tensor.dim() or tensor.shape[-1 - index] == told
                if type(told) is int and not fits:
                    return True
        return False

    def _is_outside(self, call: Call, run: Run) -> bool:
        """Whether the config's own sizes are some for which the analysis does not hold: a pool to one place."""
        values = self._observer(run).bindings(call) if self.assumed.get(call.class_path) else {}
        conditions = map(parse_condition, self.assumed.get(call.class_path, ()))
        own = [c for c in conditions if free_variables(c) <= values.keys() - set(RUNTIME)]
        needed = {n for c in own for n in free_variables(c)}
        numbers = {
            n: evaluate(v, run.numbers) if isinstance(v, Expr) else int(v) for n, v in values.items() if n in needed
        }
        return not all(evaluate_condition(c, numbers) for c in own)

    def _unbound(self, call: Call, run: Run) -> bool:
        """Whether a variable has no value here: an argument that nobody saw, one that is no one number (a tuple), or a
        dimension that is not there.

        Or another value than the module has: a bias that it was constructed with, and that was taken away again.
        """
        if id(call) not in self._unresolved:
            given, paths = constructor_arguments(call.module), self.interfaces[call.class_path].values()
            named = (p.removeprefix("init.") for p in paths if p.startswith("init."))
            unbound = any(given.get(n) is True and getattr(call.module, n, n) is None for n in named)
            try:
                self._observer(run).bindings(call)
            except LookupError:
                unbound = True
            # With the call, so that its id is given to no other one meanwhile.
            self._unresolved[id(call)] = (call, unbound)
        return self._unresolved[id(call)][1]

    def _written_in(self, call: Call, class_path: str) -> bool:
        """Whether a call is made by the class, or inside of calls that are written out in it."""
        parent = call.parent
        while parent is not None and parent.class_path != class_path and call_site(parent) in self.written_out:
            parent = parent.parent
        return parent is not None and parent.class_path == class_path

    def _observer(self, run: Run) -> Observer:
        return Observer(run.recording, run.values, run.size, self.interfaces, self.ranks, self.written_out)


def _counts(observed: Iterable[Observation]) -> Counter[Key]:
    """How often each operator, and each call of a module, is run in calls of a class."""
    found: Counter[Key] = Counter()
    for observation in observed:
        for (key, _), item in observation.items.items():
            found[key] += item.count
    return found


def _lacks(runs: Mapping[Run, int], name: str, full: Mapping[str, int]) -> bool:
    """Whether a number of layers is missing to tell how often something is run: the ``full`` one where that is asked
    for, else two; three where it is not run equally often with both, as there is a line through any two.
    """
    if full:
        return not any(all(run.numbers[n] == layers for n, layers in full.items()) for run in runs)
    seen = {run.numbers[name] for run in runs}
    return len(seen) < (2 if len(set(runs.values())) == 1 else 3)
