"""What one run showed of each module call: its own operators and the modules it called, with their lines.

An item is identified by the chain of lines that led to it from ``forward()``, so that the same operator of the same
line can be told from run to run, and two calls of one helper function from one another.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from lmp.trace.recording import Executed, Recording
from lmp.trace.rules import Move, Size, Tensor, smaller
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call, Place
from lmp.workload.configs import STANDARD_NAMES
from lmp.workload.results import tensors_in

BYTE_UNITS = ("w_bytes", "a_bytes")

CACHED = ".keys.shape[2]"
"""How the path of ``cache_len`` ends."""

DIMS = ".ndim"
"""How the path of a tensor's number of dimensions ends."""

ITEM = ".dtype.itemsize"
"""How the path of a tensor's bytes per element ends."""

GROWING = ("keys", "values")
"""Tensors of a cache's layer that hold an entry for each token."""

SAME_WORK = {"addmm": "mm", "baddbmm": "bmm"}
"""An operator that adds a bias to a product is that product and an addition: with and without bias it is one kernel."""


@dataclass(frozen=True)
class Key:
    """Identity of a kernel across runs: where it stands, and what it is."""

    chain: tuple[Place, ...]
    name: str
    composite: bool
    within: tuple[Place, ...] = ()
    """Of an operator of a called module that is written out at the call: its places inside that module."""

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.chain, self.name, self.composite, self.within))

    def __hash__(self) -> int:
        # Kept: every quantity of every kernel is looked up by it in every run.
        return self._hash


@dataclass
class Item:
    """One operator, or one call of a module, in one run. ``fields`` are its numbers (or formulas)."""

    key: Key
    order: int
    fields: dict[str, Size]
    category: str
    count: int = 1
    times: int = 1
    """Executions that ``fields`` are the sum of: a loop whose steps have different shapes is one item."""
    causal: bool = False
    counted: bool = True
    operator: Any = None
    child: Call | None = None


@dataclass
class Observation:
    """All items of one module call in one run, in the order in which they ran."""

    call: Call
    values: Mapping[str, Any]
    items: dict[tuple[Key, int], Item] = field(default_factory=dict)


CallSite = tuple[tuple[Place, ...], str]
"""Where a module is called, and its class."""

Interface = Mapping[str, str]
"""Parameters of an analysis: name -> path."""


class Observer:
    """Splits a recording by module call. ``interfaces`` says which parameters a called class wants bound."""

    def __init__(
        self,
        recording: Recording,
        values: Mapping[str, Any],
        size: Callable[[Any], Size],
        interfaces: Mapping[str, Interface],
        ranks: Mapping[str, Mapping[str, int]],
        written_out: Set[CallSite] = frozenset(),
    ) -> None:
        self.recording, self.values, self.size = recording, values, size
        self.interfaces, self.ranks, self.written_out = interfaces, ranks, written_out

    def observe(self, call: Call) -> Observation:
        """The items of this call; equal items of one key (a loop) are one item with a count."""
        found = Observation(call, self.values)
        items = _without_wrappers([i for e in self.recording.below(call) if (i := self._basic(e, call)) is not None])
        items += [self._composite(c, call) for c in self._called(call)]
        items += [*weight_items(call, self.size), *self._compulsory(call)]
        groups: dict[Key, dict[Any, Item]] = {}
        for item in sorted((i for i in items if i is not None), key=lambda i: i.order):
            same = groups.setdefault(item.key, {})
            content = tuple(sorted((name, str(value)) for name, value in item.fields.items()))
            if content in same:
                same[content].count += 1
                continue
            found.items[item.key, len(same)] = item
            same[content] = item
        return found

    def _basic(self, executed: Executed, call: Call) -> Item | None:
        """The operator as an item of this call, if it is its own or that of a called module that is written out."""
        if not self.written_out and executed.segments[0].call is not call:
            return None
        depth = next((d for d, s in enumerate(executed.segments) if s.call is call), None)
        if depth is None or any(self._referred(s.call) for s in executed.segments[:depth]):
            return None
        found = executed.cost
        name = SAME_WORK.get(executed.operator.name, executed.operator.name)
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

    def _referred(self, call: Call) -> bool:
        """Whether a called module stands as a reference: it is not written out, or inside of one that is no more."""
        return not self.written_out or call_site(call) not in self.written_out

    def _called(self, call: Call) -> Iterator[Call]:
        """The calls that stand as references in a call, also those made by modules that are written out in it."""
        for inner in self.recording.called_by(call):
            if self._referred(inner):
                yield inner
            else:
                yield from self._called(inner)

    def _composite(self, call: Call, within: Call) -> Item | None:
        """A call as an item of the module call ``within`` that makes it, directly or in modules written out there."""
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
        """Memory that a fusion of the whole call would still have to move: what comes from outside, what leaves.

        What belongs to one element of a list of layers is an item of its own, so that layers can be counted.
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
        # A model that was given no cache makes one and returns it.
        cache = cache_of(call) or next(
            (v for v in _fields_of(call.output) if hasattr(v, "get_seq_length") and v is not None), None
        )
        for storage, move in self._new_entries(cache):
            if storage in made and storage not in written:
                moved.setdefault(made[storage], ([], []))[1].append(move)
        # Layers of different kinds are counted apart, also where they move the same.
        layers = {who: layer_kind(modules[who]) for who in moved if who}
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
        """The part of each of the cache's tensors that the new tokens make, with the tensor's storage."""
        found = []
        grows = getattr(cache, "self_attention_cache", cache)
        for layer in getattr(grows, "layers", []):
            held = {n: v for n, v in vars(layer).items() if isinstance(v, torch.Tensor)}
            # The states of a recurrence, each under its number.
            states = {n: v for n, v in vars(layer).items() if isinstance(v, dict)}
            held |= {f"{n}[{i}]": t for n, v in states.items() for i, t in v.items() if isinstance(t, torch.Tensor)}
            for name, tensor in held.items():
                if tensor.dim() >= 3:
                    entry = self.recording.describe(tensor)
                    rest = math.prod((*entry.shape[:-2], entry.shape[-1]), start=1)
                    # Keys and values grow by the new tokens; the state of a recurrence is made anew.
                    made = rest * self.values["seq_len"] if name in GROWING else entry.elements
                    found.append((entry.storage, Move(made, entry.unit)))
        for layer in getattr(getattr(cache, "cross_attention_cache", None), "layers", []):
            for tensor in filter(lambda v: isinstance(v, torch.Tensor), vars(layer).values()):
                entry = self.recording.describe(tensor)
                found.append((entry.storage, Move(entry.elements, entry.unit)))
        return found

    def bindings(self, call: Call) -> dict[str, Size]:
        """Values of the called class's parameters at this call."""
        interface = self.interfaces[call.class_path]
        folded = self._leading(call) if "seq_len" in interface else {}
        return {name: folded[name] if name in folded else self.resolve(path, call) for name, path in interface.items()}

    def _leading(self, call: Call) -> dict[str, Size]:
        """batch_size and seq_len of a module that was analysed with two leading dimensions, whatever this call has."""
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

    def resolve(self, path: str, call: Call) -> Size:
        """The value that a parameter's path has at this call. Raises LookupError when there is none."""
        root, _, rest = path.partition(".")
        if path in RUNTIME:
            return self.values[path]
        if path.endswith(DIMS):
            given = forward_arguments(call).get(path.removeprefix("inputs.").removesuffix(DIMS))
            return given.dim() if isinstance(given, torch.Tensor) else 0
        if path.endswith(ITEM):
            given = forward_arguments(call).get(path.removeprefix("inputs.").removesuffix(ITEM))
            return given.dtype.itemsize if isinstance(given, torch.Tensor) else 0
        if root == "config":
            return self._of_config(rest, call)
        if path.endswith(CACHED):
            return self.values["cache_len"] if cache_of(call) is not None else 0
        if root == "self":
            return _as_size(attribute(call.module, rest), self.size)
        if root == "init":
            arguments = constructor_arguments(call.module)
            first, _, inside = rest.partition(".")
            if first.split("[")[0] not in arguments:
                raise LookupError(f"{path}: no such constructor argument")
            return _as_size(attribute(arguments[first], inside) if inside else arguments[first], self.size)
        match = re.fullmatch(r"inputs\.(\w+)(?:\[(\d+)\])?(?:\.shape\[(-?\d+)\])?", path)
        if match:
            tensor = forward_arguments(call).get(match[1])
            if isinstance(tensor, torch.Size) and match[2] is not None:
                return self.size(tensor[int(match[2])])
            if match[2] is not None and isinstance(tensor, (list, tuple)) and int(match[2]) < len(tensor):
                tensor = tensor[int(match[2])]
            if tensor is None:
                return 0  # an input that is not there has no tokens
            if match[3] is None:
                return 1
            if isinstance(tensor, torch.Tensor) and -tensor.dim() <= int(match[3]) < tensor.dim():
                return self.size(tensor.shape[int(match[3])])
        raise LookupError(f"{path}: cannot be resolved at this call")

    def _of_config(self, name: str, call: Call) -> Size:
        """A value of the module's own config, which may be a part of the model's or a changed copy of it."""
        attribute_name = name.rpartition(".")[2]
        value = attribute(call.module, f"config.{attribute_name}")
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return self.size(value)
        return self.values[STANDARD_NAMES.get(attribute_name, attribute_name)]


def attribute(module: Any, path: str) -> Any:
    """An attribute chain such as ``self_attn.sliding_window``; None where it ends early, or refuses to be read."""
    for part in path.split("."):
        try:
            module = getattr(module, part, None)
        except Exception:
            return None  # a config whose layers differ has no one value
    return module


def _as_size(value: Any, size: Callable[[Any], Size]) -> Size:
    """A value as a size: flags are 0 or 1, what is not there is 0, a module or tensor that is there is 1."""
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (torch.nn.Module, torch.Tensor)):
        return 1
    if isinstance(value, (int, torch.SymInt)):
        return size(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, (int, torch.SymInt)) for v in value):
        sizes = [size(v) for v in value]
        if all(s == sizes[0] for s in sizes):
            return sizes[0]
    raise LookupError(f"{value!r} is no size")


def forward_arguments(call: Call) -> dict[str, Any]:
    """Arguments of ``forward()`` by name."""
    signature = _signature(type(call.module).forward)
    try:
        bound = signature.bind_partial(call.module, *call.args, **call.kwargs)
    except TypeError:
        return dict(call.kwargs)
    found = {name: value for name, value in bound.arguments.items() if name != "self"}
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and isinstance(found.get(name), dict):
            found.update(found.pop(name))
    return found


@functools.lru_cache(maxsize=512)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def cache_argument(call: Call) -> tuple[str, Any] | None:
    """The KV cache among forward()'s arguments, and the name under which it came."""
    for name, value in forward_arguments(call).items():
        if hasattr(value, "get_seq_length"):
            return name, value
    return None


def cache_of(call: Call) -> Any:
    found = cache_argument(call)
    return None if found is None else found[1]


def input_tensors(call: Call) -> list[tuple[str, torch.Tensor]]:
    """Tensors among forward()'s arguments, tuples of tensors included, each with its name."""
    found = []
    for name, value in forward_arguments(call).items():
        parts = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
        for index, tensor in parts:
            if isinstance(tensor, torch.Tensor):
                found.append((name if index is None else f"{name}[{index}]", tensor))
    return found


def sizes_given(call: Call) -> dict[str, Any]:
    """Path -> size: each dimension of a tensor among forward()'s arguments, and each entry of a shape among them."""
    found = {f"inputs.{n}.shape[{d}]": size for n, t in input_tensors(call) for d, size in enumerate(t.shape)}
    for name, value in forward_arguments(call).items():
        if isinstance(value, torch.Size):
            found.update({f"inputs.{name}[{d}]": size for d, size in enumerate(value)})
    return found


NN_MODULES = "/torch/nn/modules/"


def _without_wrappers(items: list[Item]) -> list[Item | None]:
    """PyTorch's thin functions around one operator are the operator: its line is the one in the module.

    A function of nn.functional that does more (multi_head_attention_forward) has lines of its own.
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
    """Where a module was called, by line; None for the outermost one."""
    return (call.site.chain, call.class_path) if call.site is not None else None


def differs(call: Call, recording: Recording) -> bool:
    """Whether a call's inputs cost other than dense tensors of the model's dtype, which an analysis assumes."""
    for tensor in map(recording.describe, tensors_in((call.args, call.kwargs))):
        if any(tensor.shape[d] != 1 for d in tensor.broadcast):
            return True
        if tensor.floating and tensor.unit not in BYTE_UNITS:
            return True
    return False


def _least(given: Tensor | None, parts: list[Move]) -> Move:
    """The least of one memory that must be read: an input or a weight once, of a table the rows that are looked up."""
    if given is not None:
        return Move(given.elements, given.unit)
    whole = next((m for m in parts if m.whole), None)
    if whole is not None:
        return whole
    table = parts[0].tensor
    return Move(smaller(parts[0].elements, table.elements) if table else parts[0].elements, parts[0].unit)


def _fields_of(output: Any) -> list[Any]:
    """What a model returns, as far as it says by name what each is."""
    return list(output.values()) if isinstance(output, Mapping) else []


def weight_items(call: Call, size: Callable[[Any], Size]) -> list[Item]:
    """Numbers of parameters: of each element of the module's lists of layers, and of the rest; tied ones once."""
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


def layer_kind(layer: torch.nn.Module) -> Any:
    """What makes a layer the kind it is: the classes in it, its switches, and which of its attributes are there."""

    def mark(value: Any) -> Any:
        return value if isinstance(value, (bool, str, type(None))) else type(value) in (int, torch.SymInt)

    return tuple(
        (name, type(module).__qualname__, tuple((k, mark(v)) for k, v in vars(module).items() if not k.startswith("_")))
        for name, module in layer.named_modules()
    )


def _by_unit(moves: tuple[Move, ...]) -> dict[str, Size]:
    """Elements by what each costs; of tensors in another dtype, their bytes."""
    total: dict[str, Size] = {}
    for move in moves:
        unit, amount = (str(move.unit), move.elements) if move.unit in BYTE_UNITS else ("", move.elements * move.unit)
        total[unit] = total[unit] + amount if unit in total else amount
    return total


__all__ = ["Interface", "Item", "Key", "Observation", "Observer", "attribute", "forward_arguments"]
