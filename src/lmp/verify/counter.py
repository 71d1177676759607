"""Counts an executed module: each ATen operator, with attention as one operator, and the lines of each.

A workload takes it as the observer and enters it around the measured call only::

    counter = Counter(module, dtype=torch.bfloat16)
    workload.run(module, values, counter)
    counter.counts, counter.calls, counter.uncounted
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode

from lmp.errors import UncountedOperator
from lmp.verify.operands import WITH_ADDITION, Seen
from lmp.verify.operators import (
    FREE,
    NOTHING,
    Cost,
    Traffic,
    Units,
    attention_cost,
    cost_of,
    grouped_mm_mapping,
    plain_name,
    tensors_of,
)
from lmp.workload.calls import Call, CallTracker, Segment
from lmp.workload.failures import hand_on
from lmp.workload.paths import cached_tensors, caches_after, caches_given

Run = Callable[[AbstractContextManager[Any]], None]
"""Executes the module once, with the given context manager around the measured part."""

ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class OperatorCount:
    """One executed operator: its place in the calls, and its cost. ``known``: false if it has no FLOP rule."""

    operator: str
    segments: tuple[Segment, ...]
    flops: int = 0
    matmul_flops: int = 0
    read: Traffic = NOTHING
    write: Traffic = NOTHING
    known: bool = True
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the input tensors."""
    operands: tuple[Seen, ...] = ()

    @property
    def plain_name(self) -> str:
        """ATen's name without namespace and overload, of the product if something is added to one."""
        name = plain_name(self.operator.split(".")[1] if "." in self.operator else self.operator)
        return WITH_ADDITION[name][0] if name in WITH_ADDITION else name

    def with_cache(self, storages: Collection[int]) -> OperatorCount:
        """The same count after the run: keys and values of a KV cache have these storages."""
        return replace(
            self,
            read=self.read.with_cache(storages),
            write=self.write.with_cache(storages),
            operands=tuple(operand.with_cache(storages) for operand in self.operands),
        )


class Counter:
    """Context manager that counts each operator executed under it. Reusable: each entry starts at 0."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
        self.module, self.dtype = module, dtype
        self.counts: list[OperatorCount] = []
        self.calls: list[Call] = []
        self._tracker = CallTracker(module)
        self._units = Units(module, dtype)
        self._cached: dict[int, torch.Tensor] = {}
        """Storage -> a tensor that a KV cache holds in it before or after the run."""
        self._paused = False
        self._stack = ExitStack()

    def __enter__(self) -> Counter:
        self.counts = []
        self._tracker = CallTracker(self.module, on_enter=self._entered)
        self.calls = self._tracker.calls
        self._cached = {}
        self._units = Units(self.module, self.dtype)
        self._paused = False
        with ExitStack() as stack:
            stack.enter_context(self._tracker)
            stack.enter_context(whole_attention(self._attend))
            stack.enter_context(Operators(self._operate))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)
        self._hold(caches_after(self.calls))
        self.counts = [count.with_cache(self._cached) for count in self.counts]

    def _entered(self, call: Call) -> None:
        if call.parent is None:
            self._hold(caches_given(call))

    def _hold(self, caches: Iterable[Any]) -> None:
        for cache in {id(cache): cache for cache in caches}.values():
            self._cached.update({t.untyped_storage()._cdata: t for t in cached_tensors(cache)})

    @property
    def stack(self) -> list[Call]:
        """The calls that are running now, innermost last."""
        return self._tracker.stack

    @property
    def uncounted(self) -> list[str]:
        """Names of the operators that did floating-point work without a rule."""
        return sorted({count.operator for count in self.counts if not count.known})

    @property
    def flops(self) -> int:
        return sum(count.flops for count in self.counts)

    @property
    def matmul_flops(self) -> int:
        return sum(count.matmul_flops for count in self.counts)

    @property
    def read(self) -> Traffic:
        return sum((count.read for count in self.counts), NOTHING)

    @property
    def write(self) -> Traffic:
        return sum((count.write for count in self.counts), NOTHING)

    def require_rules(self) -> None:
        """Raise UncountedOperator if an executed operator has no rule."""
        if self.uncounted:
            raise UncountedOperator(
                f"no FLOP rule for {', '.join(self.uncounted)}, executed by {type(self.module).__name__}.\n"
                "Add an entry to the table in lmp/flops.py."
            )

    def _record(self, operator: str, cost: Cost, inputs: Any) -> None:
        self.counts.append(
            OperatorCount(
                operator,
                self._tracker.segments(),
                cost.flops,
                cost.matmul_flops,
                cost.read,
                cost.write,
                cost.known,
                tuple(tuple(tensor.shape) for tensor in tensors_of(inputs)),
                cost.operands,
            )
        )

    def _operate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = hand_on(func, *args, **kwargs)
        if not self._paused:
            cost = cost_of(func, args, kwargs, result, self._units)
            if cost != FREE:
                self._record(str(func), cost, (args, kwargs))
        return result

    def _attend(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._paused:
            return hand_on(function, *args, **kwargs)
        self._paused = True
        try:
            output = hand_on(function, *args, **kwargs)
        finally:
            self._paused = False
        query, key, value, mask = attention_arguments(*args, **kwargs)
        self._record(ATTENTION, attention_cost(query, key, value, mask, output, self._units), (query, key, value, mask))
        return output


def attention_arguments(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, *rest: Any,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:  # fmt: skip
    return query, key, value, attn_mask


class Operators(TorchDispatchMode):
    """Dispatch mode that passes each operator below CompositeImplicit decomposition to ``operate``."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; True would import all of torch._dynamo (1.5 s)

    def __init__(self, operate: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._operate = operate

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode, composite operators arrive undecomposed.
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return self._operate(func, tuple(args), kwargs or {})


class _AttentionMode(TorchFunctionMode):
    def __init__(self, function: Any, attend: Callable[..., Any]) -> None:
        super().__init__()
        self._function, self._attend = function, attend

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is self._function:
            return self._attend(func, tuple(args), kwargs or {})
        return hand_on(func, *args, **(kwargs or {}))


@contextlib.contextmanager
def whole_attention(attend: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """While active, every call of scaled_dot_product_attention goes through ``attend``.

    A torch function mode is disabled inside the Python functions that it handles. It would miss attention called by
    ``multi_head_attention_forward``, so the name in ``torch.nn.functional`` is replaced too.
    """
    function = torch.nn.functional.scaled_dot_product_attention

    def named(*args: Any, **kwargs: Any) -> Any:
        return attend(function, args, kwargs)

    with _AttentionMode(function, attend):
        torch.nn.functional.scaled_dot_product_attention = named
        try:
            yield
        finally:
            torch.nn.functional.scaled_dot_product_attention = function


def count(run: Run, module: torch.nn.Module, dtype: torch.dtype = torch.bfloat16) -> list[OperatorCount]:
    """Execute once and return the cost of each operator in execution order."""
    counter = Counter(module, dtype)
    run(counter)
    return counter.counts


def flop_counter_total(run: Run) -> int:
    """FLOPs that torch's own FlopCounterMode counts in the same run."""
    mode = flop_counter()
    run(mode)
    return int(mode.get_total_flops())


def flop_counter() -> FlopCounterMode:
    """torch's own counter, with the one rule that it lacks, and one sum over all modules."""
    mode = _Quicker(display=False, custom_mapping=grouped_mm_mapping())
    mode.mod_tracker = _Everywhere()
    return mode


class _Quicker(FlopCounterMode):
    """torch's own counter. Operators that it neither counts nor decomposes do not pass through its code."""

    def __enter__(self) -> _Quicker:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _CountingMode(self)
        self.mode.__enter__()
        return self


class _CountingMode(_FlopCounterMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as above

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _is_plain(func) and func._overloadpacket not in self.counter.flop_registry:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


@functools.cache
def _is_plain(func: Any) -> bool:
    """True if an operator returns tensors alone, and torch does not decompose it into others."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    if composite in func.py_kernels or torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), composite):
        return False
    returns = func._schema.returns
    return bool(returns) and all(str(each.type) == "Tensor" for each in returns)


class _Everywhere:
    """Stands for torch's tracker of modules, whose hooks fail where a module returns a trainable weight unchanged."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        """Begin: nothing is tracked."""

    def __exit__(self, *exc: Any) -> None:
        """End: nothing was tracked."""


@contextlib.contextmanager
def together(*managers: AbstractContextManager[Any]) -> Iterator[None]:
    """All managers around one run. The last mode sees an operator first and passes it to the one before."""
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield
