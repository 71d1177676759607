"""Intervals of held-out errors: the shortest one, its factor, and that no fold is scored by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("sklearn")

from lmp.predict.fit.intervals import Errors, crossed, folds, nested, shipped, shortest


def drawn(sites: int, rows: int, between: float, within: float, seed: int = 0) -> Errors:
    """Errors of sites that differ by ``between``, with twice the noise where the first feature is 1."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(sites), rows)
    noisy = rng.integers(0, 2, len(site)).astype(float)
    left = rng.normal(0, between, sites)[site] + rng.normal(0, within, len(site)) * (1 + noisy)
    return Errors(np.column_stack([noisy, rng.random(len(site))]), left, site)


def test_the_shortest_interval_by_hand() -> None:
    """8 of 10 values: 0 to 7 is 7 wide, 1 to 8 too; with the outlier, 90 to 100 is out."""
    assert shortest(np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 90, 100])) == (0.0, 7.0)
    # Shifted to one side, it still has the prediction in it.
    assert shortest(np.array([3.0, 4, 5, 6, 7, 8, 9, 10, 90, 100])) == (0.0, 10.0)


def test_a_fold_has_whole_sites() -> None:
    site = np.array([5, 5, 7, 7, 9, 9, 11])
    fold = folds(site, 3, "salt")
    assert all(len(np.unique(fold[site == one])) == 1 for one in np.unique(site))
    assert len(np.unique(fold)) == 3


def test_intervals_cover_sites_that_they_did_not_see() -> None:
    many = [drawn(60, 40, 0.05, 0.03, seed) for seed in range(3)]
    inside, wide = [], []
    for errors, (low, high) in zip(many, nested(many), strict=True):
        assert np.isfinite(low).all()
        inside.append((low <= errors.left) & (errors.left <= high))
        wide.append(high - low)
    # 7,200 rows of 180 sites: one standard deviation of the covered share is about 2 %.
    assert 0.72 <= np.concatenate(inside).mean() <= 0.86
    noisy = np.concatenate([errors.features[:, 0] for errors in many]) > 0
    assert np.median(np.concatenate(wide)[noisy]) > 1.1 * np.median(np.concatenate(wide)[~noisy])


def test_no_interval_depends_on_the_rows_that_it_is_scored_on() -> None:
    """Errors of one site become 100 times as large: the intervals of its own fold stay, those of others do not."""
    errors = drawn(16, 30, 0.05, 0.03)
    fold = folds(errors.site, 4, "outer")
    out = fold == fold[0]
    changed = Errors(
        errors.features, np.where(errors.site == errors.site[0], 100 * errors.left, errors.left), errors.site
    )
    ((low, high),), ((other_low, other_high),) = nested([errors]), nested([changed])
    assert np.array_equal(low[out], other_low[out])
    assert np.array_equal(high[out], other_high[out])
    assert not np.array_equal(high[~out], other_high[~out])


def test_one_site_has_nothing_to_be_scored_by() -> None:
    low, high = crossed(drawn(1, 50, 0.05, 0.03), 4, "salt")
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_few_sites_have_one_width_to_both_sides() -> None:
    (data,) = shipped([drawn(3, 50, 0.05, 0.03)])
    assert data["low"] == -data["high"]
    assert data["size"]["splits"] == []
    assert math.isfinite(data["high"])
