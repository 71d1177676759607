"""The kernels that run, with the edges between them, and what a group of them reads and writes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from lmp.formula import Number, read_number
from lmp.link.records import EvaluatedKernel
from lmp.records import MATMUL_CATEGORIES, Operand

Source = int | str
"""Index of the kernel that made an input; or the text of what no kernel made, as ``cache``."""


def runs(kernel: EvaluatedKernel) -> bool:
    """Whether it starts a kernel: views and calls of functions have no cost."""
    return kernel.repeat > 0 and any(read_number(cost) for cost in (kernel.flops, kernel.read, kernel.write))


@dataclass(frozen=True)
class Graph:
    """Kernels that run. Edges pass through those that do not."""

    every: Sequence[EvaluatedKernel]
    values: Mapping[str, Number]
    """Of the variables at this point, element sizes included."""
    producers: list[tuple[Source, ...]] = field(init=False, default_factory=list)
    consumers: dict[int, list[int]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        all_of = {kernel.id: kernel for kernel in self.every if kernel.id is not None}
        index = {kernel.id: number for number, kernel in enumerate(self.kernels) if kernel.id is not None}

        def resolved(names: Sequence[str], seen: set[str]) -> Iterator[Source]:
            for name in names:
                if name in index:
                    yield index[name]
                elif name not in all_of:
                    yield name
                elif name not in seen:
                    seen.add(name)
                    yield from resolved(all_of[name].inputs_from, seen)

        for number, kernel in enumerate(self.kernels):
            self.producers.append(tuple(dict.fromkeys(resolved(kernel.inputs_from, set()))))
            for source in self.producers[number]:
                if isinstance(source, int):
                    self.consumers[source].append(number)

    @cached_property
    def kernels(self) -> list[EvaluatedKernel]:
        return [kernel for kernel in self.every if runs(kernel)]

    def operator(self, one: int) -> str:
        """ATen's name; empty if the operands are not known."""
        operands = self.kernels[one].operands
        return operands.operator if operands is not None else ""

    def inputs(self, one: int) -> list[Operand]:
        operands = self.kernels[one].operands
        return operands.inputs if operands is not None else []

    def makers(self, one: int) -> list[int]:
        """Kernels that made its inputs."""
        return [source for source in self.producers[one] if isinstance(source, int)]

    def is_product(self, one: int) -> bool:
        return self.kernels[one].category in MATMUL_CATEGORIES

    def has_role(self, one: int, role: str) -> bool:
        return any(operand.role == role for operand in self.inputs(one))

    def weights_only(self, one: int, seen: frozenset[int] = frozenset()) -> bool:
        """Whether it depends on weights alone, as ``1 + weight``."""
        makers = self.makers(one)
        if one in seen or len(makers) < len(self.producers[one]) or not self.inputs(one):
            return False
        if not makers:
            return all(operand.role == "weight" for operand in self.inputs(one))
        return all(self.weights_only(maker, seen | {one}) for maker in makers)

    @cached_property
    def positions(self) -> frozenset[int]:
        """Kernels that are made of positions alone: no input, no weight, no cache, no product is before them."""
        found = {one for one in range(len(self.kernels)) if not self.is_product(one) and not self._has_values(one)}
        while made := {one for one in found if not set(self.producers[one]) <= found}:
            found -= made
        return frozenset(found)

    @cached_property
    def of_no_token(self) -> frozenset[int]:
        """Kernels that no token changes: they are made of positions and weights alone."""
        found = {one for one in range(len(self.kernels)) if self.producers[one] or self._is_given(one)}
        while made := {one for one in found if not set(self.producers[one]) <= found}:
            found -= made
        return frozenset(found)

    def _is_given(self, one: int) -> bool:
        """Whether it reads nothing but weights."""
        known = self.kernels[one].operands is not None
        return known and all(operand.role == "weight" for operand in self.inputs(one))

    def _has_values(self, one: int) -> bool:
        """Whether it reads a weight, the cache, or a tensor that no kernel made; or what it reads is not known."""
        given = not self.producers[one] and (bool(self.inputs(one)) or self.kernels[one].operands is None)
        return given or self.has_role(one, "weight") or self.has_role(one, "cache")

    def appends(self, one: int) -> list[Operand]:
        """The new tokens, if it puts them behind the cache, which may be empty."""
        inputs, sources = self.inputs(one), self.producers[one]
        if self.operator(one) != "cat":
            return []
        if "cache" in sources:
            cached = any(operand.role == "cache" or 0 in operand.shape for operand in inputs)
            return [o for o in inputs if o.role == "activation" and 0 not in o.shape] if cached else []
        # A cache of a class's own is no known input: it is larger than all that the only maker made.
        made = [source for source in sources if isinstance(source, int)]
        if len(inputs) != 2 or len(sources) != 1 or not made or any(operand.role != "activation" for operand in inputs):
            return []
        new, cache = sorted(inputs, key=self.bytes_of)
        differing = sum(a != b for a, b in zip(new.shape, cache.shape, strict=False))
        return [new] if differing == 1 and self.bytes_of(cache) > self._output(made[0]) else []

    def closure(
        self, start: Collection[int], step: Callable[[int], Collection[int]], kept: Callable[[int], bool]
    ) -> set[int]:
        """The start, and all kernels that are reached from it over kernels that are kept."""
        found, pending = set(start), list(start)
        while pending:
            new = [one for one in step(pending.pop()) if one not in found and kept(one)]
            found.update(new)
            pending.extend(new)
        return found

    def both_ways(self, one: int) -> list[int]:
        return [*self.makers(one), *self.consumers[one]]

    # -- bytes -------------------------------------------------------------------------------------------------------

    def bytes_of(self, operand: Operand) -> Fraction:
        """Bytes of an operand with its elements' size."""
        width = operand.width if isinstance(operand.width, int) else self.values[f"{operand.width}_bytes"]
        return math.prod(map(int, operand.shape)) * Fraction(width)

    def traffic(self, members: Collection[int]) -> tuple[int, int]:
        """Bytes that one kernel in place of the members reads and writes: what is made and used inside stays there.

        An operand belongs to the producer whose output has its size. Parts of one output count once. Of a weight it
        reads what the members read, which of a table are some rows.
        """
        made: dict[int, Fraction] = defaultdict(Fraction)
        read = Fraction(0)
        for one in sorted(members):
            weights = self._weights_read(one)
            rest = Fraction(read_number(self.kernels[one].read)) - weights
            given = Fraction(0)
            for operand, source in self._assigned(one, members):
                size = self.bytes_of(operand)
                if source is None:
                    given += size
                    continue
                rest -= size
                if source not in members:
                    made[source] += size
            # An operand that no kernel made is read as far as the kernel reads more than the others: a buffer is not.
            read += weights + max(min(given, rest), Fraction(0))
        read += sum((min(size, self._output(source)) for source, size in made.items()), Fraction(0))
        most = sum((Fraction(read_number(self.kernels[one].read)) for one in members), Fraction(0))
        leaving = [self.kernels[one].write for one in members if self._leaves(one, members)]
        written = sum((Fraction(read_number(write)) for write in leaving), Fraction(0))
        return math.ceil(min(read, most)), math.ceil(written)

    def _weights_read(self, one: int) -> Fraction:
        """Bytes of weights that a kernel reads: all that it reads beside its other operands."""
        if not self.has_role(one, "weight"):
            return Fraction(0)
        others = (self.bytes_of(operand) for operand in self.inputs(one) if operand.role != "weight")
        return max(Fraction(read_number(self.kernels[one].read)) - sum(others, Fraction(0)), Fraction(0))

    def _leaves(self, one: int, members: Collection[int]) -> bool:
        """Whether its output is used by another kernel, or by none, which is the model's output."""
        return not self.consumers[one] or any(user not in members for user in self.consumers[one])

    def _output(self, one: int) -> Fraction:
        operands = self.kernels[one].operands
        if operands is None:
            return Fraction(read_number(self.kernels[one].write))
        return sum((self.bytes_of(output) for output in operands.outputs), Fraction(0))

    def _assigned(self, one: int, members: Collection[int]) -> Iterator[tuple[Operand, int | None]]:
        """Each operand that is no weight with the kernel that made it, as far as sizes tell.

        Of two with the same size, a layer's first input among them, one inside is meant.
        """
        free = self.makers(one)
        inputs = [operand for operand in self.inputs(one) if operand.role != "weight"]
        for operand in sorted(inputs, key=lambda operand: -self.bytes_of(operand)):
            size = self.bytes_of(operand)
            fitting = [maker for maker in free if self._output(maker) >= size]
            maker = min(fitting, key=lambda m: (self._output(m), m not in members), default=None)
            if maker is not None:
                free.remove(maker)
            yield operand, maker
