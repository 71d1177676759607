"""Intervals from held-out predictions: how far a row may be off, fitted and scored on sites that are not the same.

A forest says the size of a row's error; the shortest interval of errors over that size covers 80 %. On sites that were
not seen it covers less, so it is widened by a factor. Sites are split in folds: the factor of a fold, like its forest,
comes from the other folds alone, and the fold is what it is scored on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.predict import trees
from lmp.predict.calibration import Width, width_of
from lmp.predict.fit.fitting import exported, needed
from lmp.predict.kernels.base import Array

SHARE = 0.8
TARGET = 0.77
"""Share of rows of unseen sites that the factor is set to cover. The shipped fit sees more sites than any fold."""
OUTER, INNER = 4, 3
"""Folds that are scored, and folds within the others that decide the factor."""
TREES, LEAVES, RATE = 80, 8, 0.1
LEAST_SHARE = 0.005
"""Part of the rows that a leaf has at least."""
FEW_SITES = 5
"""With fewer sites, errors have one size: nothing tells which shapes are worse."""
OWN_SITES = 8.0
"""Sites with which a slot's own factor counts as much as that of all slots of its variant."""
FACTORS = (0.4, 6.0)
UNKNOWN_FACTOR = 1.5
"""Where no site is left to compare with."""
LEAST_ERROR = 0.02
LEAST_ROWS = 16


@dataclass
class Errors:
    """Held-out log errors of one slot."""

    features: NDArray[np.float64]
    left: Array
    """Logarithm of measured / predicted."""
    site: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> Errors:
        return Errors(self.features[rows], self.left[rows], self.site[rows])

    @property
    def sites(self) -> int:
        return len(np.unique(self.site))


def fit_width(errors: Errors) -> Width:
    """The interval of these rows."""
    return width_of(fit_width_data(errors))


def fit_width_data(errors: Errors, factor: float = 1.0) -> dict[str, Any]:
    """The same as it is stored, with ends multiplied by the factor."""
    data = exported([], errors.features.shape[1], 0.0)
    if errors.sites >= FEW_SITES:
        model = needed("sklearn.ensemble").HistGradientBoostingRegressor(
            loss="squared_error", max_iter=TREES, max_leaf_nodes=LEAVES, learning_rate=RATE, l2_regularization=5.0,
            min_samples_leaf=max(8, int(LEAST_SHARE * len(errors.left))), max_features=0.5, early_stopping=False,
            random_state=0,
        ).fit(errors.features, np.log(np.abs(errors.left) + LEAST_ERROR))  # fmt: skip
        base = float(np.ravel(model._baseline_prediction)[0])
        data = exported([nodes.nodes for (nodes,) in model._predictors], errors.features.shape[1], base)
    in_sizes = errors.left / np.exp(trees.read(data)(errors.features))
    # A few sites do not tell on which side the next one errs.
    both = float(np.quantile(np.abs(in_sizes), SHARE))
    low, high = shortest(in_sizes) if errors.sites >= FEW_SITES else (-both, both)
    return {"size": data, "low": round(factor * low, 5), "high": round(factor * high, 5)}


def shortest(values: Array) -> tuple[float, float]:
    """The shortest interval with ``SHARE`` of the values; the prediction is in it."""
    ordered = np.sort(values)
    count = max(1, int(np.ceil(SHARE * len(ordered)))) - 1
    start = int(np.argmin(ordered[count:] - ordered[: len(ordered) - count]))
    return min(float(ordered[start]), 0.0), max(float(ordered[start + count]), 0.0)


def folds(site: NDArray[np.int64], count: int, salt: str) -> NDArray[np.int64]:
    """The fold of each row: whole sites, drawn by a hash."""
    drawn = sorted(np.unique(site), key=lambda one: hashlib.sha256(f"{salt}|{one}".encode()).digest())
    place = {one: number % count for number, one in enumerate(drawn)}
    return np.array([place[one] for one in site])


def crossed(errors: Errors, count: int, salt: str) -> tuple[Array, Array]:
    """Ends of each row's interval, of a width fitted on the other folds; NaN where there is none."""
    low, high = np.full(len(errors.left), np.nan), np.full(len(errors.left), np.nan)
    count = min(count, errors.sites)
    if count < 2:
        return low, high
    fold = folds(errors.site, count, salt)
    for one in range(count):
        out = fold == one
        if (~out).sum() >= LEAST_ROWS:
            low[out], high[out] = fit_width(errors.take(~out)).ends(errors.features[out])
    return low, high


def factors(all_errors: Sequence[Errors], count: int, salt: str) -> list[float]:
    """The factor of each slot of a variant: its own, drawn towards that of all slots where it has few sites."""
    needs = []
    for errors in all_errors:
        low, high = crossed(errors, count, salt)
        known = np.isfinite(low)
        end = np.where(errors.left > 0, np.maximum(high, 1e-4), np.minimum(low, -1e-4))
        needs.append((errors.left / end)[known])
    together = np.concatenate(needs)
    pooled = _factor(together) if len(together) else UNKNOWN_FACTOR
    found = []
    for errors, need in zip(all_errors, needs, strict=True):
        weight = errors.sites / (errors.sites + OWN_SITES) if len(need) else 0.0
        own = _factor(need) if len(need) else 1.0
        found.append(float(own**weight * pooled ** (1 - weight)))
    return found


def _factor(needs: Array) -> float:
    return float(np.clip(np.quantile(needs, TARGET), *FACTORS))


def nested(all_errors: Sequence[Errors]) -> list[tuple[Array, Array]]:
    """Ends of each row's interval for all slots of a variant: forest and factor are of other folds. NaN: none."""
    found = [(np.full(len(e.left), np.nan), np.full(len(e.left), np.nan)) for e in all_errors]
    fold = [folds(errors.site, OUTER, "outer") for errors in all_errors]
    for one in range(OUTER):
        seen = [errors.take(f != one) for errors, f in zip(all_errors, fold, strict=True)]
        usable = [number for number, errors in enumerate(seen) if len(errors.left) >= LEAST_ROWS]
        wider = factors([seen[number] for number in usable], INNER, f"inner{one}")
        for number, factor in zip(usable, wider, strict=True):
            out = fold[number] == one
            if out.any():
                low, high = fit_width(seen[number]).ends(all_errors[number].features[out])
                found[number][0][out], found[number][1][out] = factor * low, factor * high
    return found


def shipped(all_errors: Sequence[Errors]) -> list[dict[str, Any]]:
    """What the calibration keeps of each slot, from all of its sites."""
    wider = factors(all_errors, OUTER, "outer")
    return [fit_width_data(errors, factor) for errors, factor in zip(all_errors, wider, strict=True)]
