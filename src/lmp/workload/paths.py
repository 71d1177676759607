"""Parameter paths: evaluation of a parameter's path to a size at one call of a class.

A path is a name, followed by attributes and indices: ``config.hidden_size``, ``self.num_key_value_groups``,
``init.out_features``, ``inputs.position_embeddings[0].shape[1]``, ``cache_len``. The engine evaluates it with symbolic
sizes, and the judge with integers. Nothing is counted here, so both may share this code.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from lmp.errors import InvalidAnalysis
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call
from lmp.workload.configs import STANDARD_NAMES

Size = TypeVar("Size")
"""The caller's type of sizes: integers or formulas."""

Steps = Sequence[str | int]
"""Attributes and indices of a path, in order."""

ABSENT = ("shape", "ndim", "dtype", "layers", "self_attention_cache")
"""Attributes of an absent input that give 0: its dimensions, its bytes, its cached tokens."""

_STEP = re.compile(r"\.?([A-Za-z_]\w*)|\[(-?\d+)\]")


class Unresolvable(InvalidAnalysis):
    """A parameter's path has no size at this call. The message names the step that fails."""


def resolve(
    name: str,
    path: str,
    call: Call,
    values: Mapping[str, Size],
    size: Callable[[Any], Size],
    config: Any = None,
) -> Size | int:
    """The value of parameter ``name``. ``values`` are those of the point, and ``config`` is the model's.

    ``size`` converts one integer of the run. Raises Unresolvable.
    """
    steps = steps_of(path)
    origin, rest = steps[0], steps[1:]
    if path in RUNTIME:
        if path not in values:
            raise Unresolvable(f"{path} is not given at this point")
        return values[path]
    if origin == "inputs" and rest and "cache_len" in values and _is_cache(call, rest[0]):
        # The cache's tensors are longer after the call. The point has their length before it.
        return values["cache_len"]
    if not rest:
        raise Unresolvable(f"{path} names nothing: expected config.X, self.X, init.X or inputs.NAME.shape[I]")
    if origin == "config":
        return _config_value(name, path, call, values, size, config)
    if origin == "self":
        try:
            return as_size(follow(call.module, rest, path), path, size)
        except Unresolvable:
            if name.startswith("has_") or _others_have(call, rest):
                return 0  # the variable states its presence, or only some instances of the class have the part
            raise
    if origin == "init":
        return as_size(_argument(call.module, rest, path), path, size)
    if origin == "inputs":
        given = forward_arguments(call, defaults=True)
        if call.parent is None and name in values and given.get(str(rest[0]), path) is None:
            # The point defines the inputs of the outermost call. An encoder's input may belong to an earlier call.
            return values[name]
        return as_size(_input(given, rest, path), path, size)
    raise Unresolvable(f"{path} starts with {origin}: expected config, self, init or inputs")


@functools.lru_cache(maxsize=4096)
def steps_of(path: str) -> tuple[str | int, ...]:
    """The attributes and indices of a path. Raises Unresolvable if it is malformed."""
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
    return tuple(steps)


def follow(value: Any, steps: Steps, path: str) -> Any:
    """The value at the end of the steps. Raises Unresolvable, with the failing step of ``path``."""
    for step in steps:
        try:
            if isinstance(step, str):
                value = value[step] if isinstance(value, Mapping) and step in value else getattr(value, step)
            elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
                pass  # one size for all dimensions, as in torch's own modules
            else:
                value = value[step]
        except Exception:  # a config with different layers raises an error of its own
            shown = f".{step}" if isinstance(step, str) else f"[{step}]"
            raise Unresolvable(f"{path}: there is no {shown} in a {type(value).__name__}") from None
    return value


def as_size(value: Any, path: str, size: Callable[[Any], Size]) -> Size | int:
    """Convert a value to a size: integers unchanged; booleans, and the presence of a tensor or module, to 0 or 1.

    Raises Unresolvable for other values.
    """
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, torch.SymInt)):
        return size(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return 1
    if isinstance(value, (list, tuple)) and value and all(type(v) in (int, torch.SymInt) for v in value):
        sizes = [size(v) for v in value]
        if all(s == sizes[0] for s in sizes):
            return sizes[0]  # one size for all dimensions, given for each
    raise Unresolvable(f"{path} is {value!r}, not an integer")


def _others_have(call: Call, rest: Steps) -> bool:
    """True if the module lacks a submodule that other instances of its class have, with the rest of the path."""
    if len(rest) < 2 or not isinstance(rest[0], str) or getattr(call.module, rest[0], None) is not None:
        return False
    outermost = call
    while outermost.parent is not None:
        outermost = outermost.parent
    others = (m for m in outermost.module.modules() if type(m) is type(call.module) and m is not call.module)
    for other in others:
        with contextlib.suppress(Unresolvable):
            follow(other, rest, "")
            return isinstance(getattr(other, rest[0]), torch.nn.Module)
    return False


def _config_value(
    name: str,
    path: str,
    call: Call,
    values: Mapping[str, Size],
    size: Callable[[Any], Size],
    config: Any,
) -> Size | int:
    """The value in the module's config (it may be a section of the model's), else in the point."""
    rest = steps_of(path)[1:]
    own = getattr(call.module, "config", None)
    found: Any = None
    failure: Unresolvable | None = None
    for holder in (own, config):
        if holder is None:
            continue
        try:
            found = follow(holder, _mapped(holder, rest), path)
        except Unresolvable as error:
            failure = failure or error
            continue
        if found is not None:
            return as_size(found, path, size)
        break
    last = str(rest[-1])
    for known in (name, STANDARD_NAMES.get(last, last)):
        if known in values:
            return values[known]
    if failure is not None:
        raise failure
    if own is None and config is None:
        raise Unresolvable(f"{path}: {type(call.module).__name__} has no config, and the model none either")
    return as_size(found, path, size)


def _mapped(config: Any, rest: Steps) -> Steps:
    """The steps with the first attribute under the config's own name."""
    mapping = getattr(config, "attribute_map", None) or {}
    first = rest[0]
    return [mapping.get(first, first), *rest[1:]] if isinstance(first, str) else rest


def _argument(module: torch.nn.Module, rest: Steps, path: str) -> Any:
    """A constructor argument. For a module that was built without recording, the attribute of that name.

    If it is a module, the next step is an argument of that module's constructor.
    """
    arguments = constructor_arguments(module)
    if rest[0] in arguments:
        given = arguments[str(rest[0])]
        of_given = isinstance(given, torch.nn.Module) and len(rest) > 1
        return _argument(given, rest[1:], path) if of_given else follow(given, rest[1:], path)
    try:
        return follow(module, rest, path)
    except Unresolvable:
        known = ", ".join(arguments) or "none recorded"
        raise Unresolvable(
            f"{path}: {type(module).__name__} was not constructed with {rest[0]} (arguments: {known})"
        ) from None


def _input(given: Mapping[str, Any], rest: Steps, path: str) -> Any:
    if rest[0] not in given:
        raise Unresolvable(f"{path}: this call has no input {rest[0]} (inputs: {', '.join(given) or 'none'})")
    value = given[str(rest[0])]
    if value is None and rest[1:2] and rest[1] in ABSENT:
        return 0  # an absent input has no tokens
    return follow(value, rest[1:], path)


# -- arguments of a call ----------------------------------------------------------------------------------------------


def forward_arguments(call: Call, defaults: bool = False) -> dict[str, Any]:
    """The arguments of the call's ``forward()`` by name, ``**kwargs`` flattened; with ``defaults`` the defaults too."""
    signature = _signature(type(call.module).forward)
    try:
        bound = signature.bind_partial(call.module, *call.args, **call.kwargs)
    except TypeError:
        return dict(call.kwargs)
    if defaults:
        bound.apply_defaults()
    found: dict[str, Any] = {}
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found.update(bound.arguments.get(parameter.name, {}))
        elif parameter.name in bound.arguments:
            found[parameter.name] = bound.arguments[parameter.name]
    return found


@functools.lru_cache(maxsize=512)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def is_kv_cache(value: Any) -> bool:
    """True if a value is a KV cache of any class: it can report its number of tokens."""
    return hasattr(value, "get_seq_length")


def caches_given(call: Call) -> list[Any]:
    """The KV caches among the arguments of a call."""
    return [value for value in (*call.args, *call.kwargs.values()) if is_kv_cache(value)]


def caches_after(calls: Sequence[Call]) -> list[Any]:
    """The KV caches of a run: those that its calls were given, and those that the outermost one returns."""
    returned = calls[0].output if calls else None
    made = [value for value in returned.values() if is_kv_cache(value)] if isinstance(returned, Mapping) else []
    return [*(cache for call in calls for cache in caches_given(call)), *made]


def cached_tensors(cache: Any) -> list[torch.Tensor]:
    """The keys and values that a KV cache holds now, those of cross-attention included.

    States of a recurrence are not among them: they have one size for any number of tokens.
    """
    parts = [getattr(cache, name, None) for name in ("self_attention_cache", "cross_attention_cache")]
    layers = [layer for part in (cache, *parts) for layer in getattr(part, "layers", ())]
    held = (getattr(layer, name, None) for layer in layers for name in ("keys", "values"))
    return [tensor for tensor in held if isinstance(tensor, torch.Tensor)]


def _is_cache(call: Call, name: str | int) -> bool:
    """True if the input is a KV cache. The outermost call gets no empty cache: it makes one."""
    return is_kv_cache(forward_arguments(call, defaults=True).get(str(name)))
