"""What reads a variable of the environment for others: functions and classes that are handed its name, and attributes
that give it theirs.

    def get_bool(name): return os.getenv(name) == "1"      each call names a variable
    def option(name): return os.environ[f"LMP_{name}"]     .. behind a prefix
    class Field: def __init__(self, name): self.name = name; def get(self): return os.getenv(self.name)
    class Field: def __set_name__(self, owner, name): self.name = name …    each class attribute names one
    class Base: def on(self): return os.getenv(f"USE_{self.kind}")          each class that sets ``kind`` names one
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lmp.codebase.environment import accesses
from lmp.codebase.library import Library
from lmp.codebase.source import FUNCTIONS, Function, Scope, Source
from lmp.codebase.templates import Hole, Template, defaults, filled, parameters, template, text_of

ROUNDS = 4
"""How many wrappers deep: a function that hands its own parameter to a wrapper is one, too."""


@dataclass(frozen=True)
class Wrapper:
    """``template`` has holes for parameters (of a function, or of a class's ``__init__``) or for attributes."""

    kind: Literal["function", "class", "named attribute", "class attribute"]
    file: str
    name: str
    owner: str
    """The class that a method is of."""
    template: Template
    parameters: tuple[str, ...] = ()
    defaults: Mapping[str, str | None] = field(default_factory=dict, compare=False)
    """What a parameter is when nothing is handed in; None where that is no plain string."""
    fallback: str = ""
    """The parameter that is the variable's default."""
    via: str = field(default="", compare=False)

    def holes(self) -> list[Hole]:
        return [part for part in self.template if isinstance(part, Hole)]


@dataclass
class Wrappers:
    """Those of a repository, found before its files are read for good."""

    found: list[Wrapper] = field(default_factory=list)
    by_name: dict[str, list[Wrapper]] = field(default_factory=dict)
    bases: dict[str, set[str]] = field(default_factory=dict)
    """Of each class in the files with wrappers, by name."""

    def add(self, wrapper: Wrapper) -> None:
        if wrapper not in self.found:
            self.found.append(wrapper)
            self.by_name.setdefault(wrapper.name, []).append(wrapper)

    def settle(self) -> None:
        """A class is what its bases are: subclasses answer to the same."""
        for _ in range(ROUNDS):
            for name, bases in sorted(self.bases.items()):
                for base in sorted(bases):
                    for wrapper in self.by_name.get(base, ()):
                        if wrapper.kind in ("class", "named attribute"):
                            self.add(replace(wrapper, name=name))

    def attributes(self) -> set[str]:
        """Attributes of classes that are part of a variable's name."""
        return {hole.name for each in self.found if each.kind == "class attribute" for hole in each.holes()}


READS = re.compile(rb"\bos\.environ\b|\bgetenv\b|\benviron\s*[\[.]|from os import")
"""What a file that reads the environment has in it somewhere."""


WORDS = (b"environ", b"getenv", b"from os import")
"""One of which stands in all that the pattern meets."""


def find(library: Library, files: Iterable[str]) -> Wrappers:
    """All wrappers: those that read themselves, then those that call them, and so on."""
    wrappers = Wrappers()
    files = list(files)
    looked_for = READS
    known = 0
    for _ in range(ROUNDS):
        for file in files:
            raw = library.raw(file)
            # A search for a plain word is many times faster than one for a pattern.
            if (looked_for is not READS or any(word in raw for word in WORDS)) and looked_for.search(raw):
                source = library.source(file)
                if source is not None:
                    _of_file(wrappers, library, source)
        wrappers.settle()
        names = sorted({re.escape(each.name) for each in wrappers.found[known:] if each.kind == "function"})
        if not names:
            break
        known = len(wrappers.found)
        looked_for = re.compile(rb"\b(?:" + "|".join(names).encode() + rb")\(")
    return wrappers


def _of_file(wrappers: Wrappers, library: Library, source: Source) -> None:
    for node, _ in source.all(ast.ClassDef):
        names = {source.dotted(base).rpartition(".")[2] for base in node.bases}
        wrappers.bases.setdefault(node.name, set()).update(names - {""})
    for access in accesses(source):
        made = template(source, access.name, access.scope, library.string)
        if made is not None and text_of(made) is None:
            for wrapper in wrapper_of(source, made, access.scope, access.default, access.via):
                wrappers.add(wrapper)
    for call, scope in source.all(ast.Call):
        for called in calls(source, call, scope, wrappers, library):
            if called.template is not None and text_of(called.template) is None:
                for wrapper in wrapper_of(source, called.template, scope, called.default_node, called.wrapper.via):
                    wrappers.add(wrapper)


def wrapper_of(
    source: Source, made: Template, scope: Scope | None, default: ast.expr | None, via: str
) -> Iterator[Wrapper]:
    holes = [part for part in made if isinstance(part, Hole)]
    kinds = {hole.kind for hole in holes}
    if kinds == {"parameter"}:
        owner = _function_with(scope, {hole.name for hole in holes})
        if owner is not None and not _overwrites(source, owner):
            yield _function_wrapper(source, owner, made, default, via)
    elif kinds == {"attribute"} and scope is not None and (around := scope.class_()) is not None:
        yield from _class_wrapper(source, around, made, holes, via)


def _overwrites(source: Source, of: Scope) -> bool:
    """Whether a function sets the variable in any case: what it is set to before changes nothing."""
    targets = [target for each in of.node.body if isinstance(each, ast.Assign) for target in each.targets]
    variables = [each for each in targets if isinstance(each, ast.Subscript)]
    given = parameters(of.node) if not isinstance(of.node, ast.ClassDef) else ()
    return any(
        source.dotted(each.value) == "os.environ" and isinstance(each.slice, ast.Name) and each.slice.id in given
        for each in variables
    )


def _function_with(scope: Scope | None, names: set[str]) -> Scope | None:
    """The function around that has all of these parameters."""
    around = scope.function() if scope else None
    while around is not None:
        assert isinstance(around.node, FUNCTIONS)
        if names <= set(parameters(around.node)):
            return around
        around = around.outer.function() if around.outer else None
    return None


def _function_wrapper(source: Source, scope: Scope, made: Template, default: ast.expr | None, via: str) -> Wrapper:
    function = scope.node
    assert isinstance(function, FUNCTIONS)
    owner = scope.outer.node.name if scope.outer is not None and scope.outer.is_class else ""
    is_class = bool(owner) and function.name == "__init__"
    return Wrapper(
        "class" if is_class else "function",
        source.file,
        owner if is_class else function.name,
        "" if is_class else owner,
        made,
        _handed(function, bool(owner)),
        _written_defaults(function),
        _fallback(function, default),
        via,
    )


def _handed(function: Function, is_method: bool) -> tuple[str, ...]:
    """The parameters that a call hands in."""
    names = parameters(function)
    static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in function.decorator_list)
    return names[1:] if is_method and not static else names


def _written_defaults(function: Function) -> dict[str, str | None]:
    return {
        name: value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
        for name, value in defaults(function).items()
    }


def _fallback(function: Function, default: ast.expr | None) -> str:
    """The parameter that the default is, also inside of ``str(…)``; else one that is called so."""
    if isinstance(default, ast.Call) and len(default.args) == 1:
        default = default.args[0]
    if isinstance(default, ast.Name) and default.id in parameters(function):
        return default.id
    return "default" if "default" in parameters(function) else ""


def _class_wrapper(source: Source, scope: Scope, made: Template, holes: list[Hole], via: str) -> Iterator[Wrapper]:
    """By where the attribute comes from: ``__set_name__``, ``__init__``, or the classes themselves."""
    node = scope.node
    methods = {each.name: each for each in node.body if isinstance(each, FUNCTIONS)}
    init = methods.get("__init__")
    named = methods.get("__set_name__")
    given = _handed(init, True) if init is not None else ()
    values = _written_defaults(init) if init is not None else {}
    for hole in holes:
        if named is not None and len(parameters(named)) == 3 and _sets(named, hole.name) == parameters(named)[2]:
            fallback = _fallback(init, None) if init is not None else ""
            yield Wrapper("named attribute", source.file, node.name, "", made, given, values, fallback, via)
            return
    if init is not None and all(_sets(init, hole.name) in given for hole in holes):
        renamed = tuple(
            replace(part, kind="parameter", name=_sets(init, part.name)) if isinstance(part, Hole) else part
            for part in made
        )
        yield Wrapper("class", source.file, node.name, "", renamed, given, values, _fallback(init, None), via)
    if len(holes) == 1:
        yield Wrapper("class attribute", source.file, node.name, "", made, via=via)


def _sets(function: Function, attribute: str) -> str:
    """The parameter that a method keeps as ``self.attribute``."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Name(id=value)
            ) if name == attribute:
                return value
    return ""


@dataclass(frozen=True)
class Called:
    """A call of a wrapper. ``template`` is None where the name that it is handed cannot be worked out."""

    wrapper: Wrapper
    node: ast.Call
    template: Template | None
    name_node: ast.expr
    default_node: ast.expr | None


def calls(
    source: Source, node: ast.Call, scope: Scope | None, wrappers: Wrappers, library: Library
) -> Iterator[Called]:
    """What one call asks the environment for, through a function or a class."""
    for wrapper in meant(source, node.func, scope, wrappers, library):
        if wrapper.kind not in ("function", "class"):
            continue
        handed = {
            hole.name: handed_in(node, wrapper, hole.name) for hole in wrapper.holes() if hole.kind == "parameter"
        }
        first = next((value for value in handed.values() if value is not None), None)
        if first is None:
            continue
        yield Called(
            wrapper,
            node,
            _put_together(source, wrapper, handed, scope, library),
            first,
            handed_in(node, wrapper, wrapper.fallback) if wrapper.fallback else None,
        )


def _put_together(
    source: Source, wrapper: Wrapper, handed: Mapping[str, ast.expr | None], scope: Scope | None, library: Library
) -> Template | None:
    values: dict[tuple[str, str], Template] = {}
    for name, given in handed.items():
        made: Template | None
        if given is None:
            default = wrapper.defaults.get(name)
            made = None if default is None else (default,)
        else:
            made = template(source, given, scope, library.string)
        if made is None:
            return None
        values["parameter", name] = made
    return filled(wrapper.template, values)


def handed_in(node: ast.Call, wrapper: Wrapper, name: str) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    at = wrapper.parameters.index(name) if name in wrapper.parameters else len(node.args)
    if at < len(node.args) and not any(isinstance(each, ast.Starred) for each in node.args[: at + 1]):
        return node.args[at]
    return None


def meant(source: Source, func: ast.expr, scope: Scope | None, wrappers: Wrappers, library: Library) -> list[Wrapper]:
    """The wrappers that a call's function is: by name, and by the file that the name is of or imported from."""
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    dotted = source.dotted(func)
    wanted = dotted.rpartition(".")[2] if isinstance(func, ast.Name) else name
    known = wrappers.by_name.get(wanted, ())
    if not known or not dotted:
        return []
    first = dotted.split(".")[0]
    if isinstance(func, ast.Attribute) and first in ("self", "cls"):
        return [each for each in known if each.owner and each.file == source.file]
    if isinstance(func, ast.Name) and func.id not in source.aliases:
        return [each for each in known if not each.owner and each.file == source.file]
    if isinstance(func, ast.Attribute):
        methods = [each for each in known if each.owner and each.owner == dotted.split(".")[-2]]
        if methods:
            return methods
    plain = [each for each in known if not each.owner]
    where = library.modules.of_import(dotted, source.file) if plain else None
    if where is None:
        return []
    here = [each for each in plain if each.file == where[0]]
    if here:
        return here
    # Passed on by a package's __init__: the name alone decides, where all of that name do the same.
    return (
        plain[:1]
        if len({(each.template, each.kind) for each in plain}) == 1
        else _defining(plain, source, dotted, library)
    )


def _defining(plain: list[Wrapper], source: Source, dotted: str, library: Library) -> list[Wrapper]:
    found = library.imported(source, dotted)
    return [each for each in plain if found is not None and each.file == found[0].file]
