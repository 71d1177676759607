"""What would help most next: the same prediction with one thing changed, the largest gain first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from lmp.dtypes import WORDS
from lmp.errors import LmpError, first_line
from lmp.formula import Number
from lmp.predict.prediction import Predictor, Total
from lmp.predict.rewrite.profiles import Profile, profile_named
from lmp.predict.rewrite.rewriting import RULES
from lmp.predict.rewrite.rules import NOTHING
from lmp.predict.screen.asking import EAGER, Answer, Ask, Subject, answer

COMPILED, SERVING = "transformers-compiled", "vllm"
NO_LAUNCHES = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Change:
    """The prediction with one thing changed."""

    what: str
    option: str
    """What to type in addition, or in place of what was typed; empty if no option does it."""
    us: Total | None = None
    """Microseconds of the step; None if it is not predicted."""
    tokens_per_s: float | None = None
    gain: float | None = None
    """Tokens a second, divided by those of the prediction that is changed."""
    gpus: int = 1
    reason: str | None = None
    """Why it is not predicted."""


@dataclass(frozen=True)
class Plan:
    """One thing to change."""

    what: str
    option: str
    ask: Ask | None
    reason: str | None = None


Fits = Callable[[Ask], str | None]
"""Why a call does not fit on the device; None if it does, or if that is not known."""


def changes(subject: Subject, now: Answer, predictor: Predictor, fits: Fits = lambda ask: None) -> list[Change]:
    """Every change that applies, the largest gain first; those that are not predicted last, with the reason."""
    made = [_changed(subject, plan, now, predictor, fits) for plan in _plans(subject, now)]
    return sorted(made, key=lambda change: -(change.gain or 0.0))


def _changed(subject: Subject, plan: Plan, now: Answer, predictor: Predictor, fits: Fits) -> Change:
    if plan.ask is None:
        return Change(plan.what, plan.option, reason=plan.reason)
    reason = fits(plan.ask)
    if reason is not None:
        return Change(plan.what, plan.option, reason=reason)
    try:
        then = answer(subject, plan.ask, predictor)
    except LmpError as error:
        return Change(plan.what, plan.option, reason=first_line(error))
    rate = then.tokens_per_s[0]
    before = now.tokens_per_s[0]
    return Change(plan.what, plan.option, then.us, rate, rate / before if before else None, plan.ask.parallel.gpus)


def _plans(subject: Subject, now: Answer) -> Iterator[Plan]:
    yield from _ways_to_run(now)
    yield from _narrower(subject, now)
    ask = now.ask
    if "batch_size" in now.values:
        batch = int(now.values["batch_size"])
        yield Plan("twice the batch", f"-b {2 * batch}", replace(ask, given=ask.to(batch_size=2 * batch)))
    if now.call.operators:
        tp = 2 * ask.parallel.tp
        yield Plan("twice the tp", f"--tp {tp}", replace(ask, parallel=replace(ask.parallel, tp=tp)))


def _ways_to_run(now: Answer) -> Iterator[Plan]:
    """Other profiles, graphs, and rules that save matrix FLOPs."""
    ask, profile = now.ask, now.profile
    if profile.kernels is None:
        serving = profile_named(SERVING)
        yield Plan("a serving engine", f"--engine {SERVING}", replace(ask, profile=serving))
        compiled = profile_named(COMPILED)
        if profile.rules != compiled.rules:
            yield Plan("compiled", f"--engine {COMPILED}", replace(ask, profile=compiled))
    if profile.launch_us[0]:
        graphs = profile.model_copy(update={"launch_us": NO_LAUNCHES})
        yield Plan("CUDA graphs", _without_launches(ask), replace(ask, profile=graphs))
    for name in _that_save(profile):
        more = profile.model_copy(update={"rules": [*profile.rules, name]})
        yield Plan(f"the rule {name}", "rules of a profile", replace(ask, profile=more))


def _without_launches(ask: Ask) -> str:
    return "--launch-us 0" if ask.profile is not None else f"--engine {EAGER} --launch-us 0"


def _that_save(profile: Profile) -> list[str]:
    """Rules of serving engines that save matrix FLOPs, and that the profile does not have."""
    serving = profile_named(SERVING).rules
    return [name for name in serving if RULES[name].saves != NOTHING and name not in profile.rules]


def _narrower(subject: Subject, now: Answer) -> Iterator[Plan]:
    """fp8 weights and products, and an fp8 cache."""
    ask, values = now.ask, now.values
    kv = values.get("kv_bytes", values.get("a_bytes", 2))
    if Fraction(values.get("w_bytes", 2)) > 1:
        yield _fp8_weights(subject, ask, kv)
    if "kv_bytes" in values and Fraction(kv) > 1:
        yield Plan("fp8 cache", "--kv-dtype fp8", replace(ask, given=ask.to(kv_bytes=1)))


def _fp8_weights(subject: Subject, ask: Ask, kv: Number) -> Plan:
    what, option = "fp8 weights and products", "--dtype fp8 --kv-dtype bf16"
    if subject.scheme(ask.given) is not None:
        said = subject.own.model.quantization
        return Plan(what, option, None, f"the checkpoint is quantised: {said.applied if said is not None else ''}")
    if "fp8" not in ask.device.dense:
        return Plan(what, option, None, f"{ask.device.name} has no fp8 products")
    given = ask.to(w_bytes=1, a_bytes=1, kv_bytes=kv)
    return Plan(what, option, replace(ask, given=given, products=WORDS["fp8"].products))
