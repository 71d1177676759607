"""Section 4: every distinct class of the model, with its interface, pseudocode, data flow and what the numbers say."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lmp.errors import NotFound
from lmp.formula import Expr, simplify, to_text
from lmp.observe.calls import ObservedCall, Value
from lmp.observe.flow import Op
from lmp.records import MATMUL_CATEGORIES, short
from lmp.report.document.parts import Bold, Bullets, Code, Inline, Paragraph, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation import classes
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.compulsory import at_config, compulsory_of, one_call
from lmp.report.implementation.drawing import WIDTH, Row, fence, texts, wrapped
from lmp.report.implementation.flowing import drawn
from lmp.report.implementation.insights import insights
from lmp.report.implementation.naming import kind_of_layer, plain_formula, shape_text
from lmp.report.implementation.ran import instance_of, items_of
from lmp.report.implementation.reads import first_sentence, marked
from lmp.report.implementation.steps import INDENT, pseudocode
from lmp.report.implementation.summary import kind_of_attention
from lmp.source.locate import find_class
from lmp.source.names import Names

ABSENT = "; None in the runs shown below"
MOST_INSTANCES = 12
MOST_WORDS = 4


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    compulsory = compulsory_of(facts)
    return Section(
        "4. Component Analysis",
        sections=tuple(
            _component(component, f"4.{number} {_title(component)}", compulsory, told)
            for number, component in enumerate(components(facts), 1)
        ),
    )


def _title(component: Component) -> str:
    is_said = component.role.lower() == component.name.lower()
    return component.name if is_said else f"{component.name} ({component.role})"


def _component(component: Component, title: str, compulsory: Mapping[str, str], told: Told | None) -> Section:
    found = drawn(component)
    flow: list[Any] = []
    if found is None:
        reason = component.facts.flows.reason or "no stated phase runs it"
        flow.append(Paragraph([Bold("Data Flow:"), f" none found (searched: the runs of this report; {reason})"]))
    else:
        what, rows = found
        flow += [Paragraph([Bold("Data Flow:"), f" {what}"]), fence(rows)]
    remarks = insights(component, compulsory)
    if told is not None:
        remarks += told.insights(component.class_name)
    return Section(
        title,
        [
            Paragraph([Bold("Purpose:"), " ", *_purpose(component)]),
            Paragraph([Bold("Interface:")]),
            fence(_interface(component)),
            Paragraph([Bold("Pseudocode:")]),
            pseudocode(component, _brief(component), _tiling(component), list(_memory(component))),
            *flow,
            Paragraph([Bold("Key Insights:")]),
            Bullets(remarks, "the numbers of the analysis"),
        ],
    )


# --- purpose ---------------------------------------------------------------------------------------------------------


def _purpose(component: Component) -> list[Inline]:
    """What its kernels make of it, and what the class's own words say."""
    facts = component.facts
    line: list[Inline] = [f"{_words(component)}. "]
    if component.role == classes.ATTENTION:
        line += _attention(component)
    if component.role not in _SAID:
        line += _docstring(component)
    users = _callers(component)
    line += [component.pointer]
    if users:
        line.append("; called by ")
        for index, name in enumerate(users):
            line += [", " if index else "", Code(short(name))]
    status = facts.model.parts[component.class_name]
    if status.status != "verified":
        line.append(f". Its formulas are {status.status}: its numbers below are not held by execution")
    if status.uncounted:
        line.append(f". Not counted: {', '.join(status.uncounted)}")
    return [*line, "."]


def _words(component: Component) -> str:
    """What classes of its role do; of a feed-forward part by how many projections it has."""
    usual = {classes.FEED_FORWARD: 3, classes.PLAIN_FEED_FORWARD: 2}.get(component.role)
    count = usual and classes.projections(component)
    if count == usual:
        return _WORDS[component.role]
    product = ", an activation and an element-wise product" if usual == 3 else " with an activation"
    return f"{count} projections{product}"


def _attention(component: Component) -> Iterator[Inline]:
    """Its kind, and the layers that see a window alone."""
    facts = component.facts
    kind = list(kind_of_attention(facts))
    if kind:
        yield from (*kind, ". ")
    layers = [c.paths for c in components(facts) if c.role == classes.LAYER]
    kinds = dict.fromkeys(kind_of_layer(facts, path) for paths in layers for path in paths)
    windowed = [kind for kind in kinds if "sliding" in kind]
    if windowed and "config.sliding_window" in facts.named:
        yield f"In layers of {' and '.join(windowed)} to itself and the tokens before it, "
        yield from (facts.setting("sliding_window"), " in all. ")


def _callers(component: Component) -> list[str]:
    return [c.class_name for c in components(component.facts) if component.class_name in c.calls]


def _docstring(component: Component) -> list[Inline]:
    try:
        definition = find_class(component.class_name, Names(component.facts.trees))
    except NotFound:
        return []
    text = ast.get_docstring(definition.node) if isinstance(definition.node, ast.ClassDef) else None
    if not text or text.lstrip().startswith(_NO_PURPOSE):
        return []
    first = first_sentence(text.split("\n\n")[0].replace(":math:", ""))
    return ["Its docstring: “", *marked(first.removesuffix(".")), "”. "]


_NO_PURPOSE = (":", "```", "See ", ">>>")
"""How docstrings begin that do not say what a class does."""

_SAID = frozenset({classes.ATTENTION, classes.EMBEDDING, classes.LINEAR})
"""Roles of which the docstrings of libraries say no more than the words here."""

_WORDS = {
    classes.ATTENTION: "Mixes tokens: each new token attends to itself and to earlier ones",
    classes.EXPERTS: "Runs each token through the experts that were chosen for it",
    classes.ROUTER: "Chooses the experts of each token and their weights",
    classes.MIXTURE: "Routes each token to some of the experts and sums what they return",
    classes.FEED_FORWARD: "Two projections, one of them through an activation, multiplied and projected back",
    classes.PLAIN_FEED_FORWARD: "A projection, an activation and a projection back",
    classes.GATED_PROJECTION: "One projection, an activation and an element-wise product",
    classes.PROJECTION: "One projection with an activation",
    classes.NORM: "Scales each token's vector by the reciprocal root of its mean square, times a learned weight",
    classes.LAYER_NORM: "Shifts and scales each token's vector to mean 0 and variance 1",
    classes.POSITION: "Makes the cosines and sines that rotate queries and keys by their positions",
    classes.EMBEDDING: "Looks up a row of its table for each token id",
    classes.LINEAR: "A product with its weight matrix",
    classes.ACTIVATION: "An element-wise function",
    classes.LAYER: "One layer: attention and a feed-forward part, each normalized and added to the residual stream",
    classes.STACK: "Embeds the tokens, runs all layers and normalizes",
    classes.MODEL: "The stack of layers and the projection to the vocabulary",
    classes.OTHER: "A module of the model",
}


def _brief(component: Component) -> str:
    """What runs in one call of it, in each phase."""
    path = instance_of(component)
    items = items_of(component, path)
    called = list(dict.fromkeys(short(name) for name in component.calls))
    calls = f"; calls {', '.join(called)}" if called else ""
    if not items:
        kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
        return f"{_counted(len(kernels), [k.operation for k in kernels])}{calls}."
    own = [item for item in items if item.child is None]
    counts = {phase: sum(phase in item.ops for item in own) for phase in component.facts.flows.phases}
    words = [item.op.words for item in own]
    if len(set(counts.values())) == 1:
        return f"{_counted(next(iter(counts.values())), words)}{calls}."
    told = " and ".join(f"{count} in {phase}" for phase, count in counts.items())
    return f"Operators of its own: {told} ({_listed(words)}){calls}."


def _counted(count: int, words: Sequence[str]) -> str:
    if not count:
        return "No operators of its own"
    return f"One operator of its own: {words[0]}" if count == 1 else f"{count} operators of its own ({_listed(words)})"


def _listed(words: Sequence[str]) -> str:
    kinds = list(dict.fromkeys(words))
    return ", ".join(kinds[:MOST_WORDS]) + (", …" if len(kinds) > MOST_WORDS else "")


# --- interface -------------------------------------------------------------------------------------------------------


def _interface(component: Component) -> list[Row]:
    calls = component.facts.observed.of(component.class_name)
    if not calls:
        return list(_declared(component))
    first = calls[0]
    rows: list[Row] = [["INPUTS:"], *_inputs(component, first)]
    rows += [[""], ["OUTPUTS:"], *_values(first.outputs)]
    rows += [[""], ["PARAMS:"], *_params(calls, _held(component, first))]
    return rows


def _held(component: Component, call: ObservedCall) -> list[Value]:
    """Weights of the modules that it holds directly."""
    prefix = f"{call.path}." if call.path else ""
    found: dict[str, Value] = {}
    for other in component.facts.observed.calls:
        local = other.path.removeprefix(prefix)
        if other.path.startswith(prefix) and local and "." not in local:
            for weight in other.weights:
                found.setdefault(f"{local}.{weight.name}", weight)
    return [replace(value, name=name) for name, value in found.items()]


def _declared(component: Component) -> list[Row]:
    """What the analysis knows of a class whose calls could not be observed."""
    rows: list[Row] = [["INPUTS:"]]
    for name, shape in component.analysis.interface.items():
        rows.append([f"  - {name}: [{', '.join(map(plain_formula, shape))}]"])
    reason = component.facts.observed.reason or "its forward() did not run"
    text = f"OUTPUTS and PARAMS: none found (searched: a run of the class; {reason})"
    return [*rows, [""], *texts(wrapped(text, WIDTH))]


def _inputs(component: Component, call: ObservedCall) -> list[Row]:
    """What is None in the runs that are told says so: the shapes are of new tokens after cached ones."""
    phases = [flow.given[call.path] for flow in component.facts.flows.phases.values() if call.path in flow.given]
    given = {name for names in phases for name in names}
    rows: list[Row] = []
    for value in call.inputs:
        is_absent = bool(phases) and value.name.partition("[")[0] not in given
        text = f"{value.name}: {shape_text(value)}{ABSENT if is_absent else ''}"
        rows += texts(wrapped(text, WIDTH, "  - ", "      "))
    return rows or [["  - none"]]


def _values(values: Sequence[Value]) -> list[Row]:
    if not values:
        return [["  - none"]]
    return [[line] for v in values for line in wrapped(f"{v.name}: {shape_text(v)}", WIDTH, "  - ", "      ")]


def _params(calls: Sequence[ObservedCall], held: list[Value]) -> list[Row]:
    """Weights and buffers; of instances that differ each with its path."""
    kinds: dict[tuple[tuple[Value, ...], tuple[Value, ...]], list[str]] = {}
    for call in calls:
        kinds.setdefault((call.weights, call.buffers), []).append(call.path)
    if len(kinds) == 1:
        weights, buffers = next(iter(kinds))
        values = [*weights, *buffers, *held]
        if not values:
            return [["  - none of its own"]]
        return _values(values)
    rows: list[Row] = []
    for (weights, _), paths in list(kinds.items())[:MOST_INSTANCES]:
        names = list(dict.fromkeys(_last(path) for path in paths))
        own = ", ".join(f"{w.name} {shape_text(w)}" for w in weights) or "none"
        rows += texts(wrapped(f"{', '.join(names)}: {own}", WIDTH, "  - ", "      "))
    if len(kinds) > MOST_INSTANCES:
        rows.append([f"  - and {len(kinds) - MOST_INSTANCES} more shapes"])
    return rows


def _last(path: str) -> str:
    """``self_attn.q_proj`` of ``model.layers.0.self_attn.q_proj``."""
    parts = [part for part in path.split(".") if not part.isdigit()]
    return ".".join(parts[-2:]) if len(parts) > 1 else path


# --- docstring -------------------------------------------------------------------------------------------------------


def _own(component: Component) -> list[Op]:
    """Operators of its own in the run that is told, every one once."""
    return [item.op for item in items_of(component, instance_of(component)) if item.child is None]


def _tiling(component: Component) -> str:
    if items_of(component, instance_of(component)):
        own = [(op.category, op.name) for op in _own(component)]
        names = [name if category == "attention" else f"aten.{name}" for category, name in own]
    else:
        kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
        own = [(k.category, "") for k in kernels]
        names = [k.analysis.partition(":")[0] for k in kernels]
    categories = [category for category, _ in own]
    products = dict.fromkeys(n for n, c in zip(names, categories, strict=True) if c in MATMUL_CATEGORIES)
    if not names:
        return "none of its own: it only calls modules."
    if not products:
        if len(names) == 1:
            return f"none: {names[0]} goes over whole tensors in one launch."
        return f"none: {len(names)} operators without a matrix product, each over whole tensors in a launch of its own."
    how = (
        "the backend of scaled_dot_product_attention chooses block sizes when it runs"
        if "attention" in categories
        else "chosen inside of the operator when it runs, from shapes and dtype"
    )
    return f"{', '.join(products)}: {how}; nothing in these sources sets it."


def _memory(component: Component) -> Iterator[Row]:
    """The least bytes of one call of the module that is told, in the model's variables."""
    facts, path = component.facts, instance_of(component)
    found = one_call(facts, component.class_name, path)
    where = f"one call of {path}" if len(component.paths) > 1 else "one call"
    if found is None:
        yield from _docstring_line("Memory: the least that must move is not known of this class.")
        return
    told = _formulas_told(facts, *found)
    if told is not None:
        text = f"Memory: {where} reads at least {told[0]} bytes and writes at least {told[1]} bytes: {_ONCE}."
        yield from _docstring_line(text)
        return
    yield from _docstring_line(f"Memory: bytes that {where} moves at least, {_ONCE} (formulas: `lmp evaluate`):")
    for point in _two_points(facts):
        read, written = (facts.of_formula(to_text(formula), point, "B") for formula in found)
        yield [f"{INDENT * 2}{point.title}: reads ", read, ", writes ", written]


_ONCE = "inputs, weights and cache once, outputs once"
LONGEST_FORMULA = 240


def _docstring_line(text: str) -> Iterator[Row]:
    yield from texts(wrapped(text, WIDTH, INDENT, INDENT * 2))


def _formulas_told(facts: ModelFacts, read: Expr, write: Expr) -> tuple[str, str] | None:
    """Both in the model's variables, or with the config's values in where that is long; None where it stays long."""
    plain = [plain_formula(to_text(simplify(formula))) for formula in (read, write)]
    short_ = [plain_formula(to_text(at_config(facts, formula))) for formula in (read, write)]
    for texts_ in (plain, short_):
        if sum(map(len, texts_)) <= LONGEST_FORMULA:
            return texts_[0], texts_[1]
    return None


def _two_points(facts: ModelFacts) -> list[Point]:
    """The first of each phase."""
    found: dict[str, Point] = {}
    for point in facts.points:
        found.setdefault(point.phase, point)
    return list(found.values())
