"""Section 11: the words that this report uses, and where its techniques are described. They stand in words.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from lmp.report.document.parts import Link
from lmp.report.facts import ModelFacts
from lmp.report.implementation import classes
from lmp.report.implementation.classes import roles_of
from lmp.report.implementation.naming import settings_of

FILE = Path(__file__).with_name("words.toml")


def glossary(facts: ModelFacts) -> list[tuple[str, str]]:
    """The words that a model's report uses, each with what it means."""
    return [(one["term"], one["meaning"]) for one in _entries()["word"] if _is_used(facts, one.get("when", ""))]


def papers(facts: ModelFacts) -> list[Link]:
    """What describes the techniques of the model."""
    return [Link(one["title"], one["address"]) for one in _entries()["paper"] if _is_used(facts, one.get("when", ""))]


@functools.cache
def _entries() -> Mapping[str, list[dict[str, str]]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def _is_used(facts: ModelFacts, when: str) -> bool:
    kind, _, name = when.partition(": ")
    match kind:
        case "":
            return True
        case "role":
            return name in roles_of(facts).values()
        case "category":
            return any(k.category == name for a in facts.analyses.values() for k in a.kernels)
        case _:
            return CONDITIONS[kind](facts)


def _is_latent(facts: ModelFacts) -> bool:
    return bool(facts.named.get("config.kv_lora_rank"))


def _shares_heads(facts: ModelFacts) -> bool:
    keys, queries = (facts.named.get(f"config.num_{name}_heads") for name in ("key_value", "attention"))
    return bool(keys and queries and keys < queries) and not _is_latent(facts)


def _slides(facts: ModelFacts) -> bool:
    return bool(facts.named.get("config.sliding_window")) and any(
        "sliding_window" in text for a in facts.analyses.values() for text in (*a.parameters, *a.assumptions)
    )


def _is_gated_by_silu(facts: ModelFacts) -> bool:
    activation = settings_of(facts).get("hidden_act")
    return classes.FEED_FORWARD in roles_of(facts).values() and activation in ("silu", "swish")


CONDITIONS: Mapping[str, Callable[[ModelFacts], bool]] = {
    "decodes": lambda facts: "cache_len" in facts.model.parameters,
    "is_gated_by_silu": _is_gated_by_silu,
    "is_latent": _is_latent,
    "is_quantised": lambda facts: facts.inspection is not None and facts.inspection.quantised is not None,
    "is_yarn": lambda facts: settings_of(facts).get("rope_parameters.rope_type") == "yarn",
    "prefills": lambda facts: facts.called("prefill") == "prefill",
    "shares_heads": _shares_heads,
    "slides": _slides,
}
"""What an entry's ``when`` may name, beside a role or a category."""
