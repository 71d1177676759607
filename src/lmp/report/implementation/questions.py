"""Section 9: lengths, positions, masks, conditions on the device, and how the KV cache works."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.errors import LmpError
from lmp.observe.flow import Op
from lmp.records import short
from lmp.report.document.amounts import Number
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.actions import cached_ops
from lmp.report.implementation.catalog import catalogue_of
from lmp.report.implementation.kept import argument_line
from lmp.report.implementation.operators import (
    code_at,
    joined,
    kinds_of,
    layer_of,
    lists,
    plain,
    pointer_at,
    row_pointer,
    shape_text,
)
from lmp.report.implementation.searching import Searched, ran_functions, reached_functions
from lmp.source.lines import enclosing_function
from lmp.source.parsed import parse

LENGTHS = ("max_position_embeddings", "sliding_window", "n_positions", "attention_chunk_size", "max_seq_len")
MASK = "attention_mask"
PACKED = ("cu_seq*", "*varlen*", "*packed*(")
ASKS = ("get_device_capability", "is_cuda", "sm_*", "triton.")
MOST = 4
LEAST = 3
"""Operators that are worth being one."""


# --- lengths ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Positions:
    """Where positions are made, and whether one range is shared by all sequences of a batch."""

    where: Pointer
    shared: bool


def positions(facts: ModelFacts) -> Positions | None:
    for flow in facts.flows.phases.values():
        for op in flow.ops:
            line = op.frames[0].lines[0] if op.frames[0].lines else None
            if op.name == "arange" and line is not None and "position" in code_at(facts, line.file, line.line):
                shared = op.shape is None or not any("batch_size" in size for size in op.shape)
                return Positions(pointer_at(facts, line.file, line.line, "position_ids"), shared)
    return None


def masks(facts: ModelFacts) -> list[tuple[Line, Line]]:
    """Calls that make masks, and the shapes of the tensors that they made in the runs shown; empty where none was."""
    found: list[tuple[Line, Line]] = []
    for name, analysis in facts.analyses.items():
        for kernel in analysis.kernels:
            if kernel.category == "call" and "mask" in kernel.operation and kernel.file is None:
                function = kernel.operation.removeprefix("call of ").removesuffix("()")
                # Of one dimension is what is made for a mask: positions, lengths.
                made = [op for op in _made_in(facts, function) if len(op.sizes) > 1]
                call: Line = [Code(f"{function}()"), " at ", facts.pointer(name, kernel.line, function)]
                found.append((call, joined([Code(shape_text(op)) for op in made[:2]])))
    return found


def _made_in(facts: ModelFacts, function: str) -> list[Op]:
    """The last operator of each kind of call that ran inside of a function."""
    found = {
        phase: op
        for phase, flow in facts.flows.phases.items()
        for op in flow.ops
        if any(line.function == function for line in op.frames[0].lines)
    }
    return list(found.values())


def mask_argument(facts: ModelFacts) -> Pointer | None:
    """Where forward() takes the mask of a padded batch."""
    source = facts.sources[facts.model.class_name]
    line = argument_line(source.forward_path, source.lines, MASK)
    return facts.place(source.forward_file, line, MASK) if line is not None else None


def on_masks(facts: ModelFacts) -> Iterator[dict[str, Line]]:
    """Conditions on the mask in functions that run, each with its line."""
    for function in ran_functions(facts):
        for node in ast.walk(parse(function.path).tree):
            line = getattr(node, "lineno", 0)
            if function.lines[0] <= line <= function.lines[1] and _asks(node):
                test = node.test if isinstance(node, ast.If) else node
                yield {"code": Code(ast.unparse(test)), "where": facts.place(function.file, line, MASK)}


def _asks(node: ast.AST) -> bool:
    """An if's condition that names the mask without looking into it, or an assignment of such a condition."""
    shown = node.test if isinstance(node, ast.If) else node.value if isinstance(node, ast.Assign) else None
    if shown is None or (isinstance(node, ast.Assign) and not isinstance(shown, ast.BoolOp)):
        return False
    inside = [n for n in ast.walk(shown) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    looks = any(isinstance(n.value, ast.Name) and n.value.id == MASK for n in inside)
    return not looks and any(isinstance(n, ast.Name) and n.id == MASK for n in ast.walk(shown))


def packing(facts: ModelFacts) -> tuple[list[Inline], str]:
    """Lines that tell sequences packed into one row apart, and where was looked."""
    reached = reached_functions(facts)
    found = Searched(facts, [f for f in reached if "packed" not in f.name], PACKED)
    return joined(list(found.pointers())[:MOST]), Searched(facts, reached, PACKED).text


def lengths(facts: ModelFacts) -> list[Line]:
    """Settings of the config that bound a length, each with the line that declares it."""
    found: list[Line] = []
    for name in LENGTHS:
        if f"config.{name}" in facts.named:
            where = _config_line(facts, name)
            declared: list[Inline] = [" (", where, ")"] if where is not None else []
            found.append([Code(name), " = ", facts.setting(name), *declared])
    return found


def _config_line(facts: ModelFacts, name: str) -> Pointer | None:
    from lmp.source.locate import find_class, lineage_of
    from lmp.source.names import Names

    try:
        names = Names(facts.trees)
        order = lineage_of(find_class(facts.config_class or "", names), names).order
    except LmpError:
        return None
    for definition in order:
        node = definition.node
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            if re.match(rf"{re.escape(name)}\s*[:=]", parse(definition.path).code(number)):
                return facts.place(definition.module.tree.relative(definition.path), number, name)
    return None


def rotary(facts: ModelFacts) -> tuple[str, str] | None:
    """The type of rotary positions, and its other settings."""
    settings = {
        name.rpartition(".")[2]: value
        for name, value in facts.settings.items()
        if re.match(r"(?:\w+\.)?rope_(?:parameters|scaling)\.", name)
    }
    kind = settings.get("rope_type")
    return (
        None if kind is None else (str(kind), ", ".join(f"{n} = {v}" for n, v in settings.items() if n != "rope_type"))
    )


def refusing(facts: ModelFacts) -> tuple[list[Inline], str]:
    """Lines of functions that run which read the longest length, and where was looked."""
    found = Searched(facts, ran_functions(facts), ("max_position_embeddings", "max_seq_len", "n_positions"))
    return joined(list(found.pointers())), found.text


# --- fusion ----------------------------------------------------------------------------------------------------------


def unfused(facts: ModelFacts) -> list[dict[str, Line]]:
    """Modules and functions whose work in one call is many operators, most first."""
    catalogue = catalogue_of(facts)
    groups: dict[tuple[str, str], dict[str, tuple[str, list[Op]]]] = {}
    for phase, flow in facts.flows.phases.items():
        for op in flow.ops:
            frame = op.frames[0]
            if op.product is None and not frame.class_name.startswith("torch.") and frame.lines:
                helper = frame.lines[-2].function if len(frame.lines) > 1 else ""
                first, ops = groups.setdefault((frame.class_name, helper), {}).setdefault(frame.path, (phase, []))
                if first == phase:
                    ops.append(op)
    found = []
    for (class_name, helper), calls in groups.items():
        phase, ops = max(calls.values(), key=lambda call: len(call[1]))
        if len(ops) >= LEAST:
            what = f"{short(class_name)}, {helper}()" if helper else short(class_name)
            where = row_pointer(facts, catalogue.row_of(phase, ops[0].index))
            found.append((len(ops), what, where))
    found.sort(key=lambda one: -one[0])
    return [{"what": Code(what), "count": str(count), "where": where} for count, what, where in found]


# --- hardware --------------------------------------------------------------------------------------------------------


def device_conditions(facts: ModelFacts) -> tuple[list[Inline], str]:
    """Lines that ask for the device, in functions that run or that they call, and where was looked."""
    found = Searched(facts, reached_functions(facts), ASKS)
    codes: dict[str, list[Pointer]] = {}
    for (file, line, _), pointer in zip(found.places, found.pointers(), strict=True):
        codes.setdefault(code_at(facts, file, line).strip(), []).append(pointer)
    return lists([[Code(code), " at ", *joined(places)] for code, places in list(codes.items())[:MOST]]), found.text


# --- the cache -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writer:
    """A function that makes tensors of the cache, with its lines and the lines of the model that call it."""

    name: str
    words: str
    lines: list[Inline]
    caller: str
    called: list[Inline]


def writers(facts: ModelFacts) -> list[Writer]:
    found: dict[str, dict[tuple[str, int], Op]] = {}
    for flow in facts.flows.phases.values():
        for op in cached_ops(flow):
            line = op.frames[0].lines[0]
            name = _qualified(facts, line.file, line.line) or line.function
            found.setdefault(name, {}).setdefault((line.file, line.line), op)
    return [_writer(facts, name, list(ops.values())) for name, ops in found.items()]


def _writer(facts: ModelFacts, name: str, ops: list[Op]) -> Writer:
    frame = ops[0].frames[0]
    outer = dict.fromkeys(op.frames[0].lines[-1] for op in ops if len(op.frames[0].lines) > 1)
    lines = [op.frames[0].lines[0] for op in ops]
    return Writer(
        name,
        ", ".join(dict.fromkeys(op.words for op in ops)),
        joined([pointer_at(facts, line.file, line.line) for line in lines]),
        short(frame.class_name),
        joined([pointer_at(facts, line.file, line.line, "update") for line in outer]),
    )


def _qualified(facts: ModelFacts, file: str, line: int) -> str | None:
    path = facts.trees.path_of(file)
    try:
        function = enclosing_function(path, line) if path is not None else None
    except LmpError:
        return None
    return function.qualname if function is not None else None


def cache_tensors(facts: ModelFacts) -> list[dict[str, Line | Number | None]]:
    """Shapes of what one layer of each kind keeps after the last phase that was run, alike ones once."""
    if not facts.flows.phases:
        return []
    phase, flow = list(facts.flows.phases.items())[-1]
    kinds = {(kind.stack, kind.run): kind for kind in kinds_of(facts, flow)}
    point = next((p for p in facts.points if p.phase == phase), None)
    alike: dict[tuple[str, str | None], dict[str, None]] = {}
    for tensor in flow.tensors:
        if tensor.kind != "cache" or tensor.maker is None:
            continue
        op = flow.ops[tensor.maker]
        layer = layer_of(op.frames[0].path)
        kind = kinds.get((layer[0], layer[1])) if layer else None
        if layer is None or kind is not None or not kinds:
            group = alike.setdefault((f"{shape_text(op)} {tensor.dtype}", tensor.formula), {})
            group[kind.name if kind is not None else "the model"] = None
    return [
        {
            "layers": " and ".join(layers),
            "shape": Code(shape),
            "formula": plain(formula) if formula is not None else None,
            "bytes": facts.of_formula(formula, point, "B") if formula is not None and point is not None else None,
            "point": point.title if point is not None else phase,
        }
        for (shape, formula), layers in alike.items()
    ]
