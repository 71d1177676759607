"""A prediction as JSON, as ``lmp predict --json`` writes it."""

from __future__ import annotations

from dataclasses import asdict

from lmp.predict.eager import as_json as call_json
from lmp.predict.engines import GIB
from lmp.predict.prediction import Total
from lmp.predict.screen.asking import Answer
from lmp.predict.screen.changes import Change
from lmp.predict.screen.dearest import Dear
from lmp.predict.screen.room import Room
from lmp.predict.screen.whole import Whole


def as_json(found: Whole, profile: str) -> dict[str, object]:
    """Figures of the screen, after them each operator and each rewrite. Times in microseconds, memory in GiB."""
    now = found.answer
    rewrites = now.step.as_json() if now.step is not None else {}
    return {
        "class_name": now.evaluation.class_name,
        "card": found.card.model_dump(mode="json"),
        "device": now.ask.device.name,
        "profile": profile,
        "parallel": asdict(now.ask.parallel),
        "values": now.evaluation.model_dump(mode="json")["values"],
        **call_json(now.call),
        **rewrites,
        **step_json(now),
        "experts_read": [one.model_dump(mode="json") for one in now.experts],
        "memory": _memory(found.room),
        "dearest": [_dear(one) for one in found.dearest],
        "next": [_change(one) for one in found.changes],
    }


def step_json(now: Answer) -> dict[str, object]:
    """The step: kernels or host, whichever takes longer, and the overhead."""
    return {
        "step_us": _rounded(now.us),
        "overhead_us": now.profile.overhead_us,
        "bounded_by": now.bound,
        "host": {
            "us": _rounded(now.host),
            "launch_us": list(now.profile.launch_us),
            "provenance": "stated" if now.host[0] else "hidden by graphs",
        },
        "tokens": now.tokens,
        "tokens_per_s": _rounded(now.tokens_per_s),
    }


def _rounded(found: Total) -> list[float]:
    return [round(figure, 3) for figure in found]


def _memory(room: Room | str) -> dict[str, object]:
    if isinstance(room, str):
        return {"unknown": room}
    sizes = {"held": room.held, "total": room.total, "weights": room.weights, "kv": room.cache, "free": room.free}
    return {
        **{f"{name}_gib": float(size / GIB) for name, size in sizes.items()},
        "fits": room.fits,
        "smallest_tp": room.smallest_tp,
        "largest_batch": room.largest_batch,
    }


def _dear(one: Dear) -> dict[str, object]:
    return {
        "operation": one.operation,
        "lines": list(one.lines),
        "runs": one.runs,
        "total_us": round(one.us, 3),
        "share": round(one.share, 4),
        "bound": one.bound,
        "provenance": one.provenance,
    }


def _change(one: Change) -> dict[str, object]:
    return {
        "what": one.what,
        "option": one.option,
        "step_us": None if one.us is None else _rounded(one.us),
        "tokens_per_s": None if one.tokens_per_s is None else round(one.tokens_per_s, 3),
        "gain": None if one.gain is None else round(one.gain, 4),
        "gpus": one.gpus,
        "reason": one.reason,
    }
