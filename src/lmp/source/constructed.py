"""The module classes that a class constructs in its ``__init__``: they are analysed before it."""

from __future__ import annotations

import ast

from lmp.errors import LmpError
from lmp.source.locate import MODULE_CLASS, ClassSource, find_class, lineage_of, locate, method_of
from lmp.source.names import Definition, Names, dotted_name
from lmp.source.parsed import FunctionNode
from lmp.source.trees import Trees

CONTAINERS = "torch.nn.modules.container"
"""Module of the containers. They compute nothing; the modules in them are constructed separately."""


def constructed_classes(source: ClassSource, trees: Trees) -> tuple[str, ...]:
    """Defining paths of the module classes with a ``forward()`` that ``__init__`` calls by name, each once, in order.

    A class from a registry (``ACT2FN[config.hidden_act]``) is not among them: reading does not find it.
    """
    names = Names(trees)
    found: dict[str, None] = {}
    for entry, init in constructors_of(find_class(source.class_path, names), names):
        for node in ast.walk(init):
            dotted = dotted_name(node.func) if isinstance(node, ast.Call) else None
            definition = names.dotted(entry.module, dotted) if dotted is not None else None
            if isinstance(definition, Definition) and _is_module(definition, names, trees):
                found[definition.qualified] = None
    found.pop(source.class_path, None)
    return tuple(found)


def constructors_of(owner: Definition, names: Names) -> list[tuple[Definition, FunctionNode]]:
    """The ``__init__`` that runs and those that it calls through ``super()``, with the class of each."""
    reached: list[tuple[Definition, FunctionNode]] = []
    for entry in lineage_of(owner, names).order:
        if entry.qualified == MODULE_CLASS:
            break
        assert isinstance(entry.node, ast.ClassDef)
        init = method_of(entry.node, "__init__")
        if init is None or isinstance(init, str):
            continue
        reached.append((entry, init))
        calls = (node.func for node in ast.walk(init) if isinstance(node, ast.Call))
        if not any(isinstance(call, ast.Name) and call.id == "super" for call in calls):
            break
    return reached


def _is_module(definition: Definition, names: Names, trees: Trees) -> bool:
    if not isinstance(definition.node, ast.ClassDef) or definition.module.name == CONTAINERS:
        return False
    if not lineage_of(definition, names).is_module:
        return False
    try:
        locate(definition.qualified, trees)
    except LmpError:  # no forward() of its own: nothing to analyse
        return False
    return True
