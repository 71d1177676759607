"""Executes a workload, symbolically or concretely, and chooses the points at which other paths may be taken."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from lmp.errors import EvaluationError, LmpError, TraceFailed
from lmp.formula import (
    Compare,
    Condition,
    Expr,
    Mod,
    Var,
    as_polynomial,
    evaluate,
    evaluate_condition,
    free_variables,
    from_polynomial,
    gt,
    num,
    var,
)
from lmp.trace.observe import sizes_given
from lmp.trace.pieces import LARGEST_STEP, Pieces
from lmp.trace.recording import Recorder, Recording, run_symbolic
from lmp.trace.remembered import OtherRuns, SymbolicResults
from lmp.trace.rules import Size
from lmp.trace.sizes import Sizes
from lmp.trace.symbols import (
    ConcolicShapeEnv,
    expression,
    fake_mode,
    plain_functions,
    symbolic_int,
    symbolic_range,
)
from lmp.trace.symbols import Condition as Asked
from lmp.workload.base import CHUNKED, RUNTIME, Workload, fewest_layers
from lmp.workload.calls import Call
from lmp.workload.failures import blame
from lmp.workload.results import Results

MOST_TOKENS = 1 << 16
"""Lengths up to this are explored if the source names them."""

BATCHES = (1, 2, 5, 6, 8, 11)
"""Numbers of pictures or recordings for formulas from concrete runs. The judge's numbers above 1 are not among them."""

NEW_TOKENS = 5
"""New tokens of the runs that the first formulas come from."""

MAX_SETTINGS = 16
"""Largest number of combinations of config values that are explored."""

MORE_LAYERS = 2
"""Number of layers beyond the fewest that is explored in every phase."""

PAIRS = ((2, 5, 7), (2, 1, 0), (1, 5, 0), (1, 1, 7))
"""Batch, new and cached tokens: each pair of (one or several, one or several, none or some) occurs."""

ALL_SIZES, CALL_SIZES, NO_SIZES = range(3)
"""Symbolic sizes of a run: all, those of the call (tokens, batch, cache), or none."""


@dataclass(eq=False)
class Run:
    """One execution. ``numbers``: values of all variables. ``values``: the same variables as formulas."""

    numbers: dict[str, int]
    values: dict[str, Any]
    recording: Recording
    size: Callable[[Any], Size]
    sizes: Sizes | None
    asked: list[Asked]
    model: torch.nn.Module
    pinned: dict[str, int] = field(default_factory=dict)
    """Config values that the code turned into plain numbers: formulas may hold for these numbers only."""
    pinned_in: dict[str, set[str]] = field(default_factory=dict)
    """Config value -> classes whose forward() was running then; "" for constructors."""
    loops: list[Expr] = field(default_factory=list)
    """Other sizes that the code turned into plain numbers: candidates for the number of rounds of a loop."""
    pieces: list[Pieces] = field(default_factory=list)
    """Sizes of the call that the code works on in pieces, or divides."""
    limits: dict[Condition, None] = field(default_factory=dict)
    """``size > constant`` for the constants that sizes of the call are compared with or cut at."""
    shrinks: tuple[str, int] | None = None
    """File and line of a loop that divides a size until it is small."""
    specialisation: int = ALL_SIZES
    """Which sizes were symbolic: ALL_SIZES, CALL_SIZES or NO_SIZES."""

    def calls_of(self, class_path: str) -> list[Call]:
        return [c for c in self.recording.calls if c.class_path == class_path]

    def primary(self, class_path: str) -> Call:
        """The call that describes a class: the first with the new tokens as a dimension, else the first."""
        calls = self.calls_of(class_path)
        return next((c for c in calls if length_of(c, self.size, var("seq_len"))), calls[0])

    @functools.cached_property
    def conditions(self) -> list[tuple[Asked, Condition]]:
        """Comparisons of sizes in the source on this path, without those that the formula language cannot express."""
        if self.sizes is None:
            return []
        found = ((a, self.sizes.condition(a.expression)) for a in self.asked)
        return [(a, c) for a, c in found if c is not None]


def length_of(call: Call, size: Callable[[Any], Size], length: Size) -> str | None:
    """Path of the first argument dimension of forward() that equals ``length``; None if there is none."""
    return next((path for path, found in sizes_given(call).items() if size(found) == length), None)


class Runs:
    """Runs of one workload: symbolic ones give formulas, concrete ones give counterexamples."""

    def __init__(self, workload: Workload, source_root: str) -> None:
        self.workload, self.source_root = workload, source_root
        self.symbolic: list[Run] = []
        self.concrete: list[Run] = []
        self.compared: dict[str, None] = {}
        """Config sizes that the source divides by one another: for them, 1 is a separate case."""
        self.base = dict(workload.hints)
        self.lengths = sorted(workload.required) if workload.has_encoder else []
        """Numbers of tokens other than ``seq_len``: for them, 1 is a separate case too."""
        self.dimensions = tuple(n for n in workload.input_sizes if workload.vary and n not in self.lengths)
        """Further dimensions of a user's own inputs. They may be lengths, and 1 is a separate case for them too."""
        self.call_sizes = (*RUNTIME, *self.lengths, *self.dimensions)
        """Sizes that a call can vary."""
        self._settings: list[dict[str, int]] = [{}]
        self.paired: set[Condition] = set()
        """Comparisons of sizes of the call, of which each two were executed with each pair of results."""
        self._flipped: set[Condition] = set()
        self._followed: set[Pieces] = set()
        self._known: dict[tuple[tuple[str, int], ...], Run | None] = {}
        self._results = Results()
        self._symbolic_results = OtherRuns()
        self.specialisation = ALL_SIZES
        """Which sizes are symbolic in the base run: as many as the module can be run with."""

    @property
    def most_specialised(self) -> int:
        """Least symbolic specialisation allowed. A standalone module needs all sizes: its formulas are in them."""
        alone = self.workload.required - set(self.lengths) and not self.workload.vary
        return ALL_SIZES if alone else NO_SIZES

    # -- one run -----------------------------------------------------------------------------------------------------

    def symbolic_run(self, numbers: dict[str, int]) -> Run:
        """A run with as many symbolic sizes as the module can be run with; its ``specialisation`` tells which.

        If every specialisation fails, raises TraceFailed with the error of the most symbolic one. Also raises it for a
        loop whose number of rounds no formula expresses.
        """
        run = self._symbolic_run(numbers)
        if run.shrinks is not None:
            file, line = run.shrinks
            raise TraceFailed(
                f"the loop at {os.path.basename(file)}:{line} divides a size of the call until it is small.\n"
                "Its number of rounds has no formula: analyse one round as a module of its own."
            ).at(file, line)
        return run

    def _symbolic_run(self, numbers: dict[str, int]) -> Run:
        first: TraceFailed | None = None
        for specialisation in range(self.specialisation, self.most_specialised + 1):
            try:
                return self.run(numbers, symbolic=True, specialisation=specialisation)
            except TraceFailed as error:
                first = first or error
            except Exception as error:
                if specialisation != NO_SIZES or first is None:
                    raise
                raise first from error
        assert first is not None
        raise first

    def run(self, numbers: dict[str, int], *, symbolic: bool, specialisation: int = ALL_SIZES) -> Run:
        """Execute the workload once at ``numbers``. Sizes with a path of their own (1, no cache) stay numbers.

        Raises TraceFailed if the module fails with symbolic sizes.
        """
        if not symbolic or specialisation == NO_SIZES:
            model, recorder = self._execute(dict(numbers), int)
            return Run(numbers, dict(numbers), recorder.recording, int, None, [], model, specialisation=NO_SIZES)
        env = ConcolicShapeEnv()
        env.source_root = self.source_root
        sizes = Sizes(env.values, {n: v for n, v in self.base.items() if n not in RUNTIME})

        size_of = sizes.formula

        def size(value: Any) -> Size:
            return size_of(expression(value))

        plain = {n for n, v in numbers.items() if n in self.workload.flags or (n in RUNTIME and v <= 1)}
        plain |= {n for n in self.workload.full_layers if numbers.get(n) != self.base[n]}
        if specialisation == CALL_SIZES:
            plain |= numbers.keys() - {*RUNTIME, *self.lengths}
        values = {n: v if n in plain else env.size(n, v) for n, v in numbers.items()}
        try:
            with fake_mode(env), symbolic_int(self._source_modules()), plain_functions(), symbolic_range():
                model, recorder = self._execute(values, size, env)
        except LmpError:
            raise
        except Exception as error:
            # The analysed code may raise anything on symbolic sizes: such an error is not reported as a bug of lmp.
            place = traceback.extract_tb(error.__traceback__)
            inside = [f for f in place if self.source_root and f.filename.startswith(self.source_root)]
            where = f" at {os.path.basename(inside[-1].filename)}:{inside[-1].lineno}" if inside else ""
            first = (str(error).splitlines() or [""])[0]
            raise TraceFailed(
                f"the module cannot be run with symbolic sizes{where}: {type(error).__name__}: {first[:160]}\n"
                "lmp has no rule for what happens there; please report the class."
            ) from error
        shown = {n: v if n in plain else size(v) for n, v in values.items()}
        pinned = {e.name: n for e, n in env.pinned.items() if isinstance(e, sympy.Symbol)}
        made = Run(numbers, shown, recorder.recording, size, sizes, list(env.conditions.values()), model, pinned)
        made.specialisation = specialisation
        made.pinned_in = {e.name: env.pinned_in[e] for e in env.pinned if isinstance(e, sympy.Symbol)}
        for e in (e for e in env.pinned if e in env.turned_now):
            tokens = {s.name for s in e.free_symbols} & {*self.call_sizes}
            with contextlib.suppress(TypeError):
                found = size_of(e) if tokens else None
                if isinstance(found, Expr):
                    made.loops.append(found)
        made.pieces, made.limits = self._pieces(env, made, size_of)
        made.shrinks = env.shrinking()
        return made

    def _pieces(
        self, env: ConcolicShapeEnv, run: Run, size_of: Callable[[Any], Size]
    ) -> tuple[list[Pieces], dict[Condition, None]]:
        """Sizes of the call that a symbolic run divides or iterates over, and constants that it compares them with."""
        call = {*self.call_sizes}
        turned = {atom for e in env.turned_now for atom in e.atoms(sympy.Function)}
        pieces: dict[tuple[Expr, Expr], bool] = {}
        for (size, divisor), looped in env.divisions.items():
            divisions = {atom for atom in turned if atom.args == (size, divisor)}
            with contextlib.suppress(TypeError):
                total, step = _of_the_call(size_of(size), call), size_of(divisor)
                if total is None or (isinstance(step, Expr) and free_variables(step) & call):
                    continue
                step = step if isinstance(step, Expr) else num(step)
                if 1 < evaluate(step, run.numbers) <= LARGEST_STEP:
                    pieces[total, step] = pieces.get((total, step), False) or looped or bool(divisions)
        limits: dict[Condition, None] = {}
        bounds: dict[tuple[Any, Expr], list[int]] = {}
        for asked, condition in run.conditions:
            match condition:
                case Compare(_, left, right) if free_variables(condition) and free_variables(condition) <= call:
                    compared = as_polynomial(left - right)
                    bound = abs(compared.pop((), 0))
                    total = _of_the_call(from_polynomial(compared), call)
                    if total is not None and isinstance(bound, int) and 1 < bound < MOST_TOKENS:
                        bounds.setdefault(((asked.file, asked.line), total), []).append(bound)
        for (place, size), (value, bound) in env.cuts.items():
            with contextlib.suppress(TypeError):
                total, limit = _of_the_call(size_of(size), call), size_of(bound)
                if total is None or value >= MOST_TOKENS or (isinstance(limit, Expr) and free_variables(limit) & call):
                    continue
                if isinstance(limit, Expr):
                    limits[gt(total, limit)] = None
                else:
                    bounds.setdefault((place, total), []).append(limit)
        for (_, total), found in bounds.items():
            first = min(found)
            # while start < tokens: start += 512 compares with each multiple.
            if len(set(found)) > 1 and all(bound % first == 0 for bound in found):
                pieces[total, num(first)] = True
            elif not any(total == t and step == num(first) for t, step in pieces):
                limits[gt(total, first)] = None
        return [Pieces(*sizes, unrolled) for sizes, unrolled in pieces.items()], limits

    def _execute(
        self, values: dict[str, Any], size: Callable[[Any], Size], env: ConcolicShapeEnv | None = None
    ) -> tuple[torch.nn.Module, Recorder]:
        model = self.workload.build(values)
        results = self._results if env is None else SymbolicResults(env, run_symbolic, self._symbolic_results)
        recorder = Recorder(model, self.workload.dtype, size, results)
        if env is not None:
            recorder.on_start = env.begin
            env.where = lambda: frozenset(c.class_path for c in recorder.tracker.stack)
            env.calls = lambda: recorder.tracker.stack[-1].index if recorder.tracker.stack else -1
        self.workload.run(model, values, recorder, recorder.before)
        return model, recorder

    def _source_modules(self) -> list[str]:
        """Loaded Python modules of the analysed tree that define models."""
        if self.workload.source_modules is not None:
            return list(self.workload.source_modules)
        prefix = os.path.basename(self.source_root.rstrip("/"))
        return [n for n in sys.modules if n.startswith(f"{prefix}.") and ".modeling_" in n]

    def at(self, point: dict[str, int]) -> Run | None:
        """The concrete run at a point, with base values for missing variables; None if it cannot run."""
        numbers = {**self.base, **point}
        if not self.workload.has_tokens:
            numbers["seq_len"] = NEW_TOKENS  # the run is the same for any number of tokens
        key = tuple(sorted(numbers.items()))
        if key not in self._known:
            self._known[key] = self._run_where_it_can(numbers)
        return self._known[key]

    def _run_where_it_can(self, numbers: dict[str, int]) -> Run | None:
        try:
            return self.run(numbers, symbolic=False)
        except LmpError:
            raise
        except Exception as error:
            if blame(error) == "lmp":
                raise
            return None

    # -- where to look -----------------------------------------------------------------------------------------------

    def explore(self, points: Iterable[dict[str, int]]) -> bool:
        """Run at points. Returns true if any of them could run."""
        any_ran = False
        for point in points:
            run = self.at(point)
            any_ran |= run is not None
            if run is not None and run not in self.concrete:
                self.concrete.append(run)
        return any_ran

    def start(self, target: str) -> None:
        """The base run, and points on other paths: phases, windows, flags, comparisons that ``target`` depends on."""
        base = self.symbolic_run(self.start_point())
        self.specialisation = base.specialisation
        self.symbolic.append(base)
        self._explore_setting({})
        for changed in (*self._other_values(), *({name: 1} for name in (*self.lengths, *self.dimensions))):
            self.explore(self._corners(changed))
        if self.workload.vary:
            self.explore([{**self.start_point(), "seq_len": self.tokens(9)}, {**self.start_point(), "batch_size": 3}])
        if any(target in asked.within for asked, _ in self.symbolic[0].conditions):
            self._scout({}, target)
        self._explore_more_than_one()
        self._explore_steps(self.symbolic[0])
        self.follow(self.symbolic[0], target)

    def _explore_more_than_one(self) -> None:
        """Explore larger values of config sizes that are 1, such as one group of experts.

        A dimension of 1 broadcasts, a larger one may not. PyTorch's operators test this, so the source has no
        comparison.
        """
        counted = {*RUNTIME, *self.workload.flags, *self.workload.full_layers, *self.lengths}
        for name in (n for n, v in self.base.items() if v == 1 and n not in counted):
            several = ({**self.start_point(), name: more} for more in (2, 4))
            more = next((point for point in several if self.explore([point])), None)
            if more is not None:
                self.explore([{**more, "batch_size": 1, "seq_len": self.tokens(1)}])

    def _explore_steps(self, run: Run) -> None:
        """Explore points with one and with several of the pieces that the source works on, and around its limits."""
        cached = (0, 7) if self.workload.has_cache else (0,)
        starts = [{**self.start_point(), "batch_size": b, "cache_len": c} for b in (2, 1) for c in cached]
        starts += [{**self.start_point(), name: 1} for name in self.dimensions]
        # A path that loops over single tokens takes long: many pieces are explored where the loop over pieces was seen.
        here = [start for start in starts if start["cache_len"] == run.numbers["cache_len"]]
        for pieces in run.pieces:
            step = evaluate(pieces.step, self.start_point())
            self.explore(self._moved(pieces, starts[: len(cached)], (step, 2 * step + 3, 2 * step + 4)))
            # One piece of one sequence is a single row, which needs fewer copies.
            self.explore(self._moved(pieces, starts[len(cached) :], (step, 3 * step + 1)))
            if pieces.unrolled:
                # Beyond each limit there may be another path: there too, several pieces and a rest.
                limits = [bound // step for total, bound in _bounds(run.limits, self.base) if total == pieces.total]
                sizes = [n * step + size for n in sorted({0, *limits}) for size in _sizes_in_pieces(step)]
                self.explore(self._moved(pieces, here or starts, sizes))
        for total, bound in _bounds(run.limits, self.base):
            self.explore(self._moved(Pieces(total, num(bound)), starts, (bound, bound + 1, 2 * bound + 3)))
        for pieces in (p for p in run.pieces if p.unrolled and p not in self._followed):
            self._followed.add(pieces)
            step = evaluate(pieces.step, self.start_point())
            rest = min(3, step - 1)
            for point in self._moved(pieces, [run.numbers], (2 * step + rest, 3 * step + rest, 2 * step, 3 * step)):
                if self.at(point) is not None:
                    with contextlib.suppress(TraceFailed):  # if its path matters, a sample will request it again
                        self.symbolic.append(self.symbolic_run(point))

    def _moved(
        self, pieces: Pieces, starts: Iterable[dict[str, int]], sizes: Iterable[int]
    ) -> Iterator[dict[str, int]]:
        """The starts with the size of the call that is worked on in pieces set to each of these sizes."""
        names = ("seq_len", *self.lengths, *self.dimensions, "batch_size", "cache_len")
        for start, size in itertools.product(starts, dict.fromkeys(sizes)):
            moved = pieces.move(start, size, names)
            if moved is not None:
                yield moved

    def in_other_pieces(self, run: Run) -> Iterator[dict[str, int]]:
        """Points of the run with other numbers of full pieces, for formulas in the number of pieces."""
        for pieces in dict.fromkeys(p for known in self.symbolic for p in known.pieces if p.unrolled):
            full, rest = pieces.count(run.numbers)
            step = evaluate(pieces.step, run.numbers)
            for other in (full - 1, full + 1, full + 2):
                if other > 0 and full > 0:
                    yield from self._moved(pieces, [run.numbers], [other * step + rest])

    def start_point(self) -> dict[str, int]:
        """Point of the base run: chunked prefill, or the first call if an encoder runs before the cache is filled.

        Prefill if the model rejects chunks.
        """
        chunks = self.workload.has_cache and CHUNKED not in self.workload.refused
        cached = 7 if chunks and not self.workload.has_encoder else 0
        return {**self.base, "batch_size": 2, "seq_len": self.tokens(NEW_TOKENS), "cache_len": cached}

    def tokens(self, groups: int) -> int:
        """``groups`` tokens. If the model pools several tokens into one: ``groups`` pools and a remainder."""
        few = self.workload.fewest_tokens
        return groups * few + (few // 2 if groups > 1 else 0)

    def _scout(self, setting: dict[str, int], target: str) -> None:
        """Symbolic runs of the other phases under a setting: there, the source may make other comparisons."""
        if not self.workload.has_cache:
            return
        start = {**self.start_point(), **setting}
        for phase in ({"cache_len": 0}, {"seq_len": 1}):
            if self.at({**start, **phase}) is not None:
                with contextlib.suppress(TraceFailed):  # if its path matters, a sample will request it again
                    self.add_symbolic({**start, **phase}, target)

    def add_symbolic(self, numbers: dict[str, int], target: str) -> None:
        """Add a symbolic run, and explore the points that its comparisons suggest."""
        self.symbolic.append(self.symbolic_run(numbers))
        self._explore_steps(self.symbolic[-1])
        self.follow(self.symbolic[-1], target)

    def explore_layers(self) -> None:
        """Explore other numbers of layers, for the classes that contain lists of layers."""
        start = self.start_point()
        for name in self.workload.full_layers:
            layers = fewest_layers(self.workload, name)
            if name in self.workload.in_order:
                self._explore_setting({name: layers})
            # With a full period of extra layers every kind occurs again, so wrong formulas differ.
            period = self.workload.layer_patterns[name].period if name in self.workload.layer_patterns else 0
            further = dict.fromkeys((1, 2, 5, *range(1, period + 1)))
            self.explore({**start, name: layers + more} for more in further)
            if layers > 1:
                # Kinds of layers may come in any order: a formula for the first layers may fail for all.
                self.explore([{**start, name: self.workload.full_layers[name]}])
            small = [n for n in self.base if 0 < start[n] <= layers and n not in self.workload.full_layers]
            tries = [(n, other) for n in small for other in (layers - 2, layers + 2) if other > 0]
            self.explore({**start, name: layers, n: other} for n, other in tries)

    def explore_layers_in_phases(self) -> None:
        """Explore more layers in every phase: operators of a layer in one phase only are counted by layers too."""
        for name in self.workload.full_layers:
            self.explore(self._corners({name: fewest_layers(self.workload, name) + MORE_LAYERS}))

    def explore_other_layers(self, run: Run, name: str, all_layers: bool) -> bool:
        """Explore the point of a run with another number of layers, or with all layers.

        Returns true if this added a run.
        """
        few, full = fewest_layers(self.workload, name), self.workload.full_layers[name]
        tries = dict.fromkeys((few + MORE_LAYERS, *([full] if few > 1 else []), few + 1, few + 5, full))
        changes = [dict(self.workload.full_layers)] if all_layers else [{name: layers} for layers in tries]
        return any(self._explore_new({**run.numbers, **change}) for change in changes)

    def _explore_new(self, point: dict[str, int]) -> bool:
        before = len(self.concrete)
        self.explore([point])
        return len(self.concrete) > before

    def explore_all_layers(self) -> None:
        """Explore every phase with all layers, if no formula gives the number of layers of each kind."""
        self.explore([p for p in self._corners(dict(self.workload.full_layers)) if p["batch_size"] > 1])

    def explore_sizes(self, all_layers: bool) -> None:
        """Explore many sizes of the call at the config's own values, to fit formulas to concrete runs only."""
        if not self.workload.has_tokens:
            counted = self.workload.full_layers if all_layers else self.workload.in_order
            for setting in (counted, {}) if counted else ({},):
                self.explore({**setting, "batch_size": b, "seq_len": NEW_TOKENS, "cache_len": 0} for b in BATCHES)
            return
        cached = (0, 1, 7, 20) if self.workload.has_cache else (0,)
        few = [self.tokens(groups) for groups in (1, 2, 5, 9)]
        tokens = dict.fromkeys((*few, *(m for s in self._steps() for m in (s, s + 2, 2 * s + 3, 3 * s + 1))))
        layers = self.workload.full_layers if all_layers else self.workload.in_order
        self.explore(
            {**layers, "batch_size": b, "seq_len": s, "cache_len": c}
            for c in cached
            for s in tokens
            for b in (1, 2, 3)
            if not all_layers or (b, c) != (3, 20)
        )
        # A square passes through any three batch sizes, so a fourth one is needed.
        self.explore({**layers, "batch_size": 5, "seq_len": s, "cache_len": 0} for s in few)
        if layers:
            self.explore(
                {"batch_size": b, "seq_len": s, "cache_len": c} for c in cached for s in tokens for b in (1, 3)
            )

    def _steps(self) -> list[int]:
        """Numbers of tokens that the source works on at a time, or compares the tokens with."""
        found = {
            evaluate(p.step, self.base)
            for run in self.symbolic
            for p in run.pieces
            if free_variables(p.total) == {"seq_len"}
        }
        limits = [limit for run in self.symbolic for limit in _bounds(run.limits, self.base)]
        return sorted(found | {bound for total, bound in limits if total == var("seq_len")})

    def does_nothing(self, class_path: str) -> bool:
        """True if no call of the class runs an operator."""
        runs = (*self.symbolic, *self.concrete)
        return not any(run.recording.below(call) for run in runs for call in run.calls_of(class_path))

    def holds_layers(self, class_path: str) -> bool:
        """True if the class contains a stack of layers."""
        prefixes = [f"{call.path}." if call.path else "" for call in self.symbolic[0].calls_of(class_path)]
        return any(stack.startswith(prefix) for stack in self.workload.stacks for prefix in prefixes)

    def shown(self, class_path: str) -> list[Run]:
        """The concrete runs that show this class.

        A class that counts layers needs runs with the model's own order of layers.
        """
        if not self.holds_layers(class_path):
            return self.concrete
        return [r for r in self.concrete if all(r.numbers[n] >= m for n, m in self.workload.in_order.items())]

    def _explore_setting(self, setting: dict[str, int], pairs: bool = False) -> bool:
        """Explore a setting; true if it can run. ``pairs``: few points that cover each pair of phase properties."""
        return self.explore([*self._corners(setting, pairs), *self._window_points(setting, pairs)])

    def _corners(self, setting: dict[str, int], pairs: bool = False) -> list[dict[str, int]]:
        """Points with batch and new tokens of one and of several, with and without a cache."""
        cached = (7, 0) if self.workload.has_cache else (0,)
        every = itertools.product((2, 1), (self.tokens(NEW_TOKENS), self.tokens(1)), cached)
        shapes = PAIRS if pairs and len(cached) > 1 else tuple(every)
        return [{**setting, "batch_size": b, "seq_len": s, "cache_len": c} for b, s, c in shapes]

    def _window_points(self, setting: dict[str, int], pairs: bool = False) -> list[dict[str, int]]:
        """Points on both sides of each size that the source compares a number of tokens with."""
        names: dict[str, None] = {}
        for _, condition in self.symbolic[0].conditions:
            if free_variables(condition) & {"seq_len", "cache_len"}:
                names.update(dict.fromkeys(n for n in sorted(free_variables(condition)) if n not in RUNTIME))
        found = []
        for name in names:
            w = setting.get(name, self.base[name])
            beyond = ((w + 3, 0), (w + 3, 7), (1, w + 6), (5, w + 6), (w + 3, w + 6), (1, 2 * w + 9))
            # All phases lie beyond a small window, so chunks inside it are explored too.
            inside = ((2, w - 4), (2, 1)) if w < 64 else ()
            shapes = [(b, s, c) for b in (2, 1) for s, c in (*beyond, *inside)]
            if pairs and name not in setting:
                shapes = [(2, w + 3, 7), (2, 1, w + 6), (1, w + 3, 0), (1, 5, w + 6)]
            # Points at the edge, for the config as it is; mixed kinds of layers stay in the model's order.
            if not set(setting) - set(self.workload.in_order):
                edge = (
                    (w - 1, 0),
                    (w, 0),
                    (1, w - 2),
                    (1, w - 1),
                    (1, w),
                    (5, w - 3),
                    (5, w - 1),
                    (w - 1, 7),
                )
                shapes += [(2, s, c) for s, c in edge]
            found += [
                {**setting, "batch_size": b, "seq_len": s, "cache_len": c}
                for b, s, c in dict.fromkeys(shapes)
                if s > 0 and c >= 0
            ]
        return found if self.workload.has_cache else [p for p in found if p["cache_len"] == 0]

    def _other_values(self) -> list[dict[str, int]]:
        """For a standalone module: every combination of flags (each pair if more than four), every size doubled."""
        flags = sorted(self.workload.flags)
        found = [
            dict(zip(flags, chosen, strict=True))
            for chosen in itertools.product((1, 0), repeat=len(flags))
            if 0 < len(flags) <= 4 or 0 < sum(c != self.base[f] for c, f in zip(chosen, flags, strict=True)) <= 2
        ]
        alone = self.workload.required and not self.workload.has_cache
        if alone or self.workload.vary:
            found += [{n: v * 2} for n, v in self.base.items() if n not in flags]
            found += [{n: v.default} for n, v in self.workload.variables.items() if v.default != self.base[n]]
        return [dict(t) for t in dict.fromkeys(tuple(sorted(f.items())) for f in found)]

    def follow(self, run: Run, target: str) -> None:
        """Explore settings in which a comparison of config sizes has the opposite result of this run."""
        for asked, condition in run.conditions:
            names = free_variables(condition)
            counted = {*RUNTIME, *self.workload.full_layers}
            if condition in self._flipped or not names or names & counted or target not in asked.within:
                continue
            self._flipped.add(condition)
            settings = ({**run.numbers, **self.base, **setting} for setting in self._settings)
            if any(_comes_out(condition, numbers, not asked.holds) for numbers in settings):
                continue  # a setting for another comparison shows the other side of this one too
            bounds = [int(c) for c in asked.expression.atoms(sympy.Integer)]
            flipped = False
            for name in sorted(names):
                # Sizes that are compared with one another may be equal.
                values = _nearby(run.numbers[name], [*bounds, *(run.numbers[n] for n in sorted(names - {name}))])
                # The source makes the same comparisons there, whichever size changed the result.
                flipped |= self._flip(name, asked, condition, run, "" if flipped else target, values)
            if not flipped and not names & {*self.call_sizes}:
                # A quotient of two sizes may change far beyond both, at a multiple of the other one only.
                any(
                    self._flip(name, asked, condition, run, target, [*_beyond(condition, name, run.numbers)])
                    for name in sorted(names)
                )

    def _flip(
        self, name: str, asked: Asked, condition: Condition, run: Run, target: str, values: Sequence[int]
    ) -> bool:
        """Explore the first value of a size that changes the result of a comparison; true if there is one.

        With a ``target``, the other phases are run symbolically there too.
        """
        here = {n: v for n, v in run.numbers.items() if n not in RUNTIME and v != self.base[n]}
        for value in values:
            if not _comes_out(condition, {**run.numbers, name: value}, not asked.holds):
                continue
            if not self._add_setting({**here, name: value}):
                continue
            self._add_setting({name: value})
            if target and not here:
                self._scout({**here, name: value}, target)
            # A divisor may be 1: the dimension then broadcasts and needs no copy.
            divisors = {s.name for q in asked.expression.atoms(sympy.Function) for s in q.args[-1].free_symbols}
            if name in divisors and self._add_setting({name: 1}):
                self.compared[name] = None
            return True
        return False

    def _add_setting(self, change: dict[str, int]) -> bool:
        """Explore a config change separately and combined with earlier ones; true if it can run."""
        ran = False
        for setting in list(self._settings):
            merged = {**setting, **change}
            if merged in self._settings:
                ran = True
            elif len(self._settings) < MAX_SETTINGS and self._explore_setting(merged, pairs=self._joins(merged)):
                self._settings.append(merged)
                ran = True
        return ran

    def _joins(self, setting: dict[str, int]) -> bool:
        """True if each of several changes was explored separately."""
        return len(setting) > 1 and all({name: value} in self._settings for name, value in setting.items())


def _bounds(limits: Iterable[Condition], numbers: Mapping[str, int]) -> list[tuple[Expr, int]]:
    """Size and number of each limit."""
    return [(c.left, evaluate(c.right, numbers)) for c in limits if isinstance(c, Compare)]


def _sizes_in_pieces(step: int) -> tuple[int, ...]:
    """Sizes below one piece, of one, one with a rest, several with and without a rest, and of many."""
    rest = min(3, step - 1)
    few = (step - 1, step, step + rest, 2 * step, 2 * step + 1, 2 * step + rest)
    # Three points of a family with a common rest make a formula, and a fourth one confirms it.
    return (*few, 3 * step, 3 * step + 1, 4 * step + 1, 5 * step + 2, 6 * step, 7 * step + 1)


def _of_the_call(size: Size, call: Set[str]) -> Expr | None:
    """The part of a size that is a sum of sizes of the call, such as ``{seq_len}`` in ``-{seq_len}`` or with 63 more.

    A remainder is left out, because it only rounds. None if there is no such part or more than that.
    """
    terms = as_polynomial(size) if isinstance(size, Expr) else {}
    found = {m: c for m, c in terms.items() if m and all(isinstance(a, Var) and a.name in call for a, _ in m)}
    others = [
        m for m in terms if m not in found and any(not isinstance(a, Mod) and free_variables(a) & call for a, _ in m)
    ]
    if others or any(p != 1 for m in found for _, p in m) or set(found.values()) not in ({1}, {-1}):
        return None
    return from_polynomial(dict.fromkeys(found, 1))


def _comes_out(condition: Condition, numbers: Mapping[str, int], so: bool) -> bool:
    """True if a comparison has the result ``so``. False if it divides by 0: such sizes cannot be built."""
    try:
        return evaluate_condition(condition, numbers) == so
    except EvaluationError:
        return False


def _beyond(condition: Condition, name: str, numbers: Mapping[str, int]) -> Iterator[int]:
    """Values of a size just beyond the one at which a comparison changes, as multiples of the other sizes in it."""
    low = numbers[name]
    here = _comes_out(condition, numbers, so=True)
    high = next((low << k for k in range(1, 11) if _comes_out(condition, {**numbers, name: low << k}, not here)), None)
    if high is None:
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _comes_out(condition, {**numbers, name: middle}, not here) else (middle, high)
    for other in sorted(free_variables(condition) - {name}):
        yield from (-(-high // step) * step for step in (2 * numbers[other], numbers[other]))
    yield high


def _nearby(value: int, bounds: Sequence[int]) -> list[int]:
    """Other values to try for a size: halves and multiples, which keep most config constraints, then the bounds."""
    powers = (value // 2, value * 2, value // 4, value * 4, value // 8)
    tries = (*powers, value + 1, *bounds, *(b * 2 for b in bounds), *(b + d for b in bounds for d in (1, -1)))
    return [v for v in dict.fromkeys(tries) if v > 1 and v != value]
