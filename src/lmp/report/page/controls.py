"""What the reader of a page can change: sizes, precision, values of the config."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lmp.dtypes import WORDS, sizes
from lmp.formula import Number, number_text
from lmp.link.values import FOLLOWS, GIVEN, UNIVERSAL_DEFAULTS, lowest_of
from lmp.records import UNIVERSAL, ModelAnalysis

SLIDERS = {"batch_size": 2**10, "seq_len": 2**17, "cache_len": 2**20}
"""Name -> where its slider ends. The number beside it may be larger."""

START = {"batch_size": 1, "seq_len": 2048, "cache_len": 0}
"""Values that a page opens with: a prefill."""

NOT_GIVEN = 1024
"""What a page puts in for a size that neither a config nor the class's defaults have; the page says so."""

PHASES = {
    "prefill": {"seq_len": 2048, "cache_len": 0},
    "decode": {"seq_len": 1, "cache_len": 2048},
    "chunked prefill": {"seq_len": 512, "cache_len": 2048},
}
"""The sizes that a button sets. What is right for the phase already stays: a prefill of 100 tokens remains one."""

TITLES = {
    "batch_size": "batch size",
    "seq_len": "new tokens",
    "cache_len": "tokens in the cache",
    "w_bytes": "bytes of a weight",
    "a_bytes": "bytes of an activation",
    "kv_bytes": "bytes of a cache element",
}
"""Name of a variable -> what it is called beside its field."""


def variables(model: ModelAnalysis, given: Mapping[str, Number] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Every name that the formulas may use, with its first value and how it is changed.

    ``given`` are the sizes that the user set and no config has.
    """
    names = dict.fromkeys((*model.parameters, *UNIVERSAL))
    sizes = [name for name in SLIDERS if name in names]
    return [_variable(model, name, given) for name in (*sizes, *(name for name in names if name not in sizes))]


def _variable(model: ModelAnalysis, name: str, given: Mapping[str, Number]) -> dict[str, Any]:
    known = {**UNIVERSAL_DEFAULTS, **{n: v for n, v in model.values.items() if n not in GIVEN}, **START, **given}
    known = {**{follower: known[source] for follower, source in FOLLOWS.items()}, **known}
    found: dict[str, Any] = {
        "name": name,
        "title": TITLES.get(name, name),
        "origin": model.parameters.get(name, ""),
        "value": number_text(known.get(name, NOT_GIVEN)),
        "least": lowest_of(model, name),
    }
    if name not in known:
        found["not_given"] = True
    if name in SLIDERS:
        found["slider"], found["count"] = SLIDERS[name], True
    if name in FOLLOWS:
        found["follows"] = FOLLOWS[name]
    if name in UNIVERSAL:
        found["rational"] = True
    if name == "w_bytes" and model.quantization is not None and model.quantization.applied is not None:
        found["title"] = f"bytes of a weight that is not quantised ({model.quantization.applied})"
    return found


def phases(model: ModelAnalysis) -> dict[str, dict[str, int]]:
    """Only what has a cache has phases."""
    return PHASES if {"seq_len", "cache_len"} <= model.parameters.keys() else {}


def precisions() -> dict[str, dict[str, str]]:
    """Dtype word -> the value of each variable that it sets, as in `lmp evaluate --dtype`."""
    return {word: {name: number_text(size) for name, size in sizes(word).items()} for word in WORDS}


def products() -> dict[str, str]:
    """Dtype word -> the dtype in which products read their operands: it decides how long they take."""
    return {word: found.products for word, found in WORDS.items()}
