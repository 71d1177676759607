"""One execution as a list of operators with their costs and the lines they belong to.

The same recorder serves symbolic runs (sizes are expressions) and concrete ones (sizes are numbers).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lmp.trace.remembered import SymbolicResults
from lmp.trace.rules import Cost, Operator, Tensor, cost
from lmp.trace.symbols import SizeNode, expression
from lmp.workload.answers import STANDS_FOR
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call, CallTracker, Segment, by_caller
from lmp.workload.results import Results, tensors_in
from lmp.workload.running import Running


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

    def below(self, call: Call) -> list[Executed]:
        """Operators that ran during a call, those of called modules included."""
        return self._by_call.get(call.index, [])

    def called_by(self, call: Call) -> list[Call]:
        """The calls that a call makes itself."""
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
    """Context manager to be entered around one call of ``module``; afterwards ``recording`` holds what ran."""

    def __init__(
        self,
        module: torch.nn.Module,
        dtype: torch.dtype,
        size: Callable[[Any], Any] = expression,
        results: Results | SymbolicResults | None = None,
    ) -> None:
        """``results``: what is known of what operators return, on plain sizes or on symbolic ones."""
        self.recording = Recording()
        self.dtype, self.size, plain = dtype, size, isinstance(results, Results)
        self.run = run_symbolic if results is None else results.run
        """Runs an operator."""
        self.tracker = CallTracker(module, on_enter=self._entered)
        self._order = 0
        self._module = module
        self._kept: list[torch.Tensor] = []
        """Tensors are kept alive while recording, so that no identity is given out twice."""
        self._weights: set[int] = set()
        self.given: dict[int, torch.SymInt] = {}
        """Symbolic sizes that the function being called was given, by their numbers."""
        self.stands_for: dict[int, torch.Tensor] = {}
        """Storage of a result that got symbolic sizes back -> the operator's own result."""
        self._known: dict[int, torch.Tensor] = {}
        self._tensors: dict[int, Tensor] = {}
        self._function_mode = _Attention(self, plain)
        self.before = _Before(self.run, plain)
        """To be entered around what runs before the measured call: attention stays whole there too."""
        self._dispatch_mode = _Dispatch(self)

    def __enter__(self) -> Recorder:
        # Those that the module has now, and may replace while it runs: filling a cache may have replaced some.
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
        made = tuple(self._tensor(t) for t in tensors_in(outputs))
        if not made:
            return  # a question about a tensor (its size, one of its values) moves nothing that counts
        self._order += 1
        operator = Operator(name, known, made, in_place)
        self.recording.operators.append(Executed(operator, segments, self._order, causal))

    def forget(self, tensor: torch.Tensor) -> None:
        """A tensor that has another shape now is described anew; it is kept, as each that was described."""
        self._kept.append(tensor)
        self._known.pop(id(tensor), None)

    def _memory(self, tensor: torch.Tensor) -> int:
        own = tensor.untyped_storage()
        made = self.stands_for.get(own._cdata, getattr(own, STANDS_FOR, None))
        return own._cdata if made is None else _storage(made)

    def _argument(self, name: str, value: Any) -> Any:
        """An argument as rules see it; a number of groups that was passed on as a number is the size it stood for."""
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
            return number_of(value)  # a factor, as 2 ** (layer // every): no size, and no rule asks for it

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
        described = Tensor(
            shape,
            unit,
            tensor.dtype.is_floating_point,
            broadcast,
            storage=self._memory(tensor),
            complex=tensor.is_complex(),
        )
        self._known[key], self._tensors[key] = tensor, described
        return described


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


@functools.cache
def _is_free(func: Any) -> bool:
    """Views (every result aliases an argument that is not written), allocations and questions about a tensor."""
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
    """Pairs of padding before and after, the last dimension first."""
    sizes = list(tensor.shape)
    for index, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), start=1):
        sizes[-index] = sizes[-index] + before + after
    return tensor.new_empty(sizes)


def _solved(a: torch.Tensor, b: torch.Tensor, **how: bool) -> torch.Tensor:
    """A solution for each column of ``b``, for each of the systems that both are stacked from; columns are dense."""
    rows, columns = b.shape[-2:]
    return b.new_empty((*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), columns, rows)).mT


def _added(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: Any) -> torch.Tensor:
    """A bias and the product of two stacks of matrices."""
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _complex(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Complex numbers of two parts, which broadcast."""
    return a.new_empty(torch.broadcast_shapes(a.shape, b.shape), dtype=a.dtype.to_complex())


RESULTS: dict[str, Callable[..., torch.Tensor]] = {
    "aten::baddbmm": _added,
    "aten::complex": _complex,
    "aten::constant_pad_nd": _padded,
    "aten::linalg_solve_triangular": _solved,
    "aten::polar": _complex,
}
"""Operators whose kernels take no symbolic sizes, or turn them into numbers -> what their result looks like."""


def run_symbolic(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator; one that fails on symbolic shapes is run on the numbers, and its sizes are found again.

    A size of the result is that of an argument's dimension with the same number; one that is none stays a number.
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


def _looped(pieces: Sequence[torch.Tensor], dim: int, new: bool) -> torch.SymInt | None:
    """The number of tokens that a loop went over, where it made one of these pieces for each; else None.

    A symbolic size that the code turned into a plain number to count by: a list has a plain number of entries.
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
    """Sees every ATen operator below the decomposition of composite ones."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: without this, the first operator would import all of torch._dynamo (1.5 s)."""
        return False

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        if _is_free(func):
            out = func(*args, **kwargs)
            if torch.Tag.inplace_view in func.tags:
                recorder.forget(args[0])
            return out
        schema = func._schema
        arguments = {a.name: value for a, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
        name = schema.name.split("::")[1]
        in_place = name.endswith("_") and not name.startswith("__")
        # Described before it runs: an in-place operator may change what its arguments look like.
        described = {key: recorder._argument(key, value) for key, value in arguments.items()}
        out = recorder.run(func, args, kwargs)
        if name in ("cat", "stack"):
            length = _looped(arguments["tensors"], arguments.get("dim", 0), name == "stack")
            if length is not None:
                out = _with_length(out, arguments.get("dim", 0), length)
                # All pieces together are as large as what they make.
                described["tensors"] = [dataclasses.replace(recorder._tensor(out), unit=described["tensors"][0].unit)]
        recorder.record(name.rstrip("_") if in_place else name, described, out, in_place=in_place, causal=False)
        return out


_MAX_POOL = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")

POOLS = {
    **{f"max_pool{d}d{variant}": _MAX_POOL for d in (2, 3) for variant in ("", "_with_indices")},
    **{f"avg_pool{d}d": ("input", "kernel_size", "stride", "padding", "ceil_mode") for d in (2, 3)},
}
"""Functions -> their arguments by position."""


def number_of(size: torch.SymInt) -> int:
    """The number that a symbolic size stands for in this run."""
    hint = size.node._hint
    return int(hint) if hint is not None else int(size.node.shape_env._value(size.node.expr))


def symbolic_in(value: Any) -> list[torch.SymInt]:
    """Symbolic sizes among arguments, in lists too."""
    if isinstance(value, torch.SymInt):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [s for v in value for s in symbolic_in(v)] if isinstance(value, (list, tuple)) else []


def as_numbers(value: Any) -> Any:
    """The same arguments with numbers in place of symbolic sizes."""
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


class _Attention(TorchFunctionMode):
    """Sees scaled_dot_product_attention whole, before it is decomposed into the operators of one backend.

    PyTorch switches function modes off inside Python functions that handle them (multi_head_attention_forward), so
    the name in ``torch.nn.functional`` is replaced as well while this is active.
    """

    def __init__(self, recorder: Recorder | None, plain: bool = False) -> None:
        """``plain``: no size is symbolic."""
        super().__init__()
        self.recorder, self.plain = recorder, plain

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
        if self.plain:
            return func(*args, **kwargs)
        sizes = symbolic_in((args, kwargs))
        if not sizes:
            return func(*args, **kwargs)
        pool = POOLS.get(getattr(func, "__name__", ""))
        if pool is not None and isinstance(args[0], torch.Tensor):
            return self._pool(pool, func.__name__, args, kwargs)
        return self._with_sizes(func, args, kwargs, sizes)

    def _with_sizes(self, func: Any, args: Any, kwargs: Any, sizes: list[torch.SymInt]) -> Any:
        """Call a function that takes symbolic sizes. Some turn them into numbers: their result gets them back."""
        env = sizes[0].node.shape_env
        before = dict(env.pinned)
        numbers = {number_of(s): s for s in sizes}
        if self.recorder is not None:
            self.recorder.given = numbers
        try:
            out = func(*args, **kwargs)
            turned = {n: s for n, s in numbers.items() if s.node.expr in env.pinned and s.node.expr not in before}
        except RuntimeError as error:
            # Operators without symbolic sizes (interpolate) say so and take the numbers.
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
        """Pooling, whose kernels take plain numbers only: the shape of its result by PyTorch's own formula for it."""
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
            # PyTorch finds the indices of maxima whether or not it returns them.
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
        # Every backend computes the same; what it returns is a new tensor of this shape.
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        if self.recorder is None:
            return out
        tensors = {key: arguments.get(key) for key in ("query", "key", "value", "attn_mask")}
        causal = bool(arguments.get("is_causal"))
        self.recorder.record("scaled_dot_product_attention", tensors, out, in_place=False, causal=causal)
        return out


def _require_fitting(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool
) -> None:
    """Raises RuntimeError for shapes that PyTorch's attention refuses: they are no path of the model.

    Asked of the numbers, so that no question about symbolic sizes comes of it.
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
    """Context manager for what runs before a measured call: attention is whole, nothing is recorded."""

    def __init__(self, run: Callable[[Any, Any, Any], Any], plain: bool) -> None:
        self._modes: list[Any] = [_Attention(None, plain), Running(run)]

    def __enter__(self) -> None:
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *exc: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*exc)
