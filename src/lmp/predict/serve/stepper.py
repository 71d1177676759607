"""Times of many steps of an engine at once: each launch as a polynomial of the call, all rows predicted together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from lmp.predict.devices import Device
from lmp.predict.eager import by_peaks, predicted
from lmp.predict.prediction import Z80, Prediction, Predictor, Total
from lmp.predict.rewrite.profiles import Profile
from lmp.predict.rewrite.timing import OfEngine, asked_of_step
from lmp.predict.rows import Moe, Row
from lmp.predict.serve.regimes import SIZES, Calls, Sizes
from lmp.predict.serve.served_model import ServedModel
from lmp.predict.serve.structure import Form, Formed, Structure, Values, Words, form_of, solved
from lmp.predict.serve.times import Array, Index, Side, Times

Routing = Literal["balanced", "power_law_1.01", "power_law_1.2"]
ROUTING: Routing = "power_law_1.01"
"""How tokens choose experts unless it is said: of what was measured, the nearest to tokens that choose each by itself.

16 tokens that choose 8 of 128 experts reach 82 of them, 128 * (1 - (1 - 8 / 128) ** 16); balanced rows reach all.
"""
ATTENTION = ("prefill", "decode", "mla_prefill", "mla_decode")
"""Kernel families whose time depends on each sequence's length, not on the step's tokens alone."""


@dataclass(frozen=True)
class Launched:
    """One launch at some of the calls."""

    form: Form
    calls: Index
    rows: Index
    """Of each call, the number of its prediction."""


@dataclass(frozen=True)
class Stepper:
    """Steps of one served model on one device, as one engine's profile launches them.

    ``steps`` takes calls: sequences, new tokens of each, tokens in the cache of each.
    """

    served: ServedModel
    profile: Profile
    device: Device
    predictor: Predictor
    routing: Routing = ROUTING
    """How tokens choose experts, as a row of `lmp predict-op` says it."""
    structures: dict[bytes, Structure | None] = field(default_factory=dict)
    """Regime -> its structure; None: its calls are asked for one by one."""
    single: dict[Sizes, list[Formed]] = field(default_factory=dict)
    """Launches of calls that were asked for one by one."""
    others: dict[str, Stepper] = field(default_factory=dict)
    """Rule -> the step model without it."""

    def steps(self, calls: Sequence[Sizes] | Calls) -> list[Total]:
        """Microseconds of each step with its 80 % interval, the profile's overhead included.

        Raises LmpError for a step that cannot be predicted.
        """
        return self.times(calls).plus_us(self.profile.overhead_us).totals()

    def times(self, calls: Sequence[Sizes] | Calls, families: Iterable[str] = (), without: Iterable[str] = ()) -> Times:
        """The same without the overhead, as arrays. Of these kernel families alone, if any is given.

        Raises LmpError for a step that cannot be predicted.
        """
        wanted = np.asarray(calls, dtype=np.int64).reshape(-1, len(SIZES))
        if not len(wanted):
            return summed([], [], 0)
        distinct, back = np.unique(wanted, axis=0, return_inverse=True)
        launched, made = self._launched(distinct)
        found = summed(launched, made, len(distinct), frozenset(families), frozenset(without))
        return found.picked(back.reshape(-1))

    def without(self, rule: str) -> Stepper:
        """The same steps with a profile that does not have a rule."""
        if rule not in self.others:
            rules = [name for name in self.profile.rules if name != rule]
            profile = self.profile.model_copy(update={"rules": rules})
            self.others[rule] = replace(self, profile=profile, structures={}, single={}, others={})
        return self.others[rule]

    def predictions(self, call: Sizes) -> list[tuple[Form, Prediction]]:
        """Every launch of one step, with the time of one execution."""
        launched, made = self._launched(np.array([call], dtype=np.int64))
        return [(one.form, made[int(one.rows[0])]) for one in launched]

    # -- launches ------------------------------------------------------------------------------------------------------

    def _launched(self, calls: Calls) -> tuple[list[Launched], list[Prediction]]:
        """Every launch of every call, and the predictions that they share."""
        asked: dict[tuple[object, ...], int] = {}
        rows: dict[int, Row] = {}
        peaks: dict[int, Prediction] = {}
        choices = []
        for where, forms, sizes in self._forms(calls):
            for form, values in zip(forms, sizes, strict=True):
                distinct, back = np.unique(values, axis=0, return_inverse=True)
                numbers: list[list[int]] = []
                for words in form.choices:
                    numbers.append([])
                    for row in distinct.astype(np.int64).tolist():
                        number = asked.setdefault((form.record, words, form.names, *row), len(asked))
                        if form.record is None and number not in peaks:
                            peaks[number] = self._by_peaks(words, row)
                        elif form.record is not None and number not in rows:
                            rows[number] = self._row(form, words, row)
                        numbers[-1].append(number)
                choices.append((form, where, np.array(numbers, dtype=np.int64)[:, back.reshape(-1)]))
        engine = OfEngine(self.predictor, self.profile.kernels)
        made = dict(zip(rows, map(predicted, engine.predict(list(rows.values()))), strict=True)) | peaks
        found = [made[number] for number in range(len(asked))]
        us = np.array([one.us for one in found])
        launched = [
            Launched(form, where, numbers[us[numbers].argmin(axis=0), np.arange(numbers.shape[1])])
            for form, where, numbers in choices
        ]
        return launched, found

    def _row(self, form: Form, words: Words, sizes: Sequence[int]) -> Row:
        assert form.record is not None
        # The form was read from a checked row; the sizes are those of its polynomials.
        values: dict[str, object] = {**dict(words), **dict(zip(form.names, sizes, strict=True))}
        if form.record is Moe:
            values["routing"] = self.routing
        return form.record.model_construct(None, device=self.device.name, **values)

    def _by_peaks(self, words: Words, sizes: Sequence[int]) -> Prediction:
        flops, read, write = sizes
        known = dict(words)
        return by_peaks(flops, read + write, bool(known["wide"]), self.device, str(known["dtype"]))

    def _forms(self, calls: Calls) -> Iterable[tuple[Index, Sequence[Form], Sequence[Values]]]:
        """Calls of one structure together, with the sizes of each launch."""
        keys = self.served.regimes.of(calls)
        groups: dict[bytes, list[int]] = {}
        for number, key in enumerate(keys):
            groups.setdefault(key, []).append(number)
        for key, numbers in groups.items():
            where = np.array(numbers, dtype=np.int64)
            own = calls[where]
            structure = self._structure(key, own)
            if structure is not None:
                yield where, structure.forms, structure.sizes(own)
                continue
            for number, call in zip(numbers, own.tolist(), strict=True):
                formed = self._single(tuple(call))
                sizes = [np.array([values], dtype=np.float64) for _, values in formed]
                yield np.array([number]), [form for form, _ in formed], sizes

    def _single(self, call: Sizes) -> list[Formed]:
        if call not in self.single:
            _, asked = asked_of_step(self.served.step(call), self.profile, self.device)
            self.single[call] = [form_of(one) for one in asked]
        return self.single[call]

    def _structure(self, key: bytes, calls: Calls) -> Structure | None:
        if key not in self.structures:
            samples = self.served.samples.get(key, [])
            given = [(int(b), int(q), int(c)) for b, q, c in calls]
            self.structures[key] = solved(list(dict.fromkeys([*samples, *given])), self._single)
        return self.structures[key]


def summed(
    launched: Sequence[Launched],
    made: Sequence[Prediction],
    steps: int,
    families: frozenset[str] = frozenset(),
    without: frozenset[str] = frozenset(),
) -> Times:
    """The times of steps from their launches: what `lmp.predict.prediction.total` does, for many steps.

    ``families``: those that count, all if empty; ``without``: those that do not.
    """
    us, low, high, floor, shared = (
        np.array([getattr(one, name) for one in made]) for name in ("us", "low_us", "high_us", "floor_us", "shared")
    )
    counts = [one.family not in without and (not families or one.family in families) for one in made]
    kept = np.array(counts, dtype=bool)
    names, codes = _coded([f"{one.family}/{one.provenance}" for one in made])
    texts, beyond_codes = _coded([f"{one.family}: {', '.join(one.extrapolated)}" if one.extrapolated else ""
                                  for one in made])  # fmt: skip
    time, least = np.zeros(steps), np.zeros(steps)
    alone = (np.zeros(steps), np.zeros(steps))
    parts, below, above = (_zeros(names, steps) for _ in range(3))
    beyond = _zeros(texts, steps)
    for one in launched:
        wanted = kept[one.rows]
        where, rows = one.calls[wanted], one.rows[wanted]
        own = us[rows] * one.form.repeat
        time[where] += own
        least[where] += floor[rows] * one.form.repeat
        _put(parts, codes[rows], where, own)
        _put(beyond, beyond_codes[rows], where, own)
        halves = (us[rows] - low[rows], high[rows] - us[rows])
        for half, squares, together in zip(halves, alone, (below, above), strict=True):
            width = half * one.form.repeat
            same = np.minimum(Z80 * shared[rows] * own, width)
            squares[where] += width**2 - same**2
            _put(together, codes[rows], where, same)
    left = {text: part for text, part in zip(texts, beyond, strict=True) if text and part.any()}
    named = (_named(names, found) for found in (parts, below, above))
    us_of, low_of, high_of = named
    return Times(time, least, Side(alone[0], low_of), Side(alone[1], high_of), us_of, left)


def _coded(names: Sequence[str]) -> tuple[list[str], Index]:
    """Each name once, and of each its number among them."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(known), np.array([known[name] for name in names], dtype=np.int64)


def _zeros(names: Sequence[str], steps: int) -> list[Array]:
    return [np.zeros(steps) for _ in names]


def _put(parts: Sequence[Array], codes: Index, where: Index, values: Array) -> None:
    """Add values to the parts that the codes name, at the steps of ``where``: each step stands there once."""
    for code in np.unique(codes).tolist():
        of = codes == code
        parts[code][where[of]] += values[of]


def _named(names: Sequence[str], parts: Sequence[Array]) -> dict[str, Array]:
    return {name: part for name, part in zip(names, parts, strict=True) if part.any()}
