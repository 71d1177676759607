"""One kernel as one GPU runs it: its operands, FLOPs and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from lmp.formula import Number, plain, read_number
from lmp.link.records import EvaluatedKernel
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.planning import Plan
from lmp.predict.shard.records import RankKernel
from lmp.predict.shard.state import LOOKUPS, Cut, KernelCut
from lmp.records import Operand, Operands


class Part:
    """The part of one GPU, at sizes of elements that ``values`` have."""

    def __init__(self, plan: Plan, parallel: Parallel, values: Mapping[str, Number]) -> None:
        self.plan, self.parallel, self.values = plan, parallel, values

    def bytes_of(self, operands: Sequence[Operand]) -> int:
        """Bytes of tensors, rounded up."""
        return math.ceil(sum((self._bytes(one) for one in operands), Fraction(0)))

    def bytes_of_output(self, kernel: EvaluatedKernel) -> int:
        """Bytes of the first output of a whole kernel."""
        outputs = [] if kernel.operands is None else kernel.operands.outputs[:1]
        return self.bytes_of(outputs) or math.ceil(Fraction(read_number(kernel.write)))

    def _bytes(self, operand: Operand) -> Fraction:
        width = operand.width if isinstance(operand.width, int) else self.values[f"{operand.width}_bytes"]
        return math.prod(map(int, operand.shape)) * Fraction(width)

    def whole(self, kernel: EvaluatedKernel) -> RankKernel:
        """A kernel that each GPU runs whole."""
        fields = {name: getattr(kernel, name) for name in EvaluatedKernel.model_fields}
        return RankKernel.model_construct(**fields, ranks=self.parallel.tp)

    def of(self, kernel: EvaluatedKernel) -> RankKernel:
        """A kernel as one GPU runs it. Raises nothing: what is not divided is whole."""
        whole = self.whole(kernel)
        cut = None if kernel.id is None else self.plan.cuts.get(kernel.id)
        if self.parallel.tp == 1:
            return whole
        ep = self.parallel.ep if kernel.id in self.plan.routed else 1
        update: dict[str, object] = {"parts": ep}
        if kernel.id in self.plan.routed:
            update |= {"ep": ep, "expert_tp": self.parallel.expert_tp}
        if cut is not None:
            group = self.plan.groups[cut.group]
            update |= self._costs(kernel, cut, group.parts(self.parallel))
        made = whole.model_copy(update=update)
        if ep == 1:
            return made
        # Each group of GPUs has the rows of its experts.
        costs = {name: _share(getattr(made, name), ep) for name in ("flops", "read", "write")}
        return made.model_copy(update={**costs, "parts": made.parts if cut is None else made.parts * ep})

    def _costs(self, kernel: EvaluatedKernel, cut: KernelCut, parts: int) -> dict[str, object]:
        if kernel.operands is None or not cut.inputs:
            costs = {name: _share(getattr(kernel, name), parts) for name in ("flops", "read", "write")}
            return {"parts": parts, **costs}
        operands = self._operands(kernel.operands, cut, parts)
        return {
            "parts": parts,
            "operands": operands,
            "flops": self._flops(kernel, operands, cut, parts),
            "read": self._read(kernel, operands, cut),
            "write": self._moved(kernel.write, kernel.operands.outputs, operands.outputs),
        }

    def _size(self, shape: list[int | str], cut: Cut | None) -> list[int | str]:
        """The sizes of a GPU's part. Where a place is on several GPUs, what is repeated along the next axis is cut."""
        if cut is None:
            return shape
        axis, parts = cut[0], self.plan.groups[cut[1]].parts(self.parallel)
        sizes = [int(size) for size in shape]
        if sizes[axis] % parts and parts % sizes[axis] == 0 and axis + 1 < len(sizes):
            sizes[axis + 1] = -(-sizes[axis + 1] * sizes[axis] // parts)
            sizes[axis] = 1
        else:
            sizes[axis] = -(-sizes[axis] // parts)
        return list(sizes)

    def _operands(self, operands: Operands, cut: KernelCut, parts: int) -> Operands:
        def sized(group: list[Operand], cuts: Sequence[Cut | None]) -> list[Operand]:
            pairs = zip(group, cuts, strict=True)
            return [one.model_copy(update={"shape": self._size(one.shape, place)}) for one, place in pairs]

        inputs = sized(operands.inputs, [cut.of(one.name) for one in operands.inputs])
        outputs = sized(operands.outputs, cut.outputs)
        product: dict[str, object] = {}
        if operands.q_len is not None:
            heads = int(operands.heads or 1)
            product["heads"] = -(-heads // parts)
            if parts > heads:
                # The queries of one KV head are divided.
                product["q_len"] = int(operands.q_len) * heads // parts
            key = cut.of("key")
            kv_parts = parts if key is None else self.plan.groups[key[1]].parts(self.parallel)
            product["kv_heads"] = max(1, int(operands.kv_heads or 1) // kv_parts)
        elif operands.m is not None or operands.experts is not None:
            for name in ("batch", "m", "n", "k"):
                if getattr(operands, name) is not None and name == _letter(operands, cut):
                    product[name] = -(-int(getattr(operands, name)) // parts)
        return operands.model_copy(update={"inputs": inputs, "outputs": outputs, **product})

    def _flops(self, kernel: EvaluatedKernel, local: Operands, cut: KernelCut, parts: int) -> int:
        name = _letter(kernel.operands, cut) if kernel.operands is not None else None
        before = getattr(kernel.operands, name) if name is not None else None
        if before and getattr(local, name or "") * parts != before:
            # The last GPU has fewer places: this is one of the others.
            return kernel.flops // int(before) * int(getattr(local, name or ""))
        return int(_share(kernel.flops, parts))

    def _read(self, kernel: EvaluatedKernel, local: Operands, cut: KernelCut) -> Number:
        assert kernel.operands is not None
        whole, its = list(kernel.operands.inputs), list(local.inputs)
        read = Fraction(read_number(kernel.read))
        main = main_input(kernel.operands)
        if main is not None and read != sum((self._bytes(one) for one in whole), Fraction(0)):
            others = [i for i in range(len(whole)) if i != main]
            before = sum((self._bytes(whole[i]) for i in others), Fraction(0))
            after = sum((self._bytes(its[i]) for i in others), Fraction(0))
            return plain(Fraction(math.ceil((read - before) * share_of(whole[main], its[main]) + after)))
        if kernel.operands.operator in ("copy", "copy_"):
            whole, its = whole[-1:], its[-1:]
        own = [i for i, one in enumerate(whole) if one.name not in cut.shared]
        if len(own) == len(whole):
            return self._moved(read, whole, its)
        # What is read once for all places is read by every GPU.
        before = sum((self._bytes(whole[i]) for i in own), Fraction(0))
        after = sum((self._bytes(its[i]) for i in own), Fraction(0))
        return plain(max(read - before, Fraction(0)) + after)

    def _moved(self, bytes_: object, whole: list[Operand], local: list[Operand]) -> Number:
        """Bytes of the parts: exact where the kernel moves every operand once, else in proportion."""
        moved = Fraction(read_number(bytes_))
        before = sum((self._bytes(one) for one in whole), Fraction(0))
        after = sum((self._bytes(one) for one in local), Fraction(0))
        if moved == before or not before:
            return plain(after)
        return math.ceil(moved * after / before)


def main_input(operands: Operands) -> int | None:
    """The input of which a kernel may read a part, or in another format: weights of a product, a table of rows."""
    product = operands.m is not None or operands.experts is not None
    if operands.operator in LOOKUPS or operands.operator == "embedding":
        return 0
    weights = [i for i, one in enumerate(operands.inputs) if one.role == "weight" and len(one.shape) > 1]
    return weights[0] if product and weights else None


def share_of(whole: Operand, part: Operand) -> Fraction:
    """The part of a tensor's elements."""
    return Fraction(math.prod(_ints(part)), max(1, math.prod(_ints(whole))))


def _ints(operand: Operand) -> list[int]:
    return [int(size) for size in operand.shape]


def _share(figure: Number, parts: int) -> Number:
    """A part of a cost; whole numbers are rounded up."""
    return math.ceil(Fraction(read_number(figure)) / parts)


def _letter(operands: Operands | None, cut: KernelCut) -> str | None:
    """Which size of a product is divided: batch, m, n or k."""
    if operands is None or (operands.m is None and operands.experts is None):
        return None
    if operands.operator == "convolution":
        return "n"
    matrices = [i for i, one in enumerate(operands.inputs) if len(one.shape) > 1 and one.role != "index"]
    if len(matrices) < 2:
        return None
    left, right = matrices[-2:]
    for i, names in ((left, ("batch", "m", "k")), (right, ("batch", "k", "n"))):
        place = cut.of(operands.inputs[i].name)
        if place is not None:
            return names[place[0] - len(operands.inputs[i].shape)]
    return None
