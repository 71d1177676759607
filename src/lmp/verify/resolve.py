"""Values of an analysis's ``parameters`` at one executed call of its class, and contradictions among them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call
from lmp.workload.paths import Unresolvable, as_size, resolve


def resolve_all(
    parameters: Mapping[str, str], call: Call, values: Mapping[str, int], config: Any = None
) -> tuple[dict[str, int], dict[str, str]]:
    """Variable -> value, and variable -> reason for those without a value."""
    found: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, path in parameters.items():
        try:
            found[name] = resolve(name, path, call, values, int, config)
        except Unresolvable as error:
            failed[name] = str(error)
    return found, failed


def contradicted(found: Mapping[str, int], call: Call, point: Mapping[str, int]) -> dict[str, str]:
    """Variable -> reason, for variables whose value contradicts the call.

    A variable named like a constructor argument must have that argument's value, because references bind it by that
    name. The sizes of the call must not be swapped, and cache_len must be the length of the cache.
    """
    arguments = constructor_arguments(call.module)
    wrong: dict[str, str] = {}
    if found.get("cache_len", point.get("cache_len", 0)) != point.get("cache_len", 0):
        wrong["cache_len"] = f"it is {found['cache_len']}, and the cache holds {point.get('cache_len', 0)} tokens"
    batch, new = point.get("batch_size"), point.get("seq_len")
    if batch != new and (found.get("batch_size"), found.get("seq_len")) == (new, batch):
        wrong["batch_size"] = f"it is {new}, which is seq_len at this point, and seq_len is the batch's {batch}"
    for name, value in found.items():
        if name in RUNTIME or arguments.get(name) is None:  # None: the class sets the value itself
            continue
        with contextlib.suppress(Unresolvable):
            given = as_size(arguments[name], name, int)
            if given != value:
                wrong[name] = f"it is {value}, and the constructor was given {name}={given}"
    return wrong
