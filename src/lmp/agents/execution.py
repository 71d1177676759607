"""What execution shows of a class: its calls at the verification points, the lines that ran, its inputs' shapes.

For prompts (`execute`, without anything that was counted) and for the record of an accepted draft (`interface_of`).
Importing this imports torch.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from lmp.agents.facts import Executed, Located
from lmp.agents.points import CallAt, InputAt
from lmp.source.lines import FunctionSource, called_functions, enclosing_function
from lmp.source.quoting import escaped
from lmp.trace.coverage import Watching
from lmp.trace.observe import input_tensors
from lmp.verify.counter import Counter
from lmp.verify.judge import Point
from lmp.verify.resolve import resolve_all
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call, package_dir
from lmp.workload.configs import text_part
from lmp.workload.failures import blame
from lmp.workload.load import quiet_warnings
from lmp.workload.paths import forward_arguments, is_kv_cache

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution
    from lmp.source.trees import Tree, Trees

Line = tuple[str, int]

_PLAIN = (int, float, bool, str, type(None))
_MACHINERY: CodeType = torch.nn.Module._call_impl.__code__


def execute(execution: Execution) -> Executed:
    """Run the class at the verification points. Raises TraceFailed if it cannot be executed."""
    with quiet_warnings():
        return _Watching(execution).watch()


def plain_config(execution: Execution) -> dict[str, Any]:
    """The plain values of the config at which the class is executed; empty for a class without a config."""
    config = execution.workload.config
    if config is None:
        return {}
    part, _ = text_part(config)
    own = {name: value for name, value in vars(part).items() if not name.startswith("_")}
    for standard, name in (getattr(part, "attribute_map", None) or {}).items():
        own.setdefault(standard, own.get(name))
    own["_attn_implementation"] = getattr(part, "_attn_implementation", None) or execution.workload.attention
    return {name: value for name, value in own.items() if isinstance(value, (*_PLAIN, list, tuple, dict))}


class _Watching:
    """Runs the points one by one, and collects the facts."""

    def __init__(self, execution: Execution) -> None:
        self.execution, self.class_path = execution, execution.source.class_path
        self.ran: dict[Line, set[int]] = {}
        self.led: dict[Line, None] = {}
        """Places on the way from the class to an operator."""
        self.calling: dict[tuple[Line, Line], None] = {}
        """Pairs of a call's place and the called function's place."""
        self.calls: list[CallAt] = []
        self.instances: dict[int, tuple[str, ...]] = {}
        self.operators: set[str] = set()
        self.called: dict[str, list[CallAt]] = {}
        """Class -> how it was called."""

    def watch(self) -> Executed:
        workload, own = self.execution.workload, self.execution.workload.hints
        for number, point in enumerate(self.execution.held_out, 1):
            label, values = point.label, point.values
            module = workload.build(values)
            counter = Counter(module, workload.dtype)
            try:
                with _Lines(self.class_path, counter) as lines:
                    workload.run(module, values, counter)
            except Exception as error:
                # The judge leaves such a point out too, as one beyond the positions of another part of the model.
                if not point.may_be_refused or blame(error) == "lmp":
                    raise
                continue
            self.calling.update(lines.calling)
            for line in lines.ran:
                self.ran.setdefault(line, set()).add(number)
            calls = [call for call in counter.calls if call.class_path == self.class_path]
            changed = {n: v for n, v in values.items() if n not in RUNTIME and own.get(n) != v}
            at = self._point(number, label, values, changed, module)
            self.calls += _alike(at, calls)
            self._follow(counter, calls, at)
            if not changed:
                self.instances |= {id(call.module): tuple(described_module(call.module)) for call in calls}
        functions = tuple(self._functions())
        return Executed(
            tuple(self.calls),
            tuple(_differing(list(self.instances.values()))),
            dict(self._located()),
            len({call.number for call in self.calls}),
            functions,
            {name: tuple(calls) for name, calls in self.called.items()},
            tuple(self._asked(functions)),
            frozenset(self.operators),
        )

    def _point(
        self, number: int, label: str, values: Mapping[str, int], changed: Mapping[str, int], module: torch.nn.Module
    ) -> CallAt:
        """A point without a call."""
        own, at = self.execution.workload.config, getattr(module, "config", None)
        if own is None or at is None:
            paths = {name: variable.path for name, variable in self.execution.workload.variables.items()}
            differs = {paths.get(name, name): value for name, value in changed.items()}
            sizes = {name: value for name, value in values.items() if name not in RUNTIME}
        else:
            # Under the config's own names: what the class reads is called so.
            before, now = _plain_values(own), _plain_values(at)
            differs = {f"config.{name}": value for name, value in now.items() if before.get(name) != value}
            sizes = {f"config.{name}": value for name, value in now.items() if type(value) is int}
        runtime = {name: values[name] for name in RUNTIME if name in values}
        return CallAt(number, label, runtime, differs, sizes)

    def _follow(self, counter: Counter, calls: list[Call], at: CallAt) -> None:
        own = {id(call) for call in calls}
        self.operators |= {c.plain_name for c in counter.counts if any(id(s.call) in own for s in c.segments)}
        below: dict[str, list[Call]] = {}
        for call in counter.calls:
            if call.parent is not None and id(call.parent) in own:
                below.setdefault(call.class_path, []).append(call)
        for name, those in below.items():
            self.called.setdefault(name, []).extend(_alike(at, those))
        segments = [segment for count in counter.counts for segment in count.segments]
        segments += [call.site for call in counter.calls if call.site is not None]
        for segment in segments:
            if id(segment.call) in own:
                self.led.update(dict.fromkeys((place.file, place.line) for place in segment.chain))

    def _located(self) -> Iterator[tuple[Located, frozenset[int]]]:
        return (((self.execution.file_of(file), line), frozenset(at)) for (file, line), at in self.ran.items())

    def _functions(self) -> Iterator[FunctionSource]:
        """Functions on the way to an operator or a module, and those that forward() names and that ran."""
        source, trees = self.execution.source, self.execution.session.trees
        seen = {(self.execution.file_of(str(source.forward_path)), source.lines)}
        led = [function for file, line in self.led if (function := self._function(file, line)) is not None]
        ran = {line for line, _ in self._located()}
        for function in [*led, *(f for f in called_functions(source, trees) if _any_ran(f, ran))]:
            key = (function.file, function.lines)
            if key not in seen:
                seen.add(key)
                yield function

    def _asked(self, functions: Sequence[FunctionSource]) -> Iterator[FunctionSource]:
        """Other functions that forward() or one of ``functions`` called."""
        source = self.execution.source
        quoted = {(source.forward_file, source.lines), *((f.file, f.lines) for f in functions)}
        seen = set(quoted)
        for (file, line), (called_file, called_line) in self.calling:
            where = self.execution.file_of(file)
            if not any(where == name and first <= line <= last for name, (first, last) in quoted):
                continue
            function = self._function(called_file, called_line)
            if function is not None and (function.file, function.lines) not in seen:
                seen.add((function.file, function.lines))
                yield function

    def _function(self, file: str, line: int) -> FunctionSource | None:
        located = _in_tree(self.execution.file_of(file), self.execution.session.trees)
        if located is None:
            return None
        tree, path = located
        function = enclosing_function(path, line)
        return None if function is None else replace(function, tree=tree, file=tree.relative(path))


def _any_ran(function: FunctionSource, ran: set[Located]) -> bool:
    first, last = function.lines
    return any((function.file, line) in ran for line in range(first + 1, last + 1))


def _in_tree(file: str, trees: Trees) -> tuple[Tree, Path] | None:
    found = ((tree, tree.path(file)) for tree in trees)
    return next(((t, p) for t, p in found if p is not None and p.is_file()), None)


class _Lines(Watching):
    """Collects the lines of the class's own work: its forward() and what it calls, without other modules."""

    def __init__(self, class_path: str, counter: Counter) -> None:
        self.class_path, self.counter = class_path, counter
        self.ran: set[Line] = set()
        self.calling: dict[tuple[Line, Line], None] = {}

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        stack = self.counter.stack
        if not stack or stack[-1].class_path != self.class_path:
            return None
        if not frame.f_code.co_filename.startswith(package_dir(stack[-1].module)):
            return None
        if not _below_forward(frame, stack[-1].module):
            return None
        code, caller = frame.f_code, frame.f_back
        if caller is not None and not code.co_name.startswith(("__", "<")):
            self.calling[(caller.f_code.co_filename, caller.f_lineno), (code.co_filename, code.co_firstlineno)] = None
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.ran.add((frame.f_code.co_filename, frame.f_lineno))
        return self._on_line


def _below_forward(frame: FrameType | None, module: torch.nn.Module) -> bool:
    while frame is not None and frame.f_code is not _MACHINERY:
        if frame.f_code.co_name == "forward" and frame.f_locals.get("self") is module:
            return True
        frame = frame.f_back
    return False


# --- as text ---------------------------------------------------------------------------------------------------------


def _alike(at: CallAt, calls: Sequence[Call]) -> list[CallAt]:
    """The calls at a point; equal ones are one."""
    alike = Tally(tuple(described_inputs(call)) for call in calls)
    return [replace(at, inputs=inputs, times=times) for inputs, times in alike.items()]


def _plain_values(config: Any) -> dict[str, Any]:
    """The plain attributes of a config's part that is for text."""
    part, _ = text_part(config)
    return {n: v for n, v in vars(part).items() if not n.startswith("_") and isinstance(v, _PLAIN)}


def described_inputs(call: Call) -> Iterator[InputAt]:
    """Each argument of the call's forward(); elements of tuples by index."""
    for name, value in forward_arguments(call, defaults=True).items():
        yield from _described(name, value)


def _described(name: str, value: Any) -> Iterator[InputAt]:
    if isinstance(value, (tuple, list)) and value and not isinstance(value, torch.Size):
        for index, part in enumerate(value):
            yield from _described(f"{name}[{index}]", part)
    elif isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _described(f"{name}[{key!r}]", part)
    elif isinstance(value, torch.Tensor):
        yield InputAt(name, str(value.dtype).removeprefix("torch."), tuple(value.shape), _layout(value))
    elif is_kv_cache(value):
        yield InputAt(name, f"a KV cache ({type(value).__name__}) of cache_len tokens")
    else:
        shown = repr(value) if isinstance(value, (*_PLAIN, torch.dtype, torch.device)) else f"a {type(value).__name__}"
        yield InputAt(name, escaped(shown))


def _layout(value: torch.Tensor) -> str:
    """How a tensor that is not contiguous lies in memory."""
    if value.is_contiguous():
        return ""
    long = [dim for dim, size in enumerate(value.shape) if size > 1]
    still = [dim for dim in long if value.stride(dim) == 0]
    order = sorted((dim for dim in long if dim not in still), key=lambda dim: -value.stride(dim))
    if order != sorted(order):
        said = f"order in memory: {', '.join(map(str, order))}"
    else:
        said = "" if still else "with gaps in memory"
    return "; ".join(part for part in (said, f"broadcast along {still}" if still else "") if part)


def _tensor(value: torch.Tensor) -> str:
    strides = "" if value.is_contiguous() else f", strides {list(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}{strides}"


def described_module(module: torch.nn.Module) -> Iterator[str]:
    """One line per attribute of ``self``."""
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "training" and isinstance(value, (*_PLAIN, torch.dtype)):
            yield escaped(f"self.{name} = {value!r}")
    for kind, held in (("parameter", module._parameters), ("buffer", module._buffers)):
        for name, tensor in held.items():
            yield f"self.{name}: {'None' if tensor is None else f'{kind}, {_tensor(tensor)}'}"
    alike: dict[str, list[str]] = {}
    for name, child in module.named_children():
        cls = type(child)
        built = f"{cls.__module__}.{cls.__qualname__}({', '.join(_arguments(child))})"
        alike.setdefault(built, []).append(f"self.{name}")
    for built, names in alike.items():
        yield escaped(f"{', '.join(names)}: {built}")


def _arguments(module: torch.nn.Module) -> Iterator[str]:
    for name, value in constructor_arguments(module).items():
        shown = repr(value) if isinstance(value, (*_PLAIN, tuple)) else f"a {type(value).__name__}"
        if value is not None and name not in ("device", "dtype"):
            yield f"{name}={shown}"


def _differing(instances: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of the first instance, and how the others differ from it."""
    distinct = list(dict.fromkeys(instances))
    if not distinct:
        return
    first, *others = distinct
    yield from first
    for other in others:
        lines = [line for line in other if line not in first]
        yield f"another instance: {'; '.join(lines) or 'holds less'}"


# --- shapes of the inputs --------------------------------------------------------------------------------------------

Sample = tuple[Mapping[str, int], dict[str, tuple[int, ...]]]
"""Values of the parameters at one call, and the shapes of its tensors."""


def interface_of(class_path: str, parameters: Mapping[str, str], points: Sequence[Point]) -> dict[str, list[str]]:
    """Shape of each tensor that forward() takes, as formulas: a number, a variable, or all tokens so far.

    A tensor is left out if one of its sizes equals none of these at every executed call.
    """
    samples = list(_samples(class_path, parameters, points))
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for _, shapes in samples for name in shapes):  # a mask is not always given
        seen = [(values, shapes[name]) for values, shapes in samples if name in shapes]
        first = seen[0][1]
        if any(len(shape) != len(first) for _, shape in seen):
            continue
        sizes = [_size([(values, shape[dim]) for values, shape in seen]) for dim in range(len(first))]
        if None not in sizes:
            found[name] = [size for size in sizes if size is not None]
    return found


def _samples(class_path: str, parameters: Mapping[str, str], points: Sequence[Point]) -> Iterator[Sample]:
    for point in points:
        for call in point.calls:
            if call.class_path == class_path:
                values, _ = resolve_all(parameters, call, point.values, point.config)
                # A module that runs by itself has sizes that no parameter names: they count as variables here.
                yield (
                    {**values, **{n: v for n, v in point.values.items() if n not in values}},
                    {name: tuple(tensor.shape) for name, tensor in input_tensors(call)},
                )


def _size(seen: Sequence[tuple[Mapping[str, int], int]]) -> str | None:
    first = seen[0][1]
    if all(size == first for _, size in seen):
        return str(first)
    for name in seen[0][0]:
        if all(values.get(name) == size for values, size in seen):
            return f"{{{name}}}"
    if all(values.get("seq_len", 0) + values.get("cache_len", 0) == size for values, size in seen):
        return "{seq_len} + {cache_len}"
    return None
