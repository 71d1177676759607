"""Which operands of each kernel are divided, one kernel after the other, from a choice of divided products.

A product whose input is whole may divide its outputs (by columns). What follows works on divided tensors, until a
product sums over the divided axis (by rows): each GPU then has a part of the sum, and a collective adds the parts
before the first kernel that is not linear in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lmp.predict.shard.layout import Layout, Shape, placed
from lmp.predict.shard.state import MOVES, Conflict, KernelCut, State
from lmp.predict.shard.steps import step


class Flow(State):
    """One pass over the kernels, in their order. Raises Conflict for a choice that does not work out."""

    def run(self) -> None:
        for one in range(len(self.graph.kernels)):
            self._step(one)
        # What a layer gives to the next one is whole.
        for one in range(len(self.graph.kernels)):
            for maker in self.graph.makers(one):
                layout = self.layout_of(maker) if maker >= one else None
                if layout is not None and layout.partial:
                    self._reduce(maker)
                    self.changed = True
                elif layout is not None and not self._carries(one, maker):
                    raise Conflict([layout.group], one, "the next layer starts with a whole tensor")

    # -- one kernel --------------------------------------------------------------------------------------------------

    def _carries(self, one: int, maker: int) -> bool:
        """Whether a loop inside a layer hands on a divided tensor to a kernel that is divided."""
        paths = self.graph.kernels[one].path, self.graph.kernels[maker].path
        return one in self.cuts and paths[0] == paths[1]

    def _step(self, one: int) -> None:
        if not self.graph.inputs(one):
            self._follow(one)
            return
        makers = self.makers(one)
        layouts = [None if maker is None else self.layout_of(maker) for maker in makers]
        if any(layout is not None and layout.partial for layout in layouts):
            if self._keeps_parts(one, makers, layouts):
                return
            for maker, layout in zip(makers, layouts, strict=True):
                if maker is not None and layout is not None and layout.partial:
                    self._reduce(maker)
            layouts = [None if layout is None or layout.partial else layout for layout in layouts]
        inputs = self.graph.inputs(one)
        divided: list[tuple[int, int, int] | None] = []
        for operand, layout in zip(self.shapes(inputs), layouts, strict=True):
            place = None if layout is None else placed(layout, operand)
            if layout is not None and place is None:
                raise Conflict([layout.group], one, f"{self.graph.operator(one)} has no place that is divided")
            if layout is not None and place is not None:
                if not self._folds(one, layout, operand, place[0]):
                    self.groups.split(layout, operand, place[1])
                divided.append((*place, self.groups.root(layout.group)))
            else:
                divided.append(None)
        expanded = frozenset(
            i for i, maker in enumerate(makers)
            if maker is not None and math.prod(self.output_shape(maker)) < math.prod(self.shapes(inputs)[i])
        )  # fmt: skip
        step(self, one, makers, divided, expanded)

    def _folds(self, one: int, layout: Layout, shape: Shape, axis: int) -> bool:
        """Whether attention has the queries of one KV head behind each other: they are divided too."""
        attends = self.graph.kernels[one].category == "attention" and axis + 1 < len(shape)
        return attends and shape[axis] < layout.extent == shape[axis] * shape[axis + 1]

    def _follow(self, one: int) -> None:
        """A kernel of unknown operands: as its input."""
        makers = self.graph.makers(one)
        layout = self.layout_of(makers[0]) if len(makers) == 1 and makers[0] < one else None
        if layout is not None:
            self.layouts[one] = (layout,)
            if not layout.partial:
                self.cuts[one] = KernelCut((), (), (), layout.group)
            else:
                self._used_partial.add(makers[0])

    def _reduce(self, maker: int) -> None:
        self.choice.reduced.add(maker)
        self.changed |= maker in self._used_partial

    def _widens(self, one: int) -> bool:
        """Whether its output has more bytes: what is added is smaller before it."""
        operands = self.graph.kernels[one].operands
        assert operands is not None
        return self.graph.bytes_of(operands.outputs[0]) > self.graph.bytes_of(operands.inputs[0])

    def _keeps_parts(self, one: int, makers: Sequence[int | None], layouts: Sequence[Layout | None]) -> bool:
        """Whether it is linear in the parts of a sum: its output is parts of a sum too."""
        operator, inputs = self.graph.operator(one), self.graph.inputs(one)
        parts = [i for i, layout in enumerate(layouts) if layout is not None and layout.partial]
        others = [
            i for i, operand in enumerate(inputs)
            if i not in parts and operand.role != "index" and not (operand.role == "weight" and operator == "mul")
        ]  # fmt: skip
        whole = [layouts[i] is None for i in others]
        if operator == "_to_copy" and self._widens(one):
            linear = False
        elif operator in MOVES:
            linear = all(self.made_of_weights(makers[i]) for i in others)
        elif operator in ("mul", "div"):
            linear = len(parts) == 1 and all(whole) and (operator == "mul" or parts == [0])
        elif operator in ("add", "sub"):
            known = [makers[i] is not None or inputs[i].role == "weight" for i in others]
            linear = len(inputs) > 1 and all(self.made_of_weights(makers[i]) for i in others) and all(whole + known)
        else:
            linear = False
        if not linear:
            return False
        operands = self.graph.kernels[one].operands
        assert operands is not None
        group = next(layout.group for layout in layouts if layout is not None and layout.partial)
        self.layouts[one] = tuple(Layout(shape, None, 0, group) for shape in self.shapes(operands.outputs))
        self._used_partial.update(maker for i, maker in enumerate(makers) if i in parts and maker is not None)
        return True
