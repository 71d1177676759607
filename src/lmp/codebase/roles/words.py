"""The words of the field, from one short data file in which each entry has its reason."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from lmp.codebase.graph.graph import words

FILE = Path(__file__).with_name("words.toml")


JOINED = ("moe", "cache", "attention", "attn")
"""Words that are written together with others: ``pagedattention``, ``kvcache``."""


@cache
def vocabulary() -> dict[str, tuple[frozenset[str], ...]]:
    """Part -> the sets of words of which one must be there in full."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))["entry"]
    return {each["part"]: tuple(frozenset(one) for one in each["all"]) for each in entries}


@cache
def field_words() -> frozenset[str]:
    """Words of the field that tell parts of a run apart only together with what the code does."""
    return frozenset(word for one in vocabulary()["field"] for word in one)


@cache
def _by_word() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """One word of each entry -> its part, and all of its words."""
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for part, every in vocabulary().items():
        for one in every:
            found.setdefault(min(one), []).append((part, one))
    return found


@cache
def split(name: str) -> frozenset[str]:
    found = {*words(name), *(part.lower() for part in re.split(r"[._]", name) if part)}
    # ``TopKFilter`` has a letter that stands for itself.
    found |= {part.lower() for part in re.findall(r"(?<=[a-z])[A-Z](?=[A-Z][a-z])", name)}
    # ``KVCache`` is cut before its last capital: the letters before it are a word of their own.
    lower = name.lower()
    if re.search(r"(?<![qw])kv", lower):
        found.add("kv")
    found.update(word for word in JOINED if word in lower)
    return frozenset(found | {word[:-1] for word in found if word.endswith("s") and len(word) > 3})


@cache
def parts_of(name: str) -> frozenset[str]:
    """The parts of which a name has all words of an entry."""
    has = split(name)
    return frozenset(part for word in has for part, one in _by_word().get(word, ()) if one <= has)


def says(name: str, part: str) -> bool:
    """Whether a name has all words of one of the part's entries."""
    return part in parts_of(name)


def rank(name: str, part: str) -> int | None:
    """Which of the part's entries, of which the first comes first, a name has all words of."""
    has = split(name)
    return next((number for number, one in enumerate(vocabulary().get(part, ())) if one <= has), None)
