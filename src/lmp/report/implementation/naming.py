"""How modules, shapes and formulas are called in a report."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from lmp.link.numbers import ModuleNumbers
from lmp.observe.calls import ObservedCall, Value
from lmp.observe.inspection import Module
from lmp.report.facts import ModelFacts


def plain_formula(text: str) -> str:
    """A formula as people write it: without the braces of variables."""
    return text.replace("{", "").replace("}", "")


def settings_of(facts: ModelFacts) -> dict[str, Any]:
    """The config's values, those of the part that the model is built from as the model's own code calls them, too."""
    inner = {facts.without_part(name): value for name, value in facts.settings.items()}
    return {**inner, **facts.settings}


def shape_text(value: Value) -> str:
    """``[batch_size, seq_len] int64``, or the name of a class."""
    if value.shape is None:
        return value.dtype
    return f"[{', '.join(map(plain_formula, value.shape))}] {value.dtype}"


@functools.lru_cache(maxsize=2)
def inspected(facts: ModelFacts) -> dict[str, Module]:
    """The inspected modules by their paths; of layers that are alike, the path of the first."""
    return {} if facts.inspection is None else dict(_below(facts.inspection.tree))


def _below(module: Module) -> Iterator[tuple[str, Module]]:
    yield module.path, module
    for inner in module.modules:
        yield from _below(inner)


@functools.lru_cache(maxsize=2)
def _layers(facts: ModelFacts) -> dict[str, tuple[int, str]]:
    """Path of each kind of layer in the expanded model -> how many there are, and its path in the inspected one.

    A model is expanded from one layer of each kind, in the order of the kinds: the second kind stands at index 1.
    """
    waiting, stacks = [facts.tree(facts.points[0])], dict[str, dict[str, int]]()
    while waiting:
        module = waiting.pop(0)
        stack, _, index = module.path.rpartition(".")
        if index.isdigit():
            stacks.setdefault(stack, {}).setdefault(module.path, module.repeat)
        waiting += [child for child in module.children if isinstance(child, ModuleNumbers)]
    found: dict[str, tuple[int, str]] = {}
    for stack, kinds in stacks.items():
        there = {p: m for p, m in inspected(facts).items() if p.rpartition(".")[0] == stack and m.indices}
        same = [m.repeat for m in there.values()] == list(kinds.values())
        paths = list(there) if same else list(kinds)
        found |= {path: (count, other) for (path, count), other in zip(kinds.items(), paths, strict=True)}
    return found


def in_inspection(facts: ModelFacts, path: str) -> str:
    """A path of the expanded model as the inspected one has it."""
    for layer, (_, other) in _layers(facts).items():
        if path == layer or path.startswith(f"{layer}."):
            return other + path.removeprefix(layer)
    return path


def layer_paths(facts: ModelFacts) -> list[str]:
    """Paths of each kind of layer in the expanded model, lists inside of layers included."""
    return list(_layers(facts))


def layers_at(facts: ModelFacts, path: str) -> int:
    """How many layers are like the one at a path of the expanded model."""
    return _layers(facts)[path][0] if path in _layers(facts) else 1


def module_name(facts: ModelFacts, path: str, parent: str) -> str:
    """What a module is called below its parent: ``self_attn``; of layers that are alike ``layers.0-31``."""
    found = inspected(facts).get(in_inspection(facts, path))
    if found is not None and found.name:
        return found.name
    return path.removeprefix(f"{parent}.") if parent else path


def kind_of_layer(facts: ModelFacts, path: str) -> str:
    """What the config's list of layer kinds says of a layer, as ``sliding_attention``; empty where there is none."""
    path = in_inspection(facts, path)
    found = inspected(facts).get(path)
    if found is None or not found.indices:
        return ""
    stack = path.rpartition(".")[0]
    beside = (m for other, m in inspected(facts).items() if other.rpartition(".")[0] == stack and m.indices)
    count = 1 + max(m.indices[-1] for m in beside)
    # A list of one name says nothing of layers: architectures is one.
    for value in facts.settings.values() if count > 1 else ():
        if isinstance(value, list) and len(value) >= count and all(isinstance(v, str) for v in value):
            kinds = dict.fromkeys(value[index] for index in found.indices)
            return ", ".join(kinds)
    return ""


def observed_at(facts: ModelFacts, path: str) -> ObservedCall | None:
    """The first call of the module at a path."""
    return next((call for call in facts.observed.calls if call.path == path), None)
