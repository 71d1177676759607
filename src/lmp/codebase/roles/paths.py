"""The ways through a code base on which a model is run.

A run ends where attention is computed, a token is drawn, the cache is written, a batch is made, a loss or a gradient is
taken. From the entry points a run's weight flows down every way that comes nearer to such an end. Which share of it a
call carries is one of the witnesses of :mod:`lmp.codebase.roles.likely` for what stands in the nesting.

A virtual call counts once, with the one that stands for the others.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

from lmp.codebase.graph.graph import Edge, words
from lmp.codebase.graph.records import SUPER, Applied, Function
from lmp.codebase.roles.reach import CALLED, MODELS, Reading, Row, hands_cache, stem, works
from lmp.codebase.roles.words import rank, says, split

COST = {"name": 2.0, "queue": 1.0, "inheritance": 0.5, "constructor": 3.0, "callback": 0.5}
"""What an edge counts above 1, by how it was found: what is less certain is further away."""
SETS_UP = re.compile(
    r"_*(?:async_)?(?:init|load|setup|set_up|build|create|register|warm|capture|profile|export|sleep|wake|shut|stop|close|release"
    r"|dummy|validate|verify|parse|config|compile|from_|abort|cancel)"
)
"""What sets up, tears down or tries something, and runs no model for a user."""
ASIDE = 4.0
"""What it counts that a call leads beside a run, or sets something up."""
BACK = 1.0
"""How much further from an end than where it is made a call may lead: what a phase does first has its own way there."""
LEAST = 0.15
"""The share of a run that a call must carry for what it leads to to be followed."""
MOST_ALTERNATIVES = 5
"""Modules that one call may lead to, which all count: the layers of a list, dense or with experts."""
MOST_CHOSEN = 3
"""Methods of one class that one call may lead to, which all count."""
SHAPES = frozenset(
    ["norm", "repeat", "dropout", "rotary", "rope", "embedding", "embed", "position", "gate", "lora", "context"]
)
"""Words of modules that only shape what they are given."""
LOOPS = frozenset(["while_loop", "fori_loop", "scan", "cond", "switch", "map", "vmap", "jit", "checkpoint", "remat"])
"""What array libraries are given a function to run by."""
MAKES = frozenset(["new", "next", "get", "generate", "make", "build", "form"])
"""What a function is named that makes a batch."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How far each function is from the nearest of a set of functions, and the calls that lead there."""

    far: dict[Function, float]
    ends: Set[Function]
    calls: dict[Function, list[tuple[float, Edge]]]
    """Each call with what it counts."""

    def on(self, function: Function) -> list[tuple[float, Edge]]:
        """The calls that lead on to an end, each with its length; to one function the shortest.

        Of many functions that are handed on at once, as commands are, the nearest and plainest stands for all.
        """
        found: dict[Function, tuple[float, Edge]] = {}
        for cost, edge in self.calls.get(function, ()):
            if self.far.get(edge.callee, math.inf) <= self.far[function] + BACK:
                length = self.far[edge.callee] + cost
                if edge.callee not in found or length < found[edge.callee][0]:
                    found[edge.callee] = length, edge
        handed = [pair for pair in found.values() if pair[1].how == "callback"]
        many = Counter(edge.line for _, edge in handed)
        handed.sort(key=lambda pair: (pair[0], *_plainness(pair[1].callee)), reverse=True)
        first = {edge.line: edge for _, edge in handed}
        return [
            (length, edge)
            for length, edge in found.values()
            if edge.how != "callback" or many[edge.line] < 3 or first[edge.line] is edge
        ]


class Paths:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.rows: list[Row] = []

    def among(self, rows: Iterable[Row]) -> Paths:
        """The same graph and loops, where it is known what plays which part."""
        found = copy(self)
        found.rows = list(rows)
        return found

    # -- the graph, without the targets that another stands for --------------------------------------------------------

    @cached_property
    def sites(self) -> dict[Function, list[list[Edge]]]:
        """Of each function its calls, each with all that it may lead to."""
        found: dict[Function, list[list[Edge]]] = {}
        for function in self.reading.functions:
            sites: dict[tuple[int, str], list[Edge]] = {}
            for edge in self.reading.graph.edges[function]:
                if self.reading.is_own(edge.callee.file) and edge.callee is not function:
                    written = edge.call.written if edge.call is not None else ""
                    handed = str(edge.callee.key) if edge.how in ("callback", "process", "queue") else ""
                    sites.setdefault((edge.line, written + handed), []).append(edge)
            found[function] = list(sites.values())
        return found

    def ways(self, ends: Iterable[Function], closed: Iterable[Function] = ()) -> Ways:
        """How far it is to the ends, from all that leads there by none that is closed."""
        ends = set(ends)
        reach = self.reading.reaching(ends) - set(closed)
        calls = {
            function: [
                (self._cost(edge), edge)
                for edges in self.sites.get(function, ())
                for edge in self.alternatives([each for each in edges if each.callee in reach])
            ]
            for function in reach
        }
        return Ways(_far(ends, calls), ends, calls)

    def _cost(self, edge: Edge) -> float:
        aside = self.reading.is_aside(edge.callee) or SETS_UP.match(edge.callee.name) is not None
        return 1 + COST.get(edge.how, 0.0) + math.log2(edge.of) / 4 + ASIDE * aside

    def alternatives(self, edges: list[Edge]) -> list[Edge]:
        """Of one call the targets that count: a few that are all meant, else the one that stands for the others."""
        if len(edges) < 2:
            return edges
        modules = [edge for edge in edges if edge.how in ("direct", "attribute") and edge.callee.name in CALLED]
        if len(modules) == len(edges) <= MOST_ALTERNATIVES:
            # Layers of the model that stands for the others count before those of other models.
            file = self.reading.model.file if self.reading.model is not None else ""
            return [each for each in edges if each.callee.file == file] or [
                edge for edge in edges if not edge.callee.abstract
            ]
        owners = {edge.callee.owner for edge in edges if edge.how in ("direct", "attribute")}
        most = MOST_ALTERNATIVES if owners == {None} else MOST_CHOSEN
        if len(edges) <= most and len(owners) == 1 and {edge.callee.owner for edge in edges} == owners:
            # Methods of one object among which a run chooses, greedy and drawn, or functions of one table.
            return edges
        return [self.stands_for(edges)]

    def stands_for(self, edges: list[Edge]) -> Edge:
        """First what is no side way, then what a class itself has, then the model of reference, then what is made
        first where one is chosen. Of values that branches assign it is the last, left where no condition holds."""
        plain = all(edge.how in ("direct", "attribute", "callback") for edge in edges)
        named = [split(f"{stem(edge.callee.file)}_{edge.callee.qualname}") for edge in edges]
        common = frozenset.intersection(*named)
        made = self._made([edge.callee for edge in edges])
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
                callee is not self.reading.model,
                self.reading.is_aside(callee),
                callee.abstract,
                edge.how == "inheritance" or not any(callee.owner in each for each in below),
                not reference,
                # A class of C++ that wraps one of several is named as that one.
                -len(words(callee.qualname) & words(edge.caller.qualname)) if callee.native else 0,
                -self._below_class(callee),
                made.get(callee, 0),
                -number if plain and not callee.native else number,
            )

        return min(enumerate(edges), key=order)[1]

    def _made(self, methods: list[Function]) -> dict[Function, int]:
        """Where objects of methods' classes are made, if one function makes several of them: it chooses among them.

        Of classes in one file the first that is written counts, which is the plain one.
        """
        if len({method.file for method in methods}) == 1:
            return {method: method.line for method in methods}
        callers = self.reading.graph.callers
        places: dict[Function, dict[Function, int]] = {}
        for method in methods:
            maker = None
            if method.owner is not None:
                maker = self.reading.graph.evaluator.method(method.owner, "__init__")
            for edge in callers.get(maker, ()) if maker is not None else ():
                places.setdefault(edge.caller, {}).setdefault(method, edge.line)
        return max(places.values(), key=len, default={})

    def _below_class(self, function: Function) -> int:
        """How many classes build on its own: the model that others are made from stands for them."""
        if function.owner is None or function.native:
            return 0
        return len(self.reading.graph.evaluator.subclasses.get(function.owner, ()))

    # -- where a run ends ----------------------------------------------------------------------------------------------

    @cached_property
    def ends(self) -> dict[str, Ways]:
        """The ways to each kind of end that the code base has."""
        found = {
            "attention": self.attention,
            "feed forward": self._modules("feed_forward") | self._beside_attention,
            "sampling": self.sampling,
            "cache": self.cache,
            "batch": self.batches,
            "training": self.training,
            "queue": self.queues,
            # A model of another package ends where it is called.
            "model": self.reading.runs_model & self.model.ends,
        }
        if not any(found.values()):
            # Where another package runs the model, a run ends where that is told to.
            found["sampling"] = self._played("sampling", "sample")
        if not any(found.values()):
            # A library of operators ends at the kernels that it starts, as a model does at attention.
            found["attention"] = {each for each in self.reading.functions if each.key in self.reading.kernels}
        # What attention calls, as a projection, is not the other half of a layer.
        aside = {"feed forward": self._modules("attention")}
        return {kind: self.ways(ends, aside.get(kind, ())) for kind, ends in found.items() if ends}

    def _played(self, section: str, *roles: str) -> set[Function]:
        wanted = {row.key for row in self.rows if row.section == section and row.role in roles}
        return {each for each in self.reading.functions if each.key in wanted}

    def _modules(self, part: str) -> set[Function]:
        """How modules are called whose classes are named for a part of a model."""
        return {
            each
            for each in self.reading.functions
            if each.name in CALLED and each.owner is not None and says(each.owner.name, part) and not each.abstract
        }

    @cached_property
    def _beside_attention(self) -> set[Function]:
        """Modules that are called where attention is, or a layer with it: the feed forward, the head of logits."""
        attends = self.reading.reaching(self.attention)
        found: set[Function] = set()
        for each in attends:
            if each.name in CALLED and each.owner is not None and not says(each.owner.name, "attention"):
                sites = [[edge.callee for edge in edges] for edges in self.sites.get(each, ())]
                called = {callee for callees in sites if all(map(_is_part, callees)) for callee in callees}
                found |= called - attends if called & attends else set()
        return found

    @cached_property
    def attention(self) -> set[Function]:
        reading = self.reading
        return {*reading.attends, *reading.starts_attention, *reading.native_attends} or self._modules("attention")

    @cached_property
    def sampling(self) -> set[Function]:
        drawn = {
            each
            for each in self.reading.functions
            if split(each.name) & {"sample", "sampling"} and works(each) and not says(each.qualname, "not_sampling")
        }
        return {*self.reading.samples, *drawn}

    @cached_property
    def cache(self) -> set[Function]:
        """What writes keys and values, where the model leads there."""
        played = self._played("kv_cache", "update")
        moved = {each for each in played if says(each.name, "kv_write")} or {each for each in played if each.writes}
        model = self.reading.model
        return (moved & self._below([model] if model is not None else [])) or moved

    @cached_property
    def batches(self) -> set[Function]:
        """What makes a batch: named by that alone, else by the making and by the batch."""
        played = self._played("scheduler", "batch", "chunking", "admission", "preemption")
        plain = {each for each in played if split(each.name) == {"schedule"}}
        return (
            plain
            or {each for each in played if "batch" in split(each.name) and split(each.name) & MAKES}
            # Where the model is outside of the code base, what orders its work is all that there is.
            or (played if self.reading.model is None else set())
        )

    @cached_property
    def training(self) -> set[Function]:
        return {each for each in self.reading.trains if not each.native}

    @cached_property
    def queues(self) -> set[Function]:
        """What takes out of a queue what another function puts in."""
        return {
            edge.callee for sites in self.sites.values() for edges in sites for edge in edges if edge.how == "queue"
        }

    # -- where a run begins --------------------------------------------------------------------------------------------

    @cached_property
    def entries(self) -> list[tuple[Row, Function]]:
        """Entry points with their functions; of a class its public methods."""
        functions = {each.key: each for each in self.reading.functions}
        classes = {each.key: each for each in self.reading.classes}
        found: list[tuple[Row, Function]] = []
        for row in self.rows:
            key = row.key
            if row.section != "entry_points":
                continue
            if key in functions:
                found.append((row, functions[key]))
            elif key in classes:
                methods = classes[key].methods.items()
                found += [(row, each) for name, each in methods if not name.startswith("_") or name == "__call__"]
        return found

    @cached_property
    def model(self) -> Ways:
        """The ways to the model, else to attention that meets sampling or a gradient. Where the model is of another
        package, to what gets logits from a call."""
        if self.reading.model is not None:
            return self.ways(self._outermost(self.reading.model))
        attends = self.ways(self.attention)
        drawn = self.reading.reaching({*self.sampling, *self.training})
        runs = self.reading.runs_model
        return attends if attends.far.keys() & drawn or not runs else self.ways(runs)

    @cached_property
    def hubs(self) -> list[Function]:
        """Where a run parts: the function nearest to both the model and sampling, and the one nearest to both the model
        and a gradient."""
        found: dict[Function, None] = {}
        model = self.reading.model
        below = self._below([model] if model is not None else [])
        begun = {(each.place.file, each.place.line) for each in self.reading.facts.entries if each.kind != "library"}
        started = self._below(each for each in self.reading.functions if each.key in begun)
        attends = self.ways(self.attention).far
        drawn, trained = (self.ways(ends - below or ends).far for ends in (self.sampling, self.training))
        for kind, other in (("sampling", drawn), ("training", trained)):
            if other:
                one = self.model.far
                # What sets up runs no model for a user.
                both = [
                    each
                    for each in one.keys() & other.keys()
                    if each not in below and self._is_plain(each) and not SETS_UP.match(each.name)
                ]
                length = {each: one[each] + other[each] for each in both}
                order = sorted(
                    both,
                    key=lambda each: (each not in started, each not in self.cached, length[each], *_plainness(each)),
                )
                # What only leads to another of them lies on the way to it.
                inner = [each for each in order if not self._calls(each) & set(both)]
                for first in order[:1]:
                    # Prefill and decode are beside one another, and so are other ways to generate.
                    beside = [each for each in inner if kind == "sampling" and length[each] <= length[first] + 1]
                    beside.sort(key=lambda each: each.owner is not first.owner)
                    by_name = {each.name: each for each in reversed(beside) if _alike(each, first)}
                    # Another family of models, with attention of its own, has a loop of its own, of the same name.
                    named = [each for each in attends if each.name == first.name and each in other]
                    below_first = self._below([first]) & self.attention
                    # In C++ its loop may have another name. A variant of the first is no other family.
                    twins = [
                        each
                        for each in dict.fromkeys((*named, *(inner if first.native and first in attends else ())))
                        if not (_is_variant(each, first) or self._below([each]) & below_first)
                    ]
                    twins = [each for each in twins if each in named] or [each for each in twins if each in attends][:1]
                    found.update(dict.fromkeys((first, *list(by_name.values())[-1:], *filter(self._is_plain, twins))))
        # Of a loop that is put into another package's class, reading does not tell how it leads to the model. It comes
        # before what chooses a token once.
        whole = sorted(filter(self._is_plain, self.reading.draws_in_loop), key=_plainness)
        once = {each for each in found if each in self.reading.samples and not self._is_repeated(each)}
        if whole and found and found.keys() & drawn.keys() <= once:
            found = {whole[0]: None, **{each: None for each in found if each not in once}}
        # What draws may run a decoder alone, without the forward of the model that training runs.
        alone = [each for each in attends.keys() & drawn.keys() if each not in below and self._is_plain(each)]
        alone.sort(key=lambda each: (each not in started, attends[each] + drawn[each], *_plainness(each)))
        for first in alone[:1]:
            if not any(drawn.get(each, math.inf) <= drawn[first] for each in found):
                found[first] = None
        # Where what draws is handed in, the loop that leads to the model is all that there is.
        # One over layers ends when they do.
        loops = self.repeating(self.model.ends) if not found else []
        found = found or dict.fromkeys(sorted(loops, key=lambda each: not each.endless)[:1])
        # What hands its object over to the loop of another package repeats what that calls.
        handed = (each for each in self.reading.functions if any(map(_hands_over, self.reading.graph.edges[each])))
        return list(dict.fromkeys((*found, *(each for each in handed if each not in self.model.far))))

    @cached_property
    def cached(self) -> set[Function]:
        """Functions whose own loop draws, and gives a call what is named as a cache."""
        return {each for each in self.reading.draws_in_loop if _hands_cache(each)}

    def _is_repeated(self, function: Function) -> bool:
        """Whether what draws does so in a loop, its own or that of what calls it."""
        calls = (edge.call for edge in self.reading.graph.callers.get(function, ()))
        return function in self.reading.draws_in_loop or any(call is not None and call.loop for call in calls)

    def repeating(self, ends: Iterable[Function], reach: Set[Function] = frozenset()) -> list[Function]:
        """Functions whose loop leads to an end again and again, the nearest first, or else to what else is in reach."""
        ends = set(ends)
        reach = self.reading.reaching(ends) | reach
        far = self.ways(ends).far
        order: dict[Function, tuple[object, ...]] = {}
        for each in sorted(reach, key=lambda each: each.key):
            edges = self.reading.graph.edges[each]
            steps = (edge for edge in edges if edge.callee in reach and edge.how not in ("process", "constructor"))
            within = any(edge.call is not None and edge.call.loop for edge in steps)
            run = self._is_plain(each) and each.qualname and each.name not in (*CALLED, "backward")
            # A loop without a call in it, as over tokens that are ruled out, repeats nothing.
            repeats = each in ends and each.loops and any(call.loop for call in each.calls)
            repeats = repeats or each in self.reading.repeats_foreign
            if run and (within or repeats):
                plain = len(each.name), each.key
                order[each] = each not in self.cached, far.get(each, math.inf), not each.endless, *plain
        found = sorted(order, key=order.__getitem__)
        # A step with loops inside, which its own object repeats for ever, is not the loop.
        of = found[0].owner if found else None
        above = {edge.caller for edge in self.reading.graph.callers.get(found[0], ())} if of is not None else set()
        outer = [each for each in found if each.endless and each.owner is of and each in above]
        found = list(dict.fromkeys((*outer, *found)))
        # What returns the step that another of them repeats stands for that step: beam search, where there are beams.
        calls = self.reading.graph.edges
        every = {each: {step.callee for step in calls[each] if step.call and step.call.loop} for each in found}

        def stands_for_step(each: Function) -> bool:
            returned = self._returned(each)
            return any(not returned.isdisjoint(repeated) for by, repeated in every.items() if by is not each)

        return sorted(found, key=stands_for_step)

    def _returned(self, function: Function) -> set[Function]:
        """The functions whose result it returns as it is."""
        called = {chain[-2] for chain in function.returns if len(chain) > 1 and isinstance(chain[-1], Applied)}
        return {edge.callee for edge in self.reading.graph.edges[function] if edge.callee.name in called}

    def _outermost(self, model: Function) -> set[Function]:
        """The model, and what it wraps: a model without its head, which others may call instead. Other methods of its
        class that attend, and neither call it nor are called by it, run it too."""
        attends = self.reading.reaching(self.attention)
        inside = {each for each in self._calls(model) if each.name in CALLED and each.owner and each in attends}
        named = {each for each in inside if each.owner and split(each.owner.name) & MODELS - {"decoder"}}
        methods = set(model.owner.methods.values()) if model.owner is not None else set()
        others = (methods & attends) - self.reading.reaching([model]) - self._below([model])
        return {model, *others, *(each for each in named if each.file == model.file)}

    def _calls(self, function: Function) -> set[Function]:
        return {edge.callee for edges in self.sites.get(function, ()) for edge in edges}

    def _below(self, functions: Iterable[Function]) -> set[Function]:
        """Functions with all that they lead to, if of each call the targets count that stand for the others."""
        found = set(functions)
        waiting = list(found)
        while waiting:
            for edges in self.sites.get(waiting.pop(), ()):
                for edge in self.alternatives(edges):
                    if edge.callee not in found:
                        found.add(edge.callee)
                        waiting.append(edge.callee)
        return found

    # -- the weight of a run -------------------------------------------------------------------------------------------

    @cached_property
    def shares(self) -> dict[tuple[Function, Function], float]:
        """Caller and callee -> what share of a run the call carries.

        A run goes from the entry points to where it parts and to the model, and from where it parts to its ends. What
        nobody calls is an entry point where no other leads there.
        """
        begun = [each for _, each in self.entries if self._is_plain(each)]
        called = {edge.callee for sites in self.sites.values() for edges in sites for edge in edges}
        found: dict[tuple[Function, Function], float] = {}
        parts = self.hubs or begun
        for starts, every in ((begun, [self.ways(self.hubs)]), (begun, [self.model]), (parts, self.ends.values())):
            reach = {each for ways in every for each in ways.far}
            first = [each for each in starts if each in reach] or filter(self._is_plain, reach - called)
            for pair, share in _flow(sorted(first, key=lambda each: each.key), every).items():
                found[pair] = max(share, found.get(pair, 0.0))
        return found

    def _told(self, edges: Iterable[Edge]) -> list[Edge]:
        """Calls of a function that is only handed over are those of the one that it stands in: the body of a loop that
        an array library runs."""
        found: dict[tuple[Function, Function], Edge] = {}
        for edge in edges:
            caller, callee = self._around(edge.caller), self._around(edge.callee)
            if caller is not callee:
                found.setdefault((caller, callee), replace(edge, caller=caller, callee=callee))
        return list(found.values())

    def _around(self, function: Function) -> Function:
        edges = self.reading.graph.callers.get(function, ())
        looped = all(edge.how == "callback" and edge.call is not None and edge.call.name in LOOPS for edge in edges)
        outer = function.outer if function.nested and edges and looped else None
        return self._around(outer) if outer is not None else function

    def _is_plain(self, function: Function) -> bool:
        return self.reading.is_own(function.file) and not self.reading.is_aside(function)

    def in_order(self, edges: Iterable[Edge]) -> Iterator[Edge]:
        """From the entry points down, in the order of the lines; calls of inner functions as :meth:`_told` has them."""
        below: dict[Function, list[Edge]] = {}
        told = self._told(edges)
        for edge in sorted(told, key=lambda each: each.line):
            below.setdefault(edge.caller, []).append(edge)
        called = {edge.callee for edge in told}
        waiting = [*(each for _, each in self.entries), *(each for each in below if each not in called), *below]
        while waiting:
            inside = below.pop(waiting.pop(0), [])
            yield from inside
            waiting = [*(edge.callee for edge in inside), *waiting]


def _flow(starts: Iterable[Function], every: Collection[Ways]) -> dict[tuple[Function, Function], float]:
    """How a run's weight flows down to ends of several kinds. Each function divides what it has among the calls that
    lead on, the nearest first; what one kind brings to it leads on to every other."""
    found: dict[tuple[Function, Function], float] = {}
    held = dict.fromkeys(starts, 1.0)
    waiting = [(-1.0, number, each) for number, each in enumerate(held)]
    number = len(waiting)
    done: set[Function] = set()
    while waiting:
        _, _, function = heapq.heappop(waiting)
        if function in done:
            continue
        done.add(function)
        for ways in every:
            on = ways.on(function) if function in ways.far else []
            least = min((length for length, _ in on), default=0.0)
            parts = {edge.callee: 2 ** (least - length) for length, edge in on}
            whole = sum(parts.values())
            for callee, part in parts.items():
                share = held[function] * part / whole
                if share >= LEAST:
                    found[function, callee] = max(share, found.get((function, callee), 0.0))
                    if share > held.get(callee, 0.0):
                        held[callee] = share
                        number += 1
                        heapq.heappush(waiting, (-share, number, callee))
    return found


def _far(ends: Set[Function], calls: dict[Function, list[tuple[float, Edge]]]) -> dict[Function, float]:
    """Backwards from the ends, the nearest first."""
    callers: dict[Function, list[tuple[float, Function]]] = {}
    for edges in calls.values():
        for cost, edge in edges:
            callers.setdefault(edge.callee, []).append((cost, edge.caller))
    far: dict[Function, float] = {}
    waiting = [(0.0, number, each) for number, each in enumerate(sorted(ends, key=lambda one: one.key))]
    number = len(waiting)
    while waiting:
        at, _, function = heapq.heappop(waiting)
        if function in far:
            continue
        far[function] = at
        for cost, caller in callers.get(function, ()):
            if caller not in far:
                number += 1
                heapq.heappush(waiting, (at + cost, number, caller))
    return far


def _hands_cache(function: Function) -> bool:
    """Whether its loop gives a call what is named as a cache."""
    return any(call.loop and hands_cache(call) for call in function.calls)


def _alike(function: Function, first: Function) -> bool:
    """Whether another method runs the model too: it is no model, and not put in place of the first one."""
    return None not in (function.owner, first.owner) and function.name not in (first.name, *CALLED)


def _is_variant(function: Function, first: Function) -> bool:
    """Whether a method's class is named as that of another one, and by what it adds to that."""
    one, other = function.owner, first.owner
    return one is not None and other is not None and words(one.name) > words(other.name)


def _hands_over(edge: Edge) -> bool:
    """``super().generate(…)`` of another package, which calls the modules that the object keeps."""
    above = edge.call is not None and edge.call.callee[:1] and edge.call.callee[0][0] == SUPER
    return bool(above) and edge.how == "inheritance" and edge.callee.name in CALLED and edge.caller.name not in CALLED


def shapes(function: Function) -> bool:
    return bool(split(function.qualname) & SHAPES) or says(function.name, "attention_mask")


def _is_part(function: Function) -> bool:
    """Whether it is how a module is called that does more than to shape what it is given."""
    return function.owner is not None and function.name in CALLED and not shapes(function)


def is_step(function: Function) -> bool:
    owner = function.owner.name if function.owner is not None else ""
    return says(f"{owner}_{function.name}", "training_step")


def plain_run(function: Function) -> int | None:
    return rank(f"{stem(function.file)}_{function.name}", "plain_run")


def _plainness(function: Function) -> tuple[object, ...]:
    """Of functions that do the same first the one of the plain run, then the outermost, then the shortest name: what
    varies is named by what it adds."""
    words = split(function.qualname) | split(stem(function.file))
    plain = plain_run(function)
    return plain is None, plain or 0, function.file.count("/"), len(words), function.key
