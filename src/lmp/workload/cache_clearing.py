"""Clearing of function caches (`functools.lru_cache`) in a model's code, so that a counted call recomputes everything.

A model's code may cache tensors that depend on sizes only, such as a grid of positions. Then the work of a call would
depend on earlier runs in the process. The cached tensors would also have no data.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch


@contextlib.contextmanager
def caches_cleared(model: torch.nn.Module) -> Iterator[None]:
    """Clear the caches of the functions in a model's source on entry and on exit."""
    classes = {type(module) for module in model.modules()}
    names = dict.fromkeys(parent.__module__ for cls in classes for parent in cls.__mro__)
    caches = [cache for name in names if name in sys.modules for cache in _caches(sys.modules[name])]
    _clear(caches)
    try:
        yield
    finally:
        _clear(caches)


def _clear(caches: list[Any]) -> None:
    for cache in caches:
        cache.cache_clear()


@functools.lru_cache(maxsize=1024)
def _caches(source: ModuleType) -> tuple[Any, ...]:
    """Caches of the functions that a Python module defines, methods included."""
    own = [value for value in vars(source).values() if getattr(value, "__module__", None) == source.__name__]
    inside = [value for cls in own if isinstance(cls, type) for value in vars(cls).values()]
    return tuple(cache for value in (*own, *inside) if (cache := _cache_of(value)) is not None)


def _cache_of(value: Any) -> Any:
    """The cache of a function or method: the object itself, or one that a decorator wraps; None if there is none."""
    value = getattr(value, "__func__", value)
    inside = map(_content, value.__closure__ or ()) if isinstance(value, FunctionType) else ()
    return next((found for found in (value, *inside) if isinstance(found, functools._lru_cache_wrapper)), None)


def _content(cell: CellType) -> Any:
    """Content of a closure cell; None if it is not defined yet."""
    with contextlib.suppress(ValueError):
        return cell.cell_contents
    return None
