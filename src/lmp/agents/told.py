"""What the agents of both stages are told: the templates, filled with the rules and with the facts of one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmp.agents import rules
from lmp.agents.facts import Callee, Facts, callees_text, constructor_text, execution_text, source_text, statements_text
from lmp.agents.open_places import OpenPlace
from lmp.agents.prompts import fill, prompt_sha256
from lmp.agents.tools import places_text
from lmp.source.quoting import escaped
from lmp.source.trees import Trees

ANALYZE, EXPAND = "analyze_module_forward", "expand_module_references"
_MOST_VALUES, _LONGEST = 120, 200


@dataclass(frozen=True)
class Told:
    """The system prompt and the first message of a conversation."""

    system: str
    prompt: str

    @property
    def sha256(self) -> str:
        return prompt_sha256(self.system, self.prompt)


def analyzer_prompt(facts: Facts, trees: Trees) -> Told:
    """What the module analyzer is told of a class."""
    source = facts.source
    system = fill(
        f"{ANALYZE}.system",
        {
            "flop_table": rules.flop_table(),
            "free_operators": rules.free_operators(),
            "powers": rules.powers(),
            "gelu": rules.gelu(),
            "categories": rules.categories(),
            "matmul_categories": rules.matmul_categories(),
        },
    )
    prompt = fill(
        ANALYZE,
        {
            "class_name": source.class_path,
            "qualname": source.forward_qualname,
            "file": source.forward_file,
            "first": str(source.lines[0]),
            "last": str(source.lines[1]),
            "distribution": source.forward_tree.distribution,
            "version": source.forward_tree.version,
            "source": source_text(facts),
            "constructor": constructor_text(facts),
            "statements": statements_text(facts),
            "execution": execution_text(facts),
            "callees": callees_text(facts.callees),
            "roots": _roots(trees),
        },
    )
    return Told(system, prompt)


def expander_prompt(
    class_name: str, places: Sequence[OpenPlace], config: Mapping[str, Any], callees: Sequence[Callee], trees: Trees
) -> Told:
    """What the reference expander is told of the open places below a class."""
    prompt = fill(
        EXPAND,
        {
            "class_name": class_name,
            "count": str(len(places)),
            "places": places_text(places),
            "config": _values(config),
            "callees": callees_text(callees),
            "roots": _roots(trees),
        },
    )
    return Told(fill(f"{EXPAND}.system", {}), prompt)


def _roots(trees: Trees) -> str:
    """The folders that hold the sources, each once."""
    of: dict[str, list[str]] = {}
    for tree in trees:
        of.setdefault(str(tree.root), []).append(tree.import_name)
    shown = [f"{root} ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" for root, names in of.items()]
    return escaped(", ".join(shown)) or "no folder: nothing is vendored"


def _values(config: Mapping[str, Any]) -> str:
    lines = [f"- config.{name} = {_cut(escaped(repr(value)))}" for name, value in config.items()]
    more = [f"- and {len(lines) - _MOST_VALUES} more"] if len(lines) > _MOST_VALUES else []
    return "\n".join([*lines[:_MOST_VALUES], *more]) or "Nothing is known of it."


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
