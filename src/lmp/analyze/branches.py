"""Finds sizes of a call that take other branches than the runs so far, and executes them.

For a user's module: a symbolic run tells what its path compared, in order. For each comparison with a size of the call,
sizes are looked for at which everything before it comes out as in that run, and the comparison itself does not. The run
there is symbolic too, so comparisons inside a branch are met.

For a model: its comparisons of sizes of the call are taken two at a time. Each pair of results is executed. A buffer
of tokens may be full while no earlier one was: the two comparisons then tell paths apart that one cannot.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from lmp.errors import TraceFailed
from lmp.formula import Condition, free_variables, gt, num, simplify_condition, substitute, var
from lmp.trace.runs import MOST_TOKENS, Run, Runs
from lmp.verify.arms import Way, meets, truths
from lmp.verify.solving import Budget, Domain, solution
from lmp.workload.base import CHUNKED

MOST_BRANCHES = 12
"""Most symbolic runs that are made to take other branches."""

MOST_EVALUATIONS = 400
"""Most evaluations of conditions in the search of the sizes for one branch."""

MOST_EDGE = 1 << 12
"""Largest size at which the edge of a path is looked for."""

LOOPED = 2
"""A comparison that a run makes at one line more often than this is a loop's, and no branch."""

MOST_PAIRS = 96
"""Most points that are executed for pairs of comparisons, each time symbolic runs were added."""

MOST_TOGETHER = 1 << 13
"""Largest size at which a pair of comparisons is executed."""

MOST_OPERATORS = 20_000
"""After a run with more operators no further pairs are executed: a loop over the tokens takes long."""


def explore_pairs(runs: Runs) -> None:
    """Execute sizes of the call for each pair of results of two comparisons that the source of a model makes of them.

    Each is executed for several sequences and for one, at few and at more tokens. The other sizes are the config's own.
    Pairs whose sizes are not found near the first run are left to the judge.
    """
    asked = _of_the_call(runs)
    if runs.paired.issuperset(asked):
        return
    start = runs.start_point()
    own = {name: value for name, value in start.items() if name not in runs.call_sizes}
    longer = {**start, **{name: LONGER * start[name] for name in LENGTHS}}
    left = MOST_PAIRS
    # A number fitted at one size may be right there by chance, so each way is executed at longer sizes too.
    for base, times in ((start, 0), (longer, LONGER // 2)):
        numbers = [run.numbers for run in runs.concrete if own.items() <= run.numbers.items()]
        met = [truths(n) for n in numbers if all(n[name] <= 1 or n[name] >= times * start[name] for name in LENGTHS)]
        for way in _ways(asked, runs.paired):
            if left <= 0 or any(meets(way, truth) for truth in met):
                continue
            point = _near(base, way, runs)
            before = len(runs.concrete)
            if point is not None and runs.explore([point]):
                met.append(truths(point))
                left -= len(runs.concrete) - before
                if len(runs.concrete[-1].recording.operators) > MOST_OPERATORS:
                    left = 0
    runs.paired.update(asked)


def _ways(asked: Sequence[Condition], known: Collection[Condition]) -> Iterator[Way]:
    """Each pair of comparisons or phases with each pair of results, for several sequences and for one.

    One sequence has paths of its own, because dimensions of 1 need no copy. Pairs of ``known`` ones are left out.
    """
    for pair in itertools.combinations(dict.fromkeys([*asked, *PHASES]), 2):
        if not {*pair} <= {*known, *PHASES}:
            for *results, several in itertools.product((True, False), repeat=3):
                yield (*zip(pair, results, strict=True), (SEVERAL, several))


LENGTHS = ("seq_len", "cache_len")
LONGER = 6
"""Times as many tokens that the second point of a pair has."""

PHASES = (gt(var("seq_len"), 1), gt(var("cache_len"), 0))
SEVERAL = gt(var("batch_size"), 1)


def _of_the_call(runs: Runs) -> list[Condition]:
    """Comparisons of sizes of the call in the source, at the config's own values. Those of loops are left out."""
    found: dict[Condition, None] = {}
    for run in runs.symbolic:
        times = Counter((asked.file, asked.line) for asked, _ in run.conditions)
        for asked, condition in run.conditions:
            names = free_variables(condition)
            if names & {*runs.call_sizes} and names <= run.numbers.keys() and times[asked.file, asked.line] <= LOOPED:
                own = {name: num(runs.base[name]) for name in names - {*runs.call_sizes}}
                found[simplify_condition(substitute(condition, own))] = None
    return list(found)


def _near(base: Mapping[str, int], way: Way, runs: Runs) -> dict[str, int] | None:
    """Sizes of the call near these, in some phase, that go this way; None if none are found."""
    has_cache = runs.workload.has_cache
    free = {*runs.call_sizes} - (set() if has_cache else {"cache_len"})
    for phase in ({}, {"seq_len": 1}, {"cache_len": 0}):
        found = solution(way, {**base, **phase}, Domain(free), Budget(MOST_EVALUATIONS))
        if found is not None and max(found[name] for name in free) <= MOST_TOGETHER:
            is_chunk = found["seq_len"] > 1 and found["cache_len"] > 0
            if not (is_chunk and CHUNKED in runs.workload.refused):
                return found
    return None


def explore_branches(runs: Runs, class_path: str) -> None:
    """Execute sizes of the call for each side of each comparison on each path of the class."""
    tried: set[Way] = set()
    left = MOST_BRANCHES
    looked_at = 0
    while left and looked_at < len(runs.symbolic):
        run = runs.symbolic[looked_at]
        looked_at += 1
        runs.explore(_edges(run, class_path, runs))
        for way in _other_ways(run, class_path, runs.call_sizes):
            if not left or way in tried:
                continue
            tried.add(way)
            point = _point(way, run, runs)
            if point is None or not runs.explore([point]):
                continue
            runs.explore(
                [{**point, "batch_size": size} for size in (1, 2) if _goes({**point, "batch_size": size}, way)]
            )
            left -= 1
            with contextlib.suppress(TraceFailed):  # if its path matters, a sample will request it again
                runs.add_symbolic(point, class_path)


def _other_ways(run: Run, class_path: str, call_sizes: tuple[str, ...]) -> Iterator[Way]:
    """For each comparison of a run: all before it as they came out, and this one the other way."""
    times = Counter((asked.file, asked.line) for asked, _ in run.conditions)
    before: Way = ()
    for asked, condition in run.conditions:
        names = free_variables(condition)
        if not names <= run.numbers.keys() or times[asked.file, asked.line] > LOOPED:
            continue
        if names & set(call_sizes) and class_path in asked.within:
            yield (*before, (condition, not asked.holds))
        before = (*before, (condition, asked.holds))


def _edges(run: Run, class_path: str, runs: Runs) -> Iterator[dict[str, int]]:
    """The last sizes of the call, each changed alone, at which a run's path is still the same; and one before them."""
    path: Way = ()
    moved: dict[str, None] = {}
    for way in _other_ways(run, class_path, runs.call_sizes):
        *before, (condition, turned) = way
        path = (*before, (condition, not turned))
        moved.update(dict.fromkeys(sorted(free_variables(condition) & set(runs.call_sizes))))
    for name in moved:
        inside = run.numbers[name]
        least = 0 if name == "cache_len" else 1
        for outside in (least, 2 * inside + 1, 16 * inside + 1, MOST_EDGE):
            if _goes({**run.numbers, name: outside}, path):
                continue
            low = inside
            while abs(outside - low) > 1:
                middle = (low + outside) // 2
                low, outside = (middle, outside) if _goes({**run.numbers, name: middle}, path) else (low, middle)
            towards = 1 if low < inside else -1
            yield from ({**run.numbers, name: size} for size in (low, low + towards) if size not in (inside, least))


def _point(way: Way, run: Run, runs: Runs) -> dict[str, int] | None:
    """Sizes of the call that go this way, near those of the run; None if a symbolic run went it, or if none are found.

    Where a concrete run went it, its sizes; sizes of 1 have paths of their own.
    """
    if any(_goes(known.numbers, way) for known in runs.symbolic):
        return None
    own = [known.numbers for known in runs.concrete if all(known.numbers[n] == v for n, v in _arguments(run, runs))]
    went = [numbers for numbers in own if _goes(numbers, way)]
    if went:
        return max(went, key=lambda numbers: min(numbers[name] for name in ("batch_size", "seq_len")) > 1)
    free = set(runs.call_sizes) - (set() if runs.workload.has_cache else {"cache_len"})
    found = solution(way, run.numbers, Domain(free), Budget(MOST_EVALUATIONS))
    if found is None or max(found[name] for name in free if name in found) > MOST_TOKENS:
        return None
    return found


def _arguments(run: Run, runs: Runs) -> Iterator[tuple[str, int]]:
    return ((name, value) for name, value in run.numbers.items() if name not in runs.call_sizes)


def _goes(numbers: dict[str, int], way: Way) -> bool:
    return meets(way, truths(numbers))
