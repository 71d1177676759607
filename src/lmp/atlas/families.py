"""The formulas of an entry at another config of the same class: which configs they hold for, and with which values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lmp.atlas.records import Facts, Follow
from lmp.formula import evaluate_condition, free_variables, parse_condition
from lmp.records import ModelAnalysis

CHECKPOINT = frozenset({"quantization_config", "dtype", "torch_dtype"})
"""Fields about stored weights. Formulas have every weight at w_bytes; the dtype of execution is an option."""


class Unlike(Exception):
    """Why an entry's formulas do not hold for a config, in words. ``fields``: how many fields differ."""

    def __init__(self, why: str, fields: int = 0) -> None:
        super().__init__(why)
        self.fields = fields


@dataclass(frozen=True)
class Stated:
    """A config's fields by path, under their own names."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, content: Mapping[str, Any], sections: list[str], aliases: Mapping[str, Mapping[str, str]]) -> Stated:
        """The fields that a config.json states."""
        return cls(dict(_leaves(content, "", frozenset(sections), aliases)))


def _leaves(
    content: Mapping[str, Any], prefix: str, sections: frozenset[str], aliases: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and f"{prefix}{name}." in sections:
            yield from _leaves(value, f"{prefix}{name}.", sections, aliases)
        else:
            yield prefix + aliases.get(prefix, {}).get(name, name), value


def at_config(model: ModelAnalysis, facts: Facts, content: Mapping[str, Any]) -> dict[str, int]:
    """The values of the formulas' variables at a config. Raises Unlike if the formulas do not hold there."""
    values = dict(model.values)
    found = _Compared(facts, content)
    found.compare()
    for name in values:
        path = facts.parameters.get(name)
        if path is None:
            raise Unlike(f"{name} comes from {model.parameters.get(name, 'no field')}, which no config states")
        value = found.value(path)
        if not _is_size(value):
            raise Unlike(f"{path} is {value!r:.40}")
        values[name] = value
    for name, pinned in model.pinned.items():
        path = facts.parameters.get(name)
        value = None if path is None else found.value(path)
        if value != pinned:
            raise Unlike(f"the formulas are for {name} = {pinned} alone, and it is {value!r:.40}")
    for text in model.assumptions:
        condition = parse_condition(text)
        if set(free_variables(condition)) <= values.keys() and not evaluate_condition(condition, values):
            raise Unlike(f"the assumption {text} does not hold")
    return values


class _Compared:
    """A config beside that of an entry."""

    def __init__(self, facts: Facts, content: Mapping[str, Any]) -> None:
        self.facts = facts
        self.given = Stated.of(content, facts.sections, facts.aliases).values
        self._unread = frozenset(facts.unread)
        self._free = frozenset(facts.sizes)

    def compare(self) -> None:
        """Raises Unlike for the first field that differs and that no variable of the formulas stands for."""
        found = list(self._differences())
        if found:
            raise Unlike(found[0], len(found))

    def _differences(self) -> Iterator[str]:
        for path in {**self.facts.resolved, **self.facts.stated, **self.given}:
            if path in self._unread or path.rpartition(".")[2] in CHECKPOINT:
                continue
            try:
                ours = self.value(path)
            except Unlike as error:
                yield str(error)
                continue
            if path not in self.facts.resolved:  # the class turns it into others, or does not know it
                theirs = self.facts.stated.get(path)
                if not _equal(ours, theirs):
                    yield _differs(path, ours, theirs)
                continue
            theirs = self.facts.resolved[path]
            same = _equal(ours, theirs) and not self._is_of_other_layers(theirs)
            if not (same or self._both_sizes(path, ours, theirs) or self._alike(ours, theirs)):
                yield _differs(path, ours, theirs)

    def value(self, path: str) -> Any:
        """The value of a field: as it is stated, else as it follows from others. Raises Unlike if neither says it."""
        facts = self.facts
        if path in self.given:
            return self.given[path]
        follow = facts.follows.get(path)
        if follow is None:
            return facts.resolved.get(path)
        return self._following(path, follow)

    def _following(self, path: str, follow: Follow) -> Any:
        if follow.kind == "value":
            return follow.value
        if follow.kind == "required":
            raise Unlike(f"{path} is not stated")
        of = [self.value(one) for one in follow.of]
        if follow.kind == "unknown":
            changed = [one for one, value in zip(follow.of, of, strict=True)
                       if not _equal(value, self.facts.resolved.get(one))]  # fmt: skip
            if changed or path in self.facts.stated:
                raise Unlike(f"{path} is not stated; it follows from {', '.join(changed or follow.of)}")
            return self.facts.resolved[path]
        return followed(follow, of)

    def _both_sizes(self, path: str, ours: Any, theirs: Any) -> bool:
        return path in self._free and _is_size(ours) and _is_size(theirs)

    def _is_of_other_layers(self, theirs: Any) -> bool:
        """True for a list whose length is that of a size which differs here."""
        if not isinstance(theirs, list) or not theirs:
            return False
        counts = (path for path in self._free if self.facts.resolved.get(path) == len(theirs))
        return any(self._size(path) != len(theirs) for path in counts)

    def _size(self, path: str) -> Any:
        """The value of a field; None where neither it nor what it follows from is stated."""
        try:
            return self.value(path)
        except Unlike:
            return None

    def _alike(self, ours: Any, theirs: Any) -> bool:
        """True for one element in each layer, in both configs: alike layers stand once in the formulas."""
        if not (isinstance(ours, list) and isinstance(theirs, list) and ours and theirs):
            return False
        if any(not _equal(one, theirs[0]) for one in (*ours, *theirs)):
            return False
        lengths = (len(ours), len(theirs))
        return any(lengths == (self._size(path), self.facts.resolved.get(path)) for path in self._free)


def followed(follow: Follow, of: list[Any]) -> Any:
    """The value of a field that follows from others. Raises Unlike if these are no sizes."""
    if not all(map(_is_size, of)):
        raise Unlike(f"{', '.join(follow.of)} are no sizes")
    if follow.kind == "repeated":
        return [follow.value] * of[0]
    if follow.kind == "same":
        return of[0]
    one, other = of
    return {"quotient": one // other, "product": one * other, "sum": one + other}[follow.kind]


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _equal(one: Any, other: Any) -> bool:
    """Equal as JSON: True is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    return bool(one == other)


def _differs(path: str, ours: Any, theirs: Any) -> str:
    return f"{path} is {_shown(ours)}, and {_shown(theirs)} in the atlas"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
