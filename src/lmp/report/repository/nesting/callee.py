"""What a call in a Python function calls: by jedi where it can tell, by the rules below where it cannot.

The rules: ``self.x(…)`` runs the forward of the class that ``self.x`` is made from · ``for layer in self.layers`` is of
the classes that ``self.layers`` is made from · ``TABLE[key](…)`` is of the functions in the table · ``getattr(self,
"forward_" + mode)(…)`` is of the methods that begin so · a model that is given is one of the repository's models · a
method's name that only one class has is that class's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from lmp.codebase.facts import Definition, Place
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.nesting.resolving import Found, Resolver
from lmp.report.repository.nesting.steps import Function
from lmp.report.repository.nesting.words import PLAIN
from lmp.report.repository.roles import ASIDE

RUNS = ("forward", "__call__", "call")
"""Methods that calling an instance runs."""
MODEL = re.compile(
    r"(?:For(?:CausalLM|ConditionalGeneration)|LMHeadModel)$|^Model$|^(?:Transformer|GPT|Llama)(?:Model)?$"
)


@dataclass(frozen=True)
class Callee:
    name: str
    definition: Definition | None
    remark: str = ""


class Callees:
    def __init__(self, base: CodeBase, resolver: Resolver) -> None:
        self._base, self._resolver = base, resolver

    def kernel(self, name: str, file: str) -> Place | None:
        """A kernel of this name: in the file itself, else the only one."""
        found = self._kernels.get(name, [])
        return next((place for place in found if place.file == file), next(iter(found), None))

    @cached_property
    def _kernels(self) -> dict[str, list[Place]]:
        found: dict[str, list[Place]] = {}
        for kernel in self._base.facts.kernels:
            found.setdefault(kernel.name.rpartition(".")[2], []).append(kernel.place)
        return found

    def of(self, node: ast.Call, inside: Definition, function: Function) -> Callee | None:
        func = node.func
        if not isinstance(func, (ast.Name, ast.Attribute)):
            return self._by_table(node, inside.place.file) or self._made(func, inside, function)
        name = func.attr if isinstance(func, ast.Attribute) else func.id
        written = self._written_here(func, inside, function)
        if written is not None:
            return Callee(written.qualname, written)
        places = [found.place for found in self._asked("goto", func, inside.place.file) if found.kind == "function"]
        definitions = [each for place in places if place and (each := self._at_line(place, name))]
        if definitions:
            best = min(definitions, key=lambda d: (bool(ASIDE.search(d.place.file)), definitions.index(d)))
            return Callee(
                best.qualname, best, _one_of(len(places), "types that it may have") if len(places) > 1 else ""
            )
        applied = self._applied(func, inside.place.file)
        return (
            applied
            or self._made(func, inside, function)
            or self._instance(func, inside)
            or self._model(func)
            or self._partial(func, inside.place.file)
            or self._only(func, name)
        )

    def _written_here(
        self, func: ast.Name | ast.Attribute, inside: Definition, function: Function
    ) -> Definition | None:
        """What needs no inference: a function of this file or an import, and a method of the own class."""
        if isinstance(func, ast.Name):
            local = {each for node in ast.walk(function) for each in _bound(node)}
            found = [] if func.id in local else self._named(func.id, inside.place.file)
            plain = [each for each in found if each.kind == "function"]
            return plain[0] if len(found) == len(plain) == 1 else None
        attribute = _self_attribute(func)
        if attribute is None:
            return self._of_known(func, inside, function)
        owner = self._class(inside)
        if owner is None:
            return None
        same = [
            d for d in self._base.by_file.get(owner.place.file, ()) if d.qualname == f"{owner.qualname}.{attribute}"
        ]
        # Of two of one name, a property with its setter or overloads, jedi knows which is meant.
        return same[0] if len(same) == 1 else None

    def _of_known(self, func: ast.Attribute, inside: Definition, function: Function) -> Definition | None:
        """``self.x.method(…)`` where ``self.x`` is made from one class, ``batch.method(…)`` of a parameter's type."""
        attribute = _self_attribute(func.value)
        classes: list[Definition] = []
        if attribute is not None:
            owner = self._class(inside)
            classes = self._classes_of(owner, attribute) if owner else []
        elif isinstance(func.value, ast.Name):
            bound = {each for node in ast.walk(function) for each in _bound(node) if not isinstance(node, ast.arg)}
            named = None if func.value.id in bound else _annotated(function, func.value.id)
            found = self._named(named, inside.place.file) if named else []
            classes = [each for each in found if each.kind == "class"]
        return self._method(classes[0], func.attr) if len(classes) == 1 else None

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _by_table(self, node: ast.Call, file: str) -> Callee | None:
        """``TABLE[key](…)`` and ``getattr(self, "forward_" + mode)(…)``."""
        func = node.func
        if isinstance(func, ast.Call) and isinstance(func.func, ast.Name) and func.func.id == "getattr":
            return self._by_prefix(func, file, node.lineno)
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name):
            names = _table(self._base, file, func.value.id)
            found = [each for name in names for each in self._named(name, file)]
            if found:
                return Callee(found[0].qualname, found[0], _one_of(len(names), f"entries of the table {func.value.id}"))
        return None

    def _by_prefix(self, func: ast.Call, file: str, line: int) -> Callee | None:
        prefix = _prefix(func.args[1]) if len(func.args) > 1 else ""
        around = self._base.around(file, line)
        owner = self._class(around) if around else None
        if not prefix or owner is None:
            return None
        methods = [name for name in owner.methods if name.startswith(prefix)]
        found = [each for name in methods if (each := self._method(owner, name))]
        if not found:
            return None
        return Callee(found[0].qualname, found[0], _one_of(len(found), f"methods {prefix}*"))

    def _applied(self, func: ast.expr, file: str) -> Callee | None:
        """``Function.apply(…)`` of torch.autograd runs the forward of the class."""
        if not (isinstance(func, ast.Attribute) and func.attr == "apply"):
            return None
        owner = ast.unparse(func.value).rpartition(".")[2]
        for each in self._named(owner, file):
            runs = self._runs(each) if each.kind == "class" else None
            if runs is not None:
                return Callee(runs.qualname, runs)
        return None

    def _made(self, func: ast.expr, inside: Definition, function: Function) -> Callee | None:
        """Calls of ``self.x``, and of what goes through ``self.layers``."""
        element = isinstance(func, ast.Subscript)
        attribute = _self_attribute(func.value if isinstance(func, ast.Subscript) else func)
        through = f"each of self.{attribute}" if element and attribute else ""
        if attribute is None and isinstance(func, ast.Name):
            attribute = _iterated(function, func.id)
            through = f"each of self.{attribute}" if attribute else ""
        if attribute is None:
            return None
        owner = self._class(inside)
        classes = self._classes_of(owner, attribute) if owner else []
        runs = [each for found in classes if (each := self._runs(found))]
        if not runs:
            return None
        remark = "; ".join(
            p for p in (through, _one_of(len(runs), f"classes of self.{attribute}") if len(runs) > 1 else "") if p
        )
        return Callee(runs[0].qualname, runs[0], remark)

    def _instance(self, func: ast.expr, inside: Definition) -> Callee | None:
        for found in self._asked("infer", func, inside.place.file):
            if found.kind == "instance" and found.place:
                definition = self._at_line(found.place, found.name)
                runs = self._runs(definition) if definition is not None else None
                if runs is not None:
                    return Callee(runs.qualname, runs)
            if found.kind == "function" and found.place:
                definition = self._at_line(found.place, found.name)
                if definition is not None:
                    return Callee(definition.qualname, definition)
        return None

    def _model(self, func: ast.expr) -> Callee | None:
        """``model(…)``, ``self.model.forward(…)``: one of the models, and which is not written here."""
        text = ast.unparse(func)
        if not re.search(r"(?:^|[._])model(?:\.forward|\.__call__)?$", text):
            return None
        models = self.models
        if not models:
            return None
        return Callee(models[0].qualname, models[0], _one_of(len(models), "models") if len(models) > 1 else "")

    @cached_property
    def models(self) -> list[Definition]:
        """The forward of every model class, llama's first, as the plainest of them."""
        found = []
        for each in self._base.definitions:
            if each.kind == "class" and "." not in each.qualname and MODEL.search(each.name):
                runs = self._runs(each)
                if runs is not None and runs.place.file == each.place.file:
                    found.append(runs)
        tests = (
            lambda d: "multimodal_gen" in d.place.file or "diffusion" in d.place.file,
            lambda d: "llama.py" not in d.place.file,
            lambda d: "llama" not in d.place.file.lower(),
            lambda d: not re.match(r"Llama|Model\.|GPT|Transformer", d.qualname),
            lambda d: "ForCausalLM" not in d.qualname and not d.qualname.startswith("Model."),
        )
        return sorted(found, key=lambda d: (*(bool(test(d)) for test in tests), len(d.place.file), d.place.file))

    def _partial(self, func: ast.expr, file: str) -> Callee | None:
        """``name = functools.partial(function, …)`` runs the function."""
        given = _partials(self._base, file).get(func.id, ()) if isinstance(func, ast.Name) else ()
        found = [each for name in given for each in self._named(name, file)]
        return Callee(found[0].qualname, found[0]) if len(found) == 1 else None

    def _only(self, func: ast.expr, name: str) -> Callee | None:
        """A method that one class alone has, or that only one class with subclasses has."""
        # Lists and dicts have methods of the plain names, too.
        if not isinstance(func, ast.Attribute) or len(name) < 6 or name.startswith("__") or name in PLAIN:
            return None
        found = [each for each in self._base.by_name.get(name, ()) if each.kind == "method"]
        if not found:
            return None
        if ast.unparse(func.value) == "ctx":
            # torch.autograd's own.
            return None
        receiver = ast.unparse(func.value).lower().rpartition(".")[2].strip("_")
        words = [word for word in re.split(r"_", receiver) if len(word) > 2]
        fitting = [
            d for d in found if words and all(word in d.qualname.lower() + d.place.file.lower() for word in words)
        ]
        if len(found) == 1:
            return Callee(found[0].qualname, found[0], "the only method of this name")
        if fitting:
            shown = self.models[0].place.file if self.models else ""
            best = min(fitting, key=lambda d: (d.place.file != shown, len(d.qualname), d.place.file, d.place.line))
            return Callee(best.qualname, best, _one_of(len(found), f"methods {name}"))
        return None

    # -- classes -------------------------------------------------------------------------------------------------------

    def _class(self, definition: Definition) -> Definition | None:
        parts = definition.qualname.split(".")
        for end in range(len(parts) - 1, 0, -1):
            found = self._base.methods.get((definition.place.file, ".".join(parts[:end])))
            if found is not None and found.kind == "class":
                return found
        return None

    def _runs(self, owner: Definition) -> Definition | None:
        return next((found for name in RUNS if (found := self._method(owner, name))), None)

    def _method(self, owner: Definition, name: str, depth: int = 0) -> Definition | None:
        found = self._base.methods.get((owner.place.file, f"{owner.qualname}.{name}"))
        if found is not None or depth > 4:
            return found
        for base in owner.bases:
            short = re.split(r"[\[(]", base)[0].rpartition(".")[2]
            for each in self._named(short, owner.place.file):
                if each.kind == "class" and each is not owner:
                    inherited = self._method(each, name, depth + 1)
                    if inherited is not None:
                        return inherited
        return None

    def _named(self, name: str, file: str) -> list[Definition]:
        """Top-level definitions of a name, those of this file first."""
        found = [each for each in self._base.by_name.get(name, ()) if "." not in each.qualname]
        here = [each for each in found if each.place.file == file]
        if here:
            return here
        for each in self._base.signs[file].imports if file in self._base.signs else ():
            if name in each.names:
                where = self._base.resolve(each.module, name, file)
                definition = self._base.methods.get(where) if where else None
                if definition is not None:
                    return [definition]
        return found if len(found) == 1 else []

    def _classes_of(self, owner: Definition, attribute: str, depth: int = 0) -> list[Definition]:
        """The classes that ``self.attribute`` is made from, in the class or its bases."""
        found: dict[int, Definition] = {}
        for name in _constructions(self._base, owner.place.file, owner.qualname).get(attribute, ()):
            for each in self._named(name, owner.place.file):
                if each.kind == "class":
                    found.setdefault(id(each), each)
        if not found and depth < 3:
            for base in owner.bases:
                for each in self._named(re.split(r"[\[(]", base)[0].rpartition(".")[2], owner.place.file):
                    if each.kind == "class" and each is not owner:
                        found.update((id(d), d) for d in self._classes_of(each, attribute, depth + 1))
        return list(found.values())

    # -- places --------------------------------------------------------------------------------------------------------

    def _asked(self, how: str, func: ast.Name | ast.Attribute | ast.expr, file: str) -> list[Found]:
        line = getattr(func, "end_lineno", 0)
        end = getattr(func, "end_col_offset", 0)
        text = self._base.text(file) or ""
        column = len(_line(text, line).encode()[: max(end - 1, 0)].decode("utf-8", errors="ignore"))
        asked = self._resolver.goto if how == "goto" else self._resolver.infer
        return asked(file, text, line, column)

    def _at_line(self, place: Place, name: str) -> Definition | None:
        here = self._base.by_file.get(place.file, ())
        return next((each for each in here if each.place.line == place.line), None) or next(
            (each for each in here if each.name == name and abs(each.place.line - place.line) <= 3), None
        )


def is_dispatch(node: ast.Call) -> bool:
    """Whether what is called is looked up by a name or key."""
    func = node.func
    by_name = isinstance(func, ast.Call) and isinstance(func.func, ast.Name) and func.func.id == "getattr"
    return by_name or (isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name) and func.value.id.isupper())


def _one_of(count: int, what: str) -> str:
    return f"one of {count} {what}"


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _self_attribute(func: ast.expr) -> str | None:
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        return func.attr
    return None


def _iterated(function: Function, name: str) -> str | None:
    """``layers`` where the name goes through ``self.layers``, or is an element of it."""
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.comprehension)) and name in _names(node.target):
            attributes = [each for each in ast.walk(node.iter) if _self_attribute(each)]  # type: ignore[arg-type]
            if attributes:
                return _self_attribute(attributes[0])  # type: ignore[arg-type]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            element = _self_attribute(node.value.value)
            if element and name in _names(node.targets[0]):
                return element
    return None


def _annotated(function: Function, name: str) -> str | None:
    """The class that a parameter is marked with: ``X``, ``"X"``, ``Optional[X]``, ``X | None``."""
    arguments = function.args
    marked = (
        each.annotation for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if each.arg == name
    )
    node = next(marked, None)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.rpartition(".")[2] if node.value.replace(".", "_").isidentifier() else None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Optional":
        node = node.slice
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None:
        node = node.left
    return ast.unparse(node).rpartition(".")[2] if isinstance(node, ast.Name | ast.Attribute) else None


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a function gives a meaning of its own."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _prefix(node: ast.expr) -> str:
    """The constant beginning of a name that is put together."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str() as value)):
            return value
        case ast.JoinedStr(values=[ast.Constant(value=str() as value), *_]):
            return value
    return ""


@lru_cache(maxsize=64)
def _tree(base: CodeBase, file: str) -> ast.Module:
    try:
        return ast.parse(base.text(file) or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@lru_cache(maxsize=256)
def _table(base: CodeBase, file: str, name: str) -> tuple[str, ...]:
    """The functions that a dict of the file's top level has as values."""
    for node in _tree(base, file).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                return tuple(each.id for each in node.value.values if isinstance(each, ast.Name))
    return ()


@lru_cache(maxsize=64)
def _partials(base: CodeBase, file: str) -> dict[str, tuple[str, ...]]:
    """Name -> the functions that it is set to a partial of, anywhere in the file."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(_tree(base, file)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func, args=[ast.Name(id=given), *_])):
                if ast.unparse(func).rpartition(".")[2] == "partial":
                    found[name] = tuple(dict.fromkeys([*found.get(name, ()), given]))
    return found


@lru_cache(maxsize=512)
def _constructions(base: CodeBase, file: str, class_name: str) -> dict[str, tuple[str, ...]]:
    """Attribute -> names that are called in what it is set to, in the methods of a class."""
    found: dict[str, tuple[str, ...]] = {}
    node: ast.AST | None = _tree(base, file)
    for part in class_name.split("."):
        node = next(
            (each for each in getattr(node, "body", []) if isinstance(each, ast.ClassDef) and each.name == part), None
        )
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None:
            target = each.targets[0] if isinstance(each, ast.Assign) else each.target
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            for attribute in filter(None, map(_self_attribute, targets)):
                called = [
                    call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
                    for call in ast.walk(each.value)
                    if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute))
                ]
                found[attribute] = (*found.get(attribute, ()), *called)
    return found


def attributes(base: CodeBase, file: str, class_name: str) -> list[str]:
    """What a class keeps on itself, in the order in which it is set."""
    return [name for name in _constructions(base, file, class_name) if not name.startswith("__")]
