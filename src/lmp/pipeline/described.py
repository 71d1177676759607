"""What running a class shows of it, for prompts: how it is called at the verification points, and which lines ran.

Nothing that is counted goes into it. Imports torch: only when a class is executed.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from lmp.agents.facts import CallAt, Executed, Located
from lmp.source.lines import FunctionSource, called_functions, enclosing_function
from lmp.source.quoting import escaped
from lmp.trace.coverage import Watching
from lmp.verify.counter import Counter
from lmp.verify.resolve import bound_inputs
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call, package_dir
from lmp.workload.configs import text_part
from lmp.workload.load import quiet_warnings

if TYPE_CHECKING:
    from lmp.pipeline.making import Making
    from lmp.source.trees import Tree, Trees

Line = tuple[str, int]

MOST_CALLS, MOST_INSTANCES = 40, 4
_PLAIN = (int, float, bool, str, type(None))
_MACHINERY: CodeType = torch.nn.Module._call_impl.__code__


def executed(making: Making) -> Executed:
    """Run the class at the verification points. Raises TraceFailed where it cannot be executed."""
    with quiet_warnings():
        return _Watching(making).watched()


def plain_config(making: Making) -> dict[str, Any]:
    """The plain values of the config that the class is executed at; empty for a class that takes none."""
    config = getattr(making.workload, "config", None)
    if config is None:
        return {}
    part, _ = text_part(config)
    own = {name: value for name, value in vars(part).items() if not name.startswith("_")}
    for standard, name in (getattr(part, "attribute_map", None) or {}).items():
        own.setdefault(standard, own.get(name))
    own["_attn_implementation"] = getattr(part, "_attn_implementation", None) or getattr(
        making.workload, "attention", None
    )
    return {name: value for name, value in own.items() if isinstance(value, (*_PLAIN, list, tuple, dict))}


class _Watching:
    """Runs the points one by one, and collects what is to be told."""

    def __init__(self, making: Making) -> None:
        self.making, self.class_path = making, making.source.class_path
        self.ran: dict[Line, set[int]] = {}
        self.led: dict[Line, None] = {}
        """Files and lines that led from the class to an operator."""
        self.calling: dict[tuple[Line, Line], None] = {}
        """Where a function was called, and where it stands."""
        self.calls: list[CallAt] = []
        self.instances: dict[int, tuple[str, ...]] = {}
        self.called: dict[str, None] = {}

    def watched(self) -> Executed:
        workload, own = self.making.workload, self.making.workload.hints
        for number, (label, values) in enumerate(self.making._labelled, 1):
            module = workload.build(values)
            counter = Counter(module, workload.dtype)
            with _Lines(self.class_path, counter) as lines:
                workload.run(module, values, counter)
            self.calling.update(lines.calling)
            for line in lines.ran:
                self.ran.setdefault(line, set()).add(number)
            calls = [call for call in counter.calls if call.class_path == self.class_path]
            changed = {n: v for n, v in values.items() if n not in RUNTIME and own.get(n) != v}
            self._tell(number, label, values, changed, calls)
            self._follow(counter, calls)
            if not changed:
                self.instances |= {id(call.module): tuple(described_module(call.module)) for call in calls}
        functions = tuple(self._functions())
        return Executed(
            tuple(self.calls[:MOST_CALLS]),
            tuple(_differing(list(self.instances.values()))),
            dict(self._located()),
            len({call.number for call in self.calls}),
            functions,
            tuple(self.called),
            tuple(self._asked(functions)),
        )

    def _tell(
        self, number: int, label: str, values: Mapping[str, int], changed: Mapping[str, int], calls: list[Call]
    ) -> None:
        runtime = ", ".join(f"{name}={values[name]}" for name in RUNTIME if name in values)
        point = f"{label}: {runtime}" if label else runtime
        paths = {name: variable.path for name, variable in self.making.workload.variables.items()}
        shown = {paths.get(name, name): value for name, value in changed.items()}
        alike = Tally(tuple(described_inputs(call)) for call in calls)
        self.calls += [CallAt(number, point, shown, inputs, times) for inputs, times in alike.items()]

    def _follow(self, counter: Counter, calls: list[Call]) -> None:
        own = {id(call) for call in calls}
        for call in counter.calls:
            if call.parent is not None and id(call.parent) in own:
                self.called[call.class_path] = None
        segments = [segment for count in counter.counts for segment in count.segments]
        segments += [call.site for call in counter.calls if call.site is not None]
        for segment in segments:
            if id(segment.call) in own:
                self.led.update(dict.fromkeys((place.file, place.line) for place in segment.chain))

    def _located(self) -> Iterator[tuple[Located, frozenset[int]]]:
        return (((self.making.file_of(file), line), frozenset(at)) for (file, line), at in self.ran.items())

    def _functions(self) -> Iterator[FunctionSource]:
        """Functions that led to an operator or a module, and those that forward() names and that ran."""
        source, trees = self.making.source, self.making.session.trees
        seen = {(self.making.file_of(str(source.forward_path)), source.lines)}
        led = [function for file, line in self.led if (function := self._function(file, line)) is not None]
        ran = {line for line, _ in self._located()}
        for function in [*led, *(f for f in called_functions(source, trees) if _any_ran(f, ran))]:
            key = (function.file, function.lines)
            if key not in seen:
                seen.add(key)
                yield function

    def _asked(self, functions: Sequence[FunctionSource]) -> Iterator[FunctionSource]:
        """Functions that forward() or one of the given ones called, and that are none of them."""
        source = self.making.source
        quoted = {(source.forward_file, source.lines), *((f.file, f.lines) for f in functions)}
        seen = set(quoted)
        for (file, line), (called_file, called_line) in self.calling:
            where = self.making.file_of(file)
            if not any(where == name and first <= line <= last for name, (first, last) in quoted):
                continue
            function = self._function(called_file, called_line)
            if function is not None and (function.file, function.lines) not in seen:
                seen.add((function.file, function.lines))
                yield function

    def _function(self, file: str, line: int) -> FunctionSource | None:
        located = _in_tree(self.making.file_of(file), self.making.session.trees)
        if located is None:
            return None
        tree, path = located
        function = enclosing_function(path, line)
        return None if function is None else replace(function, tree=tree, file=tree.relative(path))


def _any_ran(function: FunctionSource, ran: set[Located]) -> bool:
    first, last = function.lines
    return any((function.file, line) in ran for line in range(first + 1, last + 1))


def _in_tree(file: str, trees: Trees) -> tuple[Tree, Path] | None:
    found = ((tree, tree.root / file) for tree in trees)
    return next(((t, p) for t, p in found if p.is_file() and p.is_relative_to(t.package_dir)), None)


class _Lines(Watching):
    """Collects the lines that run as the class's own work: in its forward() and below it, not in modules it calls."""

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


# --- in words --------------------------------------------------------------------------------------------------------


def described_inputs(call: Call) -> Iterator[str]:
    """Each argument of the call's forward(), by name; a tuple's parts by their index."""
    for name, value in bound_inputs(call).items():
        yield from _described(name, value)


def _described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, (tuple, list)) and value and not isinstance(value, torch.Size):
        for index, part in enumerate(value):
            yield from _described(f"{name}[{index}]", part)
    elif isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _described(f"{name}[{key!r}]", part)
    elif isinstance(value, torch.Tensor):
        yield f"{name}: {_tensor(value)}"
    elif hasattr(value, "get_seq_length"):
        yield f"{name}: a KV cache ({type(value).__name__}) that holds cache_len tokens"
    else:
        shown = repr(value) if isinstance(value, (*_PLAIN, torch.dtype, torch.device)) else f"a {type(value).__name__}"
        yield escaped(f"{name}: {shown}")


def _tensor(value: torch.Tensor) -> str:
    strides = "" if value.is_contiguous() else f", strides {list(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}{strides}"


def described_module(module: torch.nn.Module) -> Iterator[str]:
    """What ``self`` holds, one line each."""
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "training" and isinstance(value, (*_PLAIN, torch.dtype)):
            yield escaped(f"self.{name} = {value!r}")
    for kind, held in (("parameter", module._parameters), ("buffer", module._buffers)):
        for name, tensor in held.items():
            yield f"self.{name}: {'None' if tensor is None else f'{kind}, {_tensor(tensor)}'}"
    for name, child in module.named_children():
        cls = type(child)
        yield escaped(f"self.{name}: {cls.__module__}.{cls.__qualname__}({', '.join(_arguments(child))})")


def _arguments(module: torch.nn.Module) -> Iterator[str]:
    for name, value in constructor_arguments(module).items():
        shown = repr(value) if isinstance(value, (*_PLAIN, tuple)) else f"a {type(value).__name__}"
        if value is not None and name not in ("device", "dtype"):
            yield f"{name}={shown}"


def _differing(instances: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The first instance, and of the others what they say otherwise."""
    distinct = list(dict.fromkeys(instances))
    if not distinct:
        return
    first, *others = distinct
    yield from first
    for other in others[: MOST_INSTANCES - 1]:
        lines = [line for line in other if line not in first]
        yield f"another instance: {'; '.join(lines) or 'holds less'}"
    if len(others) >= MOST_INSTANCES:
        yield f"{len(others) - MOST_INSTANCES + 1} more instances differ"
