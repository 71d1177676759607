"""The lines of a function that may compute on tensors, and the plain functions that a ``forward()`` calls."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound, Search
from lmp.source.locate import MODULE_CLASS, ClassSource, find_class, lineage_of, method_of
from lmp.source.names import Definition, Found, Module, Names, dotted_name
from lmp.source.parsed import FunctionNode, ParsedFile, parse
from lmp.source.trees import Tree, Trees, check_file


@dataclass(frozen=True)
class Statement:
    """A simple statement, or the header of a compound one, that may compute on tensors. Lines are inclusive."""

    first: int
    last: int
    code: str
    """The text of the first line, without its indentation."""


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """A function, and its computational statements in the order of their lines."""

    path: Path
    qualname: str
    """The function's ``__qualname__``, such as LlamaMLP.forward, repeat_kv or f.<locals>.g."""
    lines: tuple[int, int]
    """From the ``def`` line to the end of the body."""
    statements: tuple[Statement, ...]
    tree: Tree | None = None
    file: str = ""
    """Path from the tree's root, if the tree is known."""

    def statement_at(self, line: int) -> Statement | None:
        """The computational statement that ``line`` belongs to."""
        return next((s for s in self.statements if s.first <= line <= s.last), None)


def line_text(path: Path, line: int) -> str:
    """One line of a file, without its indentation."""
    return parse(path).code(line)


def function_lines(path: Path, function: str | FunctionNode) -> FunctionSource:
    """The lines of ``function``, given by its qualified name in the file or by its node."""
    parsed = parse(path)
    if isinstance(function, str):
        node = find_function(parsed, function)
        return _function_source(parsed, function, node)
    return _function_source(parsed, function.name, function)


def enclosing_function(path: Path, line: int) -> FunctionSource | None:
    """The innermost function that contains a line. The lines of its decorators belong to it."""
    parsed = parse(path)
    found: tuple[str, FunctionNode] | None = None
    todo: list[tuple[str, ast.AST]] = [("", parsed.tree)]
    while todo:
        prefix, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                todo.append((prefix, child))
                continue
            first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            if first <= line <= (child.end_lineno or child.lineno):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    found = name, child
                    name += ".<locals>"
                todo = [(f"{name}.", child)]
                break
    return _function_source(parsed, *found) if found else None


def statement_starts(path: Path) -> Mapping[int, int]:
    """Line -> first line of its statement, or of the header of a compound statement. Other lines are left out.

    Raises NotFound if the file cannot be read as Python.
    """
    return _statement_starts(parse(path))


@functools.lru_cache(maxsize=64)
def _statement_starts(parsed: ParsedFile) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in ast.walk(parsed.tree):
        if not isinstance(node, ast.stmt):
            continue
        body = next((block for block in _blocks(node) if block), None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        for line in range(node.lineno, max(last, node.lineno) + 1):
            found.setdefault(line, node.lineno)  # the outermost one: `if x: y` is one line
    return found


def forward_lines(source: ClassSource) -> FunctionSource:
    """The lines of a class's ``forward()``, which may be inherited."""
    found = function_lines(source.forward_path, source.forward_qualname)
    return _placed(found, source.forward_tree)


def _function_source(parsed: ParsedFile, qualname: str, node: FunctionNode) -> FunctionSource:
    statements = tuple(
        Statement(first, last, parsed.code(first)) for first, last in sorted(set(_computational(node.body)))
    )
    return FunctionSource(parsed.path, qualname, (node.lineno, node.end_lineno or node.lineno), statements)


def _placed(function: FunctionSource, tree: Tree) -> FunctionSource:
    return FunctionSource(
        function.path, function.qualname, function.lines, function.statements, tree, tree.relative(function.path)
    )


def find_function(parsed: ParsedFile, qualname: str) -> FunctionNode:
    """The definition of a function by its qualified name in the file. Raises NotFound if there is none."""
    body: list[ast.stmt] = parsed.tree.body
    node: ast.ClassDef | FunctionNode | None = None
    for part in qualname.replace(".<locals>", "").split("."):
        named = [
            inner
            for inner in _definitions(body)
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == part
        ]
        node = named[-1] if named else None  # the last definition wins, as with @overload
        if node is None:
            break
        body = node.body
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node
    raise NotFound(
        f"{parsed.path} has no function {qualname}\nname it as Python does, as in LlamaMLP.forward or repeat_kv",
        [Search(f"function {qualname}", str(parsed.path), "not defined")],
    )


def _definitions(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body and of its blocks, but not of the functions and classes in it."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for block in _blocks(statement):
                yield from _definitions(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


# --- which statements may do tensor work -----------------------------------------------------------------------------


def _computational(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    for statement in _definitions(body):
        if isinstance(statement, ast.AugAssign):
            yield _span(statement)
            continue
        if isinstance(statement, ast.Match):
            yield from (_span(case.guard) for case in statement.cases if case.guard and _may_compute(case.guard))
        worked = _worked_expressions(statement)
        if not any(_may_compute(expression) for expression in worked):
            continue
        if isinstance(statement, ast.If | ast.While | ast.For | ast.AsyncFor | ast.With | ast.AsyncWith | ast.Match):
            yield statement.lineno, max(_span(expression)[1] for expression in worked)
        else:
            yield _span(statement)


def _span(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _worked_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that the statement evaluates; of a compound statement those of its header.

    Targets of assignments are included, as ``x[i] = y`` writes to a tensor. Statements that only raise, import or
    define have none.
    """
    match statement:
        case ast.Assign():
            return [*statement.targets, statement.value]
        case ast.AnnAssign():
            return [statement.target, statement.value] if statement.value is not None else []
        case ast.Expr() if isinstance(statement.value, ast.Call) and _only_reports(statement.value):
            return []
        case ast.Expr():
            return [statement.value]
        case ast.Return():
            return [statement.value] if statement.value is not None else []
        case ast.If() | ast.While() | ast.Assert():
            return [statement.test]
        case ast.For() | ast.AsyncFor():
            return [statement.iter]
        case ast.With() | ast.AsyncWith():
            return [item.context_expr for item in statement.items]
        case ast.Match():
            return [statement.subject]
    return []


_REPORTING = ("logger.", "logging.", "warnings.", "log.")
_INSPECTING = frozenset({"isinstance", "issubclass", "hasattr", "callable", "len", "id", "type"})


def _only_reports(call: ast.Call) -> bool:
    """True if a call only logs or warns. Like a raise, it and its arguments are not part of the computation."""
    name = dotted_name(call.func) or ""
    return name.startswith(_REPORTING) or name == "print"


def _may_compute(expression: ast.expr) -> bool:
    return any(_computes(node) for node in ast.walk(expression))


def _computes(node: ast.AST) -> bool:
    match node:
        case ast.Call():
            return not (isinstance(node.func, ast.Name) and node.func.id in _INSPECTING)
        case ast.BinOp():
            return not (_constant(node.left) and _constant(node.right))
        case ast.UnaryOp():
            return not isinstance(node.op, ast.Not) and not _constant(node.operand)
        case ast.Compare():
            # `x is None` compares objects; everything else may compare tensors.
            return not all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        case ast.Subscript():
            return True
    return False


def _constant(node: ast.expr) -> bool:
    return all(
        isinstance(inner, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        for inner in ast.walk(node)
    )


# --- which plain functions a forward() calls -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Called:
    """A function that was found, with the names that are local at its definition."""

    module: Module
    node: FunctionNode
    qualname: str
    outer: frozenset[str] = frozenset()


def called_functions(source: ClassSource, trees: Trees) -> list[FunctionSource]:
    """The functions of the same tree that ``forward()`` calls, directly or not, in the order in which they are found.

    An over-approximation: a function that is named but not called counts too, because the attention interface gets
    ``eager_attention_forward`` so. Called modules are no functions, and values of variables are not followed.
    """
    names = Names(trees)
    holder = find_class(source.forward_class, names)
    owner = find_class(source.class_path, names)
    methods = _Methods(owner, names)
    module, node = _home_of_forward(source, holder, names)
    start = _Called(module, node, source.forward_qualname)
    waiting, seen = [start], {node}
    called: list[FunctionSource] = []
    while waiting:
        here = waiting.pop(0)
        for found in _calls_of(here, methods, names):
            if found.node in seen or found.module.path is None or found.module.tree != module.tree:
                continue
            seen.add(found.node)
            check_file(found.module.tree, found.module.path)
            function = _function_source(parse(found.module.path), found.qualname, found.node)
            called.append(_placed(function, found.module.tree))
            waiting.append(found)
    return called


def _home_of_forward(source: ClassSource, holder: Definition, names: Names) -> tuple[Module, FunctionNode]:
    module = holder.module
    if module.path != source.forward_path:  # an alias of a function in another file
        inside = source.forward_path.relative_to(source.forward_tree.package_dir).with_suffix("").parts
        parts = [part for part in inside if part != "__init__"]
        module = names.module(".".join([source.forward_tree.import_name, *parts])) or holder.module
    return module, find_function(parse(source.forward_path), source.forward_qualname)


@dataclass(frozen=True, eq=False)
class _Expression:
    """An expression and the module that resolves its names."""

    module: Module
    node: ast.expr


class _Methods:
    """The methods and properties of a class and its bases, without those of torch's Module itself."""

    def __init__(self, owner: Definition, names: Names) -> None:
        self.order = [e for e in lineage_of(owner, names).order if e.qualified != MODULE_CLASS]

    def assigned(self, name: str) -> Iterator[_Expression]:
        """The expressions that ``__init__`` assigns to ``self.name``: a function may be stored there."""
        for entry in self.order:
            assert isinstance(entry.node, ast.ClassDef)
            init = method_of(entry.node, "__init__")
            for statement in ast.walk(init) if init is not None and not isinstance(init, str) else ():
                if isinstance(statement, ast.Assign) and any(
                    dotted_name(target) == f"self.{name}" for target in statement.targets
                ):
                    yield _Expression(entry.module, statement.value)

    def find(self, name: str, after: str | None = None) -> _Called | None:
        """The method ``self.name``; with ``after``, the method that ``super().name`` finds from that class."""
        order = self.order
        if after is not None:
            place = next((i for i, entry in enumerate(order) if entry.node.name == after), -1)
            order = order[place + 1 :]
        for entry in order:
            assert isinstance(entry.node, ast.ClassDef)
            bound = method_of(entry.node, name)
            if bound is not None and not isinstance(bound, str):
                return _Called(entry.module, bound, f"{entry.node.name}.{name}")
        return None


def _calls_of(here: _Called, methods: _Methods, names: Names) -> Iterator[_Called]:
    local = _local_names(here.node) | here.outer
    nested = {inner.name: inner for inner in _definitions(here.node.body) if isinstance(inner, ast.FunctionDef)}
    class_name = here.qualname.partition(".")[0]
    inner_nodes = {id(part) for inner in nested.values() for part in ast.walk(inner)}
    for node in _walk_in_order(here.node.body):
        if id(node) in inner_nodes:
            continue  # read together with the nested function itself
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in nested:
                yield _Called(here.module, nested[node.id], f"{here.qualname}.<locals>.{node.id}", local)
            elif node.id not in local:
                yield from _plain_function(names.dotted(here.module, node.id))
        elif isinstance(node, ast.Attribute):
            head = node.value
            found = None
            if isinstance(head, ast.Name) and head.id == "self":
                found = methods.find(node.attr)
                if found is None:
                    for kept in methods.assigned(node.attr):
                        yield from _named_functions(kept, methods, names)
            elif isinstance(head, ast.Call) and dotted_name(head.func) == "super":
                found = methods.find(node.attr, after=class_name)
            if found is not None:
                yield found
                continue
            dotted = dotted_name(node) if not isinstance(head, ast.Subscript) else None
            if dotted and dotted.partition(".")[0] not in local:
                yield from _plain_function(names.dotted(here.module, dotted))


def _named_functions(kept: _Expression, methods: _Methods, names: Names) -> Iterator[_Called]:
    """The functions that an expression names and does not call: ``fast or slow``, ``partial(f, 1)``, ``self.slow``."""
    called = {id(node.func) for node in ast.walk(kept.node) if isinstance(node, ast.Call)}
    for node in ast.walk(kept.node):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in called:
            dotted = dotted_name(node)
            method = methods.find(dotted.removeprefix("self.")) if dotted and dotted.startswith("self.") else None
            if method is not None:
                yield method
            elif dotted is not None:
                yield from _plain_function(names.dotted(kept.module, dotted))


_MACHINERY = frozenset({"torch.overrides", "transformers.utils.import_utils"})
"""Modules whose functions dispatch calls or check what is installed: they compute nothing."""


def _plain_function(found: Found | None) -> Iterator[_Called]:
    if not isinstance(found, Definition) or isinstance(found.node, ast.ClassDef):
        return
    if found.path.suffix == ".py" and found.module.name not in _MACHINERY:  # a stub has no executable lines
        yield _Called(found.module, found.node, found.node.name)


def _local_names(node: FunctionNode) -> frozenset[str]:
    """Parameters and assigned names: they shadow the module's names."""
    arguments = node.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
    return frozenset(names)


def _walk_in_order(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes, as from ast.walk, but in source order."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))
