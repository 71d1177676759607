"""What a decode step does with all that is cached, beside attention: products and copies that grow with the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lmp.observe.flow import Op
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Pointer
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.operators import Kind, kinds_of, layer_of, pointer_at

GROWING = "{cache_len}"


@dataclass(frozen=True)
class Growing:
    """A product over every cached token in each decode step, in all kinds of layers that have it."""

    facts: ModelFacts
    pointer: Pointer
    ops: tuple[tuple[Kind | None, Op], ...]

    def terms(self, point: Point) -> dict[str, Term]:
        """Its FLOPs in all layers; empty where no formula has all of them."""
        found = [_counted(self.facts, point, kind, op) for kind, op in self.ops]
        return {f"a{n}": term for n, term in enumerate(found) if term is not None} if None not in found else {}


def growing_products(facts: ModelFacts) -> dict[str, Growing]:
    """Path in a layer -> the product."""
    flow = facts.flows.phases.get("decode")
    if flow is None:
        return {}
    kinds = {(kind.stack, kind.run): kind for kind in kinds_of(facts, flow)}
    found: dict[str, list[tuple[Kind | None, Op]]] = {}
    for op in flow.ops:
        if op.category != "matmul" or op.product is None or GROWING not in op.product[1]:
            continue
        path = op.frames[0].path
        layer = layer_of(path)
        kind = kinds.get((layer[0], layer[1])) if layer else None
        if layer is None or kind is not None or not kinds:
            found.setdefault(layer[2] if layer is not None else path, []).append((kind, op))
    return {path: Growing(facts, _caller(facts, ops[0][1], path), tuple(ops)) for path, ops in found.items()}


def _caller(facts: ModelFacts, op: Op, path: str) -> Pointer:
    inner = op.frames[0]
    line = (op.frames[1] if inner.class_name.startswith("torch.") and len(op.frames) > 1 else inner).lines[0]
    return pointer_at(facts, line.file, line.line, path.rpartition(".")[2])


def counted_at(facts: ModelFacts, point: Point, op: Op, path_of: Callable[[str], str | None]) -> dict[str, Any] | None:
    """What chooses the kernels of a product (see `Term`): those at its own line, or at a line that calls its module.

    A call of a module on a tensor of the cache is inlined, because the module's own analysis is for activations.
    ``path_of``: path of a module that was run -> its path in the whole model, or None if it is none of those asked for.
    """
    for frame in op.frames:
        path = path_of(frame.path)
        for line in frame.lines if path is not None else ():
            choice = {"path": path, "class_name": frame.class_name, "category": op.category, "line": line.line}
            if facts.value(Term(point=point.key, quantity="flops", **choice)):  # type: ignore[arg-type]
                return choice
    return None


def _counted(facts: ModelFacts, point: Point, kind: Kind | None, op: Op) -> Term | None:
    """The FLOPs of a product in all layers of a kind."""

    def path_of(path: str) -> str:
        layer = layer_of(path)
        return path if kind is None or layer is None else ".".join(filter(None, (kind.path, layer[2])))

    choice = counted_at(facts, point, op, path_of)
    return None if choice is None else Term(point=point.key, quantity="flops", **choice)


def growing_copies(facts: ModelFacts) -> dict[str, tuple[list[tuple[str, int]], Pointer]]:
    """Function -> class and line of each copy as long as the cache that it makes, and where the first one is.

    What writes the cache itself is left out.
    """
    flow = facts.flows.phases.get("decode")
    if flow is None:
        return {}
    kept = {t.maker for t in flow.tensors if t.kind == "cache"}
    found: dict[str, dict[tuple[str, int], Op]] = {}
    for op in flow.ops:
        long = op.shape is not None and any(GROWING in size for size in op.shape)
        if op.index not in kept and op.category == "copy" and long and op.frames[0].lines:
            line = op.frames[0].lines[0]
            found.setdefault(line.function, {}).setdefault((op.frames[0].class_name, line.line), op)
    result = {}
    for helper, ops in found.items():
        line = next(iter(ops.values())).frames[0].lines[0]
        result[helper] = (sorted(ops), pointer_at(facts, line.file, line.line))
    return result
