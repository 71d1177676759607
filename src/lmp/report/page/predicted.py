"""The page's predicted times: a table of texts at the stated points, which the reader's sizes do not change."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.predict.prediction import Total
from lmp.report.facts import ModelFacts

COLUMNS = ("point", "run as", "ms", "80 % interval", "bound by", "kernels alone, ms", "tokens/s")


@dataclass(frozen=True)
class Predicted:
    """What the table says; ``reason`` if there is none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    reason: str | None


def predicted(facts: ModelFacts) -> Predicted:
    """Of eager mode, and of a serving engine's launches, on the facts' device."""
    found = facts.predictions
    rows = []
    for point in facts.points:
        for profile in found.profiles:
            one = found.at(point.key, profile)
            if one is not None:
                bound = "launch (the host)" if one.bound == "launch" else one.bound
                kernels, rate = f"{one.call.whole[0] / 1e3:,.3f}", f"{one.tokens_per_s[0]:,.0f}"
                rows.append((point.title, profile, *_times(one.us), bound, kernels, rate))
    note = (
        f"On {facts.device.name}, {one_device(facts)}, at these points and not at the sizes chosen "
        "above. Four of five held-out measurements are in the interval. Eager: kernels or the host, whichever takes "
        f"longer; its time of a launch was measured on one host. {found.serving}: CUDA graphs, no overhead of a step."
    )
    return Predicted(COLUMNS, tuple(rows), note, found.reason)


def one_device(facts: ModelFacts) -> str:
    """On how many devices, in words."""
    tp = facts.deployment.parallel.tp
    return "one device as if the model fitted" if tp == 1 else f"one of {tp} that share each layer, as if it fitted"


def _times(found: Total) -> tuple[str, str]:
    us, low, high = (f"{figure / 1e3:,.3f}" for figure in found)
    return us, f"{low} to {high}"
