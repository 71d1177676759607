"""Section 4: every distinct class of the model, with its interface, pseudocode, data flow and what the numbers say."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lmp.errors import NotFound
from lmp.pipeline.observing import ObservedCall, Value
from lmp.records import MATMUL_CATEGORIES
from lmp.report.document.parts import Bold, Bullets, Code, Inline, Paragraph, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation import classes
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.compulsory import compulsory_of
from lmp.report.implementation.drawing import WIDTH, Row, fence, texts, wrapped
from lmp.report.implementation.flowing import drawn
from lmp.report.implementation.insights import insights
from lmp.report.implementation.naming import plain_formula, shape_text
from lmp.report.implementation.reads import first_sentence, marked
from lmp.report.implementation.steps import pseudocode
from lmp.source.locate import find_class
from lmp.source.names import Names

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
            pseudocode(component, _brief(component), _tiling(component), _memory(component)),
            *flow,
            Paragraph([Bold("Key Insights:")]),
            Bullets(remarks, "the numbers of the analysis"),
        ],
    )


# --- purpose ---------------------------------------------------------------------------------------------------------


def _purpose(component: Component) -> list[Inline]:
    """What the class's own words say, and what its kernels make of it."""
    line: list[Inline] = [*_docstring(component), _brief(component), " "]
    facts = component.facts
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
    return [*marked(first), " " if first.endswith(".") else ". "]


_NO_PURPOSE = (":", "```", "See ", ">>>")
"""How docstrings begin that do not say what a class does."""

_WORDS = {
    classes.ATTENTION: "Mixes tokens: each new token attends to those before it",
    classes.EXPERTS: "Runs each token through the experts that were chosen for it",
    classes.ROUTER: "Chooses the experts of each token and their weights",
    classes.MIXTURE: "Routes each token to some of the experts and sums what they return",
    classes.FEED_FORWARD: "Two projections, one of them through an activation, multiplied and projected back",
    classes.PLAIN_FEED_FORWARD: "A projection, an activation and a projection back",
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
    """The role in words, with what this class's kernels have of it."""
    kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
    called = list(dict.fromkeys(short(name) for name in component.calls))
    words = list(dict.fromkeys(k.operation for k in kernels))
    listed = ", ".join(words[:MOST_WORDS]) + (", …" if len(words) > MOST_WORDS else "")
    counted = {0: "no kernels of its own", 1: f"one kernel of its own: {listed}"}.get(
        len(kernels), f"{len(kernels)} kernels of its own ({listed})"
    )
    calls = f"; calls {', '.join(called)}" if called else ""
    return f"{_WORDS[component.role]}. It has {counted}{calls}."


# --- interface -------------------------------------------------------------------------------------------------------


def _interface(component: Component) -> list[Row]:
    calls = component.facts.observed.of(component.class_name)
    if not calls:
        return list(_declared(component))
    first = calls[0]
    rows: list[Row] = [["INPUTS:"], *_values(first.inputs)]
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


def _tiling(component: Component) -> str:
    kernels = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
    products = [k for k in kernels if k.category in MATMUL_CATEGORIES]
    if not kernels:
        return "none of its own: it only calls modules."
    if not products:
        if len(kernels) == 1:
            return f"none: {kernels[0].analysis.partition(':')[0]} goes over whole tensors in one launch."
        return (
            f"none: {len(kernels)} operators without a matrix product, each over whole tensors in a launch of its own."
        )
    names = list(dict.fromkeys(k.analysis.partition(":")[0] for k in products))
    flash = any(k.category == "attention" for k in products)
    how = (
        "the backend of scaled_dot_product_attention chooses block sizes when it runs"
        if flash
        else ("chosen inside of the operator when it runs, from shapes and dtype")
    )
    return f"{', '.join(names)}: {how}; nothing in these sources sets it."


def _memory(component: Component) -> str:
    """The least bytes of one call, as formulas in the class's own variables."""
    compulsory = component.analysis.compulsory
    if compulsory is None:
        return "the least that must move is not known of this class."
    return (
        f"one call reads at least {plain_formula(compulsory.read)} bytes and writes at least "
        f"{plain_formula(compulsory.write)} bytes: inputs, weights and cache once, outputs once."
    )
