"""Deriving one formula for each cost of each line, by running the module.

    run symbolically at one point                      -> formulas that hold on that path
    run with numbers at points on other paths          -> samples
    where a sample contradicts the formulas            -> run symbolically there too, and split (lmp.trace.fit)

What comes out holds at every sample; the judge then holds it against points that were not used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from lmp.errors import TraceFailed
from lmp.formula import Condition, Expr, free_variables, gt, var
from lmp.trace.observe import CallSite, Interface, Item, Observation, Observer, call_site, differs, input_tensors
from lmp.trace.runs import Run, Runs
from lmp.trace.table import Derived, Table
from lmp.trace.variables import ClassVariables
from lmp.workload.base import RUNTIME, Workload

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
        self.written_out: set[CallSite] = set()
        self._observed: dict[int, list[Observation]] = {}

    def derive(self, class_path: str) -> Derived:
        """Formulas of one class that this workload runs. The classes that it calls must be derived before.

        Raises TraceFailed when no formula explains what the runs show.
        """
        self._observed = {}
        variables = ClassVariables(class_path, self.runs.symbolic[0], self.runs.lengths)

        def observe(run: Run) -> list[Observation]:
            if id(run) not in self._observed:
                observer = self._observer(run)
                self._observed[id(run)] = [observer.observe(call) for call in run.calls_of(class_path)]
            return self._observed[id(run)]

        def explained(all_layers: bool) -> Derived:
            for _ in range(MAX_SYMBOLIC_RUNS):
                if self._find_written_out(class_path):
                    self._observed = {}
                table = Table(class_path, self.runs, observe, variables, all_layers)
                contradiction = table.contradiction()
                if contradiction is None:
                    break
                # Formulas are looked for in few layers: how many there are is counted.
                few = {name: self.runs.base[name] for name in (*self.workload.in_order, *self.workload.full_layers)}
                numbers = {**contradiction.numbers, **few}
                if any(r.numbers == numbers for r in self.runs.symbolic):
                    if table.give_up_compulsory():
                        break
                    raise TraceFailed(table.explain())
                self.runs.add_symbolic(numbers, class_path)
            return table.derived(self._degenerate)

        try:
            derived = explained(all_layers=False)
        except TraceFailed:
            if not (self.workload.stacks and self.runs.holds_layers(class_path)):
                raise
            self.runs.explore_all_layers()
            derived = explained(all_layers=True)
        self.interfaces[class_path] = derived.parameters
        return derived

    def compulsory_holds(self, derived: Derived, points: Iterable[Mapping[str, int]]) -> bool:
        """Whether compulsory traffic is what the runs at these points show, where they can run."""
        runs = [run for point in points if (run := self.runs.at(dict(point))) is not None]
        return all(
            derived.compulsory_holds(run, [self._observer(run).observe(c) for c in run.calls_of(derived.class_path)])
            for run in runs
        )

    def _degenerate(self, table: Table, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Sizes of the config that must not be 1 for the formulas to hold: they would broadcast, or need no copy."""
        used = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        used |= table.sizes_used(items)
        found = []
        for name in sorted(used & set(self.runs.base) - set(self.workload.flags) - set(RUNTIME)):
            own = name in table.variables.switches or name in table.variables.paths
            if (
                self.runs.base[name] <= 1
                or name in self.runs.lengths
                or name in self.runs.compared
                or name in self.workload.full_layers
                or own
            ):
                continue
            for phase in ({}, {"seq_len": 1}, {"cache_len": 0}, {"batch_size": 1}):
                run = self._run_with_one(name, phase, used)
                if run is None:
                    break
                observer = self._observer(run)
                observed = [observer.observe(call) for call in run.calls_of(table.class_path)]
                kernels = [(item, f) for item, f in items if item.category != "compulsory"]
                if not table.holds_at(kernels, run, observed):
                    found.append(gt(var(name), 1))
                    break
        return found

    def _run_with_one(self, name: str, phase: Mapping[str, int], used: Set[str]) -> Run | None:
        """The run in which a size is 1; together with one that must not be larger, where it does not run alone."""
        point = {**self.runs.start_point(), **phase, name: 1}
        smaller = [n for n, v in self.runs.base.items() if n in used and 1 < v <= self.runs.base[name] and n != name]
        tries = [point, *({**point, other: 1} for other in smaller if other not in self.workload.full_layers)]
        return next((run for p in tries if (run := self.runs.at(p)) is not None), None)

    def _find_written_out(self, class_path: str) -> bool:
        """Calls of modules that are analysed by themselves, with inputs for which those analyses do not hold."""
        before = len(self.written_out)
        for run in (*self.runs.symbolic, *self.runs.concrete):
            for call in run.recording.calls:
                site = call_site(call)
                if site is None or call.class_path not in self.alone or site in self.written_out:
                    continue
                if call.parent is None or call.parent.class_path != class_path:
                    continue
                more = {name for name, _ in input_tensors(call)} - self.alone[call.class_path]
                if more or differs(call, run.recording):
                    self.written_out.add(site)
        return len(self.written_out) > before

    def _observer(self, run: Run) -> Observer:
        return Observer(run.recording, run.values, run.size, self.interfaces, self.ranks, self.written_out)
