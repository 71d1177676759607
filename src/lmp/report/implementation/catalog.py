"""Section 5: every distinct operator of the class, with what it works on and whose results it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lmp.errors import LmpError
from lmp.formula import evaluate, parse
from lmp.observe.flow import Op
from lmp.records import short
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import (
    Catalogue,
    Row,
    code_at,
    further,
    joined,
    kinds_of,
    layer_of,
    plain,
    pointer_at,
    row_pointer,
    searched,
    shape_text,
)
from lmp.report.implementation.searching import Searched, ran_functions

TITLE = "5. Task/Operator Catalog"
COLUMNS = ("ID", "Task Type", "Purpose", "Tiling", "Dependencies")
TILES = ("BLOCK_M*", "BLOCK_N*", "BLOCK_K*", "BLOCK_SIZE*", "num_warps", "num_stages", "triton.jit")


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """Operators by line and what they do; those of layers that are alike stand once."""
    catalogue = Catalogue(facts)
    rows = [_row(facts, catalogue, row) for row in catalogue.rows.values()]
    blocks: list[Block] = [
        Paragraph(_reading(facts)),
        Table(COLUMNS, [*rows, *_views(facts)], searched=searched(facts)),
        Paragraph("Tiling:"),
        Bullets(list(_tiling(facts, catalogue))),
        *further(told, TITLE),
    ]
    return Section(TITLE, blocks)


def _reading(facts: ModelFacts) -> Line:
    phases = " and ".join(map(facts.called, facts.flows.phases)) or "no phase"
    return (
        "Each row is one operator as ATen runs it, at one line of one class and called by the same lines, however "
        f"often; seen on the meta device ({phases}). Dependencies are the tasks that made, or last wrote, "
        "the memory that it reads: found by following storages, views included. Weights are left out of them."
    )


def _row(facts: ModelFacts, catalogue: Catalogue, row: Row) -> list[Line]:
    return [row.key, row.category, _purpose(facts, catalogue, row), _work(facts, row), _dependencies(row)]


def _purpose(facts: ModelFacts, catalogue: Catalogue, row: Row) -> list[Inline]:
    cell: list[Inline] = [Code(row.label), f": {row.words}, at ", row_pointer(facts, row)]
    callers = _callers(facts, catalogue, row)
    if callers:
        cell += [", called at ", *joined(callers)]
    only = [*_layers(facts, row), *([" and ".join(row.ops)] if set(row.ops) != set(facts.flows.phases) else [])]
    if only:
        cell.append(f" ({', '.join(only)} only)")
    return cell


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


def _work(facts: ModelFacts, row: Row) -> list[Inline]:
    """M, N and K of a product, the elements of anything else; of a later phase where no size of the first is its."""
    known: list[Op] = []
    cell: list[Inline] = []
    for phase, ops in row.ops.items():
        values = facts.flows.phases[phase].values
        new = {_extent(op): op for op in ops if not any(_same(op, other, values) for other in known)}
        for number, op in enumerate(new.values()):
            before = " or " if number else f"; in {phase} "
            cell += [*([before] if known else [_measure(op)]), *_told(op)]
            known.append(op)
    return [piece for piece in cell if piece != ""]


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
    if op.product is None:
        return [_shape(shape_text(op))]
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


def _views(facts: ModelFacts) -> Iterator[list[Line]]:
    """Lines that run and cost nothing, a row a class."""
    number = 0
    for name, analysis in facts.analyses.items():
        files = {analysis.source.file: list(analysis.free_lines), **analysis.free_lines_elsewhere}
        spans = [_folded(facts, file, lines) for file, lines in files.items() if lines]
        if spans:
            number += 1
            cell: list[Inline] = [Code(short(name)), ": lines that run and cost nothing: "]
            for index, span in enumerate(spans):
                cell += ["; ", *span] if index else span
            yield [f"V{number}", "view", cell, "none: no element moves", "none: they alias what they look into"]


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


def _tiling(facts: ModelFacts, catalogue: Catalogue) -> Iterator[Line]:
    functions = ran_functions(facts)
    found = Searched(facts, functions, TILES)
    names = sorted({row.first.name for row in catalogue.rows.values() if row.category in ("matmul", "grouped_matmul")})
    products = joined([Code(f"aten.{name}") for name in names])
    if found.places:
        yield ["tile sizes in the code that runs: ", *joined(list(found.pointers()))]
    else:
        yield f"tile sizes in the code that runs: none found (searched: {found.text})"
    if names:
        yield [
            "tiles of ",
            *products,
            " are chosen when they are dispatched, from the sizes M, N and K above and the device (cuBLAS and CUTLASS "
            "on CUDA): nothing in the sources sets them",
        ]
    attention = [row for row in catalogue.rows.values() if row.category == "attention"]
    for row in attention:
        yield [
            Code("scaled_dot_product_attention"),
            " at ",
            row_pointer(facts, row),
            " is one task: PyTorch picks its backend (flash, memory efficient, cuDNN or plain) and with it the tiles "
            "at run time",
        ]
        break
    eager = next((row for row in catalogue.rows.values() if "softmax" in row.words), None)
    if not attention and eager is not None and "attn" in code_at(facts, eager.place.file, eager.place.line):
        yield ["attention is not tiled: its score matrix is written whole, and read again by ", Code(eager.key)]
