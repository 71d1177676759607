"""Recurrent states: tensors of a fixed size that a model carries from step to step in place of keys and values.

A state is known by its way round: a function takes it and gives it back beside its result, or writes into what it read.
A name begins the search; what the state is handed to, what gives it and what makes it may have any.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import lru_cache

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import CALLED
from lmp.codebase.graph.python_file import MAKERS
from lmp.codebase.graph.records import ITEM, MANY, Applied, Call, Chain, Function, pick
from lmp.codebase.graph.values import argument
from lmp.codebase.roles.reach import Reading, Row, place
from lmp.codebase.roles.words import says, split

OTHER = frozenset(
    (
        *("hidden", "q", "k", "v", "kv", "query", "key", "value", "inner", "encoder", "decoder", "attention"),
        *("dict", "train", "training", "opt", "optim", "optimizer", "rng", "random", "file"),
        *("loop", "session", "decode"),
    )
)
"""Words of states that no model carries: of one step alone, of weights and training, of a server and its users."""
NEW = frozenset(["new", "next", "last", "final", "updated", "states"])
"""Words that tell the state after a step from the one before."""
NAMES = frozenset(["state", "cache"])
"""Words of what a state is called on its way."""
VIEWS = frozenset(["get", "to", "view", "reshape", "clone", "contiguous", "float", "squeeze", "unsqueeze", "transpose"])
"""Methods that give a state itself, or a part of it."""
TELLS = frozenset(["shape", "dtype", "device", "ndim"])
"""Attributes of a tensor. What has others is a record of something else: of a sampler, of a parser."""
TRIES = frozenset(["ref", "reference"])
"""Words of what says again plainly what is computed elsewhere."""
CARRIES, GIVEN, GIVES = "carries a state from step to step", "is given the state that is carried", "gives the new state"
PART = 2
"""Rank of a line or a type of a state: after what carries it."""
NONE_OR_FIRST = ("", "0")


def state_rows(reading: Reading) -> Iterator[Row]:
    carried = carried_states(reading)
    types: set[str] = set()
    for function, (names, why) in carried.items():
        makes = why == GIVES and any(call.name in MAKERS for call in function.calls)
        yield Row("kv_cache", "allocate" if makes else "update", function.qualname, place(function), why)
        for name in names:
            types |= {str(part) for chain in function.params.get(name, ()) for part in chain}
            for line, role in _lines(function, name):
                symbol = f"{function.qualname}.{name}"
                yield Row("kv_cache", role, symbol, Place(function.file, line), "a part of the state", PART)
    for file, graph in reading.facts.graphs.items():
        lines = graph.body.lines if graph.body is not None and reading.is_own(file) else {}
        for name in types & lines.keys():
            if split(name) & NAMES:
                yield Row("kv_cache", "layout", name, Place(file, lines[name]), "the type of a state", PART)


@lru_cache(maxsize=1)
def carried_states(reading: Reading) -> dict[Function, tuple[set[str], str]]:
    """Functions on the way of a state, with what they call it and its parts, and why."""
    found: dict[Function, tuple[set[str], str]] = {}
    training = reading.reaching(reading.trains)
    for each in reading.functions:
        # What experts hand from phase to phase ends with the step.
        aside = each in training or split(each.name) & TRIES or says(f"{each.file}_{each.qualname}", "feed_forward")
        if not each.native and not aside:
            names = {name for name in {*each.params, *each.locals} if _goes_round(each, name)}
            if names:
                found[each] = _with_parts(each, names), CARRIES
    links: list[tuple[Function, Function]] = []
    waiting = list(found)
    for function in waiting:
        names = found[function][0]
        for edge in reading.graph.edges[function]:
            callee = edge.callee
            if edge.call is None or edge.how == "callback" or not reading.is_own(callee.file):
                continue
            taken = _is_taken(function, names, edge.call)
            given = _given(names, callee, edge.call, taken)
            if given or taken:
                links.append((function, callee))
                known, why = found.get(callee, (set[str](), GIVEN if given else GIVES))
                found[callee] = _with_parts(callee, known | given), why
                if given - known:
                    waiting.append(callee)
    kept = {each for each in found if _runs(reading, each)}
    more = kept
    while more:
        more = {each for link in links if kept & set(link) for each in link} - kept
        kept |= more
    return {each: how for each, how in found.items() if each in kept}


def _runs(reading: Reading, function: Function) -> bool:
    """Whether it runs a model, or belongs to a module of one or is called by that."""
    callers = (edge.caller.owner for edge in reading.graph.callers.get(function, ()))
    of = [each for each in (function.owner, *callers) if each is not None]
    module = any(reading.graph.evaluator.method(each, name) is not None for each in of for name in CALLED)
    return module or function in reading.running or function in reading.runs_model


def _given(names: set[str], callee: Function, call: Call, taken: bool) -> set[str]:
    """The parameters for which a call gives a part of a state, where it gives that back or they are named so."""
    return {
        name
        for name in callee.params
        if (taken or split(name) & NAMES)
        and any(_is_part(c, names) or (c[1:] and c[-1] in names) for c in argument(callee, name, call))
    }


def _is_taken(function: Function, names: set[str], call: Call) -> bool:
    """Whether what a call gives takes the place of a state."""
    chains = (chain for name in names for chain in function.locals.get(name, ()))
    return any(_from(call, chain) and _place(chain) != "0" for chain in chains)


def _goes_round(function: Function, name: str) -> bool:
    words = split(name)
    if "state" not in words or words & OTHER or _is_record(function, name):
        return False
    back = any(_place(c) not in NONE_OR_FIRST and split(str(c[0])) - NEW == words - NEW for c in function.returns)
    chains = [chain for chain in function.locals.get(name, ()) if _place(chain) not in NONE_OR_FIRST]
    taken = [call for call in function.calls if any(_from(call, chain) for chain in chains)]
    if name in function.params:
        names = _with_parts(function, {name})
        loops = any(call.loop and any(_is_part(chain, names) for chain in call.given) for call in taken)
        return back or loops or _updates(function, name, names)
    # A call that is given it with all else, or as an attribute of what holds it, gives it back.
    spread = back and any(keyword == "**" for call in taken for keyword, _ in call.keywords)
    return spread or any(chain[1:] and chain[-1] == name for call in taken for chain in call.given)


def _updates(function: Function, name: str, names: set[str]) -> bool:
    """Whether it writes into a state; under keys, where it reads one of these too: what an earlier step left."""
    if not any(_is_part(chain, names) for write in function.writes for chain in write.target):
        return False
    keys = {pick(_place(chain)) for chain in function.locals.get(name, ()) if str(chain[-1])[:1] == MANY}
    return not keys or any(chain[:1] == (name,) and chain[1] in keys for chain in _every(function) if chain[1:])


def _is_record(function: Function, name: str) -> bool:
    """Whether it is asked for attributes that no tensor has."""
    asked = (chain[1:3] for chain in _every(function) if chain[:1] == (name,))
    # A method that is called is no attribute.
    return any(_is_name(c[0]) and c[0] not in TELLS and not isinstance(c[-1], Applied) for c in asked if c)


def _lines(function: Function, name: str) -> Iterator[tuple[int, str]]:
    """Where a part of a state is made, is written under a key, or is put in place of what a call was given."""
    chains = function.locals.get(name, ())
    for write in function.writes:
        if (name,) in write.target:
            if any(part in MAKERS for chain in write.value for part in chain):
                yield write.line, "allocate"
            elif any(_place(chain) and chain[:-1] in write.value for chain in chains):
                yield write.line, "layout"
    for call in function.calls:
        if any(chain[-1] == MANY and _place(chain[:-1]) and _from(call, chain) for chain in chains):
            yield call.line, "update"


def _every(function: Function) -> Iterator[Chain]:
    yield from function.returns
    yield from function.sets
    yield from (chain for chains in function.locals.values() for chain in chains)
    for call in function.calls:
        yield from call.given
        yield from (chain[:-1] for chain in call.callee)


def _with_parts(function: Function, names: set[str]) -> set[str]:
    """These names, and the local names of parts of what has them."""
    for _ in range(2):
        names = names | {name for name, chains in function.locals.items() if any(_is_part(c, names) for c in chains)}
    return names


def _is_part(chain: Chain, names: Container[object]) -> bool:
    """Whether it is what has one of these names, a part or a view of it."""
    return chain[0] in names and all(part in VIEWS for part in chain[1:] if _is_name(part))


def _is_name(part: object) -> bool:
    return isinstance(part, str) and part[:1] not in (ITEM[0], MANY)


def _place(chain: Chain) -> str:
    """Where a value stands in the tuple or dictionary that is returned, or that a call gives; empty if in none."""
    return str(chain[-1]).strip(ITEM + MANY) if not _is_name(chain[-1]) and isinstance(chain[-1], str) else ""


def _from(call: Call, chain: Chain) -> bool:
    """Whether a value is what a call gives, or a part of that."""
    return any(isinstance(part, Applied) and chain[:number] in call.callee for number, part in enumerate(chain))
