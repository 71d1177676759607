"""Points to verify at: sizes that no formula was derived from, in every phase, at other config values too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from lmp.workload.base import CHUNKED, Workload, fewest_layers, refusal, refused_by

FACTORS = (8, 2, 4, 16)
"""Powers of two: they change the sizes apart and keep most of what divides."""


LONG = (2, 150, 0)
"""A prefill of more tokens than a small chunk or window; a model may have fewer positions."""

LAYERED = {
    "prefill": (2, 4, 0),
    "prefill of one sequence": (1, 6, 0),
    "decode": (2, 1, 8),
    "decode of one sequence": (1, 1, 12),
    "chunked prefill": (2, 3, 5),
    "chunked prefill of one sequence": (1, 4, 3),
}
"""Where a model is looked at with more layers."""

MAY_BE_REFUSED = LONG_PREFILL, MORE = "long prefill", "more layers"
"""How labels end of points at which the config's own model need not run."""

OTHER_RATIOS, OTHER_CONFIG = "other ratios", "other config"
"""How points are labelled whose config values are lmp's own inventions."""

OTHER_SIZES, OTHER_FLAGS = "other sizes", "flags changed"
"""The same, of a module without tokens."""

MOST_SHARED = 2
"""Counts that are looked at as 1."""

MORE_LAYERS = 3
"""So many more than the fewest that show what each does are looked at, to see how often it is done."""

MOST_COUNTED = 256
"""Config values up to this are taken for counts (heads, experts, groups), larger ones for widths."""

WIDTHS = ("size", "dim", "rank", "embd", "embeddings", "positions", "window", "model", "ff", "inner")
"""How names of widths end, whatever their values."""


def held_out_points(workload: Workload, held: Collection[str] = ()) -> list[tuple[str, dict[str, int]]]:
    """Labelled values of all variables: the workload's own, and ones in which as many as possible are changed.

    Those that are ``held`` keep their values.
    """
    own = dict(workload.hints)
    other = changed(workload, held)
    if not workload.has_cache:
        # Without tokens there is no first one: what changes is how many pictures or recordings there are. A model that
        # pools its tokens takes no single one, and what is pooled is to be several and no whole number of groups.
        few = workload.fewest_tokens
        shapes = [(3, 12 * few - 1, 0), (1, 9 * few, 0), (4, few, 0) if workload.has_tokens else (4, 7, 0)]
        labelled = [("", own, shape) for shape in shapes]
        if workload.has_tokens:
            labelled.append((LONG_PREFILL, own, LONG))
        layered = [(2, 4 * few, 0), (1, 5 * few, 0), *([(2, few, 0)] if workload.has_tokens else [])]
        labelled += [(label, values, (2, 4 * few, 0)) for label, values in _with_all_layers(workload)]
        labelled += [(label, values, s) for label, values in _with_more_layers(workload) for s in layered]
        # Groups may be larger there, and so many tokens fewer than one of them.
        labelled += [(OTHER_SIZES, other, s if _runs(workload, other, s) else (s[0], 3 * few, 0)) for s in shapes]
        labelled += [(OTHER_FLAGS, values, (3, 9 * few, 0)) for values in _flag_settings(workload, other)]
        return [_point(*each) for each in labelled]
    points = [
        _point("prefill", own, (3, 11, 0)),
        _point("decode", own, (4, 1, 13)),
        _point("chunked prefill", own, (2, 6, 9)),
        _point("prefill of one sequence", own, (1, 17, 0)),
        _point("first token", own, (3, 1, 0)),
        _point(LONG_PREFILL, own, LONG),
        _point(f"prefill, {OTHER_CONFIG}", other, (2, 9, 0)),
        _point(f"decode, {OTHER_CONFIG}", other, (1, 1, 23)),
        _point(f"chunked prefill, {OTHER_CONFIG}", other, (3, 8, 19)),
    ]
    points += [_point(f"prefill, {label}", values, (2, 4, 0)) for label, values in _with_all_layers(workload)]
    # What runs in one phase alone runs in each layer, or once: only more layers tell.
    points += [
        _point(f"{phase}, {label}", values, shape)
        for label, values in _with_more_layers(workload)
        for phase, shape in LAYERED.items()
    ]
    equal = equalised(workload, held)
    points += [
        _point(f"chunked prefill, {OTHER_RATIOS}", equal, (2, 7, 15)),
        _point(f"prefill, {OTHER_RATIOS}", equal, (2, 10, 0)),
        _point(f"decode, {OTHER_RATIOS}", equal, (2, 1, 15)),
    ]
    ones = one_for_all(workload, held)
    points += [_point(f"chunked prefill, one {name}, {OTHER_RATIOS}", values, (2, 5, 8)) for name, values in ones]
    window_name = next((n for n in own if "window" in n or "chunk" in n), None)
    if window_name is not None and own[window_name] > 1:
        window = own[window_name]
        # Ratios decide on paths there too: heads that share keys and values are repeated, or need not be.
        for name, values in (("", equal), *((f"one {name}, ", values) for name, values in ones)):
            label = f"chunked prefill beyond the window, {name}{OTHER_RATIOS}"
            points.append(_point(label, values, (2, 4, values[window_name] + 7)))
        for label, values in _with_more_layers(workload):
            points.append(_point(f"decode beyond the window, {label}", values, (2, 1, window + 17)))
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
    refused = tuple(refused_by(workload))
    return [(label, values) for label, values in points if not refused or not label.startswith(refused)]


def _with_all_layers(workload: Workload) -> Iterator[tuple[str, dict[str, int]]]:
    """The config's own values with all layers, where one layer does not stand for all of them.

    Kinds of layers may come in any order: what holds for the first ones need not hold for all.
    """
    own, full = workload.hints, workload.full_layers
    if any(own[name] > 1 for name in full) or getattr(workload, "by_place", False):
        yield "all layers", {**own, **full}


def _with_more_layers(workload: Workload) -> Iterator[tuple[str, dict[str, int]]]:
    """The config's own values with a few layers more than one of each kind."""
    own, full = workload.hints, workload.full_layers
    more = {n: min(layers, fewest_layers(workload, n) + MORE_LAYERS) for n, layers in full.items()}
    if full:
        yield MORE, {**own, **more}


def is_made_up(label: str) -> bool:
    """Whether a point's config values are lmp's own inventions, by its label or a text that begins with it."""
    return any(part in label for part in (OTHER_RATIOS, OTHER_CONFIG, OTHER_SIZES, OTHER_FLAGS))


def _point(label: str, values: dict[str, int], shape: tuple[int, int, int]) -> tuple[str, dict[str, int]]:
    return label, {**values, "batch_size": shape[0], "seq_len": shape[1], "cache_len": shape[2]}


def changed(workload: Workload, held: Collection[str] = (), turn: int = 0) -> dict[str, int]:
    """Every variable times a factor of its own, as far as the module still runs and what divided still divides.

    ``turn`` gives the factors to others.
    """
    own = {n: v for n, v in workload.hints.items() if n not in workload.flags}
    # Sizes that are equal by default need not stay equal: the first of two must stay a multiple of the second.
    names = list(own)
    divides = [
        (a, b)
        for a in own
        for b in own
        if own[b] > 1 and own[a] % own[b] == 0 and (own[a] != own[b] or names.index(a) < names.index(b))
    ]
    values = dict(workload.hints)
    for index, (name, before) in enumerate(own.items()):
        if name in held:
            continue
        factor = FACTORS[(index + turn) % len(FACTORS)]
        # A number of layers costs time and shows nothing more when it is multiplied.
        tries = (
            (before + 1,) if name in workload.full_layers else (before * factor, before * 2, before // 2, before // 4)
        )
        # Sizes that are equal may have to stay equal: where one cannot be changed alone, two are.
        equal = [n for n, v in own.items() if v == before and n not in held and n not in workload.full_layers]
        for value, other in [(v, n) for n in (name, *equal) for v in tries]:
            tried = {**values, name: value, other: value}
            if (
                # 1 is a case of its own, and an assumption where it costs otherwise.
                value > min(before - 1, 1)
                and (other == name or values[other] == before)
                and all(tried[a] % tried[b] == 0 for a, b in divides if {name, other} & {a, b})
                and _runs(workload, tried)
            ):
                values = tried
                break
    return values


def equalised(workload: Workload, held: Collection[str] = ()) -> dict[str, int]:
    """Counts that divide another one by default equal to it, and equal ones apart, where the module still runs.

    Heads that share keys and values, and experts that are all chosen, are paths of their own.
    """
    values = dict(workload.hints)
    counts = _counts(workload, held)
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


def one_for_all(workload: Workload, held: Collection[str] = ()) -> list[tuple[str, dict[str, int]]]:
    """Counts that divide another one by default, each at 1 by itself where the module runs so: as all heads that share
    one head's keys and values.
    """
    counts = _counts(workload, held)
    shared = [s for s, v in counts.items() if any(above > v and above % v == 0 for above in counts.values())]
    settings = [(name, {**workload.hints, name: 1}) for name in shared]
    return [(name, values) for name, values in settings if _runs(workload, values)][:MOST_SHARED]


def _counts(workload: Workload, held: Collection[str]) -> dict[str, int]:
    """Heads, experts and groups: values that are no widths, flags or numbers of layers, and not held."""
    fixed = {*workload.flags, *workload.full_layers, *held}
    counts = {n: v for n, v in workload.hints.items() if 1 < v <= MOST_COUNTED and not n.endswith(WIDTHS)}
    return {n: v for n, v in counts.items() if n not in fixed}


Holds = Callable[[Mapping[str, int]], bool | None]
"""Whether formulas are what is executed at a point; None where nothing runs, or nothing could be judged."""


def what_to_hold(
    own: Mapping[str, int], points: Iterable[Mapping[str, int]], names: Collection[str], holds: Holds
) -> dict[str, int] | None:
    """The config's ``own`` values, of ``names``, with which no point differs any more: nothing is claimed of others.

    Each point that differs is looked at again with the values that are held. None where ``names`` are not what makes it
    differ.
    """
    held: dict[str, int] = {}
    for point in points:
        if holds(point) is False and not (held and holds({**point, **held})):
            more = _enough_to_differ(own, {**point, **held}, names, holds)
            if more is None:
                return None
            held |= more
    return held


def _enough_to_differ(
    own: Mapping[str, int], point: Mapping[str, int], names: Collection[str], holds: Holds
) -> dict[str, int] | None:
    """Those of ``names`` that differ when they alone are as at the point, if it holds without them; else all that it
    changes. None where it does not hold without those either."""
    changed = {n: own[n] for n in names if point[n] != own[n]}
    alone = {n: v for n, v in changed.items() if holds({**point, **own, n: point[n]}) is False}
    return next((held for held in (alone, changed) if held and holds({**point, **held})), None)


def drawn_points(
    own: dict[str, int], other: dict[str, int], digest: bytes, has_cache: bool, long: bool
) -> list[tuple[str, dict[str, int]]]:
    """Points in each phase at sizes that ``digest`` draws, at the config's ``own`` values and at ``other`` ones.

    Whoever hands in formulas is told the points of `held_out_points`; these change with every change of the formulas.
    ``long``: also one of some thousand tokens.
    """
    batch, new, cached, many = (digest[i] << 8 | digest[i + 1] for i in range(0, 8, 2))
    # Without a loop over them, many tokens take no more time than few: nothing is computed on the meta device.
    batch, new, cached = 5 + batch % 60, 19 + new % (400 if long else 40), 25 + cached % (8000 if long else 60)
    many = 1003 + many % 60_000
    shapes = [(own, (batch, new, 0)), (other, (batch, new, cached if has_cache else 0))]
    if has_cache:
        shapes.append((own, (batch, 1, cached)))
    if long:
        shapes.append((own, (2, many, 0)))
    return [_point("drawn", values, shape) for values, shape in shapes]


def with_layers(workload: Workload, values: dict[str, int], in_order: bool, full: bool) -> dict[str, int]:
    """The same point with all layers, or with at least as many as it takes for them to stand as in the model."""
    if full:
        return {**values, **workload.full_layers}
    few = workload.hints
    more = {n: m + values[n] - few[n] for n, m in workload.in_order.items() if values[n] < m}
    return {**values, **more} if in_order else values


def structural(workload: Workload, points: Iterable[dict[str, int]]) -> dict[str, int]:
    """Variables that decide which modules there are, among those that any of the points changes, with their values.

    Numbers of layers are none: a model has the same kinds of layers with more of them.
    """
    own = workload.hints
    other = {n: p[n] for p in points for n in own if p[n] != own[n] and n not in workload.full_layers}
    modules = _modules(workload, own)
    return {n: own[n] for n, value in other.items() if _modules(workload, {**own, n: value}) not in (None, modules)}


def _modules(workload: Workload, values: dict[str, int]) -> list[tuple[str, str]] | None:
    """Path and class of each module; None where it cannot be built."""
    try:
        return [(path, type(module).__qualname__) for path, module in workload.build(values).named_modules()]
    except Exception:
        return None


def _runs(workload: Workload, values: dict[str, int], shape: tuple[int, int, int] | None = None) -> bool:
    batch, new, cached = shape or (2, 3 * workload.fewest_tokens, 4)
    if CHUNKED in refused_by(workload) and new > 1:
        cached = 0
    point = {**values, "batch_size": batch, "seq_len": new, "cache_len": cached if workload.has_cache else 0}
    return refusal(workload, point) is None


def _flag_settings(workload: Workload, values: dict[str, int]) -> list[dict[str, int]]:
    """Each flag switched by itself, each pair, and all of them, where the module runs like that."""
    flags = sorted(workload.flags)
    chosen = {*((f,) for f in flags), *itertools.combinations(flags, 2), tuple(flags)} - {()}
    settings = [{**values, **{f: 1 - values[f] for f in some}} for some in sorted(chosen)]
    return [s for s in settings if _runs(workload, s)]
