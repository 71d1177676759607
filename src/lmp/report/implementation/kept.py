"""Of how many positions a call makes logits, and what keeping the last one alone saves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lmp.observe.flow import KEPT, Op
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Pointer
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.operators import PRODUCTS, joined
from lmp.source.parsed import FunctionNode, parse

GENERATION = "src/transformers/generation/utils.py"


def kept_line(facts: ModelFacts) -> list[Inline] | None:
    """None of a class that returns no product of all positions."""
    made = logits_of(facts)
    if made is None:
        return None
    line: list[Inline] = ["logits of all positions are computed in every figure of this report"]
    places = list(_places(facts))
    if not places:
        return [*line, f"; an argument that keeps fewer: none found (searched: {KEPT} among those of forward())"]
    line += [" (", Code(f"{KEPT}={_default(facts)}"), ", ", *joined([*places]), ")"]
    asked = _asked(facts)
    if asked is not None:
        line += ["; generate() keeps the last one: ", asked]
    for point in facts.points:
        if point.key in facts.flows.kept:
            line += ["; ", *_saved(facts, point, made)]
    return line


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


def _saved(facts: ModelFacts, point: Point, made: Op) -> Iterator[Inline]:
    flops = Term(point=point.key, quantity="matmul_flops", path=made.frames[0].path)
    terms = {"a": flops, "n": Term(constant=point.values["seq_len"], source="new tokens")}
    whole = Term(point=point.key, quantity="flops")
    yield f"{point.title}: that saves "
    if facts.value(flops):
        yield facts.number("{a} * ({n} - 1) / {n}", "FLOP", **terms)
        yield ", "
        yield facts.number("100 * {a} * ({n} - 1) / ({n} * {w})", "%", **terms, w=whole)
        yield " of the call, and "
    before = facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.activations"))
    kept = kept_activations(facts, point)
    assert kept is not None
    if kept.value == before.value:
        yield "leaves activations at the peak at "
    else:
        yield "takes activations at the peak from "
        yield before
        yield " to "
    yield kept


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


def _places(facts: ModelFacts) -> Iterator[Pointer]:
    """Where the argument stands, and where it is used."""
    found = _forward(facts)
    if found is None:
        return
    file, node = found
    for argument in (*node.args.args, *node.args.kwonlyargs):
        if argument.arg == KEPT:
            yield facts.place(file, argument.lineno, KEPT)
            used = [n.lineno for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == KEPT]
            yield from (facts.place(file, line, KEPT) for line in sorted(set(used)))


def _default(facts: ModelFacts) -> str:
    found = _forward(facts)
    assert found is not None
    arguments = found[1].args
    given = dict(zip([a.arg for a in reversed(arguments.args)], reversed(arguments.defaults), strict=False))
    given |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    return ast.unparse(given[KEPT]) if KEPT in given else "what the caller gives"


def _asked(facts: ModelFacts) -> Pointer | None:
    """The line of generate() that asks for one."""
    path = facts.trees.path_of(GENERATION)
    if path is None or not path.is_file():
        return None
    lines = parse(path).lines
    number = next((n for n, text in enumerate(lines, 1) if f'["{KEPT}"] = 1' in text), None)
    return facts.place(GENERATION, number, KEPT) if number is not None else None
