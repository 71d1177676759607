"""Section 3.1: the config's values, what they are for, and where they are read."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmp.formula import free_variables, parse, settled
from lmp.records import short
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.drawing import pieces_of
from lmp.report.implementation.naming import plain_formula
from lmp.report.implementation.operators import joined, lists
from lmp.report.implementation.reads import (
    aliases_of,
    descriptions,
    marked,
    methods,
    own_name,
    reads_of,
    reads_of_bases,
)
from lmp.report.implementation.sources import Sources, sources_of

NAMES = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "head_dim": "head_dim",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "max_seq_len": "max_position_embeddings",
}
"""The template's rows, and transformers' standard names for them."""

MOST_PLACES = 2
LONGEST_VALUE = 60
MOST_KINDS = 6
"""Different values of a long list that are told with how often each occurs."""


@dataclass(frozen=True)
class Settings:
    """The config: rows of the table, those that decide first, and the values that nothing of the model reads."""

    rows: list[Sequence[Line]]
    by_bases: list[Inline]
    unread: list[Inline]
    searched: str


def settings(facts: ModelFacts) -> Settings:
    """The template's rows, then what costs depend on, then what else the sources read."""
    sources = sources_of(facts)
    reads, said = reads_of(facts, sources), descriptions(facts, sources)
    reads = {**_of_part(facts, reads), **reads}
    template = {shown: _full(facts, own_name(sources, standard)) for shown, standard in NAMES.items()}
    named = set(template.values())
    paths = {
        path.removeprefix("config.") for name, path in facts.model.parameters.items() if name in _that_matter(facts)
    }
    others = [name for name in facts.settings if name not in named]
    others.sort(key=lambda name: name not in paths and facts.without_part(name) not in paths)
    read = [name for name in others if _places(name, reads)]
    rows = [_row(facts, name, reads, said, shown, sources) for shown, name in template.items()]
    rows += [_row(facts, name, reads, said, name, sources) for name in read]
    rest = [name for name in others if name not in read]
    bases = reads_of_bases(facts, sources)
    bases = {**_of_part(facts, bases), **bases}
    by_bases = [name for name in rest if _places(name, bases)]
    listed: list[list[Inline]] = [[_setting(facts, name), " ", _places(name, bases)[0]] for name in by_bases]
    unread = [_setting(facts, name) for name in rest if name not in by_bases]
    return Settings(rows, lists(listed), joined(unread), sources.searched)


def _full(facts: ModelFacts, name: str) -> str:
    """A value's name in the whole config: of a model inside of another one that of the part with its sizes."""
    return name if name in facts.settings or f"{facts.part}{name}" not in facts.settings else f"{facts.part}{name}"


def _of_part(facts: ModelFacts, reads: Mapping[str, list[Pointer]]) -> dict[str, list[Pointer]]:
    """Reads of the part that the model's classes are given, under the names of the whole config."""
    if not facts.part:
        return {}
    return {f"{facts.part}{name}": places for name, places in reads.items() if name not in facts.settings}


def _setting(facts: ModelFacts, name: str) -> Code:
    return Code(f"{name} = {_short(facts.settings[name])}")


def _row(
    facts: ModelFacts,
    name: str,
    reads: Mapping[str, list[Pointer]],
    said: Mapping[str, str],
    shown: str,
    sources: Sources,
) -> Sequence[Line]:
    parameter: list[Inline] = [Code(shown)]
    aliases = aliases_of(sources, name)
    if name != shown:
        parameter += [" (", Code(name), ")"]
    in_code = [alias for alias in aliases if alias != shown]
    if in_code:
        parameter += [" (also ", Code(in_code[0]), ")"]
    if name not in facts.settings:
        derived = _derived(facts, name, sources)
        if derived is not None:
            value, where = derived
            return (
                parameter,
                value,
                ["A property of the config's class, ", where, ". ", *_read_at(_places(name, reads))],
            )
        searched = short(facts.config_class) if facts.config_class else "none: the class takes no config"
        return (parameter, f"none found (searched: {searched})", "the config has no such value")
    description: list[Inline] = []
    names = [*aliases, name]
    bare = facts.without_part(name)
    text = next((said[n] for n in (*aliases, bare) if said.get(n)), "") if "." not in bare else ""
    if text:
        description += [*marked(text), " "]
    paths = {f"config.{n}" for n in names}
    variable = next((n for n, path in facts.model.parameters.items() if path in paths), None)
    if variable is not None and variable not in (name, bare, shown, *aliases):
        description += ["In formulas ", Code(variable), ". "]
    if name in facts.model.pinned or variable in facts.model.pinned:
        description.append("Fixed in the formulas: they hold for this value only. ")
    elif variable is not None and variable not in _that_matter(facts):
        description.append("No cost of this config depends on it. ")
    if shown == "head_dim":
        description += _head_sizes(facts, bare)
    description += _read_at(_places(name, reads))
    return (parameter, [*pieces_of(_value(facts, name)), *_default(facts, names)], description)


def _derived(facts: ModelFacts, name: str, sources: Sources) -> tuple[Line, Pointer] | None:
    """A value that the config's class works out in a property, and where; it is in no config.json."""
    point = facts.points[0]
    for piece in sources.config if name in point.values else ():
        for method in methods(piece):
            if method.name == name and any(ast.unparse(one) == "property" for one in method.decorator_list):
                return facts.of_formula(f"{{{name}}}", point, ""), piece.pointer(method.lineno, name)
    return None


@functools.lru_cache(maxsize=2)
def _that_matter(facts: ModelFacts) -> frozenset[str]:
    """Variables of the totals, where the values are in for which alone they hold and the number of layers."""
    values = facts.points[0].values
    fixed = {name: value for name, value in values.items() if name in facts.model.pinned or name == NAMES["num_layers"]}
    totals = facts.model.totals
    formulas = [parse(text) for text in (totals.flops, totals.read, totals.write, totals.parameters_count or "0")]
    left = settled(formulas, fixed)
    return frozenset(fixed).union(*(free_variables(formula) for formula in left))


def _head_sizes(facts: ModelFacts, name: str) -> list[Inline]:
    """What the runs show of attention's heads, where that is not this value."""
    for flow in facts.flows.phases.values():
        for op in flow.ops:
            if op.category == "attention" and op.operands is not None and len(op.operands) > 2:
                sizes = [plain_formula(op.operands[index][-1]) for index in (0, 2)]
                if any(size not in (name, "head_dim") for size in sizes):
                    return [f"Attention runs on heads of {sizes[0]} in queries and keys and {sizes[1]} in values. "]
                return []
    return []


def _default(facts: ModelFacts, names: Sequence[str]) -> list[Inline]:
    """Said of a value that the config that was read does not have."""
    held: Any = facts.config
    for part in facts.part.split(".")[:-1] if names[-1].startswith(facts.part) else ():
        held = held.get(part) if isinstance(held, Mapping) else None
    bare = [facts.without_part(name) for name in names]
    if not held or "." in bare[-1] or any(name in held for name in bare):
        return []
    return [" (default of the class: not in the config that was read)"]


def _places(name: str, reads: Mapping[str, list[Pointer]]) -> list[Pointer]:
    found = reads.get(name, [])
    if not found and "." in name:  # of a dictionary that is read as a whole
        head, _, last = name.rpartition(".")
        alone = [key for key in reads if key.endswith(f".{last}") and key.partition(".")[0] == head]
        found = [pointer for key in alone for pointer in reads[key]]
    return found


def _read_at(places: list[Pointer]) -> list[Inline]:
    if not places:
        return ["Read by none of the sources of this report."]
    more = [f" and {len(places) - MOST_PLACES} more"] if len(places) > MOST_PLACES else []
    return ["Read at ", *joined(places[:MOST_PLACES]), *more]


def _value(facts: ModelFacts, name: str) -> Line:
    value = facts.settings[name]
    if type(value) is int:
        return facts.setting(name)
    return Code(_short(value))


def _short(value: Any) -> str:
    """A value in one line; of a long list its kinds, with how often each occurs."""
    text = repr(value)
    if len(text) <= LONGEST_VALUE or not isinstance(value, list):
        return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
    kinds = {repr(item): value.count(item) for item in value}
    if len(kinds) > MOST_KINDS:
        return f"{len(value)} values: {', '.join([*list(kinds)[:MOST_KINDS], '…'])}"
    return f"{len(value)} values: {', '.join(f'{count} × {kind}' for kind, count in kinds.items())}"
