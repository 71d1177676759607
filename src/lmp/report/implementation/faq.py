"""Section 9: the five questions, answered for this model with the places that answer them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lmp.pipeline.flow import Op
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation.caching import cache_blocks, cache_of_a_token
from lmp.report.implementation.kept import argument_line, kept_line
from lmp.report.implementation.operators import (
    Catalogue,
    further,
    joined,
    pointer_at,
    row_pointer,
    searched,
    shape_text,
)
from lmp.report.implementation.peaks import with_weights
from lmp.report.implementation.performance import devices_needed
from lmp.report.implementation.searching import Searched, ran_functions, reached_functions
from lmp.source.parsed import parse

ONE_KERNEL = {
    "scaled_dot_product_attention": "attention with its softmax", "_grouped_mm": "the products of all experts",
    "addmm": "a product with its bias", "baddbmm": "batched products with their bias",
    "_fused_rms_norm": "RMS normalization", "native_layer_norm": "layer normalization",
    "_softmax": "softmax", "silu": "SiLU", "gelu": "GELU",
}  # fmt: skip
"""ATen operators that do in one what would be several."""

SUPPORTS = re.compile(r"^_(?:supports_\w+|can_compile_fullgraph)\s*=\s*True")
HOOKS = re.compile(r"@(use_\w+)")
LENGTHS = ("max_position_embeddings", "sliding_window", "n_positions", "attention_chunk_size", "max_seq_len")


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """Each answer is of the code that ran, of the config, and of the numbers at the stated points."""
    return Section(
        "9. Technical FAQ",
        sections=[
            _titled("Q: How are variable sequence lengths handled?", _lengths(facts), told),
            _titled("Q: What is the maximum supported sequence length?", _maximum(facts), told),
            _titled("Q: What operations are fused?", _fused(facts), told),
            _titled("Q: What hardware is required?", _hardware(facts), told),
            _titled("Q: How does the KV cache work?", cache_blocks(facts), told),
        ],
    )


def _titled(question: str, answer: list[Block], told: Told | None) -> Section:
    return Section(question, [Paragraph("A:"), *answer, *further(told, question)])


# --- lengths ---------------------------------------------------------------------------------------------------------


def _lengths(facts: ModelFacts) -> list[Block]:
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
        line.append(". What functions that run decide by there being a mask: ")
        for number, (text, pointer) in enumerate(decided):
            line += ["; " if number else "", Code(text), " at ", pointer]
    yield line


def _decided(facts: ModelFacts) -> Iterator[tuple[str, Pointer]]:
    """Conditions on the mask, and values that are worked out from whether there is one."""
    functions = ran_functions(facts)
    for function in functions:
        for node in ast.walk(parse(function.path).tree):
            shown = _asks(node)
            line = getattr(node, "lineno", 0)
            if shown is not None and function.lines[0] <= line <= function.lines[1]:
                yield ast.unparse(shown), facts.place(function.file, line, MASK)


def _asks(node: ast.AST) -> ast.AST | None:
    """An if's condition that names the mask without looking into it, or an assignment of such a condition."""
    match node:
        case ast.If(test=test):
            shown: ast.AST = test
        case ast.Assign(value=ast.BoolOp() as test):
            shown = node
        case _:
            return None
    inside = [n for n in ast.walk(test) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    named = any(isinstance(n, ast.Name) and n.id == MASK for n in ast.walk(test))
    looks = any(isinstance(n.value, ast.Name) and n.value.id == MASK for n in inside)
    return shown if named and not looks else None


def _made_in(facts: ModelFacts, function: str) -> list[Op]:
    """The last operator of each kind of call that ran inside of a function."""
    found: dict[str, Op] = {}
    for phase, flow in facts.flows.phases.items():
        for op in flow.ops:
            if any(line.function == function for line in op.frames[0].lines):
                found[phase] = op
    return list(found.values())


def _padding(facts: ModelFacts) -> Iterator[Line]:
    products = [op for flow in facts.flows.phases.values() for op in flow.ops if op.product is not None]
    if products:
        packed = Searched(facts, reached_functions(facts), ("cu_seq*", "*varlen*", "*packed*("))
        line: list[Inline] = [
            "sequences of a batch are as long as the longest: every product's M is ",
            Code("batch_size * seq_len"),
            ", padding included; several sequences packed into one row: ",
        ]
        found = list(packed.pointers())[:4]
        yield [*line, *joined(found)] if found else [*line, f"none found (searched: {packed.text})"]


# --- the longest -----------------------------------------------------------------------------------------------------


def _maximum(facts: ModelFacts) -> list[Block]:
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


# --- fusion ----------------------------------------------------------------------------------------------------------


def _fused(facts: ModelFacts) -> list[Block]:
    catalogue = Catalogue(facts)
    items: list[Line] = []
    for name, what in ONE_KERNEL.items():
        rows = [row for row in catalogue.rows.values() if row.first.name == name]
        if rows:
            tasks = ", ".join(row.key for row in rows)
            items.append([Code(f"aten.{name}"), f" is one operator for {what}: {tasks}, ", row_pointer(facts, rows[0])])
    items += list(_apart(facts, catalogue))
    items += list(_replaceable(facts))
    return [Bullets(items, searched="executed operators of the model")]


def _apart(facts: ModelFacts, catalogue: Catalogue) -> Iterator[Line]:
    """Modules and functions whose work is many operators."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in catalogue.rows.values():
        frame = row.first.frames[0]
        if row.first.product is not None or frame.class_name.startswith("torch."):
            continue
        helper = frame.lines[-2].function if len(frame.lines) > 1 else ""
        groups.setdefault((frame.class_name, helper), []).append(row.key)
    for (class_name, helper), keys in groups.items():
        if len(keys) > 2:
            row = next(r for r in catalogue.rows.values() if r.key == keys[0])
            what = f"{short(class_name)}, {helper}()" if helper else short(class_name)
            listed = ", ".join(_spans(keys))
            yield [
                Code(what),
                f" is not fused: {len(keys)} operators, each through memory ({listed}), from ",
                row_pointer(facts, row),
            ]


def _spans(keys: list[str]) -> Iterator[str]:
    """``T4 to T13`` where keys follow one another."""
    numbers = sorted(int(key[1:]) for key in keys)
    start = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == last + 1:
            last = number
            continue
        yield f"T{start}" if start == last else f"T{start} to T{last}"
        start = last = number


def _replaceable(facts: ModelFacts) -> Iterator[Line]:
    """Decorators by which code of the model's file is replaced by kernels, and what its classes say they support."""
    source = facts.sources[facts.model.class_name]
    file, lines = source.file, parse(source.path).lines
    hooks = [(number, found[1]) for number, text in enumerate(lines, 1) if (found := HOOKS.match(text.strip()))]
    if hooks:
        pointers = joined([facts.place(file, number, name) for number, name in hooks])
        yield [
            "code that may be replaced as a whole, where kernels or another implementation of experts are asked for: ",
            *pointers,
        ]
    flags = [(number, text.strip().split()[0]) for number, text in enumerate(lines, 1) if SUPPORTS.match(text.strip())]
    if flags:
        yield [
            "what the classes of the file say they support: ",
            *joined([facts.place(file, n, name) for n, name in flags]),
        ]
    yield ["the calls here ran with ", Code(f"attn_implementation={facts.model.attn_implementation or 'none'}")]


# --- hardware --------------------------------------------------------------------------------------------------------


def _hardware(facts: ModelFacts) -> list[Block]:
    items: list[Line] = []
    if facts.inspection is not None:
        line: list[Inline] = ["weights: ", facts.number("{a}", "B", a=Term(name="weight_bytes"))]
        line += [
            " for ",
            facts.number("{a}", "params", a=Term(name="parameters_count")),
            f" in {facts.inspection.dtype}",
        ]
        if facts.inspection.quantised:
            line += [
                "; the config's quantisation (",
                Code(facts.inspection.quantised),
                ") is not in the figures of this report",
            ]
        items.append(line)
    items += list(cache_of_a_token(facts))
    kept = kept_line(facts)
    items += [kept] if kept is not None else []
    found = Searched(facts, reached_functions(facts), ("get_device_capability", "is_cuda", "sm_*", "triton."))
    pointers = list(found.pointers())
    if pointers:
        items.append(["functions that run, or that they call, ask for the device at ", *joined(pointers)])
    else:
        items.append(f"a condition on the device's generation: none found (searched: {found.text})")
    points = [point for point in facts.points if point.key in facts.flows.peaks and facts.inspection is not None]
    rows: list[list[Line]] = []
    for point in points:
        held: Number | None = with_weights(facts, point)
        rows.append([point.title, held if held is not None else "unknown", devices_needed(facts, point)])
    columns = ("Point", "Weights, KV cache and activations", f"{facts.device.name}s of this memory")
    whole = f"{searched(facts)}, with all its layers"
    return [Bullets(items), Table(columns, rows, searched=whole, right=frozenset({1, 2}))]
