"""Section 3: the config's values and where they are read, what decides on kernels, and what must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmp.report.document.parts import Code, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation import constraints, dispatch
from lmp.report.implementation.reads import descriptions, marked, own_name, reads_of, reads_of_bases
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

MOST_PLACES = 3
LONGEST_VALUE = 60


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    sources = sources_of(facts)
    return Section(
        "3. Configuration & Parameters",
        sections=(
            _model_configuration(facts, sources),
            dispatch.section(facts, sources),
            constraints.section(facts, sources),
        ),
    )


def _model_configuration(facts: ModelFacts, sources: Sources) -> Section:
    reads, said = reads_of(facts, sources), descriptions(facts, sources)
    template = {shown: own_name(sources, standard) for shown, standard in NAMES.items()}
    rows: list[Sequence[Line]] = []
    for shown, name in template.items():
        rows.append(_row(facts, name, reads, said, shown, sources))
    named = set(template.values())
    read = [name for name in facts.settings if name not in named and _places(name, reads)]
    rows += [_row(facts, name, reads, said, name, sources) for name in read]
    rest = [name for name in facts.settings if name not in named and name not in read]
    bases = reads_of_bases(facts, sources)
    by_bases = [name for name in rest if _places(name, bases)]
    blocks: list[Any] = [Table(("Parameter", "Value", "Description"), rows, sources.searched)]
    if by_bases:
        listed: list[Inline] = []
        for name in by_bases:
            listed += [", " if listed else "", _setting(facts, name), " ", _places(name, bases)[0]]
        blocks.append(Paragraph(["Read by base classes of the library alone: ", *listed, "."]))
    unread = [name for name in rest if name not in by_bases]
    if unread:
        values: list[Inline] = []
        for name in unread:
            values += [", " if values else "", _setting(facts, name)]
        blocks.append(
            Paragraph(["Read by none of them (searched: ", sources.searched, ", and the base classes): ", *values, "."])
        )
    return Section("3.1 Model Configuration", blocks)


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
    if name != shown:
        parameter += [" (", Code(name), ")"]
    if name not in facts.settings:
        where = short(facts.config_class) if facts.config_class else "none: the class takes no config"
        return (parameter, f"none found (searched: {where})", "the config has no such value")
    description: list[Inline] = []
    text = said.get(name) or said.get(name.partition(".")[0], "") if "." not in name else ""
    if text:
        description += [*marked(text), " "]
    variable = next((n for n, path in facts.model.parameters.items() if path == f"config.{name}"), None)
    if variable is not None and variable != name:
        description += ["In formulas ", Code(variable), ". "]
    if name in facts.model.pinned or variable in facts.model.pinned:
        description.append("Fixed in the formulas: they hold for this value only. ")
    description += _read_at(_places(name, reads))
    return (parameter, _value(facts, name), description)


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
    found: list[Inline] = ["Read at "]
    for index, pointer in enumerate(places[:MOST_PLACES]):
        found += [", " if index else "", pointer]
    if len(places) > MOST_PLACES:
        found.append(f" and {len(places) - MOST_PLACES} more")
    return found


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
    return f"{len(value)} values: {', '.join(f'{count} × {kind}' for kind, count in kinds.items())}"
