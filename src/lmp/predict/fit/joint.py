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
from lmp.predict.fit.fitting import RANGED, RECIPES, matters, search
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array
from lmp.predict.prediction import DATASHEET_SPREAD, JOINT, Z80, Chosen, predicted, time_of
from lmp.predict.transfer import adapted

FRAME = "h100-sxm"
FAMILIES_OF = ("gemm", "prefill", "decode")
"""Families whose kernels are enough alike on all architectures."""
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
            left_out = joint_slot(others, slot.parameters)
            spreads.append(_spread(left_out, out))
            errors.append(_error(left_out, out, others))
        slot.shared = max(spreads)
        for row in errors[-len(alike) :]:
            row["spread"] = round(100 * slot.shared, 1)
    return found, errors


def joint_slot(slots: Sequence[Measured], start: Mapping[str, float] | None = None) -> Slot:
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
    steps = (0.3, 0.15) if start is None else (0.15,)
    parameters = search(family, free, error, steps, 350, start)
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
    )


def _least(slots: Sequence[Measured], name: str) -> float:
    return min(float(one.columns[name].min()) for one in slots)


def _greatest(slots: Sequence[Measured], name: str) -> float:
    return max(float(one.columns[name].max()) for one in slots)


def _spread(slot: Slot, out: Measured) -> float:
    """Standard deviation of a normal distribution with as many log errors inside 80 %."""
    said = time_of(device_named(out.device), FAMILIES[out.family], slot, out.columns, 0.0)
    return round(float(np.quantile(np.abs(np.log(said / out.us)), 0.8)) / Z80, 4)


def _error(slot: Slot, out: Measured, others: Sequence[Measured]) -> dict[str, Any]:
    device, family = device_named(out.device), FAMILIES[out.family]
    said = time_of(device, family, slot, out.columns, 0.0)
    error: Array = np.abs(said / out.us - 1) * 100
    made = predicted(device, family, Chosen(slot, "datasheet", DATASHEET_SPREAD, 0.0), out.columns, None)
    inside = [p.low_us <= t <= p.high_us for p, t in zip(made, out.us, strict=True)]
    return {
        "family": out.family,
        "variant": out.variant,
        "device": out.device,
        "source": " + ".join(one.device for one in others),
        "kernel": out.kernel,
        "model_mape": round(float(error.mean()), 1),
        "model_median": round(float(np.median(error)), 1),
        "trees_mape": None,
        "trees_median": None,
        "coverage": round(100 * float(np.mean(inside)), 1),
    }
