"""Flat lists in place of the tree, most expensive first: operators one by one, by category, or by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lmp.link.numbers import CostNumbers, KernelNumbers, summed
from lmp.records import Operands, short
from lmp.report.formats.base import Result, Show, weighed
from lmp.report.formats.figures import figure, percent
from lmp.report.terminal import Column, Line, bar

EACH = 20
"""Rows that a flat list shows if no other number is asked for."""

RANKED = {
    "flops": "FLOPs",
    "bytes": "bytes read and written",
    "read": "bytes read",
    "write": "bytes written",
    "intensity": "FLOPs per byte",
}
"""Quantity -> what notes call it."""


@dataclass(frozen=True)
class FlatTable:
    """A table before it is fitted to a width. ``notes`` are what its reader has to know."""

    head: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    notes: tuple[str, ...] = ()
    part: int = 3
    """Names are cut to a third of the width, or another part, before a column is dropped."""


@dataclass(frozen=True)
class _Item:
    """A row of a flat list. ``about`` are the cells of the columns that only this list has."""

    name: str
    about: tuple[str, ...]
    cost: CostNumbers
    end: str = ""
    """The end of the name that is cut last."""


COSTS = (
    Column("share", "share", 90),
    Column("bar", "", 30, left=True),
    Column("flops", "FLOPs", 80),
    Column("bytes", "bytes", 70),
    Column("read", "read", 40),
    Column("write", "written", 39),
)


def flat_list(result: Result, show: Show) -> FlatTable:
    """The list that ``show.each`` names."""
    operators = [(kernel, operands) for kernel, operands in result.operators() if any(kernel.total)]
    kernels = [kernel for kernel, _ in operators]
    about: tuple[Column, ...]
    match show.each:
        case "operator":
            about = (Column("sizes", "sizes", 75, left=True), Column("runs", "runs", 79))
            alike = "operators that are alike in line, sizes and cost are one row, with the runs of all"
            items = _operators(operators)
            return _listed("operator", about, items, result, show, *([alike] if len(items) < len(operators) else []))
        case "category":
            about = (Column("operators", "operators", 35),)
            return _listed("category", about, _categories(kernels), result, show)
        case _:
            about = (Column("class", "class", 60, left=True), Column("runs", "runs", 35))
            return _listed("module", about, _modules(kernels), result, show)


def _listed(
    head: str, about: tuple[Column, ...], items: list[_Item], result: Result, show: Show, *own_notes: str
) -> FlatTable:
    key = show.by if show.sort == "order" else show.sort
    items.sort(key=lambda item: rank(item.cost, key), reverse=True)
    most = show.top or EACH
    columns = (*about, *COSTS)
    lines = [
        Line(item.name, (*item.about, *cost_cells(item.cost, share_of(item.cost, result, show), show)), end=item.end)
        for item in items[:most]
    ]
    left_out = len(items) - most
    words = {"operator": "operators", "category": "categories", "module": "modules"}
    more = (f"{left_out:,} more {words[head] if left_out > 1 else head}: --top",) if left_out > 0 else ()
    own = ("of a module only its own operators, not those of modules in it",) if head == "module" else ()
    notes = (*more, f"most expensive first, by {RANKED[key]}; figures are of all runs", *own, *own_notes)
    return FlatTable(head, columns, lines, notes, part=5 if head == "operator" else 4)


def share_of(cost: CostNumbers, result: Result, show: Show) -> Fraction | None:
    """The part of the whole call; None if the whole is 0."""
    whole = weighed(result.tree.total, show.by)
    return Fraction(weighed(cost, show.by)) / Fraction(whole) if whole else None


def cost_cells(cost: CostNumbers, share: Fraction | None, show: Show) -> list[str]:
    """The cells of COSTS."""
    return [
        percent(share),
        bar(share),
        figure(cost.flops, "FLOP", show.exact),
        *(figure(amount, "B", show.exact) for amount in (cost.bytes, cost.read, cost.write)),
    ]


def rank(cost: CostNumbers, key: str) -> Fraction:
    if key == "intensity":
        return Fraction(cost.flops) / Fraction(cost.bytes) if cost.bytes else Fraction(0)
    return Fraction(getattr(cost, key))


def _operators(operators: Sequence[tuple[KernelNumbers, Operands | None]]) -> list[_Item]:
    """A row for all operators that differ in their layer alone, with their runs. Costs and sizes must be equal."""
    groups: dict[tuple[object, ...], list[tuple[KernelNumbers, Operands | None]]] = defaultdict(list)
    for kernel, operands in operators:
        own = kernel.kernel
        place = (own.operation, own.file, own.function, own.line)
        key = (*place, kernel.class_name, without_indices(kernel.path), sizes_text(operands), kernel.once)
        groups[key].append((kernel, operands))
    firsts = [group[0] for group in groups.values()]
    items = []
    for group, place_of in zip(groups.values(), places(firsts), strict=True):
        kernel, operands = group[0]
        end = f" {place_of}"
        runs = sum(one.runs for one, _ in group)
        items.append(
            _Item(
                f"{kernel.kernel.operation}{end}",
                (sizes_text(operands), f"{runs:,}"),
                _total(one for one, _ in group),
                end,
            )
        )
    return items


def without_indices(path: str) -> str:
    """``model.layers.self_attn`` of ``model.layers.0.self_attn``."""
    return ".".join(step for step in path.split(".") if not step.isdecimal())


def places(operators: Sequence[tuple[KernelNumbers, Operands | None]]) -> list[str]:
    """``q_proj:134`` for each: as many steps from the path's end as tell it from the others, else the whole path."""
    steps = [without_indices(kernel.path).split(".") for kernel, _ in operators]
    written = [1] * len(steps)

    def label(index: int) -> str:
        shown = ".".join(steps[index][-written[index] :]) or "(the model)"
        return f"{shown}:{operators[index][0].kernel.line}"

    while True:
        alike: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, (kernel, _) in enumerate(operators):
            alike[kernel.kernel.operation, label(index)].append(index)
        longer = [
            index
            for group in alike.values()
            if len({".".join(steps[index]) for index in group}) > 1
            for index in group
            if written[index] < len(steps[index])
        ]
        if not longer:
            break
        for index in longer:
            written[index] += 1
    found = [label(index) for index in range(len(operators))]
    for group in alike.values():
        if len({sizes_text(operators[index][1]) for index in group}) < len(group):
            for index in group:
                found[index] = f"{operators[index][0].path or '(the model)'}:{operators[index][0].kernel.line}"
    return found


def _categories(kernels: Sequence[KernelNumbers]) -> list[_Item]:
    groups: dict[str, list[KernelNumbers]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.kernel.category].append(kernel)
    return [_Item(name, (f"{len(group):,}",), _total(group)) for name, group in groups.items()]


def _modules(kernels: Sequence[KernelNumbers]) -> list[_Item]:
    groups: dict[tuple[str, str], list[KernelNumbers]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.path, kernel.class_name].append(kernel)
    return [
        _Item(path or "(the model)", (short(name), f"{group[0].runs // max(1, group[0].repeat):,}"), _total(group))
        for (path, name), group in groups.items()
    ]


def _total(kernels: Iterable[KernelNumbers]) -> CostNumbers:
    return summed(kernel.total for kernel in kernels)


def sizes_text(operands: Operands | None) -> str:
    """The sizes of one operator: of a product, of attention, else the shape of its first output."""
    if operands is None:
        return "-"
    sizes = operands
    if sizes.q_len is not None:
        window = f", window {sizes.window:,}" if sizes.window else ""
        shared = "" if sizes.kv_heads == sizes.heads else f" (KV {sizes.kv_heads:,})"
        return (
            f"batch {sizes.batch:,}, q {sizes.q_len:,}, kv {sizes.kv_len:,}, heads {sizes.heads:,}{shared}, "
            f"dim {sizes.head_dim:,}{window}"
        )
    if sizes.tokens is not None:
        of = f"{sizes.tokens:,} tokens x {sizes.top_k:,} of {sizes.experts:,} experts"
        return f"{of}, n {sizes.n:,} x k {sizes.k:,}"
    if sizes.m is not None:
        batch = "" if sizes.batch == 1 else f"{sizes.batch:,} of "
        return f"{batch}{sizes.m:,} x {sizes.n:,} x {sizes.k:,}"
    return f"[{', '.join(map(str, sizes.outputs[0].shape))}]" if sizes.outputs else "-"
