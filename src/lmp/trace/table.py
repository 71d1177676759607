"""Collects what the runs show of one class, and finds the formulas that explain it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lmp.errors import Indistinct, TraceFailed
from lmp.formula import (
    Compare,
    Condition,
    Expr,
    Mod,
    Num,
    compare,
    eq,
    evaluate,
    free_variables,
    ge,
    gt,
    le,
    minimum,
    ne,
    num,
    simplify,
    simplify_condition,
    substitute,
    to_text,
    var,
    walk,
)
from lmp.trace.called import BYTES
from lmp.trace.counts import in_pattern, stacked, structural
from lmp.trace.dataflow import Flow, ItemKey
from lmp.trace.fit import Fitter, Point, Sample, negated
from lmp.trace.interpolate import polynomial
from lmp.trace.observe import CACHED, Item, Key, Observation, cache_argument, input_tensors, sizes_given
from lmp.trace.operands import OperandSizes
from lmp.trace.pieces import Pieces
from lmp.trace.rules import Size
from lmp.trace.runs import Run, Runs
from lmp.trace.variables import ClassVariables, renamed
from lmp.workload.base import RUNTIME, fewest_layers
from lmp.workload.calls import Call

ZERO = num(0)
LIKELY = {"batch_size": (1, 2, 7), "seq_len": (1, 2, 50, 64, 65, 300, 5000), "cache_len": (0, 1, 64, 65, 700, 5000)}
"""Sizes of calls at which no cost may be below 0."""
MORE_OPERATORS = 1.25
"""Times as many operators as another run that a run may have whose formula is taken first: loops take long."""
MOST_KINDS = 4
"""Most values of an attribute that become conditions, if the instances of a class differ in it."""


@dataclass
class Derived:
    """Formulas of one class: per kernel its quantities, and the properties of their variables."""

    class_path: str
    items: list[tuple[Item, dict[str, Expr]]]
    parameters: dict[str, str]
    numbers: dict[str, int]
    assumptions: list[Condition]
    calls: list[Call]
    interface: dict[str, list[Size]] = field(default_factory=dict)
    parameters_count: Expr = ZERO
    compulsory: dict[str, Expr] = field(default_factory=dict)
    pinned: dict[str, int] = field(default_factory=dict)
    """Config sizes and numbers of layers -> values for which the formulas hold."""
    flow: Flow = field(default_factory=Flow)
    keys: dict[int, ItemKey] = field(default_factory=dict)
    """Id of an item -> its key in ``flow``."""
    operands: dict[int, OperandSizes] = field(default_factory=dict)
    """Id of an item -> the sizes of its operands. Items whose runs differ in more than sizes have no entry."""
    compulsory_holds: Callable[[Run, list[Observation]], bool] = field(default=lambda run, seen: True)
    """Predicate: true if the compulsory traffic is right in a run that was not used to derive it."""


class Counterexample(NamedTuple):
    """A run with a sample that no formula explains, and what the sample is of."""

    run: Run
    is_count: bool
    is_compulsory: bool


class Table:
    """All observations of one class: rows are keys, columns are points. Symbolic runs give candidates per cell."""

    def __init__(
        self,
        class_path: str,
        runs: Runs,
        observe: Callable[[Run], list[Observation]],
        variables: ClassVariables,
        all_layers: bool = False,
        specialised: bool = False,
    ) -> None:
        """``all_layers``: count layers at full depth only. ``specialised``: only at the config's own values."""
        self.class_path, self.runs, self.variables = class_path, runs, variables
        self.all_layers, self.specialised = all_layers, specialised
        self.fixed_sizes = self._config_sizes() if specialised else {}
        self.symbolic = list(runs.symbolic)
        formulas = [(r, variables.in_own_length(r, o)) for r in self.symbolic for o in observe(r)]
        shown = [r for r in runs.shown(class_path) if self._is_shown(r)]
        self._summed = _unrolled([o for _, o in formulas], [o for run in shown for o in observe(run)])
        self._summed |= self._of_pieces([*formulas, *((run, o) for run in shown for o in observe(run))])
        self.formulas = [(r, self._collapsed(o)) for r, o in formulas]
        self.samples = [s for run in shown for s in self.samples_of(run, observe(run))]
        self.rows = self._rows()
        self.has_compulsory = True
        flags = frozenset(
            name for name in variables.switches if all(p.values[name] in (0, 1) for _, p, _ in self.samples)
        )
        self.flags = flags | runs.workload.flags
        self.fitter = Fitter(self._conditions(), self.flags)
        self._columns: dict[tuple[tuple[Key, int], str], list[Sample]] = {}
        self._candidates: dict[tuple[tuple[Key, int], str], list[Expr]] = {}

    def _of_pieces(self, seen: list[tuple[Run, Observation]]) -> set[Key]:
        """Operators that a line runs on different shapes wherever it works on several pieces, and nowhere else."""
        unrolled = [p for p in self._pieces if p.unrolled]
        differing: set[Key] = set()
        otherwise: set[Key] = set()
        for run, observation in seen:
            several = any(full > (rest == 0) for full, rest in (p.count(run.numbers) for p in unrolled))
            keys = {key for key, index in observation.items if index > 0 and not key.composite}
            (differing if several else otherwise).update(keys)
        return differing - otherwise

    def _config_sizes(self) -> dict[str, Expr]:
        """Config sizes that are numbers in formulas from concrete runs."""
        runs = self.runs
        free = {*runs.lengths, *runs.workload.full_layers, *self.variables.paths, *self.variables.switches}
        return {n: num(v) for n, v in runs.base.items() if n not in free}

    def _is_shown(self, run: Run) -> bool:
        return all(run.numbers[n] == self.runs.base[n] for n in self.fixed_sizes)

    def samples_of(self, run: Run, observations: list[Observation]) -> list[tuple[Run, Point, Observation]]:
        """The calls of one run as samples. Alike layers with equal costs are one sample."""
        found: dict[Any, tuple[Run, Point, Observation]] = {}
        for observation in observations:
            numbers = {**self.variables.numbers(run, observation.call), **BYTES}
            seen = self._collapsed(observation)
            found.setdefault((tuple(sorted(numbers.items())), _content(seen)), (run, Point(numbers), seen))
        return list(found.values())

    def _collapsed(self, observation: Observation) -> Observation:
        """The observation with the operators of each unrolled loop merged into one item."""
        if not self._summed:
            return observation
        items: dict[tuple[Key, int], Item] = {}
        for (key, index), item in observation.items.items():
            if key not in self._summed:
                items[key, index] = item
                continue
            before = items.get((key, 0), dataclasses.replace(item, fields={}, count=1, times=0))
            fields = dict(before.fields)
            for name, value in item.fields.items():
                fields[name] = fields.get(name, 0) + value * item.count
            items[key, 0] = dataclasses.replace(before, fields=fields, times=before.times + item.count)
        orders = {o: (key, 0 if key in self._summed else i) for o, (key, i) in observation.orders.items()}
        return dataclasses.replace(observation, items=items, orders=orders)

    def flow(self, referred: Callable[[Call], bool]) -> Flow:
        """Def-use edges between the kernels: of the symbolic runs, of the most layers, and of further kernels."""
        found = Flow()
        for run, observation in self.formulas:
            found.add(run.recording, observation, referred)
        most = max(self.samples, key=lambda s: sum(item.count for item in s[2].items.values()), default=None)
        for run, _, observation in self.samples:
            is_most = most is not None and observation is most[2]
            if is_most or any(not key.composite and (key, i) not in found.inputs for key, i in observation.items):
                found.add(run.recording, observation, referred)
        return found

    def _rows(self) -> dict[tuple[Key, int], Item]:
        """Key -> item that describes it, for the keys of all runs, in the order of the first run."""
        found: dict[tuple[Key, int], Item] = {}
        for observation in (*(o for _, o in self.formulas), *(o for _, _, o in self.samples)):
            previous: tuple[Key, int] | None = None
            for key, item in observation.items.items():
                if key not in found:
                    found = _insert_after(found, previous, key, item)
                previous = key
        return found

    def _conditions(self) -> list[Condition]:
        """Conditions for splits: flags, phases, single tokens, windows, and comparisons in the source."""
        # The order is deterministic: the same class must give the same formulas in every process.
        flags = (*self.variables.switches, *sorted(self.runs.workload.flags))
        found: list[Condition] = [gt(var(n), 0) for n in flags]
        found += self._kinds()
        found += [gt(var("seq_len"), 1), gt(var("cache_len"), 0)]
        asked = list(dict.fromkeys(c for run in self.symbolic for _, c in run.conditions))
        if self.runs.workload.vary:
            found += asked  # those of a user's module are exact; at their edges the next ones are one token off
        for name in self._windows:
            found += [ge(var("cache_len"), var(name)), ge(var("seq_len"), var(name))]
            found += [ge(var("seq_len") + var("cache_len"), var(name))]
        found += [*asked, *(gt(var(name), 1) for name in self._sometimes_one())]
        # The batch decides little: it comes last, so that it explains nothing that another condition explains.
        found += [gt(var(name), 1) for name in self.runs.lengths]
        # Tokens that fill their last chunk need no padding; a single chunk needs no loop.
        found += dict.fromkeys(limit for run in self.symbolic for limit in run.limits)
        found += [condition for pieces in self._pieces for condition in pieces.conditions()]
        if self.runs.workload.vary:
            found += dict.fromkeys(edge for condition in asked for edge in _beside_equality(condition))
        return [*found, gt(var("batch_size"), 1), gt(var("batch_size") * var("seq_len"), 1)]

    @functools.cached_property
    def _pieces(self) -> list[Pieces]:
        """The sizes of the call that the source works on in pieces or divides, each once."""
        found = [p for run in self.symbolic for p in run.pieces]
        unrolled = {(p.total, p.step) for p in found if p.unrolled}
        return list(dict.fromkeys(Pieces(p.total, p.step, (p.total, p.step) in unrolled) for p in found))

    def _kinds(self) -> list[Condition]:
        """Conditions on attributes with few values among the instances, each a number and no config size."""
        met = {n: sorted({p.values[n] for _, p, _ in self.samples}) for n in self.variables.kinds}
        return [eq(var(n), v) for n, values in met.items() if len(values) <= MOST_KINDS for v in values]

    def _sometimes_one(self) -> list[str]:
        """Config sizes that are 1 in some runs: such a dimension broadcasts and needs no copy."""
        seen: dict[str, set[bool]] = {}
        for _, point, _ in self.samples:
            for name in self.runs.base.keys() - set(self.runs.lengths):
                seen.setdefault(name, set()).add(point.values[name] > 1)
        return [
            *self.runs.compared,
            *sorted(n for n, met in seen.items() if len(met) > 1 and n not in self.runs.compared),
        ]

    @property
    def _of_the_call(self) -> set[str]:
        """Variables of a call: batch, tokens, cached tokens, and the tokens of an encoder."""
        return {*RUNTIME, *self.runs.lengths}

    @functools.cached_property
    def _windows(self) -> list[str]:
        """Config values that the source compares a number of tokens with."""
        conditions = [free_variables(c) for run in self.symbolic for _, c in run.conditions]
        return sorted({n for names in conditions if names & {"seq_len", "cache_len"} for n in names} - set(RUNTIME))

    def candidates(self, key: tuple[Key, int], name: str) -> list[Expr]:
        """Candidate formulas for one quantity of a kernel."""
        if (key, name) not in self._candidates:
            self._candidates[key, name] = self._find_candidates(key, name)
        return self._candidates[key, name]

    def _find_candidates(self, key: tuple[Key, int], name: str) -> list[Expr]:
        seen: list[tuple[Run, Expr]] = []
        for run, observation in self.formulas:
            item = observation.items.get(key)
            if item is not None:
                value = item.count if name == "count" else item.fields.get(name, 0)
                seen.append((run, simplify(value) if isinstance(value, Expr) else num(value)))
        found = self._in_any_number_of_pieces(seen)
        if self.specialised:
            # The number of layers stays a variable, because a called class may need it bound.
            counted = [var(n) for n in self.runs.workload.full_layers if name == n]
            found = self.at_config(found, self._column(key, name), counted)
        found.update(self.beyond_windows(found))
        if name == "count":
            # The first round of a loop may differ from the others.
            found.update(dict.fromkeys(simplify(e - k) for run in self.symbolic for e in run.loops for k in (0, 1)))
            found.update(dict.fromkeys(self._several_times_each_round(seen)))
            column = self._column(key, name)
            counts = {s.value for s in column}
            if self.all_layers:
                found.update(dict.fromkeys(num(count) for count in sorted(counts)))
            if len(counts) > 1 and max(counts) > 1:
                # A value that no run changed may be equal by chance: one group of experts is not one layer without
                # them.
                numbers, points = self.symbolic[0].numbers, {s.point for s in column}
                runs = [run for run, point, _ in self.samples if point in points]
                changed = {n: v for n, v in numbers.items() if any(run.numbers[n] != v for run in runs)}
                for layers in self.runs.workload.full_layers:
                    found.update(dict.fromkeys(structural(layers, numbers[layers], changed, max(counts))))
                    found.update(dict.fromkeys(stacked(layers, column)))
                if self.runs.workload.vary:  # a user's own stack of layers, and loops over the tokens
                    found.update(dict.fromkeys(var(n) for n in self.runs.base))
                    found.update(dict.fromkeys(simplify(var(n) - k) for n in RUNTIME for k in (0, 1)))
            for layers, pattern in self.runs.workload.layer_patterns.items() if max(counts, default=0) > 1 else ():
                found.update(dict.fromkeys(in_pattern(layers, pattern)))
        return list(found)

    def _several_times_each_round(self, seen: list[tuple[Run, Expr]]) -> Iterator[Expr]:
        """Counts of operators that run several times in each round of a loop, or in each but the first."""
        for run, count in seen:
            point = Point(run.numbers)
            for rounds in (simplify(e - k) for e in run.loops for k in (0, 1)):
                number, times = self.fitter.value(rounds, point), self.fitter.value(count, point)
                if number and times and times > number > 1 and times % number == 0:
                    yield simplify(times // number * rounds)

    def _in_any_number_of_pieces(self, seen: list[tuple[Run, Expr]]) -> dict[Expr, None]:
        """The formulas of symbolic runs, without those that hold for one number of pieces only.

        In their place are formulas in the number of pieces.
        """
        unrolled = [p for p in self._pieces if p.unrolled]
        in_runs: dict[Expr, list[list[tuple[int, int]]]] = {}
        for run, formula in seen:
            in_runs.setdefault(formula, []).append([p.count(run.numbers) for p in unrolled])
        found = {
            formula: None
            for formula, counts in in_runs.items()
            if all(_holds_for_any_number({c[i] for c in counts}) for i in range(len(unrolled)))
        }
        for pieces in unrolled:
            for name in sorted(free_variables(pieces.total)):
                groups: dict[Any, dict[tuple[int, int], Expr]] = {}
                for run, formula in seen:
                    others = tuple(sorted((n, v) for n, v in run.numbers.items() if n != name))
                    groups.setdefault(others, {})[pieces.count(run.numbers)] = formula
                made: dict[Expr, list[dict[str, int]]] = {}
                for others, group in groups.items():
                    for formula in pieces.in_any_number(group, name):
                        made.setdefault(formula, []).append(dict(others))
                # Pieces of another size, in a nested loop, may have one number in all these runs.
                nested = [p for p in unrolled if name not in free_variables(p.total)]
                for formula, at in made.items():
                    if all(_holds_for_any_number({p.count(numbers) for numbers in at}) for p in nested):
                        found[formula] = None
        return found

    def at_config(self, found: Iterable[Expr], column: list[Sample], others: Iterable[Expr] = ()) -> dict[Expr, None]:
        """The candidates with the config's own values as numbers, and polynomials if none of them fits."""
        at_config = dict.fromkeys(simplify(substitute(formula, self.fixed_sizes)) for formula in found)
        at_config.update(dict.fromkeys(others))
        if self.fitter.fit(column, list(at_config)) is None:
            at_config.update(dict.fromkeys(self._interpolated(column)))
        return at_config

    def beyond_windows(self, found: Iterable[Expr]) -> dict[Expr, None]:
        """Candidates beyond a window, which keeps the last window - 1 tokens: the minimum of both."""
        more: dict[Expr, None] = {}
        for window in self._windows:
            kept = minimum(var("cache_len"), var(window) - 1)
            for formula in (*found, *more):
                if "cache_len" in free_variables(formula):
                    more[simplify(substitute(formula, {"cache_len": kept}))] = None
        return more

    def _interpolated(self, column: list[Sample]) -> list[Expr]:
        """Polynomials through the samples of each path. Paths differ in phase and in comparisons of the source."""
        loops = [simplify(substitute(e, self.fixed_sizes)) for run in self.symbolic for e in run.loops]
        loops = [e for e in dict.fromkeys(loops) if free_variables(e) <= set(RUNTIME)]
        kept = [minimum(var("cache_len"), self.fixed_sizes[w] - 1) for w in self._windows if w in self.fixed_sizes]
        phases: list[Condition] = [gt(var("seq_len"), 1), gt(var("cache_len"), 0), gt(var("batch_size"), 1)]
        others = [c for c in self.fitter.conditions if free_variables(c) & set(RUNTIME)]
        found: dict[Expr, None] = {}
        kinds: list[Condition] = [*(gt(var(n), 0) for n in self.variables.switches), *self._kinds()]
        for told in ([], phases[:1], phases[1:2], phases[:2], phases, [*phases, *others]):
            groups: dict[tuple[bool | None, ...], list[Sample]] = {}
            for sample in column:
                path = tuple(self.fitter.holds(c, sample.point) for c in (*kinds, *told))
                groups.setdefault(path, []).append(sample)
            for samples in groups.values():
                formula = polynomial(samples, loops, [var("cache_len"), *kept], self.runs.workload.has_tokens)
                if formula is not None:
                    found[formula] = None
        return list(found)

    def _column(self, key: tuple[Key, int], name: str) -> list[Sample]:
        if (key, name) not in self._columns:
            self._columns[key, name] = self._find_column(key, name)
        return self._columns[key, name]

    def _find_column(self, key: tuple[Key, int], name: str) -> list[Sample]:
        found = []
        composite = key[0].composite
        full = self.runs.workload.full_layers if self.all_layers and name == "count" else {}
        for _, point, observation in self.samples:
            if any(point.values[n] != layers for n, layers in full.items()):
                continue
            item = observation.items.get(key)
            if item is not None:
                value = item.count if name == "count" else item.fields.get(name, 0)
                found.append(Sample(point, int(value)))
            elif (name == "count") == composite:
                # A kernel that does not run costs nothing: a call has count 0, an operator has 0 in each field.
                found.append(Sample(point, 0))
        return found

    def fields(self, key: tuple[Key, int]) -> list[str]:
        names: dict[str, None] = {}
        for observation in (*(o for _, o in self.formulas), *(o for _, _, o in self.samples)):
            if key in observation.items:
                names.update(dict.fromkeys(observation.items[key].fields))
        return [*names, "count"]

    def unexplained(self) -> Iterator[tuple[Key, str, Sample]]:
        """Kernel, quantity and sample for each sample without a formula. Compulsory traffic comes last."""
        for key in sorted(self.rows, key=lambda key: self.rows[key].category == "compulsory"):
            if self._does_nothing(key):
                continue
            for name in self.fields(key):
                for sample in self.fitter.unexplained(self._column(key, name), self.candidates(key, name)):
                    yield key[0], name, sample

    def _does_nothing(self, key: tuple[Key, int]) -> bool:
        """True for calls of a module that runs no operator, such as dropout outside of training."""
        return key[0].composite and self.rows[key].child is not None and self.runs.does_nothing(key[0].name)

    def counterexample(self) -> Counterexample | None:
        """A run with an unexplained sample; None if all are explained.

        Of the runs that lack a formula of the same quantity it is the one whose formula is the most general. Where code
        runs once per piece it is the first one: formulas of any number of pieces come from runs of few pieces.
        """
        first: tuple[Key, str] | None = None
        points: list[Point] = []
        for key, name, sample in self.unexplained():
            if first not in (None, (key, name)):
                break
            first = key, name
            points.append(sample.point)
        if first is None:
            return None
        lacking = [next(run for run, point, _ in self.samples if point is wanted) for wanted in points]
        if any(pieces.unrolled for pieces in self._pieces):
            lacking = lacking[:1]
        fewest = min(len(run.recording.operators) for run in lacking)
        short = [run for run in lacking if len(run.recording.operators) <= MORE_OPERATORS * fewest]
        is_compulsory = self.rows[first[0], 0].category == "compulsory"
        return Counterexample(max(short, key=self._generality), first[1] == "count", is_compulsory)

    def _generality(self, run: Run) -> tuple[int, ...]:
        """Order of runs by how general a formula of them is. A size that is 1, or a quotient of 1, is a number in it.

        First the sizes of the call that are above 1, then few changes of the config, then large sizes.
        """
        runs, numbers = self.runs, run.numbers
        several = {name: numbers[name] for name in runs.call_sizes if numbers[name] > 1}
        changed = sum(numbers[name] != value for name, value in runs.base.items() if name not in runs.call_sizes)
        lengths = [value for name, value in several.items() if name != "batch_size"]
        return len(several), -changed, min(lengths, default=0), sum(lengths)

    def check_distinct(self) -> None:
        """Raise Indistinct if calls cost differently although every variable is equal: no formula explains them.

        Only calls at the config's own values are compared, and only operators that a line runs on one shape: other
        attempts to derive the class have these calls too.
        """
        runs, several = self.runs, {key for key, index in self.rows if index > 0}
        sizes = runs.base.keys() - {*RUNTIME, *runs.lengths, *runs.workload.full_layers}
        own = [
            (frozenset(point.values.items()), observation)
            for run, point, observation in self.samples
            if all(run.numbers[n] == runs.base[n] for n in sizes)
        ]
        for key, row in self.rows.items():
            if key[0].composite or key[0] in several or row.category == "compulsory":
                continue
            seen: dict[tuple[str, frozenset[tuple[str, int]]], int] = {}
            for values, observation in own:
                item = observation.items.get(key)
                for name, value in (item.fields if item is not None else {}).items():
                    if seen.setdefault((name, values), int(value)) != int(value):
                        raise self._indistinct(key[0], name)

    def _indistinct(self, key: Key, name: str, kind: type[TraceFailed] = Indistinct) -> TraceFailed:
        text = f"{self.class_path}: {name} of {key.name} at {_where(key)} has several values"
        return _about(key, f"{text} that no condition tells apart.", kind)

    def give_up_compulsory(self) -> bool:
        """Drop compulsory traffic if nothing else is unexplained. Returns true if it is dropped."""
        first = next(self.unexplained(), None)  # compulsory traffic comes last
        if first is not None and self.rows[first[0], 0].category == "compulsory":
            self.rows = {key: item for key, item in self.rows.items() if item.category != "compulsory"}
            self.has_compulsory = False
        return not self.has_compulsory

    def refusal(self) -> TraceFailed:
        """The error for the first unexplained sample."""
        key, name, sample = next(self.unexplained())
        values = ", ".join(f"{k}={v}" for k, v in sample.point.values.items() if k in RUNTIME)
        return _about(
            key,
            f"{self.class_path}: {name} of {key.name} at {_where(key)} is {sample.value} at {values}, "
            "which no formula explains.\nThe path depends on values that lmp has no rule for.",
        )

    def holds_at(self, items: list[tuple[Item, dict[str, Expr]]], run: Run, observations: list[Observation]) -> bool:
        """True if fitted formulas give the values of a run that they were not fitted to."""
        keys = {id(item): key for key, item in self.rows.items()}
        for _, point, observation in self.samples_of(run, observations):
            if any(k not in self.rows for k in observation.items):
                return False
            for item, formulas in items:
                seen = observation.items.get(keys[id(item)])
                for name, formula in formulas.items():
                    if seen is None:
                        wanted = 0 if (name == "count") == keys[id(item)][0].composite else None
                    else:
                        wanted = seen.count if name == "count" else int(seen.fields.get(name, 0))
                    if wanted is not None and self.fitter.value(formula, point) != wanted:
                        return False
        return True

    def fitted(self) -> list[tuple[Item, dict[str, Expr]]]:
        """Per key the formulas of its fields. Keys whose calls run no operator may be left out."""
        result = []
        for key, item in self.rows.items():
            formulas: dict[str, Expr] = {}
            for name in self.fields(key):
                found = self.fitter.fit(self._column(key, name), self.candidates(key, name))
                if found is None and item.category == "compulsory":
                    self.has_compulsory = False
                    break
                if found is None and self._does_nothing(key):
                    break
                if found is None:
                    raise self._indistinct(key[0], name, TraceFailed)
                formulas[name] = simplify(substitute(found, self.fixed_sizes))
            else:
                result.append((item, formulas))
        return [(i, f) for i, f in result if self.has_compulsory or i.category != "compulsory"]

    def derived(
        self,
        degenerate: Callable[[Table, list[tuple[Item, dict[str, Expr]]]], list[Condition]],
        operand_sizes: Callable[[ItemKey], OperandSizes | None],
    ) -> Derived:
        """Everything known of the class, in its own variables.

        Raises TraceFailed if a formula has a variable without a path.
        """
        items = self.fitted()
        keys = {id(item): key for key, item in self.rows.items()}
        basic = [item for item, _ in items if item.operator is not None]
        operands = {id(item): found for item in basic if (found := operand_sizes(keys[id(item)])) is not None}
        degenerated = degenerate(self, items)
        outside = [(item, dict(formulas)) for item, formulas in items if item.category == "compulsory"]
        shapes = self.input_shapes()
        paths = self._paths(shapes)
        items, paths, shapes, operands = self._in_own_variables(items, paths, shapes, operands)
        used: set[str] = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        kernels = [(item, f) for item, f in items if item.category not in ("parameters", "compulsory")]
        count = [f["elements"] * f["count"] for item, f in items if item.category == "parameters"]
        compulsory: dict[str, Expr] = {}
        for item, formulas in items:
            for name, formula in formulas.items() if item.category == "compulsory" else ():
                if name != "count":
                    compulsory[name] = simplify(compulsory.get(name, ZERO) + formula * formulas["count"])
        asked = list(self.questions(kernels)) if self.specialised else self.assumptions(kernels)
        # A condition may be on a size that cancelled out of the formulas: it is still a variable of the class.
        known = used | set(BYTES) | self.sizes_used(kernels)
        stated = (self._stated(condition, known, paths.keys()) for condition in (*asked, *degenerated))
        assumptions = [condition for condition in dict.fromkeys(stated) if condition is not None]
        assumptions += self._untried(used)
        used |= {n for c in assumptions for n in free_variables(c)}
        self._require_no_negative_cost(items, assumptions)
        assumptions += [le(var(n), 1) for n in sorted(used & self.flags)]
        operands = {i: f for i, f in operands.items() if _variables_of(f) <= paths.keys()}
        used |= {n for formulas in operands.values() for n in _variables_of(formulas)}
        missing = sorted(n for n in used if n not in paths and n not in BYTES)
        if missing and self._give_up(missing, items):
            return self.derived(degenerate, operand_sizes)
        if missing:
            raise TraceFailed(
                f"{self.class_path}: its cost depends on {', '.join(missing)}, which its inputs do not determine."
            )
        return Derived(
            self.class_path,
            kernels,
            {n: paths[n] for n in sorted(used, key=_variable_order) if n not in BYTES},
            self.numbers(),
            assumptions,
            [self.symbolic[0].primary(self.class_path)],
            shapes,
            simplify(sum(count, start=ZERO)),
            compulsory,
            {
                **{n: self.runs.base[n] for n in self.fixed_sizes},
                **(self.runs.workload.full_layers if self.all_layers else {}),
            },
            Flow(),
            keys,
            operands,
            lambda run, seen: self.has_compulsory and self.holds_at(outside, run, seen),
        )

    def _require_no_negative_cost(
        self, items: list[tuple[Item, dict[str, Expr]]], assumptions: Sequence[Condition]
    ) -> None:
        """Raises TraceFailed if a cost is below 0 at sizes of a call that the assumptions allow."""
        numbers = {**self.numbers(), **BYTES}
        names = [n for n in (*RUNTIME, *self.runs.lengths) if n in numbers]
        tried = [LIKELY.get(n, LIKELY["seq_len"]) for n in names]
        points = [Point({**numbers, **dict(zip(names, sizes, strict=True))}) for sizes in itertools.product(*tried)]
        # A class in an encoder has the encoder's tokens as its own.
        same = [
            (a, b)
            for a, b in itertools.combinations(names, 2)
            if all(p.values[a] == p.values[b] for _, p, _ in self.samples)
        ]
        points = [p for p in points if all(p.values[a] == p.values[b] for a, b in same)]
        allowed = [p for p in points if all(self.fitter.holds(c, p) is not False for c in assumptions)]
        usual = min(numbers.values()) >= 0
        for item, formulas in items:
            for name, formula in formulas.items():
                if usual and _is_never_negative(formula):
                    continue
                below = next((p for p in allowed if (self.fitter.value(formula, p) or 0) < 0), None)
                if below is not None:
                    values = ", ".join(f"{n}={below.values[n]}" for n in names)
                    key = next(key for key, row in self.rows.items() if row is item)[0]
                    raise _about(
                        key, f"{self.class_path}: {name} of {key.name} at {_where(key)} is below 0 at {values}."
                    )

    def _give_up(self, missing: list[str], items: list[tuple[Item, dict[str, Expr]]]) -> bool:
        """Drop compulsory traffic if only it depends on missing variables. Returns true if it is dropped."""
        others = {n for i, fs in items if i.category != "compulsory" for f in fs.values() for n in free_variables(f)}
        if not self.has_compulsory or others & set(missing):
            return False
        self.has_compulsory = False
        return True

    def _untried(self, used: set[str]) -> list[Condition]:
        """Conditions that exclude untested values: a window of one token, or too few layers for each kind."""
        runs = self.runs
        windows = [w for w in self._windows if w in used and all(p.values[w] > 1 for _, p, _ in self.samples)]
        found: list[Condition] = [gt(var(w), 1) for w in windows]
        if runs.holds_layers(self.class_path):
            least = {n: fewest_layers(runs.workload, n) for n in runs.workload.full_layers}
            found += [ge(var(n), layers) for n, layers in least.items() if layers > 1 and n in used]
        return found

    def _in_own_variables(
        self,
        items: list[tuple[Item, dict[str, Expr]]],
        paths: dict[str, str],
        shapes: dict[str, list[Size]],
        operands: dict[int, OperandSizes],
    ) -> tuple[list[tuple[Item, dict[str, Expr]]], dict[str, str], dict[str, list[Size]], dict[int, OperandSizes]]:
        """Convert to flat tokens, [batch_size * seq_len, ...]: batch_size is all of them, and seq_len is 1.

        This includes a module that sees the tokens several times, such as each expert in turn. If each sequence has
        several rows (one per codebook), batch_size counts the rows.
        """
        used = {n for _, formulas in items for f in formulas.values() for n in free_variables(f)}
        untold = used & {"batch_size", "seq_len"} - set(paths)
        sizes = [(n, d, s) for n, shape in shapes.items() for d, s in enumerate(shape) if s != 0]
        one = {"seq_len": num(1)}
        seen = ((var("batch_size") * var("seq_len"), one), *([(var("batch_size"), {})] if "seq_len" in paths else []))
        rows = ((n, d, simplify(s / tokens), tokens, gone) for tokens, gone in seen for n, d, s in sizes)
        found = next((row for row in rows if not free_variables(row[2]) & set(RUNTIME)), None)
        if found is None or not untold:
            return items, paths, shapes, operands
        name, dim, times, tokens, gone = found

        def flatten(formula: Any) -> Any:
            if not isinstance(formula, Expr):
                return formula
            return simplify(substitute(formula, {**gone, "batch_size": var("batch_size") / times}))

        points = [
            (p, Point({**p.values, "batch_size": evaluate(tokens * times, p.values)})) for _, p, _ in self.samples
        ]
        for _, formulas in items:
            for field_name, formula in formulas.items():
                own = flatten(formula)
                for point, at in points:
                    if self.fitter.value(own, at) != self.fitter.value(formula, point):
                        raise TraceFailed(f"{self.class_path}: {field_name} depends on more than the number of tokens.")
                formulas[field_name] = own
        paths = {**{n: p for n, p in paths.items() if n not in gone}, "batch_size": f"inputs.{name}.shape[{dim}]"}

        def same(formula: Expr) -> bool:
            own = flatten(formula)
            return all(self.fitter.value(own, at) == self.fitter.value(formula, point) for point, at in points)

        # Shapes that depend on more than the number of tokens have no formula in the class's own variables.
        kept = {i: {n: flatten(f) for n, f in fs.items()} for i, fs in operands.items() if all(map(same, fs.values()))}
        return items, paths, {n: [flatten(s) for s in shape] for n, shape in shapes.items()}, kept

    def _paths(self, shapes: dict[str, list[Size]]) -> dict[str, str]:
        """Variable -> path of its value, valid for a module of this class wherever it is called."""
        found = {name: v.path for name, v in self.runs.workload.variables.items()}
        found.update(self.variables.paths)
        found.update(self.variables.switches)
        # An encoder's input exists in the first call only, so tensors that every call has come first.
        runs = (*self.symbolic, *self.runs.concrete)
        given = [{n for n, _ in input_tensors(call)} for run in runs for call in run.calls_of(self.class_path)]
        for name, shape in sorted(shapes.items(), key=lambda kv: not all(kv[0] in names for names in given)):
            for dim, size in enumerate(shape):
                for runtime in RUNTIME:
                    if size == var(runtime):
                        found.setdefault(runtime, f"inputs.{name}.shape[{dim}]")
        # A shape argument may give a size that no tensor has.
        run = self.symbolic[0]
        for path, size in sizes_given(run.primary(self.class_path)).items():
            for runtime in RUNTIME:
                if run.size(size) == var(runtime):
                    found.setdefault(runtime, path)
        found.update(self.variables.lengths)
        cache = next((c for r in self.symbolic for o in r.calls_of(self.class_path) if (c := cache_argument(o))), None)
        if cache is not None:
            own = ".self_attention_cache" if hasattr(cache[1], "self_attention_cache") else ""
            found["cache_len"] = f"inputs.{cache[0]}{own}.layers[0]{CACHED}"
        # A recurrent state has one size for any number of tokens.
        found.setdefault("cache_len", "cache_len")
        return found

    def numbers(self) -> dict[str, int]:
        run = self.symbolic[0]
        return self.variables.numbers(run, run.primary(self.class_path))

    def assumptions(self, items: list[tuple[Item, dict[str, Expr]]]) -> list[Condition]:
        """Divisibility that the formulas rely on, and source comparisons with one result in all runs."""
        found: dict[Condition, None] = {}
        for run, observation in self.formulas:
            if run.sizes is None:
                continue
            sizes = {s for item in observation.items.values() for s in _sizes_of(item) if isinstance(s, Expr)}
            for size in sorted(sizes, key=to_text):
                relied = sorted(run.sizes.relied.get(size, ()), key=to_text)
                pinned = {n: v for n, v in run.pinned.items() if n in self.runs.workload.required}
                found.update(dict.fromkeys(_named(c, pinned) for c in relied if not self._is_refuted(c)))
        # A float32 model, with 4 bytes per element, would not run a conversion to float32.
        upcasts = [i.operator for i, _ in items if i.operator is not None and i.operator.name == "_to_copy"]
        if any(
            o.inputs and o.inputs[0].unit in BYTES and o.outputs[0].unit == 4 and o.outputs[0].floating for o in upcasts
        ):
            found[ne(var("a_bytes"), 4)] = None
        found.update(dict.fromkeys(self.questions(items)))
        return list(found)

    def _is_refuted(self, condition: Condition) -> bool:
        """True if a divisibility of sizes of the call fails in some sample, though every formula holds there.

        A run with one number of pieces relies on it; formulas for any number of pieces do not.
        """
        names = free_variables(condition)
        points = (p for _, p, _ in self.samples if names <= p.values.keys())
        return bool(names & self._of_the_call) and any(self.fitter.holds(condition, p) is not True for p in points)

    def questions(self, items: list[tuple[Item, dict[str, Expr]]]) -> Iterator[Condition]:
        """Comparisons in the source that had one result in all runs, with that result."""
        lines = {(p.file, p.line) for item, _ in items for p in item.key.chain}
        for run in self.symbolic:
            calls = run.calls_of(self.class_path)
            rename = self.variables.renaming(run, calls[0]) if calls else {}
            for asked, found in run.conditions:
                # A comparison with the tokens decides a path, wherever it stands.
                own = self.class_path in asked.within and bool(free_variables(found) & self._of_the_call)
                if own or (asked.file, asked.line) in lines:
                    condition = substitute(found, rename) if rename else found
                    met = {self.fitter.holds(condition, p) for _, p, _ in self.samples}
                    if met in ({True}, {False}):
                        yield condition if asked.holds else negated(condition)

    def _stated(self, condition: Condition, known: Set[str], located: Set[str]) -> Condition | None:
        """A condition in the variables of the class; None if it is on other variables only.

        In a comparison with tokens, a config value without a path in the class becomes a number: beyond it formulas
        may differ.
        """
        names = free_variables(condition)
        others = names - known
        if not others:
            return condition
        base = self.runs.base
        if not names & known & self._of_the_call or not others <= base.keys():
            return None
        return simplify_condition(substitute(condition, {name: num(base[name]) for name in others - located}))

    def sizes_used(self, items: list[tuple[Item, dict[str, Expr]]]) -> set[str]:
        """Variables in the tensor shapes of the class's own operators."""
        shapes = (s for item, _ in items for s in _sizes_of(item) if isinstance(s, Expr))
        return {n for s in shapes for n in free_variables(s)}

    def input_shapes(self) -> dict[str, list[Size]]:
        """Shapes of the tensors among forward()'s arguments, including those inside tuples."""
        run = self.symbolic[0]
        call = run.primary(self.class_path)
        if run.sizes is None:
            return {n: [self._specialised_size(n, d) for d in range(tensor.dim())] for n, tensor in input_tensors(call)}
        rename = self.variables.renaming(run, call)
        return {n: [renamed(run.size(s), rename) for s in tensor.shape] for n, tensor in input_tensors(call)}

    def _specialised_size(self, name: str, dim: int) -> Size:
        """An input dimension from concrete runs: a polynomial in the sizes of the call, else its number."""
        samples = []
        for run in self.runs.shown(self.class_path):
            if self._is_shown(run) and run.calls_of(self.class_path):
                call = run.primary(self.class_path)
                tensor = dict(input_tensors(call)).get(name)
                if tensor is not None and dim < tensor.dim():
                    samples.append(Sample(Point(self.variables.numbers(run, call)), int(tensor.shape[dim])))
        found = polynomial(samples, tokens=self.runs.workload.has_tokens)
        if found is None or isinstance(found, Num):
            return samples[0].value
        return found


def _is_never_negative(formula: Expr) -> bool:
    """True if a formula of values of at least 0 has no negative number: no function makes one."""
    return all(node.value >= 0 for node in walk(formula) if isinstance(node, Num))


def _variables_of(operands: OperandSizes) -> set[str]:
    return {name for formula in operands.values() for name in free_variables(formula)}


def _sizes_of(item: Item) -> list[Size]:
    """Every size that an item's quantities were computed from."""
    if item.operator is None:
        return list(item.fields.values())
    return [s for t in (*item.operator.inputs, *item.operator.outputs) for s in t.shape]


def _named(condition: Condition, pinned: Mapping[str, int]) -> Condition:
    """Replace a divisor that PyTorch got as a plain number by the name of its size."""
    match condition:
        case Compare("==", Mod(left, Num(divisor)), right) if divisor in pinned.values():
            name = next(n for n, v in pinned.items() if v == divisor)
            return eq(left % var(name), right)
    return condition


def _unrolled(symbolic: list[Observation], concrete: list[Observation]) -> set[Key]:
    """Operators of unrolled loops: a line runs them equally often in every run, on different shapes."""
    times: dict[Key, set[int]] = {}
    differing = {key for o in symbolic for key, index in o.items if index > 0 and not key.composite}
    for observation in (*symbolic, *concrete):
        here: dict[Key, int] = {}
        for (key, _), item in observation.items.items():
            if key in differing:
                here[key] = here.get(key, 0) + item.count
        for key, count in here.items():
            times.setdefault(key, set()).add(count)
    return {key for key, counts in times.items() if len(counts) == 1}


def _content(observation: Observation) -> Any:
    return tuple([(k[0].name, i.count, tuple(sorted(i.fields.items()))) for k, i in observation.items.items()])


_MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _beside_equality(condition: Condition) -> Iterator[Condition]:
    """For two sizes that are compared in order: equality on the other side, and one more on either side.

    What is cut at an equal size is all of it, and a rest of one needs no copy.
    """
    match condition:
        case Compare(relation, left, right) if relation in _MOVED:
            yield compare(_MOVED[relation], left, right)
            yield eq(simplify(left - right), 1)


def _holds_for_any_number(counts: Set[tuple[int, int]]) -> bool:
    """False if a formula was seen at one number of pieces only: its coefficients may be that number.

    ``counts``: full pieces and rest of each run. A single piece, whole or not, is no loop. Two pieces with a rest and
    three without one are both three rounds, so the number of full pieces and that of started ones must differ.
    """
    full, started = {full for full, _ in counts}, {full + (rest > 0) for full, rest in counts}
    return min(len(full), len(started)) > 1 or started <= {0, 1}


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


def _where(key: Key) -> str:
    return f"{os.path.basename(key.chain[0].file)}:{key.chain[0].line}" if key.chain else "no line"


def _about(key: Key, text: str, kind: type[TraceFailed] = TraceFailed) -> TraceFailed:
    error = kind(text)
    return error.at(key.chain[0].file, key.chain[0].line) if key.chain else error


def _variable_order(name: str) -> tuple[int, str]:
    return (RUNTIME.index(name) if name in RUNTIME else len(RUNTIME), name)
