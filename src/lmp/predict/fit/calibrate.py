"""The whole fit: held-out errors with several seeds, intervals, the final parameters and trees, and the report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.predict.calibration import Slot
from lmp.predict.devices import device_named
from lmp.predict.fit.data import Measured, Tables
from lmp.predict.fit.fitting import fit_slot, predict_rows, site_spread
from lmp.predict.fit.intervals import Errors, nested, shipped
from lmp.predict.fit.joint import joint_slots
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array
from lmp.predict.prediction import DATASHEET_SPREAD, Chosen, described, predicted, time_of

SEEDS = (1, 2, 3)
OWN_ROWS = 3.0
"""How much wider intervals are where all errors are of the fit's own rows: on other shapes they are thrice as large."""
BY_SHAPE = ("moe",)
"""Families with few sites: each is held out once, instead of half of them."""

FOLD_ROWS = 4000
"""Rows of a fold at most: it takes a part of the time of the last fit, and is no better than that."""

Say = Callable[[str], None]


@dataclass
class Held:
    """Rows that were predicted without having been fitted, of all seeds one after the other."""

    measured: Measured
    predicted: Array
    analytic: Array
    """What the model alone says, without trees."""
    floor: Array
    low: Array
    """Logarithm of the interval's lower end over the prediction, from other sites alone; NaN: there are none."""
    high: Array
    fitted: bool = False
    """True if no other site was there to fit to: these errors are of the fit's own rows."""

    @property
    def scored(self) -> NDArray[np.bool_]:
        return np.isfinite(self.low)

    @property
    def inside(self) -> Array:
        """1 where the measured time is in the interval."""
        low, high = self.ends()
        return ((low <= self.measured.us) & (self.measured.us <= high)).astype(float)

    @property
    def width(self) -> Array:
        """Half of the interval's width over the prediction."""
        low, high = self.ends()
        return np.asarray((high - low) / 2 / self.predicted)

    def ends(self) -> tuple[Array, Array]:
        low, high = self.predicted * np.exp(self.low), self.predicted * np.exp(self.high)
        return np.maximum(low, self.floor), np.maximum(high, self.floor)

    @property
    def errors(self) -> Errors:
        """What intervals are fitted to."""
        measured = self.measured
        device, family = device_named(measured.device), FAMILIES[measured.family]
        features = described(device, family, measured.columns, self.predicted)
        return Errors(features, np.log(measured.us / self.predicted), measured.site)

    def take(self, rows: NDArray[Any]) -> Held:
        return Held(self.measured.take(rows), *(getattr(self, name)[rows] for name in ROWS))


ROWS = ("predicted", "analytic", "floor", "low", "high")


@dataclass
class Fitted:
    slot: Slot
    held: Held


@dataclass
class Result:
    """All that one calibration found."""

    fitted: list[Fitted]
    left_out: list[dict[str, Any]] = field(default_factory=list)
    """Errors of each device predicted from others' slots and its own datasheet."""
    joint: list[Slot] = field(default_factory=list)
    """Slots of several architectures together, for devices of another one."""


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
        fitted.append(Fitted(slot, held))
        say(f"{measured.name}: {len(measured.us)} rows, {errors_of(held)['mape']:.1f} % MAPE held out")
    for kind in {(one.slot.family, one.slot.variant) for one in fitted}:
        set_intervals([one for one in fitted if (one.slot.family, one.slot.variant) == kind])
    joint, errors = joint_slots(tables.slots)
    return Result(fitted, [*errors, *leave_one_out(tables, fitted)], joint)


def set_intervals(alike: Sequence[Fitted]) -> None:
    """Intervals of the slots of one variant, and how those do on sites that had no part in them."""
    found = [one.held.errors for one in alike]
    several = [number for number, one in enumerate(alike) if not one.held.fitted]
    for number, ends in zip(several, nested([found[n] for n in several]), strict=True):
        alike[number].held.low, alike[number].held.high = ends
    for one, width in zip(alike, shipped(found), strict=True):
        if one.held.fitted:
            width |= {end: round(OWN_ROWS * width[end], 5) for end in ("low", "high")}
        one.slot.width_data = width
        one.slot.shared = site_spread(one.held.measured, one.held.predicted)
        one.slot.errors = errors_of(one.held)


def hold_out(measured: Measured, seeds: Sequence[int], whole: Slot) -> Held:
    """Predictions of held-out sites: half of them for each seed, or one after the other for families with few sites."""
    rounds: list[tuple[NDArray[np.bool_], int]] = []
    if measured.family in BY_SHAPE:
        rounds = [(measured.site != site, seeds[0]) for site in np.unique(measured.site)]
    else:
        rounds = [(half(measured.site, f"own-{seed}"), seed) for seed in seeds]
    parts: list[Held] = []
    if not any(kept.any() and not kept.all() for kept, _ in rounds):
        # One site alone: nothing can be held out, and every row is its own evidence.
        return held_of(whole, measured, fitted=True)
    for kept, seed in rounds:
        if kept.all() or not kept.any():
            continue
        # The search starts where the family does: parameters of the whole fit have seen the rows that are held out.
        seen = measured.take(some_of(kept, seed) if measured.family in BY_SHAPE else kept)
        slot, rest = fit_slot(seen, seed), measured.take(~kept)
        parts.append(held_of(slot, rest))
    return joined(parts)


def some_of(kept: NDArray[np.bool_], seed: int) -> NDArray[np.int64]:
    """At most ``FOLD_ROWS`` of the rows that are kept, drawn at random."""
    rows = np.flatnonzero(kept)
    return np.sort(np.random.default_rng(seed).permutation(rows)[:FOLD_ROWS])


def model_alone(slot: Slot, measured: Measured) -> Array:
    return time_of(device_named(slot.device), FAMILIES[slot.family], slot, measured.columns, corrected=0.0)


def held_of(slot: Slot, measured: Measured, fitted: bool = False) -> Held:
    """Predictions of a slot, still without intervals."""
    floor = FAMILIES[measured.family].floor(measured.columns, device_named(measured.device))
    none = np.full(len(measured.us), np.nan)
    alone = model_alone(slot, measured)
    return Held(measured, predict_rows(slot, measured), alone, floor, none, none.copy(), fitted)


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
        join([part.measured for part in parts]), *(np.concatenate([getattr(p, n) for p in parts]) for n in ROWS)
    )


def errors_of(held: Held) -> dict[str, Any]:
    """Errors in per cent, and how the intervals did."""
    error = np.abs(held.predicted / held.measured.us - 1) * 100
    alone = np.abs(held.analytic / held.measured.us - 1) * 100
    scored = held.scored
    return {
        "rows": len(error),
        "sites": len(np.unique(held.measured.site)),
        "mape": round(float(error.mean()), 2),
        "median": round(float(np.median(error)), 2),
        "p90": round(float(np.quantile(error, 0.9)), 2),
        "model_mape": round(float(alone.mean()), 2),
        "coverage": round(float(held.inside[scored].mean()) * 100, 1) if scored.any() else None,
        "half_width": round(float(np.median(held.width[scored])) * 100, 2) if scored.any() else None,
        "held_out": not held.fitted,
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


def pooled(held: Iterable[Held]) -> dict[str, Any]:
    """Errors of several slots together."""
    return errors_of(joined_any(list(held)))


def joined_any(parts: Sequence[Held]) -> Held:
    """Held rows of several slots of one family, with only what errors need."""
    measured = Measured(
        "", "", "", "", {}, np.concatenate([p.measured.us for p in parts]),
        np.concatenate([p.measured.site + 100_000 * i for i, p in enumerate(parts)]), (), "",
    )  # fmt: skip
    rows = {n: np.concatenate([getattr(p, n) for p in parts]) for n in ROWS}
    return Held(measured, **rows)
