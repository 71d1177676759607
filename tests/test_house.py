"""The shape of src/lmp: which room imports which, no circle between files, and no long list of parameters.

Imports are read from the syntax trees: those of modules, of functions, and of ``if TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from lmp.cli.main import COMMANDS
from lmp.report.formats import FORMATS

SRC = Path(__file__).parents[1] / "src"

FLOORS = (
    ("errors", "records", "flops", "dtypes", "formula", "settings"),
    ("source", "store", "link"),
    ("workload",),
    ("trace", "verify"),
    ("analyze",),
    ("observe", "agents", "zoo", "codebase"),
    ("atlas",),
    ("predict",),
    ("lab", "report"),
    ("cli", "api"),
)
"""Rooms from the lowest floor to the highest. A room is a folder or a file of src/lmp."""

BESIDE = {
    ("errors", "records"),
    ("formula", "errors"),
    ("settings", "errors"),
    ("store", "source"),
    ("link", "store"),
    ("cli", "api"),
}
"""Imports between two rooms of one floor, each allowed in this direction only."""

BY_NAME = {
    "lmp.cli.main": {f"lmp.cli.{file}" for file, _ in COMMANDS.values()},
    "lmp.report.formats": {f"lmp.report.formats.{name}" for name in FORMATS},
}
"""Files that are imported by a name put together when the program runs."""

MOST_PARAMETERS = 8

Graph = Mapping[str, Set[str]]


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each file, by the name of its module."""
    return {name_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in sorted((SRC / "lmp").rglob("*.py"))}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.Module, known: Set[str]) -> set[str]:
    """The known modules that are imported anywhere in the tree. ``from a import b`` is ``a.b`` if that is a module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else str(node.module) for name in names}
    return found & known


@cache
def graph() -> Graph:
    found = {name: imports(tree, trees().keys()) | BY_NAME.get(name, set()) for name, tree in trees().items()}
    return {name: others - {name} for name, others in found.items()}


def circles(edges: Graph) -> list[list[str]]:
    """The groups of modules in which each one leads to each other one."""
    reached = {name: reachable(edges, name) for name in edges}
    groups = {tuple(sorted(other for other in there if name in reached[other])) for name, there in reached.items()}
    return [list(group) for group in sorted(groups) if group]


def reachable(edges: Graph, start: str) -> set[str]:
    found: set[str] = set()
    left = list(edges[start])
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += edges[name]
    return found


def room(module: str) -> str:
    """``agents`` for ``lmp.agents.run``; empty for the package itself and for ``python -m lmp``."""
    return "" if module in ("lmp", "lmp.__main__") else module.split(".")[1]


def test_what_counts_as_an_import() -> None:
    text = """
import a.b
from a import c, thing
if TYPE_CHECKING:
    from d import e
def f():
    from g import h
    import unknown
"""
    assert imports(ast.parse(text), {"a", "a.b", "a.c", "d", "g.h"}) == {"a", "a.b", "a.c", "d", "g.h"}


def test_what_counts_as_a_circle() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}, "g": set()}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]


def test_no_file_imports_another_in_a_circle() -> None:
    assert circles(graph()) == []


def test_a_room_imports_from_lower_floors() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    pairs = {(room(name), room(other)) for name, others in graph().items() for other in others}
    pairs = {(one, other) for one, other in pairs if one and other and one != other}
    assert {name for pair in pairs for name in pair} <= floor.keys()
    assert {(one, other) for one, other in pairs if floor[one] <= floor[other]} == BESIDE


def functions(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Each function: its name, its line, and its number of parameters, a method's own object left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            of = node.args
            several = [argument for argument in (of.vararg, of.kwarg) if argument is not None]
            names = [argument.arg for argument in (*of.posonlyargs, *of.args, *of.kwonlyargs, *several)]
            number = len(names) - (names[:1] in (["self"], ["cls"]))
            yield getattr(node, "name", "lambda"), node.lineno, number


def test_what_counts_as_a_parameter() -> None:
    text = "class A:\n    def f(self, a, /, b, *c, d=1, **e): ...\ng = lambda x, y: x"
    assert list(functions(ast.parse(text))) == [("f", 2, 5), ("lambda", 3, 2)]


def test_no_function_has_many_parameters() -> None:
    """Commands are left out: each of their parameters is an option that typer reads."""
    commands = {(f"lmp.cli.{file}", name.replace("-", "_")) for name, (file, _) in COMMANDS.items()}
    found = {(module, function): line for module, tree in trees().items() for function, line, _ in functions(tree)}
    assert commands <= found.keys()
    many = [
        f"{module}:{line} {function}: {number}"
        for module, tree in trees().items()
        for function, line, number in functions(tree)
        if number > MOST_PARAMETERS and (module, function) not in commands
    ]
    assert many == []


def test_no_two_test_files_have_one_name_without_a_package() -> None:
    """pytest imports such files by their bare name and stops at the second; a run of one folder does not show it."""
    tests = Path(__file__).parent
    bare = [file.name for file in tests.rglob("test_*.py") if not (file.parent / "__init__.py").exists()]
    assert {name for name in bare if bare.count(name) > 1} == set()
