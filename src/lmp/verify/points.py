"""Held-out points: sizes that no formula was derived from, in every phase, also at other config values."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from lmp.formula import Condition, Num, evaluate_condition, free_variables, walk
from lmp.verify.literals import around
from lmp.workload.base import CHUNKED, Workload, executed, fewest_layers, refusal


class PointKind(Enum):
    """Origin of a held-out point's config values, and its purpose."""

    OWN = auto()
    """The config's own values, with few layers."""
    LONG = auto()
    """A long prefill. A model with fewer positions may refuse it."""
    MORE_LAYERS = auto()
    """A few layers more than one of each kind. A model may refuse it."""
    ALL_LAYERS = auto()
    SYNTHETIC = auto()
    """Synthetic config values."""
    DRAWN = auto()
    """Sizes drawn from a hash of the formulas: their author cannot know them."""
    ARM = auto()
    """Sizes of the call at which the formulas take an arm that no other point takes."""
    ARM_SYNTHETIC = auto()
    """The same, at synthetic config values."""
    COMPARED = auto()
    """Synthetic config values at which a comparison in a constructor has another result."""
    ONE = auto()
    """Synthetic config values with one count set to 1."""
    LITERAL = auto()
    """Sizes of the call on both sides of a number in the source."""
    MIXED = auto()
    """All sizes of the call changed together."""
    MIXED_SYNTHETIC = auto()
    """The same, at synthetic config values."""

    @property
    def synthetic(self) -> bool:
        """True if the config values are synthetic: a layer that exists only there need not be judged."""
        return self in SYNTHETIC_KINDS


SYNTHETIC_KINDS = (
    PointKind.SYNTHETIC,
    PointKind.ARM_SYNTHETIC,
    PointKind.COMPARED,
    PointKind.ONE,
    PointKind.MIXED_SYNTHETIC,
)
BY_SIZE = (PointKind.LITERAL, PointKind.MIXED, PointKind.MIXED_SYNTHETIC)
"""Kinds of points that may be refused or left out: they come in order of size, and large ones may take too long."""


@dataclass(frozen=True)
class HeldOut:
    """One held-out point. ``label``: text for readers only; code branches on ``kind``."""

    label: str
    values: dict[str, int]
    """Values of all variables, including those of the call."""
    kind: PointKind = PointKind.OWN

    @property
    def synthetic(self) -> bool:
        return self.kind.synthetic

    @property
    def may_be_refused(self) -> bool:
        """True if the module may refuse to run here."""
        return self.kind in (PointKind.LONG, PointKind.MORE_LAYERS, *BY_SIZE)


SEARCHED = {
    PointKind.ARM: "arm of a formula",
    PointKind.ARM_SYNTHETIC: "arm of a formula, other config",
    PointKind.LITERAL: "number in the source",
    PointKind.MIXED: "sizes together",
    PointKind.MIXED_SYNTHETIC: "sizes together, other config",
}
"""Kinds of points that come from formulas and sources, with their labels."""

COUNTEREXAMPLES = (*SEARCHED, PointKind.ONE)
"""Kinds of points from which formulas are derived again if they differ there."""

PREFILL, FIRST_TOKEN, DECODE = "prefill", "first token", "decode"
PHASES = (PREFILL, DECODE, CHUNKED, FIRST_TOKEN)


def phase_of(values: Mapping[str, int]) -> str:
    """The phase of a point, from its runtime variables."""
    single = values.get("seq_len", 0) == 1
    if values.get("cache_len", 0) > 0:
        return DECODE if single else CHUNKED
    return FIRST_TOKEN if single else PREFILL


FACTORS = (8, 2, 4, 16)
"""Powers of two: they make sizes differ and preserve most divisibility."""


LONG = (2, 150, 0)
"""A prefill with more tokens than a small chunk or window. A model may have fewer positions."""

LAYERED = {
    "prefill": (2, 4, 0),
    "prefill of one sequence": (1, 6, 0),
    "decode": (2, 1, 8),
    "decode of one sequence": (1, 1, 12),
    "chunked prefill": (2, 3, 5),
    "chunked prefill of one sequence": (1, 4, 3),
}
"""Phase -> batch, new and cached tokens, for points with more layers."""

MOST_SHARED = 2
"""Largest number of counts that are set to 1, one per setting."""

MORE_OPERATORS = 2000
"""Operators that a changed config value may add: one that counts rounds of a long loop is changed by one."""

MORE_LAYERS = 3
"""Layers beyond the fewest that show each kind: they show how often each operator runs."""

MOST_COUNTED = 256
"""Config values up to this are counts (heads, experts, groups), larger ones are widths."""

WIDTHS = ("size", "dim", "rank", "embd", "embeddings", "positions", "window", "model", "ff", "inner")
"""Suffixes of names of widths, whatever their values."""


def held_out_points(workload: Workload, kept: Collection[str] = ()) -> list[HeldOut]:
    """Points at the workload's own values, and points with as many values changed as possible.

    Variables in ``kept`` are not changed.
    """
    points = _with_cache(workload, kept) if workload.has_cache else _without_cache(workload, kept)
    refused = workload.refused
    return [point for point in points if phase_of(point.values) not in refused]


def _without_cache(workload: Workload, kept: Collection[str]) -> list[HeldOut]:
    own = dict(workload.hints)
    other = changed(workload, kept)
    # Without tokens there is no first token: the number of pictures or recordings changes instead. A model that pools
    # its tokens rejects a single one. Its points need several groups and a remainder.
    few = workload.fewest_tokens
    shapes = [(3, 12 * few - 1, 0), (1, 9 * few, 0), (4, few, 0) if workload.has_tokens else (4, 7, 0)]
    points = [_point("", own, shape) for shape in shapes]
    if workload.has_tokens:
        points.append(_point("long prefill", own, LONG, PointKind.LONG))
    layered = [(2, 4 * few, 0), (1, 5 * few, 0), *([(2, few, 0)] if workload.has_tokens else [])]
    points += [_point("all layers", full, (2, 4 * few, 0), PointKind.ALL_LAYERS) for full in _with_all_layers(workload)]
    points += [_point("more layers", m, s, PointKind.MORE_LAYERS) for m in _with_more_layers(workload) for s in layered]
    # At the other values, a group may have more tokens than these shapes.
    fitting = [s if _runs(workload, other, s) else (s[0], 3 * few, 0) for s in shapes]
    points += [_point("other sizes", other, shape, PointKind.SYNTHETIC) for shape in fitting]
    # At both sizes: an analysis that is pinned to the own ones is not judged at the others.
    settings = [s for sizes in (other, own) for s in _flag_settings(workload, sizes)]
    return [*points, *(_point("flags changed", values, (3, 9 * few, 0), PointKind.SYNTHETIC) for values in settings)]


def _with_cache(workload: Workload, kept: Collection[str]) -> list[HeldOut]:
    own = dict(workload.hints)
    other = changed(workload, kept)
    points = [
        _point("prefill", own, (3, 11, 0)),
        _point("decode", own, (4, 1, 13)),
        _point("chunked prefill", own, (2, 6, 9)),
        _point("prefill of one sequence", own, (1, 17, 0)),
        _point("first token", own, (3, 1, 0)),
        _point("long prefill", own, LONG, PointKind.LONG),
        _point("prefill, other config", other, (2, 9, 0), PointKind.SYNTHETIC),
        _point("decode, other config", other, (1, 1, 23), PointKind.SYNTHETIC),
        _point("chunked prefill, other config", other, (3, 8, 19), PointKind.SYNTHETIC),
    ]
    full = _with_all_layers(workload)
    points += [_point("prefill, all layers", values, (2, 4, 0), PointKind.ALL_LAYERS) for values in full]
    # An operator in one phase only may run once or in each layer: only more layers show which.
    points += [
        _point(f"{phase}, more layers", values, shape, PointKind.MORE_LAYERS)
        for values in _with_more_layers(workload)
        for phase, shape in LAYERED.items()
    ]
    equal = equalised(workload, kept)
    points += [
        _point("chunked prefill, other ratios", equal, (2, 7, 15), PointKind.SYNTHETIC),
        _point("prefill, other ratios", equal, (2, 10, 0), PointKind.SYNTHETIC),
        _point("decode, other ratios", equal, (2, 1, 15), PointKind.SYNTHETIC),
    ]
    ones = one_for_all(workload, kept)
    points += [
        _point(f"chunked prefill, one {name}, other ratios", values, (2, 5, 8), PointKind.ONE) for name, values in ones
    ]
    window_name = next((n for n in own if "window" in n or "chunk" in n), None)
    if window_name is not None and own[window_name] > 1:
        window = own[window_name]
        # Ratios decide paths there too: shared key and value heads may be repeated.
        for name, values in (("", equal), *((f"one {name}, ", values) for name, values in ones)):
            label = f"chunked prefill beyond the window, {name}other ratios"
            points.append(_point(label, values, (2, 4, values[window_name] + 7), PointKind.SYNTHETIC))
        for values in _with_more_layers(workload):
            label = "decode beyond the window, more layers"
            points.append(_point(label, values, (2, 1, window + 17), PointKind.MORE_LAYERS))
        points += [
            _point("prefill beyond the window", own, (2, window + 11, 0)),
            _point("prefill of a window", own, (2, window, 0)),
            _point("decode before the window is full", own, (2, 1, window - 1)),
            _point("decode as the window is full", own, (1, 1, window)),
            _point("prefill of one sequence beyond the window", own, (1, window + 8, 0)),
            _point("decode beyond the window", own, (2, 1, window + 29)),
            _point("decode of one sequence beyond the window", own, (1, 1, window + 41)),
            *([_point("chunked prefill across the window", own, (2, 12, window - 5))] if window > 5 else []),
            *([_point("chunked prefill inside the window", own, (2, 3, window - 5))] if 5 < window < 64 else []),
        ]
    return points


MOST_AT_ONCE = 64
"""Numbers up to this may split the batch."""


def compared_points(workload: Workload, conditions: Collection[Condition], known: Collection[HeldOut]) -> list[HeldOut]:
    """Points with the other result of each comparison that a constructor makes, one per variable that changes it."""
    own = dict(workload.hints)
    found: list[HeldOut] = []
    for condition in conditions:
        holds = evaluate_condition(condition, own)
        names = sorted(free_variables(condition) - set(workload.full_layers) - workload.flags)
        if any(evaluate_condition(condition, point.values) != holds for point in known):
            continue
        bounds = [own[n] for n in free_variables(condition)]
        bounds += [int(node.value) for node in walk(condition) if isinstance(node, Num)]
        for name in names:
            tries = dict.fromkeys([own[name] * 2, own[name] // 2, *bounds, *(b + d for b in bounds for d in (1, -1))])
            changed = ({**own, name: value} for value in tries if value > 0)
            other = (v for v in changed if evaluate_condition(condition, v) != holds and _runs(workload, v))
            values = next(other, None)
            if values is not None:
                cached = 8 if workload.has_cache and CHUNKED not in workload.refused else 0
                shape = (2, 5 * workload.fewest_tokens, cached)
                found.append(_point("comparison in a constructor", values, shape, PointKind.COMPARED))
    return found[:MOST_COMPARED]


MOST_COMPARED = 8
"""Most points for the comparisons in constructors."""

MOST_SIZES = 40
"""Most sizes beside the numbers of the source that one variable of a call is set to."""


def _sizes_around(workload: Workload, numbers: Collection[int]) -> list[int]:
    """Sizes beside these numbers in ascending order. Beyond MOST_SIZES, the ones closest to the numbers stay."""
    fewer = workload.model_class is not None
    by_place = itertools.zip_longest(*(around(number, fewer) for number in sorted(numbers)))
    sizes = dict.fromkeys(size for place in by_place for size in place if size)
    return sorted(itertools.islice(sizes, MOST_SIZES))


def literal_points(workload: Workload, numbers: Collection[int], known: Collection[HeldOut]) -> list[HeldOut]:
    """Points at which each size of a call is below, at and above each number of the source, and at several multiples.

    Sizes that the ``known`` points have are left out.
    """
    own, few = dict(workload.hints), workload.fewest_tokens
    sizes = _sizes_around(workload, numbers)
    batches = _sizes_around(workload, [n for n in numbers if n <= MOST_AT_ONCE])
    met = {name: {p.values[name] for p in known if phase_of(p.values) == phase} for name, phase in _VARIED}
    batches = [b for b in batches if b not in {p.values["batch_size"] for p in known}]
    shapes: list[tuple[int, int]] = []
    if workload.has_tokens:
        shapes += [(size, 0) for size in sizes if size not in met["seq_len"]]
    if workload.has_cache:
        shapes += [(1, size) for size in sizes if size not in met["cache_len"]]
    shapes.sort(key=sum)
    shapes += [(3 * few, 0)] * (len(batches) - len(shapes))
    turns = [*batches, *itertools.islice(itertools.cycle((2, 1, 3)), max(0, len(shapes) - len(batches)))]
    found = [
        _point(SEARCHED[PointKind.LITERAL], own, (batch, *shape), PointKind.LITERAL)
        for batch, shape in zip(turns, shapes, strict=True)
    ]
    if workload.vary and workload.has_tokens:
        # One sequence of one piece is a single row, and so is that of a piece less or more than whole.
        single = [n for number in numbers for n in (number, number - 1, number + 1) if n >= few]
        for size in itertools.islice(dict.fromkeys(single), MOST_SIZES):
            found.append(_point(SEARCHED[PointKind.LITERAL], own, (1, size, 0), PointKind.LITERAL))
    dimensions = _input_dimensions(workload)
    for name in dimensions:
        # A dimension of 1 beside them needs fewer copies: any one of them may be the batch.
        beside = [{}, *({other: 1} for other in dimensions if other != name)] if workload.vary else [{}]
        for index, size in enumerate(size for size in sizes if size != own[name]):
            values = {**own, **beside[index % len(beside)], name: size}
            found.append(_point(SEARCHED[PointKind.LITERAL], values, (2, 3 * few, 0), PointKind.LITERAL))
    refused = workload.refused
    return [point for point in found if phase_of(point.values) not in refused]


MIXED_IN_MODEL, MIXED_ALONE = 6, 24
"""Points with all sizes changed together: of a model, and of a module alone, whose runs are quick."""

MOST_MIXED_BATCH, MOST_MIXED_TOKENS = 12, 700
"""Largest batch of these points, and largest number of tokens unless the source has larger numbers."""


def mixed_points(workload: Workload, numbers: Collection[int], known: Collection[HeldOut]) -> list[HeldOut]:
    """Points at which batch, tokens, cache and input dimensions change together, in order of size.

    Paths that two sizes choose together, as in nested loops over pieces, show there. Half of the sizes are beside
    ``numbers`` of the source. For a module alone, a third has other config values, those of ``known`` points. For a
    user's module, another third has another value of one argument.
    """
    draw = random.Random(repr(sorted(workload.hints.items())))
    beside = [size for number in numbers for size in around(number) if size]
    few_beside = [size for size in beside if size <= MOST_AT_ONCE]
    most = max([MOST_MIXED_TOKENS, *beside])

    def size(most: int, choices: list[int]) -> int:
        return (
            draw.choice(choices)
            if choices and draw.random() < 0.5
            else round(math.exp(draw.uniform(0, math.log(most))))
        )

    in_model, dimensions, few = workload.model_class is not None, _input_dimensions(workload), workload.fewest_tokens
    others = [] if in_model else [point.values for point in known if point.synthetic]
    given = set(workload.hints) - {*dimensions, *workload.flags, *workload.required}
    arguments = sorted(given) if workload.vary else []
    phases = [phase for phase in PHASES if workload.has_cache or phase in (PREFILL, FIRST_TOKEN)]
    found: list[HeldOut] = []
    for index in range(MIXED_IN_MODEL if in_model else MIXED_ALONE):
        is_other = bool(others) and index % 3 == 2
        values = dict(draw.choice(others) if is_other else workload.hints)
        if arguments and index % 3 == 1:
            # Arguments are counts and limits: one less, one more, and few of them take other paths than multiples do.
            is_other, name = True, draw.choice(arguments)
            own = workload.hints[name]
            values[name] = draw.choice([v for v in (own - 1, own + 1, own // 2, 2, 3) if 0 < v != own])
        values |= {name: 1 if workload.vary and draw.random() < 0.2 else size(most, beside) for name in dimensions}
        values |= {name: size(MOST_MIXED_TOKENS, []) for name in (workload.required if workload.has_encoder else ())}
        phase = PREFILL if index % 2 == 0 else phases[index // 2 % len(phases)]
        new = 1 if phase in (DECODE, FIRST_TOKEN) else size(most, beside)
        shape = (
            size(MOST_MIXED_BATCH, few_beside),
            max(few, new) if workload.has_tokens else 7,
            size(most, beside) if phase in (DECODE, CHUNKED) else 0,
        )
        kind = PointKind.MIXED_SYNTHETIC if is_other else PointKind.MIXED
        found.append(_point(SEARCHED[kind], values, shape, kind))
    ran = [point for point in found if phase_of(point.values) not in workload.refused]
    return sorted(
        ran, key=lambda point: point.values["batch_size"] * (point.values["seq_len"] + point.values["cache_len"])
    )


_VARIED = (("seq_len", PREFILL), ("cache_len", DECODE))
"""Sizes of a call that are varied, each in the phase where it is the number of tokens."""


def _input_dimensions(workload: Workload) -> list[str]:
    """Further dimensions of inputs that a call can vary: heights, widths.

    Without the length of an encoder's input: the derivation assumes the results of comparisons with it, and a class
    below the encoder knows neither.
    """
    return [name for name in workload.input_sizes if not workload.has_encoder or name not in workload.required]


def _with_all_layers(workload: Workload) -> Iterator[dict[str, int]]:
    """The config's own values with all layers, if one layer cannot represent them all.

    Kinds of layers may come in any order: a formula for the first layers may fail for all.
    """
    own, full = workload.hints, workload.full_layers
    if any(own[name] > 1 for name in full) or workload.by_place:
        yield {**own, **full}


def _with_more_layers(workload: Workload) -> Iterator[dict[str, int]]:
    """The config's own values with a few layers more than one of each kind."""
    own, full = workload.hints, workload.full_layers
    more = {n: min(layers, fewest_layers(workload, n) + MORE_LAYERS) for n, layers in full.items()}
    if full:
        yield {**own, **more}


def _point(label: str, values: dict[str, int], shape: tuple[int, int, int], kind: PointKind = PointKind.OWN) -> HeldOut:
    return HeldOut(label, {**values, "batch_size": shape[0], "seq_len": shape[1], "cache_len": shape[2]}, kind)


def changed(workload: Workload, kept: Collection[str] = (), rotation: int = 0) -> dict[str, int]:
    """Each variable times its own factor, if the module still runs and divisibility is kept.

    ``rotation`` gives each variable another factor.
    """
    own = {n: v for n, v in workload.hints.items() if n not in workload.flags}
    # Sizes that are equal by default may differ here: the first of two must stay a multiple of the second.
    names = list(own)
    divides = [
        (a, b)
        for a in own
        for b in own
        if own[b] > 1 and own[a] % own[b] == 0 and (own[a] != own[b] or names.index(a) < names.index(b))
    ]
    values = dict(workload.hints)
    most = _operators(workload, values) or 0
    for index, (name, before) in enumerate(own.items()):
        if name in kept:
            continue
        factor = FACTORS[(index + rotation) % len(FACTORS)]
        # Multiplying a number of layers costs time and shows nothing more.
        tries = (
            (before + 1,) if name in workload.full_layers else (before * factor, before * 2, before // 2, before // 4)
        )
        # Equal sizes may have to stay equal: if one cannot change alone, two change.
        equal = [n for n, v in own.items() if v == before and n not in kept and n not in workload.full_layers]
        for value, other in [(v, n) for n in (name, *equal) for v in tries]:
            tried = {**values, name: value, other: value}
            if (
                # 1 is a separate case, and an assumption if its cost differs.
                value > min(before - 1, 1)
                and (other == name or values[other] == before)
                and all(tried[a] % tried[b] == 0 for a, b in divides if {name, other} & {a, b})
                and (number := _operators(workload, tried)) is not None
            ):
                if number > most + MORE_OPERATORS and value > before + 1:
                    # It counts rounds of a loop: one more shows as much as many, which take long.
                    tried, number = values, most
                    more = {**values, name: before + 1}
                    fits = all(more[a] % more[b] == 0 for a, b in divides if name in (a, b))
                    if fits and (found := _operators(workload, more)) is not None:
                        tried, number = more, found
                values, most = tried, number
                break
    return values


def equalised(workload: Workload, kept: Collection[str] = ()) -> dict[str, int]:
    """Set counts that divide another one to that count, and equal ones apart, if the module still runs.

    Heads that share keys and values, and experts that are all chosen, have paths of their own.
    """
    values = dict(workload.hints)
    counts = _counts(workload, kept)
    for small, before in counts.items():
        for large, above in counts.items():
            if small == large or above % before != 0:
                continue
            if above == before and list(counts).index(small) < list(counts).index(large):
                continue
            tried = {**values, small: above if above > before else before // 4 or 1}
            if tried[small] > 1 and _runs(workload, tried):
                values = tried
                break
    return values


def one_for_all(workload: Workload, kept: Collection[str] = ()) -> list[tuple[str, dict[str, int]]]:
    """Each count that divides another one or equals it, set to 1 separately, if the module runs.

    An example is one key and value head shared by all query heads.
    """
    counts = _counts(workload, kept)
    shared = [s for s, v in counts.items() if any(n != s and above % v == 0 for n, above in counts.items())]
    settings = [(name, {**workload.hints, name: 1}) for name in shared]
    return [(name, values) for name, values in settings if _runs(workload, values)][:MOST_SHARED]


def _counts(workload: Workload, kept: Collection[str]) -> dict[str, int]:
    """Counts of heads, experts and groups: no widths, flags, numbers of layers or kept variables."""
    fixed = {*workload.flags, *workload.full_layers, *kept}
    counts = {n: v for n, v in workload.hints.items() if 1 < v <= MOST_COUNTED and not n.endswith(WIDTHS)}
    return {n: v for n, v in counts.items() if n not in fixed}


Holds = Callable[[Mapping[str, int]], bool | None]
"""Predicate: true if the formulas equal execution at a point. None: nothing ran, or nothing was judged."""


def what_to_keep(
    own: Mapping[str, int], points: Iterable[Mapping[str, int]], names: Collection[str], holds: Holds
) -> dict[str, int] | None:
    """Values of the config's ``own``, among ``names``, that must be kept so that no point differs any more.

    The formulas then claim nothing for other values. Each point that differs is judged again with the kept values. None
    if ``names`` do not cause the difference.
    """
    kept: dict[str, int] = {}
    for point in points:
        if holds(point) is False and not (kept and holds({**point, **kept})):
            more = _enough_to_differ(own, {**point, **kept}, names, holds)
            if more is None:
                return None
            kept |= more
    return kept


def _enough_to_differ(
    own: Mapping[str, int], point: Mapping[str, int], names: Collection[str], holds: Holds
) -> dict[str, int] | None:
    """The ``names`` that each cause a difference when changed alone, if the point holds with them kept.

    Else all changed ``names``. None if the point does not hold with those kept either.
    """
    changed = {n: own[n] for n in names if point[n] != own[n]}
    alone = {n: v for n, v in changed.items() if holds({**point, **own, n: point[n]}) is False}
    return next((kept for kept in (alone, changed) if kept and holds({**point, **kept})), None)


def drawn_points(
    own: dict[str, int], other: dict[str, int], digest: bytes, has_cache: bool, long: bool
) -> list[HeldOut]:
    """Points in each phase at sizes drawn from ``digest``, at the config's ``own`` and ``other`` values.

    The author of submitted formulas knows the points of `held_out_points`; these change with every change of the
    formulas. ``long``: also one point of some thousand tokens.
    """
    batch, new, cached, many = (digest[i] << 8 | digest[i + 1] for i in range(0, 8, 2))
    # Many tokens take no more time than few if no loop runs over them: the meta device computes nothing.
    batch, new, cached = 5 + batch % 60, 19 + new % (400 if long else 40), 25 + cached % (8000 if long else 60)
    many = 1003 + many % 60_000
    shapes = [(own, (batch, new, 0)), (other, (batch, new, cached if has_cache else 0))]
    if has_cache:
        shapes.append((own, (batch, 1, cached)))
    if long:
        shapes.append((own, (2, many, 0)))
    return [_point("drawn", values, shape, PointKind.DRAWN) for values, shape in shapes]


def with_layers(workload: Workload, point: HeldOut, in_order: bool, full: bool) -> HeldOut:
    """The same point with all layers if ``full``, or with the first layers in the model's order if ``in_order``."""
    if full:
        return replace(point, values={**point.values, **workload.full_layers})
    few, values = workload.hints, point.values
    more = {n: m + values[n] - few[n] for n, m in workload.in_order.items() if values[n] < m}
    return replace(point, values={**values, **more}) if in_order else point


def structural(workload: Workload, points: Iterable[dict[str, int]]) -> dict[str, int]:
    """Variable -> own value, for variables changed by a point that decide which modules exist.

    Numbers of layers are excluded: more layers of a model have the same kinds.
    """
    own = workload.hints
    other = {n: p[n] for p in points for n in own if p[n] != own[n] and n not in workload.full_layers}
    modules = _modules(workload, own)
    return {n: own[n] for n, value in other.items() if _modules(workload, {**own, n: value}) not in (None, modules)}


def _modules(workload: Workload, values: dict[str, int]) -> list[tuple[str, str]] | None:
    """Path and class of each module; None if the model cannot be built."""
    try:
        return [(path, type(module).__qualname__) for path, module in workload.build(values).named_modules()]
    except Exception:
        return None


def _runs(workload: Workload, values: dict[str, int], shape: tuple[int, int, int] | None = None) -> bool:
    return refusal(workload, _trial(workload, values, shape)) is None


def _operators(workload: Workload, values: Mapping[str, int]) -> int | None:
    """Number of operators that the module executes with these values; None if it does not run."""
    found = executed(workload, _trial(workload, values))
    return None if found is None else found.total()


def _trial(workload: Workload, values: Mapping[str, int], shape: tuple[int, int, int] | None = None) -> dict[str, int]:
    """The point at which values are tried."""
    batch, new, cached = shape or (2, 3 * workload.fewest_tokens, 4)
    if CHUNKED in workload.refused and new > 1:
        cached = 0
    return {**values, "batch_size": batch, "seq_len": new, "cache_len": cached if workload.has_cache else 0}


def _flag_settings(workload: Workload, values: dict[str, int]) -> list[dict[str, int]]:
    """Each flag switched separately, each pair, and all together, if the module runs."""
    flags = sorted(workload.flags)
    chosen = {*((f,) for f in flags), *itertools.combinations(flags, 2), tuple(flags)} - {()}
    settings = [{**values, **{f: 1 - values[f] for f in some}} for some in sorted(chosen)]
    return [s for s in settings if _runs(workload, s)]
