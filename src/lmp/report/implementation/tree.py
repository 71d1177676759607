"""Section 2: the system diagram and the tree of modules, from the expanded and the inspected model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lmp.link.numbers import KernelNumbers, ModuleNumbers
from lmp.observe.inspection import Module
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.markdown import plain
from lmp.report.document.parts import Code, Fence, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.drawing import WIDTH, Row, fence, spread
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.naming import (
    in_inspection,
    inspected,
    kind_of_layer,
    module_name,
    observed_at,
    plain_formula,
)
from lmp.report.implementation.ran import plainly

MOST_KINDS = 3
"""Kinds of layers whose parts are drawn."""
MOST_MODULES = 14
"""Lines of the tree in the report itself."""
MOST_WORDS = 3


# --- 2.1 -------------------------------------------------------------------------------------------------------------


def diagram(facts: ModelFacts, point: Point) -> Fence:
    """Parts in the order in which they run, each kind of layer in a frame, with their shares at a point."""
    rows: list[Row] = [spread([""], ["   FLOPs", "   bytes"], WIDTH - 2)]
    drawn: list[str] = []
    rows += _parts(facts, facts.tree(point), point, drawn, "")
    return fence(rows)


def _parts(facts: ModelFacts, module: ModuleNumbers, point: Point, drawn: list[str], lead: str) -> Iterator[Row]:
    own: list[KernelNumbers] = []
    seen: set[str] = set()
    for child in module.children:
        if isinstance(child, KernelNumbers):
            own += [child] if child.once.bytes else []
            continue
        if child.path in seen:  # told with the first one: figures of a path are of all that is called there
            continue
        seen.add(child.path)
        yield from _own(own, lead)
        own = []
        if any(isinstance(c, ModuleNumbers) for c in child.children) and not lead:
            yield from _framed(facts, child, module, point, drawn)
        else:
            yield _line(facts, child, module, point, lead)
    yield from _own(own, lead)


def _framed(
    facts: ModelFacts, module: ModuleNumbers, parent: ModuleNumbers, point: Point, drawn: list[str]
) -> Iterator[Row]:
    """A module in a frame: a layer with its parts, or a stack, whose layers have frames of their own."""
    is_layer = bool(re.search(r"(^|\.)\d+$", module.path))
    if not is_layer:
        yield _line(facts, module, parent, point, "")
        yield from _parts(facts, module, point, drawn, "")
        return
    title = _title(facts, module, parent)
    head = spread([f"┌─ {title} "], _shares(facts, module, point), WIDTH - 2)
    yield head
    drawn.append(module.path)
    if len(drawn) <= MOST_KINDS:
        yield from _parts(facts, module, point, drawn, "│ ")
    yield ["└─ " + ("its parts: see the appendix" if len(drawn) > MOST_KINDS else "")]


def _title(facts: ModelFacts, module: ModuleNumbers, parent: ModuleNumbers) -> str:
    kind = kind_of_layer(facts, module.path)
    times = f" ×{module.repeat}" if module.repeat != 1 else ""
    name = module_name(facts, module.path, parent.path)
    return f"{name}: {classes_at(facts, parent, module.path)}{times}{f' ({kind})' if kind else ''}"


def classes_at(facts: ModelFacts, parent: ModuleNumbers, path: str) -> str:
    """The classes that a module calls at one path: several where the analysis tells two places of a list by one, as
    `layer[1]` and `layer[-1]`. One that stands at another place there has the name of it."""
    modules = [child for child in parent.children if isinstance(child, ModuleNumbers) and child.path == path]
    below = in_inspection(facts, path)
    found = inspected(facts)
    here = found[below].class_name if below in found else modules[0].class_name
    beside = {m.class_name: m.name for p, m in found.items() if _stack(p) == _stack(below)}
    names = dict.fromkeys(module.class_name for module in modules)
    return " and ".join(
        short(name) if name == here or name not in beside else f"{short(name)} ({beside[name]})" for name in names
    )


def _stack(path: str) -> str:
    return path.rpartition(".")[0]


def _line(facts: ModelFacts, module: ModuleNumbers, parent: ModuleNumbers, point: Point, lead: str) -> Row:
    title = f"{lead}{_title(facts, module, parent)}"
    call = observed_at(facts, module.path)
    shapes = [v.shape for v in call.outputs if v.shape is not None] if call is not None else []
    if shapes and shapes[0] is not None:
        title += f" → [{', '.join(map(plain_formula, shapes[0]))}]"
    return spread([title], _shares(facts, module, point), WIDTH - 2)


def _shares(facts: ModelFacts, module: ModuleNumbers, point: Point) -> Row:
    measure = Measure(facts, ({"path": module.path} if module.call is not None else {},))
    found = (measure.share("flops", point), measure.share("bytes", point))
    return [piece for share in found for piece in _column(share)]


def _column(number: Number | None) -> Row:
    text = "-" if number is None else plain(number)
    return [" " * max(1, 8 - len(text)), "-" if number is None else number]


def _own(kernels: Sequence[KernelNumbers], lead: str) -> Iterator[Row]:
    if not kernels:
        return
    names = list(dict.fromkeys(plainly(kernel.kernel.operation) for kernel in kernels))
    more = f" and {len(names) - MOST_WORDS} more" if len(names) > MOST_WORDS else ""
    yield [f"{lead}+ {', '.join(names[:MOST_WORDS])}{more}"]


# --- 2.2 -------------------------------------------------------------------------------------------------------------


def module_tree(facts: ModelFacts, most: int | None = None) -> Fence | None:
    """Every module of the inspected model, alike layers once; with ``most`` lines the deepest ones are left out."""
    if facts.inspection is None:
        return None
    rows = list(_tree(facts, facts.inspection.tree, "", "", 99))
    depth = 8
    while most is not None and len(rows) > most and depth > 1:
        depth -= 1
        rows = list(_tree(facts, facts.inspection.tree, "", "", depth))
    return fence(rows)


def _tree(facts: ModelFacts, module: Module, lead: str, below: str, depth: int) -> Iterator[Row]:
    name = f"{module.name}: " if module.name else ""
    repeat = f" (×{module.repeat})" if module.repeat > 1 else ""
    kind = kind_of_layer(facts, module.path)
    shown = f"{lead}{name}{short(module.class_name)}{repeat}{f' {kind}' if kind else ''}"
    count: Row = []
    if module.parameters_count:
        count = [facts.number("{a}", "params", a=Term(name=f"parameters.{module.path}"))]
    weights = ", ".join(f"{w.name} {w.shape}{' tied' if w.tied_to else ''}" for w in module.weights)
    shown += f"  {weights}" if weights else ""
    shown += " …" if module.modules and not depth else ""
    yield spread([shown], count, WIDTH)
    inner = module.modules if depth else []
    for index, one in enumerate(inner):
        last = index + 1 == len(inner)
        ends = ("└── ", "    ") if last else ("├── ", "│   ")
        yield from _tree(facts, one, below + ends[0], below + ends[1], depth - 1)


def class_rows(facts: ModelFacts, most: int | None = None) -> list[dict[str, Line]]:
    """Classes with what they are and how often they run; with ``most`` the dearest ones."""
    point = facts.points[-1]
    parts = components(facts)
    dearest = sorted(parts, key=lambda c: -c.measure.amount("bytes", point).value)[:most]
    return [_class_row(facts, component) for component in parts if component in dearest]


def _class_row(facts: ModelFacts, component: Component) -> dict[str, Line]:
    where: list[Inline] = [component.pointer]
    if facts.sources[component.class_name].inherited:
        where += [", forward() of ", component.forward]
    runs = runs_of(facts, component)
    text = "once" if runs == 1 else f"{runs:,} times"
    return {"name": Code(component.name), "role": component.role, "where": where, "runs": text}


def runs_of(facts: ModelFacts, component: Component) -> int:
    """How often the class's forward() runs in one call."""
    if component.class_name == facts.model.class_name:
        return 1
    waiting, count = [facts.tree(facts.points[0])], 0
    while waiting:
        module = waiting.pop()
        for child in module.children:
            if isinstance(child, ModuleNumbers):
                count += child.runs if child.class_name == component.class_name else 0
                waiting.append(child)
    return count
