"""Sizes of a call at which two comparisons of a model come out together as no run before."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from lmp.analyze.branches import explore_pairs
from lmp.formula import evaluate_condition, parse_condition

# As a model with a buffer of four tokens compares them: a block is emitted now, one was before, and there is a cache.
EMITTED, BEFORE, CACHED = map(
    parse_condition,
    ("({seq_len} + {cache_len}) // 4 > {cache_len} // 4", "{cache_len} // {block} > 0", "{cache_len} > 0"),
)
SEVERAL = parse_condition("{batch_size} > 1")
START = {"batch_size": 2, "seq_len": 5, "cache_len": 7, "block": 4}


class Runs:
    """The runs of a model that makes these comparisons, as `explore_pairs` uses them."""

    def __init__(self, refused: tuple[str, ...] = ()) -> None:
        self.paired: set[Any] = set()
        self.call_sizes = ("batch_size", "seq_len", "cache_len")
        self.base = {"block": 4}
        self.workload = SimpleNamespace(has_cache=True, refused=refused)
        asked = [(SimpleNamespace(file="m.py", line=line), c) for line, c in enumerate((EMITTED, BEFORE, CACHED))]
        self.symbolic = [SimpleNamespace(numbers=START, conditions=asked)]
        phases = [START, {**START, "seq_len": 1}, {**START, "cache_len": 0}, {**START, "seq_len": 1, "cache_len": 0}]
        self.concrete = [SimpleNamespace(numbers=numbers) for numbers in phases]

    def start_point(self) -> dict[str, int]:
        return dict(START)

    def explore(self, points: list[dict[str, int]]) -> bool:
        recording = SimpleNamespace(operators=[])
        self.concrete += [SimpleNamespace(numbers=numbers, recording=recording) for numbers in points]
        return True

    def results(self, *conditions: Any) -> set[tuple[bool, ...]]:
        return {tuple(evaluate_condition(c, run.numbers) for c in conditions) for run in self.concrete}


def test_each_pair_of_results_is_executed():
    """A block emitted with cached tokens but no block before needs a cache of 1 to 3: no phase has one."""
    runs = Runs()
    assert all(not 0 < run.numbers["cache_len"] < 4 for run in runs.concrete)
    explore_pairs(runs)  # type: ignore[arg-type]
    every = set(itertools.product((True, False), repeat=3))
    # Each for several sequences and for one: dimensions of one need no copy.
    assert runs.results(EMITTED, BEFORE, SEVERAL) == every
    assert runs.results(EMITTED, CACHED, SEVERAL) == every
    # A block before needs cached tokens: the pair (true, false) has no sizes.
    assert runs.results(BEFORE, CACHED, SEVERAL) == every - {(True, False, True), (True, False, False)}


def test_pairs_are_executed_at_more_tokens_too():
    """Of one token after 7 a formula may say two blocks: it is right there, and wrong after 31."""
    runs = Runs()
    explore_pairs(runs)  # type: ignore[arg-type]
    for several in (True, False):
        caches = {
            run.numbers["cache_len"]
            for run in runs.concrete
            if run.numbers["seq_len"] == 1
            and (run.numbers["batch_size"] > 1) is several
            and evaluate_condition(EMITTED, run.numbers)
            and evaluate_condition(BEFORE, run.numbers)
        }
        assert min(caches) == 7
        assert max(caches) >= 3 * 7


def test_what_was_executed_is_not_looked_for_again():
    runs = Runs()
    explore_pairs(runs)  # type: ignore[arg-type]
    number = len(runs.concrete)
    explore_pairs(runs)  # type: ignore[arg-type]
    assert len(runs.concrete) == number


def test_a_phase_that_the_model_refuses_is_not_executed():
    runs = Runs(refused=("chunked prefill",))
    explore_pairs(runs)  # type: ignore[arg-type]
    assert all(run.numbers["seq_len"] == 1 or not run.numbers["cache_len"] for run in runs.concrete[4:])
    assert len(runs.concrete) > 4
