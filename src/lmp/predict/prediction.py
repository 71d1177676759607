"""Times of operators on a device: the slot of the calibration that stands for each, model, correction, interval."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmp.errors import LmpError
from lmp.predict import calibration as store
from lmp.predict.calibration import Slot
from lmp.predict.curves import correction_of
from lmp.predict.devices import Device, device_named, devices
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array, Family, as_measured
from lmp.predict.rows import Row, Want, columns, want
from lmp.predict.transfer import adapted

SISTERS = {
    "ada": ("ampere", "hopper"),
    "turing": ("ampere",),
    "cdna3": ("hopper",),
}
"""Architecture without measurements -> those that it is predicted from, the nearest first: uncalibrated."""
SAME_KERNEL = {("decode", "ada"): "ampere"}
"""Family and architecture -> that of which a library runs the same kernel: FlashAttention 2 is for both. Of prompts the
joint parameters are nearer, as far as three devices tell."""
REFERENCE_ENGINE = {
    ("moe", "bfloat16", "ampere"): "sglang",
    ("moe", "bfloat16", "hopper"): "vllm",
    ("moe", "bfloat16", "blackwell"): "vllm",
    ("moe", "fp8", "hopper"): "trtllm",
    ("moe", "fp8", "blackwell"): "trtllm",
}
"""Family, dtype and architecture -> the engine that is meant where a row names none."""

SISTER_SPREAD = 0.06
"""Log error that a sister's parameters add: a GPU that was never fitted has 4.6 to 7 % (predict.md)."""
DATASHEET_SPREAD = 0.30
"""Log error from one architecture to another, leave-one-GPU-out over the three that are calibrated."""
UNCALIBRATED_SPREAD = 0.45
"""Log error where no measurement stands for a figure: pointwise kernels, devices without clock or cache size."""
ENGINE_SPREAD = 0.07
"""Log error of another engine's kernel: the same bf16 product differs by 5.5 to 7 % on average (README of the data)."""
JOINT = "@all"
"""End of the variant of a slot that was fitted on several architectures, for devices of another one."""
JOINT_CORRECTED = 0.5
"""Weight of its trees: half of what they learnt of other devices, by leave-one-GPU-out."""
SCALED = "scaled:"
"""Begin of the provenance of a product whose weights have fewer bytes than in any kernel that was measured."""
UNCALIBRATED = "datasheet:uncalibrated"
"""Provenance of kernels of which none was measured on any device: pointwise, norms, grouped products by themselves."""
OUTSIDE_SPREAD = 0.15
"""Log error that a value adds for each doubling beyond the measured range."""
Z80 = 1.2816
"""Standard deviations of the 10th and 90th percentile of a normal distribution."""


@dataclass(frozen=True)
class Prediction:
    """Time of one operator, with an 80 % interval and where it comes from."""

    us: float
    low_us: float
    high_us: float
    floor_us: float
    """Dense peak, or compulsory traffic at peak bandwidth."""
    bound: str
    """compute, memory, link or latency: what it cannot be faster for."""
    provenance: str
    """``calibrated``, ``sister:NAME``, ``datasheet``, ``datasheet:uncalibrated``, or ``scaled:DTYPE``: the kernel whose
    weights are of DTYPE, with the traffic of narrower ones."""
    calibration: str | None
    """Id of the calibration; None if no measurement stands for the figure."""
    error: float | None
    """Median error in per cent on held-out sites."""
    extrapolated: tuple[str, ...]
    """Columns beyond what was measured."""
    family: str
    kernel: str
    shared: float
    """Standard deviation of the log error that rows of this kernel share."""


@dataclass(frozen=True)
class Chosen:
    """The slot for a row, and how near the device is to the one that was measured."""

    slot: Slot | None
    provenance: str
    spread: float
    corrected: float
    """Weight of the trees' correction."""
    other_engine: bool = False
    """The row names an engine of which nothing was measured: another engine's kernel stands for it."""


class Predictor:
    """Predicts rows of operators. ``known`` are the devices, ``folder`` is that of the calibration."""

    def __init__(self, known: Mapping[str, Device] | None = None, folder: Path = store.FOLDER) -> None:
        self.known = devices() if known is None else known
        self.folder = folder
        self.device = functools.cache(functools.partial(device_named, known=self.known))
        self.chosen = functools.cache(self._chosen)

    def predict(self, rows: Sequence[Row]) -> list[Prediction | LmpError]:
        """One prediction for each row, in their order; an error takes the place of a row that has none."""
        found: dict[int, Prediction | LmpError] = {}
        groups: dict[tuple[str, str, Want], list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            try:
                groups[self.device(row.device).name, getattr(row, "dtype", None) or "", want(row)].append(number)
            except LmpError as error:
                found[number] = error
        # Rows of one device and one slot are computed together.
        together: dict[tuple[str, str, int], tuple[Chosen, list[int]]] = {}
        for (name, _, wanted), numbers in groups.items():
            try:
                chosen = self.chosen(name, wanted)
            except LmpError as error:
                found.update(dict.fromkeys(numbers, error))
                continue
            key = (name, f"{wanted.family}/{wanted.variant}/{chosen.other_engine}", id(chosen.slot))
            together.setdefault(key, (chosen, []))[1].extend(numbers)
        for (name, family, _), (chosen, numbers) in together.items():
            family = family.partition("/")[0]
            try:
                made = self._group(self.known[name], FAMILIES[family], chosen, [rows[n] for n in numbers])
            except LmpError as error:
                found.update(dict.fromkeys(numbers, error))
                continue
            found.update(zip(numbers, made, strict=True))
        return [found[number] for number in range(len(rows))]

    def _chosen(self, name: str, wanted: Want) -> Chosen:
        device = self.known[name]
        known = store.calibration(wanted.family, self.folder)
        slots = [slot for slot in known.slots if slot.variant == wanted.variant] if known is not None else []
        if wanted.variant == "fp8" and wanted.family in ("gemm", "moe", "batched"):
            device.peak("fp8")
        if not slots:
            return Chosen(None, UNCALIBRATED, UNCALIBRATED_SPREAD, 0.0)
        if device.clock is None or device.l2 is None:
            return Chosen(None, "datasheet", UNCALIBRATED_SPREAD, 0.0)
        own = [slot for slot in slots if slot.device == name]
        if own:
            return self._of_kernel(own, wanted, device, ("calibrated", 0.0, 1.0))
        joint = [slot for slot in known.slots if slot.variant == wanted.variant + JOINT] if known is not None else []
        alike = [slot for slot in slots if self._architecture(slot) == device.architecture]
        kin = SAME_KERNEL.get((wanted.family, device.architecture))
        if joint and not alike and (kin is None or kin not in map(self._architecture, slots)):
            return Chosen(joint[0], "datasheet", joint[0].shared, JOINT_CORRECTED)
        for architecture in (device.architecture, *SISTERS.get(device.architecture, ())):
            near = [slot for slot in slots if self._architecture(slot) == architecture]
            if near:
                source = self.known[near[0].device]
                sister = architecture == device.architecture
                kind = (f"sister:{source.name}", SISTER_SPREAD, 1.0) if sister else ("datasheet", DATASHEET_SPREAD, 0.0)
                return self._of_kernel(near, wanted, source, kind)
        return Chosen(None, "datasheet", UNCALIBRATED_SPREAD, 0.0)

    def _architecture(self, slot: Slot) -> str | None:
        """Of the device that a slot was fitted on; None for a device of a user that is not known here."""
        device = self.known.get(slot.device)
        return None if device is None else device.architecture

    def _of_kernel(self, slots: Sequence[Slot], wanted: Want, source: Device, kind: tuple[str, float, float]) -> Chosen:
        """The kernel that the library takes for a row: that of the nearest measured key."""
        provenance, spread, corrected = kind
        engine = wanted.engine or REFERENCE_ENGINE.get((wanted.family, wanted.variant, source.architecture))
        of_engine = [slot for slot in slots if slot.kernel.partition("/")[0] == engine]
        other = wanted.engine is not None and not of_engine
        slot = min(of_engine or slots, key=lambda s: min((_distance(key, wanted.key) for key in s.keys), default=0.0))
        return Chosen(slot, provenance, math.hypot(spread, ENGINE_SPREAD if other else 0.0), corrected, other)

    def _group(self, device: Device, family: Family, chosen: Chosen, rows: Sequence[Row]) -> Iterable[Prediction]:
        given = columns(family.name, rows)
        return predicted(device, family, chosen, given, self._id(family.name))

    def _id(self, family: str) -> str | None:
        known = store.calibration(family, self.folder)
        return known.id if known is not None else None


def _distance(key: Sequence[float], wanted: Sequence[float]) -> float:
    return sum(abs(math.log2((a + 1e-3) / (b + 1e-3))) for a, b in zip(key, wanted, strict=True))


def predicted(
    device: Device, family: Family, chosen: Chosen, given: Mapping[str, Array], id_: str | None
) -> list[Prediction]:
    """Predictions of the columns of one slot."""
    slot = chosen.slot
    narrow = _narrow(given)
    compute, memory, link = family.limits(given, device)
    floor = np.maximum(np.maximum(compute, memory), link)
    us = time_of(device, family, slot, given, chosen.corrected)
    low, high = interval(device, family, chosen, given, us)
    beyond, outside = _outside(slot, given)
    low, high = low - beyond * OUTSIDE_SPREAD, high + beyond * OUTSIDE_SPREAD
    bounds = np.select(
        [
            np.maximum(np.maximum(compute, memory), link) < 0.4 * us,
            (compute >= memory) & (compute >= link),
            link >= memory,
        ],
        ["latency", "compute", "link"],
        "memory",
    )
    lows, highs = np.maximum(us * np.exp(low), floor), np.maximum(us * np.exp(high), floor)
    own = slot.shared if slot is not None else UNCALIBRATED_SPREAD
    shared = np.hypot(np.hypot(own, chosen.spread), np.where(narrow, UNCALIBRATED_SPREAD, 0.0))
    kernel = slot.kernel if slot is not None else family.name
    error = slot.errors.get("median") if slot is not None and chosen.provenance == "calibrated" else None
    engine = ("engine",) if chosen.other_engine else ()
    names = [tuple(name for name, where in outside.items() if where[i]) for i in range(len(us))]
    scaled = f"{SCALED}{slot.variant.removesuffix(JOINT)}" if slot is not None else chosen.provenance
    return [
        Prediction(
            float(us[i]), float(lows[i]), float(highs[i]), float(floor[i]), str(bounds[i]),
            scaled if narrow[i] else chosen.provenance, id_ if slot is not None else None,
            None if narrow[i] else error, names[i] + engine, family.name, kernel, float(shared[i]),
        )
        for i in range(len(us))
    ]  # fmt: skip


def time_of(
    device: Device, family: Family, slot: Slot | None, given: Mapping[str, Array], corrected: float = 1.0
) -> Array:
    """Microseconds: the model, times the correction, and never below the floor."""
    floor = family.floor(given, device)
    if device.clock is None or device.l2 is None:
        return bound_time(floor)
    if slot is None:
        parameters = {p.name: p.start for p in family.parameters}
    elif slot.device == device.name:
        parameters = dict(slot.parameters)
    else:
        parameters = adapted(slot.parameters, device_named(slot.device), device)
    us = family.model(parameters, given, device)
    correction = correction_of(slot)
    if corrected and correction is not None:
        # Trees know kernels as they were measured: what they say of those stands for kernels of narrower weights.
        measured = as_measured(given) if "width" in given else given
        alike = us if measured is given else family.model(parameters, measured, device)
        us = us * np.exp(corrected * correction(described(device, family, measured, alike)))
    return np.maximum(us, floor)


def _narrow(given: Mapping[str, Array]) -> NDArray[np.bool_]:
    """Rows whose weights have fewer bytes in memory than in the product: no such kernel was measured."""
    if "stored" not in given:
        return np.zeros(len(next(iter(given.values()))), dtype=bool)
    return np.asarray(given["stored"] < given["width"])


def bound_time(floor: Array) -> Array:
    """Microseconds on a device of which only peaks are known: 70 % of them, and 2 us to start a kernel."""
    return np.asarray(floor / 0.7 + 2.0)


def interval(
    device: Device, family: Family, chosen: Chosen, given: Mapping[str, Array], us: Array
) -> tuple[Array, Array]:
    """Logarithms of the ends of the 80 % interval over the prediction."""
    width = chosen.slot.width if chosen.slot is not None else None
    low, high = np.zeros(len(us)), np.zeros(len(us))
    if width is not None:
        measured = as_measured(given) if "width" in given else given
        alike = us if measured is given else time_of(device, family, chosen.slot, measured, chosen.corrected)
        low, high = width.ends(described(device, family, measured, alike))
    wider = Z80 * np.hypot(chosen.spread, np.where(_narrow(given), UNCALIBRATED_SPREAD, 0.0))
    return -np.hypot(np.minimum(low, 0.0), wider), np.hypot(np.maximum(high, 0.0), wider)


def described(device: Device, family: Family, given: Mapping[str, Array], us: Array) -> NDArray[np.float64]:
    """What corrections and sizes of errors are told by: the time, the shares of its limits, and the shape."""
    compute, memory, link = family.limits(given, device)
    shares = [np.minimum(limit / us, 1.0) for limit in (compute, memory, link)]
    return np.column_stack([np.log2(us), *shares, family.features(given, device)])


def _outside(slot: Slot | None, given: Mapping[str, Array]) -> tuple[Array, dict[str, NDArray[np.bool_]]]:
    """Doublings beyond the measured range, summed over columns, and the columns for which a row is outside."""
    size = len(next(iter(given.values())))
    total, found = np.zeros(size), {}
    for name, (least, greatest) in (slot.range if slot is not None else {}).items():
        values = np.maximum(given[name], 1e-9)
        under = np.log2(max(least, 1e-9) / values)
        over = np.log2(values / max(greatest, 1e-9))
        beyond = np.maximum(np.maximum(under, over), 0.0)
        if np.any(beyond > 0):
            found[name] = beyond > 0
            total = total + beyond
    return np.minimum(total, 6.0), found


Total = tuple[float, float, float]


def total(predictions: Sequence[Prediction], times: Sequence[float] | None = None) -> Total:
    """Microseconds of a sum of operators, with its 80 % interval; ``times``: how often each runs.

    Errors of one kernel family are alike: its ``shared`` part adds up linearly, only the rest in quadrature.
    """
    often = [1.0] * len(predictions) if times is None else list(times)
    us = sum(p.us * t for p, t in zip(predictions, often, strict=True))
    below = _spread(predictions, often, lambda p: p.us - p.low_us)
    above = _spread(predictions, often, lambda p: p.high_us - p.us)
    floor = sum(p.floor_us * t for p, t in zip(predictions, often, strict=True))
    return us, max(us - below, floor), us + above


def _spread(predictions: Sequence[Prediction], often: Sequence[float], half: Callable[[Prediction], float]) -> float:
    alone = 0.0
    families: dict[str, float] = defaultdict(float)
    for p, times in zip(predictions, often, strict=True):
        width = half(p) * times
        together = min(Z80 * p.shared * p.us * times, width)
        families[f"{p.family}/{p.provenance}"] += together
        # One shape that runs many times errs each time in the same way.
        alone += width**2 - together**2
    return math.sqrt(alone + sum(value**2 for value in families.values()))
