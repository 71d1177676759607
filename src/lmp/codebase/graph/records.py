"""What the call graph keeps of a file: functions, classes, and what their expressions name. No syntax tree is kept.

An expression is kept as chains, one for each value that it may have: ``self.layers[0].run`` is the chain
``("self", "layers", ITEM, "run")``, ``a if c else b`` are two. What is no name (a number, a sum) has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

ITEM = "[]"
"""An element of what stands before it."""
MANY = "@"
"""A collection of what stands before it."""
SUPER = "super()"
ENTERED = "[with]"
"""What a ``with`` gives of what stands before it."""
IMPORTED = "import "
"""Before the name of a module that a call imports; a ``*`` stands in it for what is only known at run time."""
CLASS = "class of"
"""The class of the object that stands before it: ``type[X]``."""


def at(place: int | str) -> str:
    """One place of a tuple, or one key of a dictionary, whose value stands before it."""
    return f"@{place}"


def pick(place: int | str) -> str:
    """What stands in one place of the tuple before it, or under one key of the dictionary."""
    return f"[{place}]"


class Applied(NamedTuple):
    """A call within a chain, with the chains of its first argument: a wrapper gives that back."""

    first: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    """Of a plain record that is made (``SimpleNamespace(run=f)``): its fields, each with its chains."""
    made: bool = True
    """An annotation makes no object: what it tells of may be one of a class below."""


Chain = tuple[Any, ...]
"""Of names, ITEM, MANY and Applied."""
Chains = tuple[Chain, ...]


@dataclass(slots=True)
class Call:
    """One call. ``line`` is where its name stands."""

    line: int
    callee: Chains
    args: tuple[Chains, ...] = ()
    keywords: tuple[tuple[str, Chains], ...] = ()
    loop: int = 0
    """How many loops of its function are around it."""
    written: str = ""
    text: str = ""
    """A literal string that is its first argument, or the path that an argument put together ends with."""
    tested: bool = False
    """It is a condition, as it stands."""
    spread: bool = False
    """An argument is a list that is given item by item."""
    name: str = field(init=False, default="")
    """The last name of what is called; empty where it has none."""

    def __post_init__(self) -> None:
        parts = (part for chain in self.callee for part in reversed(chain))
        named = (part for part in parts if isinstance(part, str) and part[:1] not in (ITEM[0], MANY))
        self.name = next(named, "")

    @property
    def given(self) -> Iterator[Chain]:
        """The chains of all arguments."""
        return (chain for chains in (*self.args, *(each for _, each in self.keywords)) for chain in chains)


@dataclass(slots=True)
class Write:
    """``target[…] = value``, or a call that fills its target: the target's chains, without the index."""

    line: int
    target: Chains
    value: Chains = ()


@dataclass(slots=True)
class Made:
    """A tensor that is made and kept: ``self.k = torch.zeros(…)``."""

    line: int
    target: str
    """Attribute or local name."""
    by: str
    """Dotted name of what makes it."""
    on_self: bool


HazardKind = Literal[
    "address",
    "any value",
    "assert",
    "by name",
    "by text",
    "compiles",
    "cut",
    "default",
    "debugger",
    "deletes",
    "download",
    "draw",
    "existing",
    "exits",
    "falls back",
    "first only",
    "fixed",
    "full size",
    "kept",
    "late check",
    "launcher",
    "leaves",
    "limit",
    "missing",
    "no branch",
    "no module",
    "no super",
    "none used",
    "not awaited",
    "not handed on",
    "other value",
    "overwritten",
    "path",
    "pickle",
    "process",
    "program",
    "raise",
    "rank",
    "read once",
    "replaced",
    "silent",
    "skipped",
    "step by step",
    "sync",
    "sync decides",
    "total memory",
    "unbound",
    "unbounded",
    "unguarded",
    "waits",
    "absent",
    "compares none",
    "crossed",
    "cuda",
    "dead store",
    "divides",
    "does nothing",
    "enters none",
    "half",
    "import ends",
    "key",
    "lacks",
    "one object",
    "remote code",
    "setup needs",
    "swallowed",
    "unread",
    "zero is unset",
]


@dataclass(slots=True, frozen=True)
class Hazard:
    """A place that may cost a user time, from the code alone."""

    kind: HazardKind
    line: int
    text: str
    """The condition, name or message, as written."""


@dataclass(slots=True, eq=False)
class Function:
    name: str
    qualname: str
    file: str
    line: int
    end: int
    owner: Class | None = None
    outer: Function | None = None
    params: dict[str, Chains] = field(default_factory=dict)
    """Name -> the chains of its annotation."""
    arguments: tuple[tuple[str, int, str], ...] = ()
    """Of each parameter the name, its line, and its default as written."""
    defaults: dict[str, Chains] = field(default_factory=dict)
    """Name -> what it is where a call gives nothing."""
    lines: dict[str, int] = field(default_factory=dict)
    """Of parameters that stand on other lines than the name; of a module's body, of what it assigns."""
    decorators: Chains = ()
    calls: list[Call] = field(default_factory=list)
    locals: dict[str, list[Chain]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """Name -> what it imports itself: that hides what the module calls by the name."""
    inner: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    returns: list[Chain] = field(default_factory=list)
    tested: dict[str, list[Chain]] = field(default_factory=dict)
    """Name -> objects of the classes that ``isinstance`` asks it for."""
    annotated: Chains = ()
    """What it says that it returns."""
    writes: list[Write] = field(default_factory=list)
    sets: list[Chain] = field(default_factory=list)
    """Attributes of other objects than its own that it sets: ``request.cache.length = 0``."""
    replaces: list[Chain] = field(default_factory=list)
    """What it puts in the place of the ``forward`` of another object than its own."""
    made: list[Made] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    """Every name and attribute that stands in it."""
    keys: set[str] = field(default_factory=set)
    """Literal keys of dictionaries that it makes or fills."""
    loops: int = 0
    endless: bool = False
    """It has a ``while``."""
    gets: dict[str, int] = field(default_factory=dict)
    """Attributes that it reads of ``self``, each with its first line."""
    abstract: bool = False
    """Its body says nothing: a docstring, ``pass``, a raise of NotImplementedError."""
    hazards: list[Hazard] = field(default_factory=list)
    is_async: bool = False
    numeric: int = 0
    """How often it multiplies matrices with ``@``."""
    native: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.file, self.line

    @property
    def names(self) -> list[str]:
        """Of its parameters those that a call gives, in order: not the object or class that it is called on."""
        found = [each for each in self.params if not each.startswith("*")]
        static = self.owner is None or ("staticmethod",) in self.decorators
        return found if static or found[:1] not in (["self"], ["cls"]) else found[1:]

    @property
    def nested(self) -> bool:
        """It stands in another function."""
        return self.outer is not None and bool(self.outer.qualname)

    @property
    def outermost(self) -> Function:
        """The function that others call: this one, or the one that it stands in."""
        found = self
        while found.outer is not None and found.outer.qualname:
            found = found.outer
        return found


_EMPTY: dict[type, Any] = {dict: {}, list: [], set: set()}


def settle(function: Function) -> None:
    """Lets a function that is read share what is empty: most of what most functions keep."""
    for name in Function.__slots__:
        value = getattr(function, name)
        if value.__class__ in _EMPTY and not value:
            setattr(function, name, _EMPTY[value.__class__])


@dataclass(slots=True, eq=False)
class Field:
    """A field of a class's body, with its annotation."""

    name: str
    line: int
    annotation: str
    chains: Chains
    default: str | None
    value: Chains = ()


@dataclass(slots=True, eq=False)
class Class:
    name: str
    qualname: str
    file: str
    line: int
    end: int
    outer: Class | None = None
    within: Function | None = None
    bases: Chains = ()
    decorators: Chains = ()
    methods: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    attributes: dict[str, list[tuple[Function | None, Chain]]] = field(default_factory=dict)
    """``self.x = …`` of its methods and ``x = …`` of its body, each with the method."""
    members: dict[str, int] = field(default_factory=dict)
    """Of a class of C++: the lines where its members are declared."""
    lines: dict[str, int] = field(default_factory=dict)
    """Attribute -> where it is first set."""
    native: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.file, self.line


@dataclass(slots=True, frozen=True)
class Held:
    """``Engine.model = …`` in a function, or ``Engine.jobs.append(…)``: a class holds what objects hold elsewhere."""

    function: Function
    name: str
    attribute: str
    chains: Chains
    line: int


@dataclass(slots=True, eq=False)
class FileGraph:
    file: str
    functions: list[Function] = field(default_factory=list)
    """All of them, inner ones and methods too."""
    every_class: list[Class] = field(default_factory=list)
    top: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    names: dict[str, list[Chain]] = field(default_factory=dict)
    """What the module assigns."""
    filled: dict[str, list[tuple[Function, Chain]]] = field(default_factory=dict)
    """What functions put into a collection of the module, each with the function: a registry."""
    held: list[Held] = field(default_factory=list)
    """What functions set on a name, which may be a class."""
    put: dict[str, list[tuple[Function, Chains, Chains]]] = field(default_factory=dict)
    """Attribute -> what functions set it to on other objects, each with the function and the object."""
    imports: dict[str, str] = field(default_factory=dict)
    imported_at: dict[str, int] = field(default_factory=dict)
    """Name that ``from … import`` gives -> its line; not where a failure is caught."""
    packages: dict[str, int] = field(default_factory=dict)
    """First names of what the module itself imports -> the line; not where a failure is caught."""
    stars: list[str] = field(default_factory=list)
    """Modules of which every name is imported."""
    body: Function | None = None
    """The statements of the module itself."""
    main: int = 0
    """Line of ``if __name__ == "__main__"``; 0 where there is none."""
    bindings: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of C++: the name that another language calls it by -> its function, and the line that says so."""
    includes: tuple[str, ...] = ()
    opens: list[tuple[str, int]] = field(default_factory=list)
    """What may name a file, each with its line: texts that are put after a folder, or that the module keeps."""
    keys: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Keys that it asks of what is called settings: what that is called, key, default as written, line."""
    settings: set[str] = field(default_factory=set)
    """Files of settings that literals of calls and defaults name, without folder and ending."""
