"""What the page knows of each model: totals, memory and times, as JSON. No kernel is in it, so that it stays small."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.atlas.archive import Atlas, Entry
from lmp.atlas.holding import read
from lmp.atlas.records import Listed
from lmp.formula import Expr, Number, number_text
from lmp.link.held import weight_bytes
from lmp.link.numbers import ModelNumbers
from lmp.link.quantised import with_own_bytes
from lmp.link.values import GIVEN, values_for
from lmp.predict.devices import Device, device_named
from lmp.predict.screen.grid import Axes
from lmp.records import UNIVERSAL, ModelAnalysis, short
from lmp.report.on_device import Screen, on_device
from lmp.report.page import steps as programs
from lmp.report.page.controls import NOT_GIVEN
from lmp.source.catalogue import catalogued

AXES = (
    Axes("decode", (1, 2, 4, 8, 16, 32, 64, 128, 256), (2048, 8192, 32768, 131072)),
    Axes("prefill", (1, 4, 16), (512, 2048, 8192, 32768)),
)
SCREEN = Screen(engines=("vllm",), axes=AXES, eager=False, alike=True)
"""Fewer points than a model's own page has, of a serving engine alone, on all devices alike."""
DEVICES = ("h100-sxm", "a100-sxm", "h200-sxm", "b200-sxm")
"""Those of a page for which none is named."""


Steps = Callable[[int, int, str], None]
"""Called with how many models are done, of how many, and the one that is now."""


@dataclass(frozen=True)
class Wanted:
    """What is worked out for each model."""

    folder: Path
    devices: tuple[str, ...]
    screen: Screen = SCREEN


def records(
    atlas: Atlas, listed: Sequence[Listed], wanted: Wanted, jobs: int, progress: Steps
) -> Iterator[dict[str, Any]]:
    """The models of these lines, in their order. Raises Damaged."""
    work = zip(listed, itertools.repeat(wanted), strict=False)
    # Of several processes, a model is told of while it is waited for.
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        made = map(_record, work) if pool is None else pool.map(_record, work)
        for number, one in enumerate(listed):
            progress(number, len(listed), _name(one))
            yield next(made)
    progress(len(listed), len(listed), "")


def _name(listed: Listed) -> str:
    return listed.model_id or listed.name


def _record(pair: tuple[Listed, Wanted]) -> dict[str, Any]:
    listed, wanted = pair
    return record(Atlas(wanted.folder).load(listed), [device_named(name) for name in wanted.devices], wanted.screen)


def record(entry: Entry, devices: Sequence[Device], screen: Screen) -> dict[str, Any]:
    """One model. Formulas of an unquantised checkpoint stand once; one that is quantised has its own beside them."""
    model, listed = entry.model, entry.listed
    known = None if listed.model_id is None else catalogued(listed.model_id)
    config, stored = None if known is None else known.config, None if entry.held is None else read(entry.held)
    found = on_device(model, config, devices, _lacking(model), screen, stored)
    plain, own = ModelNumbers(model), ModelNumbers(with_own_bytes(model))
    formulas: list[Expr] = [*plain.quantities.values(), *own.quantities.values(), *found.formulas]
    steps = programs.Steps([*formulas, *plain.assumptions.values()])
    quantised = own.model.quantization is not None and own.model.quantization.applied is not None
    return {
        "name": _name(listed),
        "key": listed.name,
        "family": listed.family,
        "class": short(model.class_name),
        "class_name": model.class_name,
        "points": listed.points,
        "sources": ", ".join(f"{name} {version}" for name, version in listed.distributions.items()),
        "values": {name: number_text(value) for name, value in _values(model).items()},
        "lacking": _lacking(model),
        "calls": [name for name in GIVEN_OF_A_CALL if name in model.parameters],
        "program": steps.record(),
        "totals": _slots(plain, steps),
        "own": _slots(own, steps),
        "quantised": own.model.quantization.applied if quantised and own.model.quantization is not None else None,
        "weights": _weights(own, model),
        "assumptions": [{"text": text, "slot": steps.slot(one)} for text, one in plain.assumptions.items()],
        "on_device": found.record(steps),
    }


GIVEN_OF_A_CALL = ("batch_size", "seq_len", "cache_len")


def _slots(numbers: ModelNumbers, steps: programs.Steps) -> dict[str, int]:
    return {name: steps.slot(formula) for name, formula in numbers.quantities.items()}


def _values(model: ModelAnalysis) -> dict[str, Number]:
    """Values of every variable but those of the call."""
    return {name: value for name, value in {**model.values, **_lacking(model)}.items() if name not in GIVEN_OF_A_CALL}


def _lacking(model: ModelAnalysis) -> dict[str, int]:
    """Sizes that no config states: the page puts them in, and says so."""
    names = (name for name in model.parameters if name not in {*model.values, *GIVEN_OF_A_CALL, *UNIVERSAL})
    return dict.fromkeys(names, NOT_GIVEN)


def _weights(own: ModelNumbers, model: ModelAnalysis) -> str | None:
    """Bytes of the weights as the checkpoint stores them; None if they are not known."""
    given: Mapping[str, Number] = {**dict.fromkeys(GIVEN, 1), **_lacking(model)}
    found = weight_bytes(own, values_for(own.model, given), model)
    return None if found is None else number_text(found)
