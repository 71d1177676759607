"""Section 2: what the model is made of and how it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from lmp.link.numbers import ModuleNumbers
from lmp.records import short
from lmp.report.document.parts import Bullets, Code, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.drawing import fence
from lmp.report.implementation.hierarchy import Diagram, graph, module_tree
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.naming import inspected
from lmp.report.implementation.sources import Sources, place_near, sources_of
from lmp.source.lines import enclosing_function
from lmp.source.parsed import parse


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    point = facts.points[0]
    diagram: list[Any] = [
        Paragraph(
            f"Parts in the order in which they run; shares of the FLOPs and bytes of {point.title}.{_turns(facts)}"
        ),
        fence(Diagram(facts, point).rows()),
        graph(facts, point),
    ]
    return Section(
        "2. Architecture Overview",
        sections=(
            Section("2.1 System Diagram", diagram),
            Section("2.2 Module Hierarchy", _hierarchy(facts)),
            Section("2.3 Execution Model", _execution(facts, told)),
        ),
    )


def _turns(facts: ModelFacts) -> str:
    """Said of layers of several kinds that do not stand together: their boxes do."""
    kinds = [m for m in inspected(facts).values() if m.repeat > 1 and m.indices]
    if all(m.indices[-1] - m.indices[0] + 1 == len(m.indices) for m in kinds):
        return ""
    names = " and ".join(m.name for m in kinds if m.indices[-1] - m.indices[0] + 1 != len(m.indices))
    return f" The layers of {names} take turns; the boxes of each kind stand for all of its layers."


# --- 2.2 -------------------------------------------------------------------------------------------------------------


def _hierarchy(facts: ModelFacts) -> list[Any]:
    blocks: list[Any] = []
    if facts.inspection is not None:
        blocks.append(fence(module_tree(facts)))
        blocks.append(Paragraph("Figures to the right are the parameters of one module, repeats not counted."))
    rows = [_class_row(facts, component) for component in components(facts)]
    blocks.append(Table(("Class", "What it is", "Where", "Runs in one call"), rows))
    return blocks


def _class_row(facts: ModelFacts, component: Component) -> Sequence[Line]:
    point = facts.points[0]
    source = facts.sources[component.class_name]
    where: list[Inline] = [component.pointer]
    if source.inherited:
        where += [", forward() of ", component.forward]
    runs = _runs(facts, component, point)
    return (Code(component.name), component.role, where, runs)


def _runs(facts: ModelFacts, component: Component, point: Point) -> Line:
    """How often the class's forward() runs: a count that follows from the tree, not from a formula of costs."""
    if component.class_name == facts.model.class_name:
        return "once"
    count = sum(runs for name, runs in _called(facts, point) if name == component.class_name)
    return f"{count:,} times" if count != 1 else "once"


def _called(facts: ModelFacts, point: Point) -> Iterator[tuple[str, int]]:
    waiting = [facts.tree(point)]
    while waiting:
        module = waiting.pop()
        for child in module.children:
            if isinstance(child, ModuleNumbers):
                yield child.class_name, child.runs
                waiting.append(child)


# --- 2.3 -------------------------------------------------------------------------------------------------------------


def _execution(facts: ModelFacts, told: Told | None) -> list[Any]:
    sources = sources_of(facts)
    items: list[Line] = [
        _eager(facts),
        *_attention(facts, sources),
        *_experts(facts),
        *_declared(sources),
        *_decisions(facts),
        *_not_taken(facts),
    ]
    if told is not None:
        items += told.deep_dive("2.3 Execution Model")
    return [Bullets(items)]


def _eager(facts: ModelFacts) -> Line:
    whole = Measure(facts, ({},))
    line: list[Inline] = [
        "Eager: each line of ",
        Code("forward()"),
        " dispatches ATen operators one after another, in ",
        Code(facts.model.dtype),
        "; nothing is compiled, captured or fused. ",
    ]
    for index, point in enumerate(_one_of_each_phase(facts)):
        count = whole.amount("launches", point)
        operators = "operator" if count.value == 1 else "operators"
        line += ["; " if index else "One call runs ", count, f" {operators} ({point.title})"]
    return [*line, ", views and allocations not counted."]


def _one_of_each_phase(facts: ModelFacts) -> list[Point]:
    found: dict[str, Point] = {}
    for point in facts.points:
        found.setdefault(point.phase, point)
    return list(found.values())


def _attention(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    for name, analysis in facts.analyses.items():
        kernels = [k for k in analysis.kernels if k.category == "attention"]
        if kernels:
            places: dict[int, Pointer] = {}
            for k in kernels:
                places.setdefault(k.line, place_near(facts, name, k.line, k.file, "scaled_dot_product_attention"))
            yield [
                Code(short(name)),
                " computes attention with ",
                Code("scaled_dot_product_attention"),
                ", whole, at ",
                *_listed(list(places.values())),
                "; its score matrix is not in the bytes, a causal mask does not reduce its FLOPs.",
            ]
            continue
        soft = [k for k in analysis.kernels if k.category == "softmax" and k.function is not None]
        if soft and any(k.category == "matmul" and k.function == soft[0].function for k in analysis.kernels):
            yield [
                Code(short(name)),
                " computes attention in eager operators in ",
                Code(soft[0].function or "forward"),
                ", ",
                place_near(facts, name, soft[0].line, soft[0].file, "softmax", soft[0].function),
                ": two matmuls, mask, softmax and copies, each of which reads and writes the scores.",
                *_why_eager(facts, sources),
            ]


def _why_eager(facts: ModelFacts, sources: Sources) -> Iterator[Inline]:
    if facts.model.attn_implementation in (None, facts.model.attn_requested):
        return
    yield f" Asked for was {facts.model.attn_requested}"
    for piece in sources.classes:
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=False)):
                    if piece.own and name == f"_supports_{facts.model.attn_requested}":
                        yield ", which the model says it does not support at "
                        yield piece.pointer(statement.lineno, name)
                        yield "."
                        return
    yield "."


def _experts(facts: ModelFacts) -> Iterator[Line]:
    for name, analysis in facts.analyses.items():
        kernels = [k for k in analysis.kernels if k.category == "grouped_matmul"]
        if kernels:
            first = kernels[0]
            yield [
                Code(short(name)),
                f" computes all its experts in {len(kernels)} grouped matmuls of rows sorted by expert, at ",
                place_near(facts, name, first.line, first.file, "grouped_mm", first.function),
                "; ",
                *_own_forward(facts, name),
            ]


def _own_forward(facts: ModelFacts, name: str) -> Iterator[Inline]:
    lines = facts.analyses[name].not_taken_lines
    source = facts.sources[name]
    if lines and min(lines) >= source.lines[0]:
        yield "the loop over experts in "
        yield facts.pointer(name, source.lines[0], "forward")
        yield " is not what runs."
    else:
        yield "weights are read of as many experts as the rows can reach."


def _declared(sources: Sources) -> Iterator[Line]:
    """What the model's class says that it can be run with."""
    found: list[Inline] = []
    for piece in sources.classes:
        if not piece.own or not isinstance(piece.node, ast.ClassDef):
            continue
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value))):
                    if name.startswith(("_supports_", "_can_")):
                        found += [
                            ", " if found else "",
                            Code(f"{name} = {value}"),
                            " ",
                            piece.pointer(statement.lineno),
                        ]
    if found:
        yield ["What the class declares it can be run with: ", *found, "."]


def _decisions(facts: ModelFacts) -> Iterator[Line]:
    for decision in facts.model.decisions:
        yield [
            "Decided on the values of a tensor, which the analysis does not have: ",
            Code(decision.code),
            " at ",
            facts.place(decision.file, decision.line),
            f", answered {', '.join(decision.taken)} on the analysed path.",
        ]


def _not_taken(facts: ModelFacts) -> Iterator[Line]:
    for name, analysis in facts.analyses.items():
        spans = list(_spans(facts, name, analysis.not_taken_lines))
        if not spans:
            continue
        line: list[Inline] = ["Not run in ", Code(short(name)), ": "]
        for index, (pointer, code) in enumerate(spans):
            line += ["; " if index else "", Code(code), " ", pointer]
        yield line


def _spans(facts: ModelFacts, name: str, lines: list[int]) -> Iterator[tuple[Pointer, str]]:
    """Statements that did not run, those of one function that follow one another together."""
    source = facts.sources[name]
    parsed = parse(source.forward_path)
    groups: list[list[int]] = []
    for line in lines:
        before = groups[-1][-1] if groups else None
        function = enclosing_function(source.forward_path, line)
        known = {s.first for s in function.statements} if function is not None else set()
        between = {n for n in known if before is not None and before < n < line}
        same = before is not None and function is not None and function.lines[0] <= before and not between
        if same:
            groups[-1].append(line)
        else:
            groups.append([line])
    for group in groups:
        first, last = group[0], group[-1]
        pointer = facts.pointer(name, first)
        code = parsed.code(first)
        code += "…)" if code.endswith("(") else ""
        yield Pointer(pointer.file, first, last, None), code if len(group) == 1 else f"{code} …"


def _listed(pointers: Sequence[Pointer]) -> Iterator[Inline]:
    for index, pointer in enumerate(pointers):
        yield from ((", ", pointer) if index else (pointer,))
