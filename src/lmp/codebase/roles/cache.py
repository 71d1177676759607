"""The KV cache: tensors that are kept on an object, what fills them, and what hands out their places."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.codebase.graph.records import Class, Function
from lmp.codebase.graph.values import ClassValue
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


def cache_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}
    classes = list(_classes(reading))
    for of, why in classes:
        _add(found, Row("kv_cache", "layout", of.qualname, place(of), why))
        for method in of.methods.values():
            if not _is_aside(method):
                _add(
                    found,
                    Row(
                        "kv_cache", role_of(method.name, method), method.qualname, place(method), f"method of {of.name}"
                    ),
                )
    kept = {of for of, _ in classes}
    for function in reading.functions:
        why = _function(reading, function, kept)
        if why.startswith("asks"):
            role = "allocate" if "alloc" in why.replace("dealloc", "") else "free"
            _add(found, Row("kv_cache", role, function.qualname, place(function), why, 2))
        elif why:
            _add(found, Row("kv_cache", role_of(function.name, function), function.qualname, place(function), why, 1))
    for kernel in reading.facts.kernels:
        name = kernel.name
        if reading.is_own(kernel.place.file) and says(name, "kv_write") and not says(name, "attention"):
            _add(found, Row("kv_cache", "update", name, kernel.place, "kernel", 1))
    return list(found.values())


def _add(found: dict[tuple[str, int], Row], row: Row) -> None:
    found.setdefault((row.place.file, row.place.line), row)


def _is_aside(method: Function) -> bool:
    """What every object has, and what is shown elsewhere."""
    return (method.name.startswith(("__", "~", "operator")) and method.name != "__call__") or method.name in (
        "begin",
        "end",
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
            if ({"kv", "key", "value", "cache"} & split(each.target)) and readers.get(each.target, set()) - {of.file}
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
    for name in of.attributes:
        words = split(name)
        for key, value in (("k", "v"), ("key", "value"), ("keys", "values")):
            cached = "cache" in words or "cache" in split(of.name)
            other = next((one for one in of.attributes if split(one) == words - {key} | {value}), None)
            if key in words and cached and other is not None:
                return name, other
    return None


def _hands_out(of: Class) -> bool:
    """An allocator: it has both halves."""
    names = " ".join(of.methods)
    return re.search(r"alloc", names) is not None and re.search(r"free|release", names) is not None


def _keeps(of: Class) -> bool:
    made = [each for method in of.methods.values() for each in method.made if each.on_self]
    return any("kv" in split(each.target) for each in made)


def _function(reading: Reading, function: Function, kept: set[Class]) -> str:
    name = function.name
    if says(name, "kv_write") and not says(name, "attention"):
        return "writes keys and values into the cache"
    if says(name, "kv_cache") and not says(name, "not_kv_cache"):
        return "handles the cache"
    if function.owner in kept or function.native:
        return ""
    made = {edge.callee.owner for edge in reading.graph.edges[function] if edge.how == "constructor"}
    if made & kept and function.name != "__init__":
        return "makes the cache"
    if any(isinstance(each, ClassValue) and each.of in kept for each in reading.graph.evaluator.returned(function, 0)):
        return "chooses the class of the cache"
    asked = {
        edge.callee.name
        for edge in reading.graph.edges[function]
        if edge.callee.owner in kept and HANDS.search(edge.callee.name)
    }
    if asked and HANDS.search(name):
        return f"asks for places or gives them back: {', '.join(sorted(asked))}"
    return ""
