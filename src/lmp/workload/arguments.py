"""Constructor arguments of each module, recorded while a workload is built."""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
import typing
import weakref
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch

_recorded: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, Any]] = weakref.WeakKeyDictionary()


def constructor_parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Parameters of a class's constructor. If it only hands its arguments on, those that its overload names."""
    own = inspect.signature(cls.__init__)
    if hands_on(cls):
        overloads = [inspect.signature(f) for f in typing.get_overloads(cls.__init__)]
        own = next((s for s in overloads if not _VARIABLE & {p.kind for p in s.parameters.values()}), own)
    return dict(list(own.parameters.items())[1:])


def hands_on(cls: type[Any]) -> bool:
    """True if a constructor takes any arguments, to hand them on: one that it takes out itself is not recorded."""
    return {p.kind for p in inspect.signature(cls.__init__).parameters.values()} >= _VARIABLE


_VARIABLE = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def constructor_arguments(module: torch.nn.Module) -> Mapping[str, Any]:
    """The constructor arguments by name, defaults included; empty if the module was not built under ``recording``."""
    return _recorded.get(module, {})


def holds_given_modules(cls: type[torch.nn.Module]) -> bool:
    """True if a class takes the modules that it runs as arguments, such as ``Sequential``: nothing on its own."""
    if cls.__init__ is torch.nn.Module.__init__:
        return False  # it takes no argument of its own, but its signature accepts any
    return any(p.kind is p.VAR_POSITIONAL for p in constructor_parameters(cls).values())


def remember(module: torch.nn.Module, arguments: Mapping[str, Any]) -> None:
    """Record the constructor arguments of a module that was not built under ``recording``."""
    _recorded[module] = dict(arguments)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """While active, record the constructor arguments of every nn.Module that is constructed.

    Every constructor calls ``nn.Module.__init__``. At that moment the frame of the most derived ``__init__`` still
    holds its original arguments. One that hands ``*args`` on has those of the next constructor, which names them.
    The copy of a module has the arguments of the module.
    """
    original = torch.nn.Module.__init__

    def remember(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        frames: list[FrameType] = []
        while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is self:
            frames.append(frame)
            frame = frame.f_back
        original(self, *args, **kwargs)
        naming = next((f for f in reversed(frames) if not f.f_code.co_flags & inspect.CO_VARARGS), None)
        if frames:
            outermost = naming or frames[-1]
            count = outermost.f_code.co_argcount + outermost.f_code.co_kwonlyargcount
            names = outermost.f_code.co_varnames[1:count]
            _recorded[self] = {name: outermost.f_locals[name] for name in names if name in outermost.f_locals}

    deepcopy = copy.deepcopy

    def copied(given: Any, *how: Any, **named: Any) -> Any:
        made = deepcopy(given, *how, **named)
        if isinstance(given, torch.nn.Module):
            for before, after in zip(given.modules(), made.modules(), strict=True):
                if before in _recorded:
                    _recorded[after] = _recorded[before]
        return made

    torch.nn.Module.__init__ = remember
    copy.deepcopy = copied  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.nn.Module.__init__, copy.deepcopy = original, deepcopy
