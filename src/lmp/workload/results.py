"""What operators return, remembered: an operator is asked once for the shapes that it makes of the same arguments.

On the meta device a result is a shape, strides and a dtype, which follow from those of the arguments and from the plain
arguments. Most of PyTorch's own shape functions are written in Python and take much longer than looking that up.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

KEPT = 50_000
"""Calls of operators that are remembered."""

META = torch.device("meta")


class Unknown(Exception):
    """An argument that says more than its shape."""


@dataclass(frozen=True)
class _Made:
    """A dense or strided tensor without data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=META)


class Results:
    """Runs operators on tensors of plain sizes without data, each once for the same arguments.

    Views, operators that write to an argument, and whatever is not on the meta device are always run.
    """

    def __init__(self) -> None:
        self._known: dict[Any, _Made | tuple[_Made, ...] | None] = {}

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What ``func`` returns: a tensor of the same shape, strides and dtype, in memory of its own."""
        if not makes_new(func):
            return func(*args, **kwargs)
        try:
            key = (func, _key(args), _key(kwargs), torch.get_default_dtype())
        except Unknown:
            return func(*args, **kwargs)
        if key not in self._known:
            out = func(*args, **kwargs)
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = _made(out, (args, kwargs))
            return out
        found = self._known[key]
        if found is None:
            return func(*args, **kwargs)
        return found.tensor() if isinstance(found, _Made) else tuple(made.tensor() for made in found)


@functools.cache
def makes_new(func: Any) -> bool:
    """Whether every result is a tensor of its own: no view of an argument, and no argument is written to."""
    schema = func._schema
    returns = schema.returns
    return (
        bool(returns)
        and all(str(r.type) == "Tensor" and r.alias_info is None for r in returns)
        and all(a.alias_info is None for a in schema.arguments)
    )


def _key(value: Any) -> Any:
    """What a result may depend on, to be compared: ``1``, ``1.0`` and ``True`` are three arguments."""
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if value.device != META or value.is_complex() or value.layout is not torch.strided:
            raise Unknown
        return value.dtype, value.shape, value.stride()
    if kind is tuple or kind is list or kind is torch.Size:
        return tuple([_key(v) for v in value])
    if kind is dict:
        return tuple([(name, _key(v)) for name, v in value.items()])
    if kind in PLAIN:
        return kind, value
    raise Unknown


def _made(out: Any, given: Any) -> _Made | tuple[_Made, ...] | None:
    """How to make it again; None where it is, or may be, an argument itself, or has data."""
    parts = (out,) if isinstance(out, torch.Tensor) else out
    if not isinstance(parts, tuple):
        return None
    before = {t.untyped_storage()._cdata for t in tensors_in(given)}
    for part in parts:
        if type(part) is not torch.Tensor or part.device != META or part.layout is not torch.strided:
            return None
        storage = part.untyped_storage()._cdata
        if storage in before or part.is_complex() or part.storage_offset() != 0:
            return None
        before.add(storage)
    found = tuple(_Made(tuple(p.shape), p.stride(), p.dtype) for p in parts)
    return found[0] if out is parts[0] else found


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and mappings (a model's outputs are mappings); caches are not looked into."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []
