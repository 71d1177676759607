"""Fit of one slot: parameters by Nelder-Mead on the log error, and trees on what the model leaves."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.errors import EngineMissing
from lmp.predict.calibration import Slot
from lmp.predict.curves import hats
from lmp.predict.devices import device_named
from lmp.predict.fit.data import Measured
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array, Family, Parameter
from lmp.predict.prediction import described, time_of

UNIT = 1e-4
"""Resolution of a leaf's value: a hundredth of a per cent."""


@dataclass(frozen=True)
class Recipe:
    """How a family is fitted."""

    sample: int = 4000
    """Rows on which the parameters are searched."""
    evaluations: int = 4500
    trees: int = 300
    leaves: int = 31
    rate: float = 0.06
    least: int = 10
    """Rows of the smallest leaf."""
    loss: str = "squared_error"
    share: float = 0.4
    """Part of the features that a split may choose from: trees that differ err less together."""
    steps: tuple[float, ...] = (0.35, 0.2, 0.1)
    """Sizes of the first simplex, one search after the other."""


RECIPES: Mapping[str, Recipe] = {
    "gemm": Recipe(sample=1000, evaluations=900, trees=350, rate=0.08),
    "prefill": Recipe(sample=2000, evaluations=2700, trees=300, rate=0.08),
    "decode": Recipe(sample=2000, evaluations=2700, trees=300, rate=0.08),
    "mla_prefill": Recipe(trees=150, leaves=15),
    "mla_decode": Recipe(trees=150, leaves=15),
    "batched": Recipe(trees=80, leaves=8),
    "moe": Recipe(sample=600, evaluations=600, trees=80, leaves=15, rate=0.08, loss="absolute_error"),
    "collective": Recipe(trees=0),
    "quantise": Recipe(trees=100, leaves=15),
    "pointwise": Recipe(trees=0),
}


def fit_slot(measured: Measured, seed: int, start: Mapping[str, float] | None = None) -> Slot:
    """Parameters and trees of these rows. Errors and intervals are of other rows, and are added later.

    ``start``: where the search for the parameters begins, which then is a short one.
    """
    recipe = RECIPES[measured.family]
    if start is not None:
        recipe = replace(recipe, sample=recipe.sample // 2, evaluations=recipe.evaluations // 4, steps=(0.15,))
    family, device = FAMILIES[measured.family], device_named(measured.device)
    parameters = fit_parameters(family, measured, recipe, seed, start)
    slot = Slot(
        family=measured.family,
        device=measured.device,
        variant=measured.variant,
        kernel=measured.kernel,
        keys=measured.keys,
        rows=len(measured.us),
        parameters=parameters,
        range={name: (float(v.min()), float(v.max())) for name, v in measured.columns.items() if name in RANGED},
        shared=0.0,
    )
    # The ratio is to the model within its limits, as in a prediction.
    said = family.model(parameters, measured.columns, device)
    left = np.log(measured.us / said)
    features = described(device, family, measured.columns, said)
    if measured.family == "collective":
        slot.forest_data = fit_curves(features, left)
    elif recipe.trees and len(left) >= 4 * recipe.least:
        slot.forest_data = fit_trees(features, left, recipe, seed)
    return slot


RANGED = (
    "m", "n", "k", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "tokens", "hidden", "inter", "topk",
    "experts", "tp", "ep", "gpus", "bytes",
)  # fmt: skip


def fit_parameters(
    family: Family, measured: Measured, recipe: Recipe, seed: int, start: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The parameters with the least mean log error, each in its range."""
    device = device_named(measured.device)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(measured.us))[: recipe.sample]
    given = {name: values[rows] for name, values in measured.columns.items()}
    truth = np.log(measured.us[rows])

    def error(parameters: Mapping[str, float]) -> float:
        left = np.log(np.maximum(family.model(parameters, given, device), 1e-3)) - truth
        return float(np.mean(np.abs(left)) + 0.02 * np.sqrt(np.mean(left**2)))

    free = [p for p in family.parameters if matters(p.name, measured)]
    return search(family, free, error, recipe.steps, recipe.evaluations // len(recipe.steps), start)


def search(
    family: Family,
    free: Sequence[Parameter],
    error: Callable[[Mapping[str, float]], float],
    steps: Sequence[float],
    evaluations: int,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Nelder-Mead on the logarithms of the free parameters, once for each step; the others stay where they start."""
    optimize = needed("scipy.optimize")
    fixed = {p.name: p.start for p in family.parameters if p not in free}
    low, high = np.log([p.low for p in free]), np.log([p.high for p in free])

    def named(x: Array) -> dict[str, float]:
        inside = np.clip(x, low, high)
        return {**fixed, **{p.name: float(np.exp(v)) for p, v in zip(free, inside, strict=True)}}

    def penalised(x: Array) -> float:
        return error(named(x)) + float(np.sum(np.maximum(0, x - high) + np.maximum(0, low - x)))

    best = np.clip(np.log([p.start if start is None else start[p.name] for p in free]), low, high)
    for step in steps:
        corners = [best + step * row * np.where(best + step < high, 1, -1) for row in np.eye(len(best))]
        found = optimize.minimize(
            penalised,
            best,
            method="Nelder-Mead",
            options={
                "maxfev": evaluations,
                "xatol": 1e-3,
                "fatol": 1e-5,
                "adaptive": True,
                "initial_simplex": np.vstack([best, *corners]),
            },
        )
        best = np.clip(found.x, low, high)
    return {name: float(f"{value:.5g}") for name, value in named(best).items()}


def matters(parameter: str, measured: Measured) -> bool:
    """False for a parameter that no row depends on."""
    given = measured.columns
    match parameter:
        case "tq" | "mq" if "quantise" in given:
            return bool(np.any(given["quantise"] > 0))
        case "wide":
            return bool(np.any((given["head_dim"] > 128) & (given["head_dim"] <= 256)))
        case "widest":
            return bool(np.any(given["head_dim"] > 256))
        case "hot":
            return bool(np.any(given["skew"] > 0))
        case "one":
            return bool(np.any(given["stages"] == 1))
        case "two" | "stage":
            return bool(np.any(given["stages"] == 2))
        case "ring":
            return bool(np.any((given["library"] > 0) & (given["stages"] == 0)))
        case "host":
            return bool(np.any(given["eager"] > 0))
        case _:
            return True


def fit_trees(features: NDArray[np.float64], left: Array, recipe: Recipe, seed: int) -> dict[str, Any]:
    """Gradient-boosted trees on the log ratio, in the form of ``lmp.predict.trees``."""
    ensemble = needed("sklearn.ensemble")
    model = ensemble.HistGradientBoostingRegressor(
        loss=recipe.loss,
        max_iter=recipe.trees,
        max_leaf_nodes=recipe.leaves,
        learning_rate=recipe.rate,
        min_samples_leaf=recipe.least,
        l2_regularization=1.0,
        max_features=recipe.share,
        early_stopping=False,
        random_state=seed,
    ).fit(features, left)
    base = float(np.ravel(model._baseline_prediction)[0])
    return exported([predictor.nodes for (predictor,) in model._predictors], features.shape[1], base)


def exported(grown: list[Any], features: int, base: float) -> dict[str, Any]:
    """Trees of scikit-learn's histogram boosting as lists: thresholds once for each feature, nodes in preorder."""
    used: list[set[float]] = [set() for _ in range(features)]
    for nodes in grown:
        for node in nodes:
            if not node["is_leaf"]:
                used[node["feature_idx"]].add(float(node["num_threshold"]))
    edges = [sorted(values) for values in used]
    index = [{value: place for place, value in enumerate(values)} for values in edges]
    splits: list[int] = []
    values: list[int] = []
    for nodes in grown:
        waiting = [0]
        while waiting:
            node = nodes[waiting.pop()]
            if node["is_leaf"]:
                splits.append(-1)
                values.append(round(float(node["value"]) / UNIT))
            else:
                feature = int(node["feature_idx"])
                splits.append(feature)
                values.append(index[feature][float(node["num_threshold"])])
                waiting += [int(node["right"]), int(node["left"])]
    return {"base": base, "unit": UNIT, "edges": edges, "splits": splits, "values": values}


KNOTS = tuple(float(knot) for knot in range(8, 31, 2))
"""Sizes of messages, log2 of bytes, between which a collective's correction is linear."""
SMOOTH, ALIKE, LEVEL = 0.5, 0.8, 0.2


def fit_curves(features: NDArray[np.float64], left: Array) -> dict[str, Any]:
    """One curve over the size for each number of GPUs, smooth and near to their mean, by penalised least squares."""
    gpus = np.unique(features[:, -1])
    knots, many = np.asarray(KNOTS), len(gpus)
    weights = hats(knots, features[:, -2])
    size = len(knots)
    # Unknowns: the mean curve, then the difference of each number of GPUs from it.
    rows = np.hstack([weights, *(weights * (features[:, -1] == n)[:, None] for n in gpus)])
    second = np.diff(np.eye(size), n=2, axis=0)
    penalties = [np.hstack([SMOOTH * second, np.zeros((size - 2, many * size))])]
    for place in range(many):
        block = np.zeros((size - 2, (many + 1) * size))
        block[:, (place + 1) * size : (place + 2) * size] = SMOOTH * second
        near = np.zeros((size, (many + 1) * size))
        near[:, (place + 1) * size : (place + 2) * size] = ALIKE * np.eye(size)
        penalties += [block, near]
    penalties.append(np.hstack([LEVEL * np.eye(size), np.zeros((size, many * size))]))
    system = np.vstack([rows, *penalties])
    target = np.concatenate([left, np.zeros(len(system) - len(left))])
    solved = np.linalg.lstsq(system, target, rcond=None)[0].reshape(many + 1, size)
    curves = {f"{n:g}": [round(float(v), 4) for v in solved[0] + solved[place + 1]] for place, n in enumerate(gpus)}
    return {"knots": list(KNOTS), "curves": curves}


def predict_rows(slot: Slot, measured: Measured) -> Array:
    """Microseconds that a slot says for measured rows."""
    return time_of(device_named(measured.device), FAMILIES[measured.family], slot, measured.columns)


def site_spread(measured: Measured, predicted: Array) -> float:
    """Standard deviation over sites of the mean log error: what the rows of one site share."""
    left = np.log(measured.us / predicted)
    means = [float(np.mean(left[measured.site == site])) for site in np.unique(measured.site)]
    return round(float(np.std(means)), 4) if len(means) > 1 else round(float(np.std(left)), 4)


def needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise EngineMissing("calibrating needs scikit-learn\ninstall it with: pip install 'lmp[calibrate]'") from error
