"""Predicted times of a report: the class in eager mode, and what a serving engine launches, at every stated point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lmp.errors import LmpError, first_line
from lmp.predict.devices import device_named
from lmp.predict.prediction import Predictor, Total, total
from lmp.predict.rows import Collective
from lmp.predict.screen.asking import EAGER, Answer, Subject, answer, asked_for
from lmp.records import ModelAnalysis

SERVING = "vllm"
PROFILES = (EAGER, SERVING)
LIBRARIES = ("nccl", "custom")


@dataclass(frozen=True)
class Predictions:
    """Answers by point and profile. ``reason`` says why there are none."""

    found: Mapping[tuple[str, str], Answer]
    reason: str | None = None

    def at(self, point: str, profile: str) -> Answer | None:
        return self.found.get((point, profile))


def predictions_of(model: ModelAnalysis, device: str, points: Mapping[str, Mapping[str, int]]) -> Predictions:
    """The predictions at points, of which each has the values that the user or the report gives."""
    predictor, subject = Predictor(), Subject(model)
    try:
        known = device_named(device, predictor.known)
        return Predictions(
            {
                (key, profile): answer(subject, asked_for(known, sizes, profile, (None, None)), predictor)
                for key, sizes in points.items()
                for profile in PROFILES
            }
        )
    except LmpError as error:
        return Predictions({}, first_line(error))


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
