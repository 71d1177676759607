"""Cache of operator results: an operator computes the shapes for the same arguments once.

On the meta device a result has a shape, strides and a dtype. They follow from those of the arguments and from the plain
arguments. Most of PyTorch's shape functions are written in Python and take much longer than a look-up.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lmp.workload.failures import hand_on

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

KEPT = 50_000
"""Maximum number of cached operator calls."""

META = torch.device("meta")


class Unknown(Exception):
    """An argument with more information than its shape."""


@dataclass(frozen=True)
class _Made:
    """A dense or strided tensor without data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=META)


class Results:
    """Runs operators on tensors of plain sizes without data, once for the same arguments.

    Three cases always run: views, operators that write to an argument, and tensors outside of the meta device.
    """

    def __init__(self) -> None:
        self._known: dict[Any, _Made | tuple[_Made, ...] | None] = {}

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of ``func``: a tensor of the same shape, strides and dtype, in its own memory."""
        if not makes_new(func):
            return hand_on(func, *args, **kwargs)
        try:
            key = (func, _key(args), _key(kwargs), torch.get_default_dtype())
        except Unknown:
            return hand_on(func, *args, **kwargs)
        if key not in self._known:
            out = hand_on(func, *args, **kwargs)
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = _made(out, (args, kwargs))
            return out
        found = self._known[key]
        if found is None:
            return hand_on(func, *args, **kwargs)
        return found.tensor() if isinstance(found, _Made) else tuple(made.tensor() for made in found)


@functools.cache
def makes_new(func: Any) -> bool:
    """True if every result is a new tensor: it is no view of an argument, and no argument is written to."""
    schema = func._schema
    returns = schema.returns
    return (
        bool(returns)
        and all(str(r.type) == "Tensor" and r.alias_info is None for r in returns)
        and all(a.alias_info is None for a in schema.arguments)
    )


def _key(value: Any) -> Any:
    """The part of an argument that a result may depend on. ``1``, ``1.0`` and ``True`` differ."""
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
    """The recipe of a result; None if it has data, or is or may be an argument."""
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
    """Tensors in nested tuples, lists and mappings (a model's outputs are mappings). Caches are skipped."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []
