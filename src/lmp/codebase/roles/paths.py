"""The nesting that runs a model, as a reader needs it.

It is the nearest way from an entry point to each loop. From the loop it leads to attention, sampling, the writing of
the cache and the building of a batch, or to a step of training.

A call that may lead to several functions counts once, with the one that stands for the others.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from lmp.codebase.graph.graph import Edge
from lmp.codebase.graph.records import SUPER, Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import Reading, Row, works
from lmp.codebase.roles.spine import decode_loops
from lmp.codebase.roles.words import says, split

COST = {"name": 2.0, "queue": 1.0, "inheritance": 0.5, "constructor": 4.0}
"""What an edge counts above 1, by how it was found: what is less certain is further away."""
HANDED, STARTED = 3.0, 0.5
"""What it counts that a function is handed on: below a loop, where it need not be called, and above, where it is."""
BESIDE = re.compile(
    r"(?i)(?:^|[/_. ])(?:tests?|bench\w*|eval\w*|profil\w*|warm\w*|debug\w*|experiment(?:s|al)?|export\w*|aot"
    r"|health\w*|calibrat\w*|tun(?:e|ing)\w*|spec|spec_decode|speculat\w*|draft\w*|distill\w*|dummy\w*|capture\w*|micro\w*)"
    r"(?:[/_. ]|$)"
)
"""What no run of a user passes."""
MODELS = frozenset(["model", "transformer", "lm", "gpt", "llama", "decoder"])
PARTS = frozenset(
    ["layer", "block", "attention", "attn", "mlp", "head", "vision", "audio", "encoder", "time", "series", "speech"]
)
"""Words of the outermost module of a language model, and of its parts."""
CALLED = ("forward", "__call__")
SETS_UP = re.compile(
    r"_*(?:init|load|setup|set_up|build|create|register|warm|capture|profile|export|sleep|wake|shut|stop|close|release"
    r"|dummy|validate|verify|parse|config|compile|from_)"
)
"""What sets up, tears down or tries something, and runs no model for a user."""
NEAR, NEAR_CACHE = 2.0, 5.0
MOST_HANDLERS = 2
OPERATORS = ("attention", "kv_write", "sampling")
"""What a library of kernels hands out."""
MOST_ROUNDS = 16
SERVES = frozenset(["FastAPI", "Flask", "Starlette", "Sanic", "Quart", "Application", "Blueprint", "APIRouter"])
"""What makes the object that handles requests."""
SCHEDULE = frozenset(["schedule"])
PLAYED = ("kv_cache", "scheduler", "sampling", "attention")
DRAWN, DEEPEST_DRAW = frozenset(["sample", "sampler", "sampling"]), 3
MAKES = frozenset(["new", "next", "get", "generate", "make", "build", "form"])
"""What a function is named that makes a batch."""
PHASES = frozenset(["prefill", "decode", "extend", "context", "generate"])


@dataclass(frozen=True, slots=True)
class Ways:
    """How far each function is from the nearest of a set of functions."""

    far: dict[Function, float]
    ends: Set[Function]
    calls: dict[Function, list[Edge]]
    handed: float

    def follow(self, start: Function, twins: bool = False) -> Iterator[Edge]:
        """The edges of the nearest ways from a function; with ``twins`` also those of the other phases on the way."""
        seen = {start}
        waiting = [start]
        while waiting:
            function = waiting.pop(0)
            if function in self.ends and function is not start:
                continue
            here = [edge for edge in self.calls.get(function, ()) if edge.callee in self.far]
            best = min((self.far[edge.callee] + _cost(edge, self.handed) for edge in here), default=0.0) + 1e-9
            taken = {
                edge.callee: edge
                for edge in reversed(here)
                if self.far[edge.callee] + _cost(edge, self.handed) <= best
                or (twins and split(edge.callee.name) & PHASES and edge.how != "constructor")
            }
            if any(edge.how != "callback" for edge in taken.values()):
                # What is called itself says more than what is handed on to be called.
                taken = {callee: edge for callee, edge in taken.items() if edge.how != "callback"}
            for edge in sorted(taken.values(), key=lambda each: each.line):
                yield edge
                if edge.callee not in seen:
                    seen.add(edge.callee)
                    waiting.append(edge.callee)


def _stem(file: str) -> str:
    return file.rpartition("/")[2].partition(".")[0]


def _within(edges: Iterable[Edge], reach: Set[Function]) -> list[Edge]:
    return [edge for edge in edges if edge.callee in reach]


def _far(ends: Set[Function], taken: dict[Function, list[Edge]], handed: float) -> dict[Function, float]:
    """Backwards from the ends, the nearest first."""
    callers: dict[Function, list[Edge]] = {}
    for edges in taken.values():
        for edge in edges:
            callers.setdefault(edge.callee, []).append(edge)
    far: dict[Function, float] = {}
    waiting = [(0.0, number, each) for number, each in enumerate(sorted(ends, key=lambda one: one.key))]
    number = len(waiting)
    while waiting:
        at, _, function = heapq.heappop(waiting)
        if function in far:
            continue
        far[function] = at
        for edge in callers.get(function, ()):
            if edge.caller not in far:
                number += 1
                heapq.heappush(waiting, (at + _cost(edge, handed), number, edge.caller))
    return far


def _cost(edge: Edge, handed: float) -> float:
    beside = BESIDE.search(f"{edge.callee.file} {edge.callee.qualname}") is not None
    how = handed if edge.how == "callback" else COST.get(edge.how, 0.0)
    # Below a loop no run sets anything up; above, what starts a loop does.
    sets_up = handed == HANDED and SETS_UP.match(edge.callee.name) is not None
    return 1 + how + (1.0 if edge.how == "inheritance" else 0.5) * math.log2(edge.of) / 2 + 4 * (beside or sets_up)


class Paths:
    def __init__(self, reading: Reading, rows: Iterable[Row]) -> None:
        self.reading = reading
        self.rows = list(rows)
        self.of_place: dict[tuple[str, int], list[Row]] = {}
        for row in self.rows:
            self.of_place.setdefault((row.place.file, row.place.line), []).append(row)

    # -- the graph, with one target for each call ----------------------------------------------------------------------

    @cached_property
    def sites(self) -> dict[Function, list[list[Edge]]]:
        """Of each function its calls, each with all that it may lead to."""
        found: dict[Function, list[list[Edge]]] = {}
        for function in self.reading.functions:
            sites: dict[tuple[int, str], list[Edge]] = {}
            for edge in self.reading.graph.edges[function]:
                if self.reading.is_own(edge.callee.file) and edge.callee is not function:
                    written = edge.call.written if edge.call is not None else ""
                    handed = edge.callee.name if edge.how in ("callback", "process", "queue") else ""
                    unknown = edge.how == "name" and edge.call is not None and edge.call.name == "model"
                    if unknown and self.model is not None and function.name not in CALLED:
                        # What is called ``model``, and is not known, is the model that stands for all.
                        edge = Edge(function, self.model, edge.line, "name", 1, edge.call)
                    sites.setdefault((edge.line, written + handed), []).append(edge)
            found[function] = list(sites.values())
        return found

    @cached_property
    def callers(self) -> dict[Function, set[Function]]:
        found: dict[Function, set[Function]] = {}
        for function, sites in self.sites.items():
            for edges in sites:
                for edge in edges:
                    found.setdefault(edge.callee, set()).add(function)
        return found

    def reaching(self, ends: Iterable[Function]) -> set[Function]:
        found = set(ends)
        waiting = list(found)
        while waiting:
            for caller in self.callers.get(waiting.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    waiting.append(caller)
        return found

    def ways(self, ends: Iterable[Function], handed: float = HANDED) -> Ways:
        """How far it is to the ends, from all that leads there; of each call the target that stands for all counts."""
        ends = set(ends)
        reach = self.reaching(ends)
        sites = {
            function: [leading for edges in self.sites.get(function, ()) if (leading := _within(edges, reach))]
            for function in reach
        }
        taken = {function: [self.stands_for(edges) for edges in every] for function, every in sites.items()}
        far = _far(ends, taken, handed)
        for round_ in range(MOST_ROUNDS):
            # Where those that stand for others lead round in a circle, another leads on: nearest the ends first.
            open_: list[tuple[float, Function, int, list[Edge]]] = []
            for function in sorted(reach - far.keys(), key=lambda each: each.key):
                for number, edges in enumerate(sites[function]):
                    near = [edge for edge in edges if edge.callee in far]
                    if near:
                        open_.append((min(far[edge.callee] for edge in near), function, number, near))
            if not open_:
                break
            least = min(each[0] for each in open_) if round_ < MOST_ROUNDS - 1 else math.inf
            for at, function, number, near in open_:
                if at <= least:
                    taken[function][number] = self.stands_for(near)
            far = _far(ends, taken, handed)
        return Ways(far, ends, taken, handed)

    def stands_for(self, edges: list[Edge]) -> Edge:
        """First what is no side way, then what a class itself has, then the model of reference.

        Of values that branches assign it is the last, which is left where no condition holds.
        """
        if len(edges) == 1:
            return edges[0]
        plain = all(edge.how in ("direct", "attribute", "callback") for edge in edges)

        named = [split(f"{_stem(edge.callee.file)}_{edge.callee.qualname}") for edge in edges]
        common = frozenset.intersection(*named)

        line = self.reading.graph.evaluator.line
        below = [
            line(edge.callee.owner) for edge in edges if edge.how == "inheritance" and edge.callee.owner is not None
        ]

        def order(each: tuple[int, Edge]) -> tuple[object, ...]:
            number, edge = each
            callee = edge.callee
            own = named[number] - common
            reference = not own or says(" ".join(own).replace(" ", "_"), "reference_model")
            return (
                callee is not self.model,
                BESIDE.search(f"{callee.file} {callee.qualname}") is not None,
                callee.abstract,
                edge.how == "inheritance" or not any(callee.owner in each for each in below),
                not reference,
                edge.how == "inheritance",
                -self._below_class(callee),
                len(own) if reference else 0,
                -number if plain and not callee.native else number,
            )

        return min(enumerate(edges), key=order)[1]

    def _below_class(self, function: Function) -> int:
        """How many classes build on its own: the model that others are made from stands for them."""
        if function.owner is None or function.native:
            return 0
        return len(self.reading.graph.evaluator.subclasses.get(function.owner, ()))

    # -- the model that stands for all -------------------------------------------------------------------------------

    @cached_property
    def model(self) -> Function | None:
        """How the model is called: of the outermost modules that attend, the one of reference, else the one that most
        others build on."""
        evaluator = self.reading.graph.evaluator
        attending = self.reading.attending
        found: dict[Function, tuple[object, ...]] = {}
        for of in self.reading.classes:
            named = split(of.name)
            if of.native or not named & MODELS or named & PARTS or BESIDE.search(f"{of.file} {of.qualname}"):
                continue
            run = next(filter(None, (evaluator.method(of, each) for each in CALLED)), None)
            if run is None or run.abstract or run not in attending or not self.reading.is_own(run.file):
                continue
            reference = says(f"{_stem(of.file)}_{of.name}", "reference_model")
            below = 0 if reference else len(evaluator.subclasses.get(of, ()))
            order = (not reference, -below, len(named - MODELS), of.file.count("/"), len(of.file), of.key)
            found[run] = min(order, found.get(run, order))
        around = {
            each
            for each in found
            if any(
                edge.caller in found and edge.of < 3 and edge.how != "name" and not _above(edge)
                for edge in self.reading.graph.callers.get(each, ())
            )
        }
        outer = {each: order for each, order in found.items() if each not in around} or found
        return min(outer, key=outer.__getitem__, default=None)

    # -- where a run ends ----------------------------------------------------------------------------------------------

    def _played(self, section: str, *roles: str) -> set[Function]:
        wanted = {(row.place.file, row.place.line) for row in self.rows if row.section == section and row.role in roles}
        return {each for each in self.reading.functions if each.key in wanted}

    @cached_property
    def attention(self) -> set[Function]:
        reading = self.reading
        return self._innermost({*reading.attends, *reading.starts_attention, *reading.native_attends})

    @cached_property
    def modules(self) -> set[Function]:
        """Modules below the model that are named for attention."""
        under = self._under(self.model) if self.model is not None else set()
        return {
            each
            for each in under
            if each.name in CALLED and each.owner is not None and says(each.owner.name, "attention")
        }

    @cached_property
    def attention_below(self) -> set[Function]:
        """Where the model attends; where it is lost on the way, the innermost module of that name."""
        under = self._under(self.model) if self.model is not None else set()
        if not under or under & self.attention:
            return self.attention
        return self._innermost(self.modules) or self.attention

    @cached_property
    def sampling(self) -> set[Function]:
        drawn = {
            each
            for each in self._played("sampling", "sample")
            if split(each.name) & {"sample", "sampling"} and works(each)
        }
        return self._innermost({*self.reading.samples, *drawn})

    def _innermost(self, ends: set[Function]) -> set[Function]:
        """Without those that hand on to just one other of them."""

        def handed(each: Function) -> set[Function]:
            return {edge.callee for edges in self.sites.get(each, ()) for edge in edges if edge.callee in ends}

        return {each for each in ends if len(handed(each)) != 1} or ends

    @cached_property
    def cache(self) -> set[Function]:
        moved = {each for each in self._played("kv_cache", "update") if says(each.name, "kv_write")}
        return moved or {each for each in self._played("kv_cache", "update") if each.writes}

    @cached_property
    def batches(self) -> set[Function]:
        return {
            each
            for each in self._played("scheduler", "batch", "admission", "chunking")
            if says(each.qualname, "scheduler")
        }

    @cached_property
    def places(self) -> set[Function]:
        return self._innermost(self._played("kv_cache", "allocate"))

    @cached_property
    def training(self) -> set[Function]:
        return {
            each
            for each in self.reading.functions
            if not each.native and {call.name for call in each.calls} & operators.TRAINS
        }

    # -- the ways ------------------------------------------------------------------------------------------------------

    def edges(self) -> list[Edge]:
        found: dict[tuple[tuple[str, int], tuple[str, int]], Edge] = {}
        for edge in self._all():
            found.setdefault((edge.caller.key, edge.callee.key), edge)
        on = dict.fromkeys(each for edge in found.values() for each in (edge.caller, edge.callee))
        for edge in self._steps(on):
            found.setdefault((edge.caller.key, edge.callee.key), edge)
        return list(found.values())

    def _steps(self, on: Iterable[Function]) -> Iterator[Edge]:
        """What the functions on the ways call besides.

        That is what plays a part and leads on, each step of an endless loop that does, and what draws the token below
        where sampling begins.
        """
        parts = {(row.place.file, row.place.line) for row in self.rows if row.section in PLAYED}
        key = self.reaching({*self.attention, *self.sampling, *self.cache, *self.schedules, *self.places})
        for function in on:
            for edge in self._run(function):
                again = function.endless and edge.call is not None and edge.call.loop > 0
                if edge.callee in key and (again or edge.callee.key in parts):
                    yield edge
        waiting = [(each, 0) for each in on if each in self.sampling]
        seen = {each for each, _ in waiting}
        while waiting:
            function, depth = waiting.pop(0)
            for edge in self._run(function):
                if edge.callee not in seen and depth < DEEPEST_DRAW and split(edge.callee.qualname) & DRAWN:
                    seen.add(edge.callee)
                    yield edge
                    waiting.append((edge.callee, depth + 1))

    def _run(self, function: Function) -> Iterator[Edge]:
        """Its calls, without what sets up or stands beside."""
        for edges in self.sites.get(function, ()):
            edge = self.stands_for(edges)
            callee = edge.callee
            aside = BESIDE.search(f"{callee.file} {callee.qualname}") or SETS_UP.match(callee.name)
            if edge.how != "constructor" and not aside:
                yield edge

    def _all(self) -> Iterator[Edge]:
        for loop, trains in self.loops:
            if not loop.native:
                # What leads to a loop of C++ is set up by callbacks that are not followed.
                yield from self._to(loop)
            yield from self._below(loop, trains)
            if loop in self.scheduling:
                yield from self.ways(self.schedules).follow(loop)
        if all(trains for _, trains in self.loops):
            # Nothing decodes: what is handed out are operators, each with its way to a kernel.
            kernels = {each for each in self.reading.functions if each.key in self.reading.kernels}
            ways = self.ways(kernels)
            for each in self.operators if kernels else ():
                yield from ways.follow(each)

    @cached_property
    def entries(self) -> list[tuple[Row, Function]]:
        """Entry points with their functions; of a class its public methods."""
        functions = {each.key: each for each in self.reading.functions}
        classes = {each.key: each for each in self.reading.classes}
        found: list[tuple[Row, Function]] = []
        for row in self.rows:
            key = (row.place.file, row.place.line)
            if row.section != "entry_points":
                continue
            if key in functions:
                found.append((row, functions[key]))
            elif key in classes:
                methods = classes[key].methods.items()
                found += [(row, each) for name, each in methods if not name.startswith("_") or name == "__call__"]
        return found

    @cached_property
    def loops(self) -> list[tuple[Function, bool]]:
        """The best loop that decodes and the best that trains, each with whether it trains."""
        every = [each for each in decode_loops(self.reading) if not BESIDE.search(f"{each.file} {each.qualname}")]
        draws, trains = self.ways(self.sampling).far, self.ways(self.training).far
        every_decode = [each for each in every if each in draws and draws[each] < trains.get(each, math.inf)]
        decode = [each for each in every_decode if not each.native]
        started = {each for _, each in self.entries}
        # A script that decodes in its own loop shows the shortest run.
        scripts = [each for each in decode[1:] if each in started and each.owner is None]
        far = self.ways(self.sampling).far
        native = sorted(
            (each for each in every_decode if each.native), key=lambda each: (far.get(each, 99.0), each.key)
        )
        found = dict.fromkeys(
            (*(self.around or self.hubs or decode[:1]), *self.scheduling, *scripts[:1], *native[:1]), False
        )
        far = self.ways(self.training).far
        train = [each for each in every if each in far]
        nearest = min((far[each] for each in train), default=0.0)
        # What starts a training far away is a program around it.
        found.update(dict.fromkeys([each for each in train if far[each] <= nearest + NEAR][:1], True))
        return list(found.items())

    @cached_property
    def hubs(self) -> list[Function]:
        """Where a run parts: the function nearest to both the model and sampling."""
        if self.model is None:
            return []
        below = {self.model, *self._under(self.model)}
        first = self._between([self.model], self.sampling, below)
        return [first] if first is not None else []

    @cached_property
    def scheduling(self) -> list[Function]:
        """The loop nearest to what makes a batch."""
        return self._endless(self.schedules) if self.hubs else []

    @cached_property
    def schedules(self) -> set[Function]:
        """What makes a batch: named by that alone, else by the making and by the batch."""
        played = self._played("scheduler", "batch", "chunking", "admission", "preemption")
        plain = {each for each in played if split(each.name) == SCHEDULE}
        found = plain or {each for each in played if "batch" in split(each.name) and split(each.name) & MAKES}
        return self._innermost(found)

    def _endless(self, ends: Iterable[Function]) -> list[Function]:
        ends = set(ends)
        far = self.ways(ends, STARTED).far
        every = [
            each
            for each in far
            if each.endless
            and each not in ends
            and not each.native
            and not BESIDE.search(f"{each.file} {each.qualname}")
        ]
        return sorted(every, key=lambda each: (far[each], each.key))[:1]

    @cached_property
    def around(self) -> list[Function]:
        """The loop that runs the model again and again: where a run parts, or the nearest loop around that."""
        for hub in self.hubs[:1]:
            if hub.endless:
                return [hub]
            return self._endless([hub])
        return []

    def _between(self, one: Iterable[Function], other: Set[Function], outside: Set[Function]) -> Function | None:
        near, far = self.ways(one).far, self.ways(other).far
        return min(
            (
                each
                for each in near
                if each in far
                and each not in outside
                and each.name not in CALLED
                and not BESIDE.search(f"{each.file} {each.qualname}")
            ),
            key=lambda each: (near[each] + far[each], each.key),
            default=None,
        )

    def _under(self, function: Function) -> set[Function]:
        found: set[Function] = set()
        waiting = [function]
        while waiting:
            for edges in self.sites.get(waiting.pop(), ()):
                callee = self.stands_for(edges).callee
                if callee not in found:
                    found.add(callee)
                    waiting.append(callee)
        return found

    def _to(self, loop: Function) -> Iterator[Edge]:
        """From the nearest entry point; of servers also from handlers of requests to the loop or to what queues."""
        ways = self.ways([loop], STARTED)
        near = sorted(
            (
                row.role == "library",
                BESIDE.search(row.place.file) is not None,
                each.file != loop.file,
                ways.far[each],
                each.key,
            )
            for row, each in self.entries
            if each in ways.far and not _handles(row)
        )
        by_key = {each.key: each for _, each in self.entries}
        for *_, key in near[:1]:
            yield from ways.follow(by_key[key])
        queues = {each for each in self._played("scheduler", "queue") if each.owner is loop.owner is not None}
        queued = self.ways([loop, *queues], STARTED)
        handlers = sorted(
            (queued.far[each], each.key)
            for row, each in self.entries
            if _handles(row) and each in queued.far and not BESIDE.search(each.name)
        )
        for _, key in handlers[:MOST_HANDLERS]:
            yield from queued.follow(by_key[key])
        if handlers:
            served = self.ways(each for each in self.reading.functions if _makes_app(each))
            mains = [each for row, each in self.entries if each in served.far and row.role in ("server", "cli")]
            for each in mains[:1]:
                yield from served.follow(each)

    def _below(self, loop: Function, trains: bool) -> Iterator[Edge]:
        on: dict[Function, None] = {loop: None}
        if trains:
            ways = self.ways(self.training)
            waiting = [loop]
            begun: set[Function] = set()
            while waiting:
                start = waiting.pop()
                if start in begun:
                    continue
                begun.add(start)
                below = list(ways.follow(start))
                here = dict.fromkeys((*on, start, *(edge.callee for edge in below)))
                yield from below
                for function in here:
                    for edges in self.sites[function]:
                        edge = self.stands_for(edges)
                        again = edge.call is not None and edge.call.loop > 0
                        if function is loop and not again:
                            continue
                        if _is_step(edge.callee) and edge.how not in ("constructor", "callback"):
                            yield edge
                            if again and edge.callee in ways.far and edge.callee not in here:
                                waiting.append(edge.callee)
                on.update(here)
        if self.model is not None and self.model is not loop:
            ways = self.ways([self.model])
            far = [ways.far[each] for each in on if each in ways.far]
            for start in [each for each in on if each in ways.far and ways.far[each] == min(far)]:
                for edge in ways.follow(start, True):
                    on[edge.callee] = None
                    yield edge
        starts = [self.model] if self.model in on else list(on)
        if self.model in on and self.modules:
            # A model attends in its module of that name; what else leads to attention stands beside.
            inner = list(self.ways(self.modules).follow(self.model, True))
            on.update(dict.fromkeys(edge.callee for edge in inner))
            yield from inner
            starts = [each for each in on if each in self.modules] or starts
        stations = [(self.attention_below, True), (self.sampling, False)]
        for ends, twins in stations[:1] if trains else stations:
            ways = self.ways(ends)
            if ends is self.sampling:
                starts = list(on)
            far = [ways.far[each] for each in starts if each in ways.far]
            for start in starts:
                if start in ways.far and (not trains or ways.far[start] == min(far)):
                    for edge in ways.follow(start, twins):
                        on[edge.callee] = None
                        yield edge
        # The cache is written where attention is computed: from the nearest function on the way there.
        ways = self.ways(self.cache)
        nearest = min((ways.far[each] for each in on if each in ways.far), default=math.inf)
        if nearest <= NEAR_CACHE:
            for function in list(on):
                if ways.far.get(function) == nearest:
                    yield from ways.follow(function)
        if not trains:
            for ends in (self.batches, self.places):
                ways = self.ways(ends)
                nearest = min((ways.far[each] for each in on if each in ways.far), default=math.inf)
                for function in list(on) if nearest <= NEAR_CACHE else ():
                    if ways.far.get(function) == nearest:
                        for edge in ways.follow(function):
                            on[edge.callee] = None
                            yield edge
            yield from self._beside(loop, on)

    def _beside(self, loop: Function, on: Iterable[Function]) -> Iterator[Edge]:
        """What the functions of a run ask on their way: for a batch, for places in the cache."""
        batches = self._played("scheduler", "batch", "preemption", "admission", "chunking")
        places = self._played("kv_cache", "allocate")
        found = self.ways(self._innermost(places))
        for function in on:
            asked = [self.stands_for(edges) for edges in self.sites[function]]
            other = [edge for edge in asked if edge.callee.owner is not function.owner or edge.callee.owner is None]
            if function.owner is loop.owner:
                yield from (each for each in other if each.callee in batches and says(each.callee.name, "scheduler"))
            for edge in [each for each in other if each.callee in places][:1]:
                yield edge
                yield from found.follow(edge.callee)

    @cached_property
    def operators(self) -> list[Function]:
        """Public functions, and public methods of classes, that attend, sample or fill the cache."""
        return [
            each
            for row, each in self.entries
            if row.role == "library"
            and any(says(name, part) for name in (row.symbol, each.qualname) for part in OPERATORS)
            and not BESIDE.search(f"{each.file} {each.qualname}")
            and not SETS_UP.match(each.name)
        ]


def _makes_app(function: Function) -> bool:
    return not function.native and any(call.name in SERVES for call in function.calls)


def _above(edge: Edge) -> bool:
    """Whether a method calls that of a class above its own."""
    return edge.call is not None and any(SUPER in chain for chain in edge.call.callee)


def _is_step(function: Function) -> bool:
    owner = function.owner.name if function.owner is not None else ""
    return says(f"{owner}_{function.name}", "training_step")


def _handles(row: Row) -> bool:
    """Whether an entry point handles requests of one path: ``POST /generate``."""
    return row.role == "server" and row.why.split(" ")[0].isupper()
