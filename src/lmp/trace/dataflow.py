"""Def-use edges of one module call: which operators and module calls made the inputs of each other one.

Tensors are followed by their memory, so through views. A source is a kernel's key, with the number of the output for a
module call; or the name of an input of the module; or the KV cache as it was before the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from lmp.trace.observe import Key, Observation, input_tensors
from lmp.trace.recording import Executed, Recording
from lmp.trace.rules import Tensor
from lmp.workload.calls import Call
from lmp.workload.results import tensors_in

ItemKey = tuple[Key, int]

CACHE = "cache"
"""The source of tensors that the KV cache held before the call."""


@dataclass(frozen=True)
class Made:
    """A source inside the module: a kernel, and for a module call the number of its output."""

    key: ItemKey
    output: int | None = None


Source = Made | str
"""A kernel; ``inputs.NAME`` for an input of the module; or ``cache``."""


@dataclass
class Flow:
    """Def-use edges of a module, united over its runs."""

    inputs: dict[ItemKey, set[Source]] = field(default_factory=dict)
    """Kernel -> the sources of its inputs."""
    arguments: dict[ItemKey, dict[str, set[Source]]] = field(default_factory=dict)
    """Module call -> argument -> its sources."""
    outputs: list[set[Source]] = field(default_factory=list)
    """Sources of each output of the module."""

    def add(self, recording: Recording, observation: Observation, referred: Callable[[Call], bool]) -> None:
        """Add the edges of one run. ``referred``: true for calls that are references, not inlined."""
        _Run(self, recording, observation, referred).add()


@dataclass
class _Run:
    flow: Flow
    recording: Recording
    observation: Observation
    referred: Callable[[Call], bool]
    makers: dict[int, set[int | str]] = field(default_factory=dict)
    """Storage -> orders of the operators and module calls that wrote it last, or the name of an input."""
    leaves: dict[int, dict[int, int]] = field(default_factory=dict)
    """Order of a module call -> storage -> number of the output in it."""

    def add(self) -> None:
        call = self.observation.call
        for name, tensor in input_tensors(call):
            self.makers.setdefault(self._storage(tensor), {f"inputs.{name}"})
        events: list[tuple[int, Executed | Call]] = [(e.order, e) for e in self.recording.below(call)]
        events += [(self.recording.orders[c.index], c) for c in self._called(call)]
        for order, event in sorted(events, key=lambda event: event[0]):
            if isinstance(event, Executed):
                self._operator(event, call)
            else:
                self._call(event, order)
        for index, tensor in enumerate(tensors_in(call.output)):
            if index == len(self.flow.outputs):
                self.flow.outputs.append(set())
            self.flow.outputs[index] |= self._sources(self.recording.describe(tensor))

    def _called(self, call: Call) -> Iterable[Call]:
        for inner in self.recording.called_by(call):
            if self.referred(inner):
                yield inner
            else:
                yield from self._called(inner)

    def _call(self, call: Call, order: int) -> None:
        """The arguments of a module call, and where its outputs are."""
        self.leaves[order] = {self._storage(t): i for i, t in enumerate(tensors_in(call.output))}
        key = self.observation.orders.get(order)
        if key is None:
            return
        arguments = self.flow.arguments.setdefault(key, {})
        for name, tensor in input_tensors(call):
            arguments.setdefault(name, set()).update(self._sources(self.recording.describe(tensor)))

    def _operator(self, executed: Executed, call: Call) -> None:
        order = self._owner(executed, call)
        key = self.observation.orders.get(order)
        operator = executed.operator
        if key is not None and order == executed.order:
            inputs = self.flow.inputs.setdefault(key, set())
            for tensor in operator.inputs:
                inputs |= self._sources(tensor)
        for tensor in operator.outputs:
            # An operator that writes in place may leave a part of what was there.
            before = self.makers.get(tensor.storage, set()) if operator.in_place else set()
            self.makers[tensor.storage] = {*before, order}

    def _owner(self, executed: Executed, call: Call) -> int:
        """Order of the operator, or of the outermost module call within ``call`` that is a reference around it."""
        inside = []
        for segment in executed.segments:
            if segment.call is call:
                break
            inside.append(segment.call)
        outermost = next((c for c in reversed(inside) if self.referred(c)), None)
        return executed.order if outermost is None else self.recording.orders[outermost.index]

    def _sources(self, tensor: Tensor) -> set[Source]:
        found: set[Source] = set()
        for order in self.makers.get(tensor.storage, ()):
            if isinstance(order, str):
                found.add(order)
            elif (key := self.observation.orders.get(order)) is not None:
                found.add(Made(key, self.leaves.get(order, {}).get(tensor.storage)))
        return found or ({CACHE} if tensor.cached else set())

    def _storage(self, tensor: torch.Tensor) -> int:
        return self.recording.describe(tensor).storage
