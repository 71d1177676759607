"""Places of Python code that start a kernel: ``kernel[grid](…)``, ``kernel(…).launch(grid=…)``, ``ct.launch(…)``.

Which of them name a kernel of the repository is known only when all of it is read, so that a file gives candidates.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from lmp.codebase.facts import Kernel, Launch, Place
from lmp.codebase.source import Scope, Source
from lmp.codebase.templates import assigned

SETTINGS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "block",
    "shared",
    "threads",
)
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Candidate:
    """``names`` are what may be started: the name itself, or what a local variable of that name is set to."""

    names: tuple[str, ...]
    dotted: tuple[str, ...]
    """The same as they are imported; what is of ``self`` begins so."""
    written: str
    place: Place
    inside: str
    grid: str
    values: Mapping[str, str]
    certain: bool
    """It is a launch even where no kernel of that name is found."""
    given: tuple[str, ...] = ()
    """Its arguments without a name, up to the first that is a list given item by item."""


def candidates(source: Source) -> list[Candidate]:
    """In the order of their lines."""
    found = list(_candidates(source))
    return sorted(found, key=lambda each: each.place.line)


def _candidates(source: Source) -> Iterator[Candidate]:
    for node, scope in source.all(ast.Call):
        func = node.func
        if isinstance(func, ast.Subscript):
            values = _values(source, node)
            certain = "num_warps" in values or "num_stages" in values
            yield from _candidate(source, node, func.value, scope, source.written(func.slice), values, certain)
        elif isinstance(func, ast.Attribute) and func.attr == "launch" and isinstance(func.value, ast.Call):
            values = _values(source, node)
            grid = values.pop("grid", "")
            if grid:
                yield from _candidate(source, node, func.value.func, scope, grid, values, False)
        elif source.dotted(func) == "cuda.tile.launch" and len(node.args) >= 3:
            yield from _candidate(source, node, node.args[2], scope, source.written(node.args[1]), {}, True)


def _candidate(
    source: Source,
    node: ast.Call,
    kernel: ast.expr,
    scope: Scope | None,
    grid: str,
    values: dict[str, str],
    certain: bool,
) -> Iterator[Candidate]:
    if isinstance(kernel, ast.Name):
        # A variable is no kernel of its name, which other files may have.
        meant: list[ast.expr] = list(_local(source, kernel.id, scope)) or [kernel]
    elif isinstance(kernel, ast.Attribute):
        meant = [kernel]
    else:
        return
    named = {each.attr if isinstance(each, ast.Attribute) else ast.unparse(each): source.dotted(each) for each in meant}
    function = scope.function() if scope else None
    given = node.args if isinstance(node.func, ast.Subscript) else []
    plain = takewhile(lambda each: not isinstance(each, ast.Starred), given)
    # The kernel's own line, which may be below that of the call's first bracket.
    place = Place(source.file, kernel.end_lineno or kernel.lineno)
    yield Candidate(
        tuple(named),
        tuple(named.values()),
        kernel.attr if isinstance(kernel, ast.Attribute) else kernel.id,
        place,
        function.qualname if function else "",
        grid[:LONGEST],
        values,
        certain,
        tuple(source.written(each)[:LONGEST] for each in plain),
    )


def _local(source: Source, name: str, scope: Scope | None) -> Iterator[ast.expr]:
    """The names in what the function, or the module, sets the variable to: ``kernel = one if fast else other``."""
    function = scope.function() if scope else None
    values = assigned(function.node, name) if function and not isinstance(function.node, ast.ClassDef) else []
    if not values and name in source.constants:
        values = [source.constants[name]]
    for value in values:
        for each in ast.walk(value):
            if isinstance(each, ast.Name | ast.Attribute):
                yield each


def _values(source: Source, node: ast.Call) -> dict[str, str]:
    return {each.arg: source.written(each.value)[:LONGEST] for each in node.keywords if each.arg}


Meant = Callable[[str, str], str | None]
"""The file that defines an imported dotted name, for the file that imports it."""


def launches(found: Iterable[Candidate], kernels: Iterable[Kernel], meant: Meant) -> list[Launch]:
    """Those that name a kernel, one for each kernel that may be meant; with the values that configure it."""
    known: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        known.setdefault(kernel.name.rpartition(".")[2], []).append(kernel)
    started: list[Launch] = []
    for each in found:
        named = [(name, dotted) for name, dotted in zip(each.names, each.dotted, strict=True) if name in known]
        for name, dotted in named:
            found_one = _started(known[name], each, dotted, meant)
            placed = dict(zip(found_one.parameters, each.given, strict=False)) if found_one is not None else {}
            every = {**placed, **each.values}
            values = {key: value for key, value in every.items() if configures(key, found_one)}
            of = found_one.place if found_one is not None else None
            started.append(Launch(name, each.place, each.inside, each.grid, values, of))
        if not named and each.certain:
            values = {key: value for key, value in each.values.items() if configures(key, None)}
            started.append(Launch(each.written, each.place, each.inside, each.grid, values))
    return started


def _started(kernels: list[Kernel], each: Candidate, dotted: str, meant: Meant) -> Kernel | None:
    """Of kernels of one name that of this class, this file, the imported file or this folder, or the only one."""
    here = [kernel for kernel in kernels if kernel.place.file == each.place.file]
    if here:
        return max(here, key=lambda kernel: (_common(kernel.name, each.inside), -kernel.place.line))
    if len(kernels) == 1:
        return kernels[0]
    if dotted.startswith("self."):
        return None
    file = meant(dotted, each.place.file) if "." in dotted else None
    imported = [kernel for kernel in kernels if kernel.place.file == file]
    beside = [kernel for kernel in kernels if _folder(kernel.place.file) == _folder(each.place.file)]
    return imported[0] if imported else beside[0] if len(beside) == 1 and file is None else None


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _common(one: str, other: str) -> int:
    """How many classes and functions around two names are the same."""
    pairs = zip(one.split(".")[:-1], other.split("."), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(one.count("."), other.count(".") + 1))


def configures(name: str, kernel: Kernel | None) -> bool:
    """A constexpr of the kernel or a setting of the compiler; of an unknown kernel what is written in capitals."""
    if name in SETTINGS:
        return True
    return name in kernel.constexprs if kernel is not None else name.isupper()
