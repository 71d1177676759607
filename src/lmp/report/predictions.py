"""Predicted times of a report: the class in eager mode, and what a serving engine launches, at every stated point."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmp.errors import LmpError, first_line
from lmp.formula import Number
from lmp.observe.held import Held
from lmp.predict.devices import device_named
from lmp.predict.holding import held_by_formulas
from lmp.predict.prediction import Predictor, Total, total
from lmp.predict.rows import Collective
from lmp.predict.screen.asking import EAGER, Answer, Ask, Subject, answer, asked_for
from lmp.predict.screen.card import EAGER_NAME, SERVING
from lmp.predict.screen.room import Room, room_or_why
from lmp.records import ModelAnalysis
from lmp.report.deployment import DEFAULT, Deployment

LIBRARIES = ("nccl", "custom")
Sizes = Mapping[str, int]
"""Values of a call that the user or the report gives."""


@dataclass(frozen=True)
class Predictions:
    """Answers by point, and by eager mode or the engine. ``reason``: why there are none."""

    found: Mapping[tuple[str, str], Answer]
    reason: str | None = None
    serving: str = SERVING
    """The profile beside eager mode."""
    rooms: Mapping[tuple[str, str], Room | str] = field(default_factory=dict)
    """Memory on each GPU, reserve included; or why it is not known."""

    @property
    def profiles(self) -> tuple[str, str]:
        return EAGER_NAME, self.serving

    def at(self, point: str, profile: str) -> Answer | None:
        return self.found.get((point, profile))


def predictions_of(
    model: ModelAnalysis,
    device: str,
    points: Mapping[str, Sizes],
    deployment: Deployment = DEFAULT,
    config: Mapping[str, Any] | None = None,
) -> Predictions:
    """The predictions at points. ``config``: the content of config.json."""
    predictor, subject = Predictor(), Subject(model, config)

    @functools.cache
    def held(own: frozenset[tuple[str, Number]]) -> Held | str:
        return held_by_formulas(subject, dict(own), deployment.parallel.tp)

    try:
        asks = {
            (key, name): ask
            for key, sizes in points.items()
            for name, ask in _asks(device, predictor, sizes, deployment).items()
        }
        found = {key: answer(subject, ask, predictor) for key, ask in asks.items()}
        rooms = {key: room_or_why(held(_own_sizes(subject, ask)), ask, subject) for key, ask in asks.items()}
    except LmpError as error:
        return Predictions({}, first_line(error), deployment.engine)
    return Predictions(found, serving=deployment.engine, rooms=rooms)


def _own_sizes(subject: Subject, ask: Ask) -> frozenset[tuple[str, Number]]:
    """The values in place of the config's: what the model holds depends on no others."""
    return frozenset((name, value) for name, value in ask.given.items() if name in subject.model.values)


def bounds_over(
    model: ModelAnalysis, device: str, calls: Sequence[Sizes], deployment: Deployment = DEFAULT
) -> dict[str, list[str]]:
    """What bounds each of several calls, in eager mode and by the engine; as far as they are predicted."""
    predictor, subject = Predictor(), Subject(model)
    found: dict[str, list[str]] = {EAGER_NAME: [], deployment.engine: []}
    try:
        for sizes in calls:
            for name, ask in _asks(device, predictor, sizes, deployment).items():
                found[name].append(answer(subject, ask, predictor).bound)
    except LmpError:
        return {name: bounds for name, bounds in found.items() if bounds}
    return found


def _asks(device: str, predictor: Predictor, sizes: Sizes, deployment: Deployment) -> dict[str, Ask]:
    """Eager mode, where each ATen operator is a kernel, and what the engine launches."""
    known, words = device_named(device, predictor.known), (None, deployment.kv_dtype)
    engines = {EAGER_NAME: EAGER, deployment.engine: deployment.engine}
    return {name: asked_for(known, sizes, engine, words, deployment.parallel) for name, engine in engines.items()}


def collective_time(device: str, sent: Mapping[tuple[str, int], int], gpus: int) -> tuple[Total, str] | str:
    """Microseconds of collectives over GPUs of one node, with the id of the calibration; or why they are not known.

    ``sent``: primitive and bytes of the message -> how many. An all_reduce is the faster of NCCL's and an engine's own.
    """
    predictor = Predictor()
    try:
        name = device_named(device, predictor.known).name
        chosen, often = [], []
        for (primitive, size), count in sent.items():
            rows = [
                _row(name, primitive, size, gpus, library) for library in LIBRARIES[: 1 + (primitive == "all_reduce")]
            ]
            made = predictor.predict(rows)
            known = [one for one in made if not isinstance(one, LmpError)]
            if not known:
                raise next(one for one in made if isinstance(one, LmpError))
            chosen.append(min(known, key=lambda one: one.us))
            often.append(float(count))
    except LmpError as error:
        return first_line(error)
    ids = ", ".join(sorted({one.calibration or one.provenance for one in chosen}))
    return total(chosen, often), ids


def _row(device: str, primitive: str, size: int, gpus: int, library: str) -> Collective:
    return Collective.model_validate(
        {"op": "collective", "kind": primitive, "device": device, "gpus": gpus, "bytes": size, "library": library}
    )
