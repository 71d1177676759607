"""Trees as JSON: a hand-made one, and what scikit-learn itself predicts."""

from __future__ import annotations

import numpy as np
import pytest

from lmp.predict import trees
from lmp.predict.curves import curve, hats

# x0 <= 1.0 ? (x1 <= 5.0 ? 1 : 2) : 4, and a second tree that is one leaf of 0.5; unit 0.5, base 10.
HAND_MADE = {
    "base": 10.0,
    "unit": 0.5,
    "edges": [[1.0], [2.0, 5.0]],
    "splits": [0, 1, -1, -1, -1, -1],
    "values": [0, 1, 2, 4, 8, 1],
}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # 10 + 2 * 0.5 + 0.5; a value equal to the threshold goes left.
        ((1.0, 5.0), 11.5),
        # 10 + 4 * 0.5 + 0.5
        ((0.0, 5.1), 12.5),
        # 10 + 8 * 0.5 + 0.5
        ((1.1, 0.0), 14.5),
    ],
)
def test_a_tree_made_by_hand(row: tuple[float, float], expected: float) -> None:
    assert trees.read(HAND_MADE)(np.array([row]))[0] == pytest.approx(expected)


def test_many_rows_are_each_evaluated_alone() -> None:
    forest, rng = trees.read(HAND_MADE), np.random.default_rng(0)
    rows = rng.uniform(0, 8, (trees.CHUNK + 10, 2))
    assert forest(rows).shape == (trees.CHUNK + 10,)
    assert forest(rows)[-1] == forest(rows[-1:])[0]
    assert forest(rows[:0]).shape == (0,)


def test_exported_trees_predict_what_scikit_learn_predicts() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    from lmp.predict.fit.fitting import UNIT, exported

    rng = np.random.default_rng(1)
    rows = rng.integers(0, 50, (800, 4)).astype(float)
    target = np.sin(rows[:, 0]) + rows[:, 1] * (rows[:, 2] > 20)
    model = ensemble.HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(rows, target)
    base = float(np.ravel(model._baseline_prediction)[0])
    mine = trees.read(exported([p.nodes for (p,) in model._predictors], 4, base))(rows)
    # Leaves are rounded to UNIT, each of 30 trees by half of it at most.
    assert np.abs(mine - model.predict(rows)).max() <= 30 * UNIT / 2 + 1e-9


def test_a_curve_is_linear_between_its_knots() -> None:
    data = {"knots": [8.0, 10.0], "curves": {"1": [0.0, 1.0], "3": [2.0, 2.0]}}
    # Half way between knots of 0 and 1; outside of them the value of the nearest; the curve of the nearest GPUs.
    rows = np.array([[9.0, 1.0], [20.0, 1.0], [9.0, 3.0]])
    assert curve(data, rows).tolist() == [0.5, 1.0, 2.0]
    assert hats(np.array([8.0, 10.0]), np.array([9.0])).tolist() == [[0.5, 0.5]]
