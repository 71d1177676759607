"""Module calls of a user's own class: the analysis that each call can refer to, and the arguments to make it.

Called classes are analysed standalone: PyTorch's on synthetic inputs, the user's own with the arguments and shapes of
the call. A call is inlined if its class cannot be analysed so, or if the analysis does not apply to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from lmp.analyze.execution import Execution
from lmp.analyze.own import OwnCall, stored_call
from lmp.formula import Expr, Var
from lmp.records import ModuleAnalysis
from lmp.trace.observe import forward_arguments
from lmp.trace.runs import Run
from lmp.workload.arguments import constructor_arguments, constructor_parameters, hands_on
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call
from lmp.workload.live import kind
from lmp.workload.spec import Construct, Dim, Input, Spec, TensorInput, TupleInput, is_plain, tensors

DTYPE_NAMES = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int64",
    torch.int32: "int32", torch.bool: "bool",
}  # fmt: skip

Applies = Callable[[Call], bool]
"""Predicate: false if a call must be inlined because the analysis does not apply."""


def applies_as_constructed(analysis: ModuleAnalysis) -> Applies:
    """Predicate for a standalone analysis of a class of PyTorch or transformers: true if it applies to the call."""
    return lambda call: _binds(analysis, call, exact=False) and _called_alike(analysis, call)


def applies_as_given(analysis: ModuleAnalysis, execution: Execution) -> Applies:
    """Predicate for an analysis of a user's own class: compares arguments, shapes and kind of instance."""
    if analysis.given is None:
        return lambda call: _binds(analysis, call, exact=True)
    own = execution.session.own.get(analysis.class_name)
    if analysis.given.live:
        return lambda call: own is not None and kind(own.module) == kind(call.module) and _takes(own.spec, call, {})
    spec, dtype = stored_call(analysis).spec, execution.workload.dtype

    def applies(call: Call) -> bool:
        if not _binds(analysis, call, exact=True):
            return False
        return _takes(spec, call, dict(_sizes(constructor_arguments(call.module))), dtype)

    return applies


def call_as_spec(call: Call, run: Run, execution: Execution) -> OwnCall | None:
    """Constructor arguments and shapes of a call, in the form of ``--init`` and ``--inputs``.

    None if they have no such form: an argument is no plain value, or a dtype has no name.
    """
    if run.sizes is None:
        return None
    host = execution.call.module if execution.call is not None else None
    arguments = {} if host is not None else constructor_arguments(call.module)
    init = {n: _plain_argument(v) for n, v in arguments.items()}
    if not all(map(is_plain, init.values())):
        return None
    names = {run.size(v): n for n, v in reversed(list(_sizes(arguments)))}
    inputs: dict[str, Any] = {}
    for name, value in forward_arguments(call).items():
        if value is None:
            continue
        found = _as_input(name, value, run, names, execution.workload.dtype)
        if found is None:
            return None
        inputs[name] = found
    live = execution.workload.module
    module = None if live is None else live.get_submodule(call.path)
    return OwnCall(Spec(inputs, init), module, execution.workload.decisions)


def _as_input(name: str, value: Any, run: Run, names: dict[Any, str], own: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        dtype = "float" if value.dtype == own else DTYPE_NAMES.get(value.dtype)
        if dtype is None:
            return None
        dims = [_as_dim(f"{name}_{i}", run.size(s), names) for i, s in enumerate(value.shape)]
        return TensorInput(dtype, tuple(dims))
    if isinstance(value, (tuple, list)) and value and all(isinstance(v, torch.Tensor) for v in value):
        parts = [_as_input(f"{name}_{i}", v, run, names, own) for i, v in enumerate(value)]
        return None if None in parts else TupleInput(tuple(parts))
    return value if is_plain(value) else None


def _as_dim(name: str, size: Any, names: dict[Any, str]) -> Dim:
    """A dimension: a number, a size of the call, a constructor argument, or a new name for any other size."""
    if not isinstance(size, Expr):
        return Dim(int(size))
    if size not in names:
        names[size] = size.name if isinstance(size, Var) and size.name in RUNTIME else name
    return Dim(names[size])


def _plain_argument(value: Any) -> Any:
    """A constructor argument as a literal: symbolic sizes become their numbers."""
    if isinstance(value, torch.SymInt):
        return int(value.node._hint if value.node._hint is not None else value.node.shape_env._value(value.node.expr))
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain_argument, value))
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        made = {n: _plain_argument(getattr(value, n)) for n, f in fields.items() if f.init}
        return Construct(f"{type(value).__module__}.{type(value).__qualname__}", made)
    return value


def _sizes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Integers among constructor arguments, under the names of variables."""
    for name, value in arguments.items():
        if isinstance(value, torch.SymInt) or (type(value) is int and value > 0):
            yield name, value
        fields = getattr(type(value), "__dataclass_fields__", None)
        if fields is not None:
            yield from _sizes({n: getattr(value, n) for n, f in fields.items() if f.init})


def _binds(analysis: ModuleAnalysis, call: Call, *, exact: bool) -> bool:
    """True if the instance was constructed as in the analysis. ``exact``: floating-point arguments must be equal too.

    Those of PyTorch's classes (an epsilon, a probability) decide no path.
    """
    arguments = constructor_arguments(call.module)
    for path in analysis.parameters.values():
        root, _, rest = path.partition(".")
        if root == "init" and not _is_size(_inside(arguments, rest)):
            return False
    for name, text in analysis.fixed.items():
        first = name.split(".")[0]
        if first not in arguments:
            if (exact or hands_on(type(call.module))) and name in constructor_parameters(type(call.module)):
                return False
            continue
        value = _plain_argument(_inside(arguments, name))
        if isinstance(value, float) and not exact:
            continue
        if repr(value) != text:
            return False
    return True


def _called_alike(analysis: ModuleAnalysis, call: Call) -> bool:
    """True if a call has the form of the analysed one: only tensors, and equal shapes where those were equal."""
    parameters = inspect.signature(type(call.module).forward).parameters
    shapes: dict[str, torch.Size] = {}
    for name, value in forward_arguments(call).items():
        flat = dict(_flat(name, value))
        if not flat and name in parameters and value != parameters[name].default:
            return False
        shapes |= {n: t.shape for n, t in flat.items()}
    if set(shapes) != set(analysis.interface):
        return False
    return all(shapes[a] == shapes[b] for a in shapes for b in shapes if analysis.interface[a] == analysis.interface[b])


def _inside(arguments: Mapping[str, Any], path: str) -> Any:
    first, *rest = path.split(".")
    value = arguments.get(first.split("[")[0], _MISSING)
    for step in rest:
        value = getattr(value, step, _MISSING)
    return value


class _Missing:
    """Marks an unknown argument."""


_MISSING = _Missing()


def _is_size(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(v, (int, torch.SymInt)) and v == value[0] for v in value)
    return value is None or isinstance(value, (bool, int, torch.SymInt, torch.nn.Module, torch.Tensor))


def _takes(spec: Spec, call: Call, sizes: Mapping[str, Any], dtype: torch.dtype | None = None) -> bool:
    """True if a call's inputs match a spec: arguments, dtypes, ranks, and sizes that the spec ties together."""
    given = {n: v for n, v in forward_arguments(call).items() if v is not None}
    if set(given) != set(spec.inputs):
        return False
    values = dict(sizes)
    for name, wanted in spec.inputs.items():
        if not isinstance(wanted, Input):
            if given[name] != wanted:
                return False
            continue
        flat = list(_flat(name, given[name]))
        expected = list(tensors({name: wanted}))
        if [n for n, _ in flat] != [n for n, _ in expected]:
            return False
        for (_, tensor), (_, shape) in zip(flat, expected, strict=True):
            if tensor.dim() != len(shape.dims) or not _same_dtype(shape.dtype, tensor.dtype, dtype):
                return False
            for dim, size in zip(shape.dims, tensor.shape, strict=True):
                if isinstance(dim.value, str) and not dim.operation and dim.value not in values:
                    values[dim.value] = size
    return all(
        dim.size(values) == size
        for name, wanted in spec.inputs.items()
        if isinstance(wanted, Input)
        for (_, tensor), (_, shape) in zip(_flat(name, given[name]), tensors({name: wanted}), strict=True)
        for dim, size in zip(shape.dims, tensor.shape, strict=True)
    )


def _same_dtype(written: str, found: torch.dtype, own: torch.dtype | None) -> bool:
    if written == "float":
        return found == own if own is not None else found.is_floating_point
    return {"int": "int64", "long": "int64"}.get(written, written) == str(found).removeprefix("torch.")


def _flat(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            yield from _flat(f"{name}[{index}]", part)
