"""Finds the signs of a Python file in one walk over its statements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lmp.codebase.file_kinds import role
from lmp.codebase.source import Source, tree_of
from lmp.report.repository.signs import Import, Note, NoteKind, Signs

_HARDWARE = re.compile(
    r"cuda|rocm|\bhip\b|capability|\bsm_?\d|hopper|blackwell|ampere|\bnpu\b|\bxpu\b|\bmps\b|metal\b|\bgpu|(?:torch|triton|cuda|python|driver|flash\w*|transformers|nccl|mlx)[\w.]*_?version"
    r"|version_info|__version__|is_available|device_type|device\.type|is_cpu|is_contiguous|nvidia|\bamd\b|\btma\b",
    re.IGNORECASE,
)
_TODO = re.compile(r"\b(?:TODO|FIXME|HACK|XXX)\b|# ?(?:todo|fixme|hack)\b")
_COMPILED = re.compile(
    r"torch\.(?:compile|cuda\.(?:CUDAGraph|graph)|jit\.(?:script\w*|ScriptModule|trace\w*|load)|(?:_dynamo|compiler)\.disable)"
    r"|(?:mx|mlx\.core)\.compile|(?:jax|flax|equinox|eqx|haliax|hax)\.(?:\w+\.)*(?:p?jit|pmap|filter_p?jit|named_p?jit)"
    r"|numba\.(?:n?jit|vectorize|guvectorize)|(?:\w+\.)*(?:CUDAGraph|pjit)|tensorflow\.function|tf\.function"
    r"|(?:tensorflow|tf)\.(?:compat\.v1\.)?disable_(?:eager_execution|v2_behavior)"
)
"""Full dotted names of what compiles, records, or keeps out of compilation."""
_EVALUATED = re.compile(r"(?:mx|mlx\.core)\.(?:async_)?eval")
"""Full dotted names of what makes a lazy framework work out its values."""
_COMPILES = re.compile(
    r"compile|jit\b|\bjit|vectorize|CUDAGraph|cuda\.graph|pmap|\.function\b|dynamo|\beval\b|async_eval|disable_"
)
"""What stands in every file that has one of these."""
_BY_NAME = re.compile(r"import_module|__import__")
_AVAILABLE = re.compile(r"\bis_(?:\w+_)?available\b")
"""What libraries call a test for a package that may be missing."""
_LOGGING = frozenset(
    [
        "debug",
        "info",
        "warning",
        "warn",
        "error",
        "exception",
        "critical",
        "log",
        "print",
        "print_exc",
        "warning_once",
        "log_warning",
    ]
)
_DEPRECATED = re.compile(r"deprecat", re.IGNORECASE)
_REGISTER = re.compile(r"(?:^|[._])(?:register|registry)(?:$|[._])|(?:^|\.)register\w*$|^register_")
_NO_REGISTRY = re.compile(
    r"^(?:torch|self|atexit|signal|ctx|codecs)\.|register_(?:buffer|parameter|module|\w*hook|fake|autograd|kernel|state_dict|pytree)"
)
_READS = re.compile(
    r"_*(?:get|pop|keys|items|values|resolve|look|load|list|find|has|is|create|build|make|clear|all)(?:_|$)"
)
"""What is asked of a registry: nothing is put into it."""
LEAST_ENTRIES = 5
"""Of a mapping that is a place to add one more."""
_BROAD = frozenset({"Exception", "BaseException"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


def signs(file: str, text: str, tree: ast.Module | None = None) -> Signs:
    """Of one Python file, parsed already or not.

    Raises SyntaxError, ValueError or RecursionError for what Python cannot parse.
    """
    if tree is None:
        tree = tree_of(text)
    scan = _Scan(file, text)
    scan.block(tree.body, _Where())
    notes = [*scan.notes, *_comments(text, scan.spans)]
    if _COMPILES.search(text) or _BY_NAME.search(text):
        notes += _calls(tree, scan)
    notes.sort(key=lambda note: (note.line, note.kind))
    return Signs(tuple(scan.imports), tuple(notes))


def signs_of(source: Source) -> Signs | None:
    """Of a file of the repository's own code that is parsed already; None of others, and where it nests too deeply."""
    if role(source.file) != "source":
        return None
    try:
        return signs(source.file, source.text, source.tree)
    except (RecursionError, ValueError):
        return None


@dataclass(frozen=True)
class _Where:
    symbol: str = ""
    class_name: str = ""
    stub: bool = False
    """In a function of nothing but a docstring and a raise: it is abstract, not a limit."""

    def into(self, name: str) -> str:
        return f"{self.symbol}.{name}" if self.symbol else name


@dataclass
class _Scan:
    file: str
    text: str
    imports: list[Import] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    imported: dict[str, str] = field(default_factory=dict)
    """Name -> what it was imported as, dotted."""
    classes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.package = self.file.split("/")[:-1]

    def note(self, kind: NoteKind, node: ast.AST, where: _Where, text: str, detail: str = "", about: str = "") -> None:
        line: int = node.lineno  # type: ignore[attr-defined]
        self.notes.append(Note(kind, line, where.symbol, _short(text), _short(detail), _short(about)))

    def block(self, body: list[ast.stmt], where: _Where) -> None:
        for statement in body:
            self.statement(statement, where)

    def statement(self, node: ast.stmt, where: _Where) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node, where)
            case ast.ClassDef():
                self.a_class(node, where)
            case ast.Import():
                self.imports += [Import(alias.name, (), node.lineno) for alias in node.names]
                for alias in node.names:
                    self.imported[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            case ast.ImportFrom():
                names = tuple(alias.name for alias in node.names)
                module = self.absolute(node)
                self.imports.append(Import(module, names, node.lineno))
                self.imported.update((alias.asname or alias.name, f"{module}.{alias.name}") for alias in node.names)
            case ast.If():
                self.check(node, where)
                imports = [each for each in node.body if isinstance(each, (ast.Import, ast.ImportFrom))]
                if imports and _AVAILABLE.search(ast.unparse(node.test)):
                    self.packages(imports, where, "")
                self.block(node.body, where)
                self.block(node.orelse, where)
            case ast.For() | ast.AsyncFor() | ast.While():
                self.block(node.body, where)
                self.block(node.orelse, where)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.call(item.context_expr, where)
                self.block(node.body, where)
            case ast.Try():
                self.attempt(node, where)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body, where)
            case ast.Assert():
                self.assertion(node, where)
            case ast.Raise():
                self.raised(node, where)
            case ast.Expr() | ast.Return():
                self.call(node.value, where)
            case ast.Assign() | ast.AnnAssign():
                self.assigned(node, where)

    # -- definitions ---------------------------------------------------------------------------------------------------

    def function(self, node: Function, where: _Where) -> None:
        inner = _Where(where.into(node.name), where.class_name, _is_stub(node.body))
        self.spans.append((node.lineno, node.end_lineno or node.lineno, inner.symbol))
        self.decorators(node, where, inner.symbol)
        self.block(node.body, inner)

    def a_class(self, node: ast.ClassDef, where: _Where) -> None:
        self.classes.add(node.name)
        inner = _Where(where.into(node.name), node.name)
        self.spans.append((node.lineno, node.end_lineno or node.lineno, inner.symbol))
        self.decorators(node, where, inner.symbol)
        abstract = [
            each.name
            for each in node.body
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_abstract(each)
        ]
        if abstract:
            self.note("abstract", node, where, inner.symbol, ", ".join(abstract))
        self.block(node.body, inner)

    def decorators(self, node: Function | ast.ClassDef, where: _Where, name: str) -> None:
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            written = ast.unparse(called)
            if _REGISTER.search(written) and not _NO_REGISTRY.search(written):
                self.notes.append(Note("registration", decorator.lineno, name, written, _short(ast.unparse(decorator))))
            elif "deprecated" in written.lower():
                self.notes.append(Note("deprecated", decorator.lineno, name, _short(ast.unparse(decorator))))

    # -- statements ----------------------------------------------------------------------------------------------------

    def absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        base = self.package[: len(self.package) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def check(self, node: ast.If, where: _Where) -> None:
        """``if capability < 9: raise …``."""
        raises = next((each for each in node.body if isinstance(each, ast.Raise)), None)
        if raises is None or raises.exc is None:
            return
        test = ast.unparse(node.test)
        message = _message(raises.exc)
        if _HARDWARE.search(test) and message:
            self.note("requires", raises, where, test, message, "raises")

    def assertion(self, node: ast.Assert, where: _Where) -> None:
        condition = ast.unparse(node.test)
        if _HARDWARE.search(condition):
            self.note("requires", node, where, condition, _text(node.msg) if node.msg else "")

    def raised(self, node: ast.Raise, where: _Where) -> None:
        if node.exc is None or where.stub:
            return
        called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if isinstance(called, ast.Name) and called.id == "NotImplementedError":
            self.note("not implemented", node, where, _message(node.exc))

    def call(self, node: ast.expr | None, where: _Where) -> None:
        node = node.value if isinstance(node, (ast.Await, ast.YieldFrom)) else node
        if not isinstance(node, ast.Call):
            return
        name = _name(node.func)
        last = name.rpartition(".")[2]
        if name == "warnings.warn" or (last in ("warn", "warning", "warning_once") and "log" in name.lower()):
            self.warning(node, name, where)
        elif name.endswith("environ.setdefault") and node.args:
            self.note("sets environment", node, where, _text(node.args[0]))
        elif (
            _REGISTER.search(name)
            and not _NO_REGISTRY.search(name)
            and not _READS.match(last)
            and any(map(_is_registered, node.args))
        ):
            self.note("registration", node, where, name, ast.unparse(node))

    def warning(self, node: ast.Call, name: str, where: _Where) -> None:
        message = _text(node.args[0]) if node.args else ""
        category = " ".join(ast.unparse(each) for each in [*node.args[1:2], *(k.value for k in node.keywords)])
        if _DEPRECATED.search(message) or "Deprecation" in category or "FutureWarning" in category:
            self.note("deprecated", node, where, message)
        elif name == "warnings.warn" and message:
            self.note("warning", node, where, message)

    def assigned(self, node: ast.Assign | ast.AnnAssign, where: _Where) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = node.value
        if value is None:
            return
        if isinstance(target, ast.Subscript) and _name(target.value).endswith("environ"):
            self.note("sets environment", node, where, _text(target.slice))
        if isinstance(target, ast.Attribute) and isinstance(value, (ast.Name, ast.Attribute)):
            self.replaced(node, target, value, where)
        elif isinstance(target, ast.Name) and not where.symbol:
            self.table(node, target.id, value, where)
        self.call(value, where)

    def replaced(
        self, node: ast.Assign | ast.AnnAssign, target: ast.Attribute, value: ast.Name | ast.Attribute, where: _Where
    ) -> None:
        """``modeling_llama.LlamaRMSNorm = LigerRMSNorm``, where the first name was imported."""
        first, _, rest = _name(target).partition(".")
        if first in self.imported and "()" not in first and _name(value) != "()":
            self.note("replaced", node, where, rest, _name(value), self.imported[first])

    def table(self, node: ast.Assign | ast.AnnAssign, name: str, value: ast.expr, where: _Where) -> None:
        """At the top of a file: ``EntryClass = [A, B]``, and a mapping of strings to functions or classes."""
        if isinstance(value, ast.Dict) and len(value.keys) >= LEAST_ENTRIES:
            pairs = [
                (key.value, _name(each))
                for key, each in zip(value.keys, value.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(each, ast.Name)
            ]
            if len(pairs) == len(value.keys):
                self.note("table", node, where, name, f"{pairs[0][0]!r}: {pairs[0][1]}", str(len(pairs)))
        named = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
        if named and all(isinstance(each, ast.Name) and each.id in self.classes for each in named):
            self.note("named class", node, where, name, ", ".join(_name(each) for each in named))

    def attempt(self, node: ast.Try, where: _Where) -> None:
        goes_without = False
        for handler in node.handlers:
            caught = [] if handler.type is None else [_name(each) for each in _types(handler.type)]
            everything = handler.type is None or bool(_BROAD & set(caught))
            if everything:
                self.broad(node, handler, where)
            if not goes_without and (everything or {"ImportError", "ModuleNotFoundError"} & set(caught)):
                goes_without = True
                self.optional(node, handler, where)
            self.block(handler.body, where)
        self.block(node.body, where)
        self.block(node.orelse, where)
        self.block(node.finalbody, where)

    def broad(self, node: ast.Try, handler: ast.ExceptHandler, where: _Where) -> None:
        kinds = [each for statement in handler.body for each in ast.walk(statement)]
        if any(isinstance(each, ast.Raise) for each in kinds):
            return
        if handler.name and any(isinstance(each, ast.Name) and each.id == handler.name for each in kinds):
            return
        calls = (_name(each.func).rpartition(".")[2] for each in kinds if isinstance(each, ast.Call))
        if any(name in _LOGGING for name in calls):
            return
        caught = "everything" if handler.type is None else ast.unparse(handler.type)
        self.note(
            "swallowed",
            handler,
            where,
            caught,
            "; ".join(ast.unparse(each) for each in handler.body),
            ast.unparse(node.body[0]).split("\n")[0],
        )

    def optional(self, node: ast.Try, handler: ast.ExceptHandler, where: _Where) -> None:
        if any(isinstance(each, ast.Raise) for each in handler.body) and len(handler.body) == 1:
            return
        self.packages(node.body, where, "; ".join(ast.unparse(each) for each in handler.body))

    def packages(self, body: Iterable[ast.stmt], where: _Where, instead: str) -> None:
        """Notes what is imported only where it is there."""
        for each in body:
            if isinstance(each, ast.If | ast.With):
                # It is imported when it is first needed.
                self.packages(each.body, where, instead)
            elif isinstance(each, ast.Import):
                for alias in each.names:
                    self.note("optional", each, where, alias.name, instead)
            elif isinstance(each, ast.ImportFrom) and each.level == 0:
                self.note("optional", each, where, each.module or "", instead)


# --- pieces of syntax ------------------------------------------------------------------------------------------------


def _is_registered(argument: ast.expr) -> bool:
    """A name for what is registered, or the thing itself: not what a call or an attribute of one works out."""
    return isinstance(argument, (ast.Constant, ast.Name)) or "()" not in _name(argument)


def _is_stub(body: list[ast.stmt]) -> bool:
    real = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return all(isinstance(each, (ast.Raise, ast.Pass)) for each in real)


def _is_abstract(node: Function) -> bool:
    if any(_name(each).rpartition(".")[2] in ("abstractmethod", "abstractproperty") for each in node.decorator_list):
        return True
    real = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return len(real) == 1 and isinstance(real[0], ast.Raise) and "NotImplementedError" in ast.unparse(real[0])


def _name(node: ast.expr) -> str:
    """``a.b.c`` of names and attributes; of anything else what can be told of it."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "()")
    return ".".join(reversed(parts))


def _types(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _message(raised: ast.expr) -> str:
    return _text(raised.args[0]) if isinstance(raised, ast.Call) and raised.args else ""


def _text(node: ast.expr) -> str:
    """The words of a message; what is put into it stands as written."""
    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.JoinedStr():
            return "".join(
                str(each.value) if isinstance(each, ast.Constant) else "{" + ast.unparse(each.value) + "}"  # type: ignore[attr-defined]
                for each in node.values
            )
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            return _text(left) + (_text(right) if isinstance(node.op, ast.Add) else "")
        case ast.Call(func=ast.Attribute(value=inner, attr="format")):
            return _text(inner)
    return ast.unparse(node)


def _comments(text: str, spans: list[tuple[int, int, str]]) -> Iterator[Note]:
    """Comments that say what is left to do. Only files that have one of the words are looked at."""
    if not _TODO.search(text):
        return
    line, at = 1, 0
    for match in _TOKENS.finditer(text):
        if match[0][0] == "#" and _TODO.search(match[0]):
            line, at = line + text.count("\n", at, match.start()), match.start()
            inside = [span for span in spans if span[0] <= line <= span[1]]
            symbol = max(inside, default=(0, 0, ""))[2]
            yield Note("todo", line, symbol, _short(match[0].lstrip("#! ")))


def _calls(tree: ast.Module, scan: _Scan) -> Iterator[Note]:
    """What is compiled or recorded, where lazy values are worked out, and modules loaded by a name put together.

    Calls, decorators and bases are looked at, under whatever names they are imported or kept.
    """
    kept: dict[str, str] = {}

    def dotted(node: ast.expr) -> str:
        first, dot, rest = _name(node).partition(".")
        return scan.imported.get(first, first) + dot + rest

    def compiles(node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            given = node.args[:1] if _name(node.func).rpartition(".")[2] == "partial" else []
            return compiles(node.func) or any(map(compiles, given))
        return _name(node) in kept or _COMPILED.fullmatch(dotted(node)) is not None

    def written(node: ast.expr) -> str:
        text = ast.unparse(node)
        return f"{text} = {kept[text]}" if text in kept else text

    def note(kind: NoteKind, node: ast.expr, text: str, symbol: str = "") -> Note:
        line = node.lineno
        inside = [span for span in scan.spans if span[0] <= line <= span[1]]
        return Note(kind, line, symbol or max(inside, default=(0, 0, ""))[2], _short(text))

    nodes = list(ast.walk(tree))
    for node in nodes:
        # ``MyFunction = torch.jit.script_method``: a decorator by another name.
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and compiles(node.value):
            kept.update({each.id: ast.unparse(node.value) for each in node.targets if isinstance(each, ast.Name)})
    seen: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            for each in (*node.decorator_list, *bases):
                seen |= {each, *(each.args if isinstance(each, ast.Call) else ())}
                if compiles(each):
                    span = next((s for s in scan.spans if s[0] == node.lineno and s[2].endswith(node.name)), None)
                    yield replace(note("compiled", each, written(each), span[2] if span else node.name), about="itself")
        elif isinstance(node, ast.Call) and node not in seen:
            name = dotted(node.func)
            if compiles(node):
                seen |= {node.func, *node.args}
                yield note("compiled", node, ast.unparse(node))
            elif _EVALUATED.fullmatch(name):
                yield note("evaluated", node, ast.unparse(node))
            elif name.rpartition(".")[2] in ("import_module", "__import__") and node.args:
                start = _beginning(node.args[0])
                if start.strip("."):
                    yield note("loads by name", node, start)


def _beginning(node: ast.expr) -> str:
    """The literal beginning of a string that is put together: ``pkg.models.`` of ``f"pkg.models.{name}"``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _beginning(node.left) if not isinstance(node.left, ast.Constant) else str(node.left.value)
    first = node.values[0] if isinstance(node, ast.JoinedStr) and len(node.values) > 1 else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


_TOKENS = re.compile(
    r"\"\"\"(?:[^\\]|\\.)*?\"\"\"|\'\'\'(?:[^\\]|\\.)*?\'\'\'|\"(?:[^\"\\\n]|\\.)*\"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*",
    re.DOTALL,
)
"""Strings, which may have the sign of a comment in them, and comments."""


def _short(text: str, most: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
