"""What each kind of kernel does with divided operands, and where products begin and end a division."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lmp.predict.shard.layout import Layout, Shape
from lmp.predict.shard.state import LAST, LOOKUPS, MOVES, SUMS, Conflict, Cut, KernelCut, State
from lmp.records import Operands

Divided = Sequence[tuple[int, int, int] | None]
"""Of each input: axis, places, group."""
PRODUCT_LETTERS = {2: ("mk", "kn", "mn"), 3: ("bmk", "bkn", "bmn")}


class Step:
    """One kernel with what its inputs are."""

    def __init__(
        self, flow: State, one: int, makers: Sequence[int | None], divided: Divided, expanded: frozenset[int]
    ) -> None:
        operands = flow.graph.kernels[one].operands
        assert operands is not None
        self.flow, self.one, self.makers, self.divided, self.expanded = flow, one, makers, divided, expanded
        self.operands: Operands = operands
        self.inputs: list[Shape] = flow.shapes(operands.inputs)
        self.outputs: list[Shape] = flow.shapes(operands.outputs)
        self.roles = [operand.role for operand in operands.inputs]
        self.which = [i for i, place in enumerate(divided) if place is not None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(operand.name for operand in self.operands.inputs)

    @property
    def shared(self) -> frozenset[str]:
        """Repeated inputs that are whole."""
        return frozenset(self.names[i] for i in self.expanded if self.divided[i] is None)

    @property
    def groups(self) -> list[int]:
        return [place[2] for place in self.divided if place is not None]

    def conflict(self, reason: str) -> Conflict:
        return Conflict(self.groups, self.one, reason)

    def joined(self) -> int:
        first, *rest = self.groups
        for other in rest:
            first = self.flow.groups.join(first, other)
        return first

    def done(self, cuts: Sequence[Cut | None], outputs: Sequence[tuple[int, int] | None], group: int) -> None:
        """The outputs are divided at (axis, places); None: whole."""
        found = tuple(
            None if place is None else Layout(shape, place[0], place[1], group)
            for place, shape in zip(outputs, self.outputs, strict=True)
        )
        self.flow.layouts[self.one] = found
        out = tuple(None if place is None else (place[0], group) for place in outputs)
        self.flow.cuts[self.one] = KernelCut(self.names, tuple(cuts), out, group, self.shared)

    def parts(self, cuts: Sequence[Cut | None], group: int) -> None:
        """Each GPU has a part of the sum that the outputs are."""
        self.flow.layouts[self.one] = tuple(Layout(shape, None, 0, group) for shape in self.outputs)
        whole = tuple(None for _ in self.outputs)
        self.flow.cuts[self.one] = KernelCut(self.names, tuple(cuts), whole, group, self.shared)


def step(flow: State, one: int, makers: Sequence[int | None], divided: Divided, expanded: frozenset[int]) -> None:
    """The layouts of the outputs of one kernel. Raises Conflict if it cannot go on with its divided inputs."""
    found = Step(flow, one, makers, divided, expanded)
    category = flow.graph.kernels[one].category
    if category == "convolution":
        if found.which:
            _convolution(found)
    elif found.operands.m is not None or found.operands.experts is not None:
        _product(found)
    elif category == "attention" and found.operands.heads is not None:
        if found.which:
            _attention(found)
    elif found.operands.operator == "embedding" and not found.which:
        _embedding(found)
    elif one in flow.choice.sliced and one not in flow.choice.whole and not found.which:
        _sliced(found)
    elif found.which:
        _pointwise(found)


# --- products --------------------------------------------------------------------------------------------------------


def _product(at: Step) -> None:
    """A product: columns, rows or batches of it are divided."""
    matrices = [i for i, shape in enumerate(at.inputs) if len(shape) > 1 and at.roles[i] != "index"]
    if len(matrices) < 2:
        if at.which:
            raise at.conflict("a product of unknown operands")
        return
    left, right = matrices[-2:]
    wide = len(at.inputs[right]) == 3
    letters = {left: PRODUCT_LETTERS[len(at.inputs[left])][0], right: PRODUCT_LETTERS[3 if wide else 2][1]}
    out = PRODUCT_LETTERS[len(at.outputs[0])][2]
    names = {i: letters[i][at.divided[i][0]] for i in (left, right) if at.divided[i] is not None}  # type: ignore[index]
    if at.roles[right] == "weight" or at.roles[left] == "weight":
        _linear(at, left, right, letters, out, names)
        return
    if not names:
        return
    letter = next(iter(names.values()))
    if any(other != letter for other in names.values()) or (letter == "b" and "b" not in out):
        raise at.conflict("its two inputs are divided at different places")
    group = at.joined()
    cuts: list[Cut | None] = [None] * len(at.inputs)
    for i, text in letters.items():
        if letter in text:
            cuts[i] = (text.index(letter), group)
    if letter in out:
        places = next(place[1] for place in at.divided if place is not None)
        at.done(cuts, [(out.index(letter), places)], group)
    else:
        at.parts(cuts, group)


def _linear(at: Step, left: int, right: int, letters: dict[int, str], out: str, names: dict[int, str]) -> None:
    """A product with a weight: by rows where its input is divided at the summed axis, else by columns."""
    groups, one = at.flow.groups, at.one
    weight = right if at.roles[right] == "weight" else left
    experts = at.operands.experts is not None or len(at.inputs[weight]) == 3
    cuts: list[Cut | None] = [None] * len(at.inputs)
    if names:
        (letter,) = set(names.values())
        group = at.joined()
        if letter != "k":
            raise at.conflict("its rows are divided")
        if groups.normed[group] and not groups.heads[group]:
            raise at.conflict("a norm over the divided axis is before it")
        if experts != groups.experts[group]:
            raise at.conflict("a product of all experts")
        groups.contracted[group] = True
        for i, text in letters.items():
            cuts[i] = (text.index("k"), group)
        at.flow.rows.add(one)
        at.parts(cuts, group)
        return
    columns = at.inputs[weight][letters[weight].index("n")] if "n" in letters[weight] else 0
    if columns < 2 or one in at.flow.choice.whole or weight == left:
        return
    group = groups.new(columns, frozenset({one}), experts)
    cuts[weight] = (letters[weight].index("n"), group)
    for i, shape in enumerate(at.inputs):
        if i not in (left, right) and shape and shape[-1] == columns and at.roles[i] == "weight":
            cuts[i] = (len(shape) - 1, group)
    at.flow.columns.add(one)
    at.done(cuts, [(out.index("n"), columns)], group)


def _attention(at: Step) -> None:
    """By heads: each GPU has its queries, and the keys and values that they need."""
    groups, names = at.flow.groups, at.names
    heads = [len(shape) - 3 for shape in at.inputs]
    if any(place is not None and place[0] != heads[i] for i, place in enumerate(at.divided)):
        raise at.conflict("attention is divided at another axis than the heads")
    query = at.inputs[0][heads[0]]
    main: int | None = at.divided[0][2] if at.divided[0] is not None else None
    cuts: list[Cut | None] = [None] * len(at.inputs)
    # The queries of one KV head are behind each other.
    folded = main is not None and groups.units[groups.root(main)] == query * at.inputs[0][heads[0] + 1]
    for i, place in enumerate(at.divided):
        if place is None:
            continue
        if folded and i > 0:
            groups.repeats[groups.root(place[2])] = True
        elif place[1] == query and main is not None:
            main = groups.join(main, place[2])
        elif place[1] == query:
            main = place[2]
        elif names[i] in ("key", "value") and query % place[1] == 0:
            groups.repeats[groups.root(place[2])] = True
        else:
            raise at.conflict("heads of queries and keys do not go together")
    if main is None:
        raise at.conflict("queries are whole")
    main = groups.root(main)
    for i, place in enumerate(at.divided):
        if place is not None:
            cuts[i] = (heads[i], groups.root(place[2]))
        elif heads[i] >= 0 and at.inputs[i][heads[i]] == query:
            cuts[i] = (heads[i], main)
    at.done(cuts, [(len(at.outputs[0]) - 3, query), *(None for _ in at.outputs[1:])], main)
    if folded:
        *before, tokens, width = at.outputs[0]
        merged = (*before[:-1], query * tokens, width)
        own = Layout(merged, len(before) - 1, query * tokens, main)
        at.flow.layouts[at.one] = (own, *at.flow.layouts[at.one][1:])


def _convolution(at: Step) -> None:
    """By channels, where each channel has a filter of its own."""
    weight = next((i for i, role in enumerate(at.roles) if role == "weight" and len(at.inputs[i]) > 1), None)
    place = at.divided[at.which[0]]
    assert place is not None
    channels = at.inputs[at.which[0]][1]
    if place[0] != 1 or weight is None or at.inputs[weight][0] != channels or at.inputs[weight][1] != 1:
        raise at.conflict("a convolution over all channels")
    group = at.joined()
    cuts: list[Cut | None] = [None] * len(at.inputs)
    for i, shape in enumerate(at.inputs):
        if i in at.which:
            cuts[i] = (1, group)
        elif at.roles[i] == "weight" and shape and shape[0] == channels:
            cuts[i] = (0, group)
    at.done(cuts, [(1, place[1]) for _ in at.outputs], group)


# --- look-ups --------------------------------------------------------------------------------------------------------


def _embedding(at: Step) -> None:
    """Rows of the vocabulary: each GPU looks up the tokens that it has rows of; the others are zero."""
    table = at.inputs[0]
    if at.flow.choice.vocabulary != table[0] or at.one in at.flow.choice.whole:
        return
    group = at.flow.groups.new(table[0], frozenset({at.one}))
    at.flow.lookups.add(at.one)
    at.flow.choice.reduced.add(at.one)
    at.flow.layouts[at.one] = tuple(Layout(shape, None, 0, group) for shape in at.outputs)


def _sliced(at: Step) -> None:
    """A look-up of weights of which only some places are needed."""
    axis, extent = at.flow.choice.sliced[at.one]
    group = at.flow.groups.new(extent, frozenset({at.one}))
    from_right = len(at.outputs[0]) - axis
    cuts = [
        (len(shape) - from_right, group) if role != "index" and len(shape) >= from_right else None
        for shape, role in zip(at.inputs, at.roles, strict=True)
    ]
    at.done(cuts, [(axis, extent)], group)


# --- all other kernels -----------------------------------------------------------------------------------------------


def _pointwise(at: Step) -> None:
    """Kernels that work place by place; and sums and selections along an axis."""
    operator, first = at.operands.operator, at.which[0]
    axis, places, _ = at.divided[first]  # type: ignore[misc]
    shape = at.inputs[first]
    if operator in LAST and axis == len(shape) - 1:
        raise at.conflict(f"{operator} mixes the divided places")
    if operator in LOOKUPS and first != 0:
        raise at.conflict(f"{operator} by divided indices")
    if operator == "cat" and _concatenated(at) == axis:
        _side_by_side(at, axis)
        return
    if _is_reduction(at, axis):
        _over_the_divided_axis(at)
        return
    targets = [_target(shape, axis, out, operator) for out in at.outputs]
    if targets[0] is None:
        raise at.conflict(f"{operator} gives no place that is divided")
    from_right = len(at.outputs[0]) - targets[0]
    if any(_from_right(at, i) != from_right for i in at.which if len(at.inputs[i]) == len(shape)):
        raise at.conflict(f"inputs of {operator} are divided at different places")
    if any(at.divided[i][1] != places for i in at.which):  # type: ignore[index]
        raise at.conflict(f"inputs of {operator} have different places")
    size = shape[axis]
    cuts: list[Cut | None] = [None] * len(at.inputs)
    group = at.joined()
    for i, other in enumerate(at.inputs):
        place = len(other) - (len(shape) - axis)
        if at.divided[i] is not None:
            cuts[i] = (at.divided[i][0], group)  # type: ignore[index]
        elif place >= 0 and other[place] == size and at.roles[i] != "index" and operator not in LOOKUPS:
            _beside(at, i, place, places)
            cuts[i] = (place, group)
    stretched = _stretch(at, first, axis, places)
    if stretched is not None:
        _spread(at, cuts, group, stretched)
        return
    at.done(cuts, [None if target is None else (target, places) for target in targets], group)


def _from_right(at: Step, i: int) -> int:
    return len(at.inputs[i]) - at.divided[i][0]  # type: ignore[index]


def _beside(at: Step, i: int, axis: int, places: int) -> None:
    """A whole operand beside a divided one: of weights and constants, the places that the GPU has are enough."""
    flow, maker = at.flow, at.makers[i]
    if maker is None or at.roles[i] != "activation":
        return
    if flow.graph.operator(maker) in LOOKUPS and flow.graph.has_role(maker, "weight"):
        flow.slice_of(maker, axis, places)
    elif at.operands.operator in ("add", "sub") and i not in at.expanded and not flow.made_of_weights(maker):
        raise at.conflict("it is added to a whole tensor")


def _target(shape: Shape, axis: int, out: Shape, operator: str) -> int | None:
    """The axis of an output that has the places of an input's axis."""
    if len(out) == len(shape):
        return axis if out[axis] == shape[axis] else None
    if len(out) > len(shape) or operator in LOOKUPS:
        place = len(out) - (len(shape) - axis)
        return place if place >= 0 and out[place] == shape[axis] else None
    gone = [i for i in range(len(shape)) if shape[:i] + shape[i + 1 :] == out]
    if gone:
        last = gone[-1] if gone[-1] != axis or len(gone) == 1 else gone[0]
        return None if last == axis else axis - (last < axis)
    return next((i for i, size in enumerate(out) if size == shape[axis]), None)


def _is_reduction(at: Step, axis: int) -> bool:
    """Whether the divided axis is summed up."""
    shape, out = at.inputs[at.which[0]], at.outputs[0]
    if at.operands.operator not in SUMS or at.inputs[at.which[0]] == out:
        return False
    if len(out) == len(shape):
        return out[axis] == 1 and shape[axis] > 1
    return _target(shape, axis, out, at.operands.operator) is None


def _over_the_divided_axis(at: Step) -> None:
    group = at.joined()
    at.flow.groups.normed[group] = True
    cuts: list[Cut | None] = [None] * len(at.inputs)
    for i in at.which:
        cuts[i] = (at.divided[i][0], group)  # type: ignore[index]
    at.parts(cuts, group)


def _concatenated(at: Step) -> int | None:
    """The axis along which tensors are joined."""
    out = at.outputs[0]
    sizes = [sum(shape[i] for shape in at.inputs if len(shape) == len(out)) for i in range(len(out))]
    differing = [i for i, size in enumerate(out) if any(shape[i] != size for shape in at.inputs if len(shape) > i)]
    return next((i for i in differing if sizes[i] == out[i]), None)


def _side_by_side(at: Step, axis: int) -> None:
    """Divided tensors behind each other along the divided axis: each GPU joins its own parts."""
    if len(at.which) < len(at.inputs) or any(place is None or place[0] != axis for place in at.divided):
        raise at.conflict("it is joined with a whole tensor along the divided axis")
    group = at.joined()
    cuts = [(axis, group) for _ in at.inputs]
    at.done(cuts, [(axis, at.outputs[0][axis])], group)


def _stretch(at: Step, first: int, axis: int, places: int) -> int | None:
    """How often each place is repeated along the axis behind it, as KV heads are for their queries."""
    shape = at.inputs[first]
    maker = at.makers[first]
    if maker is None or first not in at.expanded or at.operands.operator not in MOVES or len(at.inputs) > 1:
        return None
    repeated = math.prod(shape) // math.prod(at.flow.output_shape(maker))
    behind = axis + 1 < len(shape) and shape[axis + 1] == repeated and shape[axis] == places
    return repeated if behind and at.outputs[0] == shape else None


def _spread(at: Step, cuts: Sequence[Cut | None], group: int, repeated: int) -> None:
    """Repeated heads: a GPU has as many as it has queries, also where several GPUs have the same one."""
    flow, (out,) = at.flow, at.outputs
    axis = next(cut[0] for cut in cuts if cut is not None)
    flow.groups.repeats[group] = True
    own = flow.groups.new(out[axis] * repeated, flow.groups.seeds[flow.groups.root(group)])
    merged = (*out[:axis], out[axis] * repeated, *out[axis + 2 :])
    flow.layouts[at.one] = (Layout(merged, axis, out[axis] * repeated, own),)
    flow.cuts[at.one] = KernelCut(at.names, tuple(cuts), ((axis, own),), own, at.shared)
