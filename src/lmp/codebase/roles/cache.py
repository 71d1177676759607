"""The KV cache: tensors that are kept on an object, what fills them, and what hands out their places.

A class is a cache by what it keeps. What belongs to it is told by ties to that: records that it makes, what makes,
sizes, fills or empties it, and what asks it for places. Where no object owns them, keys and values are known by what is
done to them: joined to earlier ones, written by index, handed over, carried through a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from lmp.codebase.facts import Place
from lmp.codebase.graph.python_file import FILLERS, MAKERS, PUTS
from lmp.codebase.graph.records import ITEM, Applied, Call, Chain, Class, Function
from lmp.codebase.graph.values import ClassValue, External, Instance, Value, argument, innermost
from lmp.codebase.roles.operators import JOINS
from lmp.codebase.roles.reach import Reading, Row, place
from lmp.codebase.roles.states import state_rows
from lmp.codebase.roles.words import says, split

ROLES = (
    # What asks changes nothing.
    ("accounting", r"(?:^|[._])(?:can|is|get_num|num|get_usage)_"),
    ("evict", r"evict|prune|least_recent"),
    ("free", r"free|release|clear|reset|drop|remove|_rm$|seq_rm|seq_keep|dealloc|discard"),
    ("swap", r"swap|save|load|state_|offload|restore|serial|export|import"),
    ("accounting", r"prepare_inputs|size|count|num_|used?_|usage|total|refs?(?:$|_)|available|capacity|bytes|len$"),
    ("allocate", r"alloc|init|reserve|find_slot|prepare|create|resize|new_"),
    ("paging", r"table|page|block|slot|match|prefix|split|req_to|index"),
    ("update", r"append|update|write|copy|cpy|insert|store|put|set_|add|push|shift|apply|extend|__call__|forward"),
)
"""What a method of a cache does, by its verb; the first that fits."""
TAKES = frozenset(["alloc", "allocate", "free", "evict", "release", "reclaim", "deallocate"])
"""Verbs of an allocator, as whole words: ``evictable`` tells and takes nothing."""
LENDERS = frozenset(["block", "page", "slot", "allocator"])
"""Words of what hands out numbers of places, and keeps no tensors itself."""
REQUEST = re.compile(r"(?:Req|Request|Seq|Sequence|Job)$")
"""Names of what a cache is asked for."""
EMPTIES = re.compile(r"reset|clear|flush")
MAKES = re.compile(r"init|alloc|set|create|build|delete|free|clear|reset")
SIZES = frozenset(["byte", "bytes", "size", "memory", "capacity"])
FREE_MEMORY = frozenset(["mem_get_info", "memory_stats", "get_available_gpu_memory"])
"""Calls that tell the memory of a device."""
PLACES = frozenset(["loc", "len", "slot", "index", "indice", "indices", "pos", "position", "mask", "id"])
"""Words of what tells places in a cache and holds nothing of it."""
TOLD = PLACES | {"length", "lens", "size", "offset", "count", "seq", "seqlen", "seqlens", "num", "table"}
"""Words of what tells how much of a cache is filled, and where."""
OF_A_MODEL = frozenset(["model", "config", "layer", "head"])
"""Words of what a cache of keys and values is made for."""
EARLIER = frozenset(["cache", "cached", "past", "present"])
KEPT_WORDS = frozenset(["cache", "memory"])
"""Words of tensors of keys and values that a struct of C++ keeps: ``memory_k`` in the examples of ggml."""
KEYS, VALUES = frozenset(["k", "key", "keys"]), frozenset(["v", "value", "values"])
KEYS_AND_VALUES = KEYS | VALUES | {"kv"}
"""Words that together name keys and values of earlier tokens."""
WHOLE = EARLIER | KEYS_AND_VALUES | {"caches", "layer", "layers", "paged", "prefill", "static", "keyvalues"}
"""Words of a name that says of no part of a cache: ``past_key_values``, ``layer_caches``."""
RECURRENT = frozenset(["ssm", "conv", "recurrent", "wkv"])
"""Words of the state that a recurrent layer carries in place of keys and values, as papers call it."""
BY_NAME = "handles the cache"
MAKES_FAR, PUTS_FAR = "makes what holds the cache", "hands over what another package keeps keys and values of"
KEEPS, REPLACES = "keeps a cache", "replaces the cache that it keeps"
SHORT = 5
"""Lines of a function that does one thing."""
USES = 2
"""Rank of what uses the cache from outside: after the cache's own."""


def cache_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}

    def add(of: Class | Function, why: str, rank: int = 0) -> None:
        row = Row("kv_cache", role_of(of.name, of), of.qualname, place(of), why, rank)
        found.setdefault(row.key, row)

    classes = dict(_classes(reading))
    for of, why in _kin(reading, classes):
        classes.setdefault(of, why)
    for of, why in classes.items():
        add(of, why)
        for method in of.methods.values():
            if not _is_aside(method) and (why != REPLACES or (method.name != "__init__" and _is_about(of, method))):
                made = any(each.on_self for each in method.made) or method.name == "__init__"
                # What is short, and changes what the cache keeps, does nothing else.
                short = method.end - method.line <= SHORT and _changes(of, method)
                add(method, "allocates it" if made else f"method of {of.name}", int(not (made or short)))
    handled = _handled(reading)
    rest = [each for each in reading.functions if not (each in handled or each.owner in classes or each.native)]
    makes = {each: why for each in rest if (why := _makes(reading, each, classes))}
    uses = {each: why for each in rest if each not in makes and (why := _asks(reading, each, classes, handled))}
    handled |= makes
    for function in reading.functions:
        if function in handled:
            # Attention that fills it uses it.
            uses_it = function in reading.attending and function.owner not in classes
            add(function, handled[function], USES if uses_it else int(handled[function] == BY_NAME))
        elif function in uses:
            add(function, uses[function], USES)
    for around in _with_foreign(reading):
        add(around, "makes or keeps a cache of another package")
    for function, why in (*far(reading), *_sizes_far(reading)):
        add(function, why)
    for function in reading.native_products:
        if any("cpy" in split(call.name) for call in function.calls):
            add(function, "copies keys and values into a graph that attends")
    kept = [(of.file, f"{of.qualname}.{each[0]}", *each[1:]) for of in reading.classes for each in _attributes(of)]
    kept += _aliases(reading)
    for function in reading.functions:
        for write in () if function.native else function.writes:
            named = [c[-1] for c in write.value if len(c) > 1 and isinstance(c[-1], str) and _is_both(c[-1])]
            if named:
                symbol = f"{function.qualname}.{named[0]}"
                kept.append((function.file, symbol, write.line, "takes the cache that a call gave"))
    for file, symbol, line, why in kept:
        role = "accounting" if TOLD & split(symbol.rpartition(".")[2]) else "layout"
        found.setdefault((file, line), Row("kv_cache", role, symbol, Place(file, line), why, USES))
    for kernel in reading.facts.kernels:
        name, at = kernel.name, kernel.place
        if reading.is_own(at.file) and says(name, "kv_write") and not says(name, "attention"):
            found.setdefault((at.file, at.line), Row("kv_cache", "update", name, at, "kernel", 1))
    for row in state_rows(reading):
        found.setdefault(row.key, row)
    return list(found.values())


def _aliases(reading: Reading) -> Iterator[tuple[str, str, int, str]]:
    """Names that modules give to a type of a cache: ``KVCache = tuple[Tensor, Tensor]``."""
    for file, graph in reading.facts.graphs.items():
        lines = graph.body.lines if graph.body is not None and reading.is_own(file) else {}
        for name, line in lines.items():
            typed = name[:1].isupper() and any(chain[-1] == ITEM for chain in graph.names.get(name, ()))
            if typed and "cache" in split(name) and not name.isupper() and not says(name, "not_kv_cache"):
                yield file, name, line, "names the type of a cache"


def _changes(of: Class, method: Function) -> bool:
    return bool(method.writes) or any(by is method for chains in of.attributes.values() for by, _ in chains)


def _is_aside(method: Function) -> bool:
    """What every object has, what is shown elsewhere, and what only prints."""
    if method.name == "__init__":
        return not any(each.on_self for each in method.made) and not MAKERS & {call.name for call in method.calls}
    hidden = method.name.startswith(("__", "~", "operator")) and method.name != "__call__"
    return hidden or "print" in split(method.name) or method.name in ("begin", "end")


def role_of(name: str, thing: object) -> str:
    if isinstance(thing, Class):
        return "layout"
    return next((role for role, pattern in ROLES if re.search(pattern, name)), "update")


def _classes(reading: Reading) -> Iterator[tuple[Class, str]]:
    """Classes that keep tensors which others read and which an index write or a kernel fills."""
    tables = {name for function in reading.functions for name in _tables(function)}
    held = (of for of in reading.classes if tables & {*of.lines, *(each.name for each in of.fields)})
    stores = dict.fromkeys(each for each in (*_stores(reading), *held) if reading.is_own(each.file))
    yield from dict.fromkeys(stores, "keeps what is taken for keys and values").items()
    for of in reading.classes:
        pair = _keys_and_values(of)
        named = "cache" in split(of.name)
        if (
            of in stores
            or (says(of.name, "not_kv_cache") and not (pair and (named or _filled(of))))
            or (of.outer is not None and not of.native)
        ):
            continue
        made = [each for method in of.methods.values() for each in method.made if each.on_self]
        if pair:
            yield of, f"keeps {' and '.join(pair[:2])}"
        elif _hands_out(of) and (made or _keeps_tensors(of) or _lends(of)) and not _asks_another(reading, of):
            yield of, "hands out cache blocks and takes them back"
        elif made and named:
            yield of, "keeps tensors and is named a cache"
        elif says(of.name, "kv_cache") or (named and KEEPS in (each[2] for each in _attributes(of))):
            yield of, "keeps what the cache holds or where"
        elif _replaces(of):
            yield of, REPLACES
        elif any(says(base.name, "kv_cache") for base in reading.graph.evaluator.line(of)[1:]):
            yield of, "builds on a cache"


def _stores(reading: Reading) -> Iterator[Class]:
    """Classes of what is asked for a store, and of that store: kept keys and values are taken from there by name."""
    for function in reading.functions:
        kept = {name: chains for name, chains in function.locals.items() if _is_kept(split(name))}
        parts = {chain for name in _pair(kept) for chain in kept[name] if len(chain) == 2}
        taken = {str(chain[0]) for chain in parts if isinstance(chain[1], str) and chain[1][:1] == ITEM[0]}
        asked = {chain[:-1] for name in taken for chain in function.locals.get(name, ()) if _result(chain[-1:])}
        for edge in reading.graph.edges[function] if asked else ():
            if edge.call is not None and edge.callee.owner is not None and asked & {*edge.call.callee}:
                yield edge.callee.owner
                given = reading.graph.evaluator.values(edge.callee, (chain[:2] for chain in edge.callee.returns))
                yield from (value.of for value in map(innermost, given) if isinstance(value, Instance))


def _tables(function: Function) -> Iterator[str]:
    """Attributes of what it is given that are tables: it takes keys and values, or states, of an item, and sets it."""
    taken: dict[Chain, set[str]] = {}
    for name, chains in () if function.native else function.locals.items():
        for chain in chains:
            if len(chain) == 4 and chain[0] in function.params and chain[2] == ITEM and str(chain[3])[:1] == ITEM[0]:
                taken.setdefault(chain[:2], set()).add(name)
    written = {chain for write in function.writes for chain in write.target} if taken else set()
    for chain in taken.keys() & written:
        if _pair(taken[chain]) or all("state" in split(name) for name in taken[chain]):
            yield chain[1]


def _keys_and_values(of: Class) -> tuple[str, ...]:
    """Attributes, of keys and of values, that are named as a cache or kept on one, or that an index write fills:
    ``cache_k`` and ``cache_v``."""
    kept = "cache" in split(of.name)
    filled = _filled(of)
    return _pair(name for name in of.attributes if kept or "cache" in split(name) or name in filled)


def _filled(of: Class) -> tuple[str, ...]:
    """The same of those alone that an index write fills."""
    targets = {chain for each in of.methods.values() for write in each.writes for chain in write.target}
    return _pair(name for name in of.attributes if ("self", name) in targets)


def _kin(reading: Reading, caches: Mapping[Class, str]) -> Iterator[tuple[Class, str]]:
    """What says how a cache that keeps keys and values is filled, and what else builds on it."""
    for of in [of for of, why in caches.items() if why.startswith("keeps ") and _keys_and_values(of)]:
        for base in reading.graph.evaluator.line(of)[1:]:
            if any(each.abstract and name in of.methods for name, each in base.methods.items()):
                yield base, "says how a cache is filled"
                yield from ((kind, "builds on a cache") for kind in reading.graph.evaluator.below(base))


def _attributes(of: Class) -> Iterator[tuple[str, int, str]]:
    """Attributes in which a cache keeps keys and values, and others keep a cache, or its length, with their lines."""
    if of.native:
        pair = _pair(name for name in of.members if split(name) & KEPT_WORDS)
        yield from ((name, of.members[name], "keeps keys and values") for name in pair)
        return
    lines = {**of.lines, **{each.name: each.line for each in of.fields}}
    declared = {each.name for each in of.fields}
    pair = _keys_and_values(of)
    for name, line in lines.items():
        words = split(name)
        if name not in declared and any(
            by and len(chain) == 1 and chain[0] in by.params for by, chain in of.attributes.get(name, ())
        ):
            # Whoever gave it keeps it.
            continue
        if name in pair and not words & (TOLD | {"scale", "dtype"}):
            yield name, line, "keeps keys and values"
        elif _is_whole(name) and (words & KEYS_AND_VALUES or ("cache" in words and name in declared)):
            yield name, line, KEEPS
        elif words & {"cache", "cached", "kv"} and words & {"len", "length"} and len(words) < 4:
            yield name, line, "how long the cache is"


def _pair(names: Iterable[str]) -> tuple[str, ...]:
    """Of names those that are alike but for the word for keys and the word for values, in pairs."""
    by_words = {split(name): name for name in names}
    keys = {words - KEYS: name for words, name in by_words.items() if words & KEYS}
    pairs = ((keys.get(words - VALUES), name) for words, name in by_words.items() if words & VALUES)
    return tuple(each for key, value in pairs if key for each in (key, value))


def _hands_out(of: Class) -> bool:
    """An allocator: it has both halves."""
    names = " ".join(of.methods)
    return re.search(r"alloc", names) is not None and re.search(r"free|release", names) is not None


def _asks_another(reading: Reading, of: Class) -> bool:
    """A request: what it takes and gives back, it asks another object for, which does both."""
    takes = [each for name, each in of.methods.items() if split(name) & TAKES and REQUEST.search(of.name)]
    asked = {edge.callee.owner for each in takes for edge in reading.graph.edges.get(each, ())} - {of, None}
    line = reading.graph.evaluator.line(of)
    return any(each is not None and each not in line and _hands_out(each) for each in asked)


def _lends(of: Class) -> bool:
    """Its name, or that of a method that takes or frees some, says that it hands out numbers of places."""
    return any(split(each) & LENDERS for each in (of.name, *(name for name in of.methods if split(name) & TAKES)))


def _replaces(of: Class) -> bool:
    """A method of it, other than the one that makes it, sets an attribute in which it keeps a cache."""
    kept = [of.attributes.get(name, ()) for name, _, why in _attributes(of) if why == KEEPS]
    return any(by is not None and by.name != "__init__" for sets in kept for by, _ in sets)


def _is_about(of: Class, method: Function) -> bool:
    """Whether a method names an attribute in which its object keeps a cache."""
    return any(name in method.reads for name, _, why in _attributes(of) if why == KEEPS)


def _keeps_tensors(of: Class) -> bool:
    """An attribute of it is said to be of tensors."""
    return any("Tensor" in chain for chains in of.attributes.values() for _, chain in chains)


def _handled(reading: Reading) -> dict[Function, str]:
    """Functions that are about the cache, by their own code and name."""
    found: dict[Function, str] = {}
    for each in reading.functions:
        if why := _about(reading, each) or _fills_given(reading, each):
            found.setdefault(each.outermost, why)
            if each.nested:
                found.setdefault(each, why)
    names = {each.name for each in found if "cache" in split(each.name)}
    for each in reading.functions:
        if each.name in names and each.owner is not None and not each.abstract:
            found.setdefault(each, "of one name with what handles the cache")
    return found


def _about(reading: Reading, function: Function) -> str:
    name = function.name
    attends = function in reading.attending
    why = (
        ""
        if function.native
        else _fills(function, attends) or _takes_back(function, attends) or _tensors(function, attends)
    )
    if not why and not function.native and _measures(function, attends):
        return "tells by their shape how many tokens are cached"
    if name == "prepare_inputs_for_generation" and any(map(_is_both, function.params)):
        return "cuts the input to what transformers finds in no cache"
    if why or says(name, "not_kv_cache"):
        return why
    if says(name, "kv_write") and not says(name, "attention"):
        return "writes keys and values into the cache"
    if says(name, "kv_cache"):
        return BY_NAME
    # Copies of an optimizer's states are cached too.
    if "cache" in split(name) and "optimizer" not in split(function.qualname):
        if _pair(names := {*function.reads, *function.params, *function.locals}) or any(map(_is_both, names)):
            return "handles keys and values of a cache"
        if any("cache" in split(str(chain[-1])) for write in function.writes for chain in write.target):
            return "fills what it names a cache"
    return ""


def _is_kept(words: frozenset[str]) -> bool:
    """Whether words name keys and values of earlier tokens: ``past_key_values``, ``cache.k``, ``layer_past``."""
    both = words & EARLIER and words & KEYS_AND_VALUES
    return bool(both or ("state" in words and words & RECURRENT)) or words >= {"layer", "past"}


def _is_whole(name: str) -> bool:
    """Whether a name is that of a cache, and of no part or setting of it."""
    words = split(name)
    return bool(words & EARLIER) and words <= WHOLE


def _is_both(name: str) -> bool:
    """The same of both in one: a ``cache_key`` is that of any cache."""
    words = split(name)
    both = "kv" in words or bool(words & KEYS and words & VALUES)
    return _is_kept(words) and (both or not words & KEYS_AND_VALUES)


def _kept(function: Function, chains: Iterable[Chain], deep: int = 2) -> bool:
    """Whether one of these is, or is a part or a view of, what is named as keys and values of earlier tokens."""
    of = function.owner.name if function.owner is not None else ""
    for chain in chains:
        names = _names(chain)
        # In a class that is named a cache, ``self.k`` is that of the cache.
        if _is_kept(split("_".join((of, *names) if chain[0] == "self" and "cache" in split(of) else names))):
            return True
        made = [each for each in function.locals.get(names[0], ()) if each[0] != chain[0]] if names and deep else ()
        if made and chain[0] == names[0] and _kept(function, made, deep - 1):
            return True
    return False


def _measures(function: Function, attends: bool) -> bool:
    """Whether it asks keys and values that it is given for their shape."""
    given = {name for name in function.params if _is_both(name) or (attends and _is_whole(name))}
    sizes = [chain for call in function.calls if call.name == "size" for chain in call.callee] if given else []
    sizes += [chain for chains in function.locals.values() for chain in chains if "shape" in chain] if given else []
    return any(name in given for chain in sizes for name in _roots(chain))


def _roots(chain: Chain) -> Iterator[object]:
    """The names that a chain begins with: its own, and those of what calls in it are given."""
    yield chain[0]
    for part in chain:
        for first in part.first if isinstance(part, Applied) else ():
            yield from _roots(first)


def _fills(function: Function, attends: bool) -> str:
    """It writes keys and values into those that are kept, or joins them to these."""
    if any(_kept(function, write.target) for write in function.writes) or any(_tables(function)):
        return "fills what is kept of earlier tokens"
    for call in function.calls:
        # ``cache.k.at[i].set(k)`` of JAX gives what is written.
        if call.name in ("set", "add") and any(
            "at" in c and _kept(function, (c[: c.index("at")],)) for c in call.callee
        ):
            return "gives the cache with new keys and values in it"
        if call.name in JOINS and any(_kept(function, each) for each in call.args):
            return "joins new keys and values to those that are kept"
        to = [str(chain[0]) for chain in call.callee] if call.name == "append" else ()
        # Where calls lead to attention, what is named a cache alone is one of keys and values.
        if any(_is_both(each) or (attends and each.rstrip("s").endswith(tuple(EARLIER))) for each in to):
            return "collects keys and values of the layers"
    return ""


def _fills_given(reading: Reading, function: Function) -> str:
    """It writes into a parameter for which a caller gives keys and values that are kept."""
    written = {str(chain[0]) for write in function.writes for chain in write.target} & function.params.keys()
    takes = [name for name in function.params if name not in ("self", "cls")] if written else []
    for edge in reading.graph.callers.get(function, ()) if written and not function.native else ():
        if edge.call is not None:
            given = {**dict(zip(takes, edge.call.args, strict=False)), **dict(edge.call.keywords)}
            if any(_kept(edge.caller, given[name]) for name in written & given.keys()):
                return "fills keys and values that it is given"
    return ""


def _takes_back(function: Function, attends: bool) -> str:
    """It gives a call the cache, or new keys and values for it, and takes what is the cache after that: from the call,
    or for its object to keep."""
    of = function.owner if function.name != "__init__" else None
    for name in (each.name for each in of.fields) if of is not None else ():
        if _is_whole(name) and of is not None and any(by is function for by, _ in of.attributes.get(name, ())):
            return "replaces the cache that its object keeps"

    def whole(name: str) -> bool:
        return _is_both(name) or (attends and _is_whole(name))

    for call in function.calls:
        given = {str(chain[0]) for chains in (*call.args, *dict(call.keywords).values()) for chain in chains}
        to_it = _pair(given) and any(EARLIER & split("_".join([*_names(chain), *given])) for chain in call.callee)
        if to_it or any(map(whole, given)) or any(whole(name) for name, _ in call.keywords):
            back = {
                name
                for name, chains in function.locals.items()
                if any(_from(call, each) for each in (*chains, *_firsts(function, chains)))
            }
            # Layers that only pass it on keep nothing of it.
            keeps = call.loop or any("logits" in split(name) for name in back)
            if _pair(back) or (keeps and any(map(whole, back))):
                return "gives a call the cache and takes it back"
    return ""


def _from(call: Call, chain: Chain) -> bool:
    """Whether a value is what a call gives, or a part of that."""
    return any(isinstance(part, Applied) and chain[:number] in call.callee for number, part in enumerate(chain))


def _names(chain: Chain) -> list[str]:
    """The names and keys of a chain: ``cache["k"]`` is of the cache and of keys."""
    return [part.strip("[]") for part in chain if isinstance(part, str) and part != "self"]


def _firsts(function: Function, chains: Iterable[Chain]) -> Iterator[Chain]:
    """What the names are that these begin with."""
    for chain in chains:
        yield from function.locals.get(chain[0], ()) if isinstance(chain[0], str) else ()


def _result(chain: Chain) -> bool:
    return any(isinstance(part, Applied) for part in chain)


def _tensors(function: Function, attends: bool) -> str:
    """It makes tensors that it names a cache, fills one by index, or works out its size."""
    made = {name for name, chains in function.locals.items() if any(map(_allocated, chains))}
    # ``register_buffer("key_cache", torch.zeros(…))`` names it too.
    made |= {call.text for call in function.calls if any(map(_allocated, (c for some in call.args for c in some)))}
    made |= {each.target for each in function.made}
    if _pair(name for name in made if "cache" in split(name)):
        return "makes keys and values of a cache"
    if attends:
        return ""
    named = (name for call in function.calls for name, chains in call.keywords if any(map(_allocated, chains)))
    if any("cache" in split(name) for name in named):
        return "makes tensors of a cache"
    read = {word for each in function.reads for word in split(each)}
    filled = {str(chain[-1]) for write in function.writes for chain in write.target if "cache" in split(str(chain[-1]))}
    if filled and FILLERS & {call.name for call in function.calls} and {"slot", "prefill", "decode", "kv"} & read:
        return "fills a cache by index"
    if "cache" in split(function.name) and SIZES & split(function.name) and {"layer", "head", "block", "token"} & read:
        return "tells the size of a cache"
    return ""


def _allocated(chain: Chain) -> bool:
    """What a call gives that makes a tensor."""
    by = chain[-2] if len(chain) > 1 and isinstance(chain[-1], Applied) else ""
    return by in MAKERS or "alloc" in str(by)


def _with_foreign(reading: Reading) -> Iterator[Class | Function]:
    """What makes a cache of another package for a model, and the classes that keep one."""
    evaluator = reading.graph.evaluator
    for function in reading.functions:
        for call in () if function.native else function.calls:
            given = {
                name for chains in (*call.args, *dict(call.keywords).values()) for c in chains for name in _names(c)
            }
            # One that is made outside of loops is that of all layers.
            whole = not (call.loop or function.nested or says(function.qualname, "beside"))
            if (whole or any(split(name) & OF_A_MODEL for name in given)) and any(
                _is_foreign(each) for each in evaluator.values(function, call.callee)
            ):
                yield function
    for of in reading.classes:
        sets = [each for name, each in of.attributes.items() if not of.native and "cache" in split(name)]
        for setter, chain in (each for some in sets for each in some):
            if setter is not None and any(
                _is_foreign(value, "()")
                for inside, given in _given(reading, setter, chain)
                for value in evaluator.values(inside, given)
            ):
                yield of


def far(reading: Reading) -> Iterator[tuple[Function, str]]:
    """What works with an object of another package that tells how many blocks are free: the cache is in that package.

    It makes the object, asks it, or has it hold or give back what a request takes.
    """
    told: dict[Function, str] = {}
    objects: set[str] = set()
    for function in reading.functions:
        named = [(*call.callee, *(chain for chains in call.args for chain in chains)) for call in function.calls]
        for chain in (
            () if function.native else (each for chains in (*named, *function.locals.values()) for each in chains)
        ):
            at = next((number for number, part in enumerate(chain) if number and _tells_free(part)), 0)
            held = chain[at - 1] if at else "self"
            if isinstance(held, str) and held != "self" and not _is_own(reading, function, chain[:at]):
                objects.add(held)
                told[function] = f"counts what is free: {chain[at]}"
    for function in reading.functions if objects else ():
        called = {each.name for each in function.calls for c in each.callee if len(c) > 1 and c[-2] in objects}
        if function in told:
            yield function, told[function]
        elif called & PUTS:
            yield function, PUTS_FAR
        elif asked := sorted(name for name in called if TAKES & split(name) or EMPTIES.search(name)):
            yield function, f"has another package give back what a request takes: {', '.join(asked)}"
        elif any(
            isinstance(value, External)
            for name in objects & function.locals.keys()
            for chain in function.locals[name]
            for value in reading.graph.evaluator.values(function, (chain[:-1],) if _result(chain[-1:]) else ())
        ):
            yield function, MAKES_FAR


def _sizes_far(reading: Reading) -> Iterator[tuple[Function, str]]:
    """What tells another package how large its cache is, in a call or as a key of its arguments."""
    for function in reading.functions:
        calls = [call for call in function.calls if not reading.is_inside(function, call)] if function.calls else []
        told = sorted(
            name
            for name in function.keys | {name for call in calls for name, _ in call.keywords}
            if says(name, "cache_setting")
        )
        if told and not (function.native or reading.is_beside(function.file)):
            yield function, f"sizes the cache of another package by {told[0]}"


def _tells_free(part: object) -> bool:
    words = split(part) if isinstance(part, str) else frozenset()
    return bool(words & {"free", "available", "remaining"} and words & {"block", "page", "slot"})


def _is_own(reading: Reading, function: Function, chain: Chain) -> bool:
    values = map(innermost, reading.graph.evaluator.values(function, (chain,)))
    return any(isinstance(each, Instance | ClassValue) for each in values)


def _given(reading: Reading, function: Function, chain: Chain) -> Iterator[tuple[Function, Iterable[Chain]]]:
    """A value, and what callers give for it where it is a parameter, each with the function that names it so."""
    yield function, (chain,)
    for edge in reading.graph.callers.get(function, ()) if chain[0] in function.params and len(chain) == 1 else ():
        if edge.call is not None:
            yield edge.caller, argument(function, chain[0], edge.call)


def _is_foreign(value: Value, made: str = "") -> bool:
    """Whether it is a class of another package that is named a cache, or an object of one."""
    if not isinstance(value, External) or not value.dotted.endswith(made):
        return False
    name = value.dotted.removesuffix("()").rpartition(".")[2]
    return name[:1].isupper() and "cache" in split(name) and not says(name, "not_kv_cache")


def _makes(reading: Reading, function: Function, classes: Mapping[Class, str]) -> str:
    """What makes the cache, or sizes it."""
    made = {edge.callee.owner for edge in reading.graph.edges[function] if edge.how == "constructor"}
    # A plain record has no constructor of its own.
    named = [call.callee for call in function.calls if call.name[:1].isupper()]
    values = (each for chains in named for each in reading.graph.evaluator.values(function, chains))
    made |= {each.of for each in values if isinstance(each, ClassValue)}
    if function.name != "__init__" and not made.isdisjoint(classes):
        returned = reading.graph.evaluator.returned(function, 0) if function.returns else ()
        sets = function.owner.attributes.values() if function.owner is not None else ()
        kept = reading.graph.evaluator.values(function, (c for some in sets for by, c in some if by is function))
        if _is_cache((*returned, *kept), classes):
            return "makes the cache"
    names = [split(each) for each in function.reads.union(function.params) - {"empty_cache"}]
    told = any(each & {"free", "available"} and each & {"mem", "memory"} for each in names)
    about = any(each & {"cache", "block", "kv", "token"} for each in names)
    if about and (told or FREE_MEMORY & {call.name for call in function.calls}):
        return "sizes the cache by the memory that is free"
    return ""


def _asks(reading: Reading, function: Function, classes: Mapping[Class, str], handled: Mapping[Function, str]) -> str:
    """What asks the cache for places, counts them, fills it, or has it made, from outside."""
    edges = reading.graph.edges[function]
    used = {edge.callee.name for edge in edges if edge.callee.owner in classes}
    empties = EMPTIES.search(function.name)
    if asked := {name for name in used if TAKES & split(name) or (empties and EMPTIES.search(name))}:
        return f"asks for places or gives them back: {', '.join(sorted(asked))}"
    for chain in function.sets:
        known = _is_cache(reading.graph.evaluator.values(function, (chain[:-1],)), classes)
        if (known or "cache" in split(str(chain[-2]))) and TOLD & split(str(chain[-1])):
            return f"sets its {chain[-1]}"
    called = {e.callee.name for e in edges if e.callee in handled and e.callee.owner is not function.owner}
    asked = {name for name in called if MAKES.search(name) and name != "__init__"}
    return f"makes or clears it: {', '.join(sorted(asked))}" if asked else ""


def _is_cache(values: Iterable[Value], classes: Mapping[Class, str]) -> bool:
    return any(isinstance(each, Instance) and each.of in classes for each in map(innermost, values))
