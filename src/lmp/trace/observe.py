"""Splits one run by module call: the operators of each call, the modules that it called, and their lines.

An item is identified by the chain of lines from ``forward()`` to it. This matches the same operator of a line between
runs, and separates two calls of one helper function.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from lmp.formula import Expr, simplify
from lmp.records import UNIVERSAL
from lmp.trace.operands import product_name
from lmp.trace.recording import Executed, Recording
from lmp.trace.rules import Move, Size, Tensor, smaller
from lmp.workload.calls import Call, Place
from lmp.workload.kinds import COUNTED_ALIKE, kind_of
from lmp.workload.paths import forward_arguments, is_kv_cache, resolve
from lmp.workload.results import tensors_in

CACHED = ".keys.shape[2]"
"""Suffix of the path of ``cache_len``."""

DIMS = ".ndim"
"""Suffix of the path of a tensor's number of dimensions."""

ITEM = ".dtype.itemsize"
"""Suffix of the path of a tensor's bytes per element."""

GROWING = ("keys", "values")
"""Attributes of a cache layer whose tensors have an entry for each token."""


@dataclass(frozen=True)
class Key:
    """Identity of a kernel across runs: its place in the source, and its operator or class."""

    chain: tuple[Place, ...]
    name: str
    composite: bool
    within: tuple[Place, ...] = ()
    """For an operator of an inlined module: its places inside that module."""

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.chain, self.name, self.composite, self.within))

    def __hash__(self) -> int:
        # Cached: each quantity of each kernel is looked up by it in every run.
        return self._hash


@dataclass
class Item:
    """One operator, or one call of a module, in one run. ``fields`` are its quantities: numbers or formulas."""

    key: Key
    order: int
    fields: dict[str, Size]
    category: str
    count: int = 1
    times: int = 1
    """Number of executions that ``fields`` sum up: a loop whose steps have different shapes is one item."""
    causal: bool = False
    counted: bool = True
    operator: Any = None
    child: Call | None = None


@dataclass
class Observation:
    """All items of one module call in one run, in execution order."""

    call: Call
    values: Mapping[str, Any]
    items: dict[tuple[Key, int], Item] = field(default_factory=dict)
    orders: dict[int, tuple[Key, int]] = field(default_factory=dict)
    """Order of each operator and module call in the run -> its item."""
    rename: Mapping[str, Expr] = field(default_factory=dict)
    """Variable of the run -> the class's own, for the shapes of its operators. Fields are renamed already."""


class _Alike:
    """The items of one key in groups with equal fields. Each group has a number and a first item."""

    def __init__(self) -> None:
        self._written: dict[Any, tuple[int, Item]] = {}
        self._first: list[Item] = []
        self._simplified: list[dict[str, Size]] = []

    def of(self, item: Item) -> tuple[int, Item]:
        """Number and first item of the item's group, which is a new one if no other has equal fields."""
        written = tuple(sorted((name, str(value)) for name, value in item.fields.items()))
        if written not in self._written:
            number = self._number(item)
            self._written[written] = number, self._first[number]
        return self._written[written]

    def _number(self, item: Item) -> int:
        """Number of the item's group. Factors in another order are equal, which takes long to find out."""
        if self._first:
            for first in self._first[len(self._simplified) :]:
                self._simplified.append(_simplified(first))
            fields = _simplified(item)
            if fields in self._simplified:
                return self._simplified.index(fields)
        self._first.append(item)
        return len(self._first) - 1


def _simplified(item: Item) -> dict[str, Size]:
    return {n: simplify(value) if isinstance(value, Expr) else value for n, value in item.fields.items()}


CallSite = tuple[tuple[Place, ...], str]
"""Chain of lines from which a module is called, and its class path."""

Interface = Mapping[str, str]
"""Parameters of an analysis: variable -> path."""


class Observer:
    """Splits a recording by module call. ``interfaces``: class path -> parameters to bind at its calls."""

    def __init__(
        self,
        recording: Recording,
        values: Mapping[str, Any],
        size: Callable[[Any], Size],
        interfaces: Mapping[str, Interface],
        ranks: Mapping[str, Mapping[str, int]],
        inlined_sites: Set[CallSite] = frozenset(),
    ) -> None:
        self.recording, self.values, self.size = recording, values, size
        self.interfaces, self.ranks, self.inlined_sites = interfaces, ranks, inlined_sites

    def observe(self, call: Call) -> Observation:
        """The items of this call. Equal items of one key (a loop) are one item with a count."""
        found = Observation(call, self.values)
        items = _without_wrappers([i for e in self.recording.below(call) if (i := self._basic(e, call)) is not None])
        items += [self._composite(c, call) for c in self._called(call)]
        items += [*weight_items(call, self.size), *self._compulsory(call)]
        return self._grouped(found, items)

    def compulsory(self, call: Call) -> Observation:
        """The items of this call's compulsory traffic alone."""
        return self._grouped(Observation(call, self.values), self._compulsory(call))

    @staticmethod
    def _grouped(found: Observation, items: Iterable[Item | None]) -> Observation:
        groups: dict[Key, _Alike] = {}
        for item in sorted((i for i in items if i is not None), key=lambda i: i.order):
            number, first = groups.setdefault(item.key, _Alike()).of(item)
            if first is item:
                found.items[item.key, number] = item
            else:
                first.count += 1
            found.orders[item.order] = item.key, number
        return found

    def _basic(self, executed: Executed, call: Call) -> Item | None:
        """The operator as an item, if it belongs to this call or to a module inlined in it; else None."""
        if not self.inlined_sites and executed.segments[0].call is not call:
            return None
        depth = next((d for d, s in enumerate(executed.segments) if s.call is call), None)
        if depth is None or any(self.referred(s.call) for s in executed.segments[:depth]):
            return None
        found = executed.cost
        name = product_name(executed.operator.name)
        within = tuple(p for s in executed.segments[:depth] for p in s.chain)
        key = Key(executed.segments[depth].chain, name, composite=False, within=within)
        fields = {
            "matmul": found.matmul_flops,
            "scalar": found.scalar_flops,
            **{f"read:{unit}": amount for unit, amount in _by_unit(found.reads).items()},
            **{f"write:{unit}": amount for unit, amount in _by_unit(found.writes).items()},
        }
        fields = {name: value for name, value in fields.items() if not (isinstance(value, int) and value == 0)}
        return Item(
            key,
            executed.order,
            fields,
            found.category,
            causal=executed.causal,
            counted=found.counted,
            operator=executed.operator,
        )

    def referred(self, call: Call) -> bool:
        """True if a called module is a reference, that is, not inlined."""
        return not self.inlined_sites or call_site(call) not in self.inlined_sites

    def _called(self, call: Call) -> Iterator[Call]:
        """The calls that are references within a call, including those made by modules inlined in it."""
        for inner in self.recording.called_by(call):
            if self.referred(inner):
                yield inner
            else:
                yield from self._called(inner)

    def _composite(self, call: Call, within: Call) -> Item | None:
        """A call as an item of the call ``within`` that makes it, directly or through inlined modules."""
        chains = []
        outer: Call | None = call
        while outer is not None and outer is not within and outer.site is not None:
            chains.append(outer.site.chain)
            outer = outer.parent
        if outer is not within or not chains or call.class_path not in self.interfaces:
            return None
        inside = tuple(p for chain in chains[:-1] for p in chain)
        key = Key(chains[-1], call.class_path, composite=True, within=inside)
        order = self.recording.orders[call.index]
        return Item(key, order, self.bindings(call), "module", child=call)

    def _compulsory(self, call: Call) -> list[Item]:
        """Memory traffic left after fusing the whole call: what it reads from outside and what it returns.

        The traffic of each element of a list of layers is a separate item, so that layers can be counted.
        """
        prefix = f"{call.path}." if call.path else ""
        modules = {f"{prefix}{n}": m for n, m in call.module.named_modules()}
        lists = [f"{path}." for path, m in modules.items() if isinstance(m, torch.nn.ModuleList)]

        @functools.cache
        def owned(path: str) -> str:
            inside = next((name for name in lists if path.startswith(name)), None)
            return inside + path.removeprefix(inside).split(".")[0] if inside else ""

        def owner(e: Executed) -> str:
            return owned(e.segments[0].call.path)

        given = {t.storage: t for t in map(self.recording.describe, tensors_in((call.args, call.kwargs)))}
        made: dict[int, str] = {}
        read: dict[int, list[Move]] = {}
        readers: dict[int, str] = {}
        for e in self.recording.below(call):
            for move in e.cost.reads:
                if move.tensor is not None and move.tensor.storage not in made:
                    read.setdefault(move.tensor.storage, []).append(move)
                    readers.setdefault(move.tensor.storage, owner(e))
            for tensor in e.operator.outputs:
                made.setdefault(tensor.storage, owner(e))
        moved: dict[str, tuple[list[Move], list[Move]]] = {"": ([], [])}
        for storage, parts in read.items():
            who = "" if storage in given else readers[storage]
            moved.setdefault(who, ([], []))[0].append(_least(given.get(storage), parts))
        written = {t.storage: t for t in map(self.recording.describe, tensors_in(call.output))}
        for storage, tensor in written.items():
            if storage in made:
                moved[""][1].append(Move(tensor.elements, tensor.unit))
        # A model called without a cache creates one and returns it.
        cache = cache_of(call) or next((v for v in _fields_of(call.output) if is_kv_cache(v)), None)
        for storage, move in self._new_entries(cache):
            if storage in made and storage not in written:
                moved.setdefault(made[storage], ([], []))[1].append(move)
        # Layers of different kinds are counted separately, even if their traffic is equal.
        layers = {who: kind_of(modules[who], COUNTED_ALIKE) for who in moved if who}
        order = list(dict.fromkeys(layers[who] for who in moved if who))
        kinds = {who: order.index(layers[who]) for who in moved if who}
        return [
            Item(
                Key((), f"compulsory:{kinds[who]}" if who else "compulsory:rest", composite=True),
                -1,
                {f"read:{u}": a for u, a in _by_unit(tuple(reads)).items()}
                | {f"write:{u}": a for u, a in _by_unit(tuple(writes)).items()},
                "compulsory",
            )
            for who, (reads, writes) in moved.items()
        ]

    def _new_entries(self, cache: Any) -> list[tuple[int, Move]]:
        """For each tensor of the cache: its storage, and the part that the new tokens write."""
        found = []
        grows = getattr(cache, "self_attention_cache", cache)
        for layer in getattr(grows, "layers", []):
            held = {n: v for n, v in vars(layer).items() if isinstance(v, torch.Tensor)}
            # The states of a recurrence, stored in a dict by number.
            states = {n: v for n, v in vars(layer).items() if isinstance(v, dict)}
            held |= {f"{n}[{i}]": t for n, v in states.items() for i, t in v.items() if isinstance(t, torch.Tensor)}
            for name, tensor in held.items():
                if tensor.dim() >= 3:
                    entry = self.recording.describe(tensor)
                    rest = math.prod((*entry.shape[:-2], entry.shape[-1]), start=1)
                    # Keys and values grow by the new tokens; a recurrent state is rewritten whole.
                    made = rest * self.values["seq_len"] if name in GROWING else entry.elements
                    found.append((entry.storage, Move(made, entry.unit)))
        for layer in getattr(getattr(cache, "cross_attention_cache", None), "layers", []):
            for tensor in filter(lambda v: isinstance(v, torch.Tensor), vars(layer).values()):
                entry = self.recording.describe(tensor)
                found.append((entry.storage, Move(entry.elements, entry.unit)))
        return found

    def bindings(self, call: Call) -> dict[str, Size]:
        """Values of the called class's parameters at this call. Raises Unresolvable if a parameter has no value."""
        interface = self.interfaces[call.class_path]
        folded = self._leading(call) if "seq_len" in interface else {}
        return {
            name: folded[name] if name in folded else resolve(name, path, call, self.values, self.size)
            for name, path in interface.items()
        }

    def _leading(self, call: Call) -> dict[str, Size]:
        """batch_size and seq_len for a callee analysed with two leading dimensions, whatever this call has."""
        ranks = self.ranks.get(call.class_path)
        if not ranks:
            return {}
        name, rank = next(iter(ranks.items()))
        tensor = forward_arguments(call).get(name)
        if not isinstance(tensor, torch.Tensor):
            return {}
        shape = [self.size(s) for s in tensor.shape]
        leading = shape[: len(shape) - (rank - 2)]
        found = {"batch_size": leading[0] if leading else 1, "seq_len": math.prod(leading[1:], start=1)}
        for own, path in self.interfaces[call.class_path].items():
            trailing = re.fullmatch(rf"inputs\.{name}\.shape\[(\d+)\]", path)
            if trailing and int(trailing[1]) >= 2:
                found[own] = shape[int(trailing[1]) - rank]
        return found


def attribute(module: Any, path: str) -> Any:
    """Value of an attribute chain such as ``self_attn.sliding_window``; None if an attribute is missing or raises."""
    for part in path.split("."):
        try:
            module = getattr(module, part, None)
        except Exception:
            return None  # a config whose layers differ has no single value
    return module


def cache_argument(call: Call) -> tuple[str, Any] | None:
    """Name and value of the KV cache among forward()'s arguments; None if there is none."""
    for name, value in forward_arguments(call).items():
        if is_kv_cache(value):
            return name, value
    return None


def cache_of(call: Call) -> Any:
    found = cache_argument(call)
    return None if found is None else found[1]


def input_tensors(call: Call) -> list[tuple[str, torch.Tensor]]:
    """Tensors among forward()'s arguments with their names, including those inside tuples and lists."""
    found = []
    for name, value in forward_arguments(call).items():
        parts = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
        for index, tensor in parts:
            if isinstance(tensor, torch.Tensor):
                found.append((name if index is None else f"{name}[{index}]", tensor))
    return found


def sizes_given(call: Call) -> dict[str, Any]:
    """Path -> size: each dimension of a tensor argument of forward(), and each entry of a shape argument."""
    found = {f"inputs.{n}.shape[{d}]": size for n, t in input_tensors(call) for d, size in enumerate(t.shape)}
    for name, value in forward_arguments(call).items():
        if isinstance(value, torch.Size):
            found.update({f"inputs.{name}[{d}]": size for d, size in enumerate(value)})
    return found


NN_MODULES = "/torch/nn/modules/"


def _without_wrappers(items: list[Item]) -> list[Item | None]:
    """Move PyTorch's thin wrappers of one operator to the line in the module that calls them.

    A function of nn.functional with several operators (multi_head_attention_forward) keeps its own lines.
    """
    by_line: dict[Place, list[Item]] = {}
    for item in items:
        own = next((p for p in item.key.chain if NN_MODULES in p.file), None)
        if own is not None and item.key.chain[0] != own:
            by_line.setdefault(own, []).append(item)
    for own, inside in by_line.items():
        if len(inside) == 1:
            key = inside[0].key
            inside[0].key = Key(key.chain[key.chain.index(own) :], key.name, key.composite, key.within)
    return list(items)


def call_site(call: Call) -> CallSite | None:
    """Chain of lines and class path of a call; None for the outermost call."""
    return (call.site.chain, call.class_path) if call.site is not None else None


def differs(call: Call, recording: Recording) -> bool:
    """True if an input is broadcast, of another dtype, or of a KV cache: analyses assume dense activations."""
    for tensor in map(recording.describe, tensors_in((call.args, call.kwargs))):
        if any(tensor.shape[d] != 1 for d in tensor.broadcast):
            return True
        if tensor.floating and tensor.unit not in ("w_bytes", "a_bytes"):
            return True
    return False


def _least(given: Tensor | None, parts: list[Move]) -> Move:
    """Least traffic for one storage: an input or weight once, of a lookup table only the rows used."""
    if given is not None:
        return Move(given.elements, given.unit)
    whole = next((m for m in parts if m.whole), None)
    if whole is not None:
        return whole
    table = parts[0].tensor
    return Move(smaller(parts[0].elements, table.elements) if table else parts[0].elements, parts[0].unit)


def _fields_of(output: Any) -> list[Any]:
    """Values of a model's output that have names; empty if the output is no mapping."""
    return list(output.values()) if isinstance(output, Mapping) else []


def weight_items(call: Call, size: Callable[[Any], Size]) -> list[Item]:
    """Parameter counts: one item per element of the module's lists of layers, one for the rest.

    Tied weights count once.
    """
    seen: set[int] = set()

    def count(module: torch.nn.Module) -> Size:
        new = [p for p in module.parameters() if id(p) not in seen]
        seen.update(map(id, new))
        return sum((math.prod([size(s) for s in p.shape], start=1) for p in new), start=0)

    lists: list[torch.nn.ModuleList] = []
    inside: set[int] = set()
    for module in call.module.modules():
        if isinstance(module, torch.nn.ModuleList) and id(module) not in inside:
            lists.append(module)
            inside.update(map(id, module.modules()))
    key = Key((), "parameters", composite=True)
    layers = [Item(key, -3, {"elements": count(layer)}, "parameters") for modules in lists for layer in modules]
    return [
        Item(Key((), "parameters:rest", composite=True), -2, {"elements": count(call.module)}, "parameters"),
        *layers,
    ]


def _by_unit(moves: tuple[Move, ...]) -> dict[str, Size]:
    """Unit -> elements. Under the unit "" are the bytes of tensors in other dtypes."""
    total: dict[str, Size] = {}
    for move in moves:
        unit, amount = (str(move.unit), move.elements) if move.unit in UNIVERSAL else ("", move.elements * move.unit)
        total[unit] = total[unit] + amount if unit in total else amount
    return total


__all__ = ["Interface", "Item", "Key", "Observation", "Observer", "attribute", "forward_arguments"]
