"""Call sites of an operator: the stack of modules in flight, and the source lines from each module to the next.

An operator inside ``LlamaAttention`` inside ``LlamaDecoderLayer`` belongs to a line of both: in the second it is part
of the call. A segment is the chain of lines for one module. It contains the frames from the innermost one up to
``forward()``, helper functions included. Only files from the tree of the module's class count.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.modules import module as nn_module

_CALL_CODE: CodeType = torch.nn.Module._call_impl.__code__
_CALLING = _CALL_CODE.co_filename
"""The file of the functions between the call of a module and its ``forward()``."""
_TORCH_NN = Path(torch.nn.__file__).parent


@dataclass(eq=False)
class Call:
    """One execution of one module's ``forward()``, with its inputs and outputs."""

    module: torch.nn.Module
    path: str
    index: int
    parent: Call | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    outer: tuple[Segment, ...] = ()
    """Its call sites in all enclosing calls, the innermost first."""

    @property
    def site(self) -> Segment | None:
        """Its call site in the parent; None for the outermost call."""
        return self.outer[0] if self.outer else None

    @functools.cached_property
    def class_path(self) -> str:
        cls = type(self.module)
        return f"{cls.__module__}.{cls.__qualname__}"


@dataclass(frozen=True)
class Place:
    """A line of a file with its function. ``instruction`` distinguishes two calls on one line."""

    file: str
    line: int
    function: str
    instruction: int = 0

    def __hash__(self) -> int:
        return hash((self.line, self.instruction, self.function))


@functools.lru_cache(maxsize=1 << 16)
def place(file: str, line: int, function: str, instruction: int) -> Place:
    """A cached instance for each place: comparisons of chains are frequent."""
    return Place(file, line, function, instruction)


@dataclass(frozen=True, slots=True)
class Segment:
    """The places of one module call, innermost first. The last is in ``forward()`` or in a wrapper around it."""

    call: Call
    chain: tuple[Place, ...]


_first_of: dict[int, tuple[CodeType, tuple[int, ...]]] = {}
"""Id of a code object -> the object, and for each instruction the first one of the same expression."""


def _instruction(code: CodeType, offset: int) -> int:
    """The first instruction of a frame's current expression.

    A call consists of several instructions. An interpreter that has specialised the call stops at another of them.
    Without this, the same call of a line would count as another one in later runs.
    """
    if id(code) not in _first_of:
        first: dict[object, int] = {}
        # Without positions (-X no_debug_ranges) each instruction stands for itself.
        told = (p if None not in p else i for i, p in enumerate(code.co_positions()))
        _first_of[id(code)] = code, tuple(first.setdefault(p, i) for i, p in enumerate(told))
    return _first_of[id(code)][1][offset // 2]


def package_dir(module: torch.nn.Module) -> str:
    """Folder of the source files for this module's class, with a final slash; ``torch/nn`` for PyTorch's own."""
    # A class may inherit its forward() from one of torch.nn: then its lines are there.
    forward = type(module).forward
    origin = type(module).__module__ if forward is torch.nn.Module.forward else forward.__module__
    if "torch" in (name.partition(".")[0] for name in (type(module).__module__, origin)):
        return str(_TORCH_NN) + "/"
    return folder_of(type(module))


def folder_of(cls: type[Any]) -> str:
    """Folder of a class's top-level package or script, with a final slash; else the common prefix of notebook cells."""
    package = sys.modules.get(cls.__module__.split(".")[0])
    file = getattr(package, "__file__", None)
    if file:
        return str(Path(file).parent) + "/"
    own = str(getattr(sys.modules.get(cls.__module__), "__file__", None) or _code_file(cls))
    for folder in getattr(package, "__path__", ()):  # a package without __init__.py may be several folders
        if own.startswith(f"{folder}/"):
            return f"{folder}/"
    head, slash, _ = own.rpartition("/")
    return head + slash if slash else own.split("-")[0] or "<none>"


def _code_file(cls: type[Any]) -> str:
    code = getattr(inspect.unwrap(cls.forward), "__code__", None)
    return code.co_filename if code is not None and code.co_filename != _CALLING else "<none>"


def by_caller(calls: Iterable[Call]) -> dict[int, list[Call]]:
    """Index of a call -> its direct calls."""
    found: dict[int, list[Call]] = {}
    for call in calls:
        if call.parent is not None:
            found.setdefault(call.parent.index, []).append(call)
    return found


class CallTracker:
    """Context manager that follows module calls below ``root`` through PyTorch's global forward hooks."""

    def __init__(self, root: torch.nn.Module, on_enter: Callable[[Call], None] | None = None) -> None:
        self.calls: list[Call] = []
        self.stack: list[Call] = []
        self._paths = {id(module): name for name, module in root.named_modules(remove_duplicate=False)}
        self._dirs: dict[str, str] = {}
        self._segments: dict[tuple[int, ...], tuple[Segment, ...]] = {}
        """Index of a call, and ids of places in it -> their segments: a loop has the same ones in each round."""
        self._on_enter = on_enter
        self._handles: list[Any] = []

    def __enter__(self) -> CallTracker:
        self._handles = [
            nn_module.register_module_forward_pre_hook(self._enter_call),
            nn_module.register_module_forward_hook(self._leave_call, with_kwargs=True, always_call=True),
        ]
        # Global pre-hooks get no keyword arguments, so the post-hook fills them in. Those of the outermost call are
        # needed before it runs: it may replace the tensors of the KV cache that it is given.
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()
            # PyTorch removes the hook, but keeps its entry for keyword arguments.
            nn_module._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []
        self.stack.clear()
        self._segments.clear()

    def _enter_call(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        path = self._paths.get(id(module), "")
        parent = self.stack[-1] if self.stack else None
        given = _keyword_arguments(sys._getframe(1)) if parent is None else {}
        call = Call(module, path, len(self.calls), parent, args, given, outer=self.segments())
        self.calls.append(call)
        self.stack.append(call)
        if self._on_enter is not None:
            self._on_enter(call)

    def _leave_call(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        # After an exception in forward() PyTorch calls this without keyword arguments: the run is lost anyway.
        if not self.stack or self.stack[-1].module is not module:
            return
        call = self.stack.pop()
        call.kwargs, call.output = kwargs or {}, output

    def segments(self) -> tuple[Segment, ...]:
        """Segments of the operator that is dispatched now, innermost module first."""
        if not self.stack:
            return ()
        call = self.stack[-1]
        chain: list[Place] = []
        in_forward = True
        prefix = self._prefix(call)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code is _CALL_CODE:
                if _is_of(frame, call):
                    # Its callers are still at their call sites.
                    key = (call.index, *map(id, chain))  # each place is one object
                    found = self._segments.get(key)
                    if found is None:
                        found = self._segments[key] = (Segment(call, tuple(chain)), *call.outer)
                    return found
            elif (
                in_forward
                and code.co_filename.startswith(prefix)
                and code.co_name != "__call__"
                and code.co_filename != _CALLING
            ):
                chain.append(place(code.co_filename, frame.f_lineno, code.co_name, _instruction(code, frame.f_lasti)))
                # Decorators wrap forward() in functions of the same tree, whose lines lie outside of it.
                if code.co_name == "forward" and _is_of(frame, call):
                    in_forward = False
            frame = frame.f_back
        return ()

    def _prefix(self, call: Call) -> str:
        name = type(call.module).__module__
        if name not in self._dirs:
            self._dirs[name] = package_dir(call.module)
        return self._dirs[name]


def _keyword_arguments(frame: FrameType | None) -> dict[str, Any]:
    """Keyword arguments of the module call that a pre-hook runs in."""
    while frame is not None and frame.f_code is not _CALL_CODE:
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals["kwargs"])


def _is_of(frame: FrameType, call: Call) -> bool:
    """True if a frame is a method of the called module."""
    seen = frame.f_locals
    found = seen.get("self") is call.module
    # Up to Python 3.12 this is a copy that stays with the frame: it would keep alive tensors that forward() released.
    if isinstance(seen, dict):
        seen.clear()
    return found
