"""The answer card: what a call takes on a device, run eagerly and by a serving engine, side by side.

Every table, page and JSON that names a device has it from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lmp.errors import LmpError, first_line
from lmp.formula import Number
from lmp.observe.held import Held
from lmp.predict.eager import beyond_positions
from lmp.predict.engines import GIB
from lmp.predict.holding import held_by_formulas
from lmp.predict.prediction import SCALED, Predictor, Total
from lmp.predict.rewrite.profiles import profile_named
from lmp.predict.screen.asking import Answer, Ask, Subject, answer
from lmp.predict.screen.records import Card, CardMemory, CardRun, Estimate
from lmp.predict.screen.room import Room, room_or_why

SERVING = "vllm"
"""The serving engine where none is named."""
EAGER_NAME = "eager"
LEAST_SCALED = 0.05
"""Part of the time from which a note says that kernels stand for others with wider weights."""
LEAST_CALIBRATED = 0.5
"""Part of the time below which a note says that most of it was not measured on the device."""


def card(
    subject: Subject,
    ask: Ask,
    predictor: Predictor,
    known: Sequence[Answer] = (),
    held: Held | str | None = None,
    force: bool = False,
) -> Card:
    """The card of a call. ``ask`` may name an engine: it stands in place of eager mode, or of the default engine.

    ``known`` are answers that are there already. ``held``: what the model holds, if that is known; else it is worked
    out from the formulas. With ``force``, a model that does not fit has a time too.
    """
    held = held_by_formulas(subject, ask.given, ask.parallel.tp) if held is None else held
    runs = [_run(subject, one, predictor, known, (held, force)) for one in _asks(ask)]
    parallel = ask.parallel
    return Card(
        device=ask.device.name, label=ask.device.label, gpus=parallel.gpus, tp=parallel.tp, ep=parallel.ep,
        pp=parallel.pp, runs=runs, notes=_notes(subject, ask, runs),
    )  # fmt: skip


def _asks(ask: Ask) -> list[Ask]:
    """Eager mode and a serving engine; the engine that is asked for stands in place of one of them."""
    profile = ask.profile
    eager, serving = (
        replace(ask, profile=None, name=EAGER_NAME),
        replace(ask, profile=profile_named(SERVING), name=SERVING),
    )
    if profile is None:
        return [eager, serving]
    return [eager, ask] if profile.kernels is not None else [ask, serving]


def _run(
    subject: Subject, ask: Ask, predictor: Predictor, known: Sequence[Answer], memory: tuple[Held | str, bool]
) -> CardRun:
    held, force = memory
    own = room_or_why(held, ask, subject)
    reason = None if force or isinstance(own, str) or own.fits else _does_not_fit(own, ask)
    found: Answer | None = None
    if reason is None:
        try:
            found = next((one for one in known if one.ask == ask), None) or answer(subject, ask, predictor)
        except LmpError as error:
            reason = first_line(error)
    room_of = own if isinstance(own, Room) else None
    about = {
        "engine": ask.name, "serving": ask.profile is not None and ask.profile.kernels is not None, "reason": reason,
        "memory": None if room_of is None else _memory(room_of),
        "memory_reason": own if isinstance(own, str) else None,
    }  # fmt: skip
    return CardRun.model_validate({**about, **(_NO_TIME if found is None else _time(found))})


_NO_TIME: Mapping[str, object] = {
    "step_us": None, "tokens_per_s": None, "tokens": None, "bound": None, "kernels": None, "kernels_us": None,
    "host_us": None, "provenance": {},
}  # fmt: skip


def _time(found: Answer) -> dict[str, object]:
    return {
        "step_us": _estimate(found.us),
        "tokens_per_s": _estimate(found.tokens_per_s),
        "tokens": found.tokens,
        "bound": found.bound,
        "kernels": found.call.launches,
        "kernels_us": _estimate(found.call.whole),
        "host_us": _estimate(found.host) if found.host[0] else None,
        "provenance": {name: round(share, 4) for name, share in found.call.shares("provenance").items()},
    }


def _estimate(found: Total) -> Estimate:
    value, low, high = (round(figure, 3) for figure in found)
    return Estimate(value=value, low=low, high=high)


def _memory(found: Room) -> CardMemory:
    sizes = {"held": found.held, "total": found.total, "weights": found.weights, "kv": found.cache}
    return CardMemory(
        **{name: math.ceil(size) for name, size in sizes.items()},
        fits=found.fits, kv_a_token=math.ceil(found.kv_token), smallest_tp=found.smallest_tp,
        largest_batch=found.largest_batch,
    )  # fmt: skip


def _does_not_fit(found: Room, ask: Ask) -> str:
    """One line with what it would hold, and what would fit."""
    larger = found.smallest_tp is not None and found.smallest_tp > ask.parallel.tp
    ways = [f"--tp {found.smallest_tp}"] if larger else []
    ways += [f"-b {found.largest_batch}"] if found.largest_batch else []
    said = f"does not fit, {float(found.held / GIB):,.2f} of {float(found.total / GIB):,.2f} GiB"
    return f"{said}; {' or '.join(ways)} does" if ways else f"{said}, on no tp up to 64"


def _notes(subject: Subject, ask: Ask, runs: Sequence[CardRun]) -> list[str]:
    sizes: dict[str, Number] = dict(ask.given)
    found = [note for note in (beyond_positions(subject.config, sizes),) if note is not None]
    timed = [run.provenance for run in runs if run.step_us is not None]
    scaled: dict[str, float] = {}
    for name, share in (pair for one in timed for pair in one.items() if pair[0].startswith(SCALED)):
        scaled[name] = max(share, scaled.get(name, 0.0))
    found += [
        f"up to {share:.0%} of the time is kernels that widen their weights; none was measured: they are scaled "
        f"by bytes from {name.removeprefix(SCALED)} kernels, and intervals are wide"
        for name, share in scaled.items()
        if share >= LEAST_SCALED
    ]
    measured = [one.get("calibrated", 0.0) + sum(one.get(name, 0.0) for name in scaled) for one in timed]
    if measured and max(measured) < LEAST_CALIBRATED:
        found.append(
            f"most kernels of this call were not measured on {ask.device.name}: times come from its datasheet or "
            "from other devices, and intervals are wide"
        )
    return [*found, *subject.notes(ask.parallel)]
