"""The system diagram and the tree of modules, drawn from the expanded and the inspected model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from lmp.link.numbers import KernelNumbers, ModuleNumbers
from lmp.observe.inspection import Module
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.markdown import plain
from lmp.report.document.parts import Mermaid, Node
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.drawing import WIDTH, Row, length, spread, wrapped
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.naming import kind_of_layer, module_name, observed_at, plain_formula
from lmp.report.implementation.ran import plainly
from lmp.report.implementation.wiring import CACHE, Wiring, own_key, parts_of

# --- boxes -----------------------------------------------------------------------------------------------------------


class Diagram:
    """Nested boxes of the model in the order in which its parts run, with their shares at a point."""

    def __init__(self, facts: ModelFacts, point: Point) -> None:
        self.facts, self.point = facts, point
        self._drawn: dict[tuple[str, int | None], str] = {}

    def rows(self) -> list[Row]:
        tree = self.facts.tree(self.point)
        head = spread([""], ["   FLOPs", "   bytes "], WIDTH - 2)
        return [head, *self._box(tree, "", short(tree.class_name), WIDTH)]

    def _box(self, module: ModuleNumbers, parent: str, title: str, width: int) -> list[Row]:
        inner = width - 4
        rows: list[Row] = [self._line([title], module, inner), ["─" * inner]]
        parts = list(parts_of(module))
        for index, part in enumerate(parts):
            if isinstance(part, list):
                rows += [[line] for line in wrapped(_own_operators(part), inner, "", "  ")]
            else:
                rows += self._module(part, module.path, inner)
            if index + 1 < len(parts) and _is_large(parts[index], parts[index + 1]):
                rows.append([" " * (inner // 2), "▼"])
        return [
            ["┌" + "─" * (width - 2) + "┐"],
            *(_framed(row, inner) for row in rows),
            ["└" + "─" * (width - 2) + "┘"],
        ]

    def _module(self, module: ModuleNumbers, parent: str, width: int) -> list[Row]:
        facts = self.facts
        title = f"{module_name(facts, module.path, parent)}: {short(module.class_name)}"
        if module.repeat != 1:
            title += f" ×{module.repeat}"
        kind = kind_of_layer(facts, module.path)
        title += f" ({kind})" if kind else ""
        key = (module.class_name, facts.named.get(f"parameters.{module.path}"))
        if not any(isinstance(part, ModuleNumbers) for part in module.children):
            call = observed_at(facts, module.path)
            out = [v for v in call.outputs if v.shape is not None] if call is not None else []
            if out and out[0].shape is not None:
                title += f" → [{', '.join(map(plain_formula, out[0].shape))}]"
            return [self._line([title], module, width)]
        if key in self._drawn:
            return [self._line([f"{title}, as {self._drawn[key]}"], module, width)]
        self._drawn[key] = module.path
        return self._box(module, parent, title, width)

    def _line(self, left: Row, module: ModuleNumbers, width: int) -> Row:
        measure = Measure(self.facts, ({"path": module.path} if module.call is not None else {},))
        shares = (measure.share("flops", self.point), measure.share("bytes", self.point))
        return spread(left, [piece for share in shares for piece in _column(share)], width)


def _column(number: Number | None) -> Row:
    text = "-" if number is None else plain(number)
    return [" " * max(1, 8 - len(text)), "-" if number is None else number]


def _framed(row: Row, inner: int) -> Row:
    if row and isinstance(row[0], str) and row[0].startswith("─"):
        return ["├─", *row, "─┤"]
    return ["│ ", *row, " " * (inner - length(row)), " │"]


def _is_large(one: ModuleNumbers | list[KernelNumbers], other: ModuleNumbers | list[KernelNumbers]) -> bool:
    """Whether an arrow stands between two parts: where one of them is a box."""
    return any(
        isinstance(part, ModuleNumbers) and any(isinstance(c, ModuleNumbers) for c in part.children)
        for part in (one, other)
    )


def _own_operators(kernels: Sequence[KernelNumbers]) -> str:
    names = dict.fromkeys(plainly(kernel.kernel.operation) for kernel in kernels)
    lines = sorted({k.kernel.line for k in kernels}) if all(k.kernel.function is None for k in kernels) else []
    place = "" if not lines else f" (line {lines[0]})" if len(lines) == 1 else f" (lines {lines[0]}-{lines[-1]})"
    return f"+ {', '.join(names)}{place}"


# --- the tree --------------------------------------------------------------------------------------------------------


def module_tree(facts: ModelFacts) -> list[Row]:
    """Every module of the inspected model, layers that are alike once, with its parameters."""
    assert facts.inspection is not None
    return list(_tree(facts, facts.inspection.tree, "", ""))


def _tree(facts: ModelFacts, module: Module, lead: str, below: str) -> Iterator[Row]:
    name = f"{module.name}: " if module.name else ""
    repeat = f" (×{module.repeat})" if module.repeat > 1 else ""
    kind = kind_of_layer(facts, module.path)
    shown = f"{lead}{name}{short(module.class_name)}{repeat}{f' {kind}' if kind else ''}"
    count: Row = []
    if module.parameters_count:
        count = [facts.number("{a}", "params", a=Term(name=f"parameters.{module.path}"))]
    weights = ", ".join(f"{w.name} {w.shape}{' tied' if w.tied_to else ''}" for w in module.weights)
    shown += f"  {weights}" if weights else ""
    yield spread([shown], count, WIDTH)
    for index, inner in enumerate(module.modules):
        last = index + 1 == len(module.modules)
        yield from _tree(facts, inner, below + ("└── " if last else "├── "), below + ("    " if last else "│   "))


# --- the graph -------------------------------------------------------------------------------------------------------


def graph(facts: ModelFacts, point: Point) -> Mermaid:
    """The parts of the model as nodes, those of a layer in a group, by what takes from what in the runs shown; where
    there are none, in the order in which they run."""
    nodes: list[Node] = [Node("input", _inputs(facts))]
    for key, label, inside, shape in _flat(facts, facts.tree(point), None):
        nodes.append(Node(key, f"{label}\n{shape}" if shape else label, inside))
    wired = Wiring(facts, point)
    edges = wired.edges([node.key for node in nodes])
    if any(CACHE in edge[:2] for edge in edges):
        nodes.append(Node(CACHE, "KV cache"))
    if not edges:
        keys = [node.key for node in nodes]
        edges = [(one, other, "") for one, other in itertools.pairwise(keys)]
    return Mermaid(nodes, edges)


def _inputs(facts: ModelFacts) -> str:
    shapes = (f"{name} [{', '.join(map(plain_formula, shape))}]" for name, shape in facts.model.interface.items())
    return "\n".join(shapes) or "input"


def _flat(facts: ModelFacts, module: ModuleNumbers, inside: str | None) -> Iterator[tuple[str, str, str | None, str]]:
    """Key, label, group and shape of what comes out, of modules down to those in a repeated layer."""
    for child in parts_of(module):
        if isinstance(child, list):
            yield own_key(module.path, child[0]), _own_operators(child), inside, ""
            continue
        name = f"{module_name(facts, child.path, module.path)}: {short(child.class_name)}"
        holds = any(isinstance(c, ModuleNumbers) for c in child.children)
        if holds and inside is None:
            kind = kind_of_layer(facts, child.path)
            repeats = f" ×{child.repeat}" if child.repeat != 1 else ""
            is_stack = child.repeat != 1
            title = f"{name}{repeats}{f' ({kind})' if kind else ''}"
            yield from _flat(facts, child, title if is_stack else None)
            continue
        call = observed_at(facts, child.path)
        out = [v for v in call.outputs if v.shape is not None] if call is not None else []
        shape = f"[{', '.join(map(plain_formula, out[0].shape or ()))}]" if out else ""
        yield child.path, name, inside, shape
