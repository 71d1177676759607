"""Predictions beside the bounds of section 8: time of a call with its interval, and where the host is what bounds."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.predict.prediction import Total
from lmp.predict.screen.asking import EAGER, Answer
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bold, Inline, Line, Paragraph, Table
from lmp.report.facts import ModelFacts, Point

COLUMNS = (
    "Point",
    "Predicted, eager",
    "Interval",
    "Bound by",
    "Its kernels alone, CUDA graphs",
    "Predicted, serving engine",
    "Interval",
    "Bound by",
    "Of it measured kernels",
)
TOKENS = "Tokens/s, serving engine"
"""Last column, of a model that tokens go through."""


def predicted_blocks(facts: ModelFacts) -> Iterator[Block]:
    """The table of predictions; or why there is none."""
    found = facts.predictions
    if found.reason is not None:
        yield Paragraph([Bold("A prediction:"), f" none: {found.reason}."])
        return
    eager = next(iter(found.found.values()), None)
    launch = eager.profile.launch_us[0] if eager is not None else 0.0
    yield Paragraph(
        [
            Bold("A prediction, not a measurement."),
            " Times of kernels by models that were fitted to measured kernels; four of five held-out measurements are "
            "in the interval. Kernels that were not measured are worked out from the datasheet, with a wider one. "
            "Eager: the kernels of the class, or the host, whichever takes longer; the host takes ",
            constant(facts, launch * 1e-6, "stated: a loop of clone() in PyTorch 2.10, NVIDIA/TensorRT-LLM pull 13149"),
            f" to launch one (stated, not measured by lmp). Serving engine: what the profile {found.serving} launches "
            f"in CUDA graphs, with no overhead of a step. {_where(facts)}.",
        ]
    )
    rows = [_row(facts, point) for point in facts.points]
    columns = (*COLUMNS, TOKENS) if _has_tokens(facts) else COLUMNS
    yield Table(columns, rows, right=frozenset({1, 2, 4, 5, 6, 8, 9} & set(range(len(columns)))))


def _where(facts: ModelFacts) -> str:
    tp = facts.deployment.parallel.tp
    return "One device, as if the model fitted" if tp == 1 else f"One of {tp} devices that share each layer"


def _has_tokens(facts: ModelFacts) -> bool:
    return "seq_len" in facts.model.parameters


def _row(facts: ModelFacts, point: Point) -> list[Line]:
    engine = facts.predictions.serving
    eager, serving = (facts.predictions.at(point.key, profile) for profile in facts.predictions.profiles)
    assert eager is not None
    assert serving is not None
    share = serving.call.shares("provenance").get("calibrated", 0.0)
    source = f"predicted, {engine}"
    rate: Line = facts.number("{a}", "", a=Term(constant=round(serving.tokens_per_s[0]), source=source))
    return [
        point.title,
        time_of(facts, eager.us, EAGER),
        interval(facts, eager.us, EAGER),
        bound_words(eager),
        time_of(facts, eager.call.whole, EAGER),
        time_of(facts, serving.us, engine),
        interval(facts, serving.us, engine),
        bound_words(serving),
        facts.number("{a} / 10", "%", a=Term(constant=round(share * 1000), source=source)),
        *([rate] if _has_tokens(facts) else []),
    ]


def bound_words(found: Answer) -> str:
    return "launch (the host)" if found.bound == "launch" else found.bound


def launch_line(facts: ModelFacts, point: Point) -> Iterator[Inline]:
    """What the host's launches are beside the kernels at a point; nothing where that is not predicted."""
    found = facts.predictions.at(point.key, EAGER)
    if found is None:
        return
    yield f"; {point.title}: "
    yield facts.number("{a}", "", a=Term(constant=found.call.launches, source="launches of the call"))
    yield " launches take the host "
    yield time_of(facts, found.host, EAGER)
    yield ", their kernels take "
    yield time_of(facts, found.call.whole, EAGER)
    if found.bound != "launch":
        yield f": not launch-bound, but bound by {found.bound}"
        return
    gain = round(1000 * (1 - found.call.whole[0] / found.us[0]))
    yield ": "
    yield Bold("launch-bound")
    yield "; CUDA graphs save "
    yield facts.number("{a} / 10", "%", a=Term(constant=gain, source=f"predicted, {EAGER}"))


def time_of(facts: ModelFacts, found: Total, profile: str) -> Number:
    """The time of a prediction, to nanoseconds."""
    return constant(facts, found[0] * 1e-6, f"predicted, {profile}")


def interval(facts: ModelFacts, found: Total, profile: str) -> list[Inline]:
    """The ends of the interval."""
    low, high = (constant(facts, end * 1e-6, f"predicted, {profile}, end of the interval") for end in found[1:])
    return [low, " to ", high]


def constant(facts: ModelFacts, seconds: float, source: str) -> Number:
    return facts.number("{a} / 10 ** 9", "s", a=Term(constant=round(seconds * 1e9), source=source))
