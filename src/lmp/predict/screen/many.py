"""Many predictions of one model: a call is evaluated once for all devices, and all kernels are predicted together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from lmp.errors import LmpError
from lmp.formula import Number
from lmp.link.records import Evaluation
from lmp.link.sweep import plan
from lmp.predict.devices import Device
from lmp.predict.eager import Asked, CallTime, Timed, times_of
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import profile_named
from lmp.predict.rewrite.rewriting import Rewritten
from lmp.predict.rewrite.timing import OfEngine, Step, StepTime, asked_of_launches, rewritten_step
from lmp.predict.screen.asking import EAGER, Answer, Ask, OneGpu, Subject

T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """One call with what its kernels are predicted from."""

    ask: Ask
    values: Mapping[str, Number]
    gpu: OneGpu
    asked: Sequence[Asked]
    rewritten: Rewritten
    """What its profile launches."""


@dataclass
class _Last(Generic[T]):
    """The last thing that was worked out: neighbours in a list of calls have much in common."""

    key: object = None
    found: T | None = None

    def of(self, key: object, make: Callable[[], T]) -> T:
        if self.found is None or key != self.key:
            self.key, self.found = key, make()
        return self.found


@dataclass(frozen=True)
class _Calls:
    """Calls of one model, prepared one after the other."""

    subject: Subject
    evaluated: _Last[tuple[Mapping[str, Number], Evaluation]] = field(default_factory=_Last)
    divided: _Last[OneGpu] = field(default_factory=_Last)
    launched: dict[object, Rewritten] = field(default_factory=dict)
    """What profiles launch of the kernels that are divided now."""

    def prepare(self, ask: Ask) -> Prepared:
        given = tuple(ask.given.items())
        values, evaluation = self.evaluated.of(given, lambda: self._evaluate(ask))
        gpu = self.divided.of((given, ask.parallel), lambda: self._divide(ask, values, evaluation))
        scheme = self.subject.products_scheme(ask.given, evaluation)
        profile = ask.profile or profile_named(EAGER)
        step = Step(gpu.kernels, values, ask.products, scheme)
        # Of the device the rules see the dtypes of its matrix units alone, and only for weights that have their own.
        units = None if scheme is None else frozenset(ask.device.dense)
        key = (ask.products, tuple(profile.rules), profile.absorbed, units)
        if key not in self.launched:
            self.launched[key] = rewritten_step(step, profile, ask.device)
        found = self.launched[key]
        return Prepared(ask, values, gpu, asked_of_launches(found, step, ask.device), found)

    def _evaluate(self, ask: Ask) -> tuple[Mapping[str, Number], Evaluation]:
        numbers = self.subject.numbers(ask.given)
        values = plan(numbers.model, {name: (value,) for name, value in ask.given.items()}, 1).fixed
        return values, numbers.evaluation(values, numbers.tree(values))

    def _divide(self, ask: Ask, values: Mapping[str, Number], evaluation: Evaluation) -> OneGpu:
        self.launched.clear()
        return self.subject.kernels(ask.given, values, ask.parallel, evaluation)


def answers(subject: Subject, asks: Sequence[Ask], predictor: Predictor) -> list[Answer | LmpError]:
    """What `answer` gives for each, in their order; an error takes the place of a call that is not predicted.

    Calls of the same values should be neighbours: they are evaluated once.
    """
    calls = _Calls(subject)
    prepared: dict[int, Prepared] = {}
    failed: dict[int, LmpError] = {}
    for number, ask in enumerate(asks):
        try:
            prepared[number] = calls.prepare(ask)
        except LmpError as error:
            failed[number] = error
    groups: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for number, one in prepared.items():
        groups[one.ask.device.name, _engine(one.ask)].append(number)
    made: dict[int, Answer | LmpError] = dict(failed)
    for (_, engine), numbers in groups.items():
        by = predictor if engine is None else OfEngine(predictor, engine)
        made.update(_timed([prepared[number] for number in numbers], numbers, by))
    return [made[number] for number in range(len(asks))]


def _engine(ask: Ask) -> str | None:
    return ask.profile.kernels if ask.profile is not None else None


def _timed(
    calls: Sequence[Prepared], numbers: Sequence[int], predictor: Predictor
) -> Iterator[tuple[int, Answer | LmpError]]:
    """Calls of one device and engine, together; one after the other if a kernel of one cannot be predicted."""
    device = calls[0].ask.device
    try:
        timed = iter(times_of([asked for call in calls for asked in call.asked], predictor, device))
    except LmpError:
        for number, call in zip(numbers, calls, strict=True):
            yield number, _alone(call, predictor, device)
        return
    for number, call in zip(numbers, calls, strict=True):
        yield number, _answer(call, list(islice(timed, len(call.asked))))


def _alone(call: Prepared, predictor: Predictor, device: Device) -> Answer | LmpError:
    try:
        return _answer(call, times_of(call.asked, predictor, device))
    except LmpError as error:
        return error


def _answer(call: Prepared, timed: Sequence[Timed]) -> Answer:
    found = CallTime.of(timed)
    ask, profile = call.ask, call.ask.profile
    step = None if profile is None else StepTime(found, call.rewritten, profile.overhead_us)
    return Answer(ask, call.gpu.evaluation, call.values, found, step, profile or profile_named(EAGER))
