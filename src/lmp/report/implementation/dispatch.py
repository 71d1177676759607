"""Section 3.2: what a kernel's shape and choice depend on, as far as the sources say it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from lmp.records import MATMUL_CATEGORIES, Kernel, short
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import joined
from lmp.report.implementation.reads import first_sentence, marked
from lmp.report.implementation.sources import Piece, Sources, module_name, place_near
from lmp.source.names import Definition, Names, dotted_name
from lmp.source.parsed import parse

TILES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "NUM_STAGES", "NUM_WARPS")
_TILE = re.compile(r"(?<!\w)(BLOCK_(?:[MNK]|SIZE)\w*|num_stages|num_warps|NUM_STAGES|NUM_WARPS)(?!\w)\s*[:=]")
_IGNORED = frozenset({"staticmethod", "classmethod", "property", "torch.no_grad", "strict"})
LONGEST = 160
DEVICE = "cuda"
"""What torch calls the type of the devices that reports are made for."""


def kernel_rows(facts: ModelFacts, sources: Sources) -> list[Sequence[Line]]:
    """Parameter, value and purpose."""
    return [
        *_tiles(facts, sources),
        *_attention(facts),
        *_choices(sources),
        *_deciding(facts, sources),
        *_environment(sources),
        *_decorators(facts, sources),
    ]


def _tiles(facts: ModelFacts, sources: Sources) -> Iterator[Sequence[Line]]:
    found = []
    for piece in sources.own:
        lines = parse(piece.path).lines
        for number in range(piece.node.lineno, (piece.node.end_lineno or piece.node.lineno) + 1):
            for match in _TILE.finditer(lines[number - 1]):
                found.append((match[1], piece.pointer(number, match[1]), lines[number - 1].strip()))
    for name, pointer, text in found:
        yield Code(name), Code(text), ["set at ", pointer]
    if found:
        return
    operators = sorted(_ran(facts) or {_operator(k.analysis) for k in _kernels(facts) if _is_matmul(k)})
    products = joined([Code(operator) for operator in operators])
    yield (
        joined([Code(name) for name in TILES]),
        f"none found (searched: {sources.searched})",
        ["every kernel is an ATen operator, which chooses its tiles when it runs; the matrix products are ", *products],
    )


def _ran(facts: ModelFacts) -> set[str]:
    """Products that the runs of this report have."""
    ops = [op for flow in facts.flows.phases.values() for op in flow.ops if op.category in MATMUL_CATEGORIES]
    return {op.name if op.category == "attention" else f"aten.{op.name}" for op in ops}


def _kernels(facts: ModelFacts) -> list[Kernel]:
    return [kernel for analysis in facts.analyses.values() for kernel in analysis.kernels]


def _is_matmul(kernel: Kernel) -> bool:
    return kernel.category in MATMUL_CATEGORIES


def _operator(analysis: str) -> str:
    return analysis.partition(":")[0]


def _attention(facts: ModelFacts) -> Iterator[Sequence[Line]]:
    model = facts.model
    if model.attn_implementation is None:
        return
    purpose: list[Inline] = ["computes attention"]
    places = [
        (name, kernel)
        for name, analysis in facts.analyses.items()
        for kernel in analysis.kernels
        if kernel.category == "attention" or (kernel.category == "softmax" and kernel.function)
    ]
    if places:
        name, kernel = places[0]
        symbols = ("scaled_dot_product_attention", "softmax", kernel.function)
        purpose += [
            " in ",
            Code(kernel.function or "forward"),
            ", ",
            place_near(facts, name, kernel.line, kernel.file, *symbols),
        ]
    if model.attn_implementation != model.attn_requested:
        purpose.append(f"; asked for was {model.attn_requested}, which the model does not support")
    yield Code("attn_implementation"), Code(model.attn_implementation), purpose


def _choices(sources: Sources) -> Iterator[Sequence[Line]]:
    """What the model's classes say of other implementations of attention."""
    for piece in (p for p in sources.classes if p.own and isinstance(p.node, ast.ClassDef)):
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if _CHOICE.fullmatch(name):
                    yield (
                        Code(name),
                        Code(ast.unparse(value)),
                        ["what ", Code("attn_implementation"), " may ask for, ", piece.pointer(statement.lineno, name)],
                    )


_CHOICE = re.compile(r"_compatible_\w+_implementations")


def _deciding(facts: ModelFacts, sources: Sources) -> Iterator[Sequence[Line]]:
    """Functions that an `if` asks in a function with a matrix product: what they return decides on the kernel."""
    computing = {k.function for a in facts.analyses.values() for k in a.kernels if _is_matmul(k)}
    by_place = {(p.path, p.node.name): p for p in sources.functions if not isinstance(p.node, ast.ClassDef)}
    seen: set[tuple[object, str]] = set()
    for piece in (p for p in sources.functions if p.node.name in computing):
        for node in ast.walk(piece.node):
            if not isinstance(node, ast.If):
                continue
            for call in (n for n in ast.walk(node.test) if isinstance(n, ast.Call)):
                name = dotted_name(call.func) or ""
                asked = by_place.get((piece.path, name))
                if asked is None or (piece.path, name) in seen:
                    continue
                seen.add((piece.path, name))
                shown = joined([Code(text) for text in answers(asked.node, DEVICE)], ", else ")
                if shown:
                    yield (
                        Code(name),
                        [f"on a {DEVICE.upper()} device: ", *shown] if _asks_device(asked.node) else shown,
                        ["asked at ", piece.pointer(node.lineno, name), ", answered at ", asked.here],
                    )


def answers(function: ast.AST, device: str) -> list[str]:
    """What a function returns on a type of device, each with all the conditions on the way to it, in their order: the
    first that holds answers."""
    body = getattr(function, "body", [])
    return list(dict.fromkeys(_short(text) for text in _returns(body, [], device)))


def _returns(body: Sequence[ast.stmt], conditions: list[str], device: str) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Return(value=value) if value is not None:
                yield " if ".join([ast.unparse(value), *([" and ".join(conditions)] if conditions else [])])
                return
            case ast.If(test=test, body=then, orelse=otherwise):
                held = _on_device(test, device)
                if isinstance(held, ast.Constant):
                    taken = then if held.value else otherwise
                    yield from _returns(taken, conditions, device)
                    if taken and isinstance(taken[-1], ast.Return):
                        return
                    continue
                yield from _returns(then, [*conditions, _part(held)], device)
                if otherwise and isinstance(then[-1], ast.Return):
                    yield from _returns(otherwise, conditions, device)
                elif otherwise:
                    yield from _returns(otherwise, [*conditions, _part(ast.UnaryOp(ast.Not(), held))], device)
            case ast.For() | ast.While() | ast.With() | ast.Try():
                yield from _returns(statement.body, conditions, device)


def _asks_device(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Compare) and _is_device_type(n.left) for n in ast.walk(function))


def _is_device_type(node: ast.expr) -> bool:
    return ast.unparse(node).endswith("device.type")


def _on_device(test: ast.expr, device: str) -> ast.expr:
    """A condition with what it asks of the device's type answered; True or False where that decides it."""
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=str(name))]) if _is_device_type(left):
            if isinstance(op, ast.Eq | ast.NotEq):
                return ast.Constant((name == device) is isinstance(op, ast.Eq))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            held = _on_device(inner, device)
            return ast.Constant(not held.value) if isinstance(held, ast.Constant) else ast.UnaryOp(ast.Not(), held)
        case ast.BoolOp(op=op, values=values):
            decides = isinstance(op, ast.Or)
            parts = [_on_device(value, device) for value in values]
            if any(isinstance(part, ast.Constant) and bool(part.value) is decides for part in parts):
                return ast.Constant(decides)
            open_ = [part for part in parts if not isinstance(part, ast.Constant)]
            if len(open_) > 1:
                return ast.BoolOp(op, open_)
            return open_[0] if open_ else ast.Constant(not decides)
    return test


def _part(test: ast.expr) -> str:
    """A condition as a part of a longer one."""
    text = ast.unparse(test)
    return f"({text})" if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else text


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _environment(sources: Sources) -> Iterator[Sequence[Line]]:
    for piece in sources.own:
        for node in ast.walk(piece.node):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get") | ast.Attribute(attr="getenv"),
                    args=[ast.Constant(value=str(name)), *rest],
                ):
                    default = ast.unparse(rest[0]) if rest else "None"
                    yield (
                        Code(name),
                        ["not set: ", Code(default)],
                        ["read from the environment at ", piece.pointer(node.lineno, name)],
                    )


def _decorators(facts: ModelFacts, sources: Sources) -> Iterator[Sequence[Line]]:
    """Decorators of the model's classes: what may take the place of a forward()."""
    names = Names(facts.trees)
    ran = {short(name): _ran_instead(facts, name) for name in facts.analyses}
    for piece in sources.own:
        for decorator in piece.node.decorator_list:
            text = ast.unparse(decorator)
            dotted = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if dotted is None or dotted in _IGNORED or not isinstance(piece.node, ast.ClassDef):
                continue
            said = _said(piece, dotted, names)
            if said is None or not _replaces(said):
                continue
            instead = ran.get(piece.node.name)
            yield (
                Code(f"@{text}"),
                ["runs ", Code(instead)] if instead else ["not replaced: runs ", Code(f"{piece.node.name}.forward")],
                [*marked(said), " ", piece.pointer(decorator.lineno, piece.node.name)],
            )


def _replaces(said: str) -> bool:
    """Whether a decorator's own words are of kernels or implementations."""
    return any(word in said.lower() for word in ("kernel", "implementation", "forward"))


def _said(piece: Piece, dotted: str, names: Names) -> str | None:
    module = names.module(module_name(piece))
    found = names.dotted(module, dotted) if module is not None else None
    if not isinstance(found, Definition):
        return None
    text = ast.get_docstring(found.node)
    return first_sentence(text) if text else None


def _ran_instead(facts: ModelFacts, class_name: str) -> str | None:
    """The function that computes in a class's place, where none of its forward()'s own lines does."""
    kernels = [k for k in facts.analyses[class_name].kernels if k.kernel_type == "basic" and k.category != "call"]
    elsewhere = [k for k in kernels if k.function is not None]
    return elsewhere[0].function if kernels and len(elsewhere) == len(kernels) else None
