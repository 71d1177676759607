"""Sequences of different lengths, and the longest: positions, masks, padding, packing, and what the config allows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from lmp.observe.flow import Op
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.kept import argument_line
from lmp.report.implementation.operators import (
    joined,
    pointer_at,
    shape_text,
)
from lmp.report.implementation.searching import Searched, ran_functions, reached_functions
from lmp.source.parsed import parse

LENGTHS = ("max_position_embeddings", "sliding_window", "n_positions", "attention_chunk_size", "max_seq_len")


def length_blocks(facts: ModelFacts) -> list[Block]:
    items: list[Line] = [*_positions(facts), *_masks(facts), *_given_mask(facts), *_padding(facts)]
    return [Bullets(items, searched="position ids and masks in the functions that run")]


def _positions(facts: ModelFacts) -> Iterator[Line]:
    for flow in facts.flows.phases.values():
        ranges = [op for op in flow.ops if op.name == "arange"]
        made = [op for op in ranges if "position" in _code(facts, op)]
        for op in made[:1]:
            line = op.frames[0].lines[0]
            shared = op.shape is None or not any("batch_size" in size for size in op.shape)
            yield [
                "positions are made at ",
                pointer_at(facts, line.file, line.line, "position_ids"),
                ", where the caller gives none: they count from the number of tokens in the cache",
                ", one range for all sequences of a batch" if shared else "",
                ". A batch padded on the left needs ",
                Code("position_ids"),
                " of its own" if shared else "",
            ]
        if made:
            return
    yield "positions: none found (searched: index ranges in the functions that run)"


def _code(facts: ModelFacts, op: Op) -> str:
    line = op.frames[0].lines[0]
    path = facts.trees.path_of(line.file)
    return parse(path).code(line.line) if path is not None and path.is_file() else ""


def _masks(facts: ModelFacts) -> Iterator[Line]:
    """The calls that make masks, and whether they made a tensor in the calls that ran."""
    calls = [
        (name, kernel)
        for name, analysis in facts.analyses.items()
        for kernel in analysis.kernels
        if kernel.category == "call" and "mask" in kernel.operation and kernel.file is None
    ]
    for name, kernel in calls:
        function = kernel.operation.removeprefix("call of ").removesuffix("()")
        # Of one dimension is what is made for a mask: positions, lengths.
        made = [op for op in _made_in(facts, function) if len(op.sizes) > 1]
        line: list[Inline] = [Code(f"{function}()"), " at ", facts.pointer(name, kernel.line, function)]
        if made:
            line.append(" makes a mask of ")
            line += joined([Code(shape_text(op)) for op in made[:2]])
            line.append(" in the calls that ran")
        else:
            line.append(" makes no mask in the calls that ran")
        yield line
    if not calls:
        found = Searched(facts, ran_functions(facts), ("*_mask(",))
        pointers = list(found.pointers())[:4]
        causal = [op for flow in facts.flows.phases.values() for op in flow.ops if op.causal]
        if pointers:
            yield ["masks are asked for at ", *joined(pointers), "; in the calls that ran no mask tensor is made"]
        if causal:
            line_of = causal[0].frames[0].lines[0]
            yield [
                "without padding attention is told to be causal and gets no mask: ",
                pointer_at(facts, line_of.file, line_of.line),
            ]


MASK = "attention_mask"


def _given_mask(facts: ModelFacts) -> Iterator[Line]:
    """What a padded batch changes: the caller's mask, and the decisions of functions that run which depend on one."""
    source = facts.sources[facts.model.class_name]
    place = argument_line(source.forward_path, source.lines, MASK)
    if place is None:
        yield f"a mask for padding: none found (searched: {MASK} among the arguments of forward())"
        return
    line: list[Inline] = [
        "padding is told by the caller's ",
        Code(MASK),
        " (",
        facts.place(source.forward_file, place, MASK),
        "); every figure of this report is of calls without one",
    ]
    decided = list(_decided(facts))
    if decided:
        line.append(". What the functions that run make of a mask stands in the lines that follow")
    yield line
    yield from decided


def _decided(facts: ModelFacts) -> Iterator[list[Inline]]:
    """Conditions on the mask with what is done by them, and values worked out from whether there is one."""
    for function in ran_functions(facts):
        for node in ast.walk(parse(function.path).tree):
            line = getattr(node, "lineno", 0)
            if not function.lines[0] <= line <= function.lines[1] or not _asks(node):
                continue
            said: list[Inline] = _branches(node) if isinstance(node, ast.If) else [Code(ast.unparse(node))]
            around = _condition(facts, function.file, line)
            if around is not None:
                said += [", all of it where ", Code(around)]
            yield [*said, " (", facts.place(function.file, line, MASK), ")"]


def _asks(node: ast.AST) -> bool:
    """An if's condition that names the mask without looking into it, or an assignment of such a condition."""
    match node:
        case ast.If(test=test):
            shown: ast.AST = test
        case ast.Assign(value=ast.BoolOp() as test):
            shown = test
        case _:
            return False
    inside = [n for n in ast.walk(shown) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    named = any(isinstance(n, ast.Name) and n.id == MASK for n in ast.walk(shown))
    looks = any(isinstance(n.value, ast.Name) and n.value.id == MASK for n in inside)
    return named and not looks


def _branches(node: ast.If) -> list[Inline]:
    """Every condition of a chain with the first statement that it leads to."""
    said: list[Inline] = []
    rest: list[ast.stmt] = [node]
    while len(rest) == 1 and isinstance(rest[0], ast.If):
        step = rest[0]
        said += ["; else where " if said else "where ", Code(ast.unparse(step.test)), ": ", *_first(step.body)]
        rest = step.orelse
    return [*said, *(["; else ", *_first(rest)] if rest else [])]


def _first(body: Sequence[ast.stmt]) -> list[Inline]:
    """The first statement, or what it does where it is long; and how many there are beside it."""
    first, text = body[0], ast.unparse(body[0])
    if "\n" not in text and len(text) <= LONGEST:
        said: list[Inline] = [Code(text)]
    elif isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name):
        said = [Code(first.targets[0].id), " is set"]
    else:
        said = [f"what stands in lines {first.lineno} to {first.end_lineno or first.lineno}"]
    more = len(body) - 1
    return [*said, f" and {more} more statement{'s' if more > 1 else ''}" if more else ""]


LONGEST = 90
"""Characters of a statement that is quoted."""


def _made_in(facts: ModelFacts, function: str) -> list[Op]:
    """The last operator of each kind of call that ran inside of a function."""
    found: dict[str, Op] = {}
    for phase, flow in facts.flows.phases.items():
        for op in flow.ops:
            if any(line.function == function for line in op.frames[0].lines):
                found[phase] = op
    return list(found.values())


PACKED = ("cu_seq*", "*varlen*", "*packed*(")


def _padding(facts: ModelFacts) -> Iterator[Line]:
    products = [op for flow in facts.flows.phases.values() for op in flow.ops if op.product is not None]
    if products:
        line: list[Inline] = [
            "sequences of a batch are as long as the longest: every product's M is ",
            Code("batch_size * seq_len"),
            ", padding included; several sequences packed into one row: ",
        ]
        found = _packed(facts)
        searched = Searched(facts, reached_functions(facts), PACKED).text
        yield [*line, *found] if found else [*line, f"none found (searched: {searched})"]


def _packed(facts: ModelFacts) -> list[Inline]:
    """Calls that tell packed sequences apart, with the condition that they stand under, made by functions of
    another purpose."""
    others = [f for f in reached_functions(facts) if "packed" not in f.name]
    line: list[Inline] = []
    found = Searched(facts, others, PACKED)
    for (file, number, _), pointer in list(zip(found.places, found.pointers(), strict=True))[:MOST]:
        condition = _condition(facts, file, number)
        line += ["; " if line else "", "told apart at ", pointer]
        line += [" where ", Code(condition)] if condition else []
    return line


MOST = 4


def _condition(facts: ModelFacts, file: str, line: int) -> str | None:
    """The innermost condition that a line stands under."""
    path = facts.trees.path_of(file)
    found: ast.If | None = None
    for node in ast.walk(parse(path).tree) if path is not None else ():
        if isinstance(node, ast.If) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            found = node if found is None or node.lineno > found.lineno else found
    return ast.unparse(found.test) if found is not None else None


# --- the longest -----------------------------------------------------------------------------------------------------


def maximum_blocks(facts: ModelFacts) -> list[Block]:
    items: list[Line] = []
    for name in LENGTHS:
        if f"config.{name}" in facts.named:
            where = _config_line(facts, name)
            beside: list[Inline] = [" (", where, ")"] if where is not None else []
            items.append([Code(name), " = ", facts.setting(name), *beside])
    items += list(_rope(facts))
    items += list(_refused(facts))
    items += list(_fitting(facts))
    return [Bullets(items, searched=f"{', '.join(LENGTHS)} in the config")]


def _config_line(facts: ModelFacts, name: str) -> Pointer | None:
    """Where the config's class declares a setting."""
    from lmp.errors import LmpError
    from lmp.source.locate import find_class, lineage_of
    from lmp.source.names import Names

    if facts.config_class is None:
        return None
    try:
        names = Names(facts.trees)
        order = lineage_of(find_class(facts.config_class, names), names).order
    except LmpError:
        return None
    for definition in order:
        node = definition.node
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            if re.match(rf"{re.escape(name)}\s*[:=]", parse(definition.path).code(number)):
                return facts.place(definition.module.tree.relative(definition.path), number, name)
    return None


def _rope(facts: ModelFacts) -> Iterator[Line]:
    settings = {
        name.rpartition(".")[2]: value
        for name, value in facts.settings.items()
        if re.match(r"(?:\w+\.)?rope_(?:parameters|scaling)\.", name)
    }
    kind = settings.get("rope_type")
    if kind is None:
        return
    others = ", ".join(f"{name} = {value}" for name, value in settings.items() if name != "rope_type")
    yield ["rotary positions of the type ", Code(str(kind)), f" ({others})" if others else ""]


def _refused(facts: ModelFacts) -> Iterator[Line]:
    found = Searched(facts, ran_functions(facts), ("max_position_embeddings", "max_seq_len", "n_positions"))
    pointers = list(found.pointers())
    if pointers:
        yield ["read in the functions that run at ", *joined(pointers)]
    else:
        yield f"a check that refuses longer inputs: none found (searched: {found.text})"


def _fitting(facts: ModelFacts) -> Iterator[Line]:
    """How many tokens of cache one device has room for beside the weights."""
    cache = facts.inspection.cache if facts.inspection is not None else None
    if cache is None or not cache.segments:
        return
    last = len(cache.segments) - 1
    names = {"b": f"cache.{last}.bytes_per_token", "c": f"cache.{last}.constant_bytes", "w": "weight_bytes"}
    if any(name not in facts.named for name in names.values()) or not facts.named[names["b"]]:
        return
    terms = {key: Term(name=name) for key, name in names.items()}
    terms["m"] = Term(constant=facts.device.memory, source=facts.device.source)
    number = facts.number("floor(({m} - {w} - {c}) / {b})", "", **terms)
    if number.value <= 0:
        yield f"on one {facts.device.name} the weights alone leave no room for a cache"
        return
    yield [
        f"beside the weights one {facts.device.name} has room for the cache of ",
        number,
        " tokens in all, activations left out",
    ]
