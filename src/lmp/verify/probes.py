"""Draws points at which two analyses are compared without execution: sizes of every magnitude, and edges of literals.

A point has a value for each variable of the workload and for each element size. The same analyses get the same points.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmp.formula import Node, Num, parse, parse_condition, walk
from lmp.records import UNIVERSAL, ModuleAnalysis
from lmp.workload.base import RUNTIME

PROBES = 4000
"""Number of points."""

MOST_BATCH, MOST_TOKENS = 1 << 12, 1 << 20

MOST_LITERALS = 60
"""Largest number of literals whose edges are drawn systematically; more are drawn at random."""

MOST_WIDTH = 300
"""Largest number of bytes of an element that is drawn."""

MOST_PAIRS = 3000
"""Largest number of points with two sizes at edges."""

SETTINGS = 96
"""Number of drawn combinations of config values."""

ELEMENT_SIZES = ((2, 2, 2), (1, 2, 2), (4, 4, 4), (2, 4, 1), (3, 5, 7), (13, 1, 6), (1, 9, 4), (16, 3, 10))

Point = dict[str, int]


@dataclass(frozen=True)
class Space:
    """Variables of a workload, and what is known of their values."""

    own: Mapping[str, int]
    """The config's own values, with the layers that are run."""
    known: Sequence[Mapping[str, int]] = ()
    """Other config values at which the module runs."""
    flags: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    """Variables that keep their values: numbers of layers."""
    call_sizes: tuple[str, ...] = ()
    """Sizes of the inputs beside batch and tokens, such as the encoder's tokens."""
    has_cache: bool = False
    fewest_tokens: int = 1
    most_batch: int = MOST_BATCH
    most_tokens: int = MOST_TOKENS


def formula_literals(analyses: Iterable[ModuleAnalysis]) -> list[int]:
    """The integers from 2 in formulas and assumptions, smallest first."""
    found: set[int] = set()
    for analysis in analyses:
        nodes: list[Node] = [parse_condition(text) for text in analysis.assumptions]
        for kernel in analysis.kernels:
            texts = (kernel.flops, kernel.memory_access.read, kernel.memory_access.write, str(kernel.repeat))
            nodes += map(parse, dict.fromkeys(texts))
        for node in nodes:
            numbers = (n.value for n in walk(node) if isinstance(n, Num))
            found |= {abs(n) for n in numbers if isinstance(n, int) and abs(n) > 1}
    return sorted(found)


def edges(number: int) -> list[int]:
    """Sizes around a literal and around its multiples."""
    return [n for n in (number, number + 1, number - 1, 2 * number, 2 * number + 1, 3 * number - 1) if n > 0]


def draw(space: Space, numbers: Sequence[int], seed: bytes, special: Sequence[int] = ()) -> list[Point]:
    """Points over all sizes of the call and over config values, those at the config's own values first.

    ``special``: literals that only one of two analyses has. Pairs of sizes at their edges are drawn too.
    """
    drawing = Drawing(space, numbers, seed)
    return [*drawing.points(PROBES), *drawing.pairs(special)]


def seed_of(analyses: Iterable[ModuleAnalysis]) -> bytes:
    """Hash of the formulas: a changed formula gets other points."""
    stated: Any = {"kernels": {"__all__": {"line", "flops", "memory_access", "repeat"}}, "assumptions": True}
    texts = [analysis.model_dump_json(include=stated) for analysis in analyses]
    return hashlib.sha256("\n".join(texts).encode()).digest()


class Drawing:
    """Random values of a space; edges of ``numbers`` are likely."""

    def __init__(self, space: Space, numbers: Sequence[int], seed: bytes) -> None:
        self.space, self.random = space, random.Random(seed)
        self.numbers = [n for n in numbers if n <= space.most_tokens]
        self.large = [n for n in numbers if n > space.most_tokens]
        """Literals beyond any number of tokens: config values may be as large."""
        kept = {*RUNTIME, *space.fixed, *space.flags, *space.call_sizes}
        self.configured = [n for n in space.own if n not in kept]
        """Config sizes."""
        configured = {v for n, v in space.own.items() if n in self.configured and 1 < v <= space.most_tokens}
        self.around = sorted({e for n in {*self.numbers, *configured} for e in edges(n)}) or [2]

    def points(self, count: int) -> Iterator[Point]:
        own, known = dict(self.space.own), [dict(setting) for setting in self.space.known]
        systematic = [self._completed({**own, **sizes}) for sizes in self._systematic()]
        yield from systematic
        left = max(count - len(systematic), count // 2)
        for _ in range(left // 3):
            yield self._completed({**own, **self.call()})
        for index in range(left // 3 if known else 0):
            yield self._completed({**known[index % len(known)], **self.call()})
        starts = [own, *known]
        drawn = [*self._settings_at_edges(own), *(self.setting(self.random.choice(starts)) for _ in range(SETTINGS))]
        for index in range(max(left // 3, 2 * len(drawn))):
            yield self._completed({**drawn[index % len(drawn)], **self.call(small=index % 2 == 0)})

    def pairs(self, special: Sequence[int]) -> Iterator[Point]:
        """Points with two variables at edges of special literals, and element sizes at them."""
        own, names = dict(self.space.own), [*RUNTIME[: 3 if self.space.has_cache else 2], *self.space.call_sizes]
        near = sorted({e for n in special for e in (n - 1, n, n + 1) if 0 < e <= MOST_TOKENS})
        sums = {a * k + b for a in special for b in special for k in (1, 2, 5)} | {2 * n + 1 for n in special}
        call = {"batch_size": 2, "seq_len": 3, "cache_len": 0}
        values = [*near, *sorted(n for n in sums - {*near} if 0 < n <= MOST_TOKENS)]
        found = [{**own, **call, name: value} for name in (*names, *self.configured) for value in values]
        for one, other in itertools.combinations((*names, *self.configured), 2):
            both = itertools.product(near, near)
            found += [{**own, **call, one: a, other: b} for a, b in both if one in names or a != own[one]]
        self.random.shuffle(found)
        yield from map(self._completed, found[:MOST_PAIRS])
        for edge in near:
            for index in range(len(UNIVERSAL)):
                sizes = [2, 2, 2]
                sizes[index] = edge
                yield {**own, **self.call(small=True), **dict(zip(UNIVERSAL, sizes, strict=True))}

    # -- sizes of the call -------------------------------------------------------------------------------------------

    def _systematic(self) -> Iterator[Point]:
        """For each edge of a literal: each size of the call at it, and their total, in each phase."""
        numbers = self.numbers
        if len(numbers) > MOST_LITERALS:
            numbers = sorted(self.random.sample(numbers, MOST_LITERALS))
        cached = (0, 3) if self.space.has_cache else (0,)
        for edge in sorted({edge for number in numbers for edge in edges(number)[:4]}):
            for cache in cached:
                yield {"batch_size": edge, "seq_len": 3, "cache_len": cache}
                yield {"batch_size": 2, "seq_len": edge, "cache_len": cache}
                yield {"batch_size": 1, "seq_len": edge, "cache_len": cache}
            if self.space.has_cache:
                yield {"batch_size": 2, "seq_len": 1, "cache_len": edge}
                yield {"batch_size": 2, "seq_len": 3, "cache_len": edge}
                if edge > 1:
                    yield {"batch_size": 1, "seq_len": 1, "cache_len": edge - 1}
                if edge > 4:
                    yield {"batch_size": 3, "seq_len": 4, "cache_len": edge - 4}
            for name in self.space.call_sizes:
                yield {"batch_size": 2, "seq_len": 3, "cache_len": 0, name: edge}

    def call(self, small: bool = False) -> Point:
        """Sizes of one call, log-uniform or at edges, in a random phase."""
        choose, space = self.random.random, self.space
        few, tokens = choose() < 0.6, 64 if small else space.most_tokens
        batch = 1 if choose() < 0.3 else self.size(8 if small or few else space.most_batch)
        new = 1 if choose() < 0.3 else self.size(tokens)
        cached = 0 if not space.has_cache or choose() < 0.4 else self.size(tokens)
        if not small and cached and choose() < 0.3:  # the total at an edge
            total = self.size(tokens)
            new, cached = (new, total - new) if new < total else (1, total)
        found = {"batch_size": batch, "seq_len": max(new, space.fewest_tokens), "cache_len": cached}
        return {**found, **{name: self.size(tokens) for name in space.call_sizes}}

    def size(self, most: int) -> int:
        """A size up to ``most``: half of them at the edge of a literal or of a config value."""
        near = [edge for edge in self.around if edge <= most]
        if near and self.random.random() < 0.5:
            return self.random.choice(near)
        return max(1, round(most ** self.random.random()))

    def _completed(self, values: Point) -> Point:
        """The point with element sizes."""
        sizes = self.random.choice(ELEMENT_SIZES)
        if self.random.random() < 0.2:
            sizes = (self._width(), self._width(), self._width())
        least = self.space.fewest_tokens
        values = {**values, "seq_len": max(values["seq_len"], least)}
        return {**values, **dict(zip(UNIVERSAL, sizes, strict=True))}

    def _width(self) -> int:
        """Bytes of an element: a literal's edge, or up to some dozens."""
        near = [edge for edge in self.around if edge <= MOST_WIDTH]
        return self.random.choice(near) if near and self.random.random() < 0.6 else self.random.randint(1, 40)

    # -- config values -----------------------------------------------------------------------------------------------

    def _settings_at_edges(self, own: Point) -> Iterator[Point]:
        """Each config size at 1, at half, twice, and equal to each other one; each flag switched."""
        for name in sorted(self.space.flags):
            yield {**own, name: 1 - own[name]}
        for name in self.configured:
            others = {own[n] for n in self.configured}
            values = {1, own[name] // 2, own[name] * 2, own[name] + 1, *others, *self.numbers[:8]} - {own[name]}
            values |= {e for n in self.large[:8] for e in (n - 1, n, n + 1)}
            yield from ({**own, name: value} for value in sorted(values) if value > 0)

    def setting(self, start: Mapping[str, int]) -> Point:
        """Config values with some of them changed: to 1, to one another's, to multiples, divisors and odd numbers."""
        found = dict(start)
        if not self.configured:
            return found
        for name in self.random.sample(self.configured, min(len(self.configured), self.random.randint(1, 4))):
            before, other = found[name], found[self.random.choice(self.configured)]
            options = [1, other, before * 2, before * 3, before // 2, before + 1, before - 1, 2 * other, before | 1]
            options += [self.random.choice(self.around), self.random.randint(1, 12)]
            found[name] = max(1, self.random.choice(options))
        for name in sorted(self.space.flags):
            if self.random.random() < 0.25:
                found[name] = 1 - found[name]
        return found
