"""What of a config decides a model's formulas, seen by running code: fields that are read, and those that follow.

Imports torch and transformers.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.atlas.families import CHECKPOINT, Stated, Unlike, followed
from lmp.atlas.records import Facts, Follow
from lmp.records import ModelAnalysis
from lmp.workload.configs import config_variables, sections_of, text_part
from lmp.workload.load import quiet_warnings
from lmp.workload.parent_models import config_from, parent_models_of

JOINT = 6
"""Configs in which several integers are changed at once."""
_OWN = str(Path(__file__).resolve().parents[1])
PLUMBING = ("configuration_utils.py", "copy.py", "dataclasses.py")
"""Files whose code reads every field of a config to copy, compare or print it."""


@contextmanager
def reads() -> Iterator[set[str]]:
    """The names of the fields that transformers' code reads of any config while the block runs."""
    from transformers import PreTrainedConfig

    original = PreTrainedConfig.__getattribute__
    seen: set[str] = set()

    def watched(self: Any, name: str) -> Any:
        file = sys._getframe(1).f_code.co_filename
        if not (file.endswith(PLUMBING) or file.startswith(("<", _OWN))):
            seen.add(name)
        return original(self, name)

    PreTrainedConfig.__getattribute__ = watched
    try:
        yield seen
    finally:
        PreTrainedConfig.__getattribute__ = original


def facts_of(cls: type[Any], content: Mapping[str, Any] | None, read: Iterable[str], model: ModelAnalysis) -> Facts:
    """The facts of an entry's config; ``content`` is None for the class's default config."""
    with quiet_warnings():
        kind = _Kind(cls, content)
        config = kind.config(kind.content)
    assert config is not None
    part, section = text_part(config)
    prefix = f"{section}." if section else ""
    own = kind.aliases[prefix]
    paths = {}
    for name, variable in config_variables(config).items():
        paths[name] = prefix + _own_name(own, variable.path)
    for name, path in model.parameters.items():
        if path.startswith("config."):
            paths[name] = prefix + _own_name(own, path)
    sizes = sorted(set(paths.values()))
    resolved = kind.leaves(config)
    for path in paths.values():
        if path not in resolved:  # a property of the config's class
            resolved[path] = getattr(part, path.rpartition(".")[2], None)
    names = {own_name for aliases in kind.aliases.values() for alias, own_name in aliases.items() if alias in read}
    known = {*read, *names, *(path.rpartition(".")[2] for path in paths.values())}
    unread = sorted(path for path in resolved if path.rpartition(".")[2] not in known)
    kept = {path: value for path, value in resolved.items() if path not in unread and not _is_of_checkpoint(path)}
    stated = Stated.of(kind.content, kind.sections, kind.aliases).values
    with quiet_warnings():
        following = _Following(kind, kept, dict(stated), [path for path in sizes if path in kept])
        sizes, follows = following.changeable(), following.rules()
    return Facts(
        stated=dict(stated),
        resolved=kept,
        sections=kind.sections,
        aliases=kind.aliases,
        unread=unread,
        sizes=sizes,
        follows=follows,
        parameters=paths,
    )


def _own_name(aliases: Mapping[str, str], path: str) -> str:
    name = path.rpartition(".")[2]
    return aliases.get(name, name)


def _is_of_checkpoint(path: str) -> bool:
    return path.rpartition(".")[2] in CHECKPOINT


class _Kind:
    """The config's class, which fills in the fields that a file leaves out."""

    def __init__(self, cls: type[Any], content: Mapping[str, Any] | None) -> None:
        self._cls = cls
        if content is None:
            content = {"model_type": next(iter(parent_models_of(cls))).config_class.model_type}
        self.content = dict(content)
        config = config_from(cls, copy.deepcopy(self.content))
        found = dict(sections_of(config))
        self.sections = [prefix for prefix in found if prefix]
        self.aliases = {
            prefix: dict(getattr(section, "attribute_map", None) or {}) for prefix, section in found.items()
        }

    def config(self, content: Mapping[str, Any]) -> Any:
        """The config of a content; None if the class refuses it."""
        try:
            return config_from(self._cls, copy.deepcopy(dict(content)))
        except Exception:
            return None

    def leaves(self, config: Any) -> dict[str, Any]:
        """Every field of a config that is no config itself."""
        found: dict[str, Any] = {}
        for prefix, section in sections_of(config):
            plain = json.loads(json.dumps(section.to_dict(), default=str))
            found |= {prefix + name: value for name, value in plain.items() if f"{prefix}{name}." not in self.sections}
        return found


@dataclass(frozen=True)
class _Sample:
    """A config with some integers stated differently."""

    changed: frozenset[str]
    leaves: Mapping[str, Any]


class _Following:
    """Finds what each field is where it is not stated, by stating others differently."""

    def __init__(self, kind: _Kind, resolved: dict[str, Any], stated: dict[str, Any], sizes: list[str]) -> None:
        self._kind, self._resolved, self._stated, self._sizes = kind, resolved, stated, sizes

    def changeable(self) -> list[str]:
        """The integers that can be stated differently, all others as they are."""
        found = self._samples(None)
        return [path for path in self._sizes if any(sample.changed == {path} for sample in found)]

    def rules(self) -> dict[str, Follow]:
        """The fields that are not simply as in `Facts.resolved` where a file leaves them out."""
        found = {}
        samples = self._samples(None)
        for path in self._resolved:
            of_path = self._samples(path) if path in self._stated else samples
            found[path] = self._rule(path, of_path)
        return {
            path: follow
            for path, follow in sorted(found.items())
            if follow != Follow(kind="value", value=self._resolved[path])
        }

    def _samples(self, without: str | None) -> list[_Sample]:
        """The config without a field, and with integers changed; empty if its class refuses it without the field."""
        stated = {path: value for path, value in self._stated.items() if path != without}
        first = self._resolve(stated, {})
        if first is None:
            return []
        found = [first]
        drawn = random.Random(0)
        others = [path for path in self._sizes if path != without]
        for path in others:
            tries = (self._resolve(stated, {path: changed}) for changed in _changed(self._resolved[path]))
            found += filter(None, [next(filter(None, tries), None)])
        for _ in range(JOINT):
            several = {path: self._resolved[path] * drawn.choice((2, 3, 4)) for path in others if drawn.random() < 0.5}
            sample = self._resolve(stated, several)
            found += [sample] if sample is not None else []
        return found

    def _resolve(self, stated: Mapping[str, Any], changes: Mapping[str, int]) -> _Sample | None:
        content: dict[str, Any] = {}
        for path, value in {**stated, **changes}.items():
            *sections, name = path.split(".")
            place = content
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = value
        config = self._kind.config(content)
        if config is None:
            return None
        found = self._kind.leaves(config)
        for path in self._resolved.keys() - found.keys():  # properties
            part = config
            for name in path.split("."):
                part = getattr(part, name, None)
            found[path] = part
        return _Sample(frozenset(changes), found)

    def _rule(self, path: str, samples: Sequence[_Sample]) -> Follow:
        samples = [sample for sample in samples if path not in sample.changed]
        if not samples:
            return Follow(kind="required")
        first = samples[0].leaves.get(path)
        differing = [sample for sample in samples if sample.leaves.get(path) != first]
        others = [size for size in self._sizes if size != path]
        if not differing:
            return Follow(kind="value", value=first)
        of = [size for size in others if any(sample.changed == {size} for sample in differing)]
        for follow in _candidates(first, of, others):
            if all(_gives(follow, sample.leaves, sample.leaves.get(path)) for sample in samples):
                return follow
        return Follow(kind="unknown", of=of or others)


def _changed(value: int) -> list[int]:
    return [value * 2, value * 3, *([value // 2] if value % 2 == 0 else []), value * 4, value + 1]


def _candidates(value: Any, of: Sequence[str], sizes: Sequence[str]) -> Iterator[Follow]:
    """What a field may be: the same element in each layer; another size; a quotient, a product or a sum of two."""
    if isinstance(value, list):
        if value and all(one == value[0] for one in value):
            yield from (Follow(kind="repeated", value=value[0], of=[one]) for one in of)
        return
    yield from (Follow(kind="same", of=[one]) for one in of)
    for one in of:
        for other in sizes:
            if other != one:
                yield Follow(kind="quotient", of=[one, other])
                yield Follow(kind="product", of=[one, other])
                yield Follow(kind="sum", of=[one, other])


def _gives(follow: Follow, leaves: Mapping[str, Any], value: Any) -> bool:
    try:
        return bool(followed(follow, [leaves.get(path) for path in follow.of]) == value)
    except Unlike:
        return False
