"""What a page knows of a model on devices: predicted times on a grid, and memory as tables and formulas.

`page/static/ondevice.js` is the other half. A page has no predictor: between the sizes of the grid it interpolates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lmp.dtypes import WORDS, cache_size
from lmp.dtypes import sizes as widths
from lmp.errors import LmpError, first_line
from lmp.formula import Expr, Number, number_text
from lmp.link.values import UNIVERSAL_DEFAULTS
from lmp.observe.held import Held
from lmp.predict.devices import Device
from lmp.predict.holding import held_by_formulas, with_every_logits
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Subject
from lmp.predict.screen.card import EAGER_NAME
from lmp.predict.screen.grid import DECODE, PREFILL, TP, Axes, Table, Way, tables, ways_on
from lmp.predict.screen.room_table import OfTp, RoomTable, room_table
from lmp.records import ModelAnalysis
from lmp.report.deployment import DEFAULT, Deployment
from lmp.report.formats.device_card import BOUNDS

if TYPE_CHECKING:
    from lmp.report.page.steps import Steps

WIDTHS = tuple(dict.fromkeys(found.weights for found in WORDS.values()))
"""Bytes of a weight that some dtype word names."""


@dataclass(frozen=True)
class Screen:
    """What a page predicts. The first device has all engines and dtypes; the others the first ones."""

    engines: tuple[str, ...] = ("vllm", "sglang", "trtllm")
    words: tuple[str | None, ...] = (None, "fp8")
    """None: the model as it is."""
    tps: tuple[int, ...] = TP
    axes: tuple[Axes, ...] = (DECODE, PREFILL)
    start: int = 1
    """The tp that a page opens with."""
    ep: int = 1
    kv: str | None = None
    eager: bool = True
    """Whether eager mode stands beside the engines."""
    alike: bool = False
    """Whether all devices have what the first one has."""

    def of(self, deployment: Deployment) -> Screen:
        """The same for a report's deployment: its engine first, and its tp among the others."""
        tp, ep = deployment.parallel.tp, deployment.parallel.ep
        engines = dict.fromkeys((deployment.engine, *self.engines)) if deployment != DEFAULT else self.engines
        tps = sorted({tp, *self.tps}) if tp > 1 else self.tps
        divided = tuple(one for one in tps if one % ep == 0)
        return replace(self, engines=tuple(engines), tps=divided, start=tp, ep=ep, kv=deployment.kv_dtype)

    def ways(self, devices: Sequence[Device], words: Sequence[str | None]) -> list[Way]:
        """All ways to run a model, of every device."""
        first, *others = devices
        eager = (EAGER_NAME,) if self.eager else ()
        alike = {"ep": self.ep, "kv": self.kv}
        found = ways_on(first, (*eager, *self.engines), words, self.tps, **alike)
        for device in others:
            engines, its = (self.engines, words) if self.alike else (self.engines[:1], (None,))
            found += ways_on(device, (*eager, *engines), its, self.tps, **alike)
        return found


@dataclass(frozen=True)
class OnDevice:
    """A model on devices. ``reason``: why nothing is predicted."""

    screen: Screen
    devices: tuple[Device, ...]
    tables: tuple[Table, ...] = ()
    room: RoomTable | str = ""
    subject: str = ""
    """What a command calls the model."""
    quantised: bool = False
    own: Mapping[str, Number] | None = None
    """Bytes of elements of the model as it is."""
    reason: str | None = None

    @property
    def formulas(self) -> Iterator[Expr]:
        """Those of the memory."""
        if isinstance(self.room, RoomTable):
            for of in self.room.gpus:
                yield from (one for one in (of.cache, of.token, of.block, of.request) if one is not None)

    def record(self, steps: Steps) -> dict[str, Any]:
        """As JSON; formulas are indices of ``steps``."""
        if self.reason is not None:
            return {"reason": self.reason, "subject": self.subject}
        return {
            "subject": self.subject,
            "engines": list(self.screen.engines),
            "eager": EAGER_NAME,
            "tp": list(self.screen.tps),
            "start": self.screen.start,
            "ep": self.screen.ep,
            "words": {word or "": self._word(word) for word in self.screen.words},
            "axes": {
                one.phase: {"batches": list(one.batches), "lengths": list(one.lengths)} for one in self.screen.axes
            },
            "tables": [_table(one) for one in self.tables],
            "room": {"reason": self.room} if isinstance(self.room, str) else _room(self.room, steps, self.quantised),
            "bounds": dict(BOUNDS),
        }

    def _word(self, word: str | None) -> dict[str, str]:
        found = (self.own or {}) if word is None else widths(word)
        products = "bfloat16" if word is None else WORDS[word].products
        kv = {} if self.screen.kv is None else {"kv_bytes": cache_size(self.screen.kv)}
        return {"products": products, **{name: number_text(size) for name, size in {**found, **kv}.items()}}


def on_device(
    model: ModelAnalysis,
    config: Mapping[str, Any] | None,
    devices: Sequence[Device],
    given: Mapping[str, Number],
    screen: Screen,
    stored: Held | None = None,
    quantised: bool = False,
) -> OnDevice:
    """The model on devices, as it was expanded.

    ``given`` are sizes that no config has; ``stored`` is what the atlas says that it holds. ``quantised``: the page's
    formulas have the bytes of the checkpoint.
    """
    own: dict[str, Number] = {name: given.get(name, UNIVERSAL_DEFAULTS[name]) for name in ("w_bytes", "a_bytes")}
    own["kv_bytes"] = given.get("kv_bytes", own["a_bytes"])
    command = subject_of(model)
    if not {"batch_size", "seq_len"} <= model.parameters.keys():
        return OnDevice(screen, tuple(devices), subject=command, reason="no tokens go through the class in batches")
    axes = tuple(one for one in screen.axes if one.phase != "decode" or "cache_len" in model.parameters)
    screen = replace(screen, axes=axes)
    subject = Subject(model, config)
    words = (None,) if quantised else screen.words
    found = tables(subject, screen.ways(devices, words), axes, Predictor(), given)
    room = _room_of(subject, devices, given, screen, stored)
    return OnDevice(screen, tuple(devices), tuple(found), room, command, quantised, own)


def _room_of(
    subject: Subject, devices: Sequence[Device], given: Mapping[str, Number], screen: Screen, stored: Held | None
) -> RoomTable | str:
    @functools.cache
    def held(tp: int) -> Held | str:
        # As the answer card does: formulas say which weights are divided, and the atlas what they do not tell.
        if stored is not None and tp == 1:
            return stored
        found = held_by_formulas(subject, given, tp)
        return stored if isinstance(found, str) and stored is not None else found

    prompts = (length for one in screen.axes if one.phase == "prefill" for length in one.lengths)
    lengths = sorted({1, *prompts}) if screen.eager else []
    try:
        return room_table(held, devices, WIDTHS, lengths, eager=lambda one: with_every_logits(one, subject, given))
    except LmpError as error:
        return first_line(error)


def subject_of(model: ModelAnalysis) -> str:
    """What a command calls the model: its id, where the config is a model's own."""
    name = model.config.name
    if name == "default":
        return model.class_name
    return name.replace("--", "/", 1) if "--" in name else f"{model.class_name} --config {name}.json"


def _table(found: Table) -> dict[str, Any]:
    way = found.way
    about = {
        "device": way.device.name,
        "engine": way.engine,
        "tp": way.tp,
        "word": way.word or "",
        "phase": found.axes.phase,
    }
    if found.reason is not None:
        return {**about, "reason": found.reason}
    ends = zip(*(us if us is not None else (None,) * 3 for us in found.us), strict=True)
    times = {
        name: [None if us is None else round(us, 3) for us in end]
        for name, end in zip(("us", "low", "high"), ends, strict=True)
    }
    return {**about, **times, "bound": list(found.bounds), "missed": [round(error, 4) for error in found.missed]}


def _room(found: RoomTable, steps: Steps, quantised: bool) -> dict[str, Any]:
    return {
        "lengths": list(found.lengths),
        "totals": {name: number_text(size) for name, size in found.totals.items()},
        "utilization": number_text(found.utilization),
        "most_batch": found.most_batch,
        "quantised": quantised,
        "gpus": [_of_tp(one, steps) for one in found.gpus],
    }


def _of_tp(found: OfTp, steps: Steps) -> dict[str, Any]:
    slots = {"cache": found.cache, "token": found.token, "block": found.block, "request": found.request}
    return {
        "tp": found.tp,
        "divides": found.divides,
        "weights": {text: list(map(number_text, sizes)) for text, sizes in found.weights.items()},
        "activations": list(map(number_text, found.activations)),
        "serving": {name: number_text(size) for name, size in found.serving.items()},
        "reserve": number_text(found.reserve),
        **{name: None if formula is None else steps.slot(formula) for name, formula in slots.items()},
    }
