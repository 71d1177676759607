"""The answer card above a table: what one call costs, what it must cost, what is held, and how far that is proven."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from lmp.formula import Number, number_text, plain
from lmp.link.held import cache_bytes, weight_bytes
from lmp.link.values import CALL
from lmp.link.verdict import verdict
from lmp.predict.experts import experts_read, words
from lmp.records import worst
from lmp.report.formats.base import Result, Show
from lmp.report.formats.causes import Cause, causes
from lmp.report.formats.figures import figure, in_full, ratio
from lmp.report.terminal import GLUE
from lmp.report.warnings import of_costs

FACTOR = 2
"""Eager traffic above this multiple of the compulsory one is explained."""

NUMBERS = 3
"""Lines after the first that have the costs: FLOPs, eager bytes, compulsory bytes."""

_MOST_CAUSES = 3
_LEAST_SHARE = Fraction(1, 20)
"""Part of the difference that a cause has at least to be named."""

STYLES = {"verified": "green", "failed": "bold red", "unverified": "yellow"}


@dataclass(frozen=True)
class CardLine:
    """``parts`` are numbers, ``words`` say what they are. GLUE joins what stays on one line."""

    label: str
    parts: tuple[str, ...]
    style: str = ""
    words: str = ""


def card(result: Result, show: Show) -> list[CardLine]:
    part = [] if result.one_gpu is None else [f"FLOPs and bytes of one GPU of {result.one_gpu.gpus}"]
    call = CardLine("call", (call_in_words(result.evaluation.values, result.model.parameters), *part))
    found = [call, *_traffic(result, show), _held(result, show), _proof(result)]
    return [*found, *_conventions(result, show), *_caveats(result)]


def call_in_words(values: Mapping[str, Number], known: Collection[str]) -> str:
    """``decode of 1 token at batch 16 on a cache of 8,192``. ``known``: the variables of the formulas."""
    tokens = f"{values.get('seq_len', 1):,}{GLUE}token{'' if values.get('seq_len', 1) == 1 else 's'}"
    if "cache_len" not in known:
        phase = f"one call with {tokens}" if "seq_len" in known else "one call"
    elif not values["cache_len"]:
        phase = f"prefill of {tokens}"
    else:
        phase = f"{'decode' if values.get('seq_len') == 1 else 'chunked prefill'} of {tokens}"
    batch = f" at batch{GLUE}{values['batch_size']:,}" if "batch_size" in values else ""
    cache = f" on a cache of{GLUE}{values['cache_len']:,}" if "cache_len" in known and values["cache_len"] else ""
    return f"{phase}{batch}{cache}"


# --- FLOPs and bytes -------------------------------------------------------------------------------------------------


def _traffic(result: Result, show: Show) -> list[CardLine]:
    totals = result.evaluation.totals
    eager = plain(totals.read + totals.write)
    lines = [
        CardLine("FLOPs", _per(result, totals.flops, "FLOP", show)),
        CardLine("bytes eager", _per(result, eager, "B", show), words="as PyTorch runs it, operator by operator"),
    ]
    if totals.compulsory is None:
        why = "the analysis has no formula for it" if result.one_gpu is None else "operands do not tell it of one GPU"
        return [*lines, CardLine("compulsory", (f"unknown: {why}",), "yellow")]
    words = "what no engine can avoid: weights, inputs, cache and outputs once"
    lines.append(CardLine("compulsory", _per(result, totals.compulsory, "B", show), words=words))
    if eager > FACTOR * totals.compulsory:
        lines.append(_why(result, eager, totals.compulsory, show))
    return lines


def _per(result: Result, amount: Number, unit: str, show: Show) -> tuple[str, ...]:
    """The amount a call, and a token of those that the call takes."""
    values = result.evaluation.values
    step = "step" if values.get("seq_len") == 1 and values.get("cache_len") else "call"
    whole = f"{_glued(amount, unit, show)} a {step}"
    if "seq_len" not in result.model.parameters:
        return (whole,)
    tokens = values["seq_len"] * values.get("batch_size", 1)
    each = plain(Fraction(amount) / Fraction(tokens))
    return whole, f"{_glued(each, unit, show)} a token"


def _why(result: Result, eager: Number, compulsory: Number, show: Show) -> CardLine:
    found = causes([*result.operators()], result.evaluation.values)
    least = (eager - compulsory) * _LEAST_SHARE
    named = [cause for cause in found[:_MOST_CAUSES] if cause.moved >= least]
    times = f"eager is {ratio(int(eager), compulsory)}{GLUE}x compulsory" if compulsory else "nothing is compulsory"
    return CardLine("why", (times, *(_cause(cause, show) for cause in named)))


def _cause(cause: Cause, show: Show) -> str:
    operators = f" ({', '.join(cause.operators)})" if cause.operators else ""
    return f"{_glued(cause.moved, 'B', show)} {cause.name}{operators}"


def _conventions(result: Result, show: Show) -> list[CardLine]:
    """What is counted by convention and may be less in an engine: masked products, experts that tokens share."""
    masked: Number = 0
    for kernel, operands in result.operators():
        if operands is not None and operands.q_len is not None and int(operands.q_len) > 1:
            masked += kernel.total.flops
    parts = [f"attention in full, {_glued(masked, 'FLOP', show)}, whatever a mask leaves out"] if masked else []
    parts += [words(one) for one in experts_read(operands for _, operands in result.operators())]
    return [CardLine("counted", tuple(parts))] if parts else []


# --- memory ----------------------------------------------------------------------------------------------------------


def _held(result: Result, show: Show) -> CardLine:
    own = result.one_gpu
    if own is not None:
        if own.weights is None or own.cache is None:
            return CardLine("held", (f"weights and KV cache of one GPU unknown: {own.reason}",))
        cache = f"KV cache {_glued(plain(own.cache), 'B', show)} after it"
        return CardLine("held", (f"weights {_glued(plain(own.weights), 'B', show)}", cache), words="on each GPU")
    return CardLine("held", (*_weights(result, show), *_cache(result, show)))


def _weights(result: Result, show: Show) -> tuple[str, ...]:
    values, evaluation = result.evaluation.values, result.evaluation
    held = weight_bytes(result.numbers, values, result.at_w_bytes)
    count = evaluation.totals.parameters_count
    if held is None or count is None:
        return ("weights unknown: the analysis has no formula for them",)
    if result.stored is not None and result.stored != held:
        width = f"{number_text(values['w_bytes'])}{GLUE}B"
        return (
            f"weights {_glued(plain(result.stored), 'B', show)} as checkpoints store them: "
            f"layers' matrices at {width}, embedding, head, routers and norms at 2{GLUE}B",
            f"bytes above count all {_glued(count, '', show)} parameters at {width}",
        )
    method = evaluation.quantization
    how = f"at {number_text(values['w_bytes'])}{GLUE}B" if method is None else f"as the checkpoint has them, {method}"
    quantization = result.model.quantization
    how += ", but for what the warnings say" if method and quantization and quantization.warnings else ""
    return (f"weights {_glued(held, 'B', show)} ({_glued(count, '', show)} parameters {how})",)


def _cache(result: Result, show: Show) -> tuple[str, ...]:
    values = result.evaluation.values
    if "cache_len" not in result.model.parameters:
        return ("no KV cache",)
    held = cache_bytes(result.numbers, values)
    if held is None:
        return ("KV cache unknown: `lmp inspect` measures it",)
    each = plain(Fraction(held) / Fraction(values.get("batch_size", 1)))
    return (f"KV cache {_glued(held, 'B', show)} after it ({_glued(each, 'B', show)} a sequence)",)


# --- proof -----------------------------------------------------------------------------------------------------------


def _proof(result: Result) -> CardLine:
    if any(of_costs(result.tree.kernels())):
        return CardLine("", ("WRONG at these values: operators cost less than 0; see the warnings",), STYLES["failed"])
    whole = result.model.verification
    status = worst([whole.status, *result.evaluation.not_verified.values()])
    broken_here = _broken_assumptions(len(result.evaluation.violated_assumptions))
    if status == "verified" and broken_here:
        return CardLine("", (f"NOT verified at these values: {broken_here}",), STYLES["failed"])
    if status == "verified":
        return CardLine("", (verdict(whole, result.model.assumptions, result.model.pinned),), STYLES[status])
    broken = [f"{name.rpartition('.')[2]} is {one}" for name, one in result.evaluation.not_verified.items()]
    reason = whole.reason or ", ".join(broken) or "see the warnings"
    said = "; ".join(filter(None, (f"{status.upper()}: {reason}", broken_here)))
    return CardLine("", (said,), STYLES[status])


def _broken_assumptions(number: int) -> str:
    """The warnings name each; empty if none is broken."""
    what = "1 assumption does" if number == 1 else f"{number} assumptions do"
    return f"{what} not hold here, see the warnings" if number else ""


def _caveats(result: Result) -> list[CardLine]:
    evaluation, found = result.evaluation, []
    uncounted = sorted({name for names in evaluation.uncounted.values() for name in names})
    if uncounted:
        found.append(CardLine("", (f"UNCOUNTED, their cost is missing: {', '.join(uncounted)}",), "bold red"))
    return found


# --- values ----------------------------------------------------------------------------------------------------------


def values_of_the_call(result: Result) -> str:
    values = result.evaluation.values
    return ", ".join(f"{name}{GLUE}={GLUE}{in_full(values[name])}" for name in CALL if name in values)


def values_of_the_config(result: Result) -> str:
    values = result.evaluation.values
    return ", ".join(f"{name}{GLUE}={GLUE}{in_full(value)}" for name, value in values.items() if name not in CALL)


def _glued(amount: Number, unit: str, show: Show) -> str:
    number = figure(plain(Fraction(amount)), unit, show.exact)
    return (f"{number} {unit}".strip() if show.exact else number).replace(" ", GLUE)
