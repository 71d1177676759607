"""A model's default config, made consistent where it is not: ``None`` where the model needs a number, fields left out.

Nothing is changed of a config with which the model is built and runs. Else general rules propose changes; the first
proposal with which the model comes further is kept, and what is still wrong then is looked at in the same way. Each
change is told as text, with what it follows from. No rule knows a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lmp.errors import InconsistentDefault
from lmp.workload.failures import Failure, failure_of
from lmp.workload.model import ModelWorkload

MOST_CHANGES = 12
"""So many rounds of changes are tried for one config."""

Content = dict[str, Any]
"""What a config.json would state beyond the defaults, nested by section."""


Step = tuple["Change", Content, Any, "Failure | None"]
"""A change, the content with it, the config that it makes, and what still keeps the model from running."""


@dataclass(frozen=True)
class Change:
    """Values for fields of a config, each by its path (``text_config.head_dim``), and why, as one text each."""

    values: Mapping[str, Any]
    told: tuple[str, ...]


def consistent(model_class: type[Any], config: Any = None) -> tuple[Any, tuple[str, ...]]:
    """The config (default: the class's own default) with which the model runs, and the changes that this took.

    What keeps the model from running for another reason than its config (a package that is not installed, something
    that lmp has no rule for) is no matter of this: then the config is given back as it was.
    Raises InconsistentDefault, with file and line, where the config contradicts itself and no rule mends it.
    """
    from lmp.workload.mending import changes

    config_class = model_class.config_class
    stated: Content = {} if config is None else config.to_dict()
    base = copy.deepcopy(stated)
    made, failure = _tried(model_class, stated)
    if failure is None or not failure.is_of_config:
        return _given_back(config, made, failure), ()
    kept: list[Change] = []
    seen = {failure.identity}
    for _ in range(MOST_CHANGES):
        step = _further(model_class, stated, changes(config_class, made, failure), seen)
        if step is None:
            break
        change, stated, tried, left = step
        made = tried or made  # what cannot be made yet is told by what was made last
        kept.append(change)
        if left is None or not left.is_of_config:
            return _least(model_class, base, made, kept, left)
        failure = left
        seen.add(left.identity)
    told = "".join(f"; {text}" for change in kept for text in change.told)
    raise InconsistentDefault(
        f"{config_class.__name__}: the model does not run with its default values: {failure.text} ({failure.place})"
        f"{told}\ngive a config with --config or --model-id"
    ) from failure.error


def _further(
    model_class: type[Any], stated: Content, proposed: Iterator[Change], seen: set[tuple[str, str]]
) -> Step | None:
    """The first change with which the model runs; else the first with which another thing keeps it from running."""
    found: Step | None = None
    for change in proposed:
        content = with_values(stated, change.values)
        made, left = _tried(model_class, content)
        if left is None or not left.is_of_config:
            return change, content, made, left
        before = found[3] if found else None
        if left.identity not in seen and (before is None or left.is_further_than(before)):
            found = change, content, made, left
    return found


def _least(
    model_class: type[Any], base: Content, made: Any, kept: list[Change], left: Failure | None
) -> tuple[Any, tuple[str, ...]]:
    """The config with those of the changes that it takes: one may have made another needless."""
    for change in list(kept)[:-1]:
        others = [c for c in kept if c is not change]
        content = base
        for other in others:
            content = with_values(content, other.values)
        tried, still = _tried(model_class, content)
        if (still and still.identity) == (left and left.identity):
            made, kept = tried, others
    return made, tuple(dict.fromkeys(text for change in kept for text in change.told))


def with_values(stated: Content, values: Mapping[str, Any]) -> Content:
    """The content with some values more; ``a.b`` is the field b of the section a."""
    found = copy.deepcopy(stated)
    for path, value in values.items():
        *sections, name = path.split(".")
        part = found
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = value
    return found


def _given_back(config: Any, made: Any, failure: Failure | None) -> Any:
    if made is None and failure is not None:
        raise failure.error
    return made if config is None else config


def _tried(model_class: type[Any], stated: Content) -> tuple[Any, Failure | None]:
    """The config of this content, and what keeps the model from running with it in the phases that it has."""
    config = None
    try:
        config = model_class.config_class.from_dict(copy.deepcopy(stated))
        workload = ModelWorkload(model_class, copy.deepcopy(config))
        for error in workload.failed.values():
            return config, failure_of(error)
    except Exception as error:
        return config, failure_of(error)
    return config, None
