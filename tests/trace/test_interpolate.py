"""Polynomials through samples, with exact coefficients. The samples are made from the expected formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from lmp.formula import parse, simplify
from lmp.trace.fit import Point, Sample
from lmp.trace.interpolate import polynomial

GRID = list(itertools.product((1, 2, 3), (1, 2, 5, 9, 64, 131), (0, 1, 7, 20)))


def samples(value: Callable[[int, int, int], int], points: list[tuple[int, int, int]] = GRID) -> list[Sample]:
    return [Sample(Point({"batch_size": b, "seq_len": s, "cache_len": c}), value(b, s, c)) for b, s, c in points]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda b, s, c: 12, "12"),
        (lambda b, s, c: 6 * b * s + 10 * b, "10 * {batch_size} + 6 * {batch_size} * {seq_len}"),
        (lambda b, s, c: 4 * b * s * (s + c), "4 * {batch_size} * {seq_len} * ({seq_len} + {cache_len})"),
        (lambda b, s, c: b * s * (s + 1) // 2, "{batch_size} * {seq_len} * ({seq_len} + 1) / 2"),
        (lambda b, s, c: 40 * b * b, "40 * {batch_size} ** 2"),
    ],
)
def test_the_polynomial_that_made_the_samples(value: Callable[[int, int, int], int], text: str) -> None:
    assert polynomial(samples(value)) == simplify(parse(text))


def test_a_number_of_chunks_is_a_size_of_its_own() -> None:
    chunks = parse("({seq_len} + 63) // 64")
    # 64 rows of 3 bytes per chunk and sequence, and 7 bytes per token
    found = polynomial(samples(lambda b, s, c: 192 * b * ((s + 63) // 64) + 7 * b * s), [chunks])
    assert found == simplify(parse("192 * {batch_size} * (({seq_len} + 63) // 64) + 7 * {batch_size} * {seq_len}"))


def test_what_no_polynomial_says_has_none() -> None:
    assert polynomial(samples(lambda b, s, c: b * (s % 3))) is None


def test_as_many_samples_as_coefficients_prove_nothing() -> None:
    # a constant passes through any single sample; two more that agree prove it
    assert polynomial(samples(lambda b, s, c: 5, [(1, 1, 0)])) is None
    assert polynomial(samples(lambda b, s, c: 5, [(1, 1, 0), (2, 1, 0), (1, 5, 7)])) == parse("5")


def test_a_square_takes_more_batches_than_it_has_coefficients() -> None:
    # 10 * b from b = 2 on, 0 at b = 1: 35 * b - 5 * b * b - 30 passes through b = 1, 2, 3 and is below 0 at b = 8
    def apart(b: int, s: int, c: int) -> int:
        return 10 * b if b > 1 else 0

    assert polynomial(samples(apart)) is None
    more = [*GRID, (5, 5, 0)]
    assert polynomial(samples(apart, more)) is None
    found = polynomial(samples(lambda b, s, c: 40 * b * b + 3 * b, more))
    assert found == simplify(parse("40 * {batch_size} ** 2 + 3 * {batch_size}"))


def test_a_size_without_a_value_somewhere_is_no_term() -> None:
    # A number of chunks of the cached tokens: without cached tokens, it has no value.
    chunks = parse("(4 * {cache_len} - 1) // {cache_len}")
    found = polynomial(samples(lambda b, s, c: 7 * b * s), [chunks])
    assert found == simplify(parse("7 * {batch_size} * {seq_len}"))
    assert polynomial(samples(lambda b, s, c: (b * s) ** 3), [chunks]) is None


def test_without_tokens_the_batch_alone_says_what_changes() -> None:
    # 7 * batch + 2. A term in seq_len would fit too, because seq_len is 5 in every sample.
    points = [(b, 5, 0) for b in (2, 5, 6, 8, 11)]
    found = polynomial(samples(lambda b, s, c: 7 * b + 2, points), tokens=False)
    assert found == simplify(parse("7 * {batch_size} + 2"))
