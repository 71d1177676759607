"""The KV cache: tensors that are kept on an object, what fills them, and what hands out their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from lmp.codebase.graph.python_file import MAKERS
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.graph.values import ClassValue, Instance, innermost
from lmp.codebase.roles.reach import Reading, Row, place
from lmp.codebase.roles.words import says, split

ROLES = (
    ("evict", r"evict|prune|least_recent"),
    ("free", r"free|release|clear|reset|drop|remove|_rm$|seq_rm|seq_keep|dealloc|discard"),
    ("swap", r"swap|save|load|state_|offload|restore|serial|export|import"),
    (
        "accounting",
        r"size|count|num_|usage|total|refs?$|refs_|available|can_use|get_used|capacity|bytes|breakdown|len$|pos_m",
    ),
    ("allocate", r"alloc|init|reserve|find_slot|prepare|create|resize|new_"),
    ("paging", r"table|page|block|slot|match|prefix|split|req_to|index"),
    (
        "update",
        r"append|update|write|copy|cpy|insert|store|put|set_|add|push|quantiz|shift|apply|extend|__call__|forward",
    ),
)
"""What a method of a cache does, by its verb; the first that fits."""
HANDS = re.compile(r"alloc|(?<!num_)free|evict|release|reclaim")
"""Verbs of an allocator."""
TAKES = frozenset(["alloc", "allocate", "free", "evict", "release", "reclaim", "deallocate"])
COUNTS = re.compile(r"(?:_|^)(?:size|count|num|usage|total|available|capacity|used)(?:_|$)")
CALLED = ("forward", "__call__")
USES = 2
"""Rank of what uses the cache from outside: after the cache's own."""
EMPTIES = re.compile(r"reset|clear|flush")
PLACES = frozenset(["loc", "len", "slot", "index", "indice", "indices", "pos", "position", "mask", "id"])
"""Words of what tells places in a cache and holds nothing of it."""
BY_NAME = "handles the cache"


def cache_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}

    def add(of: Class | Function, why: str, rank: int = 0) -> None:
        row = Row("kv_cache", role_of(of.name, of), of.qualname, place(of), why, rank)
        found.setdefault((row.place.file, row.place.line), row)

    classes = dict(_classes(reading))
    for of, why in classes.items():
        add(of, why)
        for method in of.methods.values():
            if not _is_aside(method):
                made = any(each.on_self for each in method.made) or method.name == "__init__"
                add(method, "allocates it" if made else f"method of {of.name}", int(not made))
    for of, why in _records(reading, classes):
        add(of, why)
    handled = {each: why for each in reading.functions if (why := _named(reading, each, classes))}
    handled |= {each: "serves the cache alone" for each in _helpers(reading, classes)}
    handled |= _passed_on(reading, handled)
    for function in reading.functions:
        if function in handled:
            add(function, handled[function], int(handled[function] == BY_NAME))
        elif why := _function(reading, function, classes, handled):
            add(function, why, USES)
    for kernel in reading.facts.kernels:
        name = kernel.name
        if reading.is_own(kernel.place.file) and says(name, "kv_write") and not says(name, "attention"):
            found.setdefault(
                (kernel.place.file, kernel.place.line), Row("kv_cache", "update", name, kernel.place, "kernel", 1)
            )
    return list(found.values())


def _is_aside(method: Function) -> bool:
    """What every object has, what is shown elsewhere, and what only prints."""
    if method.name == "__init__":
        return not any(each.on_self for each in method.made) and not MAKERS & {call.name for call in method.calls}
    prints = "print" in split(method.name)
    return (
        prints
        or (method.name.startswith(("__", "~", "operator")) and method.name != "__call__")
        or method.name in ("begin", "end")
    )


def role_of(name: str, thing: object) -> str:
    if isinstance(thing, Class):
        return "layout"
    writes = not isinstance(thing, Function) or thing.writes
    return next((role for role, pattern in ROLES if re.search(pattern, name)), "update" if writes else "accounting")


def _classes(reading: Reading) -> Iterator[tuple[Class, str]]:
    """Classes that keep tensors which others read and which an index write or a kernel fills."""
    readers: dict[str, set[str]] = {}
    attending = reading.attending
    for function in reading.functions:
        if function in attending or says(function.qualname, "attention") or says(function.name, "kv_write"):
            for name in function.reads:
                readers.setdefault(name, set()).add(function.file)
    for of in reading.classes:
        if says(of.name, "not_kv_cache") or (of.outer is not None and not of.native):
            continue
        made = [each for method in of.methods.values() for each in method.made if each.on_self]
        cached = [
            each.target
            for each in made
            if ({"kv", "key", "value", "cache"} & split(each.target))
            and not PLACES & split(each.target)
            and readers.get(each.target, set()) - {of.file}
        ]
        if cached:
            yield of, f"keeps {', '.join(sorted(set(cached))[:3])}, which attention reads"
        elif pair := _keys_and_values(of):
            yield of, f"keeps {' and '.join(pair)}"
        elif made and _hands_out(of) and not says(of.name, "not_kv_cache"):
            yield of, "hands out places and takes them back"
        elif says(of.name, "kv_cache"):
            yield of, "keeps what the cache holds or where"
        elif any(says(base.name, "kv_cache") or _keeps(base) for base in reading.graph.evaluator.line(of)[1:]):
            yield of, "builds on a cache"


def _keys_and_values(of: Class) -> tuple[str, str] | None:
    """Two attributes, of keys and of values, that are named as a cache or kept on one: ``cache_k`` and ``cache_v``."""
    kept = "cache" in split(of.name)
    return _pair({name for name in of.attributes if kept or "cache" in split(name)})


def _pair(names: Iterable[str]) -> tuple[str, str] | None:
    """Of names two that are alike but for the word for keys and the word for values."""
    by_words = {split(name): name for name in names}
    for words, name in by_words.items():
        for key, value in (("k", "v"), ("key", "value"), ("keys", "values")):
            if key in words and (other := by_words.get(words - {key} | {value})):
                return name, other
    return None


def _hands_out(of: Class) -> bool:
    """An allocator: it has both halves."""
    names = " ".join(of.methods)
    return re.search(r"alloc", names) is not None and re.search(r"free|release", names) is not None


def _keeps(of: Class) -> bool:
    made = [each for method in of.methods.values() for each in method.made if each.on_self]
    return any("kv" in split(each.target) for each in made)


def _records(reading: Reading, classes: Mapping[Class, str]) -> Iterator[tuple[Class, str]]:
    """Plain records of a cache's own file that its methods make: of positions, slots and lengths."""
    made = {
        value.of
        for of in classes
        for method in of.methods.values()
        for call in method.calls
        for value in reading.graph.evaluator.values(method, call.callee)
        if isinstance(value, ClassValue) and value.of.file == of.file
    }
    for of in made - classes.keys():
        if len(of.fields) > 2 and reading.is_own(of.file):
            yield of, "a record that the cache makes"


HANDLES = re.compile(r"init|alloc|make|create|build|set|store|load|save|write|update|append|copy|insert|delete|free|clear|reset|grow|flush")


def _named(reading: Reading, function: Function, classes: Mapping[Class, str]) -> str:
    name = function.name
    if says(name, "not_kv_cache"):
        return ""
    if says(name, "kv_write") and not says(name, "attention"):
        return "writes keys and values into the cache"
    if says(name, "kv_cache"):
        return BY_NAME
    if "cache" in split(name) and HANDLES.search(name) and not function.native:
        if _pair({*function.reads, *function.params, *function.locals}):
            return "handles keys and values of a cache"
    return ""


def _helpers(reading: Reading, classes: Mapping[Class, str]) -> Iterator[Function]:
    """Functions of a cache's own file that it alone calls."""
    for function in reading.functions:
        if function.owner is None and not function.native and not (function.outer and function.outer.qualname):
            callers = {edge.caller.owner for edge in reading.graph.callers.get(function, ())}
            if callers and callers <= classes.keys() and any(each and each.file == function.file for each in callers):
                yield function


def _passed_on(reading: Reading, handled: Mapping[Function, str]) -> dict[Function, str]:
    """Methods of one name with what handles the cache, that call it or are called for it."""
    found: dict[Function, str] = {}
    names = {each.name: each for each in handled if "cache" in split(each.name)}
    for function in reading.functions:
        alike = function.name in names and function.owner is not None and not function.abstract
        if alike and function not in handled:
            found[function] = "of one name with what handles the cache"
    return found


def _function(
    reading: Reading, function: Function, classes: Mapping[Class, str], handled: Mapping[Function, str]
) -> str:
    if function.owner in classes or function.native:
        return ""
    edges = reading.graph.edges[function]
    made = {edge.callee.owner for edge in edges if edge.how == "constructor"}
    if made & classes.keys() and function.name != "__init__" and _keeps_or_returns(reading, function, classes):
        return "makes the cache"
    if any(isinstance(each, ClassValue) and each.of in classes for each in reading.graph.evaluator.returned(function, 0)):
        return "chooses the class of the cache"
    used = {e.callee.name for e in edges if e.callee.owner in classes}
    if asked := {name for name in used if split(name) & TAKES or (EMPTIES.search(name) and EMPTIES.search(function.name))}:
        return f"asks for places or gives them back: {', '.join(sorted(asked))}"
    if len(asked := {name for name in used if COUNTS.search(name)}) > 1 and "log" not in split(function.name):
        return f"counts what is free: {', '.join(sorted(asked))}"
    if function in reading.attending and (asked := {name for name in used if role_of(name, function) == "update"}):
        if function.owner is not None and function.name in CALLED or function in reading.attends:
            return f"attention that fills it: {', '.join(sorted(asked))}"
    about = {word for each in function.reads - {"empty_cache"} for word in split(each)}
    if FREE_MEMORY & {call.name for call in function.calls} and about & {"cache", "block", "kv", "token"}:
        return "sizes the cache by the memory that is free"
    called = {e.callee.name for e in edges if e.callee in handled and e.callee.owner is not function.owner}
    asked = {name for name in called if re.search("init|alloc|set|clear|reset|free|build|create|delete", name)}
    if asked:
        return f"makes or clears it: {', '.join(sorted(asked))}"
    return ""


FREE_MEMORY = frozenset(["mem_get_info", "memory_stats", "get_available_gpu_memory"])


def _keeps_or_returns(reading: Reading, function: Function, classes: Mapping[Class, str]) -> bool:
    kept = function.owner is not None and any(
        inside is function
        and any(
            isinstance(innermost(each), Instance) and innermost(each).of in classes
            for each in reading.graph.evaluator.chain(function, function.file, chain, 0)
        )
        for chains in function.owner.attributes.values()
        for inside, chain in chains
    )
    returned = reading.graph.evaluator.returned(function, 0) if function.returns else ()
    return kept or any(isinstance(innermost(each), Instance) and innermost(each).of in classes for each in returned)
