"""Cache of operator results on symbolic sizes: alike layers, and a workload's runs, run the same operators again.

It does for symbolic sizes what `lmp.workload.results` does for plain ones; sizes are compared by their expressions.
If a cached operator turned sizes into numbers, the classes running now are recorded for these numbers too.

A result also follows from the comparisons of sizes that were made for it. Within one run they have one result each. In
another run, the result is used only if each comparison made for it has the same result there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from lmp.trace.symbols import ConcolicShapeEnv, Noted
from lmp.workload.results import PLAIN, Unknown, makes_new, tensors_in

Execute = Callable[[Any, Any, Any], Any]
"""Runs an operator with its arguments and keyword arguments."""

KEPT = 50_000
"""Maximum number of operator calls that are cached for other runs."""


@dataclass(frozen=True)
class _Made:
    """A tensor with symbolic or plain sizes: in its own memory, or a view of the first argument."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Any = 0
    is_view: bool = False

    def tensor(self, mode: FakeTensorMode, base: Any) -> torch.Tensor:
        with in_kernel_invocation_manager(mode):
            if self.is_view:
                made = torch.as_strided(base, self.shape, self.strides, self.offset)
            else:
                made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")
        return FakeTensor(mode, made, self.device)

    def having(self, size: Callable[[Any], Any]) -> _Made:
        """The same with other objects for its sizes."""
        shape, strides = tuple(map(size, self.shape)), tuple(map(size, self.strides))
        return _Made(shape, strides, self.dtype, self.device, size(self.offset), self.is_view)


@dataclass(frozen=True)
class _Known:
    """Cached result of an operator, None if it cannot be remade, and the sizes turned into numbers."""

    parts: tuple[_Made, ...] | None
    several: bool
    turned: tuple[Any, ...]


@dataclass(frozen=True)
class _Shared:
    """The same with expressions for sizes, and what was asked and done while it was made."""

    known: _Known
    noted: Noted


@dataclass
class OtherRuns:
    """Operator results of the symbolic runs of one workload."""

    found: dict[Any, list[_Shared]] = field(default_factory=dict)


class SymbolicResults:
    """Operator results of one run, with the sizes that each operator turned into numbers."""

    def __init__(self, env: ConcolicShapeEnv, execute: Execute, others: OtherRuns | None = None) -> None:
        """``execute`` runs an operator that is not cached. ``others``: results of other runs."""
        self._env, self._execute = env, execute
        self._known: dict[Any, _Known] = {}
        self._others = (others or OtherRuns()).found

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Result of ``func``: tensors of the same sizes, strides and dtypes, each with its own memory.

        A view is a view of its argument.
        """
        return self._run(func, args, kwargs, self._execute)

    def free(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The same for views, allocations and queries, which are executed as they are."""
        return self._run(func, args, kwargs, _as_it_is)

    def _run(self, func: Any, args: Any, kwargs: Any, execute: Execute) -> Any:
        is_view = _makes_view(func)
        base: Any = args[0] if is_view and args else None
        mode = next((a.fake_mode for a in args if type(a) is FakeTensor), None) if is_view or makes_new(func) else None
        if mode is None or (is_view and (type(base) is not FakeTensor or base.constant is not None)):
            return execute(func, args, kwargs)
        try:
            offset = _sizes((base.storage_offset(),)) if base is not None else ()
            key = (func, _key(args), _key(kwargs), torch.get_default_dtype(), offset)
        except Unknown:
            return execute(func, args, kwargs)
        if key not in self._known:
            layouts = tuple(map(self._layout, tensors_in((args, kwargs))))
            shared = self._of_another_run((key, layouts))
            if shared is None:
                return self._first((key, layouts), base, functools.partial(execute, func, args, kwargs), (args, kwargs))
            self._known[key] = shared
        else:
            for expression in self._known[key].turned:
                self._env.turned(expression)
        known = self._known[key]
        if known.parts is None:
            return execute(func, args, kwargs)
        found = tuple([part.tensor(mode, base) for part in known.parts])
        return found if known.several else found[0]

    def _first(self, key: Any, base: Any, execute: Callable[[], Any], given: Any) -> Any:
        """Run the operator, and keep its result for this run and for others.

        ``key``: of this run, and what else the key of another run has. ``base``: what it makes a view of.
        """
        with self._env.noting() as noted:
            out = execute()
            parts = out if isinstance(out, tuple) else (out,)
            made = _made(parts, given) if base is None else _view(parts, base)
        self._known[key[0]] = _Known(made, isinstance(out, tuple), tuple(noted.turned))
        if made is not None:
            kept = _Known(tuple(m.having(_expression) for m in made), isinstance(out, tuple), tuple(noted.turned))
            if len(self._others) >= KEPT:
                self._others.clear()
            self._others.setdefault(key, []).append(_Shared(kept, noted))
        return out

    def _of_another_run(self, key: Any) -> _Known | None:
        """The result of another run, if each comparison of sizes that was made for it has the same result here."""
        env = self._env
        found = next((one for one in self._others.get(key, ()) if env.agrees(one.noted)), None)
        if found is None:
            return None
        env.repeat(found.noted)
        parts = tuple(made.having(env.size_of) for made in found.known.parts or ())
        return _Known(parts, found.known.several, found.known.turned)

    def _layout(self, tensor: torch.Tensor) -> Any:
        """What PyTorch keeps with a tensor once it was asked for: whether it is dense, and in which order.

        A later operator that asks for it makes no comparison of sizes.
        """
        sizes, strides = ([int(self._env.value_of(s)) for s in _sizes(of)] for of in (tensor.shape, tensor.stride()))
        order = sorted(range(len(sizes)), key=lambda dim: (strides[dim], sizes[dim]))
        natural = range(len(sizes) - 1, -1, -1)
        dense = (_is_dense(sizes, strides, dims) for dims in (order, natural))
        return tuple(min(size, 2) for size in sizes), tuple(order), *dense


def _is_dense(sizes: Sequence[int], strides: Sequence[int], dims: Iterable[int]) -> bool:
    """True if the elements lie one after the other, with the first of these dimensions innermost."""
    expected = 1
    for dim in dims:
        if sizes[dim] != 1 and strides[dim] != expected:
            return False
        expected *= sizes[dim]
    return True


def _as_it_is(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


@functools.cache
def _makes_view(func: Any) -> bool:
    """True if the only result is a view of the first argument, and no argument is written to."""
    schema = func._schema
    if schema.name == "aten::_unsafe_view":
        return True  # the schema does not say so
    if len(schema.returns) != 1 or not schema.arguments:
        return False
    first, returned = schema.arguments[0].alias_info, schema.returns[0].alias_info
    others = [a.alias_info for a in schema.arguments[1:]]
    is_plain = first is not None and returned is not None and not first.is_write and not returned.is_write
    return is_plain and str(schema.returns[0].type) == "Tensor" and not any(others)


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
    return tuple([_expression(s) for s in sizes])


def _expression(size: Any) -> Any:
    return size.node._expr if type(size) is torch.SymInt else size


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


def _view(parts: tuple[Any, ...], base: Any) -> tuple[_Made, ...] | None:
    """How to remake a view; None if it is the argument itself, or differs from it in more than sizes."""
    (part,) = parts
    if type(part) is not FakeTensor or part is base or part.constant is not None or part.layout is not torch.strided:
        return None
    same = part.untyped_storage()._cdata == base.untyped_storage()._cdata and part.dtype == base.dtype
    if not same or part.is_complex() or part.is_neg() or part.is_conj():
        return None
    return (_Made(tuple(part.shape), part.stride(), part.dtype, part.device, part.storage_offset(), is_view=True),)
