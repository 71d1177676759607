"""Corrections of a model: trees over its features, or for collectives a curve over the size of the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.predict.calibration import Slot

Correction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def correction_of(slot: Slot | None) -> Correction | None:
    """Log of measured / model, from the features; None if the slot has none."""
    if slot is None or slot.forest_data is None:
        return None
    if "curves" in slot.forest_data:
        data = slot.forest_data
        return lambda features: curve(data, features)
    return slot.forest


def curve(data: Mapping[str, Any], features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear between knots over the last feature but one, for the nearest measured value of the last."""
    knots = np.asarray(data["knots"], dtype=np.float64)
    at = np.asarray([float(name) for name in data["curves"]])
    nearest = np.abs(features[:, -1][:, None] - at).argmin(axis=1)
    values = [np.interp(features[:, -2], knots, np.asarray(data["curves"][name], float)) for name in data["curves"]]
    return np.asarray(np.stack(values)[nearest, np.arange(len(features))])


def hats(knots: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the knots in the linear interpolation at each value."""
    return np.stack([np.interp(values, knots, row) for row in np.eye(len(knots))], axis=1)
