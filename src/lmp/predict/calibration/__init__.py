"""What measurements decided: parameters, trees and errors of each family, as ``lmp calibrate`` writes them.

A slot is one device, and one variant of a family on it: a dtype, a library's kernel. No measured row is in these files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.errors import InvalidAnalysis
from lmp.predict import trees

FOLDER = Path(__file__).parent
SCHEMA = 2


@dataclass(frozen=True)
class Width:
    """The interval of a row: the logarithm of the size of its error by its features, and the ends in units of it."""

    size: trees.Forest
    low: float
    high: float

    def ends(self, features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of the ends over the prediction."""
        size = np.exp(self.size(features))
        return self.low * size, self.high * size


@dataclass
class Slot:
    """One calibrated kernel of one device."""

    family: str
    device: str
    variant: str
    """What a row has to ask for: dtype, phase, library."""
    kernel: str
    """The kernel that the library says it chose."""
    keys: tuple[tuple[float, ...], ...]
    """Values of the family's ``chosen_by`` columns for which the library took this kernel."""
    rows: int
    parameters: Mapping[str, float]
    range: Mapping[str, tuple[float, float]]
    """Least and largest measured value of each column."""
    shared: float
    """Standard deviation of the mean log error of a site: what rows of one kernel share."""
    forest_data: Mapping[str, Any] | None = None
    width_data: Mapping[str, Any] | None = None
    errors: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def forest(self) -> trees.Forest | None:
        return None if self.forest_data is None else trees.read(self.forest_data)

    @functools.cached_property
    def width(self) -> Width | None:
        return None if self.width_data is None else width_of(self.width_data)

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "variant": self.variant,
            "kernel": self.kernel,
            "keys": [list(key) for key in self.keys],
            "rows": self.rows,
            "parameters": dict(self.parameters),
            "range": {name: list(ends) for name, ends in self.range.items()},
            "shared": self.shared,
            "errors": dict(self.errors),
            "width": self.width_data,
            "forest": self.forest_data,
        }


@dataclass(frozen=True)
class Calibration:
    """All slots of one family, with where they come from."""

    family: str
    id: str
    provenance: Mapping[str, Any]
    slots: Sequence[Slot]


@functools.cache
def calibration(family: str, folder: Path = FOLDER) -> Calibration | None:
    """What is known of a family; None if nothing was measured. A folder of a user stands before what lmp ships."""
    file = folder / f"{family}.json"
    if not file.is_file():
        return None if folder == FOLDER else calibration(family)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidAnalysis(f"{file} is no calibration: {error}\nrun `lmp calibrate` again") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InvalidAnalysis(f"{file} is of another version of lmp\nrun `lmp calibrate DATA` again")
    try:
        slots = tuple(slot_from(family, entry) for entry in data["slots"])
        return Calibration(family, data["id"], data["provenance"], slots)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidAnalysis(f"{file} is no calibration: {error!r:.80}\nrun `lmp calibrate` again") from error


def width_of(data: Mapping[str, Any]) -> Width:
    return Width(trees.read(data["size"]), float(data["low"]), float(data["high"]))


def slot_from(family: str, entry: Mapping[str, Any]) -> Slot:
    return Slot(
        family=family,
        device=entry["device"],
        variant=entry["variant"],
        kernel=entry["kernel"],
        keys=tuple(tuple(key) for key in entry["keys"]),
        rows=entry["rows"],
        parameters=entry["parameters"],
        range={name: (low, high) for name, (low, high) in entry["range"].items()},
        shared=entry["shared"],
        errors=entry["errors"],
        forest_data=entry["forest"],
        width_data=entry["width"],
    )
