"""A plan as JSON, as ``lmp plan --json`` writes it. Times in milliseconds, memory in GiB."""

from __future__ import annotations

from lmp.predict.engines import GIB
from lmp.predict.plan.options import Fit, Option
from lmp.predict.plan.planning import Planned
from lmp.predict.prediction import Total


def as_json(found: Planned) -> dict[str, object]:
    """The best, the front, why, and every option with every layout that does not fit."""
    limits = {"tpot_ms": found.limits.tpot, "ttft_ms": found.limits.ttft}
    return {
        "limits": {name: None if limit is None else limit / 1e3 for name, limit in limits.items()},
        "best": option_json(found.chosen),
        "reasons": list(found.reasons),
        "front": [option_json(one) for one in found.front],
        "options": [{**option_json(one), "within_limits": one.meets(found.limits)} for one in found.found],
        "does_not_fit": [_fit(one) for one in found.considered.fits if not one.most],
        "does_not_divide": [
            {"layout": layout.words, "reason": reason} for layout, reason in found.considered.refused.items()
        ],
    }


def option_json(one: Option) -> dict[str, object]:
    """A layout at one batch."""
    layout = one.layout
    return {
        "tp": layout.tp,
        "ep": layout.ep,
        "pp": layout.pp,
        "replicas": layout.replicas,
        "gpus": layout.gpus * layout.replicas,
        "batch": one.batch,
        "largest_batch": one.fit.most,
        "tpot_ms": _ms(one.reply.tpot),
        "ttft_idle_ms": _ms(one.reply.ttft),
        "tokens_per_s_per_user": round(one.per_user, 3),
        "tokens_per_s_per_gpu": round(one.per_gpu, 3),
        "tokens_per_s": round(one.tokens_per_s, 3),
    }


def _ms(time: Total) -> list[float]:
    return [round(figure / 1e3, 4) for figure in time]


def _fit(one: Fit) -> dict[str, object]:
    layout = one.layout
    return {
        "tp": layout.tp, "ep": layout.ep, "pp": layout.pp, "replicas": layout.replicas,
        "weights_gib": float(one.weights / GIB), "total_gib": float(one.total / GIB), "kv_gib": float(one.free / GIB),
    }  # fmt: skip
