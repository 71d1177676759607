"""Assumptions of a draft on the sizes of a call: they must leave intervals, not a list of points."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from lmp.errors import LmpError
from lmp.formula import Condition, Num, evaluate_many, free_variables, parse_condition, walk, where
from lmp.records import UNIVERSAL, GateFinding

CALL_SIZES = frozenset({"batch_size", "seq_len", "cache_len"})
"""Sizes that every call may vary."""

NEAR = tuple(range(65))
"""Small sizes that are tried, all of them."""

FAR = tuple(range(5040, 5040 + 65))
"""Large sizes: every period up to 10 has a multiple among them. A list of points has none."""

OTHERS = (0, 1, 2, 3, 7, 64, 5040)
"""Values of the other sizes of a call."""

RUN = 3
"""Neighbouring sizes that make an interval."""

MOST_TRIES = 3000
"""Combinations of the other sizes that are tried."""

SIZE = 64
"""Value of a config's size without one."""


def isolated(assumptions: Sequence[str], values: Mapping[str, int]) -> Iterator[GateFinding]:
    """A finding for each assumption that leaves a size of the call no interval and no period, only single points.

    One token, one sequence and an empty cache are phases and may be the only ones. ``values``: the config's.
    """
    for text in assumptions:
        condition = parse_condition(text)
        for name in sorted(free_variables(condition) & CALL_SIZES):
            left = _left(condition, name, values)
            if left and not _is_phase(left) and not _is_interval(left) and not any(n in left for n in FAR):
                few = ", ".join(map(str, sorted(left)[:4]))
                yield GateFinding(
                    rule="variable",
                    message=f"assumption {_short(text)}: it leaves {name} single values ({few}), no interval; formulas "
                    "must hold at every size that runs, as with where(condition, a, b)",
                    claimed=text[:200],
                )
                break


def _left(condition: Condition, name: str, values: Mapping[str, int]) -> set[int]:
    """The tried values of a size for which other sizes exist that fulfil the condition."""
    import numpy as np

    names = free_variables(condition)
    others = sorted(n for n in names if n in CALL_SIZES and n != name)
    config = {n: values.get(n, SIZE) for n in names if n not in CALL_SIZES} | dict.fromkeys(UNIVERSAL, 2)
    near = sorted({n + d for n in {*_numbers(condition), *config.values()} for d in (-1, 0, 1) if n + d > 0})
    tried = sorted({*NEAR, *near, *FAR})
    rest = list(itertools.islice(itertools.product(*[(*OTHERS, *near)] * len(others)), MOST_TRIES))
    columns = {n: np.array([each[index] for each in rest])[None, :] for index, n in enumerate(others)}
    try:
        found = evaluate_many(where(condition, 1, 0), {**config, **columns, name: np.array(tried)[:, None]})
    except LmpError:
        return set(tried)  # it has no value somewhere: the judge says at which point
    table = np.broadcast_to(found, (len(tried), len(rest)))
    return {value for value, holds in zip(tried, table, strict=True) if holds.any()}


def _short(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _numbers(condition: Condition) -> set[int]:
    """The integers that a condition names."""
    return {node.value for node in walk(condition) if isinstance(node, Num) and isinstance(node.value, int)}


def _is_phase(left: Collection[int]) -> bool:
    return set(left) <= {0, 1}


def _is_interval(left: Collection[int]) -> bool:
    return any(all(n + d in left for d in range(RUN)) for n in left)
