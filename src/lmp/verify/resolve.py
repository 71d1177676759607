"""Values of an analysis's ``parameters`` at one executed call of its class.

A path is a name, then attributes and indices: ``config.hidden_size``, ``self.num_key_value_groups``,
``init.out_features``, ``inputs.position_embeddings[0].shape[1]``, ``cache_len``.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch

from lmp.errors import InvalidAnalysis
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call


class Unresolvable(InvalidAnalysis):
    """A parameter's path leads to no integer at this call. The message says where it ends."""


_STEP = re.compile(r"\.?([A-Za-z_]\w*)|\[(-?\d+)\]")


def resolve_all(
    parameters: Mapping[str, str], call: Call, values: Mapping[str, int], config: Any = None
) -> tuple[dict[str, int], dict[str, str]]:
    """The parameters' values, and for those that have none the reason why."""
    found: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, path in parameters.items():
        try:
            found[name] = resolve(name, path, call, values, config)
        except Unresolvable as error:
            failed[name] = str(error)
    return found, failed


def contradicted(found: Mapping[str, int], call: Call, point: Mapping[str, int]) -> dict[str, str]:
    """Variables under the name of a constructor's argument that have another value than it, and what that is; and
    sizes of the call under one another's names.

    Whoever refers to the class binds them by that name.
    """
    arguments = constructor_arguments(call.module)
    wrong: dict[str, str] = {}
    if found.get("cache_len", point.get("cache_len", 0)) != point.get("cache_len", 0):
        wrong["cache_len"] = f"it is {found['cache_len']}, and the cache holds {point.get('cache_len', 0)} tokens"
    batch, new = point.get("batch_size"), point.get("seq_len")
    if batch != new and (found.get("batch_size"), found.get("seq_len")) == (new, batch):
        wrong["batch_size"] = f"it is {new}, which is seq_len at this point, and seq_len is the batch's {batch}"
    for name, value in found.items():
        if name in RUNTIME or arguments.get(name) is None:  # None: the class chooses
            continue
        with contextlib.suppress(Unresolvable):
            given = _integer(arguments[name], name)
            if given != value:
                wrong[name] = f"it is {value}, and the constructor was given {name}={given}"
    return wrong


def resolve(name: str, path: str, call: Call, values: Mapping[str, int], config: Any = None) -> int:
    """The value of parameter ``name``; ``values`` are the point's, ``config`` the model's.

    Raises Unresolvable.
    """
    steps = _steps(path)
    origin, rest = steps[0], steps[1:]
    if path in RUNTIME:
        if path not in values:
            raise Unresolvable(f"{path} is not given at this point")
        return values[path]
    if origin == "inputs" and rest and "cache_len" in values and _is_cache(call, str(rest[0])):
        # The cache's tensors have grown once the call has run: their length before it is the point's.
        return values["cache_len"]
    if not rest:
        raise Unresolvable(f"{path} names nothing: expected config.X, self.X, init.X or inputs.NAME.shape[I]")
    if origin == "config":
        return _config_value(name, path, rest, call, values, config)
    if origin == "self":
        try:
            return _integer(_follow(call.module, rest, path), path)
        except Unresolvable:
            if name.startswith("has_") or _others_have(call, rest):
                return 0  # the variable asks whether it is there, or it is in a part that only some of the class have
            raise
    if origin == "init":
        return _integer(_argument(call.module, rest, path), path)
    if origin == "inputs":
        if call.parent is None and name in values and bound_inputs(call).get(str(rest[0]), path) is None:
            # The point says what the outermost call is made with; an encoder's input may have gone in before.
            return values[name]
        return _integer(_input(call, rest, path), path)
    raise Unresolvable(f"{path} starts with {origin}: expected config, self, init or inputs")


def _others_have(call: Call, rest: list[str | int]) -> bool:
    """Whether a module is not there that others of the class have, where the path leads on."""
    if len(rest) < 2 or not isinstance(rest[0], str) or hasattr(call.module, rest[0]):
        return False
    outermost = call
    while outermost.parent is not None:
        outermost = outermost.parent
    others = (m for m in outermost.module.modules() if type(m) is type(call.module) and m is not call.module)
    for other in others:
        with contextlib.suppress(Unresolvable):
            _follow(other, rest, "")
            return isinstance(getattr(other, rest[0]), torch.nn.Module)
    return False


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0) != (not match[0].startswith((".", "["))):
            raise Unresolvable(f"{path} cannot be read at {path[position:]!r}")
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if not steps:
        raise Unresolvable("the path is empty")
    return steps


def _follow(value: Any, steps: list[str | int], path: str) -> Any:
    for step in steps:
        try:
            if isinstance(step, str):
                value = value[step] if isinstance(value, Mapping) and step in value else getattr(value, step)
            elif isinstance(value, int) and not isinstance(value, bool):
                pass  # one size for all dimensions, as torch's own modules take them
            else:
                value = value[step]
        except Exception:  # a config whose layers differ refuses in a way of its own
            shown = f".{step}" if isinstance(step, str) else f"[{step}]"
            raise Unresolvable(f"{path}: there is no {shown} in a {type(value).__name__}") from None
    return value


def _integer(value: Any, path: str) -> int:
    """Integers as they are; switches as 1 and 0; something that is there or not (a bias) likewise."""
    if value is None:
        return 0
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return 1
    if isinstance(value, (list, tuple)) and value and all(type(v) is int and v == value[0] for v in value):
        return int(value[0])  # one size for all dimensions, written out
    raise Unresolvable(f"{path} is {value!r}, not an integer")


def _config_value(
    name: str, path: str, rest: list[str | int], call: Call, values: Mapping[str, int], config: Any
) -> int:
    """The module's own config where it has one (it may be a part of the model's), else the point's value."""
    own = getattr(call.module, "config", None)
    found: Any = None
    failure: Unresolvable | None = None
    for holder in (own, config):
        if holder is None:
            continue
        try:
            found = _follow(holder, _mapped(holder, rest), path)
        except Unresolvable as error:
            failure = failure or error
            continue
        if found is not None:
            return _integer(found, path)
        break
    if name in values:
        return values[name]
    if failure is not None:
        raise failure
    if own is None and config is None:
        raise Unresolvable(f"{path}: {type(call.module).__name__} has no config, and the model none either")
    return _integer(found, path)


def _mapped(config: Any, rest: list[str | int]) -> list[str | int]:
    """The first attribute under the config's own name for it."""
    mapping = getattr(config, "attribute_map", None) or {}
    first = rest[0]
    return [mapping.get(first, first), *rest[1:]] if isinstance(first, str) else rest


def _argument(module: torch.nn.Module, rest: list[str | int], path: str) -> Any:
    """A constructor's argument; modules built unseen are asked for the attribute of that name."""
    arguments = constructor_arguments(module)
    if rest[0] in arguments:
        return _follow(arguments[str(rest[0])], rest[1:], path)
    try:
        return _follow(module, rest, path)
    except Unresolvable:
        known = ", ".join(arguments) or "none recorded"
        raise Unresolvable(
            f"{path}: {type(module).__name__} was not constructed with {rest[0]} (arguments: {known})"
        ) from None


def _input(call: Call, rest: list[str | int], path: str) -> Any:
    given = bound_inputs(call)
    if rest[0] not in given:
        raise Unresolvable(f"{path}: this call has no input {rest[0]} (inputs: {', '.join(given) or 'none'})")
    value = given[str(rest[0])]
    if value is None and rest[1:2] in (["shape"], ["layers"], ["self_attention_cache"]):
        return 0  # an input that is not there has no tokens
    return _follow(value, rest[1:], path)


def _is_cache(call: Call, name: str) -> bool:
    """Whether the input is a KV cache. The outermost call is given none, and makes it, where there is nothing in it."""
    return hasattr(bound_inputs(call).get(name), "get_seq_length")


def bound_inputs(call: Call) -> dict[str, Any]:
    """The arguments of the call's forward() by name, defaults included, ``**kwargs`` spread out."""
    try:
        signature = inspect.signature(type(call.module).forward)
        bound = signature.bind(call.module, *call.args, **call.kwargs)
    except (TypeError, ValueError):
        return dict(call.kwargs)
    bound.apply_defaults()
    given: dict[str, Any] = {}
    for parameter in list(signature.parameters.values())[1:]:
        value = bound.arguments[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
        else:
            given[parameter.name] = value
    return given
