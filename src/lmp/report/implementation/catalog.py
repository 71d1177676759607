"""Section 5: every distinct operator of the class, with what it works on and whose results it takes."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping

from lmp.errors import LmpError
from lmp.formula import evaluate, parse
from lmp.observe.flow import Op
from lmp.records import short
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import (
    Catalogue,
    Row,
    code_at,
    joined,
    kinds_of,
    layer_of,
    plain,
    pointer_at,
    row_pointer,
    shape_text,
)
from lmp.report.implementation.ran import plainly
from lmp.report.implementation.searching import Searched, ran_functions

TILES = ("BLOCK_M*", "BLOCK_N*", "BLOCK_K*", "BLOCK_SIZE*", "num_warps", "num_stages", "triton.jit")


@functools.lru_cache(maxsize=2)
def catalogue_of(facts: ModelFacts) -> Catalogue:
    return Catalogue(facts)


def task_rows(facts: ModelFacts, most: int | None = None) -> list[dict[str, Line]]:
    """Operators by line and what they do, alike layers once; with ``most`` those that move most bytes."""
    catalogue = catalogue_of(facts)
    rows = list(catalogue.rows.values())
    dearest = sorted(rows, key=lambda row: -_weight(facts, row))[:most]
    return [
        {
            "key": row.key,
            "type": row.category,
            "purpose": _purpose(facts, catalogue, row),
            "tiling": _tiling(facts, row),
            "depends": _dependencies(row),
        }
        for row in rows
        if row in dearest
    ]


def _weight(facts: ModelFacts, row: Row) -> float:
    """The largest part of a call's bytes that the row's operators move, at any point. Twins are counted together."""
    keys = {
        (_wild(frame.path), frame.class_name, line.line, plainly(op.words))
        for op in row.all_ops
        for frame in op.frames
        for line in frame.lines
    }
    # Exact sums: the order of a set must not decide between rows that move as much.
    return max((math.fsum(found.get(key, 0.0) for key in keys) for found in _moved(facts)), default=0.0)


@functools.lru_cache(maxsize=2)
def _moved(facts: ModelFacts) -> list[dict[tuple[str, str, int, str], float]]:
    """Of each point: module, class, line and operator -> its part of the bytes."""
    found = []
    for point in facts.points:
        moved: dict[tuple[str, str, int, str], float] = {}
        kernels = facts.kernels(point)
        whole = float(sum(k.total.bytes for k in kernels)) or 1.0
        for k in kernels:
            key = (_wild(k.path), k.class_name, k.kernel.line, plainly(k.kernel.operation))
            moved[key] = moved.get(key, 0.0) + float(k.total.bytes) / whole
        found.append(moved)
    return found


def _wild(path: str) -> str:
    """A path with any layer in place of its own."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", path)


def _purpose(facts: ModelFacts, catalogue: Catalogue, row: Row) -> list[Inline]:
    cell: list[Inline] = [Code(row.label), f": {row.words}", *_result(facts, row), ", at ", row_pointer(facts, row)]
    callers = _callers(facts, catalogue, row)
    if callers:
        cell += [", called at ", *joined(callers)]
    only = [*_layers(facts, row), *([" and ".join(row.ops)] if set(row.ops) != set(facts.flows.phases) else [])]
    if only:
        cell.append(f" ({', '.join(only)} only)")
    return cell


def _result(facts: ModelFacts, row: Row) -> list[Inline]:
    """The shape of what it makes; a product's sizes say it."""
    return [] if row.first.product is not None else [" → ", _shape(shape_text(row.first))]


def _layers(facts: ModelFacts, row: Row) -> list[str]:
    """The kinds of layers that a row runs in, where there are others which it does not run in."""
    kinds = [kind for flow in facts.flows.phases.values() for kind in kinds_of(facts, flow)]
    runs = {found[:2] for op in row.all_ops if (found := layer_of(op.frames[0].path))}
    mine = {kind.name for kind in kinds if (kind.stack, kind.run) in runs}
    return sorted(mine) if runs and mine != {kind.name for kind in kinds} else []


def _callers(facts: ModelFacts, catalogue: Catalogue, row: Row) -> list[Pointer]:
    """The line of forward() that called the helper which an operator stands in, and those that tell twins apart."""
    lines = row.place.lines
    others = [{(line.file, line.line) for line in r.place.lines} for r in catalogue.twins(row) if r is not row]
    found = []
    for number, line in enumerate(lines[1:], 1):
        own = any((line.file, line.line) not in other for other in others)
        if own or number == len(lines) - 1:
            found.append(pointer_at(facts, line.file, line.line, lines[number - 1].function))
    return found


# --- what there is to be tiled ---------------------------------------------------------------------------------------


def _tiling(facts: ModelFacts, row: Row) -> list[Inline]:
    """Of a product its sizes M, N and K, which its tiles are chosen from at run time; anything else has none."""
    if row.first.product is None:
        return ["none: whole tensors"]
    known: list[Op] = []
    cell: list[Inline] = []
    for phase, ops in row.ops.items():
        values = facts.flows.phases[phase].values
        new = {_extent(op): op for op in ops if not any(_same(op, other, values) for other in known)}
        for number, op in enumerate(new.values()):
            before = " or " if number else f"; in {phase} "
            cell += [*([before] if known else [_measure(op)]), *_told(op)]
            known.append(op)
    return [*cell, ": chosen at run time"]


def _same(op: Op, other: Op, values: Mapping[str, int]) -> bool:
    """Whether the sizes of one operator are those of another at the values of its call."""
    if op.shape is None:
        return other.shape is not None and _at(other.shape, values) == op.sizes
    return _at(_extent(op), values) == _at(_extent(other), values)


def _extent(op: Op) -> tuple[str, ...]:
    """Formulas of what there is to be tiled, or its numbers."""
    if op.product is not None:
        return op.product
    return op.shape if op.shape is not None else tuple(map(str, op.sizes))


def _measure(op: Op) -> str:
    if op.product is None:
        return ""
    return "queries × keys × head size = " if op.category == "attention" else "M×N×K = "


def _told(op: Op) -> list[Inline]:
    assert op.product is not None
    if op.category == "attention":
        batch, heads, queries, keys, size = op.product
        cell = _sizes(queries, keys, size)
        values = op.operands[2][-1] if op.operands is not None and len(op.operands) > 2 else size
        cell += ["" if values == size else "; values of ", *([] if values == size else [plain(values)])]
        return [*cell, "; ", *_sizes(batch, heads), " times"]
    batches, *sizes = op.product
    cell = _sizes(*sizes)
    if batches != "1":
        cell += ["; ", plain(batches), " times" if op.category != "grouped_matmul" else " groups of rows"]
    return cell


def _at(extent: tuple[str, ...], values: Mapping[str, int]) -> tuple[object, ...]:
    try:
        return tuple(evaluate(parse(size), values) for size in extent)
    except LmpError:
        return extent


def _shape(text: str) -> Code:
    # A single name in brackets would read like a place to be filled in.
    inside = text[1:-1]
    return Code(text if "," in inside or inside.isdigit() else f"{inside} elements" if inside else "one number")


def _sizes(*formulas: str) -> list[Inline]:
    return joined([plain(f"({f})" if any(sign in f for sign in "+*/") else f) for f in formulas], " × ")


def _dependencies(row: Row) -> Line:
    tasks = sorted((name for name in row.depends if name.startswith("T")), key=lambda name: int(name[1:]))
    names = [*tasks, *(name for name in row.depends if name not in tasks)]
    return ", ".join(names) if names else "none"


def view_rows(facts: ModelFacts) -> Iterator[dict[str, Line]]:
    """Lines that run and cost nothing, a row a class."""
    for name, analysis in facts.analyses.items():
        files = {analysis.source.file: list(analysis.free_lines), **analysis.free_lines_elsewhere}
        spans = [_folded(facts, file, lines) for file, lines in files.items() if lines]
        if spans:
            cell = [piece for index, span in enumerate(spans) for piece in (["; ", *span] if index else span)]
            yield {"name": Code(short(name)), "lines": cell}


def _folded(facts: ModelFacts, file: str, lines: list[int]) -> list[Inline]:
    """The first line of a file as a pointer, the others by their numbers; neighbours as one span."""
    spans: list[list[int]] = []
    for line in sorted(lines):
        if spans and line <= spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    first = facts.place(file, spans[0][0], end=spans[0][1])
    rest = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans[1:])
    one = len(spans) == 2 and spans[1][0] == spans[1][1]
    return [first, f" and line{'' if one else 's'} {rest}"] if rest else [first]


def tiles_set(facts: ModelFacts) -> tuple[list[Pointer], str]:
    """Lines of the code that runs which set tile sizes, and where was looked."""
    found = Searched(facts, ran_functions(facts), TILES)
    return list(found.pointers()), found.text


def written_scores(facts: ModelFacts) -> str:
    """The task of a softmax that reads a score matrix from memory; empty where attention is one operator."""
    rows = catalogue_of(facts).rows.values()
    eager = next((row for row in rows if "softmax" in row.words), None)
    if eager is None or any(row.category == "attention" for row in rows):
        return ""
    return eager.key if "attn" in code_at(facts, eager.place.file, eager.place.line) else ""
