"""What a decode step does with all that is cached, beside attention: products and copies that grow with the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lmp.observe.flow import Flow, Op
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.operators import Kind, kinds_of, layer_of, plain, pointer_at
from lmp.report.implementation.searching import Searched, reached_functions

GROWING = "{cache_len}"
FORMS = ("*absorb*",)
"""Names of code that does such a product once a query, not once a cached token."""


def anew(facts: ModelFacts) -> Iterator[Line]:
    """Products over every cached token, with their FLOPs, and copies of what was made of the cache."""
    flow = facts.flows.phases.get("decode")
    if flow is None:
        return
    products = _by_place(facts, flow, [op for op in flow.ops if _rows_grow(op)])
    for (path, _), ops in products.items():
        yield _product(facts, path, ops)
    if products:
        found = Searched(facts, reached_functions(facts), FORMS)
        if not found.places:
            yield (
                "a form that does such a product once a query instead of once a cached token (absorbed into the "
                f"products before and after attention): none found (searched: {found.text})"
            )
    yield from _copies(facts, flow)


def _rows_grow(op: Op) -> bool:
    return op.category == "matmul" and op.product is not None and GROWING in op.product[1]


def _by_place(facts: ModelFacts, flow: Flow, ops: list[Op]) -> dict[tuple[str, int], list[tuple[Kind | None, Op]]]:
    """Path in a layer, and line -> of each kind of layer the kind, and the operator."""
    kinds = {(kind.stack, kind.run): kind for kind in kinds_of(facts, flow)}
    found: dict[tuple[str, int], list[tuple[Kind | None, Op]]] = {}
    for op in ops:
        path = op.frames[0].path
        layer = layer_of(path)
        kind = kinds.get((layer[0], layer[1])) if layer else None
        if layer is not None and kind is None and kinds:
            continue
        inner = layer[2] if layer is not None else path
        found.setdefault((inner, op.frames[0].lines[0].line), []).append((kind, op))
    return found


def counted_at(facts: ModelFacts, point: Point, op: Op, path_of: Callable[[str], str | None]) -> dict[str, Any] | None:
    """What chooses the kernels of a product (see `Term`): those at its own line, or at a line that calls its module.

    A call of a module on a tensor of the cache is inlined, because the module's own analysis is for activations.
    ``path_of``: path of a module that was run -> its path in the whole model, or None if it is none of those asked for.
    """
    for frame in op.frames:
        path = path_of(frame.path)
        for line in frame.lines if path is not None else ():
            choice: dict[str, Any] = {
                "path": path,
                "class_name": frame.class_name,
                "category": op.category,
                "line": line.line,
            }
            if facts.value(Term(point=point.key, quantity="flops", **choice)):
                return choice
    return None


def _counted(facts: ModelFacts, point: Point, kind: Kind | None, op: Op) -> Term | None:
    """The FLOPs of a product in all layers of a kind."""

    def path_of(path: str) -> str:
        layer = layer_of(path)
        return path if kind is None or layer is None else ".".join(filter(None, (kind.path, layer[2])))

    choice = counted_at(facts, point, op, path_of)
    return None if choice is None else Term(point=point.key, quantity="flops", **choice)


def _product(facts: ModelFacts, path: str, ops: list[tuple[Kind | None, Op]]) -> list[Inline]:
    op = ops[0][1]
    assert op.product is not None
    batches, *sizes = op.product
    factors = [f"({s})" if any(sign in s for sign in "+-/") else s for s in (batches, *sizes) if s != "1"]
    caller = op.frames[1] if op.frames[0].class_name.startswith("torch.") and len(op.frames) > 1 else op.frames[0]
    first = caller.lines[0]
    line: list[Inline] = [
        "every decode step runs ",
        Code(path),
        " over all cached tokens again, not over the new one alone (",
        pointer_at(facts, first.file, first.line, path.rpartition(".")[2]),
        "): ",
        plain(" * ".join(["2", *factors])),
        " FLOPs a layer",
    ]
    for point in _decode(facts):
        counted = [_counted(facts, point, *each) for each in ops]
        terms = {f"a{n}": term for n, term in enumerate(counted) if term is not None}
        if len(terms) < len(ops):
            line.append(f"; {point.title}: none found (searched: formulas at its line and at those that call it)")
            continue
        total = " + ".join(f"{{{name}}}" for name in terms)
        whole = Term(point=point.key, quantity="flops")
        line += [f"; {point.title}: ", facts.number(total, "FLOP", **terms), ", "]
        line += [facts.number(f"100 * ({total}) / {{all}}", "%", **terms, all=whole), " of the call"]
    return line


def _copies(facts: ModelFacts, flow: Flow) -> Iterator[Line]:
    """Operators that only move memory as long as the cache, those that write the cache left out."""
    kept = {t.maker for t in flow.tensors if t.kind == "cache"}
    growing = [op for op in flow.ops if op.index not in kept and op.category == "copy" and _is_long(op)]
    places: dict[str, set[tuple[str, int]]] = {}
    for op in growing:
        helper = op.frames[0].lines[0].function
        places.setdefault(helper, set()).add((op.frames[0].class_name, op.frames[0].lines[0].line))
    for helper, found in places.items():
        first = next(op.frames[0].lines[0] for op in growing if op.frames[0].lines[0].function == helper)
        line: list[Inline] = [
            Code(f"{helper}()"),
            " writes copies as long as the cache in every decode step, from ",
            pointer_at(facts, first.file, first.line),
        ]
        for point in _decode(facts):
            terms = {
                f"a{n}": Term(point=point.key, quantity="bytes", class_name=name, line=number, category="copy")
                for n, (name, number) in enumerate(sorted(found))
            }
            total = " + ".join(f"{{{name}}}" for name in terms)
            whole = Term(point=point.key, quantity="bytes")
            line += [f"; {point.title}: ", facts.number(total, "B", **terms), " read and written, "]
            line += [facts.number(f"100 * ({total}) / {{all}}", "%", **terms, all=whole), " of the call's traffic"]
        yield line


def _is_long(op: Op) -> bool:
    return op.shape is not None and any(GROWING in size for size in op.shape)


def _decode(facts: ModelFacts) -> list[Point]:
    return [point for point in facts.points if point.phase == "decode"]
