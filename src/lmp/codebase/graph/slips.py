"""Slips of Python functions: what they take and lose, or use where it may not be there. Each by its form alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from lmp.codebase.graph.hazards import LONGEST
from lmp.codebase.graph.records import Function, Hazard, HazardKind
from lmp.codebase.source import Source, children, walk

SAMPLER = frozenset(
    ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "length_penalty", "presence_penalty")
)
"""Settings of a draw, of which none stands for another."""
DIVISOR = re.compile(r"(?:\w+_)?temp(?:erature)?s?$")
NUMBERS = re.compile(
    r"(?:\w+_)?(?:temperature|seed|top_[kp]|min_p|strength|ratio|scale|max_\w+|num_\w+|\w+_(?:coef|size))$"
)
"""Settings of which zero is a value."""
MOVES = frozenset(("to", "cuda", "cpu", "half", "float", "bfloat16", "double"))
"""Methods of a module that give it another place or type."""
ENTERS = ("__enter__", "__aenter__")
CUDA = re.compile(r"""(?:\bdevice ?= ?|\.to\(|torch\.device\()["']cuda(?::\d+)?["']""")
HALF = re.compile(r"""\b\w*dtype ?= ?(?:torch\.|["'])b?float16\b""")
ASKS_DEVICE = tuple(
    f"torch.cuda.{name}"
    for name in ("current_device", "get_device_capability", "get_device_name", "get_device_properties", "mem_get_info")
)
"""What raises an error where there is no device."""
HOLDS = ("Sequential", "ModuleList")
MODULE = re.compile(r"[a-z_]\w*(?:\.[a-z_]\w*){2,}")
"""A text as the name of a module below a package, or of what stands in one."""
NAMES_LOGGERS = frozenset(("getLogger", "get_logger"))
FIRST = 120
"""Letters of a call in which its form is looked for."""
FURTHER = 16
"""Statements of a block behind one that is replaced: further on nobody reads the two together."""


def missing(source: Source) -> frozenset[str]:
    """Names that the module imports, and that are not there, or None, where the import fails."""
    found: set[str] = set()
    for node in source.tree.body:
        if isinstance(node, ast.Try):
            every = [one for handler in node.handlers for stmt in handler.body for one in walk(stmt)]
            given = {
                target.id
                for one in every
                if isinstance(one, ast.Assign) and not (isinstance(one.value, ast.Constant) and one.value.value is None)
                for target in one.targets
                if isinstance(target, ast.Name)
            }
            given |= {one.name for one in every if isinstance(one, ast.FunctionDef | ast.ClassDef)}
            if not any(isinstance(one, ast.Raise) for one in every):
                found |= _imported(node.body) - given - _imported(every)
    return frozenset(found)


def _imported(nodes: Iterable[ast.AST]) -> set[str]:
    every = (each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom))
    return {(alias.asname or alias.name).partition(".")[0] for each in every for alias in each.names}


def of_slips(source: Source, own: list[ast.AST], made: Function, absent: frozenset[str]) -> None:
    """Adds them to a function that is read. ``own`` is its definition, then what stands in it without the functions
    that it defines; ``absent`` are the names that a failed import leaves."""
    if made.abstract:
        return
    found: dict[tuple[HazardKind, str], Hazard] = {}
    for kind, line, text in _each(source, own, made, _Tested(own), absent):
        text = " ".join(text.split())[:LONGEST]
        found.setdefault((kind, text if kind not in ("cuda", "half") else ""), Hazard(kind, line, text))
    made.hazards += found.values()


Found = Iterator[tuple[HazardKind, int, str]]


def of_import(source: Source, body: Function, absent: frozenset[str]) -> None:
    """Adds those of what runs when a module is imported to its body: functions run later."""
    nodes: list[ast.AST] = []
    waiting: list[ast.AST] = [*source.tree.body]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes.append(each)
            waiting += children(each)
    tested = _Tested(nodes)
    found = [each for one in nodes for each in (*_of_node(source, one, tested, absent), *_of_module(source, one))]
    for kind, line, text in sorted(found, key=lambda each: each[1]):
        body.hazards.append(Hazard(kind, line, " ".join(text.split())[:LONGEST]))


def _of_module(source: Source, one: ast.AST) -> Found:
    """What the import of a module does to the others, and what it needs of the machine."""
    match one:
        case ast.Try(handlers=handlers):
            for handler in handlers:
                for stmt in handler.body:
                    if isinstance(stmt, ast.Raise) and "Import" in source.written(handler.type or stmt):
                        yield "import ends", stmt.lineno, source.written(stmt)
        case ast.Assign(targets=[ast.Attribute() as target]):
            if source.written(target).partition(".")[0] in source.aliases:
                yield "process", one.lineno, source.written(one)
        case ast.Call(func=func, args=[ast.Constant(value=str(path)), *_]):
            if source.dotted(func).rpartition(".")[2] == "open" and not path.startswith("/"):
                yield "path", one.lineno, source.written(one)
        case ast.keyword(value=value) if source.dotted(value) in ASKS_DEVICE:
            yield "cuda", value.lineno, source.written(value)
        case ast.Call(func=func) if source.dotted(func) in ASKS_DEVICE:
            yield "cuda", one.lineno, source.written(one)


def _each(source: Source, own: list[ast.AST], made: Function, tested: _Tested, absent: frozenset[str]) -> Found:
    node, *every = own
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    loads = {name for each in _with_inner(made) for name in each.reads}
    rest = node.args.kwarg
    if rest is not None and rest.arg not in loads:
        yield "swallowed", rest.lineno, f"**{rest.arg}"
    for name, line, default in made.arguments:
        # What classes share may be asked for by their interface.
        shared = made.owner is not None and made.owner.bases
        if name not in loads and default and not name.startswith("_") and not shared:
            yield "unread", line, f"{name} = {default}"
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    last = body[-1] if body else None
    if made.name in MOVES and len(body) == 1 and isinstance(last, ast.Return) and _last(last.value) == "self":
        yield "does nothing", node.lineno, made.name
    if made.name in ENTERS and not any(isinstance(one, ast.Return) and one.value is not None for one in every):
        yield "enters none", node.lineno, made.name
    nones = {name for name, _, default in made.arguments if default == "None"} - tested.there
    nones -= {one.id for one in every if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    for block in _blocks(own):
        yield from _of_block(source, block)
    for one in every:
        match one:
            case ast.Compare(left=left, ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE(), *_], comparators=others):
                for each in (left, *others):
                    if isinstance(each, ast.Name) and each.id in nones:
                        yield "compares none", one.lineno, source.written(one)
            case _:
                yield from _of_node(source, one, tested, absent)


def _blocks(own: list[ast.AST]) -> Iterator[list[ast.stmt]]:
    for each in own:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(each, name, None)
            if isinstance(block, list):
                yield block


def _of_block(source: Source, block: list[ast.stmt]) -> Found:
    """What is worked out, and replaced in the same block before anything reads it, or reads what it was made of."""
    for number, each in enumerate(block):
        made = list(_made(each))
        names = {_assigned(one) for one in made}
        name = next(iter(names), "")
        if not name or len(names) > 1 or not all(isinstance(one.value, ast.Call | ast.BinOp) for one in made):
            continue
        for later in block[number + 1 : number + 1 + FURTHER]:
            if any(
                isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load) for one in walk(later)
            ):
                break
            if not isinstance(later, ast.Assign | ast.AnnAssign | ast.Expr):
                # What it leads to may read it, or end before it is replaced.
                break
            if isinstance(later, ast.Assign) and _assigned(later) == name:
                # What is asked twice in the same words leaves one out, as the next item.
                if all(source.written(one.value) != source.written(later.value) for one in made):
                    yield "dead store", made[-1].lineno, source.written(made[-1])
                break


def _made(node: ast.stmt) -> Iterator[ast.Assign]:
    """An assignment; of a choice between two the last of each branch."""
    if isinstance(node, ast.Assign):
        yield node
    elif isinstance(node, ast.If) and node.orelse:
        last = (node.body[-1], node.orelse[-1])
        if all(isinstance(each, ast.Assign | ast.If) for each in last):
            yield from (one for each in last for one in _made(each))


def _assigned(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) and not target.id.startswith("_") else ""


def _of_node(source: Source, one: ast.AST, tested: _Tested, absent: frozenset[str]) -> Found:
    match one:
        case ast.BinOp(op=ast.Div(), right=right):
            if DIVISOR.match(_last(right)) and _last(right) not in tested.zero:
                yield "divides", one.lineno, source.written(one)
        case ast.BoolOp(op=ast.Or(), values=[ast.Name() | ast.Attribute() as first, *others]):
            if NUMBERS.match(_last(first)) and not any(map(_is_no_number, others)):
                yield "zero is unset", one.lineno, source.written(one)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Name() | ast.Attribute(), ctx=ast.Load()):
            if name.isupper() and name not in tested.there and len(name) > 2:
                yield "key", one.lineno, source.written(one)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _given(source, key.value, value)
                    if HALF.match(given := f"{key.value} = {source.written(value)}"):
                        yield "half", value.lineno, given
        case ast.Assign(value=value):
            yield from _names_module(value)
        case ast.Call():
            yield from _of_call(source, one, tested, absent)


def _names_module(value: ast.expr) -> Found:
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and MODULE.fullmatch(value.value):
        yield "no module", value.lineno, value.value


def _of_call(source: Source, one: ast.Call, tested: _Tested, absent: frozenset[str]) -> Found:
    for each in one.keywords:
        yield from _given(source, each.arg or "", each.value)
    if _last(one.func) in HOLDS:
        for arg in one.args:
            match arg.value if isinstance(arg, ast.Starred) else arg:
                case ast.BinOp(op=ast.Mult(), left=ast.List(elts=listed)) as of:
                    if any(isinstance(each, ast.Call) for each in listed):
                        yield "one object", of.lineno, source.written(of)
    called = one.func
    while isinstance(called, ast.Attribute):
        called = called.value
    if isinstance(called, ast.Name) and called.id in absent and called.id not in tested.there:
        yield "absent", one.lineno, source.written(one.func)
    for arg in (*one.args, *(each.value for each in one.keywords)) if _last(one.func) not in NAMES_LOGGERS else ():
        yield from _names_module(arg)
    written = source.written(one)
    if "is_available" not in written and (CUDA.search(written[:FIRST]) or written.endswith(".cuda()")):
        yield "cuda", one.lineno, written
    if HALF.search(written[:FIRST]) or written.endswith(".half()"):
        yield "half", one.lineno, written


def _given(source: Source, name: str, value: ast.expr) -> Found:
    """Of what a call or a dictionary gives by its name."""
    given = _last(value)
    if name in SAMPLER and given in SAMPLER and given != name:
        yield "crossed", value.lineno, f"{name} = {source.written(value)}"
    if name == "trust_remote_code" and isinstance(value, ast.Constant) and value.value is True:
        yield "remote code", value.lineno, "trust_remote_code = True"


class _Tested:
    """Names and attributes that the conditions of a function read.

    ``there`` are those that are asked whether they are there. ``zero`` are those that are bounded, or compared with
    more than a number other than zero.
    """

    def __init__(self, every: list[ast.AST]) -> None:
        self.there: set[str] = set()
        self.zero: set[str] = set()
        for one in every:
            match one:
                case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
                    self._read(test)
                case ast.BoolOp(values=values):
                    for test in values[:-1]:
                        self._read(test)
                case ast.Call(func=ast.Name(id="max" | "isinstance" | "callable" | "bool"), args=args):
                    for test in args:
                        self._read(test)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as value)):
                    # A number that stands in the code is known.
                    self.zero |= {name} if value else set()

    def _read(self, test: ast.expr) -> None:
        waiting: list[tuple[ast.AST, bool, bool]] = [(test, True, True)]
        while waiting:
            each, there, zero = waiting.pop()
            if isinstance(each, ast.Compare):
                there &= not isinstance(each.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                other = each.comparators[0]
                equal = isinstance(each.ops[0], ast.Eq | ast.NotEq)
                zero &= not (equal and isinstance(other, ast.Constant) and other.value != 0)
            elif isinstance(each, ast.Name | ast.Attribute):
                self.there |= {_last(each)} if there else set()
                self.zero |= {_last(each)} if zero else set()
            waiting += [(child, there, zero) for child in children(each)]


def _is_no_number(node: ast.expr) -> bool:
    """A truth, what is zero or none itself, or an object that is made."""
    if isinstance(node, ast.Constant):
        return not node.value
    made = isinstance(node, ast.Call) and _last(node.func)[:1].isupper()
    return made or isinstance(node, ast.Compare | ast.BoolOp)


def _last(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _with_inner(function: Function) -> Iterator[Function]:
    yield function
    for each in function.inner.values():
        yield from _with_inner(each)
