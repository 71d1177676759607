"""What takes from what among the parts of a model, as its runs show it: the edges of the system diagram."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from lmp.link.numbers import KernelNumbers, ModuleNumbers
from lmp.observe.flow import Flow, Op
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.naming import inspected

INPUT, CACHE = "input", "KV cache"
NEXT = "next layer"
_INDEX = re.compile(r"^(?P<stack>.*?\.)?(?P<index>\d+)(?P<rest>\..*)?$")

Edge = tuple[str, str, str]


def own_key(path: str, first: KernelNumbers) -> str:
    """Key of a node of operators that belong to a module itself."""
    return f"{path}/{first.kernel.line}/{first.kernel.operation}"


def parts_of(module: ModuleNumbers) -> Iterator[ModuleNumbers | list[KernelNumbers]]:
    """The module's parts in order; operators of its own that follow one another together, those that run only."""
    own: list[KernelNumbers] = []
    for child in module.children:
        if isinstance(child, KernelNumbers):
            own += [child] if child.once.bytes else []
            continue
        if own:
            yield own
        own = []
        yield child
    if own:
        yield own


class Wiring:
    """Dependencies between the parts of a model at a point."""

    def __init__(self, facts: ModelFacts, point: Point) -> None:
        self.facts = facts
        self.own: dict[tuple[str, str, int], str] = {}
        """Module, file and line of an operator of its own -> key of the node."""
        self._find(facts.tree(point))

    def _find(self, module: ModuleNumbers) -> None:
        for part in parts_of(module):
            if isinstance(part, ModuleNumbers):
                self._find(part)
                continue
            for k in part:
                file = k.kernel.file or self.facts.sources[k.class_name].forward_file
                self.own.setdefault((module.path, file, k.kernel.line), own_key(module.path, part[0]))

    def edges(self, keys: Sequence[str]) -> list[Edge]:
        """Between nodes of these keys, every one once, in the order of the nodes; none where nothing was run."""
        known = set(keys)
        found: dict[Edge, None] = {}
        for flow in self.facts.flows.phases.values():
            found |= {(one, other, ""): None for one, other in self._of_flow(flow, known)}
        if found:
            found |= dict.fromkeys(self._turns(keys))
        place = {key: index for index, key in enumerate([*keys, CACHE])}
        return sorted(found, key=lambda edge: (place[edge[0]], place[edge[1]], edge[2]))

    def _of_flow(self, flow: Flow, known: set[str]) -> Iterator[tuple[str, str]]:
        nodes = {op.index: self._node(op, known) for op in flow.ops}
        for op in flow.ops:
            node = nodes[op.index]
            if node is None:
                continue
            takes = [nodes[index] for index in op.depends]
            tensors = [flow.tensors[index] for index in op.inputs if flow.tensors[index].maker is None]
            takes += [{"input": INPUT, "cache": CACHE}.get(tensor.kind) for tensor in tensors if tensor.bytes]
            yield from ((one, node) for one in takes if one is not None and one != node)
            if any(flow.tensors[index].kind == "cache" for index in op.outputs):
                yield node, CACHE

    def _node(self, op: Op, known: set[str]) -> str | None:
        """The node that an operator is part of: a module, or operators of its own of one."""
        for frame in op.frames:
            path = self._told(frame.path, known)
            if path in known:
                return path
            for line in frame.lines:
                key = self.own.get((path, line.file, line.line))
                if key in known:
                    return key
        return None

    def _told(self, path: str, known: set[str]) -> str:
        """Of a layer that is not drawn, the place in the drawn one that it is alike."""
        for first, module in inspected(self.facts).items():
            match = _INDEX.match(first)
            if match is None or match["rest"] or module.repeat < 2:
                continue
            stack = match["stack"] or ""
            same = re.match(rf"{re.escape(stack)}(\d+)(?=\.|$)", path)
            if same is not None and int(same[1]) in module.indices:
                return first + path[same.end() :]
        return path

    def _turns(self, keys: Sequence[str]) -> Iterator[Edge]:
        """From the end of a layer to the beginning of the next, where that is of a kind that was drawn before."""
        layers: dict[int, str] = {}
        for path, module in inspected(self.facts).items():
            if _INDEX.match(path) is not None and module.indices and path.rpartition(".")[2].isdigit():
                layers |= dict.fromkeys(module.indices, path)
        ends = {path: [key for key in keys if key.startswith((f"{path}.", f"{path}/"))] for path in layers.values()}
        order = [path for _, path in sorted(layers.items())]
        drawn = list(dict.fromkeys(order))
        for one, other in dict.fromkeys(itertools.pairwise(order)):
            if drawn.index(other) <= drawn.index(one) and ends[one] and ends[other]:
                yield ends[one][-1], ends[other][0], NEXT
