"""What goes into the modules of a model, what comes out of them, and what they hold, with shapes as formulas.

One run with symbolic sizes: new tokens after cached ones, where there is a cache. Imports torch when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError

if TYPE_CHECKING:
    from lmp.pipeline.making import Making
    from lmp.trace.runs import Run
    from lmp.workload.calls import Call

Shape = tuple[str, ...]
"""Sizes as formulas in the model's variables."""

DEEPEST = 4
"""Levels of tuples and dictionaries that tensors are looked for in."""


@dataclass(frozen=True)
class Value:
    """A tensor; or, without a shape, another object of which ``dtype`` is the class's name."""

    name: str
    shape: Shape | None
    dtype: str


@dataclass(frozen=True)
class ObservedCall:
    """One call of one module. Names of a tuple's parts end in their index, as ``position_embeddings[0]``."""

    path: str
    class_name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: tuple[Value, ...]
    buffers: tuple[Value, ...]


@dataclass(frozen=True)
class Observed:
    """Calls in the order in which they began; ``reason`` says why there are none."""

    calls: tuple[ObservedCall, ...] = ()
    reason: str | None = None

    def of(self, class_name: str) -> tuple[ObservedCall, ...]:
        return tuple(call for call in self.calls if call.class_name == class_name)


def observe_calls(making: Making) -> Observed:
    """Run the class's workload once. What cannot be run with symbolic sizes is a reason, not an error."""
    from lmp.workload.load import quiet_warnings

    try:
        with quiet_warnings():
            runs = making.engine().deriver.runs
            run = runs.run(runs.start_point(), symbolic=True)
    except LmpError as error:
        return Observed(reason=str(error).splitlines()[0])
    top = next((c for c in run.recording.calls if c.class_path == making.source.class_path), None)
    if top is None:
        return Observed(reason=f"{making.source.class_path} did not run")
    # Of a class inside of a model the paths are those from the class.
    prefix = f"{top.path}." if top.path else ""
    calls = (c for c in run.recording.calls if c is top or _is_below(c, top))
    return Observed(tuple(_observed(c, c.path.removeprefix(prefix) if c is not top else "", run) for c in calls))


def _is_below(call: Call, top: Call) -> bool:
    parent = call.parent
    while parent is not None and parent is not top:
        parent = parent.parent
    return parent is top


def _observed(call: Call, path: str, run: Run) -> ObservedCall:
    from lmp.verify.resolve import bound_inputs

    inputs = [v for name, value in bound_inputs(call).items() for v in _values(name, value, run.size)]
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

    if isinstance(value, torch.Tensor):
        yield _tensor(name, value, size)
    elif hasattr(value, "get_seq_length"):
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
