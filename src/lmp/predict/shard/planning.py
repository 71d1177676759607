"""Which products of a model are divided, found by data flow, for any number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lmp.errors import InvalidAnalysis, UsageError
from lmp.formula import Number
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import Graph
from lmp.predict.shard.flow import Flow
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.stages import Layers, layers_of, refuse_stages
from lmp.predict.shard.state import Choice, Conflict, KernelCut
from lmp.records import MATMUL_CATEGORIES, Operand

PASSES = 2000


@dataclass(frozen=True)
class Group:
    """Tensors that are divided together."""

    path: str
    """Module of the first product of it."""
    units: int
    """What the GPUs share: heads, columns, rows of the vocabulary."""
    experts: bool
    repeats: bool
    """A unit may be on several GPUs, as a KV head is whose queries are on several."""
    padded: bool
    """Nothing is summed over it: where it does not divide, the last GPU has fewer."""

    def gpus(self, parallel: Parallel) -> int:
        return parallel.expert_tp if self.experts else parallel.tp

    def divides(self, gpus: int) -> bool:
        if self.padded:
            return gpus <= self.units
        return self.units % gpus == 0 or (self.repeats and gpus % self.units == 0)

    def parts(self, parallel: Parallel) -> int:
        """Different parts that the GPUs have."""
        gpus = self.gpus(parallel)
        return min(gpus, self.units) if self.repeats else gpus


@dataclass(frozen=True)
class Whole:
    """A product with a weight that every GPU has whole."""

    id: str
    path: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """How a model is divided, whatever the number of GPUs. Kernels are named by their ids."""

    cuts: Mapping[str, KernelCut]
    groups: Mapping[int, Group]
    reduced: Mapping[str, int]
    """Kernels behind which the GPUs add their parts of a sum -> the group of it."""
    gathered: Mapping[str, int]
    """Kernels behind which the GPUs collect all parts of the output -> the group of it."""
    looked_up: frozenset[str]
    """Embeddings of which each GPU has some rows."""
    routed: Mapping[str, int]
    """Kernels between the routing and the sum over a token's experts -> routed rows of all experts."""
    experts: int
    """Experts of a layer; 0 for a dense model."""
    layers: Layers
    tables: frozenset[str]
    """Kernels that are made of positions alone: every stage needs them."""
    whole: tuple[Whole, ...]

    def check(self, parallel: Parallel) -> None:
        """Raise UsageError, with the allowed values, for numbers of GPUs that do not divide the model."""
        if parallel.ep > 1:
            if not self.experts:
                raise UsageError(f"--ep {parallel.ep}: the model has no experts\nleave it out")
            if self.experts % parallel.ep:
                raise UsageError(
                    f"--ep {parallel.ep} does not divide {self.experts} experts\nallowed are "
                    f"{_listed(ep for ep in range(1, self.experts + 1) if self.experts % ep == 0)}"
                )
        if parallel.dp_attention and not self.experts:
            raise UsageError("--dp-attention: the model has no experts\nuse replicas of the model instead")
        refuse_stages(self.layers, parallel.pp)
        for group in self.groups.values():
            gpus = group.gpus(parallel)
            if gpus == 1 or group.divides(gpus) or (parallel.dp_attention and not group.experts):
                continue
            what = "tp / ep" if group.experts and parallel.ep > 1 else "--tp"
            raise UsageError(
                f"{what} {gpus} does not divide the {group.units} parts of {group.path}\n"
                f"allowed are {_listed(self.allowed(group.experts))}"
            )

    def notes(self, most: int = 3) -> list[str]:
        """What every GPU has whole, as sentences."""
        found = [f"whole on every GPU: {one.path or 'the model'}: {one.reason}" for one in self.whole]
        return (
            found if len(found) <= most else [*found[:most], f"whole on every GPU: {len(found) - most} more products"]
        )

    def allowed(self, experts: bool = False) -> list[int]:
        """Numbers of GPUs that divide everything that is divided."""
        groups = [group for group in self.groups.values() if not experts or group.experts]
        most = max((group.units for group in groups if not group.padded), default=1)
        return [gpus for gpus in range(1, most + 1) if all(group.divides(gpus) for group in groups)]


def _listed(numbers: object) -> str:
    return ", ".join(map(str, numbers))  # type: ignore[call-overload]


def planned(kernels: Sequence[EvaluatedKernel], values: Mapping[str, Number]) -> Plan:
    """How the model of these kernels is divided. The sizes of the call must differ from those of the config."""
    graph = Graph(kernels, values)
    choice = Choice(vocabulary=_vocabulary(graph))
    for _ in range(PASSES):
        flow = Flow(graph, choice)
        try:
            flow.run()
        except Conflict as conflict:
            _keep_whole(flow, choice, conflict)
            continue
        if not flow.changed:
            return _plan(flow)
    raise InvalidAnalysis("the model cannot be divided: its kernels contradict each other\nleave --tp and --ep out")


def _vocabulary(graph: Graph) -> int | None:
    """Columns of the last product, if it is the model's output."""
    for one in reversed(range(len(graph.kernels))):
        operands = graph.kernels[one].operands
        if graph.kernels[one].category == "matmul" and operands is not None and graph.has_role(one, "weight"):
            last = not any(graph.is_product(user) for user in graph.consumers[one])
            return int(operands.n or 0) if last and graph.kernels[one].repeat == 1 else None
    return None


def _keep_whole(flow: Flow, choice: Choice, conflict: Conflict) -> None:
    seeds = frozenset[int]().union(*(flow.groups.seeds[flow.groups.root(group)] for group in conflict.groups))
    if not seeds or seeds <= choice.whole.keys():
        raise InvalidAnalysis(f"the model cannot be divided: {conflict.reason}\nleave --tp and --ep out")
    kernel = flow.graph.kernels[conflict.kernel]
    place = f"{conflict.reason} ({kernel.path or 'the model'}, line {kernel.line})"
    choice.whole.update({seed: place for seed in seeds if seed not in choice.whole})


def _plan(flow: Flow) -> Plan:
    graph, groups = flow.graph, flow.groups

    def name(one: int) -> str:
        return graph.kernels[one].id or str(one)

    gathered = {}
    for one, layouts in flow.layouts.items():
        layout = layouts[0] if layouts else None
        if layout is None or graph.consumers[one] or not graph.kernels[one].write:
            continue
        if layout.partial:
            flow.choice.reduced.add(one)
        else:
            gathered[name(one)] = groups.root(layout.group)
    reduced = {
        name(one): groups.root(layouts[0].group)
        for one, layouts in flow.layouts.items()
        if one in flow.choice.reduced
        and layouts
        and layouts[0] is not None
        and layouts[0].partial
        and graph.kernels[one].write
    }
    cuts = {name(one): _resolved(flow, cut) for one, cut in flow.cuts.items()}
    used = {cut.group for cut in cuts.values()}
    used |= {place[1] for cut in cuts.values() for place in (*cut.inputs, *cut.outputs) if place is not None}
    used |= set(reduced.values())
    routed, experts = _routed(graph)
    divided = flow.columns | flow.rows
    whole = tuple(
        Whole(name(one), graph.kernels[one].path, flow.choice.whole.get(one, "its outputs are too few"))
        for one in range(len(graph.kernels))
        if graph.kernels[one].category in MATMUL_CATEGORIES and one not in divided and graph.has_role(one, "weight")
    )
    return Plan(
        cuts,
        {group: _group(flow, group) for group in sorted(used)},
        reduced,
        gathered,
        frozenset(name(one) for one in flow.lookups),
        {name(one): rows for one, rows in routed.items()},
        experts,
        layers_of(graph.kernels),
        frozenset(map(name, graph.positions)),
        whole,
    )


def _resolved(flow: Flow, cut: KernelCut) -> KernelCut:
    def root(place: tuple[int, int] | None) -> tuple[int, int] | None:
        return None if place is None else (place[0], flow.groups.root(place[1]))

    inputs, outputs = tuple(map(root, cut.inputs)), tuple(map(root, cut.outputs))
    return replace(cut, inputs=inputs, outputs=outputs, group=flow.groups.root(cut.group))


def _group(flow: Flow, group: int) -> Group:
    groups = flow.groups
    seeds = sorted(groups.seeds[group])
    path = flow.graph.kernels[seeds[0]].path if seeds else ""
    padded = not groups.contracted[group] and not groups.repeats[group]
    return Group(path, groups.units[group], groups.experts[group], groups.repeats[group], padded)


def _routed(graph: Graph) -> tuple[dict[int, int], int]:
    """Kernels with a row for each token and expert of it; and the experts of a layer."""
    found: dict[int, int] = {}
    experts = 0
    for one, kernel in enumerate(graph.kernels):
        operands = kernel.operands
        if operands is None or operands.experts is None:
            continue
        experts = max(experts, int(operands.experts))
        rows = int(operands.tokens or 1) * int(operands.top_k or 1)

        def has_rows(other: int, rows: int = rows, path: str = kernel.path) -> bool:
            its = graph.kernels[other].operands
            near = graph.kernels[other].path.startswith(path)
            return near and its is not None and any(_rows(o) == rows for o in (*its.outputs, *its.inputs[:1]))

        for other in graph.closure([one], graph.both_ways, has_rows):
            found[other] = rows
    return found, experts


def _rows(operand: Operand) -> int:
    """Rows of a tensor; those of a token's experts may be an axis of their own."""
    sizes = [int(size) for size in operand.shape]
    return math.prod(sizes[:-1]) if len(sizes) == 3 else sizes[0] if sizes else 0
