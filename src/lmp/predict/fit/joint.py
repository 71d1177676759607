"""One set of parameters for the devices of several architectures, from which a device never measured is predicted.

The parameters stand in the frame of one device; ``lmp.predict.transfer`` moves them to each other one. Fitted on
several architectures, they are those of the hardware rather than of one library's choices on one GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmp.predict.calibration import Slot
from lmp.predict.devices import device_named
from lmp.predict.fit.data import Measured
from lmp.predict.fit.fitting import RANGED, RECIPES, Recipe, fit_trees, matters, search
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array
from lmp.predict.prediction import DATASHEET_SPREAD, JOINT, JOINT_CORRECTED, Z80, Chosen, described, predicted, time_of
from lmp.predict.transfer import adapted

FRAME = "h100-sxm"
FAMILIES_OF = ("gemm", "prefill", "decode")
"""Families whose kernels are enough alike on all architectures."""
STEPS, EVALUATIONS = (0.35, 0.2, 0.1), 450
"""Sizes of the first simplex, and evaluations of each search."""
TREES = Recipe(trees=200, leaves=15, rate=0.08, least=30)
"""What corrects the joint model: fewer and larger leaves than of one device."""
TREE_ROWS = 8000
"""Rows of each device that the trees see."""
LEAST_ROWS = 2000
"""Rows of a device from which it takes part: others are kernels for a few shapes."""


def joint_slots(slots: Sequence[Measured]) -> tuple[list[Slot], list[dict[str, Any]]]:
    """A slot for each variant that several architectures have; the error of each device, predicted from the others."""
    kinds: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for measured in slots:
        if measured.family in FAMILIES_OF and len(measured.us) >= LEAST_ROWS:
            kinds[measured.family, measured.variant].append(measured)
    found, errors = [], []
    for alike in kinds.values():
        if len({device_named(one.device).architecture for one in alike}) < 2:
            continue
        slot = joint_slot(alike)
        found.append(slot)
        spreads = []
        for out in alike:
            others = [one for one in alike if one is not out]
            # Its search starts where the family does: parameters of the joint slot have seen this device.
            left_out = joint_slot(others)
            spreads.append(_spread(left_out, out))
            errors.append(_error(left_out, out, others))
        slot.shared = max(spreads)
        for row in errors[-len(alike) :]:
            row["spread"] = round(100 * slot.shared, 1)
    return found, errors


def joint_slot(slots: Sequence[Measured]) -> Slot:
    """The parameters with the least mean log error over the devices, each of the same weight."""
    family, frame = FAMILIES[slots[0].family], device_named(FRAME)
    recipe, rng = RECIPES[family.name], np.random.default_rng(0)
    parts = []
    for one in slots:
        some = one.take(rng.permutation(len(one.us))[: recipe.sample // 2])
        parts.append((device_named(one.device), some.columns, np.log(some.us)))

    def error(parameters: Mapping[str, float]) -> float:
        each = [
            np.mean(np.abs(np.log(np.maximum(family.model(adapted(parameters, frame, d), c, d), 1e-3)) - truth))
            for d, c, truth in parts
        ]
        return float(np.mean(each))

    free = [p for p in family.parameters if all(matters(p.name, one) for one in slots)]
    parameters = search(family, free, error, STEPS, EVALUATIONS)
    names = [name for name in RANGED if name in slots[0].columns]
    ends = {n: (_least(slots, n), _greatest(slots, n)) for n in names}
    return Slot(
        family=family.name,
        device=FRAME,
        variant=slots[0].variant + JOINT,
        kernel="joint/" + "+".join(one.device for one in slots),
        keys=(),
        rows=sum(len(one.us) for one in slots),
        parameters=parameters,
        range=ends,
        shared=DATASHEET_SPREAD,
        forest_data=_trees(slots, parameters),
    )


def _trees(slots: Sequence[Measured], parameters: Mapping[str, float]) -> dict[str, Any]:
    """Trees on what the model leaves on all devices, of the same weight."""
    family, frame, rng = FAMILIES[slots[0].family], device_named(FRAME), np.random.default_rng(1)
    count = min(TREE_ROWS, *(len(one.us) for one in slots))
    features, left = [], []
    for one in slots:
        some, device = one.take(rng.permutation(len(one.us))[:count]), device_named(one.device)
        said = family.model(adapted(parameters, frame, device), some.columns, device)
        features.append(described(device, family, some.columns, said))
        left.append(np.log(some.us / said))
    return fit_trees(np.vstack(features), np.concatenate(left), TREES, 1)


def _least(slots: Sequence[Measured], name: str) -> float:
    return min(float(one.columns[name].min()) for one in slots)


def _greatest(slots: Sequence[Measured], name: str) -> float:
    return max(float(one.columns[name].max()) for one in slots)


def _spread(slot: Slot, out: Measured) -> float:
    """Standard deviation of a normal distribution with as many log errors inside 80 %."""
    said = time_of(device_named(out.device), FAMILIES[out.family], slot, out.columns, JOINT_CORRECTED)
    return round(float(np.quantile(np.abs(np.log(said / out.us)), 0.8)) / Z80, 4)


def _error(slot: Slot, out: Measured, others: Sequence[Measured]) -> dict[str, Any]:
    device, family = device_named(out.device), FAMILIES[out.family]
    found: dict[str, Any] = {
        "family": out.family, "variant": out.variant, "device": out.device,
        "source": " + ".join(one.device for one in others), "kernel": out.kernel,
    }  # fmt: skip
    for name, weight in (("model", 0.0), ("trees", JOINT_CORRECTED)):
        error: Array = np.abs(time_of(device, family, slot, out.columns, weight) / out.us - 1) * 100
        found |= {f"{name}_mape": round(float(error.mean()), 1), f"{name}_median": round(float(np.median(error)), 1)}
    chosen = Chosen(slot, "datasheet", DATASHEET_SPREAD, JOINT_CORRECTED)
    made = predicted(device, family, chosen, out.columns, None)
    inside = [p.low_us <= t <= p.high_us for p, t in zip(made, out.us, strict=True)]
    return {**found, "coverage": round(100 * float(np.mean(inside)), 1)}
