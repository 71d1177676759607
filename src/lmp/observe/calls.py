"""Observed calls of a model's modules: inputs, outputs, weights and buffers, with shapes as formulas.

The calls are from one run with symbolic sizes: new tokens after cached ones, if there is a cache. The run imports
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution
    from lmp.trace.runs import Run
    from lmp.workload.calls import Call

Shape = tuple[str, ...]
"""Sizes as formulas in the model's variables."""

DEEPEST = 4
"""Maximum depth of tuples and dictionaries in which tensors are searched."""


@dataclass(frozen=True)
class Value:
    """A tensor, or another object without a shape, whose ``dtype`` is its class name."""

    name: str
    shape: Shape | None
    dtype: str


@dataclass(frozen=True)
class ObservedCall:
    """One call of one module. Names in a tuple end in the index, such as ``position_embeddings[0]``."""

    path: str
    class_name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: tuple[Value, ...]
    buffers: tuple[Value, ...]


@dataclass(frozen=True)
class Observed:
    """Calls in the order of their start. ``reason`` states why there are none."""

    calls: tuple[ObservedCall, ...] = ()
    reason: str | None = None

    def of(self, class_name: str) -> tuple[ObservedCall, ...]:
        return tuple(call for call in self.calls if call.class_name == class_name)


def observe_calls(execution: Execution) -> Observed:
    """Run the class's workload once. If it does not run with symbolic sizes, that is a reason and no error."""
    from lmp.workload.load import quiet_warnings

    try:
        with quiet_warnings():
            runs = execution.engine().deriver.runs
            run = runs.run(runs.start_point(), symbolic=True)
    except LmpError as error:
        return Observed(reason=str(error).splitlines()[0])
    top = next((c for c in run.recording.calls if c.class_path == execution.source.class_path), None)
    if top is None:
        return Observed(reason=f"{execution.source.class_path} did not run")
    # For a class inside a model, paths start at the class.
    prefix = f"{top.path}." if top.path else ""
    calls = (c for c in run.recording.calls if c is top or _is_below(c, top))
    return Observed(tuple(_observed(c, c.path.removeprefix(prefix) if c is not top else "", run) for c in calls))


def _is_below(call: Call, top: Call) -> bool:
    parent = call.parent
    while parent is not None and parent is not top:
        parent = parent.parent
    return parent is top


def _observed(call: Call, path: str, run: Run) -> ObservedCall:
    from lmp.workload.paths import forward_arguments

    given = forward_arguments(call, defaults=True)
    inputs = [v for name, value in given.items() for v in _values(name, value, run.size)]
    named = _named_outputs(call.output)
    outputs = [v for name, value in named.items() for v in _values(name, value, run.size)]
    return ObservedCall(
        path,
        call.class_path,
        tuple(inputs),
        tuple(outputs),
        tuple(_tensor(name, t, run.size) for name, t in call.module.named_parameters(recurse=False)),
        tuple(_tensor(name, t, run.size) for name, t in call.module.named_buffers(recurse=False)),
    )


def _named_outputs(output: Any) -> Mapping[str, Any]:
    if hasattr(output, "items"):
        return {str(name): value for name, value in output.items()}
    if isinstance(output, list | tuple):
        return {f"output[{index}]": value for index, value in enumerate(output)}
    return {"output": output}


def _values(name: str, value: Any, size: Callable[[Any], Any], depth: int = DEEPEST) -> Iterator[Value]:
    import torch

    from lmp.workload.paths import is_kv_cache

    if isinstance(value, torch.Tensor):
        yield _tensor(name, value, size)
    elif is_kv_cache(value):
        yield Value(name, None, type(value).__name__)
    elif isinstance(value, list | tuple) and depth:
        for index, part in enumerate(value):
            yield from _values(f"{name}[{index}]", part, size, depth - 1)
    elif isinstance(value, Mapping) and depth:
        for key, part in value.items():
            yield from _values(f"{name}[{key}]", part, size, depth - 1)


def _tensor(name: str, tensor: Any, size: Callable[[Any], Any]) -> Value:
    from lmp.formula import Expr, to_text

    sizes = (size(n) for n in tensor.shape)
    shape = tuple(to_text(n) if isinstance(n, Expr) else str(n) for n in sizes)
    return Value(name, shape, str(tensor.dtype).removeprefix("torch."))
