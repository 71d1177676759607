"""The modules and parameters of a model that the patterns of a plan name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.observe.inspection import Module
from lmp.records import short
from lmp.report.facts import ModelFacts


def modules_of(facts: ModelFacts, pattern: str) -> list[tuple[str, int]]:
    """Modules that a rule's pattern names, alike ones once with their number. Parameters are none."""
    if facts.inspection is None:
        return []
    base = next((m.path for m, _ in modules_in(facts.inspection.tree, 1) if _is_base(m)), "")
    names = [pattern, f"{base}.{pattern}"] if base else [pattern]
    found = []
    for module, times in modules_in(facts.inspection.tree, 1):
        wild = re.sub(r"\.\d+(?=\.|$)", ".*", module.path)
        if wild in names and module.path:
            found.append((module.path, times))
    return found


def _is_base(module: Module) -> bool:
    return bool(module.path) and short(module.class_name).endswith("Model")


def modules_in(module: Module, times: int) -> Iterator[tuple[Module, int]]:
    yield module, times * module.repeat
    for inner in module.modules:
        yield from modules_in(inner, times * module.repeat)


def has_parameter(facts: ModelFacts, pattern: str, name: str) -> bool:
    assert facts.inspection is not None
    paths = {path for path, _ in modules_of(facts, pattern)}
    return any(
        m.path in paths and any(w.name == name for w in m.weights) for m, _ in modules_in(facts.inspection.tree, 1)
    )
