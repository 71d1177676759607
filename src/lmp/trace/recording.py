"""One execution as a list of operators with their costs and the lines they belong to.

The same recorder serves symbolic runs (sizes are expressions) and concrete ones (sizes are numbers).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lmp.trace.rules import Cost, Operator, Tensor, cost
from lmp.trace.symbols import expression
from lmp.workload.calls import Call, CallTracker, Segment


@dataclass
class Executed:
    """One operator that ran. ``order`` is its place among the operators and module calls of the run."""

    operator: Operator
    segments: tuple[Segment, ...]
    order: int
    causal: bool = False

    @functools.cached_property
    def cost(self) -> Cost:
        return cost(self.operator)


@dataclass
class Recording:
    """What ran between entering and leaving the recorder."""

    operators: list[Executed] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    orders: dict[int, int] = field(default_factory=dict)
    """Call index -> its order."""
    describe: Callable[[torch.Tensor], Tensor] = field(default=lambda tensor: Tensor((), 0))
    """What rules know of a tensor of this run."""


class Recorder:
    """Context manager to be entered around one call of ``module``; afterwards ``recording`` holds what ran."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype, size: Callable[[Any], Any] = expression) -> None:
        self.recording = Recording()
        self.dtype, self.size = dtype, size
        self.tracker = CallTracker(module, on_enter=self._entered)
        self._order = 0
        self._weights = {_storage(t) for t in (*module.parameters(), *module.buffers())}
        # Tensors are kept alive while recording, so that no identity is given out twice.
        self.given: dict[int, torch.SymInt] = {}
        """Symbolic sizes that the function being called was given, by their numbers."""
        self.stands_for: dict[int, torch.Tensor] = {}
        """Storage of a result that got symbolic sizes back -> the operator's own result."""
        self._known: dict[int, torch.Tensor] = {}
        self._tensors: dict[int, Tensor] = {}
        self._function_mode = _Attention(self)
        self.before = _Attention(None)
        """To be entered around what runs before the measured call: attention stays whole there too."""
        self._dispatch_mode = _Dispatch(self)

    def __enter__(self) -> Recorder:
        self.tracker.__enter__()
        self._function_mode.__enter__()
        self._dispatch_mode.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._dispatch_mode.__exit__(*exc)
        self._function_mode.__exit__(*exc)
        self.tracker.__exit__(*exc)
        self.recording.calls = self.tracker.calls
        self.recording.describe = self._tensor

    def _entered(self, call: Call) -> None:
        self._order += 1
        self.recording.orders[call.index] = self._order

    def record(self, name: str, arguments: dict[str, Any], outputs: Any, *, in_place: bool, causal: bool) -> None:
        segments = self.tracker.segments()
        if not segments:
            return
        known = {key: self._describe(value) for key, value in arguments.items()}
        made = tuple(self._tensor(t) for t in _tensors(outputs))
        self._order += 1
        operator = Operator(name, known, made, in_place)
        self.recording.operators.append(Executed(operator, segments, self._order, causal))

    def _memory(self, tensor: torch.Tensor) -> int:
        storage = _storage(tensor)
        return _storage(self.stands_for[storage]) if storage in self.stands_for else storage

    def _describe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return [self._describe(item) for item in value]
        return self.size(value) if isinstance(value, torch.SymInt) else value

    def _tensor(self, tensor: torch.Tensor) -> Tensor:
        """The same description for the same tensor object."""
        key = id(tensor)
        if key in self._known:
            return self._tensors[key]
        if tensor.dtype == self.dtype:
            unit: str | int = "w_bytes" if _storage(tensor) in self._weights else "a_bytes"
        else:
            unit = tensor.dtype.itemsize
        shape = tuple(self.size(self.given.get(s, s) if type(s) is int else s) for s in tensor.shape)
        broadcast = frozenset(d for d, s in enumerate(tensor.stride()) if isinstance(s, int) and s == 0)
        described = Tensor(shape, unit, tensor.dtype.is_floating_point, broadcast, self._memory(tensor))
        self._known[key], self._tensors[key] = tensor, described
        return described


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    return []


def _is_free(func: Any) -> bool:
    """Views (every result aliases an argument that is not written), allocations and questions about a tensor."""
    schema = func._schema
    name = schema.name.split("::")[1]
    if name.startswith(("empty", "new_empty")) or name in ("_unsafe_view", "detach", "lift_fresh"):
        return True
    if schema.name.startswith("prim::") or name.startswith("sym_"):
        return True
    returns = schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


class _Dispatch(TorchDispatchMode):
    """Sees every ATen operator below the decomposition of composite ones."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        if _is_free(func):
            return func(*args, **kwargs)
        schema = func._schema
        arguments = {a.name: value for a, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
        name = schema.name.split("::")[1]
        in_place = name.endswith("_") and not name.startswith("__")
        # Described before it runs: an in-place operator may change what its arguments look like.
        described = {key: recorder._describe(value) for key, value in arguments.items()}
        out = func(*args, **kwargs)
        recorder.record(name.rstrip("_") if in_place else name, described, out, in_place=in_place, causal=False)
        return out


_sdpa = torch.nn.functional.scaled_dot_product_attention


class _Attention(TorchFunctionMode):
    """Sees scaled_dot_product_attention whole, before it is decomposed into the operators of one backend.

    PyTorch switches function modes off inside Python functions that handle them (multi_head_attention_forward), so
    the name in ``torch.nn.functional`` is replaced as well while this is active.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        super().__init__()
        self.recorder = recorder

    def __enter__(self) -> Any:
        torch.nn.functional.scaled_dot_product_attention = lambda *args, **kwargs: self._attend(args, kwargs)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        torch.nn.functional.scaled_dot_product_attention = _sdpa
        super().__exit__(*exc)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _sdpa:
            return self._attend(args, kwargs)
        sizes = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.SymInt)]
        return self._with_sizes(func, args, kwargs, sizes) if sizes else func(*args, **kwargs)

    def _with_sizes(self, func: Any, args: Any, kwargs: Any, sizes: list[torch.SymInt]) -> Any:
        """Call a function that takes symbolic sizes. Some (histc) turn them into numbers: their result gets them back."""
        env = sizes[0].node.shape_env
        before = dict(env.pinned)
        if self.recorder is not None:
            self.recorder.given = {int(s.node._hint): s for s in sizes if s.node._hint is not None}
        try:
            out = func(*args, **kwargs)
        finally:
            if self.recorder is not None:
                self.recorder.given = {}
        turned = {n: s for s in sizes if (n := env.pinned.get(s.node.expr)) is not None and s.node.expr not in before}
        if not turned or not isinstance(out, torch.Tensor) or not any(d in turned for d in out.shape if type(d) is int):
            return out
        for s in turned.values():
            env.pinned.pop(s.node.expr, None)
        resized = out.new_empty(tuple(turned.get(d, d) if type(d) is int else d for d in out.shape))
        if self.recorder is not None:
            self.recorder.stands_for[_storage(resized)] = out
        return resized

    def _attend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        query, value = arguments["query"], arguments["value"]
        # Every backend computes the same; what it returns is a new tensor of this shape.
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        if self.recorder is None:
            return out
        tensors = {key: arguments.get(key) for key in ("query", "key", "value", "attn_mask")}
        causal = bool(arguments.get("is_causal"))
        self.recorder.record("scaled_dot_product_attention", tensors, out, in_place=False, causal=causal)
        return out
