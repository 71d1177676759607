"""Members of a class, read from its source: arguments of the constructor and of forward(), attributes, config.

Nothing is executed. If the source cannot be followed, the answer is that any name may exist.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmp.errors import NotFound
from lmp.source.lines import find_function
from lmp.source.locate import MODULE_CLASS, ClassSource, Lineage, find_class, lineage_of, method_of
from lmp.source.names import Definition, Found, Names, dotted_name
from lmp.source.parsed import FunctionNode, parse

if TYPE_CHECKING:
    from lmp.source.trees import Trees

CONFIG_BASE = "PreTrainedConfig"
"""Base class of every config in transformers: a class with this annotation may get any config."""


@dataclass(frozen=True)
class Known:
    """Names that exist. ``any`` is True if there may be others."""

    known: frozenset[str] = frozenset()
    any: bool = False

    def __contains__(self, name: str) -> bool:
        return self.any or name in self.known

    def __or__(self, other: Known) -> Known:
        return Known(self.known | other.known, self.any or other.any)


ANYTHING = Known(any=True)


@dataclass(frozen=True)
class Members:
    """The members of one module class."""

    init: Known
    """The constructor's arguments."""
    inputs: Known
    """The arguments of forward()."""
    attributes: Known
    """Attributes of ``self``: assigned or defined anywhere in the class or its bases."""
    config: Known
    """Attributes of the config that the constructor takes."""
    config_values: dict[str, int]
    """Integers that are defaults in the config's class."""


def members_of(source: ClassSource, trees: Trees) -> Members:
    """The declared names of a class. If no tree holds it (a notebook's class), only the inputs are known."""
    inputs = _argument_names(find_function(parse(source.forward_path), source.forward_qualname))
    names = Names(trees)
    try:
        lineage = lineage_of(find_class(source.class_path, names), names)
    except NotFound:
        return Members(ANYTHING, inputs, ANYTHING, ANYTHING, {})
    entries = [entry for entry in lineage.order if entry.qualified != MODULE_CLASS]
    open_bases = any(not name.endswith("torch.nn.Module") and name != MODULE_CLASS for name in lineage.unknown)
    init = _constructor(entries) | Known(any=open_bases)
    attributes = _attributes(entries) | Known(any=open_bases)
    takes_config = any(_config_argument(entry.node) is not None for entry in entries)
    if takes_config:
        config, values = _config_members(entries, names)
    else:  # a config may still be assigned there
        config, values = Known(any=init.any or "config" in attributes), {}
    return Members(init, inputs, attributes, config, values)


def _argument_names(function: FunctionNode) -> Known:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    known = frozenset(a.arg for a in named[1:] if a.arg != "self")
    return Known(known | ({given.vararg.arg} if given.vararg else set()), any=given.kwarg is not None)


def _constructor(entries: Iterable[Definition]) -> Known:
    """The arguments of the first constructor, and of the next one while ``**kwargs`` is passed on."""
    found = Known()
    for entry in entries:
        init = _method(entry, "__init__")
        if init is not None:
            own = _argument_names(init)
            found |= Known(own.known)
            if not own.any:
                return found
    return found


def _method(entry: Definition, name: str) -> FunctionNode | None:
    assert isinstance(entry.node, ast.ClassDef)
    bound = method_of(entry.node, name)
    return None if isinstance(bound, str) else bound


_REGISTERING = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})


def _attributes(entries: Iterable[Definition]) -> Known:
    found: set[str] = {"training"}
    anything = False
    for entry in entries:
        for node in ast.walk(entry.node):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=method), args=[first, *_]):
                    if method in _REGISTERING:
                        known = isinstance(first, ast.Constant) and isinstance(first.value, str)
                        found |= {str(first.value)} if isinstance(first, ast.Constant) else set()
                        anything = anything or not known
                case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="self"), *_]):
                    anything = True
        found |= _class_level(entry.node)
    return Known(frozenset(found), anything)


def _class_level(node: ast.AST) -> set[str]:
    """Attributes, methods and properties that a class's body defines."""
    found: set[str] = set()
    for statement in getattr(node, "body", []):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.add(statement.target.id)
        elif isinstance(statement, ast.Assign):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


# --- the config ------------------------------------------------------------------------------------------------------


def _config_members(entries: Iterable[Definition], names: Names) -> tuple[Known, dict[str, int]]:
    """Attributes of the classes in the annotation of the constructor's ``config``.

    Without an annotation, those in the annotations of other classes of the file.
    """
    for entry in entries:
        if _config_argument(entry.node) is None:
            continue
        own = [_config_argument(entry.node)]
        others = [_config_argument(node) for node in entry.parsed.tree.body if isinstance(node, ast.ClassDef)]
        for arguments in (own, others):
            annotations = [a.annotation for a in arguments if a is not None and a.annotation is not None]
            dotted = dict.fromkeys(name for annotation in annotations for name in _annotated_classes(annotation))
            if dotted:
                return _of_configs([names.dotted(entry.module, name) for name in dotted], names)
    return ANYTHING, {}


def _config_argument(node: ast.AST) -> ast.arg | None:
    init = method_of(node, "__init__") if isinstance(node, ast.ClassDef) else None
    if init is None or isinstance(init, str):
        return None
    return next((a for a in init.args.args if a.arg == "config"), None)


def _of_configs(classes: Iterable[Found | None], names: Names) -> tuple[Known, dict[str, int]]:
    found = Known()
    values: dict[str, int] = {}
    for definition in classes:
        if not isinstance(definition, Definition) or not isinstance(definition.node, ast.ClassDef):
            return ANYTHING, {}
        if definition.node.name == CONFIG_BASE:
            return ANYTHING, {}
        lineage = lineage_of(definition, names)
        found |= _config_names(lineage)
        values |= _whole_numbers(lineage)
    return found, values


def _annotated_classes(annotation: ast.expr) -> Iterator[str]:
    """The classes that an annotation names, without None."""
    match annotation:
        case ast.Constant(value=str(text)):
            try:
                yield from _annotated_classes(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _annotated_classes(left)
            yield from _annotated_classes(right)
        case ast.Subscript(slice=inner):
            for part in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                yield from _annotated_classes(part)
        case ast.Name() | ast.Attribute():
            dotted = dotted_name(annotation)
            if dotted is not None:
                yield dotted


def _config_names(lineage: Lineage) -> Known:
    found: set[str] = set()
    for entry in lineage.order:
        found |= _class_level(entry.node)
        for node in ast.walk(entry.node):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.arg(arg=name):
                    found.add(name)  # an argument of the constructor, which the base class may keep
        found |= _mapped_names(entry.node)
    return Known(frozenset(found))


def _mapped_names(node: ast.AST) -> set[str]:
    """The standard names of an ``attribute_map``."""
    for statement in getattr(node, "body", []):
        target = _assigned_name(statement)
        if target == "attribute_map" and isinstance(statement.value, ast.Dict):
            return {k.value for k in statement.value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
    return set()


def _assigned_name(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return None


def _whole_numbers(lineage: Lineage) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in reversed(lineage.order):
        for statement in getattr(entry.node, "body", []):
            name, value = _assigned_name(statement), getattr(statement, "value", None)
            if name is not None and isinstance(value, ast.Constant) and type(value.value) is int:
                found[name] = value.value
        init = _method(entry, "__init__")
        if init is not None:
            found |= dict(_default_numbers(init.args))
    return found


def _default_numbers(arguments: ast.arguments) -> Iterator[tuple[str, int]]:
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    for argument, default in pairs:
        if isinstance(default, ast.Constant) and type(default.value) is int:
            yield argument.arg, default.value
