"""Section 1: what the model is, what decides on its time and memory, and from which sizes on something else does."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.predict.screen.card import EAGER_NAME as EAGER
from lmp.predict.screen.room import Room
from lmp.predict.shard.parallel import ONE
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation import classes
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.figures import (
    answer,
    count,
    devices,
    first_of_each_phase,
    held,
    interval,
    named,
    predicted,
    rate,
    seconds,
    share_of,
)
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.naming import layer_paths, layers_at
from lmp.report.implementation.operators import joined
from lmp.report.implementation.performance import outer_parts
from lmp.report.implementation.reads import own_name
from lmp.report.implementation.sources import sources_of
from lmp.report.predictions import bounds_over

MOST_PARTS = 2
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
    stack: str = ""
    """Where they stand, of a model with several stacks."""


def kinds(facts: ModelFacts) -> list[Kind]:
    """Layers by the parts that they are made of, the outermost ones of each; of several stacks each by itself."""
    parts = components(facts)
    main = {path: c for c in parts if c.role in MAIN for path in c.paths}
    numbered = {p for p in layer_paths(facts) if sum(part.isdigit() for part in p.split(".")) == 1}
    found = dict[tuple[str, tuple[Component, ...]], int]()
    for layer in (path for path in layer_paths(facts) if path in numbered):
        below = [path for path in main if path.startswith(f"{layer}.")]
        outer = [path for path in below if not any(path.startswith(f"{other}.") for other in below)]
        inner = tuple(c for c in parts if any(main[path] is c for path in outer))
        key = (layer.rpartition(".")[0], inner)
        found[key] = found.get(key, 0) + layers_at(facts, layer)
    several = len({stack for stack, _ in found}) > 1
    return [Kind(number, inner, stack if several else "") for (stack, inner), number in found.items() if inner]


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
    names, own = facts.named, own_name(sources_of(facts), "num_attention_heads")
    queries, keys = names.get(f"config.{own}"), names.get("config.num_key_value_heads")
    if not queries:
        return []
    heads = facts.setting(own)
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
    """What bounds the points of one phase, by the way to run them: words of the bound -> the points, in words."""

    phase: str
    eager: dict[str, str]
    serving: dict[str, str]
    point: Point
    launches: Number
    host: Number
    kernels: Number

    @property
    def launch_bound(self) -> str:
        """At which points eager mode is; empty: at none."""
        return self.eager.get(BOUNDS["launch"], "")


BOUNDS = {"launch": "launches (the host)", "latency": "latency of small kernels"}


def decides(facts: ModelFacts) -> list[Decides]:
    """One entry for each phase that has a prediction."""
    found = []
    for first in first_of_each_phase(facts):
        points = [one for one in facts.points if one.phase == first.phase and answer(facts, one) is not None]
        run = answer(facts, first)
        if run is None:
            continue
        eager, serving = (_bounds_at(facts, points, profile) for profile in facts.predictions.profiles)
        launches = count(facts, run.call.launches, "launches of the call")
        host = predicted(facts, run.host[0], "predicted, launches of the host")
        kernels = predicted(facts, run.call.whole[0], f"predicted, kernels of {EAGER}")
        found.append(Decides(facts.called(first.phase), eager, serving, first, launches, host, kernels))
    return found


def _bounds_at(facts: ModelFacts, points: list[Point], profile: str) -> dict[str, str]:
    """Words of each bound -> at which of the points."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        found = answer(facts, point, profile)
        groups.setdefault(bound_words(found.bound) if found is not None else "unknown", []).append(point)
    if len(groups) == 1:
        every = {1: "its point", 2: "both points"}.get(len(points), f"all {len(points)} points")
        return dict.fromkeys(groups, every)
    return {name: "; ".join(point.title.partition(", ")[2] for point in here) for name, here in groups.items()}


def bound_words(bound: str) -> str:
    return BOUNDS.get(bound, bound)


def dearest(facts: ModelFacts, point: Point) -> dict[str, list[Inline]]:
    """The classes of parts with most of the bound at a point, and the operators; each with its share."""
    whole = Term(name=f"bound.{point.key}.total")
    if not facts.value(whole):
        return {}
    roles, parts = classes.roles_of(facts), dict[str, dict[str, Term]]()
    for _, _, module in outer_parts(facts, facts.tree(point)):
        mine = parts.setdefault(module.class_name, {})
        mine[f"a{len(mine)}"] = Term(name=f"bound.{point.key}.module.{module.path}.total")
    shares = {
        name: facts.number(f"100 * ({' + '.join(f'{{{one}}}' for one in terms)}) / {{w}}", "%", w=whole, **terms)
        for name, terms in parts.items()
    }
    dear = sorted(shares.items(), key=lambda item: -item[1].value)[:MOST_PARTS]
    first = [(name, share) for name, share in dear if share.value >= 1]
    groups = sorted(facts.bounds.groups(point.key).items(), key=lambda item: -item[1].total)[:1]
    group = [(name, share_of(facts, f"bound.{point.key}.group.{name}.total", whole.name or "")) for name, _ in groups]
    told: list[Inline] = []
    for name, share in first:
        told += [f"{', ' if told else ''}{roles.get(name, 'part')} ", Code(short(name)), " ", share]
    return {
        "parts": told,
        "operators": [piece for name, share in group if share is not None for piece in (Code(name), " ", share)],
    }


def answers(facts: ModelFacts) -> list[dict[str, object]]:
    """Time, what bounds it, and memory at each point."""
    rows: list[dict[str, object]] = []
    for point in facts.points:
        row: dict[str, object] = {"point": point.title, "held": held(facts, point)}
        row["floor"] = seconds(facts, f"bound.{point.key}.total")
        for name, profile in zip(("eager", "serving"), facts.predictions.profiles, strict=True):
            found = answer(facts, point, profile)
            row[name] = found and {
                "time": predicted(facts, found.us[0], f"predicted, {profile}"),
                "interval": interval(facts, found.us, f"predicted, {profile}"),
                "bound": bound_words(found.bound),
                "tokens": count(facts, round(found.tokens_per_s[0]), f"predicted, {profile}"),
                "fits": _fits(facts, point, profile),
            }
        rows.append(row)
    return rows


MEMORY = "memory of the answer card"


def fits(facts: ModelFacts, point: Point, profile: str) -> bool | None:
    """Eager mode on one device: what was held at the peak of a run. Else as the answer card says; None: not known."""
    size = held(facts, point)
    if profile == EAGER and facts.deployment.parallel == ONE and size is not None:
        return size.value <= facts.device.memory
    found = facts.predictions.rooms.get((point.key, profile))
    return found.fits if isinstance(found, Room) else None


def _fits(facts: ModelFacts, point: Point, profile: str) -> Line:
    """With the largest batch, or what would fit, of an engine that plans its memory."""
    known, found = fits(facts, point, profile), facts.predictions.rooms.get((point.key, profile))
    if known is None or profile == EAGER or not isinstance(found, Room):
        least = devices(facts, point) if known is False and facts.deployment.parallel == ONE else None
        plainly = "not known" if known is None else "yes" if known else "no"
        return plainly if least is None else ["no: ", least, " by memory"]
    batch = [count(facts, found.largest_batch, MEMORY)] if found.largest_batch else []
    if known:
        return ["yes, to batch ", *batch] if batch else "yes"
    more = found.smallest_tp is not None and found.smallest_tp > facts.deployment.parallel.tp
    tp: list[Inline] = ["tp ", count(facts, found.smallest_tp or 0, MEMORY)] if more else []
    fewer: list[Inline] = ["batch ", *batch] if batch else []
    return ["no: ", *tp, " or " if tp and fewer else "", *fewer, " does"] if tp or fewer else "no"


def fitting(facts: ModelFacts) -> list[tuple[str, str]]:
    """Way to run -> how many of the points fit, in words; nothing where that is not known."""
    found = []
    for profile in facts.predictions.profiles:
        known = [fits(facts, point, profile) for point in facts.points]
        if None not in known:
            found.append((profile, f"{sum(map(bool, known))} of {len(known)}"))
    return found


def extremes(facts: ModelFacts) -> list[tuple[Point, Number]]:
    """The points that hold least and most."""
    known = [(point, size) for point in facts.points if (size := held(facts, point)) is not None]
    ordered = sorted(known, key=lambda one: one[1].value)
    return ordered if len(ordered) < 2 else [ordered[0], ordered[-1]]


def engine_gain(facts: ModelFacts) -> dict[str, object] | None:
    """The point at which the engine saves the largest part of eager mode's time."""
    known: list[tuple[Point, float, float]] = []
    for one in facts.points:
        eager, serving = (answer(facts, one, profile) for profile in facts.predictions.profiles)
        if eager is not None and serving is not None and serving.us[0]:
            known.append((one, eager.us[0], serving.us[0]))
    if not known:
        return None
    point, before, after = max(known, key=lambda one: one[1] / one[2])
    source = "predicted, ratio in hundredths"
    times = facts.number("{a} / 100", "times", a=Term(constant=round(100 * before / after), source=source))
    return {
        "point": point.title, "times": times, "eager": predicted(facts, before, f"predicted, {EAGER}"),
        "serving": predicted(facts, after, f"predicted, {facts.predictions.serving}"),
    }  # fmt: skip


# --- where it changes ------------------------------------------------------------------------------------------------

BATCHES = tuple(2**n for n in range(10))
LENGTHS = tuple(2**n for n in range(6, 16))


@dataclass(frozen=True)
class Change:
    """What bounds a phase as one of its sizes grows. ``steps``: words of the bound, and the first and last size."""

    phase: str
    profile: str
    of: str
    steps: tuple[tuple[str, int, int], ...]


@functools.lru_cache(maxsize=2)
def changes(facts: ModelFacts) -> tuple[Change, ...]:
    """Decode by its batch, prefill by its tokens, at powers of two: a prediction is no finer than that."""
    found: list[Change] = []
    for point in first_of_each_phase(facts) if not facts.predictions.reason else ():
        name, sizes = ("batch_size", BATCHES) if point.phase == "decode" else ("seq_len", LENGTHS)
        if name not in facts.model.parameters:
            continue
        given = {n: point.values[n] for n in ("batch_size", "seq_len", "cache_len") if n in point.values}
        calls = [{**facts.sizes, **given, name: size} for size in sizes]
        here = bounds_over(facts.expanded, facts.device.name, calls, facts.deployment)
        cached, batch = (point.values.get(n, 1) for n in ("cache_len", "batch_size"))
        title = f"{point.phase}, " + (f"{cached:,} tokens in the cache" if name == "batch_size" else f"batch {batch}")
        for profile, bounds in here.items():
            runs = itertools.groupby(zip(bounds, sizes, strict=False), key=lambda one: one[0])
            steps = [(bound_words(bound), [size for _, size in group]) for bound, group in runs]
            told = tuple((word, group[0], group[-1]) for word, group in steps)
            found.append(Change(title, profile, "batch" if name == "batch_size" else "tokens", told))
    return tuple(found)


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
            kept = facts.inspection.cache if facts.inspection is not None else None
            cross = kept is not None and kept.encoder_bytes_per_token is not None
            without = "no activations, nothing of cross-attention" if cross else "no activations"
            yield [f"beside the weights one {device.name} has room for ", room, f" cached tokens, {whose}, {without}"]
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
