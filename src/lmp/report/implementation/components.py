"""Section 4: classes of the model with interface, pseudocode, data flow, and what the numbers say of them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lmp.errors import NotFound
from lmp.formula import add, simplify, to_text
from lmp.observe.calls import ObservedCall, Value
from lmp.records import MATMUL_CATEGORIES, short
from lmp.report.document.amounts import Number, Quantity, Term
from lmp.report.document.parts import Fence, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation import classes
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.compulsory import at_config, compulsory_of, one_call, placed
from lmp.report.implementation.drawing import WIDTH, Row, fence, texts, wrapped
from lmp.report.implementation.figures import first_of_each_phase, limit_of, longest_decode, seconds
from lmp.report.implementation.flowing import flow_rows
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.naming import plain_formula, shape_text
from lmp.report.implementation.ran import Item, instance_of, items_of
from lmp.report.implementation.reads import first_sentence, marked
from lmp.report.implementation.sources import place_near
from lmp.report.implementation.steps import arguments_of, pseudocode, statement_at
from lmp.source.locate import find_class
from lmp.source.names import Names

MOST = 3
"""Components in the report itself; the appendix has all."""
MOST_STEPS = 7
MOST_LEVELS = 4
MOST_WORDS = 3
MOST_SHAPES = 3
LONGEST_FORMULA = 240

MAJOR = frozenset(
    {
        classes.ATTENTION, classes.EXPERTS, classes.ROUTER, classes.FEED_FORWARD, classes.PLAIN_FEED_FORWARD,
        classes.GATED_PROJECTION, classes.NORM, classes.LAYER_NORM, classes.MIXER, classes.OTHER,
    }
)  # fmt: skip
"""Roles of which a report tells in full: what holds these and what they are made of says little more."""


@dataclass(frozen=True)
class Told:
    """One component as it is printed."""

    title: str
    component: Component
    purpose: list[Inline]
    interface: Fence
    pseudocode: Fence
    flow_what: str
    flow: Fence | None
    insights: list[Line]
    reason: str


def major(facts: ModelFacts, most: int = MOST) -> list[Component]:
    """The components with most of the bound, at whichever point, in the order in which they run."""
    parts = [c for c in components(facts) if c.role in MAJOR and c.class_name != facts.model.class_name]
    weighed = sorted(parts or components(facts)[:1], key=lambda c: -_weight(facts, c))[:most]
    return [component for component in components(facts) if component in weighed]


def _weight(facts: ModelFacts, component: Component) -> float:
    names = [f"bound.{p.key}" for p in facts.points]
    of_class = f"class.{component.class_name}.total"
    shares = [
        facts.named.get(f"{name}.{of_class}", 0) / facts.named[f"{name}.total"]
        for name in names
        if facts.named[f"{name}.total"]
    ]
    return max(shares, default=0.0)


def told_of(component: Component, number: int, whole: bool) -> Told:
    """``whole``: with every step and every place, as the appendix has it."""
    facts = component.facts
    flow = flow_rows(component)
    levels = flow[1] if flow is not None else []
    if not whole and len(levels) > MOST_LEVELS:
        levels = [*levels[:MOST_LEVELS], "→ and more: see the appendix"]
    said = component.role.lower() == component.name.lower()
    title = component.name if said else f"{component.name} ({component.role})"
    code = pseudocode(component, _brief(component), _tiling(component), list(_memory(component)))
    return Told(
        title=f"4.{number} {title}",
        component=component,
        purpose=_purpose(component),
        interface=fence(list(_interface(component, whole))),
        pseudocode=code if whole else fence(list(_algorithm(component)), "python"),
        flow_what=flow[0] if flow is not None else "",
        flow=fence([[line] for line in levels]) if levels else None,
        insights=list(insights(component)),
        reason=facts.flows.reason or "no stated phase runs it",
    )


def operators_of(component: Component) -> int:
    """Operators of its own in one call, as a run shows them; without a run those of its analysis."""
    items = [item for item in items_of(component, instance_of(component)) if item.child is None]
    own = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
    return len(items) or len(own)


# --- purpose ---------------------------------------------------------------------------------------------------------


def _purpose(component: Component) -> list[Inline]:
    """What its kernels make of it, and what the class's own words say."""
    facts = component.facts
    line: list[Inline] = [f"{_words(component)}. "]
    line += _docstring(component) if component.role == classes.OTHER else []
    line += [component.pointer]
    users = [c.name for c in components(facts) if component.class_name in c.calls]
    line += [f"; called by {', '.join(users)}"] if users else []
    status = facts.model.parts[component.class_name]
    if status.status != "verified":
        line.append(f". Its formulas are {status.status}: its numbers below are not held by execution")
    line += [f". Not counted: {', '.join(status.uncounted)}"] if status.uncounted else []
    return [*line, "."]


def _words(component: Component) -> str:
    usual = {classes.FEED_FORWARD: 3, classes.PLAIN_FEED_FORWARD: 2}.get(component.role)
    count = usual and classes.projections(component)
    if count == usual:
        return WORDS[component.role]
    return (
        f"{count} projections{', an activation and an element-wise product' if usual == 3 else ' with an activation'}"
    )


def _docstring(component: Component) -> list[Inline]:
    try:
        definition = find_class(component.class_name, Names(component.facts.trees))
    except NotFound:
        return []
    text = ast.get_docstring(definition.node) if isinstance(definition.node, ast.ClassDef) else None
    if not text or text.lstrip().startswith((":", "```", "See ", ">>>")):
        return []
    first = first_sentence(text.split("\n\n")[0].replace(":math:", ""))
    return ["Its docstring: “", *marked(first.removesuffix(".")), "”. "]


WORDS = {
    classes.ATTENTION: "Mixes tokens: each new token attends to itself and to earlier ones",
    classes.EXPERTS: "Runs each token through the experts that were chosen for it",
    classes.ROUTER: "Chooses the experts of each token and their weights",
    classes.MIXTURE: "Routes each token to some of the experts and sums what they return",
    classes.FEED_FORWARD: "Two projections, one of them through an activation, multiplied and projected back",
    classes.PLAIN_FEED_FORWARD: "A projection, an activation and a projection back",
    classes.MIXER: "Mixes tokens by a convolution along them and what its own operators carry on",
    classes.GATED_PROJECTION: "One projection, an activation and an element-wise product",
    classes.PROJECTION: "One projection with an activation",
    classes.NORM: "Scales each token's vector by the reciprocal root of its mean square, times a learned weight",
    classes.LAYER_NORM: "Shifts and scales each token's vector to mean 0 and variance 1",
    classes.POSITION: "Makes the cosines and sines that rotate queries and keys by their positions",
    classes.EMBEDDING: "Looks up a row of its table for each token id",
    classes.LINEAR: "A product with its weight matrix",
    classes.ACTIVATION: "An element-wise function",
    classes.LAYER: "One layer: attention and a feed-forward part, each normalized and added to the residual stream",
    classes.SUBLAYER: "A part of a layer: its input is normalized, its result added to the residual stream",
    classes.STACK: "Embeds the tokens, runs all layers and normalizes",
    classes.MODEL: "The stack of layers and the projection to the vocabulary",
    classes.OTHER: "A module of the model",
}


# --- interface -------------------------------------------------------------------------------------------------------


def _interface(component: Component, whole: bool) -> Iterator[Row]:
    calls = component.facts.observed.of(component.class_name)
    if not calls:
        shapes = [f"{n}: [{', '.join(map(plain_formula, s))}]" for n, s in component.analysis.interface.items()]
        reason = component.facts.observed.reason or "its forward() did not run"
        yield from _field("INPUTS", shapes, whole)
        yield from texts(wrapped(f"OUTPUTS, PARAMS: none found (searched: a run of the class; {reason})", WIDTH))
        return
    first = calls[0]
    yield from _field("INPUTS", _inputs(component, first), whole)
    yield from _field("OUTPUTS", [f"{v.name}: {shape_text(v)}" for v in first.outputs], whole)
    yield from _field("PARAMS", _params(calls, component, first), whole)


def _field(name: str, items: Sequence[str], whole: bool) -> Iterator[Row]:
    """On one line, or, of the appendix, on as many as it takes."""
    lines = list(wrapped(f"{name}: {'; '.join(items) or 'none'}", WIDTH - 2, "", "  "))
    yield from texts(lines if whole else [f"{lines[0]} …" if len(lines) > 1 else lines[0]])


def _inputs(component: Component, call: ObservedCall) -> list[str]:
    """What is not None in the runs of this report; shapes are those of new tokens after cached ones."""
    phases = [flow.given[call.path] for flow in component.facts.flows.phases.values() if call.path in flow.given]
    given = {name for names in phases for name in names}
    shown = [v for v in call.inputs if not phases or v.name.partition("[")[0] in given]
    absent = [v.name for v in call.inputs if v not in shown]
    texts_ = [f"{value.name}: {shape_text(value)}" for value in shown]
    return [*texts_, *([f"None in these runs: {', '.join(absent)}"] if absent else [])]


def _params(calls: Sequence[ObservedCall], component: Component, first: ObservedCall) -> list[str]:
    """Weights of its own and of modules that it holds; of instances that differ some, each with its path."""
    kinds: dict[tuple[Value, ...], list[str]] = {}
    for call in calls:
        kinds.setdefault(call.weights, []).append(call.path)
    if len(kinds) > 1:
        shown = [
            f"{_last(paths[0])}: {', '.join(f'{w.name} {shape_text(w)}' for w in weights) or 'none'}"
            for weights, paths in list(kinds.items())[:MOST_SHAPES]
        ]
        return [*shown, *([f"and {len(kinds) - MOST_SHAPES} more shapes"] if len(kinds) > MOST_SHAPES else [])]
    prefix = f"{first.path}." if first.path else ""
    found = {w.name: w for w in first.weights}
    for other in component.facts.observed.calls:
        local = other.path.removeprefix(prefix)
        if other.path.startswith(prefix) and local and "." not in local:
            found |= {f"{local}.{weight.name}": weight for weight in other.weights}
    return [f"{name}: {shape_text(value)}" for name, value in found.items()]


def _last(path: str) -> str:
    parts = [part for part in path.split(".") if not part.isdigit()]
    return ".".join(parts[-2:]) if len(parts) > 1 else path


# --- pseudocode ------------------------------------------------------------------------------------------------------


def _algorithm(component: Component) -> Iterator[Row]:
    """The statements of forward() at which something runs, each with what runs there; the appendix has every step."""
    facts, path = component.facts, instance_of(component)
    items = items_of(component, path)
    yield [_cut(f"def {component.name}({', '.join(arguments_of(component))}):")]
    yield [_cut(f'    """Tiling: {_tiling(component)}')]
    yield [*_least(component), '"""']
    yield ["    # ", component.forward]
    groups = [(chain, list(group)) for chain, group in itertools.groupby(items, lambda item: item.chain[0])]
    for place, group in groups[:MOST_STEPS]:
        node = statement_at(component, place)
        text = " ".join(ast.unparse(node).splitlines()[0].split()) if node is not None else ""
        said = f"# line {place.line}: {_runs_there(group, path)}"
        room = WIDTH - 6 - len(said)
        code = text if len(text) <= room else _cut(text, max(room, LEAST_CODE))
        yield [f"    {code}  {_cut(said, WIDTH - 6 - LEAST_CODE)}"]
    if len(groups) > MOST_STEPS:
        yield [f"    # and {len(groups) - MOST_STEPS} more statements: see the appendix"]
    if not items:
        kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
        for kernel in kernels[:MOST_STEPS]:
            yield ["    # ", place_near(facts, component.class_name, kernel.line, kernel.file), f": {kernel.operation}"]


LEAST_CODE = 40
"""Columns of a statement that are shown beside what runs there."""


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _least(component: Component) -> Row:
    """What one call moves at least, at the first point."""
    facts, point = component.facts, component.facts.points[0]
    found = one_call(facts, component.class_name, instance_of(component))
    if found is None:
        return ["    Memory: the least that must move is not known of this class."]
    read, written = (facts.of_formula(to_text(formula), point, "B") for formula in found)
    return [f"    Memory: a call at {point.title} reads at least ", read, ", writes ", written]


def _runs_there(group: Sequence[Item], path: str) -> str:
    """``q_proj, q_norm``, or the operators; those inside of a function by its name."""
    told: dict[str, int] = {}
    for item in group:
        if item.child is not None:
            name = item.child.removeprefix(f"{path}.") if path else item.child
        elif len(item.chain) > 1 and item.op.product is None:
            name = f"{item.chain[1].function}()"
        else:
            name = item.op.name if item.op.category == "attention" else f"aten.{item.op.name}"
        told[name] = told.get(name, 0) + (item.child is None)
    return ", ".join(f"{name}: {n} operators" if n > 1 and name.endswith(")") else name for name, n in told.items())


def _brief(component: Component) -> str:
    """What runs in one call of it, in each phase."""
    items = items_of(component, instance_of(component))
    called = list(dict.fromkeys(short(name) for name in component.calls))
    calls = f"; calls {', '.join(called)}" if called else ""
    own = [item for item in items if item.child is None]
    if not items:
        kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
        return f"{len(kernels)} operator{'s' if len(kernels) != 1 else ''} of its own{calls}."
    counts = {phase: sum(phase in item.ops for item in own) for phase in component.facts.flows.phases}
    told = " and ".join(f"{count} in {phase}" for phase, count in counts.items())
    return f"Operators of its own: {told if len(set(counts.values())) > 1 else next(iter(counts.values()))}{calls}."


def _tiling(component: Component) -> str:
    """Who chooses the tiles of its products; nothing in transformers' sources sets any."""
    items = [item.op for item in items_of(component, instance_of(component)) if item.child is None]
    own = [(op.category, op.name) for op in items]
    if not items:
        kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
        own = [(k.category, k.analysis.partition(":")[0].removeprefix("aten.")) for k in kernels]
    products = dict.fromkeys(
        name if category == "attention" else f"aten.{name}" for category, name in own if category in MATMUL_CATEGORIES
    )
    if not own:
        return "none of its own: it only calls modules."
    if not products:
        return f"none: {len(own)} operator{'s' if len(own) > 1 else ''} over whole tensors."
    return f"{', '.join(products)} chooses blocks when it runs, from shapes and dtype; nothing here sets them."


def _memory(component: Component) -> Iterator[Row]:
    """The least bytes of one call of the module that is told."""
    facts, path = component.facts, instance_of(component)
    found = one_call(facts, component.class_name, path)
    if found is None:
        yield from texts(wrapped("Memory: the least that must move is not known of this class.", WIDTH, "    "))
        return
    for formulas in (
        [plain_formula(to_text(simplify(formula))) for formula in found],
        [plain_formula(to_text(at_config(facts, formula))) for formula in found],
    ):
        if sum(map(len, formulas)) <= LONGEST_FORMULA:
            text = f"Memory: a call reads at least {formulas[0]} bytes and writes at least {formulas[1]}."
            yield from texts(wrapped(text, WIDTH, "    ", "        "))
            return
    point = facts.points[0]
    read, written = (facts.of_formula(to_text(formula), point, "B") for formula in found)
    yield [f"    Memory: a call at {point.title} reads at least ", read, " and writes at least ", written, "."]


# --- insights --------------------------------------------------------------------------------------------------------


def insights(component: Component) -> Iterator[Line]:
    """Shares and bound in each phase, its dearest line, and what fusion inside of it could save."""
    facts = component.facts
    for point in first_of_each_phase(facts):
        yield _shares(component, point)
    longest = longest_decode(facts)
    if longest is not None:
        yield from _dearest_line(component, longest)
    yield from _fusion(component, compulsory_of(facts))


def _shares(component: Component, point: Point) -> Line:
    facts, measure = component.facts, component.measure
    calls = calls_of(component, point)
    line: list[Inline] = [point.title]
    line += [", ", calls, " calls: "] if calls is not None and calls.value > 1 else [": "]
    quantities: tuple[tuple[Quantity, str], ...] = (("flops", "FLOPs"), ("bytes", "bytes"))
    for quantity, name in quantities:
        share = measure.share(quantity, point)
        line.append(measure.amount(quantity, point))
        line += [" (", share, f" of all {name}), "] if share is not None else [", "]
    intensity = measure.intensity(point)
    line += [intensity] if intensity is not None else ["nothing moves"]
    base = f"bound.{point.key}.class.{component.class_name}"
    if facts.named.get(f"{base}.total"):
        how = {"compute": "matmul rate", "vector": "rate of other FLOPs", "memory": "bandwidth"}[limit_of(facts, base)]
        line += ["; at least ", seconds(facts, f"{base}.total"), f", most of it by the {how}"]
    return line


def calls_of(component: Component, point: Point) -> Number | None:
    """How often it runs in one call of the model."""
    calls = [c for c in placed(component.facts) if c.class_name == component.class_name]
    if not calls:
        return None
    return component.facts.of_formula(to_text(add(*(call.runs for call in calls))), point, "")


def _dearest_line(component: Component, point: Point) -> Iterator[Line]:
    """The line of its own code that moves most, where that is a part worth naming."""
    facts, lines = component.facts, dict[int, list[Any]]()
    for kernel in facts.kernels(point):
        if kernel.class_name == component.class_name and kernel.kernel.category != "call":
            lines.setdefault(kernel.kernel.line, []).append(kernel)
    # A line number names one place only where no other file of the class has a kernel at it.
    single = {n: ks for n, ks in lines.items() if len({k.kernel.file for k in ks}) == 1}
    if len(single) < 2:
        return
    line, here = max(single.items(), key=lambda item: sum(k.total.bytes for k in item[1]))
    share = _at(facts, component, line).share("bytes", point, component.measure)
    if share is None or share.value < WORTH:
        return
    first = here[0].kernel
    where = place_near(facts, component.class_name, line, first.file, first.operation.split(" ")[0], first.function)
    amount = _at(facts, component, line).amount("bytes", point)
    words = list(dict.fromkeys(k.kernel.operation for k in here if k.total.bytes))
    more = f" and {len(words) - MOST_WORDS} more" if len(words) > MOST_WORDS else ""
    yield [
        f"dearest line of its own, {point.title}: {', '.join(words[:MOST_WORDS])}{more} at ",
        where,
        ", ",
        amount,
        " (",
        share,
        " of its bytes)",
    ]


WORTH = 10


def _at(facts: ModelFacts, component: Component, line: int) -> Measure:
    return Measure(facts, ({"class_name": component.class_name, "line": line},))


def _fusion(component: Component, compulsory: Mapping[str, str]) -> Iterator[Line]:
    """Eager traffic over what must move, where fusion could save anything."""
    facts, formula = component.facts, compulsory.get(component.class_name)
    found: list[Inline] = []
    for point in first_of_each_phase(facts):
        if formula is not None and facts.of_formula(formula, point, "B").value:
            times = component.measure.over("bytes", point, Term(point=point.key, formula=formula))
            if times.value > SAVES:
                found += ["; " if found else "", times, f" in {facts.called(point.phase)}"]
    if found:
        yield ["eager bytes over inputs, weights, cache and outputs moved once: ", *found]


SAVES = Fraction(101, 100)
