"""Section 1: what the model is, what decides on its time and memory, and from which sizes on something else does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmp.predict.screen.asking import EAGER, Answer
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation import classes
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.figures import count, devices, held, interval, named, predicted, rate, seconds, share_of
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.naming import layers_at
from lmp.report.implementation.operators import joined

MOST_GROUPS = 3
MAIN = (
    classes.ATTENTION, classes.MIXTURE, classes.FEED_FORWARD, classes.PLAIN_FEED_FORWARD, classes.EXPERTS,
    classes.MIXER,
)  # fmt: skip


# --- what it is ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Layers that are made of the same parts."""

    count: int
    parts: tuple[Component, ...]


def kinds(facts: ModelFacts) -> list[Kind]:
    """Layers by the parts that they are made of; nothing where layers are made of lists of layers themselves."""
    parts, found = components(facts), dict[tuple[Component, ...], int]()
    layers = [path for c in parts if c.role == classes.LAYER for path in c.paths]
    if any(sum(part.isdigit() for part in path.split(".")) > 1 for path in layers):
        return []
    for layer in layers:
        inner = tuple(c for c in parts if c.role in MAIN and any(p.rpartition(".")[0] == layer for p in c.paths))
        found[inner] = found.get(inner, 0) + layers_at(facts, layer)
    return [Kind(number, inner) for inner, number in found.items()]


def used_parameters(facts: ModelFacts) -> Number | None:
    """Parameters that a token uses: of experts the chosen ones, of a table that is looked up its row alone.

    The table counts where the output projection has it, too. None where not every token goes through all modules: of an
    encoder and a decoder; or where it is all of them.
    """
    cache = facts.inspection.cache if facts.inspection is not None else None
    apart = cache is not None and cache.encoder_bytes_per_token is not None
    if "active_parameters_count" not in facts.named or apart:
        return None
    tied = facts.settings.get("tie_word_embeddings") is True
    tables = [p for c in components(facts) if c.role == classes.EMBEDDING for p in c.paths] if not tied else []
    terms = {f"e{n}": Term(name=f"parameters.{path}") for n, path in enumerate(tables)}
    known = {name: term for name, term in terms.items() if term.name in facts.named}
    less = "".join(f" - {{{name}}}" for name in known)
    used = facts.number(f"{{a}}{less}", "params", a=Term(name="active_parameters_count"), **known)
    return used if used.value != facts.named["parameters_count"] else None


def kind_of_attention(facts: ModelFacts) -> list[Inline]:
    """By the config's heads; nothing where it has none."""
    names = facts.named
    queries, keys = names.get("config.num_attention_heads"), names.get("config.num_key_value_heads")
    if not queries:
        return []
    heads = facts.setting("num_attention_heads")
    if names.get("config.kv_lora_rank"):
        rope: list[Inline] = [" + ", facts.setting("qk_rope_head_dim")] if "config.qk_rope_head_dim" in names else []
        return ["latent attention (", heads, " heads from ", facts.setting("kv_lora_rank"), *rope, " cached numbers)"]
    if keys and keys < queries:
        kind = "multi-query" if keys == 1 else "grouped-query"
        return [f"{kind} attention (", heads, " query heads on ", facts.setting("num_key_value_heads"), ")"]
    return ["multi-head attention (", heads, " heads)"]


def cache_rates(facts: ModelFacts) -> list[dict[str, object]]:
    """Bytes of the cache a token, segment by segment."""
    cache = facts.inspection.cache if facts.inspection is not None else None
    return [
        {
            "from": segment.from_tokens,
            "to": segment.to_tokens,
            "rate": named(facts, f"cache.{n}.bytes_per_token"),
            "constant": named(facts, f"cache.{n}.constant_bytes") if segment.constant_bytes else None,
        }
        for n, segment in enumerate(cache.segments if cache is not None else ())
        if {f"cache.{n}.bytes_per_token", f"cache.{n}.constant_bytes"} <= facts.named.keys()
    ]


# --- what decides ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decides:
    """What bounds the points of one phase: in eager execution, and in a serving engine."""

    phase: str
    eager: str
    serving: str
    point: Point
    launches: Number
    host: Number
    kernels: Number


def answer(facts: ModelFacts, point: Point, profile: str = EAGER) -> Answer | None:
    return facts.predictions.at(point.key, profile)


def bound_words(found: Answer) -> str:
    return BOUNDS.get(found.bound, found.bound)


BOUNDS = {"launch": "launches (the host)", "latency": "latency of small kernels"}


def answers(facts: ModelFacts) -> list[dict[str, object]]:
    """Time, what bounds it, and memory at each point."""
    rows: list[dict[str, object]] = []
    for point in facts.points:
        row: dict[str, object] = {"point": point.title, "held": held(facts, point), "devices": devices(facts, point)}
        row["floor"] = seconds(facts, f"bound.{point.key}.total")
        for name, profile in (("eager", EAGER), ("serving", facts.predictions.serving)):
            found = answer(facts, point, profile)
            row[name] = found and {
                "time": predicted(facts, found.us[0], f"predicted, {profile}"),
                "interval": interval(facts, found.us, f"predicted, {profile}"),
                "bound": bound_words(found),
                "tokens": count(facts, round(found.tokens_per_s[0]), f"predicted, {profile}"),
            }
        rows.append(row)
    return rows


def decides(facts: ModelFacts) -> list[Decides]:
    """One entry for each phase that has a prediction."""
    found = []
    for phase in dict.fromkeys(point.phase for point in facts.points):
        points = [point for point in facts.points if point.phase == phase and answer(facts, point) is not None]
        if not points:
            continue
        first = answer(facts, points[0])
        assert first is not None
        found.append(
            Decides(
                facts.called(phase),
                _over(facts, points, EAGER),
                _over(facts, points, facts.predictions.serving),
                points[0],
                count(facts, first.call.launches, "launches of the call"),
                predicted(facts, first.host[0], "predicted, launches of the host"),
                predicted(facts, first.call.whole[0], f"predicted, kernels of {EAGER}"),
            )
        )
    return found


def _over(facts: ModelFacts, points: list[Point], profile: str) -> str:
    """``launches (the host) at 3 of 4 points, memory at 1 (…)``."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        found = answer(facts, point, profile)
        assert found is not None
        groups.setdefault(bound_words(found), []).append(point)
    if len(groups) == 1:
        return f"{next(iter(groups))} at {_points(len(points))}"
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{name} at {' and '.join(_short(p) for p in here)}" for name, here in ordered)


def _points(number: int) -> str:
    return "its point" if number == 1 else "both points" if number == 2 else f"all {number} points"


def _short(point: Point) -> str:
    return point.title.partition(", ")[2]


def largest(facts: ModelFacts, point: Point) -> list[Inline]:
    """The groups of operators with most of the bound at a point."""
    groups = sorted(facts.bounds.groups(point.key).items(), key=lambda item: -item[1].total)[:MOST_GROUPS]
    pieces: list[Inline] = []
    for name, bound in groups:
        share = share_of(facts, f"bound.{point.key}.group.{name}.total", f"bound.{point.key}.total")
        if share is not None and bound.total:
            pieces += [", " if pieces else "", Code(name), " ", share]
    return pieces


# --- thresholds ------------------------------------------------------------------------------------------------------


def thresholds(facts: ModelFacts) -> Iterator[Line]:
    """From which sizes on something else decides."""
    device = facts.device
    width = facts.points[0].values.get("w_bytes")
    if isinstance(width, int) and facts.quantised is None:
        ridge = facts.number(
            "ceil({p} * {w} / (2 * {b}))", "", p=rate(facts, device.matmul_flops), b=rate(facts, device.bandwidth),
            w=Term(constant=width, source="bytes of a weight"),
        )  # fmt: skip
        line: list[Inline] = ["products with dense weights turn compute-bound at ", ridge, " tokens a call"]
        experts = next((n for n in EXPERTS if f"config.{n}" in facts.named), None)
        if facts.bounds.is_routed and experts and facts.named.get("config.num_experts_per_tok"):
            routed = facts.number(
                "ceil({p} * {w} * {e} / (2 * {b} * {k}))", "", p=rate(facts, device.matmul_flops),
                b=rate(facts, device.bandwidth), w=Term(constant=width, source="bytes of a weight"),
                e=Term(name=f"config.{experts}"), k=Term(name="config.num_experts_per_tok"),
            )  # fmt: skip
            line += [", those of experts at ", routed, ", spread evenly"]
        yield [*line, f" (peak rates of {device.name})"]
    rates = cache_rates(facts)
    last = len(rates) - 1
    if rates and "weight_bytes" in facts.named and facts.named[f"cache.{last}.bytes_per_token"]:
        per_token = Term(name=f"cache.{last}.bytes_per_token")
        constant = Term(name=f"cache.{last}.constant_bytes")
        whole = facts.number("floor(({w} - {c}) / {b})", "", w=Term(name="weight_bytes"), c=constant, b=per_token)
        whose = "of one sequence" if facts.value(constant) else "of all sequences together"
        yield ["the KV cache is as large as the weights at ", whole, f" cached tokens, {whose}"]
        room = facts.number(
            "floor(({m} - {w} - {c}) / {b})", "", m=rate(facts, device.memory), w=Term(name="weight_bytes"),
            c=constant, b=per_token,
        )  # fmt: skip
        if room.value > 0:
            yield [
                f"beside the weights one {device.name} has room for ",
                room,
                f" cached tokens, {whose}, no activations",
            ]
        else:
            yield f"the weights alone are larger than the memory of one {device.name}"


EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")


# --- features --------------------------------------------------------------------------------------------------------


def inner_norms(facts: ModelFacts) -> Line:
    """Norms inside of attention, and their share of the bytes."""
    parts = components(facts)
    attention = [path for c in parts if c.role == classes.ATTENTION for path in c.paths]
    within = [
        (norm, path)
        for norm in parts
        if norm.role in (classes.NORM, classes.LAYER_NORM)
        for path in norm.paths
        if path.rpartition(".")[0] in attention
    ]
    if not within:
        return ""
    point = facts.points[0]
    names = joined([Code(name) for name in dict.fromkeys(path.rpartition(".")[2] for _, path in within)])
    share = Measure(facts, tuple({"path": path} for _, path in within)).share("bytes", point)
    of: list[Inline] = [", ", share, f" of the bytes of {point.title}"] if share is not None else []
    return [f"{within[0][0].role} inside of attention: ", *names, *of]
