"""Of how many positions a call makes logits, and what keeping the last one alone saves."""

from __future__ import annotations

import ast
from pathlib import Path

from lmp.observe.flow import KEPT, Op
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Pointer
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.operators import PRODUCTS
from lmp.source.parsed import FunctionNode, parse


def logits_of(facts: ModelFacts) -> Op | None:
    """The matrix product whose result a prefill call returns for every position."""
    flow = facts.flows.phases.get("prefill")
    for index in flow.returned if flow is not None else ():
        maker = flow.tensors[index].maker if flow is not None else None
        op = flow.ops[maker] if flow is not None and maker is not None else None
        if op is not None and op.category in PRODUCTS and "{seq_len}" in " ".join(op.shape or ()):
            return op
    return None


def kept_activations(facts: ModelFacts, point: Point) -> Number | None:
    """Activations at the peak with logits of the last position alone."""
    if point.key not in facts.flows.kept:
        return None
    return facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.kept.activations"))


def argument_line(path: Path, lines: tuple[int, int], name: str) -> int | None:
    """Where an argument of the function in these lines stands."""
    for node in ast.walk(parse(path).tree):
        if isinstance(node, ast.arg) and node.arg == name and lines[0] <= node.lineno <= lines[1]:
            return node.lineno
    return None


def _forward(facts: ModelFacts) -> tuple[str, FunctionNode] | None:
    source = facts.sources[facts.model.class_name]
    for node in ast.walk(parse(source.forward_path).tree):
        inside = isinstance(node, ast.FunctionDef) and source.lines[0] <= node.lineno <= source.lines[1]
        if isinstance(node, ast.FunctionDef) and inside and node.name == "forward":
            return source.forward_file, node
    return None


def kept_places(facts: ModelFacts) -> list[Pointer]:
    """Where the argument stands, and where it is used."""
    found = _forward(facts)
    if found is None:
        return []
    file, node = found
    arguments = [a.lineno for a in (*node.args.args, *node.args.kwonlyargs) if a.arg == KEPT]
    used = sorted({n.lineno for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == KEPT})
    return [facts.place(file, line, KEPT) for line in (*arguments, *used)] if arguments else []
