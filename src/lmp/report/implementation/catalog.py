"""Section 5: every distinct operator of the class, with what it works on and whose results it takes."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation.operators import (
    Catalogue,
    Row,
    code_at,
    further,
    joined,
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
    phases = " and ".join(facts.flows.phases) or "no phase"
    return (
        "Each row is one operator as ATen runs it, at one line of one class, seen in a call on the meta device "
        f"({phases}). Dependencies are the tasks that made, or last wrote, the memory that it reads: found by "
        "following storages, views included. Weights are left out of them."
    )


def _row(facts: ModelFacts, catalogue: Catalogue, row: Row) -> list[Line]:
    return [row.key, row.category, _purpose(facts, row), _work(row), _dependencies(row)]


def _purpose(facts: ModelFacts, row: Row) -> list[Inline]:
    cell: list[Inline] = [Code(row.label), f": {row.words}, at ", row_pointer(facts, row)]
    others = _other_pointers(facts, row)
    if others is not None:
        cell += [", inside of ", others]
    if set(row.ops) != set(facts.flows.phases):
        cell.append(f" ({' and '.join(row.ops)} only)")
    return cell


def _other_pointers(facts: ModelFacts, row: Row) -> Pointer | None:
    """The line that called the helper which an operator stands in."""
    frame = row.first.frames[0]
    if frame is not row.place.owner and row.place.file != frame.lines[0].file:
        return None
    line = frame.lines[-1]
    if len(frame.lines) == 1 or (line.file, line.line) == (row.place.file, row.place.line):
        return None
    inner = frame.lines[-2].function
    return pointer_at(facts, line.file, line.line, inner)


def _work(row: Row) -> Line:
    """What there is to be tiled: M, N and K of a product; the elements of anything else."""
    op = next((o for o in row.all_ops if o.product is not None), row.first)
    if op.product is not None and row.category == "attention":
        batch, heads, queries, keys, size = op.product
        return ["queries × keys × head size = ", *_sizes(queries, keys, size), "; ", *_sizes(batch, heads), " times"]
    if op.product is not None:
        batches, *sizes = op.product
        cell: list[Inline] = ["M×N×K = ", *_sizes(*sizes)]
        if batches != "1":
            cell += ["; ", plain(batches), " times" if row.category != "grouped_matmul" else " groups of rows"]
        return cell
    # A decode step's shapes are a prefill's with one new token.
    shapes = list(dict.fromkeys(shape_text(o) for o in next(iter(row.ops.values()))))
    return joined([_shape(text) for text in shapes[:2]], " or ") + ([" and others"] if len(shapes) > 2 else [])


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
    return [first, f" and lines {rest}"] if rest else [first]


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
