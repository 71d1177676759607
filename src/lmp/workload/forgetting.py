"""What functions remember of earlier calls (`functools.lru_cache`): a call that is counted must not be spared by them.

A model's code may keep what it made from sizes alone, as a grid of positions. Whether a call makes it would depend on
what ran before in the same process, and what is kept would be tensors without data.
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
def forgetting(model: torch.nn.Module) -> Iterator[None]:
    """Let the functions of a model's source forget what they keep, before and after what is run here."""
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
    """Functions that a Python module defines, also in its classes, and that remember their results."""
    own = [value for value in vars(source).values() if getattr(value, "__module__", None) == source.__name__]
    inside = [value for cls in own if isinstance(cls, type) for value in vars(cls).values()]
    return tuple(cache for value in (*own, *inside) if (cache := _cache_of(value)) is not None)


def _cache_of(value: Any) -> Any:
    """What remembers the results of a function or method: itself, or what a decorator wrapped in it."""
    value = getattr(value, "__func__", value)
    inside = map(_content, value.__closure__ or ()) if isinstance(value, FunctionType) else ()
    return next((found for found in (value, *inside) if isinstance(found, functools._lru_cache_wrapper)), None)


def _content(cell: CellType) -> Any:
    """What a function took from around it; None where that is not defined yet."""
    with contextlib.suppress(ValueError):
        return cell.cell_contents
    return None
