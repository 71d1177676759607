"""How the KV cache works: who writes it, what it holds, and what a step of decoding does to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lmp.errors import LmpError
from lmp.observe.flow import Flow, Op, Tensor
from lmp.records import short
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.expanding import anew
from lmp.report.implementation.fixed_cache import fixed_line
from lmp.report.implementation.operators import code_at, kinds_of, layer_of, plain, pointer_at, searched, shape_text
from lmp.source.lines import enclosing_function


def cache_blocks(facts: ModelFacts) -> list[Block]:
    """Writers, tensors, bytes a token, and what a step copies."""
    if "cache_len" not in facts.model.parameters:
        return [Bullets([], searched=f"a KV cache among the inputs and outputs of {short(facts.model.class_name)}")]
    items = [*_writers(facts), *_tensors(facts), *cache_of_a_token(facts), *_kept(facts), *_copied(facts)]
    items += list(anew(facts))
    fixed = fixed_line(facts) if any(_copied(facts)) else None
    items += [fixed] if fixed is not None else []
    return [Bullets(items, searched=f"operators that write the cache in {searched(facts)}")]


def _cached(flow: Flow) -> list[Tensor]:
    return [tensor for tensor in flow.tensors if tensor.kind == "cache" and tensor.maker is not None]


def _writers(facts: ModelFacts) -> Iterator[Line]:
    """Each function that makes tensors of the cache, with its lines and the line of the model that calls it."""
    found: dict[str, dict[tuple[str, int], Op]] = {}
    for flow in facts.flows.phases.values():
        for tensor in _cached(flow):
            assert tensor.maker is not None
            op = flow.ops[tensor.maker]
            line = op.frames[0].lines[0]
            name = _qualified(facts, line.file, line.line) or line.function
            found.setdefault(name, {}).setdefault((line.file, line.line), op)
    for name, ops in found.items():
        yield _writer(facts, name, list(ops.values()))


def _writer(facts: ModelFacts, name: str, ops: Sequence[Op]) -> list[Inline]:
    said: list[Inline] = [Code(name), f" writes it ({', '.join(dict.fromkeys(op.words for op in ops))}): "]
    for number, op in enumerate(ops):
        line = op.frames[0].lines[0]
        made = made_name(facts, op)
        said += [", " if number else "", f"{made} " if made else "", pointer_at(facts, line.file, line.line)]
    frame = ops[0].frames[0]
    outer = frame.lines[-1]
    if len(frame.lines) > 1:
        said += [
            ", called by ",
            Code(short(frame.class_name)),
            " at ",
            pointer_at(facts, outer.file, outer.line, "update"),
        ]
    return said


def made_name(facts: ModelFacts, op: Op) -> str:
    """What the operator's line calls its result: ``keys`` of ``self.keys = torch.cat(...)``."""
    line = op.frames[0].lines[0]
    found = re.match(r"(?:self\.)?(\w+)\s*=[^=]", code_at(facts, line.file, line.line))
    return found[1] if found else ""


def _qualified(facts: ModelFacts, file: str, line: int) -> str | None:
    path = facts.trees.path_of(file)
    try:
        function = enclosing_function(path, line) if path is not None else None
    except LmpError:
        return None
    return function.qualname if function is not None else None


def _tensors(facts: ModelFacts) -> Iterator[Line]:
    """The tensors that one layer of each kind keeps, as they are after a decode step, or after prefill."""
    phase, flow = list(facts.flows.phases.items())[-1]
    kinds = {(kind.stack, kind.run): kind for kind in kinds_of(facts, flow)}
    point = next(p for p in facts.points if p.phase == phase)
    alike: dict[tuple[str, str | None], dict[str, dict[str, None]]] = {}
    for tensor in _cached(flow):
        assert tensor.maker is not None
        op = flow.ops[tensor.maker]
        found = layer_of(op.frames[0].path)
        kind = kinds.get((found[0], found[1])) if found else None
        if found is None or kind is not None or not kinds:
            group = alike.setdefault((f"{shape_text(op)} {tensor.dtype}", tensor.formula), {})
            group.setdefault(kind.name if kind is not None else "", {})[made_name(facts, op) or op.words] = None
    for (text, formula), layers in alike.items():
        names = dict.fromkeys(name for inside in layers.values() for name in inside)
        where = " and ".join(layer for layer in layers if layer)
        line: list[Inline] = [f"{where}: " if where else "", " and ".join(names), " ", Code(text)]
        if formula is not None:
            each = ", each " if len(names) > 1 else ", "
            line += [each, plain(formula), " bytes = ", facts.of_formula(formula, point, "B")]
        yield [*[piece for piece in line if piece != ""], f" a layer, after {point.title}"]


def cache_of_a_token(facts: ModelFacts) -> Iterator[Line]:
    """Bytes of the cache a token of one sequence, in all layers together."""
    cache = facts.inspection.cache if facts.inspection is not None else None
    if cache is None or not cache.segments:
        reason = cache.reason if cache is not None else "there is no model to run"
        yield f"bytes of the cache a token: none found (searched: the cache that the model returns; {reason})"
        return
    for number, segment in enumerate(cache.segments):
        name = f"cache.{number}"
        if f"{name}.bytes_per_token" not in facts.named:
            continue
        end = "on" if segment.to_tokens is None else f"to {segment.to_tokens:,}"
        part = f" from token {segment.from_tokens:,} {end}" if len(cache.segments) > 1 else ""
        line: list[Inline] = [f"KV cache{part}: "]
        line += [facts.number("{a}", "B", a=Term(name=f"{name}.bytes_per_token")), " a token and sequence"]
        if segment.constant_bytes:
            line += [", and ", facts.number("{a}", "B", a=Term(name=f"{name}.constant_bytes")), " however many"]
        yield line


def _kept(facts: ModelFacts) -> Iterator[Line]:
    """Where the cache keeps more memory alive than its tensors show: they are views of longer ones."""
    for point in facts.points:
        peak = facts.flows.peaks.get(point.key)
        shown = _shown(facts, point)
        # A window drops one token a step, which its storage still holds: that much is not worth a line.
        if peak is None or shown is None or 100 * shown[1] >= 99 * peak.cache_after:
            continue
        kept = facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.cache_after"))
        yield [
            f"after {point.title} its storages hold ",
            kept,
            ", of which its tensors show ",
            shown[0],
            ": the rest is kept alive by views of what is no longer needed",
        ]


def _shown(facts: ModelFacts, point: Point) -> tuple[Inline, int] | None:
    """Bytes that the tensors of the cache show after a call at the point."""
    cache = facts.inspection.cache if facts.inspection is not None else None
    tokens = point.values["seq_len"] + point.values["cache_len"]
    for number, segment in enumerate(cache.segments if cache is not None else ()):
        if segment.from_tokens <= tokens and (segment.to_tokens is None or tokens <= segment.to_tokens):
            if f"cache.{number}.bytes_per_token" not in facts.named or segment.steps_of:
                return None
            found = facts.number(
                "{n} * ({t} * {b} + {c})", "B",
                n=Term(constant=point.values["batch_size"], source="batch size of the point"),
                t=Term(constant=tokens, source="tokens of the point"),
                b=Term(name=f"cache.{number}.bytes_per_token"), c=Term(name=f"cache.{number}.constant_bytes"),
            )  # fmt: skip
            return found, int(found.value)
    return None


def _copied(facts: ModelFacts) -> Iterator[Line]:
    """What a step of decoding moves only to make the cache longer."""
    flow = facts.flows.phases.get("decode")
    if flow is None:
        return
    copies = [flow.ops[t.maker] for t in _cached(flow) if t.maker is not None and flow.ops[t.maker].name == "cat"]
    if not copies:
        return
    lines = sorted({op.frames[0].lines[0].line for op in copies})
    class_name = copies[0].frames[0].class_name
    for point in facts.points:
        if point.phase != "decode":
            continue
        terms = {
            f"a{line}": Term(point=point.key, quantity="bytes", class_name=class_name, line=line, category="copy")
            for line in lines
        }
        whole = Term(point=point.key, quantity="bytes")
        moved = facts.number(" + ".join(f"{{{name}}}" for name in terms), "B", **terms)
        share = facts.number(f"100 * ({' + '.join(f'{{{n}}}' for n in terms)}) / {{all}}", "%", **terms, all=whole)
        yield [
            f"{point.title}: making it one token longer copies all of it, ",
            moved,
            " read and written, ",
            share,
            " of the call's traffic",
        ]
