"""A user's own rows: the parameters of a kernel's model move towards them, from those that stand for the device now.

With few shapes a refit makes a well predicted device worse, so there have to be many, and each parameter is held to
where it was: its distance costs as much as the errors of some rows. Errors are of shapes that the refit did not see.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lmp.errors import UsageError
from lmp.predict import calibration as store
from lmp.predict.calibration import Slot
from lmp.predict.check import REFIT, measured_rows
from lmp.predict.devices import Device, device_named
from lmp.predict.fit.data import Measured
from lmp.predict.fit.fitting import RANGED, exported, matters, search, site_spread
from lmp.predict.fit.intervals import Errors, fit_width_data, folds
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array, Family
from lmp.predict.prediction import Chosen, Predictor, described, time_of
from lmp.predict.rows import Row, Want, columns, want
from lmp.predict.transfer import adapted
from lmp.store.files import write_whole

FOLDS = 4
HELD_TO = 0.2
"""Standard deviation of a parameter's logarithm around where it was, before any row is seen."""
ROW_ERROR = 0.05
"""Log error that a row has beside what the model could learn."""
OFFSET_ROWS = 8.0
"""Rows against which the median error that is left counts in full."""
STEP, EVALUATIONS = 0.1, 300


@dataclass(frozen=True)
class Refit:
    """One kernel of one device, before and after."""

    slot: Slot
    base: str
    """What stood for the device before: its provenance."""
    rows: int
    shapes: int
    before: float
    """MAPE on all rows, of what lmp predicted without them."""
    after: float
    """MAPE on shapes held out of the refit."""


@dataclass(frozen=True)
class Refits:
    found: tuple[Refit, ...]
    refused: tuple[str, ...]
    """Kernels that were not fitted, and why."""
    dropped: Mapping[str, int]


def refit(file: Path, predictor: Predictor) -> Refits:
    """Fit again what a CSV file has enough shapes of. Raises UsageError if that is nothing."""
    read = measured_rows(file, predictor)
    groups: dict[tuple[str, str, str], list[tuple[Row, float]]] = defaultdict(list)
    for row, us, _ in read.rows:
        wanted = want(row)
        groups[predictor.device(row.device).name, wanted.family, wanted.variant].append((row, us))
    found, refused = [], []
    for (device, family, variant), rows in sorted(groups.items()):
        name = f"{family} {variant} on {device}"
        shapes = len({row.model_dump_json(exclude={"id"}) for row, _ in rows})
        if shapes < REFIT:
            refused.append(f"{name}: {shapes} shapes, and a refit needs {REFIT}")
            continue
        chosen = _chosen(predictor, predictor.known[device], rows)
        if chosen is None or chosen.slot is None:
            refused.append(f"{name}: no kernel of this family was measured on any device")
            continue
        found.append(_refit(predictor.known[device], FAMILIES[family], chosen, rows, shapes))
    if not found:
        raise UsageError(f"{file}: nothing to fit\n{'; '.join(refused)}")
    return Refits(tuple(found), tuple(refused), read.dropped)


def _chosen(predictor: Predictor, device: Device, rows: Sequence[tuple[Row, float]]) -> Chosen | None:
    """The slot that stands for most of the rows."""
    wants: Counter[Want] = Counter(want(row) for row, _ in rows)
    votes: dict[int, tuple[Chosen, int]] = {}
    for wanted, count in wants.items():
        chosen = predictor.chosen(device.name, wanted)
        votes[id(chosen.slot)] = (chosen, votes.get(id(chosen.slot), (chosen, 0))[1] + count)
    return max(votes.values(), key=lambda vote: vote[1])[0] if votes else None


def _refit(device: Device, family: Family, chosen: Chosen, rows: Sequence[tuple[Row, float]], shapes: int) -> Refit:
    base = chosen.slot
    assert base is not None
    given = columns(family.name, [row for row, _ in rows])
    us = np.array([time for _, time in rows])
    keys = [row.model_dump_json(exclude={"id"}) for row, _ in rows]
    _, site = np.unique(keys, return_inverse=True)
    measured = Measured(
        family.name, device.name, base.variant.removesuffix("@all"), base.kernel, given, us, site, base.keys, ""
    )  # fmt: skip
    start = _moved(base, device, chosen.corrected)
    before = time_of(device, family, start, given)
    fold = folds(site, FOLDS, "refit")
    after: Array = np.zeros(len(us))
    for one in range(FOLDS):
        out = fold == one
        slot = _fitted(start, measured.take(~out), device, family)
        after[out] = time_of(device, family, slot, {name: values[out] for name, values in given.items()})
    slot = _fitted(start, measured, device, family)
    slot.width_data = fit_width_data(Errors(described(device, family, given, after), np.log(us / after), site))
    slot.shared = site_spread(measured, after)
    error = np.abs(after / us - 1) * 100
    slot.errors = {
        "rows": len(us), "sites": shapes, "mape": round(float(error.mean()), 2),
        "median": round(float(np.median(error)), 2), "held_out": True,
    }  # fmt: skip
    was = float(np.mean(np.abs(before / us - 1)) * 100)
    return Refit(slot, chosen.provenance, len(us), shapes, was, float(error.mean()))


def _moved(base: Slot, device: Device, corrected: float) -> Slot:
    """The slot as that of this device: parameters carried over, trees where they stood for it."""

    parameters = dict(base.parameters)
    if base.device != device.name:
        parameters = adapted(base.parameters, device_named(base.device), device)
    kernel = base.kernel if base.kernel.endswith(OWN) else base.kernel + OWN
    variant = base.variant.removesuffix("@all")
    forest = base.forest_data if corrected else None
    return Slot(
        base.family, device.name, variant, kernel, base.keys, base.rows, parameters, base.range, base.shared, forest
    )


OWN = " + own rows"


def _fitted(start: Slot, measured: Measured, device: Device, family: Family) -> Slot:
    """Parameters near those of ``start``, and the median error that is left as an offset."""
    truth = np.log(measured.us)
    free = [p for p in family.parameters if matters(p.name, measured)]
    weight = ROW_ERROR / (2 * len(truth) * HELD_TO**2)

    # Trees follow the model slowly: what they add is kept while the parameters are searched.
    alone = family.model(start.parameters, measured.columns, device)
    added = time_of(device, family, start, measured.columns) / alone
    floor = family.floor(measured.columns, device)

    def error(parameters: Mapping[str, float]) -> float:
        said = np.maximum(family.model(parameters, measured.columns, device) * added, floor)
        moved = sum(np.log(parameters[p.name] / start.parameters[p.name]) ** 2 for p in free)
        return float(np.mean(np.abs(np.log(said) - truth)) + weight * moved)

    parameters = search(family, free, error, (STEP,), EVALUATIONS, start.parameters)
    slot = replace(start, parameters={**start.parameters, **parameters})
    left = truth - np.log(time_of(device, family, slot, measured.columns))
    offset = float(np.median(left)) * len(left) / (len(left) + OFFSET_ROWS)
    if start.forest_data is None or "curves" not in start.forest_data:
        count = described(device, family, measured.columns, measured.us).shape[1]
        data = dict(start.forest_data or exported([], count, 0.0))
        slot.forest_data = {**data, "base": data["base"] + offset}
    slot.rows = len(left)
    slot.range = {name: (float(v.min()), float(v.max())) for name, v in measured.columns.items() if name in RANGED}
    return slot


def write_refits(refits: Refits, folder: Path) -> list[Path]:
    """Each family's calibration with the refitted slots in place of those of the same kernel and device."""
    written = []
    for family in sorted({one.slot.family for one in refits.found}):
        data: dict[str, Any] = json.loads((store.FOLDER / f"{family}.json").read_text(encoding="utf-8"))
        own = [one.slot for one in refits.found if one.slot.family == family]
        replaced = {(slot.device, slot.variant, slot.kernel.removesuffix(OWN)) for slot in own}
        kept = [s for s in data["slots"] if (s["device"], s["variant"], s["kernel"]) not in replaced]
        data["slots"] = [*kept, *(slot.as_json() for slot in own)]
        data["id"] += "+own"
        path = folder / f"{family}.json"
        write_whole(path, json.dumps(data, separators=(",", ":")) + "\n")
        written.append(path)
    return written
