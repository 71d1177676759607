"""Cache of operator results on symbolic sizes within one run: alike layers run the same operators again.

It does for symbolic sizes what `lmp.workload.results` does for plain ones; sizes are compared by their expressions.
If a cached operator turned sizes into numbers, the classes running now are recorded for these numbers too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from lmp.trace.symbols import ConcolicShapeEnv
from lmp.workload.results import PLAIN, Unknown, makes_new, tensors_in


@dataclass(frozen=True)
class _Made:
    """A tensor with symbolic or plain sizes and its own memory."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device

    def tensor(self, mode: FakeTensorMode) -> torch.Tensor:
        with in_kernel_invocation_manager(mode):
            made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")
        return FakeTensor(mode, made, self.device)


@dataclass(frozen=True)
class _Known:
    """Cached result of an operator, None if it cannot be remade, and the sizes turned into numbers."""

    parts: tuple[_Made, ...] | None
    several: bool
    turned: frozenset[Any]


class SymbolicResults:
    """Operator results of one run, with the sizes that each operator turned into numbers."""

    def __init__(self, env: ConcolicShapeEnv, execute: Callable[[Any, Any, Any], Any]) -> None:
        """``execute`` runs an operator that is not cached."""
        self._env, self._execute = env, execute
        self._known: dict[Any, _Known] = {}

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Result of ``func``: tensors of the same sizes, strides and dtypes, each with its own memory.

        Views are not cached: a lookup takes as long as making them.
        """
        mode = next((a.fake_mode for a in args if type(a) is FakeTensor), None) if makes_new(func) else None
        if mode is None:
            return self._execute(func, args, kwargs)
        try:
            key = (func, _key(args), _key(kwargs), torch.get_default_dtype())
        except Unknown:
            return self._execute(func, args, kwargs)
        if key not in self._known:
            with self._env.noting() as turned:
                out = self._execute(func, args, kwargs)
            parts = out if isinstance(out, tuple) else (out,)
            self._known[key] = _Known(_made(parts, (args, kwargs)), isinstance(out, tuple), frozenset(turned))
            return out
        known = self._known[key]
        if known.parts is None:
            return self._execute(func, args, kwargs)
        for expression in known.turned:
            self._env.turned(expression)
        found = tuple([part.tensor(mode) for part in known.parts])
        return found if known.several else found[0]


def _key(value: Any) -> Any:
    kind = type(value)
    if kind is torch.SymInt or kind is torch.SymFloat:
        return kind, value.node._expr
    if kind in PLAIN:
        return kind, value
    if kind is FakeTensor:
        if value.layout is not torch.strided or value.is_complex() or value.is_neg():
            raise Unknown
        return value.dtype, value.device, _sizes(value.shape), _sizes(value.stride())
    if kind is tuple or kind is list or kind is torch.Size:
        return tuple([_key(v) for v in value])
    if kind is dict:
        return tuple([(name, _key(v)) for name, v in value.items()])
    raise Unknown


def _sizes(sizes: Any) -> tuple[Any, ...]:
    return tuple([s.node._expr if type(s) is torch.SymInt else s for s in sizes])


def _made(parts: tuple[Any, ...], given: Any) -> tuple[_Made, ...] | None:
    """How to remake the results; None if one may be an argument or has more than sizes to restore."""
    before = {t.untyped_storage()._cdata for t in tensors_in(given)}
    for part in parts:
        if type(part) is not FakeTensor or part.constant is not None or part.layout is not torch.strided:
            return None
        storage, offset = part.untyped_storage()._cdata, part.storage_offset()
        if storage in before or part.is_complex() or part.is_neg() or type(offset) is not int or offset != 0:
            return None
        before.add(storage)
    return tuple([_Made(tuple(p.shape), p.stride(), p.dtype, p.device) for p in parts])
