"""One call of a model on a device, predicted: kernels, host, and what bounds the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from lmp.dtypes import CACHE_WORDS, WORDS, cache_size
from lmp.dtypes import sizes as widths
from lmp.errors import UsageError
from lmp.formula import Number
from lmp.link.numbers import ModelNumbers
from lmp.link.quantisation import Scheme, scheme_of
from lmp.link.quantised import with_own_bytes
from lmp.link.records import EvaluatedKernel, Evaluation
from lmp.link.sweep import plan as points
from lmp.observe.held import Live
from lmp.predict.devices import Device
from lmp.predict.eager import CallTime, refuse_products
from lmp.predict.experts import experts_read
from lmp.predict.prediction import Predictor, Total
from lmp.predict.quantising import WIDE, Narrowed, kept_wide
from lmp.predict.rewrite.profiles import Profile, profile_named
from lmp.predict.rewrite.timing import OfEngine, Step, StepTime, time_of_step
from lmp.predict.screen.records import ExpertsRead
from lmp.predict.shard.models import UNLIKE, plan_of, rank_of
from lmp.predict.shard.parallel import ONE, Parallel
from lmp.predict.shard.planning import Plan
from lmp.records import ModelAnalysis

EAGER = "transformers-eager"
"""The profile of a call without an engine."""


ONE_NODE = 8
"""GPUs over which collectives were measured (README of the data)."""


@dataclass(frozen=True, eq=False)
class Subject:
    """An expanded model, its formulas parsed once for many predictions."""

    model: ModelAnalysis
    """As it was expanded: each weight has ``w_bytes``."""
    config: Mapping[str, Any] | None = None
    """Content of its config.json."""
    _plans: dict[tuple[bool, ...], Plan] = field(default_factory=dict, init=False, repr=False)
    """How the model divides, by the kind of call."""
    _kept: list[frozenset[str]] = field(default_factory=list, init=False, repr=False)
    """Paths of modules that quantising leaves, once they are found."""
    alive: dict[tuple[frozenset[tuple[str, Number]], int], Live | str] = field(
        default_factory=dict, init=False, repr=False
    )
    """The peaks of calls with logits of every position, by sizes of the model and tokens, once they are worked out."""

    @cached_property
    def plain(self) -> ModelNumbers:
        """Formulas in which each weight has ``w_bytes``."""
        return ModelNumbers(self.model)

    @cached_property
    def own(self) -> ModelNumbers:
        """Formulas with the bytes of the checkpoint's own quantisation."""
        own = with_own_bytes(self.model)
        return self.plain if own is self.model else ModelNumbers(own)

    def numbers(self, given: Mapping[str, Number]) -> ModelNumbers:
        """The formulas that hold for these values: the checkpoint's own bytes, unless ``w_bytes`` is given."""
        return self.plain if "w_bytes" in given else self.own

    def kernels(
        self,
        given: Mapping[str, Number],
        values: Mapping[str, Number],
        parallel: Parallel,
        evaluation: Evaluation | None = None,
    ) -> OneGpu:
        """The kernels of one GPU of each stage, which run one stage after the other.

        ``evaluation``: that of the whole model at these values, where there is one already. Raises UsageError, with the
        allowed values, where the model does not divide.
        """
        numbers = self.numbers(given)
        if evaluation is None:
            evaluation = numbers.evaluation(values, numbers.tree(values))
        if parallel == ONE:
            return OneGpu(evaluation, evaluation.kernels)
        plan = self.plan(numbers, values)
        return OneGpu(evaluation, rank_of(numbers, values, parallel, plan, evaluation.kernels).every)

    def plan(self, numbers: ModelNumbers, values: Mapping[str, Number]) -> Plan:
        """How the model divides in calls like this one, by its own formulas or by those with ``w_bytes``."""
        kind = (numbers is self.own, *(values.get(name, 0) > (name != "cache_len") for name in UNLIKE))
        if kind not in self._plans:
            self._plans[kind] = plan_of(numbers, values)
        return self._plans[kind]

    def notes(self, parallel: Parallel) -> list[str]:
        """What the reader of one GPU's figures has to know: what is whole on each, and which links are meant."""
        found = [note for plan in self._plans.values() for note in plan.notes()] if parallel.tp > 1 else []
        node = "collectives are those of GPUs of one node: the datasheet does not say how many one has"
        return [*dict.fromkeys(found), *([node] if max(parallel.tp, parallel.gpus) > ONE_NODE else [])]

    def scheme(self, given: Mapping[str, Number]) -> Scheme | None:
        """How the checkpoint stores its weights; None where each has ``w_bytes``."""
        said = self.numbers(given).model.quantization
        return scheme_of(said.config) if said is not None and said.applied else None

    def products_scheme(self, given: Mapping[str, Number], evaluation: Evaluation) -> Scheme | None:
        """How products read the weights: the checkpoint's scheme, or which modules a ``w_bytes`` below 2 is not for.

        ``evaluation``: that of the whole model at these values.
        """
        width = given.get("w_bytes", WIDE)
        if not width < WIDE:
            return self.scheme(given)
        if not self._kept:
            self._kept.append(kept_wide(evaluation.kernels))
        return Narrowed("given", paths=self._kept[0])


@dataclass(frozen=True)
class OneGpu:
    """The whole model at a call, and what one GPU of each stage runs of it."""

    evaluation: Evaluation
    kernels: Sequence[EvaluatedKernel]


@dataclass(frozen=True)
class Ask:
    """What is predicted. ``given`` are values of variables: sizes, and bytes of elements."""

    device: Device
    given: Mapping[str, Number]
    products: str = "bfloat16"
    """Dtype of matrix products."""
    profile: Profile | None = None
    """None: eager mode, which is `EAGER` without what is said of an engine."""
    name: str = "eager"
    """Of the profile, as it was asked for."""
    parallel: Parallel = ONE
    """How GPUs share the model."""

    def to(self, **given: Number) -> dict[str, Number]:
        """The values, with some of them changed."""
        return {**self.given, **given}


def asked_for(
    device: Device,
    sizes: Mapping[str, Number],
    engine: str | None,
    dtypes: tuple[str | None, str | None],
    parallel: Parallel = ONE,
) -> Ask:
    """A call of so many tokens, with words for the dtypes of products and cache. Raises UsageError."""
    word, kv_word = dtypes
    for found, known in ((word, WORDS), (kv_word, CACHE_WORDS)):
        if found is not None and found not in known:
            raise UsageError(f"there is no dtype {found[:40]!r}\nknown are {', '.join(known)}")
    products = "bfloat16" if word is None else WORDS[word].products
    refuse_products(device, products)
    profile = None if engine is None else profile_named(engine)
    given: dict[str, Number] = {**sizes, **(widths(word) if word is not None else {})}
    if kv_word is not None:
        given["kv_bytes"] = cache_size(kv_word)
    elif profile is not None and profile.cache_bytes is not None:
        given["kv_bytes"] = profile.cache_bytes
    return Ask(device, given, products, profile, engine or "eager", parallel)


@dataclass(frozen=True)
class Answer:
    """The time of one step, and what it is made of."""

    ask: Ask
    evaluation: Evaluation
    values: Mapping[str, Number]
    call: CallTime
    """Kernels alone."""
    step: StepTime | None
    """What the rules of the profile did; None if none was asked for."""
    profile: Profile
    """Whose host time the step has."""

    @property
    def host(self) -> Total:
        """Microseconds in which the host launches all kernels; 0 where graphs hide it."""
        us, low, high = self.profile.launch_us
        return us * self.call.launches, low * self.call.launches, high * self.call.launches

    @property
    def us(self) -> Total:
        """Microseconds of the step: the greater of kernels and host, and the overhead. With the 80 % interval."""
        pairs = zip(self.call.whole, self.host, strict=True)
        us, low, high = (max(pair) + self.profile.overhead_us for pair in pairs)
        return us, low, high

    @property
    def bound(self) -> str:
        """What bounds the step: launch (the host), compute, memory, link, or latency (of small kernels)."""
        if self.host[0] > self.call.whole[0]:
            return "launch"
        return next(iter(self.call.shares("bound")), "nothing")

    @cached_property
    def experts(self) -> list[ExpertsRead]:
        """How many experts' weights its products are counted to read. A class that multiplies all has them launched."""
        own = experts_read(kernel.operands for kernel in self.evaluation.kernels)
        return own or experts_read(one.kernel.operands for one in self.call.operators)

    @property
    def tokens(self) -> int:
        """New tokens of the step, in all sequences."""
        return int(self.values.get("batch_size", 1) * self.values.get("seq_len", 1))

    @property
    def tokens_per_s(self) -> Total:
        """New tokens a second, with the 80 % interval."""
        us, low, high = self.us
        return tuple(self.tokens * 1e6 / t if t else 0.0 for t in (us, high, low))  # type: ignore[return-value]


def answer(subject: Subject, ask: Ask, predictor: Predictor) -> Answer:
    """The prediction. Raises UsageError for values that the model does not take, LmpError for an unknown operator."""
    numbers = subject.numbers(ask.given)
    values = points(numbers.model, {name: (value,) for name, value in ask.given.items()}, 1).fixed
    gpu = subject.kernels(ask.given, values, ask.parallel)
    evaluation = gpu.evaluation
    scheme, profile = subject.products_scheme(ask.given, evaluation), ask.profile or profile_named(EAGER)
    try:
        wanted = Step(gpu.kernels, values, ask.products, scheme)
        step = time_of_step(wanted, profile, OfEngine(predictor, profile.kernels), ask.device)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"a kernel of this call is beyond what is predicted: its {what} is {first['input']!s:.40}\n"
            "give a smaller batch, or fewer tokens"
        ) from error
    return Answer(ask, evaluation, values, step.call, step if ask.profile is not None else None, profile)
