"""Derives one formula for each cost of each line by running the module.

    symbolic run at one point                       -> formulas that hold on that path.
    concrete runs at points on other paths          -> samples.
    counterexample: a sample contradicts a formula  -> symbolic run there too, then split (lmp.trace.fit).

The formulas hold at every sample. The judge checks them at held-out points, which are not used here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from lmp.errors import Indistinct, TraceFailed
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
from lmp.records import ModuleAnalysis
from lmp.trace.called import CalledCosts, costs_of
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
from lmp.trace.operand_formulas import OperandFitter
from lmp.trace.runs import ALL_SIZES, Run, Runs
from lmp.trace.strides import strides_matter
from lmp.trace.table import Derived, Table
from lmp.trace.variables import ClassVariables
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME, Workload
from lmp.workload.calls import Call
from lmp.workload.paths import Unresolvable, steps_of

MAX_SYMBOLIC_RUNS = 12

MAX_COMPULSORY_RUNS = 3
"""Most of them for compulsory traffic alone: if they do not explain it, the analysis states none."""


LEADING = ["{batch_size}", "{seq_len}"]

OTHERWISE = "it is called otherwise than its analysis is for"

COSTS_OTHERWISE = "at this call it costs otherwise than its analysis says: its inputs lie otherwise in memory"


@dataclasses.dataclass(frozen=True)
class Callee:
    """A class whose calls may be references: the data to bind one, and the calls that its analysis covers.

    The defaults describe a class that this workload itself runs: its analysis applies to each of its calls.
    """

    parameters: Interface
    """Variable of its analysis -> path that the value comes from."""
    alone: bool = False
    """True if the analysis was made standalone, on its own inputs, and not in this workload."""
    inputs: Set[str] = frozenset()
    """Names of the input tensors in that standalone analysis."""
    required_inputs: Set[str] = frozenset()
    """The ``inputs`` without a dimension of new tokens (encoder states) that every standalone call had."""
    shapes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Shapes of the inputs whose first two dimensions are batch and tokens."""
    takes_cache: bool = True
    """True if it was analysed with a KV cache."""
    assumptions: Sequence[str] = ()
    """Conditions of its analysis, in its variables."""
    applies: Callable[[Call], bool] | None = None
    """Predicate: false if a call must be inlined because the analysis does not apply. None: it always applies."""
    costs: CalledCosts | None = None
    """Its costs in numbers: a call that costs otherwise must be inlined. None: they are not compared."""

    @property
    def ranks(self) -> Mapping[str, int]:
        """Number of dimensions of each input in ``shapes``."""
        return {name: len(shape) for name, shape in self.shapes.items()}


def known_callee(
    analysis: ModuleAnalysis, applies: Callable[[Call], bool] | None = None, costs: CalledCosts | None = None
) -> Callee:
    """The Callee record of a standalone analysis."""
    paths, interface = analysis.parameters, analysis.interface
    switched = {path.removeprefix("inputs.") for path in paths.values()}
    cached = "cache_len" in paths
    without_tokens = {n for n, shape in interface.items() if not any("{seq_len}" in size for size in shape)}
    return Callee(
        paths,
        alone=True,
        inputs=interface.keys(),
        required_inputs=without_tokens - switched if "seq_len" in paths else frozenset(),
        shapes={} if cached else {n: shape for n, shape in interface.items() if shape[:2] == LEADING},
        takes_cache=cached,
        assumptions=analysis.assumptions,
        applies=applies,
        costs=costs,
    )


class Deriver:
    """Derives the formulas of one workload's classes, callees before callers."""

    def __init__(self, workload: Workload, source_root: str) -> None:
        self.workload = workload
        self.runs = Runs(workload, source_root)
        self.callees: dict[str, Callee] = {}
        """Class path -> Callee, for classes whose calls may be references."""
        self.inlined: dict[str, str] = {}
        """Class path -> reason, for classes without an analysis: their operators are inlined at the call."""
        self.inlined_sites: set[CallSite] = set()
        self.general = False
        """True if formulas must be in the config's sizes."""
        self._why: dict[CallSite | None, str] = {}
        """Inlined site -> reason, where it is a reason of the site and not of the class."""
        self._observed: dict[int, list[Observation]] = {}
        self._unresolved: dict[int, tuple[Call, bool]] = {}
        self._looked_at: set[tuple[Run, str, int, int]] = set()
        """Runs already searched for calls to inline, with the class and the numbers of inlined sites and classes."""

    def derive(self, class_path: str, only_specialised: bool = False) -> Derived:
        """Formulas of one class that this workload runs. The classes that it calls must be derived before.

        With ``only_specialised``, config values are numbers and only the sizes of the call are variables. This also
        happens where symbolic runs fail, or where no formula in the config's sizes explains the runs. Raises
        TraceFailed if no formula explains the runs.
        """
        only_specialised |= self.runs.specialisation != ALL_SIZES
        self._observed = {}
        seen = (*self.runs.symbolic, *self.runs.concrete)
        variables = ClassVariables(class_path, self.runs.symbolic[0], self.runs.lengths, seen)

        def observe(run: Run) -> list[Observation]:
            if id(run) not in self._observed:
                observer = self._observer(run)
                self._observed[id(run)] = [observer.observe(call) for call in run.calls_of(class_path)]
            return self._observed[id(run)]

        def explained(all_layers: bool = False, specialised: bool = False) -> Derived:
            for_compulsory = 0
            for _ in range(MAX_SYMBOLIC_RUNS):
                if self._inline_calls(class_path):
                    self._observed = {}
                if counts:
                    self._see_more_layers(class_path, observe, all_layers)
                table = Table(class_path, self.runs, observe, variables, all_layers, specialised)
                table.check_distinct()
                counterexample = table.counterexample()
                if counterexample is None:
                    break
                run, is_count, is_compulsory = counterexample
                for_compulsory += is_compulsory
                if for_compulsory > MAX_COMPULSORY_RUNS and table.give_up_compulsory():
                    break
                # Symbolic runs have few layers: the number of layers enters as a count.
                few = {name: self.runs.base[name] for name in self.workload.full_layers}
                tries = [{**run.numbers, **few}]
                # A later layer may get other arguments than the first one, so the full depth is tried too. For a count
                # this does not help: the number of layers is a plain number in every run.
                tries += [] if is_count else [run.numbers]
                # A formula of one number of pieces needs those of others.
                tries += self.runs.in_other_pieces(run)
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
            degenerate = self._degenerate if not specialised else lambda table, items: []
            found = table.derived(degenerate, OperandFitter(table).sizes)
            return dataclasses.replace(found, flow=table.flow(self._observer(self.runs.symbolic[0]).referred))

        counts = bool(self.workload.stacks) and self.runs.holds_layers(class_path)
        if counts:
            self.runs.explore_layers_in_phases()
        derived: Derived | None = None
        first: TraceFailed | None = None
        for all_layers, specialised in ((False, False), (True, False), (False, True), (True, True)):
            if (all_layers and not counts) or (only_specialised and not specialised):
                continue
            if specialised and (self.general or self.runs.most_specialised == ALL_SIZES):
                continue  # the sizes of a standalone module are synthetic: its formulas must hold for any sizes
            if all_layers and not specialised:
                self.runs.explore_all_layers()
            if specialised:
                self.runs.explore_sizes(all_layers)
            try:
                derived = explained(all_layers, specialised)
                break
            except Indistinct as error:
                raise first or error from None  # further runs cannot explain these calls
            except TraceFailed as error:
                first = first or error
        if derived is None:
            raise first or TraceFailed(f"{class_path}: it has sizes of its own, which its formulas must be in.")
        if self.runs.most_specialised == ALL_SIZES or self.workload.vary:
            assumptions = dict.fromkeys([*derived.assumptions, *self._inherited(derived)])
            derived = dataclasses.replace(derived, assumptions=list(assumptions))
        self.callees[class_path] = Callee(derived.parameters)
        return derived

    def _see_more_layers(self, class_path: str, observe: Callable[[Run], list[Observation]], all_layers: bool) -> None:
        """Explore other numbers of layers for operators that were seen with too few of them.

        Examples are a mask that is only made beyond a window, and an operator that only runs for one sequence. Seen
        with one number of layers, a count of 1 may mean once in all or once per layer.
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
        """True if the compulsory traffic is right in the runs at these points. Points that cannot run are skipped."""
        runs = [run for point in points if (run := self.runs.at(dict(point))) is not None]
        return all(
            derived.compulsory_holds(run, [self._observer(run).compulsory(c) for c in run.calls_of(derived.class_path)])
            for run in runs
        )

    def _inherited(self, derived: Derived) -> Iterable[Condition]:
        """Assumptions of the called classes, in the variables of this class."""
        for item, formulas in derived.items:
            callee = self.callees.get(item.child.class_path) if item.child else None
            for condition in map(parse_condition, callee.assumptions if callee is not None else ()):
                if free_variables(condition) <= formulas.keys():
                    own = substitute(condition, {n: formulas[n] for n in free_variables(condition)})
                    if free_variables(own):
                        yield own

    def _degenerate(self, table: Table, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Conditions ``size > 1`` for config sizes that break the formulas at 1, which broadcasts or needs no copy."""
        used = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        used |= table.sizes_used(items)
        found: list[Condition] = []
        for name in sorted(used & set(self.runs.base) - set(self.workload.flags) - set(RUNTIME)):
            # Switches and kinds are skipped. A size in `paths` stays: instances with the config's value are checked.
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
        if self.workload.vary:
            found += self._degenerate_quotients(table, items)
        return found

    def _degenerate_quotients(self, table: Table, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Conditions ``whole > part`` for sizes that divide one another, where a quotient of 1 breaks the formulas.

        An example is the head dimension.
        """
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
        """True if the fitted formulas hold in every phase in which ``run_at`` returns a run."""
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
        """The run with a size of 1. Where that does not run, another size that must not be larger is 1 too."""
        point = {**self.runs.start_point(), **phase, name: 1}
        smaller = [n for n, v in self.runs.base.items() if n in used and 1 < v <= self.runs.base[name] and n != name]
        tries = [point, *({**point, other: 1} for other in smaller if other not in self.workload.full_layers)]
        return next((run for p in tries if (run := self.runs.at(p)) is not None), None)

    def inline(self, class_path: str, why: str) -> None:
        """Inline a class from now on: its operators are listed where it is called."""
        self.callees.pop(class_path, None)
        self.inlined[class_path] = why

    def inlined_in(self, class_path: str) -> dict[str, str]:
        """Class path -> reason, for classes inlined in this class directly or through other inlined classes."""
        found: dict[str, str] = {}
        for run in (*self.runs.symbolic, *self.runs.concrete):
            for call in run.recording.calls:
                if call_site(call) in self.inlined_sites and self._is_inlined_in(call, class_path):
                    name = call.class_path
                    site = call_site(call)
                    found.setdefault(name, self.inlined.get(name) or self._why.get(site, OTHERWISE))
        return found

    def _inline_calls(self, class_path: str) -> bool:
        """Find calls that must be inlined: the class has no analysis, or the analysis does not cover the inputs.

        Returns true if it found new ones.
        """
        before = len(self.inlined_sites)
        for run in (*self.runs.symbolic, *self.runs.concrete):
            looked = (run, class_path, len(self.inlined_sites), len(self.inlined))
            if looked in self._looked_at:
                continue
            self._looked_at.add(looked)
            for call in run.recording.calls:
                site = call_site(call)
                if site is None or site in self.inlined_sites or not self._is_inlined_in(call, class_path):
                    continue
                callee = self.callees.get(call.class_path)
                if call.class_path in self.inlined or (callee is not None and not self._applies(callee, call, run)):
                    self.inlined_sites.add(site)
                elif callee is not None and self._costs_otherwise(callee, call, run):
                    self.inlined_sites.add(site)
                    self._why[site] = COSTS_OTHERWISE
        return len(self.inlined_sites) > before

    def leave_out_further_classes(self, class_path: str) -> bool:
        """Drop the runs in which a class calls another one that has no analysis, as the first run does not call it.

        Returns true if there are any. Rows of a table lack the operators of such a class. A comparison that leads there
        has one result in the runs that are left, so it becomes an assumption.
        """
        known = self.callees.keys() | self.inlined.keys() | {class_path}

        def is_further(run: Run) -> bool:
            calls = (call for call in run.recording.calls if call.class_path not in known)
            return any(self._is_inlined_in(call, class_path) for call in calls)

        left = [run for run in self.runs.symbolic[1:] if not is_further(run)]
        concrete = [run for run in self.runs.concrete if not is_further(run)]
        found = len(left) + 1 < len(self.runs.symbolic) or len(concrete) < len(self.runs.concrete)
        self.runs.symbolic, self.runs.concrete = [self.runs.symbolic[0], *left], concrete
        return found

    def fits(self, callee: Callee, call: Call, run: Run) -> bool:
        """True if a call can be a reference: the analysis applies to it, and gives the costs of what ran."""
        return self._applies(callee, call, run) and not self._costs_otherwise(callee, call, run)

    def _costs_otherwise(self, callee: Callee, call: Call, run: Run) -> bool:
        """True if the analysis gives other costs than what ran at this call, for example because of an input's strides.

        Where the assumptions of the analysis do not hold, there is nothing to compare.
        """
        if callee.costs is None or run.sizes is not None:
            return False
        values = {name: int(value) for name, value in self._observer(run).bindings(call).items()}
        claimed = callee.costs.at(values)
        return claimed is not None and claimed != costs_of(call, run.recording)

    def _applies(self, callee: Callee, call: Call, run: Run) -> bool:
        """True if the analysis of a called class applies to this call."""
        if self._unbound(call, run):
            return False
        if not callee.alone:
            return True
        given = {name for name, _ in input_tensors(call)}
        return (
            given <= callee.inputs
            and callee.required_inputs <= given
            and (callee.takes_cache or cache_argument(call) is None)
            and not (run.sizes is None and self._misfits(callee, call))
            and not (run is self.runs.symbolic[0] and self._is_outside(callee, call, run))
            and (callee.applies is None or callee.applies(call))
            and not differs(call, run.recording)
            and not (run.sizes is None and strides_matter(call, run.recording, self.workload.dtype))
        )

    def _misfits(self, callee: Callee, call: Call) -> bool:
        """True if the width of an input is not the constructor's argument: a norm without weights takes any width.

        Called for concrete runs only: there, equal sizes compare equal whatever their expressions.
        """
        paths, arguments = callee.parameters, constructor_arguments(call.module)
        given = dict(input_tensors(call))
        for name, shape in callee.shapes.items():
            tensor = given.get(name)
            # Leading dimensions are folded, so a call may have any number of them.
            for index, text in enumerate(reversed(shape[2:])):
                origin, _, argument = paths.get(text.strip("{}"), "").partition(".")
                told = arguments.get(argument) if origin == "init" else None
                fits = tensor is None or index >= tensor.dim() or tensor.shape[-1 - index] == told
                if type(told) is int and not fits:
                    return True
        return False

    def _is_outside(self, callee: Callee, call: Call, run: Run) -> bool:
        """True if the config's sizes violate an assumption of the analysis, such as a pool to one position."""
        values = self._observer(run).bindings(call) if callee.assumptions else {}
        conditions = map(parse_condition, callee.assumptions)
        own = [c for c in conditions if free_variables(c) <= values.keys() - set(RUNTIME)]
        needed = {n for c in own for n in free_variables(c)}
        numbers = {
            n: evaluate(v, run.numbers) if isinstance(v, Expr) else int(v) for n, v in values.items() if n in needed
        }
        return not all(evaluate_condition(c, numbers) for c in own)

    def _unbound(self, call: Call, run: Run) -> bool:
        """True if a variable of the callee has no single value at this call: a tuple, or a missing dimension.

        This includes a constructor argument that was not recorded (a copied module), even if an attribute has its name.
        It also includes an argument that no longer matches the module, such as a bias that was removed later.
        """
        if id(call) not in self._unresolved:
            given, paths = constructor_arguments(call.module), self.callees[call.class_path].parameters.values()
            named = [p.removeprefix("init.") for p in paths if p.startswith("init.")]
            unbound = any(given.get(n) is True and getattr(call.module, n, n) is None for n in named)
            try:
                self._observer(run).bindings(call)
                unbound |= any(steps_of(n)[0] not in given for n in named)
            except Unresolvable:
                unbound = True
            # The call is stored too, so that its id cannot be reused.
            self._unresolved[id(call)] = (call, unbound)
        return self._unresolved[id(call)][1]

    def _is_inlined_in(self, call: Call, class_path: str) -> bool:
        """True if the class makes the call itself, or a module inlined in the class makes it."""
        parent = call.parent
        while parent is not None and parent.class_path != class_path and call_site(parent) in self.inlined_sites:
            parent = parent.parent
        return parent is not None and parent.class_path == class_path

    def _observer(self, run: Run) -> Observer:
        parameters = {name: callee.parameters for name, callee in self.callees.items()}
        ranks = {name: callee.ranks for name, callee in self.callees.items() if callee.shapes}
        return Observer(run.recording, run.values, run.size, parameters, ranks, self.inlined_sites)


def _counts(observed: Iterable[Observation]) -> Counter[Key]:
    """Number of executions of each operator and module call, summed over the calls of a class."""
    found: Counter[Key] = Counter()
    for observation in observed:
        for (key, _), item in observation.items.items():
            found[key] += item.count
    return found


def _lacks(runs: Mapping[Run, int], name: str, full: Mapping[str, int]) -> bool:
    """True if the runs have too few numbers of layers to derive a count.

    With ``full``, a run at full depth is needed. Else two numbers of layers suffice if the counts are equal, and three
    if not: any two points lie on a line.
    """
    if full:
        return not any(all(run.numbers[n] == layers for n, layers in full.items()) for run in runs)
    seen = {run.numbers[name] for run in runs}
    return len(seen) < (2 if len(set(runs.values())) == 1 else 3)
