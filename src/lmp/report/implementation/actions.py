"""What to do first: what the code wastes at the stated points, each with the most that mending it saves, ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from lmp.observe.flow import Flow, Op
from lmp.predict.screen.card import EAGER_NAME as EAGER
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.classes import components
from lmp.report.implementation.components import operators_of
from lmp.report.implementation.compulsory import compulsory_of
from lmp.report.implementation.execution import flag
from lmp.report.implementation.expanding import Growing, growing_copies, growing_products
from lmp.report.implementation.figures import answer, predicted, rate
from lmp.report.implementation.kept import kept_activations, kept_places, logits_of
from lmp.report.implementation.operators import joined, pointer_at
from lmp.report.implementation.sources import place_near

MOST = 8
LEAST = 3
"""Operators that are worth being one."""
LITTLE = Fraction(1)
"""Per cent of the time of the point from which on an action is listed."""


@dataclass(frozen=True)
class Saving:
    """What an action saves at one point, at most."""

    point: Point
    time: Number
    share: Number
    """Of the time that it is a part of."""
    amount: Line = ""
    """Bytes or FLOPs."""


@dataclass(frozen=True)
class Action:
    """``do`` is an imperative sentence. ``of`` says what time its share is of."""

    do: Line
    where: Line
    of: str
    savings: Sequence[Saving] = field(default_factory=tuple)

    @property
    def best(self) -> Saving:
        return max(self.savings, key=lambda one: one.share.value)


KERNELS = "the bound of its operators"
HOST = "the predicted time in eager mode"


def actions(facts: ModelFacts) -> list[Action]:
    """The dearest first; those that save next to nothing at every point are left out."""
    found = [
        *_launches(facts),
        *_cache_copies(facts),
        *_expanded(facts),
        *_copied(facts),
        *_scores(facts),
        *_fused(facts),
        *_logits(facts),
    ]
    worth = [one for one in found if one.savings and one.best.share.value >= LITTLE]
    return sorted(worth, key=lambda one: -one.best.share.value)[:MOST]


# --- the host --------------------------------------------------------------------------------------------------------


def _launches(facts: ModelFacts) -> Iterator[Action]:
    savings = []
    for point in facts.points:
        found = answer(facts, point)
        if found is None or found.bound != "launch":
            continue
        gain = found.us[0] - found.call.whole[0]
        part = round(1000 * gain / found.us[0])
        share = facts.number("{a} / 10", "%", a=Term(constant=part, source=f"predicted, {EAGER}"))
        launches = Term(constant=found.call.launches, source="launches of the call")
        amount: Line = [facts.number("{a}", "", a=launches), " launches"]
        savings.append(Saving(point, predicted(facts, gain, f"predicted, {EAGER}"), share, amount))
    if not savings:
        return
    says = flag(facts, "_can_compile_fullgraph")
    where: Line = says if says is not None else "no class of the file says that it compiles as one graph"
    yield Action("capture the step in CUDA graphs (static cache, torch.compile) or use an engine", where, HOST, savings)


# --- the cache -------------------------------------------------------------------------------------------------------


def cached_ops(flow: Flow) -> list[Op]:
    """Operators that make tensors of the cache."""
    return [flow.ops[t.maker] for t in flow.tensors if t.kind == "cache" and t.maker is not None]


def cache_lines(facts: ModelFacts) -> dict[tuple[str, int], Op]:
    """Class and line of each concatenation that makes the cache one token longer."""
    flow = facts.flows.phases.get("decode")
    copies = [op for op in cached_ops(flow) if op.name == "cat"] if flow is not None else []
    return {(op.frames[0].class_name, op.frames[0].lines[0].line): op for op in copies}


def _cache_copies(facts: ModelFacts) -> Iterator[Action]:
    lines = cache_lines(facts)
    if not lines:
        return
    first = next(iter(lines.values())).frames[0].lines[0]
    choices = tuple({"class_name": name, "line": line, "category": "copy"} for name, line in lines)
    savings = [_of_bytes(facts, point, choices) for point in decode_points(facts)]
    yield Action(
        ["write the KV cache in place (", Code('cache_implementation="static"'), "), not by concatenation"],
        pointer_at(facts, first.file, first.line),
        KERNELS,
        [one for one in savings if one is not None],
    )


def _expanded(facts: ModelFacts) -> Iterator[Action]:
    for path, growing in growing_products(facts).items():
        savings = [s for point in decode_points(facts) if (s := _of_products(facts, point, growing)) is not None]
        yield Action(
            ["absorb ", Code(path), " into the products beside it: it expands all cached tokens again"],
            growing.pointer,
            KERNELS,
            savings,
        )


def _of_products(facts: ModelFacts, point: Point, growing: Growing) -> Saving | None:
    terms = growing.terms(point)
    if not terms:
        return None
    total = " + ".join(f"{{{name}}}" for name in terms)
    moved = {f"b{n}": term.model_copy(update={"quantity": "bytes"}) for n, term in enumerate(terms.values())}
    rates = {"p": rate(facts, facts.device.matmul_flops), "w": rate(facts, facts.device.bandwidth)}
    longer = f"max(({total}) / {{p}}, ({' + '.join(f'{{{name}}}' for name in moved)}) / {{w}})"
    time = facts.number(longer, "s", **terms, **moved, **rates)
    bound = Term(name=f"bound.{point.key}.total")
    share = facts.number(f"min(100, 100 * {longer} * 10 ** 12 / {{t}})", "%", **terms, **moved, **rates, t=bound)
    amount: list[Inline] = [facts.number(total, "FLOP", **terms), ", "]
    amount.append(facts.number(f"100 * ({total}) / {{all}}", "%", **terms, all=Term(point=point.key, quantity="flops")))
    return Saving(point, time, share, [*amount, " of all FLOPs"])


def _copied(facts: ModelFacts) -> Iterator[Action]:
    for helper, (places, pointer) in growing_copies(facts).items():
        choices = tuple({"class_name": name, "line": line, "category": "copy"} for name, line in places)
        savings = [_of_bytes(facts, point, choices) for point in decode_points(facts)]
        yield Action(
            ["do without the copies of ", Code(f"{helper}()"), ", as long as the cache"],
            pointer,
            KERNELS,
            [one for one in savings if one is not None],
        )


# --- fusion ----------------------------------------------------------------------------------------------------------


def _scores(facts: ModelFacts) -> Iterator[Action]:
    """Attention in eager operators: all but its products moves scores that a fused kernel keeps on chip."""
    for name, analysis in facts.analyses.items():
        soft = next((k for k in analysis.kernels if k.category == "softmax" and k.function is not None), None)
        if soft is None or any(k.category == "attention" for k in analysis.kernels):
            continue
        inside = [k for k in analysis.kernels if k.function == soft.function and k.kernel_type == "basic"]
        if not any(k.category == "matmul" for k in inside):
            continue
        keys = dict.fromkeys((k.line, k.category) for k in inside if k.category not in ("matmul", "call", "module"))
        choices = tuple({"class_name": name, "line": line, "category": category} for line, category in keys)
        savings = [_of_bytes(facts, point, choices) for point in facts.points]
        yield Action(
            ["run attention as one kernel: scores go through memory in ", Code(f"{soft.function}()")],
            place_near(facts, name, soft.line, soft.file, "softmax", soft.function),
            KERNELS,
            [one for one in savings if one is not None],
        )


def _fused(facts: ModelFacts) -> Iterator[Action]:
    """Classes that call nothing and run several operators: what they move beyond inputs, weights and outputs."""
    least = compulsory_of(facts)
    for component in components(facts):
        own = [k for k in component.analysis.kernels if k.kernel_type == "basic" and k.category != "call"]
        products = {"matmul", "attention", "grouped_matmul"} & {k.category for k in own}
        if component.calls or operators_of(component) < LEAST or products or component.class_name not in least:
            continue
        savings = []
        for point in facts.points:
            found = _beyond(facts, point, component.class_name, least)
            savings += [found] if found is not None else []
        yield Action(
            ["fuse the ", f"{operators_of(component)} operators of ", Code(component.name), " into one kernel"],
            component.pointer,
            KERNELS,
            savings,
        )


def _beyond(facts: ModelFacts, point: Point, class_name: str, least: Mapping[str, str]) -> Saving | None:
    terms = {
        "a": Term(point=point.key, quantity="bytes", class_name=class_name),
        "l": Term(point=point.key, formula=least[class_name]),
    }
    return _saving(facts, point, "{a} - {l}", terms)


def _of_bytes(facts: ModelFacts, point: Point, choices: Sequence[Mapping[str, object]]) -> Saving | None:
    terms = {
        f"a{n}": Term(point=point.key, quantity="bytes", **choice)  # type: ignore[arg-type]
        for n, choice in enumerate(choices)
    }
    return _saving(facts, point, " + ".join(f"{{{name}}}" for name in terms) or "0", terms)


def _saving(facts: ModelFacts, point: Point, moved: str, terms: dict[str, Term]) -> Saving | None:
    """Of bytes that need not be moved: at the memory's bandwidth."""
    amount = facts.number(moved, "B", **terms)
    bound = Term(name=f"bound.{point.key}.total")
    if amount.value <= 0 or not facts.value(bound):
        return None
    bandwidth = rate(facts, facts.device.bandwidth)
    time = facts.number(f"({moved}) / {{w}}", "s", **terms, w=bandwidth)
    share = facts.number(f"min(100, 100 * ({moved}) * 10 ** 12 / ({{w}} * {{t}}))", "%", **terms, w=bandwidth, t=bound)
    whole = Term(point=point.key, quantity="bytes")
    of_all = facts.number(f"100 * ({moved}) / {{all}}", "%", **terms, all=whole)
    return Saving(point, time, share, [amount, ", ", of_all, " of all bytes"])


def _logits(facts: ModelFacts) -> Iterator[Action]:
    """Logits of all positions, where those of the last one are asked for."""
    made = logits_of(facts)
    if made is None:
        return
    savings = []
    for point in facts.points:
        flops = Term(point=point.key, quantity="matmul_flops", path=made.frames[0].path)
        kept = kept_activations(facts, point)
        if kept is None or point.values["seq_len"] < 2 or not facts.value(flops):
            continue
        terms = {"a": flops, "n": Term(constant=point.values["seq_len"], source="new tokens")}
        spared = "{a} * ({n} - 1) / {n}"
        p, t = rate(facts, facts.device.matmul_flops), Term(name=f"bound.{point.key}.total")
        time = facts.number(f"{spared} / {{p}}", "s", **terms, p=p)
        share = facts.number(f"min(100, 100 * {spared} * 10 ** 12 / ({{p}} * {{t}}))", "%", **terms, p=p, t=t)
        before = facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.activations"))
        amount: list[Inline] = [facts.number(spared, "FLOP", **terms)]
        amount += ["; activations from ", before, " to ", kept] if before.value > kept.value else []
        savings.append(Saving(point, time, share, amount))
    where: Line = joined(kept_places(facts)[:1])
    yield Action(["ask for logits of the last position (", Code("logits_to_keep=1"), ")"], where, KERNELS, savings)


# --- what the code does well, and what it does not -------------------------------------------------------------------


def decode_points(facts: ModelFacts) -> list[Point]:
    return [point for point in facts.points if point.phase == "decode"]


def kept_by_views(facts: ModelFacts) -> Iterator[tuple[Point, Number, Number]]:
    """Points after which the cache's storages hold more than its tensors show: bytes held, bytes shown."""
    cache = facts.inspection.cache if facts.inspection is not None else None
    if cache is not None and cache.encoder_bytes_per_token is not None:
        return  # what cross-attention keeps is in the storages, and no part of the rates a token
    for point in facts.points:
        peak = facts.flows.peaks.get(point.key)
        tokens = point.values.get("seq_len", 0) + point.values.get("cache_len", 0)
        for n, segment in enumerate(cache.segments if cache is not None and peak is not None else ()):
            inside = segment.from_tokens <= tokens and (segment.to_tokens is None or tokens <= segment.to_tokens)
            if not inside or f"cache.{n}.bytes_per_token" not in facts.named or segment.steps_of:
                continue
            shown = facts.number(
                "{n} * ({t} * {b} + {c})", "B",
                n=Term(constant=point.values["batch_size"], source="batch size of the point"),
                t=Term(constant=tokens, source="tokens of the point"),
                b=Term(name=f"cache.{n}.bytes_per_token"), c=Term(name=f"cache.{n}.constant_bytes"),
            )  # fmt: skip
            # A window drops one token a step, which its storage still holds: that much is not worth a line.
            if peak is not None and 100 * shown.value < 99 * peak.cache_after:
                held = facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.cache_after"))
                yield point, held, shown


@dataclass(frozen=True)
class Done:
    """Something that the code does well: what, and where."""

    what: Line
    where: Pointer


def done_well(facts: ModelFacts) -> list[Done]:
    """Operators that do in one what would be several, as the runs show them."""
    found: dict[str, Done] = {}
    for flow in facts.flows.phases.values():
        for op in flow.ops:
            what = ONE_KERNEL.get(op.name)
            if what is not None and op.name not in found and op.frames[0].lines:
                line = op.frames[0].lines[0]
                name = op.name if op.category == "attention" else f"aten.{op.name}"
                where = pointer_at(facts, line.file, line.line)
                found[op.name] = Done([Code(name), f" in {short(op.frames[0].class_name)}: {what}"], where)
    return [found[name] for name in ONE_KERNEL if name in found]


ONE_KERNEL = {
    "scaled_dot_product_attention": "attention as one operator, whose fused backends keep scores on chip",
    "_grouped_mm": "one product for all experts",
    "_fused_rms_norm": "RMS normalization as one operator",
    "native_layer_norm": "layer normalization as one operator",
    "addmm": "products with their bias in one operator",
    "baddbmm": "batched products with their bias in one operator",
}
"""ATen operators that do in one what would be several -> what that is."""
