"""Config repair: completes a default config that is inconsistent, such as ``None`` in place of a required number.

A config with which the model runs stays unchanged. Otherwise general rules propose changes. The first proposal that
lets the model run further is kept. The remaining failure is then repaired in the same way. Each change has a text with
its reason. No rule knows a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from lmp.errors import InconsistentDefault
from lmp.workload.failures import Failure, failure_of
from lmp.workload.model import ModelWorkload
from lmp.workload.repair_rules import Change, changes

MOST_CHANGES = 12
"""Maximum number of repair rounds for one config."""

Content = dict[str, Any]
"""Content of a config.json beyond the defaults, nested by section."""


Step = tuple[Change, Content, Any, Failure | None]
"""A change, the content with it, the resulting config, and the remaining failure."""


def consistent(model_class: type[Any], config: Any = None) -> tuple[Any, tuple[str, ...]]:
    """The config (default: the class's own default) with which the model runs, and the changes that this took.

    A failure for another reason than the config is not repaired: a missing package, or something without a rule. Then
    the config is returned unchanged.

    Raises InconsistentDefault, with file and line, if the config contradicts itself and no rule repairs it.
    """
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
        made = tried or made  # if the config cannot be made yet, the last one is used for proposals
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
    """The first change with which the model runs, else the first whose new failure is at the latest stage."""
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
    """The config with the necessary changes only: a later change may have made an earlier one needless."""
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
    """The content with additional values. ``a.b`` is the field b of the section a."""
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
    """The config of this content, and the failure of the model in its phases; None if it runs."""
    config = None
    try:
        config = model_class.config_class.from_dict(copy.deepcopy(stated))
        workload = ModelWorkload(model_class, copy.deepcopy(config))
        for error in workload.failed.values():
            return config, failure_of(error)
    except Exception as error:
        return config, failure_of(error)
    return config, None
