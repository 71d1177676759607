"""The operators of a class: each distinct one once, and the kinds of layers that they run in."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmp.observe.flow import Flow, Frame, Line, Op, Tensor
from lmp.records import short
from lmp.report.document.parts import Code, Inline, Pointer
from lmp.report.facts import ModelFacts
from lmp.source.parsed import parse

PRODUCTS = frozenset({"matmul", "attention", "convolution", "grouped_matmul"})
_NAME = re.compile(r"[A-Za-z_]\w*")
_LAYER = re.compile(r"^(?P<stack>.*?)\.(?P<index>\d+)(?:\.(?P<rest>.*))?$")


@dataclass(frozen=True)
class Place:
    """Where an operator is told to stand: the module whose code says it, and the attribute that it calls."""

    owner: Frame
    attribute: str
    lines: tuple[Line, ...]
    """Its own, then those that called it, up to forward()."""

    @property
    def file(self) -> str:
        return self.lines[0].file

    @property
    def line(self) -> int:
        return self.lines[0].line


def place_of(op: Op, root: str) -> Place:
    """Operators of modules that are not of the model's own file belong to the attribute that calls them."""
    inner, module = op.frames[0], root.rpartition(".")[0]
    owner = next((f for f in op.frames if f.class_name.rpartition(".")[0] == module), inner)
    attribute = owner_relative(inner.path, owner.path) if owner is not inner else ""
    told = owner if inner.class_name.startswith("torch.") and owner.lines else inner
    return Place(owner, attribute, told.lines)


def owner_relative(path: str, above: str) -> str:
    return path.removeprefix(above).lstrip(".")


@dataclass
class Row:
    """A distinct operator: the same line of the same class doing the same, called by the same lines."""

    key: str
    place: Place
    words: str
    category: str
    ops: dict[str, list[Op]] = field(default_factory=dict)
    """Phase -> its executions in one call, with one layer of each kind."""
    depends: dict[str, None] = field(default_factory=dict)
    """Keys of the rows whose results it takes, and names of what was there before."""

    @property
    def label(self) -> str:
        owner = short(self.place.owner.class_name)
        return f"{owner}.{self.place.attribute}" if self.place.attribute else owner

    @property
    def first(self) -> Op:
        return next(iter(self.ops.values()))[0]

    @property
    def all_ops(self) -> list[Op]:
        return [op for ops in self.ops.values() for op in ops]


class Catalogue:
    """Every distinct operator that runs, in the order of its first run, with its real dependencies."""

    def __init__(self, facts: ModelFacts) -> None:
        self.facts, self.root = facts, facts.model.class_name
        self.rows: dict[tuple[str, str, tuple[tuple[str, int], ...], str], Row] = {}
        self._of: dict[tuple[str, int], Row] = {}
        for phase, flow in facts.flows.phases.items():
            for op in flow.ops:
                row = self._row(op)
                row.ops.setdefault(phase, []).append(op)
                self._of[phase, op.index] = row
        for phase, flow in facts.flows.phases.items():
            for op in flow.ops:
                self._connect(phase, flow, op)

    def row_of(self, phase: str, index: int) -> Row:
        return self._of[phase, index]

    def ends_its_line(self, row: Row) -> bool:
        """Whether the row is what its line ends in: then the line's name is that of its result."""
        here = [r for r in self.rows.values() if _where(r) == _where(row)]
        return here[-1].words == row.words

    def twins(self, row: Row) -> list[Row]:
        """Rows of the same line that do the same: they differ in what called it."""
        return [r for r in self.rows.values() if (*_where(r), r.label, r.words) == (*_where(row), row.label, row.words)]

    def _row(self, op: Op) -> Row:
        place = place_of(op, self.root)
        chain = tuple((line.file, line.line) for line in place.lines)
        key = (place.owner.class_name, place.attribute, chain, op.words)
        if key not in self.rows:
            self.rows[key] = Row(f"T{len(self.rows) + 1}", place, op.words, op.category or self._category(op, place))
        return self.rows[key]

    def _category(self, op: Op, place: Place) -> str:
        """Of an operator that the symbolic run lacks: as the analysis has it."""
        for name in (op.frames[0].class_name, place.owner.class_name):
            analysis = self.facts.analyses.get(name)
            for kernel in analysis.kernels if analysis is not None else ():
                if kernel.operation == op.words:
                    return kernel.category
        return "elementwise"

    def _connect(self, phase: str, flow: Flow, op: Op) -> None:
        row = self._of[phase, op.index]
        for index in op.depends:
            other = self._of[phase, index]
            row.depends.setdefault(other.key)
        for index in op.inputs:
            tensor = flow.tensors[index]
            if tensor.maker is None and tensor.kind in ("input", "cache") and tensor.bytes:
                row.depends.setdefault("KV cache" if tensor.kind == "cache" else "input")


def _where(row: Row) -> tuple[str, int]:
    return row.place.file, row.place.line


def layer_of(path: str) -> tuple[str, int, str] | None:
    """The stack, the index and the rest of a path inside of a layer."""
    found = _LAYER.match(path)
    return (found["stack"], int(found["index"]), found["rest"] or "") if found else None


@dataclass(frozen=True)
class Kind:
    """Layers of a stack that are alike. ``run`` is the index of the one in the model that was run."""

    stack: str
    run: int
    path: str
    """Of the first one in the whole model."""
    name: str
    """With the indices, as ``layers.0-2``."""
    count: int
    class_name: str


def is_run(kind: Kind) -> bool:
    """Whether the layers of a kind are neighbours: ``layers.3-60``, not ``layers.0,2,...,22``."""
    return "," not in kind.name


def kinds_of(facts: ModelFacts, flow: Flow) -> list[Kind]:
    """The kinds of layers that ran, each by the first of it; none of a class that has no layers itself."""
    ran: dict[str, set[int]] = {}
    for op in flow.ops:
        found = layer_of(op.frames[0].path)
        if found is not None:
            ran.setdefault(found[0], set()).add(found[1])
    kinds = []
    for stack, indices in ran.items():
        groups = _groups(facts, stack)
        within = f"{stack.rpartition('.')[0]}." if len(ran) > 1 and "." in stack else ""  # encoder.block.0
        # A model cut to one layer of each kind has them in the order of the kinds; else they keep their places.
        in_order = len(indices) == len(groups) and max(indices) == len(groups) - 1
        for number, (name, path, members, class_name) in enumerate(groups):
            run = number if in_order else min((i for i in members if i in indices), default=-1)
            if run >= 0:
                kinds.append(Kind(stack, run, path, f"{within}{name}", len(members), class_name))
    return kinds


def place_in(facts: ModelFacts, flow: Flow, index: int) -> str:
    """Where an operator of a run stands in the whole model: its module's path, with all layers of the kind."""
    path = flow.ops[index].frames[0].path
    found = layer_of(path)
    if found is None:
        return path
    kind = next((k for k in kinds_of(facts, flow) if (k.stack, k.run) == found[:2]), None)
    return f"{kind.name if kind is not None else f'{found[0]}.{found[1]}'}{f'.{found[2]}' if found[2] else ''}"


def _groups(facts: ModelFacts, stack: str) -> list[tuple[str, str, list[int], str]]:
    if facts.inspection is None:
        return []
    waiting, found = [facts.inspection.tree], []
    while waiting:
        module = waiting.pop(0)
        if module.indices and module.path.rpartition(".")[0] == stack:
            found.append((module.name, module.path, list(module.indices), module.class_name))
        waiting += module.modules
    return found


def shape_text(op: Op) -> str:
    """``[batch_size, seq_len, hidden_size]``; the numbers where no formula was found."""
    return shape_of(op.shape if op.shape is not None else tuple(map(str, op.sizes)))


def shape_of(sizes: Sequence[str]) -> str:
    return f"[{', '.join(size.replace('{', '').replace('}', '') for size in sizes)}]"


# --- lines -----------------------------------------------------------------------------------------------------------


def code_at(facts: ModelFacts, file: str, line: int) -> str:
    path = facts.trees.path_of(file)
    return parse(path).code(line) if path is not None and Path(path).is_file() else ""


def pointer_at(facts: ModelFacts, file: str, line: int, prefer: str = "") -> Pointer:
    """A line with a name that stands in it."""
    code = code_at(facts, file, line)
    return facts.place(file, line, _symbol(code, prefer))


def _symbol(code: str, prefer: str) -> str | None:
    if prefer and re.search(rf"\b{re.escape(prefer)}\b", code):
        return prefer
    names = [name for name in _NAME.findall(code.partition("#")[0]) if not keyword.iskeyword(name)]
    return next((name for name in names if name not in NAMESPACES), None)


NAMESPACES = frozenset({"self", "torch", "nn", "functional", "F", "ops"})
"""Names that say nothing of what a line does."""


def assigned(code: str) -> str | None:
    """The name that a line gives to its result."""
    found = re.match(r"([A-Za-z_]\w*)(?:\s*:[^=]+)?\s*=[^=]", code)
    return found[1] if found else None


def row_pointer(facts: ModelFacts, row: Row) -> Pointer:
    attribute = row.place.attribute.rpartition(".")[2]
    return pointer_at(facts, row.place.file, row.place.line, attribute)


def searched(facts: ModelFacts) -> str:
    """Where was looked for what only a call shows."""
    why = facts.flows.reason
    return f"an executed call of {short(facts.model.class_name)}" + (f"; {why}" if why else "")


def joined(pieces: Sequence[Inline], between: str = ", ") -> list[Inline]:
    """Pieces with text between them."""
    return lists([[piece] for piece in pieces], between)


def lists(items: Sequence[Sequence[Inline]], between: str = ", ") -> list[Inline]:
    """Items of several pieces, with text between them."""
    return [piece for index, item in enumerate(items) for piece in ((between, *item) if index else item)]


def plain(formula: str) -> Code:
    """A formula as code, without the braces of names."""
    return Code(formula.replace("{", "").replace("}", ""))


def of_layers(flow: Flow, kinds: Sequence[Kind], tensor: Tensor) -> bool:
    """Whether a tensor is made outside of layers, or in one of the layers that are shown."""
    if tensor.maker is None:
        return True
    found = layer_of(flow.ops[tensor.maker].frames[0].path)
    mine = [k for k in kinds if found is not None and k.stack == found[0]]
    return found is None or not mine or any(k.run == found[1] for k in mine)
