"""Records one execution as a list of operators with their costs and source lines.

The same recorder serves symbolic runs (sizes are expressions) and concrete runs (sizes are numbers).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lmp.trace.remembered import SymbolicResults
from lmp.trace.rules import Cost, Operator, Tensor, Unit, cost
from lmp.trace.symbols import SizeNode, expression
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call, CallTracker, Segment, by_caller
from lmp.workload.dispatch_hook import DispatchHook
from lmp.workload.failures import hand_on
from lmp.workload.paths import cached_tensors, caches_after, caches_given
from lmp.workload.questions import STANDS_FOR, asking
from lmp.workload.results import Results, tensors_in


@dataclass(eq=False, slots=True)
class Executed:
    """One executed operator. ``order`` is its position among the operators and module calls of the run."""

    operator: Operator
    segments: tuple[Segment, ...]
    order: int
    causal: bool = False
    _cost: Cost | None = None

    @property
    def cost(self) -> Cost:
        """Its cost, computed once."""
        if self._cost is None:
            self._cost = cost(self.operator)
        return self._cost


@dataclass
class Recording:
    """Operators and module calls executed between entering and leaving the recorder."""

    operators: list[Executed] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    orders: dict[int, int] = field(default_factory=dict)
    """Call index -> its order."""
    describe: Callable[[torch.Tensor], Tensor] = field(default=lambda tensor: Tensor((), 0))
    """Returns the description of a tensor of this run that rules take."""

    def below(self, call: Call) -> list[Executed]:
        """Operators executed during a call, including those of called modules."""
        return self._by_call.get(call.index, [])

    def called_by(self, call: Call) -> list[Call]:
        """The calls that a call makes directly."""
        return self._by_parent.get(call.index, [])

    @functools.cached_property
    def _by_parent(self) -> dict[int, list[Call]]:
        return by_caller(self.calls)

    @functools.cached_property
    def _by_call(self) -> dict[int, list[Executed]]:
        found: dict[int, list[Executed]] = {}
        for executed in self.operators:
            for segment in executed.segments:
                found.setdefault(segment.call.index, []).append(executed)
        return found


class Recorder:
    """Context manager for one call of ``module``. After leaving it, ``recording`` has the operators and calls."""

    def __init__(
        self,
        module: torch.nn.Module,
        dtype: torch.dtype,
        size: Callable[[Any], Any] = expression,
        results: Results | SymbolicResults | None = None,
    ) -> None:
        """``results``: cache of operator results, for plain or for symbolic sizes. None: symbolic sizes, no cache."""
        self.recording = Recording()
        self.dtype, self.size, plain = dtype, size, isinstance(results, Results)
        self.run = run_symbolic if results is None else results.run
        """Executes an operator."""
        self.run_free = results.free if isinstance(results, SymbolicResults) else _as_it_is
        """Executes an operator without a cost."""
        self.tracker = CallTracker(module, on_enter=self._entered)
        self._order = 0
        self._module = module
        self._kept: list[torch.Tensor] = []
        """Tensors are kept alive while recording, so that no id is reused."""
        self._weights: set[int] = set()
        self._cached: set[int] = set()
        """Storages of the keys and values that a KV cache holds before or after the run."""
        self.given: dict[int, torch.SymInt] = {}
        """Number -> symbolic size, for the sizes passed to the function being called."""
        self.stands_for: dict[int, torch.Tensor] = {}
        """Storage of a result whose symbolic sizes were restored -> the operator's own result."""
        self._known: dict[int, torch.Tensor] = {}
        self._tensors: dict[int, Tensor] = {}
        self._function_mode = _Attention(self, plain)
        self.before = _Before(self.run, plain)
        """Context manager for code that runs before the measured call: attention is not decomposed there either."""
        self._dispatch_mode = _Dispatch(self)
        self.on_start: Callable[[], None] = lambda: None
        """Called when recording starts."""

    def __enter__(self) -> Recorder:
        # The module's current tensors: filling the cache may have replaced some, and running may replace more.
        self.on_start()
        self._kept = [*self._module.parameters(), *self._module.buffers()]
        self._weights = {_storage(t) for t in self._kept}
        self.tracker.__enter__()
        self._function_mode.__enter__()
        self._dispatch_mode.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._dispatch_mode.__exit__(*exc)
        self._function_mode.__exit__(*exc)
        self.tracker.__exit__(*exc)
        calls = self.tracker.calls
        self.recording.calls = calls
        self.recording.describe = self._tensor
        self._hold(caches_after(calls))
        for tensor in self._tensors.values():
            self._mark(tensor)
        self._release()

    def _release(self) -> None:
        """Let go of the tensors that the run has let go of. What a call passed or a module holds can be described."""
        held = {key: weakref.ref(tensor) for key, tensor in self._known.items()}
        self._known, self._kept = {}, []
        for key, reference in held.items():
            tensor = reference()
            if tensor is None:
                del self._tensors[key]
            else:
                self._known[key] = tensor

    def _hold(self, caches: Sequence[Any]) -> None:
        """Note what these KV caches hold now. A tensor that is stored in one is found only after the run."""
        for cache in {id(c): c for c in caches}.values():
            tensors = cached_tensors(cache)
            self._kept += tensors
            self._cached.update(map(self._memory, tensors))

    def _mark(self, tensor: Tensor) -> Tensor:
        """Mark a tensor of the KV cache."""
        if tensor.storage in self._cached and not tensor.weight:
            tensor.cached = True
            tensor.unit = "kv_bytes" if tensor.unit == "a_bytes" else tensor.unit
        return tensor

    def _entered(self, call: Call) -> None:
        if call.parent is None:
            self._hold(caches_given(call))
        self._order += 1
        self.recording.orders[call.index] = self._order

    def record(self, name: str, arguments: dict[str, Any], outputs: Any, *, in_place: bool, causal: bool) -> None:
        segments = self.tracker.segments()
        if not segments:
            return
        known = {key: self._describe(value) for key, value in arguments.items()}
        made = tuple(self._tensor(t) for t in tensors_in(outputs))
        if not made:
            return  # a query about a tensor (its size, one of its values) has no traffic
        self._order += 1
        operator = Operator(name, known, made, in_place)
        self.recording.operators.append(Executed(operator, segments, self._order, causal))

    def window(self) -> Any:
        """The sliding window of the module that runs now; None if it has none."""
        stack = self.tracker.stack
        found = getattr(stack[-1].module, "sliding_window", None) if stack else None
        return found if isinstance(found, (int, torch.SymInt)) and not isinstance(found, bool) else None

    def forget(self, tensor: torch.Tensor) -> None:
        """Describe a tensor again whose shape changed. It is kept alive like every described tensor."""
        self._kept.append(tensor)
        self._known.pop(id(tensor), None)

    def _memory(self, tensor: torch.Tensor) -> int:
        own = tensor.untyped_storage()
        made = self.stands_for.get(own._cdata, getattr(own, STANDS_FOR, None))
        return own._cdata if made is None else _storage(made)

    def _argument(self, name: str, value: Any) -> Any:
        """An argument as rules take it. A number of groups that PyTorch got as a number becomes its symbolic size."""
        if name == "group" and type(value) is int and value in self.given:
            return self.size(self.given[value])
        return self._describe(value)

    def _describe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return [self._describe(item) for item in value]
        if not isinstance(value, torch.SymInt):
            return value
        try:
            return self.size(value)
        except TypeError:
            return number_of(value)  # a factor such as 2 ** (layer // every): no rule reads it as a size

    def _tensor(self, tensor: torch.Tensor) -> Tensor:
        """Description of a tensor: one Tensor per tensor object."""
        key = id(tensor)
        if key in self._known:
            return self._tensors[key]
        weight = _storage(tensor) in self._weights
        unit: Unit = tensor.dtype.itemsize
        if tensor.dtype == self.dtype:
            unit = "w_bytes" if weight else "a_bytes"
        shape = tuple(self.size(self.given.get(s, s) if type(s) is int else s) for s in tensor.shape)
        broadcast = frozenset(d for d, s in enumerate(tensor.stride()) if isinstance(s, int) and s == 0)
        described = Tensor(
            shape,
            unit,
            tensor.dtype.is_floating_point,
            broadcast,
            storage=self._memory(tensor),
            complex=tensor.is_complex(),
            weight=weight,
        )
        self._known[key], self._tensors[key] = tensor, self._mark(described)
        return described


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _as_it_is(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


@functools.cache
def _is_free(func: Any) -> bool:
    """True for views (each result aliases an argument that is not written), allocations and queries about a tensor."""
    schema = func._schema
    name = schema.name.split("::")[1]
    if name.startswith(("empty", "new_empty", "unsafe_split")):
        return True
    if name in ("_unsafe_view", "detach", "lift_fresh") or torch.Tag.inplace_view in func.tags:
        return True
    if schema.name.startswith("prim::") or name.startswith("sym_"):
        return True
    returns = schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _padded(tensor: torch.Tensor, pad: Sequence[Any], value: Any = 0) -> torch.Tensor:
    """Result of a padding. ``pad``: pairs of padding before and after, last dimension first."""
    sizes = list(tensor.shape)
    for index, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), start=1):
        sizes[-index] = sizes[-index] + before + after
    return tensor.new_empty(sizes)


def _solved(a: torch.Tensor, b: torch.Tensor, **how: bool) -> torch.Tensor:
    """Result of solving stacked triangular systems: one solution per column of ``b``; columns are dense."""
    rows, columns = b.shape[-2:]
    return b.new_empty((*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), columns, rows)).mT


def _added(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: Any) -> torch.Tensor:
    """Result of a bias plus the product of two stacks of matrices."""
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _complex(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Result of a complex tensor made from two parts, which broadcast."""
    return a.new_empty(torch.broadcast_shapes(a.shape, b.shape), dtype=a.dtype.to_complex())


RESULTS: dict[str, Callable[..., torch.Tensor]] = {
    "aten::baddbmm": _added,
    "aten::complex": _complex,
    "aten::constant_pad_nd": _padded,
    "aten::linalg_solve_triangular": _solved,
    "aten::polar": _complex,
}
"""Operators whose kernels reject symbolic sizes or turn them into numbers -> function that makes the result."""


def run_symbolic(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator. If it fails on symbolic shapes, run it on the numbers and restore the sizes.

    A size of the result takes the symbolic size of an argument's dimension with the same number. A size without such a
    dimension stays a number.
    """
    result = RESULTS.get(func._schema.name)
    if result is not None and symbolic_in((args, kwargs, [tuple(t.shape) for t in tensors_in(args)])):
        return result(*args, **kwargs)
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        tensors = tensors_in(args)
        symbolic = [s for t in tensors for s in t.shape if isinstance(s, torch.SymInt)]
        if not symbolic or "INTERNAL ASSERT" not in str(error):
            raise
        with _disable_current_modes():
            plain = [
                torch.empty(as_numbers(a.shape), dtype=a.dtype, device="meta")
                if isinstance(a, torch.Tensor)
                else as_numbers(a)
                for a in args
            ]
            shape = func(*plain, **as_numbers(kwargs)).shape
        sizes = {number_of(s): s for s in reversed(symbolic)}
        return tensors[0].new_empty(tuple(sizes.get(d, d) for d in shape))


def _equal_pieces(tensor: torch.Tensor, piece: int, dim: int = 0) -> tuple[torch.Tensor, ...] | None:
    """The pieces of a symbolic dimension that ATen's chunk cut evenly, by a number it had made of the size.

    None if the last piece is smaller, or if no size became a number. Recurrent cells cut their gates so.
    """
    size = tensor.shape[dim]
    if not isinstance(size, torch.SymInt) or isinstance(piece, torch.SymInt) or number_of(size) % piece:
        return None
    count = number_of(size) // piece
    each = size // count
    return tuple(tensor.narrow(dim, index * each, each) for index in range(count))


def _looped(pieces: Sequence[torch.Tensor], dim: int, new: bool) -> torch.SymInt | None:
    """Symbolic number of tokens of a loop that made one of these pieces per token; None if there was no such loop.

    The code turned this size into a number to iterate: a list has a plain number of entries.
    """
    nodes = [s.node for t in pieces[:1] for s in t.shape if isinstance(s, torch.SymInt)]
    turned: dict[Any, int] = nodes[0].shape_env.pinned if nodes else {}
    counts = {n: e for e, n in turned.items() if e.is_Symbol and e.name in RUNTIME}
    if len(pieces) not in counts or not (new or all(type(t.shape[dim]) is int and t.shape[dim] == 1 for t in pieces)):
        return None
    env = nodes[0].shape_env
    return torch.SymInt(SizeNode(counts[len(pieces)], env, int, len(pieces)))


def _with_length(tensor: torch.Tensor, dim: int, length: torch.SymInt) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[dim] = length
    return tensor.new_empty(shape)


class _Dispatch(TorchDispatchMode):
    """Dispatch mode that sees each ATen operator, after composite operators are decomposed."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here. The default imports all of torch._dynamo at the first operator (1.5 s)."""
        return False

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        if _is_free(func):
            if func is torch.ops.aten.slice.Tensor:
                _note_cut(*args, **kwargs)
            # Only ATen itself calls this operator: chunk does, and what calls chunk.
            pieces = _equal_pieces(*args) if func is torch.ops.aten.unsafe_split.Tensor else None
            out = recorder.run_free(func, args, kwargs) if pieces is None else pieces
            if torch.Tag.inplace_view in func.tags:
                recorder.forget(args[0])
            return out
        schema = func._schema
        arguments = {a.name: value for a, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
        name = schema.name.split("::")[1]
        in_place = name.endswith("_") and not name.startswith("__")
        # Described before execution: an in-place operator may change its arguments.
        described = {key: recorder._argument(key, value) for key, value in arguments.items()}
        out = recorder.run(func, args, kwargs)
        if name in ("cat", "stack"):
            length = _looped(arguments["tensors"], arguments.get("dim", 0), name == "stack")
            if length is not None:
                out = _with_length(out, arguments.get("dim", 0), length)
                # All pieces together have the size of the result.
                described["tensors"] = [dataclasses.replace(recorder._tensor(out), unit=described["tensors"][0].unit)]
        recorder.record(name.rstrip("_") if in_place else name, described, out, in_place=in_place, causal=False)
        return out


def _note_cut(tensor: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> None:
    """Record the bounds of a slice: a size below a bound is cut otherwise than one above it."""
    size = tensor.shape[dim]
    if isinstance(size, torch.SymInt):
        for bound in (start, end):
            value = number_of(bound) if isinstance(bound, torch.SymInt) else bound
            if isinstance(value, int) and 1 < abs(value) < sys.maxsize:
                size.node.shape_env.cut_at(asking()[0], size.node.expr, expression(bound), value)


_MAX_POOL = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")

POOLS = {
    **{f"max_pool{d}d{variant}": _MAX_POOL for d in (2, 3) for variant in ("", "_with_indices")},
    **{f"avg_pool{d}d": ("input", "kernel_size", "stride", "padding", "ceil_mode") for d in (2, 3)},
}
"""Pooling function -> names of its positional arguments."""


def _windows(length: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Number of positions of a sliding window along one dimension."""
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _unfolded(x: torch.Tensor, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> torch.Tensor:
    """Result of unfold: one column for each position of the window."""
    kernels = _spread(kernel, 2)
    steps = zip(x.shape[-2:], kernels, *(_spread(v, 2) for v in (dilation, padding, stride)), strict=True)
    positions = math.prod(_windows(*given) for given in steps)
    return x.new_empty((*x.shape[:-3], x.shape[-3] * math.prod(kernels), positions))


def _folded(x: torch.Tensor, output_size: Any, kernel: Any, *how: Any, **named: Any) -> torch.Tensor:
    """Result of fold: an image from the columns that unfold makes of it."""
    return x.new_empty((*x.shape[:-2], x.shape[-2] // math.prod(_spread(kernel, 2)), *_spread(output_size, 2)))


def _shuffled(x: torch.Tensor, factor: Any) -> torch.Tensor:
    """Result of pixel_shuffle: channels become pixels."""
    *batch, channels, height, width = x.shape
    return x.new_empty((*batch, channels // (factor * factor), height * factor, width * factor))


def _unshuffled(x: torch.Tensor, factor: Any) -> torch.Tensor:
    """Result of pixel_unshuffle: pixels become channels."""
    *batch, channels, height, width = x.shape
    return x.new_empty((*batch, channels * factor * factor, height // factor, width // factor))


FUNCTION_RESULTS: dict[Any, tuple[str, Callable[..., torch.Tensor]]] = {
    torch.nn.functional.unfold: ("im2col", _unfolded),
    torch.nn.functional.fold: ("col2im", _folded),
    torch.nn.functional.pixel_shuffle: ("pixel_shuffle", _shuffled),
    torch.nn.functional.pixel_unshuffle: ("pixel_unshuffle", _unshuffled),
}
"""Function whose arguments must be plain numbers -> its only operator, and the function that makes the result."""

NESTED = ("avg_pool2d", "avg_pool3d")
"""Functions that other functions of ``torch.nn.functional`` call, where PyTorch disables function modes."""


def number_of(size: torch.SymInt) -> int:
    """Value of a symbolic size in this run."""
    hint = size.node.hint
    return int(hint) if hint is not None else int(size.node.shape_env._value(size.node.expr))


def symbolic_in(value: Any) -> list[torch.SymInt]:
    """Symbolic sizes among arguments, also inside lists, tuples and dicts."""
    if isinstance(value, torch.SymInt):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [s for v in value for s in symbolic_in(v)] if isinstance(value, (list, tuple)) else []


def as_numbers(value: Any) -> Any:
    """The same arguments with each symbolic size replaced by its value."""
    if isinstance(value, torch.SymInt):
        return number_of(value)
    if isinstance(value, dict):
        return {k: as_numbers(v) for k, v in value.items()}
    if isinstance(value, torch.Size):
        return tuple(as_numbers(v) for v in value)
    if isinstance(value, (list, tuple)):
        return type(value)(as_numbers(v) for v in value)
    return value


def _spread(size: Any, dimensions: int) -> tuple[Any, ...]:
    sizes = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    return sizes if len(sizes) == dimensions else sizes * dimensions


_sdpa = torch.nn.functional.scaled_dot_product_attention
_nested = {name: getattr(torch.nn.functional, name) for name in NESTED}


class _Attention(TorchFunctionMode):
    """Sees scaled_dot_product_attention whole, before it is decomposed into the operators of one backend.

    PyTorch disables function modes inside Python functions that handle them, such as multi_head_attention_forward.
    Therefore the name in ``torch.nn.functional`` is replaced too while this is active.
    """

    def __init__(self, recorder: Recorder | None, plain: bool = False) -> None:
        """``plain``: true if no size is symbolic."""
        super().__init__()
        self.recorder, self.plain = recorder, plain

    def __enter__(self) -> Any:
        torch.nn.functional.scaled_dot_product_attention = lambda *args, **kwargs: self._attend(args, kwargs)
        for name in NESTED if not self.plain else ():
            setattr(torch.nn.functional, name, functools.partial(self._nested, _nested[name]))
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        torch.nn.functional.scaled_dot_product_attention = _sdpa
        for name, function in _nested.items():
            setattr(torch.nn.functional, name, function)
        super().__exit__(*exc)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _sdpa:
            return self._attend(args, kwargs)
        if self.plain:
            return hand_on(func, *args, **kwargs)
        sizes = symbolic_in((args, kwargs))
        if not sizes:
            return func(*args, **kwargs)
        pool = POOLS.get(getattr(func, "__name__", ""))
        if pool is not None and isinstance(args[0], torch.Tensor):
            return self._pool(pool, func.__name__, args, kwargs)
        if func in FUNCTION_RESULTS:
            return self._computed(*FUNCTION_RESULTS[func], args, kwargs)
        return self._with_sizes(func, args, kwargs, sizes)

    def _nested(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function that may have been called where function modes are disabled."""
        if symbolic_in((args, kwargs)):
            return self._pool(POOLS[func.__name__], func.__name__, args, kwargs)
        return func(*args, **kwargs)

    def _computed(self, operator: str, result: Callable[..., torch.Tensor], args: Any, kwargs: Any) -> Any:
        """Result of a function that is one operator, from the symbolic sizes of its arguments."""
        out = result(*args, **kwargs)
        if self.recorder is not None:
            self.recorder.record(operator, {"self": args[0]}, out, in_place=False, causal=False)
        return out

    def _with_sizes(self, func: Any, args: Any, kwargs: Any, sizes: list[torch.SymInt]) -> Any:
        """Call a function with symbolic sizes. If it turns them into numbers, its result gets them back."""
        env = sizes[0].node.shape_env
        before = dict(env.pinned)
        numbers = {number_of(s): s for s in sizes}
        if self.recorder is not None:
            self.recorder.given = numbers
        try:
            out = func(*args, **kwargs)
            turned = {n: s for n, s in numbers.items() if s.node.expr in env.pinned and s.node.expr not in before}
        except RuntimeError as error:
            # Operators that reject symbolic sizes (interpolate) run on the numbers instead.
            if "concrete integers" not in str(error):
                raise
            out = func(*as_numbers(args), **as_numbers(kwargs))
            turned = numbers
        finally:
            if self.recorder is not None:
                self.recorder.given = {}
        if (
            not turned
            or not isinstance(out, torch.Tensor)
            or not any(type(d) is int and d in turned for d in out.shape)
        ):
            return out
        for s in turned.values():
            env.pinned.pop(s.node.expr, None)
        resized = out.new_empty(tuple(turned.get(d, d) if type(d) is int else d for d in out.shape))
        if self.recorder is not None:
            self.recorder.stands_for[_storage(resized)] = out
        return resized

    def _pool(self, names: tuple[str, ...], function: str, args: Any, kwargs: Any) -> Any:
        """Pooling, whose kernels take plain numbers only. PyTorch's own formula gives the shape of the result."""
        from torch._meta_registrations import pooling_output_shape

        given = {**dict(zip(names, args, strict=False)), **kwargs}
        x = given["input"]
        spatial = int(function.partition("pool")[2][0])
        kernel, padding, dilation = (
            _spread(given.get(n) if given.get(n) is not None else d, spatial)
            for n, d in (("kernel_size", 1), ("padding", 0), ("dilation", 1))
        )
        stride = _spread(given["stride"], spatial) if given.get("stride") not in (None, []) else kernel
        lengths = [
            pooling_output_shape(*sizes, bool(given.get("ceil_mode")))
            for sizes in zip(x.shape[-spatial:], kernel, padding, stride, dilation, strict=True)
        ]
        out = x.new_empty((*x.shape[:-spatial], *lengths))
        indices = out.new_empty(out.shape, dtype=torch.int64)
        maximum = function.startswith("max")
        if self.recorder is not None:
            # PyTorch computes the indices of maxima whether or not it returns them.
            name = f"{function.removesuffix('_with_indices')}_with_indices" if maximum else function
            arguments = {"self": self.recorder._describe(x), "kernel_size": self.recorder._describe(list(kernel))}
            outputs = [out, indices] if maximum else out
            self.recorder.record(name, arguments, outputs, in_place=False, causal=False)
        return (out, indices) if function.endswith("_with_indices") else out

    def _attend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        query, value = arguments["query"], arguments["value"]
        _require_fitting(query, arguments["key"], value, arguments.get("attn_mask"), bool(kwargs.get("enable_gqa")))
        # Every backend computes the same result: a new tensor of this shape.
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        if self.recorder is None:
            return out
        described = {key: arguments.get(key) for key in ("query", "key", "value", "attn_mask")}
        causal = bool(arguments.get("is_causal"))
        described |= {"window": self.recorder.window(), "is_causal": causal}
        self.recorder.record("scaled_dot_product_attention", described, out, in_place=False, causal=causal)
        return out


def _require_fitting(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool
) -> None:
    """Raises RuntimeError for shapes that PyTorch's attention rejects: such a point is no path of the model.

    Compares plain numbers, so that it adds no conditions on symbolic sizes.
    """
    q, k, v = (list(as_numbers(t.shape)) for t in (query, key, value))
    if grouped and len(q) > 2:
        if any(q[-3] % shared[-3] for shared in (k, v)):
            raise RuntimeError(f"{q[-3]} heads of queries do not share {k[-3]} of keys and {v[-3]} of values")
        k[-3] = v[-3] = q[-3]
    if q[-1] != k[-1] or k[-2] != v[-2]:
        raise RuntimeError(f"queries {q}, keys {k} and values {v} do not fit")
    leading = torch.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    if mask is not None:
        seen, scores = as_numbers(mask.shape), (*leading, q[-2], k[-2])
        if torch.broadcast_shapes(seen, scores) != scores:
            raise RuntimeError(f"a mask {seen} is larger than the scores {scores}")


class _Before:
    """Context manager for code that runs before a measured call: attention is not decomposed, nothing is recorded."""

    def __init__(self, run: Callable[[Any, Any, Any], Any], plain: bool) -> None:
        self._modes: list[Any] = [_Attention(None, plain), DispatchHook(run)]

    def __enter__(self) -> None:
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *exc: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*exc)
