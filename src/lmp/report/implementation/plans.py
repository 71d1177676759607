"""How a model may be spread over devices: the plans of its classes, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lmp.errors import LmpError
from lmp.report.facts import ModelFacts
from lmp.report.implementation.styles import FOLDER, Collective, Registry, Style
from lmp.source.locate import find_class, lineage_of
from lmp.source.names import Definition, Names
from lmp.source.parsed import parse
from lmp.source.trees import Tree

PLANS = {
    "tensor": ("_tp_plan", "base_model_tp_plan"),
    "pipeline": ("_pp_plan", "base_model_pp_plan"),
    "expert": ("_ep_plan", "base_model_ep_plan"),
    "data": ("_fsdp_plan", "base_model_fsdp_plan"),
}
"""Kind of parallelism -> the attributes of a model's and of a config's class that hold its plan."""


@dataclass(frozen=True)
class Rule:
    """One entry of a plan, with the line it stands at."""

    pattern: str
    style: str
    file: str
    line: int
    holder: str
    """The class, and the attribute of it."""


@dataclass
class Plans:
    """The plans of one model, by kind of parallelism."""

    facts: ModelFacts
    rules: dict[str, list[Rule]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = Names(self.facts.trees)
        owners = [self.facts.model.class_name, self._base_model(), self.facts.config_class]
        for kind, attributes in PLANS.items():
            found: dict[str, Rule] = {}
            for owner in owners:
                for rule in self._of_class(owner, attributes, names) if owner else ():
                    found.setdefault(rule.pattern, rule)
            self.rules[kind] = list(found.values())

    def _base_model(self) -> str | None:
        """The class of the model that the root holds: plans of the config are of its modules."""
        return next((n for n in self.facts.model.parts if n.endswith("Model")), None)

    def _of_class(self, owner: str, attributes: tuple[str, ...], names: Names) -> Iterator[Rule]:
        try:
            order = lineage_of(find_class(owner, names), names).order
        except LmpError:
            return
        for attribute in attributes:
            for definition in order:
                node = _assigned(definition, attribute)
                if node is not None:
                    yield from _rules(definition, attribute, node)
                    break

    @cached_property
    def styles(self) -> Mapping[str, Style]:
        """The styles that the plans name, as far as they are registered in the sources."""
        tree = self.facts.trees.transformers
        if tree is None:
            return {}
        wanted = {rule.style for kind in ("tensor", "expert") for rule in self.rules[kind]} | set(IMPLIED.values())
        return {name: style for name, style in _registry(tree).styles() if name in wanted}

    @cached_property
    def stages(self) -> list[Collective]:
        """What the stages of a pipeline send to one another."""
        tree = self.facts.trees.transformers
        if tree is None or not self.rules["pipeline"]:
            return []
        return _registry(tree).inside("PipelineStage")

    @cached_property
    def implied(self) -> Rule | None:
        """What a model's plan gets by itself where it has embeddings, with the line that adds it."""
        tree = self.facts.trees.transformers
        file = tree.path(f"{FOLDER}/mixin.py") if tree is not None else None
        of_base = any(rule.holder.endswith("base_model_tp_plan") for rule in self.rules["tensor"])
        if tree is None or file is None or not file.is_file() or not of_base:
            return None
        for pattern, style in IMPLIED.items():
            for number, text in enumerate(parse(file).lines, 1):
                if f'"{pattern}": "{style}"' in text:
                    return Rule(pattern, style, tree.relative(file), number, "DistributedMixin")
        return None


def _registry(tree: Tree) -> Registry:
    return Registry(tree.path(FOLDER), FOLDER)


IMPLIED = {"embed_tokens": "embedding_rowwise"}
"""Rules that transformers adds to plans: pattern -> style."""


def _assigned(definition: Definition, name: str) -> ast.expr | None:
    assert isinstance(definition.node, ast.ClassDef)
    for statement in definition.node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return value
    return None


def _rules(definition: Definition, attribute: str, node: ast.expr) -> Iterator[Rule]:
    file = definition.module.tree.relative(definition.path)
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            style = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
            yield Rule(key.value, str(style), file, key.lineno, f"{definition.node.name}.{attribute}")
