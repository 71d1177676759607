"""Predicted times of a report: the class in eager mode, and what a serving engine launches, at every stated point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lmp.errors import LmpError, first_line
from lmp.predict.devices import device_named
from lmp.predict.prediction import Predictor, Total, total
from lmp.predict.rows import Collective
from lmp.predict.screen.asking import EAGER, Answer, Subject, answer, asked_for
from lmp.predict.screen.card import SERVING, card
from lmp.predict.screen.records import Card
from lmp.records import ModelAnalysis
from lmp.report.deployment import DEFAULT, Deployment

LIBRARIES = ("nccl", "custom")


@dataclass(frozen=True)
class Predictions:
    """Answers by point and profile. ``reason`` says why there are none."""

    found: Mapping[tuple[str, str], Answer]
    reason: str | None = None
    serving: str = SERVING
    """The profile beside eager mode."""

    @property
    def profiles(self) -> tuple[str, str]:
        return EAGER, self.serving

    def at(self, point: str, profile: str) -> Answer | None:
        return self.found.get((point, profile))


def predictions_of(
    model: ModelAnalysis, device: str, points: Mapping[str, Mapping[str, int]], deployment: Deployment = DEFAULT
) -> Predictions:
    """The predictions at points, of which each has the values that the user or the report gives."""
    predictor, subject, engine = Predictor(), Subject(model), deployment.engine
    words = (None, deployment.kv_dtype)
    try:
        known = device_named(device, predictor.known)
        return Predictions(
            {
                (key, profile): answer(subject, asked_for(known, sizes, profile, words, deployment.parallel), predictor)
                for key, sizes in points.items()
                for profile in (EAGER, engine)
            },
            serving=engine,
        )
    except LmpError as error:
        return Predictions({}, first_line(error), engine)


def cards_of(
    model: ModelAnalysis,
    config: Mapping[str, Any] | None,
    device: str,
    points: Mapping[str, Mapping[str, int]],
    deployment: Deployment = DEFAULT,
) -> Mapping[str, Card] | str:
    """The answer card at each point; or why there is none."""
    predictor, subject = Predictor(), Subject(model, config)
    words = (None, deployment.kv_dtype)
    try:
        known = device_named(device, predictor.known)
        return {
            key: card(subject, asked_for(known, sizes, deployment.engine, words, deployment.parallel), predictor)
            for key, sizes in points.items()
        }
    except LmpError as error:
        return first_line(error)


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
