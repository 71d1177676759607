"""What is known of each tensor during one pass over the kernels: where it is divided, and what made it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lmp.predict.rewrite.graph import Graph
from lmp.predict.shard.layout import Groups, Layout, Shape
from lmp.records import Operand

LAST = frozenset({"_softmax", "_log_softmax", "softmax", "topk", "sort", "argsort", "cumsum", "argmax",
                  "native_layer_norm", "_fused_rms_norm", "native_group_norm"})  # fmt: skip
"""Operators that mix the places of the last axis."""
SUMS = frozenset({"sum", "mean"})
MOVES = frozenset({"_to_copy", "clone", "copy", "copy_", "neg", "index", "gather", "index_select", "cat", "stack",
                   "sum", "mean", "index_add", "scatter_add", "expand", "constant_pad_nd"})  # fmt: skip
"""Operators that are linear in what they read."""
LOOKUPS = frozenset({"index", "gather", "index_select"})
Cut = tuple[int, int]
"""An operand's divided axis and its group."""


@dataclass(frozen=True)
class KernelCut:
    """How the operands of one kernel are divided. None: whole."""

    names: tuple[str, ...]
    """Of the inputs."""
    inputs: tuple[Cut | None, ...]
    outputs: tuple[Cut | None, ...]
    group: int
    """The group that tells in how many parts its work is."""
    shared: frozenset[str] = frozenset()
    """Inputs that are whole, and of which every GPU reads all elements for its places."""

    def of(self, name: str) -> Cut | None:
        """Of one input."""
        return next((cut for own, cut in zip(self.names, self.inputs, strict=True) if own == name), None)


class Conflict(Exception):
    """A kernel cannot go on with a divided operand: the products of these groups have to stay whole."""

    def __init__(self, groups: Sequence[int], kernel: int, reason: str) -> None:
        super().__init__(reason)
        self.groups, self.kernel, self.reason = groups, kernel, reason


@dataclass
class Choice:
    """What is decided before a pass."""

    whole: dict[int, str] = field(default_factory=dict)
    """Products that are not divided by columns, and why."""
    vocabulary: int | None = None
    """Rows of embeddings that are divided."""
    sliced: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Look-ups of weights that a divided kernel adds -> its axis and places."""
    reduced: set[int] = field(default_factory=set)
    """Kernels whose parts of a sum are added behind them."""


class State:
    """What one pass over the kernels knows so far; ``changed`` if a decision came after it was needed."""

    def __init__(self, graph: Graph, choice: Choice) -> None:
        self.graph, self.choice = graph, choice
        self.groups = Groups()
        self.cuts: dict[int, KernelCut] = {}
        self.layouts: dict[int, tuple[Layout | None, ...]] = {}
        self.changed = False
        self.columns: set[int] = set()
        """Products that are divided by columns."""
        self.rows: set[int] = set()
        self.lookups: set[int] = set()
        """Embeddings whose rows are divided."""
        self._used_partial: set[int] = set()

    # -- what the operands are ---------------------------------------------------------------------------------------

    def shapes(self, operands: Sequence[Operand]) -> list[Shape]:
        return [tuple(int(size) for size in operand.shape) for operand in operands]

    def layout_of(self, maker: int) -> Layout | None:
        """Of its first output. A sum that is reduced behind the kernel is whole."""
        found = self.layouts.get(maker, (None,))
        first = found[0] if found else None
        if first is not None and first.partial and maker in self.choice.reduced:
            return None
        return first

    def output_shape(self, maker: int) -> Shape:
        layout = (self.layouts.get(maker) or (None,))[0]
        if layout is not None:
            return layout.shape
        operands = self.graph.kernels[maker].operands
        return self.shapes(operands.outputs)[0] if operands is not None and operands.outputs else ()

    def _likeness(self, one: int, maker: int, operand: Operand, shape: Shape) -> float:
        """How much an operand is like what a kernel made; 0 if it is something else."""
        made = self.graph.kernels[maker].operands
        if operand.role == "weight" or made is None or not made.outputs:
            return 0
        likeness = _likeness(self.output_shape(maker), shape)
        own, its = made.outputs[0].width, operand.width
        if isinstance(own, int) and isinstance(its, int) and own != its:
            # Pairs of numbers as one complex number.
            return 4 * (math.prod(self.output_shape(maker)) * own == math.prod(shape) * its)
        # A part of the cache as it was before is no part of the new tokens.
        joins = self.graph.operator(one) == "cat" and "cache" in self.graph.producers[one]
        kept = joins and operand.role == "cache" and likeness < 4
        return likeness if _width(made.outputs[0]) == _width(operand) and not kept else 0

    def makers(self, one: int) -> list[int | None]:
        """The kernel that made each input, as far as shapes tell; one that reads no other is taken first."""
        inputs = self.graph.inputs(one)
        shapes = self.shapes(inputs)
        free = [maker for maker in self.graph.makers(one) if maker < one]
        found: list[int | None] = [None] * len(inputs)
        # Where another point has a copy between, the edges name what was copied too.
        copied = {maker for other in free for maker in self.graph.makers(other)}
        pairs = sorted(
            (-likeness, maker in copied, self.layout_of(maker) is None, inputs[i].role == "cache", i, n)
            for n, maker in enumerate(free)
            for i, shape in enumerate(shapes)
            if (likeness := self._likeness(one, maker, inputs[i], shape))
        )
        only = all(isinstance(source, int) for source in self.graph.producers[one])
        used: set[int] = set()
        for *_, i, n in pairs:
            if found[i] is None and n not in used:
                found[i] = free[n]
                used.add(n)
        for likeness, *_, i, n in pairs:
            # Another operand of the same kernel: the same, a view, or the other part of it.
            beside = any(found[j] == free[n] and shapes[j] == shapes[i] for j in range(len(shapes)))
            if found[i] is None and (beside or -likeness >= 4) and only:
                found[i] = free[n]
        self._refuse_lost(one, free, found)
        return found

    def _refuse_lost(self, one: int, free: Sequence[int], found: Sequence[int | None]) -> None:
        """Raise Conflict if no operand is told to be a divided tensor that the kernel may read."""
        known = [layout for maker in found if maker is not None and (layout := self.layout_of(maker)) is not None]
        for maker in free:
            layout = self.layout_of(maker)
            if layout is None or layout.partial or maker in found:
                continue
            instead = next((o for o in known if o.axis == layout.axis and o.shape == layout.shape), None)
            if instead is not None:
                # One of the two is read, which depends on the layer.
                self.groups.join(instead.group, layout.group)
            elif not known:
                raise Conflict([layout.group], one, "one of its operands cannot be told from the others")

    def made_of_weights(self, maker: int | None) -> bool:
        """Whether it looks up rows of weights, or has no values of the input in it."""
        if maker is None:
            return True
        looks_up = self.graph.operator(maker) in LOOKUPS and self.graph.has_role(maker, "weight")
        constant = self.graph.weights_only(maker) or maker in self.graph.positions
        return looks_up or constant or self.graph.kernels[maker].category == "factory"

    def slice_of(self, maker: int, axis: int, extent: int) -> None:
        """A look-up of weights: of the places that this GPU has, from the next pass on."""
        if maker not in self.choice.sliced:
            self.choice.sliced[maker] = (axis, extent)
            self.changed = True


def _width(operand: Operand) -> str | int:
    """Bytes of an element; of the cache as of activations."""
    return "a" if operand.width == "kv" else operand.width


def _likeness(made: Shape, shape: Shape) -> float:
    """How much an operand is like an output: the same, a view, repeated, or a part, the larger the more."""
    if not made:
        return 0
    if made == shape:
        return 5
    have, want = math.prod(made), math.prod(shape)
    if have == want:
        return 4
    if want < have:
        return 1 + want / have if want else 0
    if _repeats(made, shape):
        return 3
    return 2 if want % have == 0 and want // have in shape else 0


def _repeats(made: Shape, shape: Shape) -> bool:
    """Whether a tensor repeated along some axes has this shape, maybe with one axis more."""
    if len(shape) == len(made) + 1:
        return any(shape[:i] + shape[i + 1 :] == made for i in range(len(shape)))
    pairs = zip(made[::-1], shape[::-1], strict=False)
    return len(made) <= len(shape) and all(a in (1, b) for a, b in pairs)
