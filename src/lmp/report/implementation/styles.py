"""The styles of parallelism that transformers registers, and what their forward hooks send, read from the sources.

A style is a class that is registered under a name. Its collectives are the calls of ``torch.distributed`` in its
forward hooks, and what a redistribution of a distributed tensor from one layout to another needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lmp.source.names import dotted_name
from lmp.source.parsed import ParsedFile, parse

FOLDER = "src/transformers/distributed"
COLLECTIVES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "all_gather_into_tensor": "all_gather",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter", "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all", "all_to_all_single_autograd": "all_to_all", "broadcast": "broadcast",
    "full_tensor": "all_gather", "batch_isend_irecv": "send/recv", "isend": "send/recv", "irecv": "send/recv",
}  # fmt: skip
"""Calls -> the primitive."""

MOVES = {
    ("Partial", "Replicate"): "all_reduce",
    ("Shard", "Replicate"): "all_gather",
    ("Partial", "Shard"): "reduce_scatter",
}
"""Layout of a distributed tensor before and after -> what it takes; any other change is local."""

WAITING = ("tolist", "item", "cpu", "numpy", "nonzero", "synchronize")
"""Methods of a tensor, or of torch.cuda, that make the host wait for the device."""

FORWARD = ("transform_inputs_pre_forward", "transform_output_post_forward")
TRAINING = ("backward", "setup_context")


@dataclass(frozen=True)
class Collective:
    """A call in a style's forward that moves data between devices."""

    primitive: str
    file: str
    line: int
    symbol: str
    asynchronous: bool = False
    function: str = ""
    """The method that it stands in."""
    counts: str | None = None
    """Of an exchange of equal parts: the source's size of what is sent, in int64 numbers; None of any other."""


@dataclass(frozen=True)
class Wait:
    """A line of a style's forward at which the host waits for the device."""

    file: str
    line: int
    symbol: str


@dataclass(frozen=True)
class Style:
    """A registered style: its class, and what its forward hooks send."""

    name: str
    class_name: str
    file: str
    line: int
    registered: tuple[str, int]
    collectives: tuple[Collective, ...]
    implementations: tuple[Implementation, ...] = ()


@dataclass(frozen=True)
class Implementation:
    """One of several ways in which a style may work, by the name that chooses it."""

    name: str
    collectives: tuple[Collective, ...]
    waits: tuple[Wait, ...] = ()


class Registry:
    """The classes and functions of transformers' folder of parallelism, by name."""

    def __init__(self, folder: Path | None, named: str) -> None:
        """``named`` is what pointers call the folder. None in place of it: the sources have no such folder."""
        self.files: dict[str, ParsedFile] = {}
        self.classes: dict[str, tuple[str, ast.ClassDef]] = {}
        for path in sorted(folder.glob("*.py")) if folder is not None and folder.is_dir() else ():
            file = f"{named}/{path.name}"
            self.files[file] = parse(path)
            for node in ast.walk(self.files[file].tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, (file, node))

    def styles(self) -> Iterator[tuple[str, Style]]:
        for file, parsed in self.files.items():
            for node in ast.walk(parsed.tree):
                match node:
                    case ast.Call(
                        func=ast.Attribute(attr="register"),
                        args=[ast.Constant(value=str(name)), ast.Call(func=ast.Name(id=cls)) as made],
                    ) if cls in self.classes:
                        yield name, self._style(name, cls, made, (file, node.lineno))

    def _style(self, name: str, cls: str, made: ast.Call, registered: tuple[str, int]) -> Style:
        file, node = self.classes[cls]
        given = {k.arg: k.value for k in made.keywords if k.arg}
        found = [c for method in FORWARD for c in self._of_hook(cls, method, given)]
        return Style(name, cls, file, node.lineno, registered, tuple(found), tuple(self._implementations(cls)))

    # -- hooks ---------------------------------------------------------------------------------------------------

    def method(self, cls: str, name: str) -> tuple[str, ast.FunctionDef] | None:
        """A method of a class or of its bases in the folder."""
        if cls not in self.classes:
            return None
        file, node = self.classes[cls]
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return file, statement
        for base in node.bases:
            found = self.method(dotted_name(base) or "", name)
            if found is not None:
                return found
        return None

    def _of_hook(self, cls: str, name: str, given: Mapping[str, ast.expr]) -> Iterator[Collective]:
        found = self.method(cls, name)
        if found is None:
            return
        file, function = found
        direct = list(self.direct(file, function))
        yield from direct
        if not direct:
            yield from self._redistributed(cls, file, function, given)

    def direct(self, file: str, function: ast.AST) -> Iterator[Collective]:
        """Calls of collectives, also inside of autograd functions that are applied."""
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            name = dotted_name(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
            last = name.rpartition(".")[2]
            # A method of the class itself may be called so: only torch.distributed's and tensors' own count.
            if last in COLLECTIVES and not name.startswith("self."):
                late = any(k.arg == "async_op" and _is_true(k.value) for k in node.keywords)
                late = late or last in ("isend", "irecv")
                counts = _counted(function, node) if COLLECTIVES[last] == "all_to_all" else None
                method = getattr(function, "name", "")
                yield Collective(COLLECTIVES[last], file, node.lineno, last, late, method, counts)
            elif last == "apply" and name.split(".")[0] in self.classes:
                inner = self.method(name.split(".")[0], "forward")
                for found in self.direct(*inner) if inner is not None else ():
                    yield Collective(found.primitive, file, node.lineno, name.split(".")[0], found.asynchronous)

    def waits(self, cls: str) -> Iterator[Wait]:
        """Where the forward methods of a class make the host wait."""
        for file, function in self._forward_methods(cls):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITING:
                    yield Wait(file, node.func.end_lineno or node.lineno, node.func.attr)

    def _redistributed(
        self, cls: str, file: str, function: ast.FunctionDef, given: Mapping[str, ast.expr]
    ) -> Iterator[Collective]:
        """What changing the layout that the hook starts from to the one that it asks for takes."""
        layouts = _Layouts(self._defaults(cls), given, function)
        for node in layouts.calls("redistribute"):
            wanted = next((k.value for k in node.keywords if k.arg == "placements"), None)
            target = layouts.of(wanted)
            for source in layouts.sources():
                primitive = MOVES.get((source, target or ""))
                if primitive is not None:
                    yield Collective(primitive, file, node.lineno, "redistribute")
                    return

    def _defaults(self, cls: str) -> dict[str, ast.expr]:
        """Attributes that the constructor sets: of ``x or Replicate()`` what stands where nothing is given."""
        found: dict[str, ast.expr] = {}
        method = self.method(cls, "__init__")
        for statement in method[1].body if method is not None else ():
            match statement:
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.BoolOp(values=[_, default])):
                    found[name] = default
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.IfExp(orelse=default)):
                    found[name] = default
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                    found[name] = value
        return found

    def inside(self, cls: str) -> list[Collective]:
        """Collectives anywhere in a class, a primitive of one method once: its last, after a message of sizes."""
        if cls not in self.classes:
            return []
        file, node = self.classes[cls]
        found: dict[tuple[str, str], Collective] = {}
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                for one in sorted(self.direct(file, statement), key=lambda c: c.line):
                    if one.symbol not in ("isend", "irecv"):
                        found[statement.name, one.primitive] = one
        return list(found.values())

    # -- several ways --------------------------------------------------------------------------------------------

    def _implementations(self, cls: str) -> Iterator[Implementation]:
        """Classes that a style chooses among by a name, in a mapping of a class that its hook uses."""
        found = self.method(cls, "install_forward")
        used = {n.id for n in ast.walk(found[1]) if isinstance(n, ast.Name)} if found is not None else set()
        for name in sorted(used & set(self.classes)):
            for key, chosen in _mapping(self.classes[name][1]):
                if chosen in self.classes:
                    calls = tuple(c for f in self._forward_methods(chosen) for c in self.direct(*f))
                    yield Implementation(key, calls, tuple(self.waits(chosen)))

    def _forward_methods(self, cls: str) -> Iterator[tuple[str, ast.AST]]:
        file, node = self.classes[cls]
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name not in (*TRAINING, "__init__"):
                yield file, statement


def _counted(function: ast.AST, call: ast.Call) -> str | None:
    """How many int64 numbers an exchange sends whose parts are all as long: it is given no sizes of parts."""
    given = [ast.unparse(node) for node in (*call.args, *(k.value for k in call.keywords))]
    if any(re.search(r"sizes|splits", text) for text in given) or len(call.args) < 2:
        return None
    sent = call.args[1]
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="zeros" | "empty"), args=[size], keywords=keywords),
            ) if isinstance(sent, ast.Name) and name == sent.id:
                kinds = [ast.unparse(k.value) for k in keywords if k.arg == "dtype"]
                if kinds and kinds[0] in ("torch.long", "torch.int64"):
                    return ast.unparse(size)
    return None


class _Layouts:
    """Which layouts the values of one hook have, as far as literals, defaults and simple names tell."""

    def __init__(
        self, defaults: Mapping[str, ast.expr], given: Mapping[str, ast.expr], function: ast.FunctionDef
    ) -> None:
        self.attributes = {**defaults, **given}
        self.body = list(_taken(function.body, self.attributes))
        self.local = {
            node.targets[0].id: node.value
            for node in self._walk()
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def _walk(self) -> Iterator[ast.AST]:
        return (node for statement in self.body for node in ast.walk(statement))

    def calls(self, name: str) -> Iterator[ast.Call]:
        for node in self._walk():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                yield node

    def sources(self) -> Iterator[str]:
        """Layouts that a local tensor is said to have."""
        for node in self.calls("from_local"):
            found = self.of(node.args[2]) if len(node.args) > 2 else None
            if found is not None:
                yield found
        if any(True for _ in self.calls("_from_local_last_dim_shard")):
            yield "Shard"

    def of(self, node: ast.expr | None) -> str | None:
        match node:
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                return self.of(first)
            case ast.Call(func=ast.Name(id=name)):
                return name.lstrip("_").removeprefix("Strided")
            case ast.Name(id=name) if name in self.local:
                return self.of(self.local[name])
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.attributes:
                return self.of(self.attributes[name])
        return None


def _taken(body: list[ast.stmt], attributes: Mapping[str, ast.expr]) -> Iterator[ast.stmt]:
    """Statements that run where conditions on the style's own attributes are as they were registered."""
    for statement in body:
        match statement:
            case ast.If(
                test=ast.Compare(left=ast.Attribute(attr=name), ops=[ast.Eq()], comparators=[ast.Constant() as c])
            ):
                set_to = attributes.get(name)
                if isinstance(set_to, ast.Constant):
                    yield from _taken(statement.body if set_to.value == c.value else statement.orelse, attributes)
                    continue
                yield statement
            case ast.If(test=ast.UnaryOp() | ast.Call()) if statement.orelse == []:
                yield from _taken(statement.body, attributes)
            case _:
                yield statement


def _mapping(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for key, value in zip(statement.value.keys, statement.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                    yield str(key.value), value.id


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
