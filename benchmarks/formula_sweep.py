"""Measures the speed of `evaluate_many` against a loop of `evaluate`, and the time of a simplification.

python benchmarks/formula_sweep.py [points]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from lmp.formula import evaluate, evaluate_many, parse, simplify

FORMULAS = {
    "attention, int64": "4 * {b} * {s} * ({s} + {c}) * {h} * {d} + 5 * {b} * {h} * {s} * ({s} + {c})",
    "bytes with //, % and ceil": "({b} * {s} // 16 + {c} % 7) * 2 + ceil({c} / 128) * {d}",
    "where on half of the points": "where({s} <= {c}, {b} * {s} * {d}, {b} * {c} * {d} + {s})",
    "beyond 64 bits": "{b} * {s} * {h} ** 6 * {d} ** 6 + {c}",
    "fractions": "ceil({b} / 3 + {s} / 7)",
}
LOOP = 2_000
"""Points that the scalar loop is timed on."""


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main(points: int) -> None:
    random = np.random.default_rng(0)
    values = {
        "b": random.integers(1, 64, points),
        "s": random.integers(1, 4096, points),
        "c": random.integers(0, 4096, points),
        "h": 32,
        "d": 128,
    }
    first = [
        {name: v if isinstance(v, int) else int(v[i]) for name, v in values.items()} for i in range(min(LOOP, points))
    ]
    print(f"{'formula':30} {'evaluate_many':>15} {'loop, scaled':>15} {'ratio':>8}   result")
    for title, text in FORMULAS.items():
        expr = parse(text)
        many = seconds(lambda expr=expr: evaluate_many(expr, values))  # type: ignore[misc]
        loop = seconds(lambda expr=expr: [evaluate(expr, point) for point in first])  # type: ignore[misc]
        loop *= points / len(first)
        found = evaluate_many(expr, values)
        assert [int(v) for v in found[: len(first)]] == [evaluate(expr, point) for point in first]
        print(f"{title:30} {many * 1e3:12.1f} ms {loop * 1e3:12.1f} ms {loop / many:7.0f}x   {found.dtype}")
    terms = parse(" + ".join(f"{i + 2} * {{seq_len}} * {{batch_size}} * {{u{i}}} * {{v{i % 7}}}" for i in range(30)))
    print(f"simplify, 30 terms of 5 factors: {seconds(lambda: simplify(terms), 20) * 1e3:.2f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10**6)
