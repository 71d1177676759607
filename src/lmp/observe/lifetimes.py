"""Memory of one call of a module: each storage with its maker, its readers and its end.

A storage lives as long as anything refers to it, as in a real run: the module runs on the meta device, and nothing here
holds a tensor. A view belongs to the storage of its base. Memory inside an operator (a workspace, the score matrix of
whole attention) is not visible. Imports torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lmp.verify.counter import Operators, attention_arguments, whole_attention
from lmp.verify.operators import ALLOCATIONS, is_view, operation, tensors_of
from lmp.workload.calls import CallTracker, Segment
from lmp.workload.paths import is_kv_cache

LARGE = 1 << 16
"""Minimum bytes of a storage whose maker is recorded even without detail."""

ATTENTION = "scaled_dot_product_attention"
Kind = Literal["weight", "cache", "input", "activation"]


@dataclass(eq=False)
class Storage:
    """A block of memory. ``maker`` is None if it existed before the call."""

    index: int
    bytes: int
    kind: Kind
    shape: tuple[int, ...]
    """Shape of the tensor that it was allocated for."""
    dtype: str
    name: str = ""
    """For a weight, its path in the module."""
    maker: int | None = None
    readers: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    """Operators that later wrote to it in place."""
    end: int | None = None
    """The first operator that ran after its release. None: it outlives the call."""


@dataclass(frozen=True, eq=False)
class Operated:
    """One executed operator; views and allocations do not count. ``depends`` are the operators that it reads from."""

    index: int
    name: str
    arguments: Mapping[str, Any]
    """Plain arguments, and the shapes of tensors."""
    segments: tuple[Segment, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of its results."""
    depends: tuple[int, ...]
    causal: bool = False


@dataclass(frozen=True)
class Peak:
    """The moment with the most live bytes beside the weights. ``alive`` are the storages, the largest first."""

    operator: int
    segments: tuple[Segment, ...]
    name: str
    total: int
    alive: tuple[Storage, ...]
    makers: Mapping[int, tuple[str, tuple[Segment, ...]]]
    """Index of a live storage of at least ``LARGE`` bytes -> the operator that made it, and its lines."""

    @property
    def cache(self) -> int:
        """Bytes of the cache, and of its previous content before it grew. Known after the call."""
        return sum(storage.bytes for storage in self.alive if storage.kind == "cache")

    @property
    def activations(self) -> int:
        """Bytes of everything else: inputs of the call, and results of operators."""
        return self.total - self.cache


class Lifetimes:
    """Context manager around one call of ``module`` that records operators and live memory.

    For a ``subject`` inside the module only its first call is recorded. With ``detail`` False only the peak is kept.
    Then the recorder's own memory is limited by the live storages.
    """

    def __init__(self, module: torch.nn.Module, subject: torch.nn.Module | None = None, *, detail: bool = True) -> None:
        self.module, self.subject, self.detail = module, subject or module, detail
        self.operators: list[Operated] = []
        self.storages: list[Storage] = []
        self.peak: Peak | None = None
        self.held_before = 0
        """Bytes of the cache's storages at the start of the call."""
        self.held_after = 0
        """The same at the end of the call."""
        self._makers: dict[int, tuple[str, tuple[Segment, ...]]] = {}
        """Index of a live storage of at least ``LARGE`` bytes -> the operator that made it, and its lines."""
        self.output_shapes: dict[str, tuple[int, ...]] = {}
        """Module path -> shape of the first tensor in the output of its first call."""
        self.given: dict[str, tuple[str, ...]] = {}
        """Module path -> names of the arguments of its first call that were not None."""
        self.returned: tuple[int, ...] = ()
        """Storages of the call's output, without the cache."""
        self._tracker = _Tracker(module, self.output_shapes, self.given)
        self._weights: dict[int, Storage] = {}
        self._alive: dict[int, tuple[StorageWeakRef, Storage]] = {}
        """All live storages except weights, which outlive every call."""
        self._bytes = 0
        self._writer: dict[int, int] = {}
        self._count = 0
        self._made = 0
        self._paused = True
        """True outside of the call, and inside of whole attention."""
        self._done = False
        self._stack = ExitStack()

    def __enter__(self) -> Lifetimes:
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            self._found(tensor, "weight", name)
        with ExitStack() as stack:
            handles = (
                self.subject.register_forward_pre_hook(self._begun, with_kwargs=True),
                self.subject.register_forward_hook(self._returned, with_kwargs=True),
            )
            for handle in handles:
                stack.callback(handle.remove)
            stack.enter_context(self._tracker)
            stack.enter_context(whole_attention(self._attend))
            stack.enter_context(Operators(self._operate))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)
        self._alive.clear()

    # -- the cache -------------------------------------------------------------------------------------------------

    def _begun(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._done:
            return
        self._paused = False
        for tensor in cached_tensors((args, kwargs)):
            self.held_before += self._found(tensor, "cache").bytes
        for tensor in tensors_of((args, kwargs)):
            self._found(tensor, "input")

    def _returned(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Storages in the cache at the end belonged to it from the moment they were made."""
        if self._done:
            return
        self._paused = self._done = True
        self._sweep()
        self.returned = tuple(dict.fromkeys(self._found(t, "activation").index for t in _returned_tensors(output)))
        kept = {self._found(tensor, "cache").index for tensor in cached_tensors((args, kwargs, output))}
        for _, storage in self._alive.values():
            if storage.index in kept and storage.kind == "activation":
                storage.kind = "cache"
        self.held_after = sum(s.bytes for _, s in self._alive.values() if s.index in kept)

    # -- operators -------------------------------------------------------------------------------------------------

    def _operate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._paused:
            return func(*args, **kwargs)
        self._sweep()
        result = func(*args, **kwargs)
        outputs = [t for t in tensors_of([result]) if t.is_meta]
        if not outputs:
            return result
        if is_view(func) or func._schema.name.endswith("::_unsafe_view"):
            return result
        if func._schema.name.rpartition("::")[2] in ALLOCATIONS:
            for tensor in outputs:
                self._found(tensor, "activation")  # the first writer is its maker
            return result
        run = operation(func, args, kwargs, result)
        self._ran(run.name, run.given, run.inputs, [t for t in run.outputs if t.is_meta], False)
        return result

    def _attend(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._paused:
            return function(*args, **kwargs)
        self._sweep()
        self._paused = True
        try:
            output = function(*args, **kwargs)
        finally:
            self._paused = False
        inputs = [t for t in attention_arguments(*args, **kwargs) if t is not None]
        names = dict(zip(("query", "key", "value", "attn_mask"), attention_arguments(*args, **kwargs), strict=True))
        causal = bool(kwargs.get("is_causal", args[5] if len(args) > 5 else False))
        self._ran(ATTENTION, names, inputs, [output], causal)
        return output

    def _ran(
        self, name: str, given: Mapping[str, Any], inputs: list[torch.Tensor], outputs: list[torch.Tensor], causal: bool
    ) -> None:
        index, self._count = self._count, self._count + 1
        read = list(dict.fromkeys(self._found(t, "input").index for t in inputs if t.is_meta))
        depends = sorted({self._writer[i] for i in read if i in self._writer})
        wrote = []
        for tensor in outputs:
            storage = self._found(tensor, "activation", maker=index)
            if storage.maker is None and storage.kind == "activation":
                storage.maker = index
            if storage.maker != index and storage.index in read:
                storage.writers.append(index)
            elif storage.bytes >= LARGE:
                self._makers[storage.index] = (name, self._tracker.segments())
            self._writer[storage.index] = index
            wrote.append(storage.index)
        if self.detail:
            for position in read:
                self.storages[position].readers.append(index)
            self.operators.append(
                Operated(
                    index, name, _plain(given), self._tracker.segments(), tuple(read), tuple(dict.fromkeys(wrote)),
                    tuple(tuple(t.shape) for t in outputs), tuple(depends), causal,
                )
            )  # fmt: skip
        self._look(index, name)

    def _found(self, tensor: torch.Tensor, kind: Kind, name: str = "", maker: int | None = None) -> Storage:
        memory = tensor.untyped_storage()
        key = memory._cdata
        known = self._alive.get(key)
        if known is not None:
            return known[1]
        if key in self._weights:
            return self._weights[key]
        dtype = str(tensor.dtype).removeprefix("torch.")
        storage = Storage(self._made, memory.nbytes(), kind, tuple(tensor.shape), dtype, name, maker)
        self._made += 1
        if kind == "weight":
            self._weights[key] = storage
        else:
            self._alive[key] = (StorageWeakRef(memory), storage)
            self._bytes += storage.bytes
        if self.detail:
            self.storages.append(storage)
        return storage

    def _sweep(self) -> None:
        """Drop the storages that were released since the last operator."""
        dead = [key for key, (reference, _) in self._alive.items() if reference.expired()]
        for key in dead:
            _, storage = self._alive.pop(key)
            storage.end = self._count
            self._bytes -= storage.bytes
            self._writer.pop(storage.index, None)
            self._makers.pop(storage.index, None)

    def _look(self, index: int, name: str) -> None:
        if self.peak is None or self._bytes > self.peak.total:
            ordered = tuple(sorted((s for _, s in self._alive.values()), key=lambda s: (-s.bytes, s.index)))
            self.peak = Peak(index, self._tracker.segments(), name, self._bytes, ordered, dict(self._makers))


class _Tracker(CallTracker):
    """Follows calls without keeping inputs or outputs, which would keep them alive."""

    def __init__(
        self, root: torch.nn.Module, shapes: dict[str, tuple[int, ...]], given: dict[str, tuple[str, ...]]
    ) -> None:
        super().__init__(root)
        self._shapes, self._given = shapes, given

    def _enter_call(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        super()._enter_call(module, ())

    def _leave_call(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        if self.stack and self.stack[-1].module is module:
            tensor = next(_returned_tensors(output), None)
            path = self.stack[-1].path
            if tensor is not None:
                self._shapes.setdefault(path, tuple(tensor.shape))
            if path not in self._given:
                self._given[path] = tuple(_names_given(module, args, kwargs))
        super()._leave_call(module, (), {}, None)


def _names_given(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Names of arguments that are not None, those in ``**kwargs`` included."""
    try:
        bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    except (TypeError, ValueError):
        yield from (name for name, value in kwargs.items() if value is not None)
        return
    for parameter in list(bound.signature.parameters.values())[1:]:
        value = bound.arguments.get(parameter.name)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            yield from (name for name, inner in (value or {}).items() if inner is not None)
        elif value is not None:
            yield parameter.name


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, with shapes in place of tensors."""
    return {name: _shape_of(value) for name, value in given.items()}


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape))
    if isinstance(value, list | tuple):
        return tuple(_shape_of(item) for item in value)
    return value if isinstance(value, int | float | bool | str | torch.dtype | type(None)) else None


def cached_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in the caches among the values, without scalar tensors."""
    for cache in _caches(value, 3):
        seen: set[int] = set()
        waiting = [cache]
        while waiting:
            thing = waiting.pop()
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, torch.Tensor):
                if thing.dim():
                    yield thing
            elif isinstance(thing, list | tuple):
                waiting += thing
            elif isinstance(thing, dict):
                waiting += thing.values()
            elif type(thing).__module__.startswith("transformers.") and hasattr(thing, "__dict__"):
                waiting += vars(thing).values()


def _returned_tensors(output: Any) -> Iterator[torch.Tensor]:
    given = list(output.values()) if isinstance(output, dict) else output
    return (tensor for tensor in tensors_of([given]) if tensor.is_meta)


def _caches(value: Any, depth: int) -> Iterator[Any]:
    if is_kv_cache(value):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _caches(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _caches(item, depth - 1)
