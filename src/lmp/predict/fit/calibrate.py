"""The whole fit: held-out errors with several seeds, zones of error, the final parameters and trees, and the report."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.predict import calibration as store
from lmp.predict.calibration import Slot
from lmp.predict.devices import device_named
from lmp.predict.fit.data import Measured, Tables
from lmp.predict.fit.fitting import fit_slot, fit_zones, predict_rows, site_spread
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array
from lmp.predict.prediction import DATASHEET_SPREAD, Chosen, interval, predicted, time_of
from lmp.store.files import write_whole

SEEDS = (1, 2, 3)
SOURCE = "https://github.com/ai-dynamo/aiconfigurator"
STATE = "commit 095f58a51c4ca8e61b66ec108d86f223f8d559ce, 2026-08-21"
LICENCE = "Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES"
BY_SHAPE = ("moe",)
"""Families with few sites: each is held out once, instead of half of them."""

Say = Callable[[str], None]


@dataclass
class Held:
    """Rows that were predicted without having been fitted, of all seeds one after the other."""

    measured: Measured
    predicted: Array
    inside: Array
    """1 where the measured time is in the 80 % interval, whose zones were fitted on other sites."""
    width: Array
    """Half the interval's width over the prediction."""
    analytic: Array
    """What the model alone says, without trees."""


@dataclass
class Fitted:
    slot: Slot
    held: Held


@dataclass
class Result:
    """All that one calibration found."""

    fitted: list[Fitted]
    left_out: list[dict[str, Any]] = field(default_factory=list)
    """Errors of each device predicted from another one's slots and its own datasheet."""


def half(site: NDArray[np.int64], salt: str) -> NDArray[np.bool_]:
    """True for about half of the sites, drawn by a hash; at least one site is on each side."""
    sites = np.unique(site)
    order = sorted(sites, key=lambda one: hashlib.sha256(f"{salt}|{one}".encode()).digest())
    return np.isin(site, order[: max(1, len(sites) // 2)])


def calibrate(tables: Tables, seeds: Sequence[int] = SEEDS, say: Say = lambda _: None) -> Result:
    """Fit every slot, and measure its error on sites that the fit did not see."""
    fitted = []
    for measured in tables.slots:
        slot = fit_slot(measured, seeds[0])
        held = hold_out(measured, seeds, slot)
        slot.zones_data = fit_zones(held.measured, held.predicted)
        slot.shared = site_spread(held.measured, held.predicted)
        slot.errors = errors_of(held)
        fitted.append(Fitted(slot, held))
        say(f"{measured.name}: {len(measured.us)} rows, {slot.errors['mape']:.1f} % MAPE")
    return Result(fitted, leave_one_out(tables, fitted))


def hold_out(measured: Measured, seeds: Sequence[int], whole: Slot) -> Held:
    """Predictions of held-out sites: half of them for each seed, or one after the other for families with few sites."""
    rounds: list[tuple[NDArray[np.bool_], int]] = []
    if measured.family in BY_SHAPE:
        rounds = [(measured.site != site, seeds[0]) for site in np.unique(measured.site)]
    else:
        rounds = [(half(measured.site, f"own-{seed}"), seed) for seed in seeds]
    parts: list[Held] = []
    if all(kept.all() for kept, _ in rounds):
        # One site alone: nothing can be held out, and every row is its own evidence.
        return scored([(measured, predict_rows(whole, measured), model_alone(whole, measured))])
    for kept, seed in rounds:
        if kept.all() or not kept.any():
            continue
        slot, rest = fit_slot(measured.take(kept), seed), measured.take(~kept)
        parts.append(scored([(rest, predict_rows(slot, rest), model_alone(slot, rest))]))
    if measured.family in BY_SHAPE:
        return scored([(held.measured, held.predicted, held.analytic) for held in parts])
    return joined(parts)


def model_alone(slot: Slot, measured: Measured) -> Array:
    return time_of(device_named(slot.device), FAMILIES[slot.family], slot, measured.columns, corrected=0.0)


def scored(parts: Sequence[tuple[Measured, Array, Array]]) -> Held:
    """Held-out predictions with intervals: the zones of one half of the sites score the other half, and the reverse."""
    measured = join([part for part, _, _ in parts])
    said = np.concatenate([one for _, one, _ in parts])
    alone = np.concatenate([one for _, _, one in parts])
    inside, width = np.full(len(said), np.nan), np.full(len(said), np.nan)
    first = half(measured.site, "interval")
    for learn, score in ((first, ~first), (~first, first)):
        if learn.sum() < 8 or not score.any():
            continue
        slot = store.slot_from(measured.family, {**EMPTY, "device": measured.device, "variant": measured.variant})
        slot.zones_data = fit_zones(measured.take(learn), said[learn])
        low, high = ends(slot, measured.take(score), said[score])
        truth = measured.us[score]
        inside[score] = (low <= truth) & (truth <= high)
        width[score] = (high - low) / 2 / said[score]
    return Held(measured, said, inside, width, alone)


EMPTY: dict[str, Any] = {
    "kernel": "", "keys": (), "rows": 0, "parameters": {}, "range": {}, "shared": 0.0, "errors": {}, "forest": None,
    "zones": None,
}  # fmt: skip


def ends(slot: Slot, measured: Measured, said: Array) -> tuple[Array, Array]:
    """Microseconds of both ends of the interval."""
    device, family = device_named(measured.device), FAMILIES[measured.family]
    low, high = interval(device, family, Chosen(slot, "calibrated", 0.0, 1.0), measured.columns, said)
    floor = family.floor(measured.columns, device)
    return np.maximum(said * np.exp(low), floor), np.maximum(said * np.exp(high), floor)


def join(parts: Sequence[Measured]) -> Measured:
    first = parts[0]
    return Measured(
        first.family, first.device, first.variant, first.kernel,
        {name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns},
        np.concatenate([part.us for part in parts]), np.concatenate([part.site for part in parts]),
        first.keys, first.table,
    )  # fmt: skip


def joined(parts: Sequence[Held]) -> Held:
    return Held(
        join([part.measured for part in parts]),
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("predicted", "inside", "width", "analytic")
        ),
    )


def errors_of(held: Held) -> dict[str, Any]:
    """Errors in per cent, and how the intervals did."""
    error = np.abs(held.predicted / held.measured.us - 1) * 100
    alone = np.abs(held.analytic / held.measured.us - 1) * 100
    scored = np.isfinite(held.inside)
    return {
        "rows": len(error),
        "sites": len(np.unique(held.measured.site)),
        "mape": round(float(error.mean()), 2),
        "median": round(float(np.median(error)), 2),
        "p90": round(float(np.quantile(error, 0.9)), 2),
        "model_mape": round(float(alone.mean()), 2),
        "coverage": round(float(held.inside[scored].mean()) * 100, 1) if scored.any() else None,
        "half_width": round(float(np.median(held.width[scored])) * 100, 2) if scored.any() else None,
    }


def leave_one_out(tables: Tables, fitted: Sequence[Fitted]) -> list[dict[str, Any]]:
    """Each device from the slots of another one and its own datasheet, with and without the trees."""
    found = []
    for measured in tables.slots:
        others = [f.slot for f in fitted if f.slot.family == measured.family and f.slot.variant == measured.variant]
        others = [slot for slot in others if slot.device != measured.device and _alike(slot.kernel, measured.kernel)]
        for slot in others:
            device, family = device_named(measured.device), FAMILIES[measured.family]
            row: dict[str, Any] = {"family": measured.family, "variant": measured.variant, "kernel": measured.kernel}
            row |= {"device": measured.device, "source": slot.device}
            for name, weight in (("model", 0.0), ("trees", 1.0)):
                said = time_of(device, family, slot, measured.columns, weight)
                error = np.abs(said / measured.us - 1) * 100
                row |= {
                    f"{name}_mape": round(float(error.mean()), 1),
                    f"{name}_median": round(float(np.median(error)), 1),
                }
            said = time_of(device, family, slot, measured.columns, 0.0)
            made = predicted(device, family, Chosen(slot, "datasheet", DATASHEET_SPREAD, 0.0), measured.columns, None)
            inside = [p.low_us <= t <= p.high_us for p, t in zip(made, measured.us, strict=True)]
            row["coverage"] = round(100 * float(np.mean(inside)), 1)
            found.append(row)
    return found


def _alike(one: str, other: str) -> bool:
    """Attention and GEMM kernels have another name on each GPU; of MoE kernels, only one name is one kernel."""
    return one == other or "moe" not in one + other


def write_calibration(result: Result, tables: Tables, folder: Path, seeds: Sequence[int]) -> list[Path]:
    """One file for each family; files are written whole."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    provenance = {
        "source": SOURCE,
        "state": STATE,
        "licence": LICENCE,
        "fitted": date,
        "seeds": list(seeds),
    }
    families: dict[str, list[Fitted]] = defaultdict(list)
    for one in result.fitted:
        families[one.slot.family].append(one)
    written = []
    for family, all_of in families.items():
        used = sorted({f"{one.held.measured.table}.parquet" for one in all_of})
        sha = {name: tables.sha256[name] for name in used}
        dropped = {name: tables.dropped[name] for name in used if name in tables.dropped}
        data = {
            "schema": store.SCHEMA,
            "id": f"{family}-{date}-{hashlib.sha256(json.dumps(sha).encode()).hexdigest()[:8]}",
            "family": family,
            "provenance": {**provenance, "sha256": sha, "dropped": dropped},
            "left_out": [row for row in result.left_out if row["family"] == family],
            "slots": [one.slot.as_json() for one in all_of],
        }
        path = folder / f"{family}.json"
        write_whole(path, json.dumps(data, separators=(",", ":")) + "\n")
        written.append(path)
    return written


def pooled(held: Iterable[Held]) -> dict[str, Any]:
    """Errors of several slots together."""
    return errors_of(joined_any(list(held)))


def joined_any(parts: Sequence[Held]) -> Held:
    """Held rows of several slots, with only what errors need."""
    measured = Measured(
        "", "", "", "", {}, np.concatenate([p.measured.us for p in parts]),
        np.concatenate([p.measured.site + 100_000 * i for i, p in enumerate(parts)]), (), "",
    )  # fmt: skip
    return Held(
        measured,
        *(np.concatenate([getattr(p, n) for p in parts]) for n in ("predicted", "inside", "width", "analytic")),
    )
