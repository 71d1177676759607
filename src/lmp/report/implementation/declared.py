"""What the classes of a model's file say of themselves in attributes, with the lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lmp.report.document.parts import Code, Inline, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import joined
from lmp.source.parsed import parse

IGNORED = "_keys_to_ignore_on_load_unexpected"


def ignored_line(facts: ModelFacts) -> list[Inline] | None:
    """What of the checkpoint loading leaves out, which is then in no figure."""
    names, place = _texts(facts, IGNORED)
    if place is None or not names:
        return None
    line: list[Inline] = ["loading leaves out what a checkpoint has under ", *joined([Code(name) for name in names])]
    line += [" (", place, "): it is no part of this model and of no figure here"]
    if facts.named.get("config.num_nextn_predict_layers"):
        line += [", though the config has ", Code("num_nextn_predict_layers"), " = "]
        line.append(facts.setting("num_nextn_predict_layers"))
    return line


def left_out(facts: ModelFacts) -> Iterator[list[Inline]]:
    """What of the checkpoint is in no figure, for the list of limitations."""
    line = ignored_line(facts)
    if line is not None:
        yield line


def flag(facts: ModelFacts, name: str) -> Pointer | None:
    """Where a class of the file sets an attribute to True."""
    for value, place in _declared(facts, name):
        if isinstance(value, ast.Constant) and value.value is True:
            return place
    return None


def _texts(facts: ModelFacts, name: str) -> tuple[list[str], Pointer | None]:
    for value, place in _declared(facts, name):
        items = value.elts if isinstance(value, ast.List | ast.Tuple) else []
        return [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)], place
    return [], None


def _declared(facts: ModelFacts, name: str) -> Iterator[tuple[ast.expr, Pointer]]:
    source = facts.sources[facts.model.class_name]
    for node in ast.walk(parse(source.path).tree):
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            match statement:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    yield value, facts.place(source.file, statement.lineno, name)
