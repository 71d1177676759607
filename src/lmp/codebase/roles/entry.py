"""Ways to run a code base: scripts, servers, commands, and the classes that a package hands out."""

from __future__ import annotations

import re

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.graph.values import ClassValue, FunctionValue
from lmp.codebase.roles.reach import TEST, Reading, Row, place
from lmp.codebase.roles.spine import leaves

ARGUMENTS = frozenset(
    [
        "argparse",
        "ArgumentParser",
        "argv",
        "fire",
        "Fire",
        "click",
        "typer",
        "tyro",
        "app",
        "uvicorn",
        "parse_args",
        "HfArgumentParser",
    ]
)
"""Names that stand in a script which takes arguments or serves."""


def entry_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}
    folders: set[str] = set()

    def add(role: str, symbol: str, where: Place, command: str, rank: int = 0) -> None:
        found.setdefault((where.file, where.line), Row("entry_points", role, symbol, where, command, rank))

    running = reading.reaching(leaves(reading))
    for each in reading.facts.entries:
        if each.kind == "cli" and ":" in each.what:
            target = _target(reading, each.what)
            if target is not None:
                add("cli", target.qualname, place(target), each.name)
        elif each.kind == "shell" and reading.roles.get(each.place.file) not in ("test", "build", "docs"):
            # Of a folder's many scripts, one for each size or model, the first stands for all.
            folder = each.place.file.rpartition("/")[0]
            if folder in folders:
                continue
            folders.add(folder)
            add("shell", each.name, each.place, f"bash {each.place.file}", 1)
    for file, graph in reading.facts.graphs.items():
        role = reading.roles.get(file, "source")
        if role in ("test", "legacy", "docs", "build") or (role == "vendored" and not reading.is_own(file)):
            continue
        if graph.main and graph.body is not None:
            _main(reading, file, graph.main, graph.body, add, role)
        if graph.body is None:
            for one in graph.functions:
                if one.name == "main" and one.qualname == "main":
                    _native_main(reading, one, add, role)
        for function in graph.functions:
            if any(len(chain) > 1 and "command" in chain for chain in function.decorators):
                add("cli", function.qualname, place(function), function.name.replace("_", "-"))
    for each in reading.facts.entries:
        if each.kind == "server" and each.what.split(" ")[0].isupper():
            handler = next(
                (one for one in reading.functions if (one.file, one.line) == (each.place.file, each.place.line)), None
            )
            if handler is not None and handler in running:
                add("server", each.name, each.place, each.what, 1)
    for of in _loops(reading, running):
        add("library", of.qualname, place(of), f"{of.name}(...)", 1)
    for where, name, handed in _handed_out(reading, running):
        add("library", name, where, handed, 1)
    return list(found.values())


def _target(reading: Reading, written: str) -> Function | None:
    module, _, name = written.partition(":")
    file = reading.graph.evaluator.modules.file(module.strip(), "")
    if file is None:
        return None
    for value in reading.graph.evaluator.top(file, name.strip().partition(".")[0].partition(" ")[0], 0):
        if isinstance(value, FunctionValue):
            return value.of
    return None


def _main(reading: Reading, file: str, line: int, body: Function, add: object, role: str) -> None:
    """What the block under ``__main__`` starts: a function of the file, else the block itself."""
    assert callable(add)
    kind = {"benchmark": "benchmark", "example": "example"}.get(role, "cli")
    end = body.end
    started: list[Function] = []
    for edge in reading.graph.edges.get(body, ()):
        if line <= edge.line <= end and edge.callee.file == file and edge.callee.owner is None:
            started.append(edge.callee)
    module = file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    packaged = f"{file.rpartition('/')[0]}/__init__.py" in reading.facts.graphs or (role == "source" and "/" in file)
    command = f"python -m {module}" if packaged else f"python {file}"
    main = next((each for each in started if each.name in ("main", "cli", "run")), started[-1] if started else None)
    if re.search(r"(?i)server|serve", file):
        kind = "server"
    elif re.search(r"(?i)bench", file.rpartition("/")[2]):
        kind = "benchmark"
    if main is not None and TEST.match(main.name):
        return
    takes = {name for edge in started for name in edge.reads} | body.reads
    if kind == "cli" and (main is None or main.name not in ("main", "cli", "run")) and not takes & ARGUMENTS:
        # A block that takes no arguments and runs no main function tries the file.
        return
    if main is not None:
        add(kind, main.qualname, place(main), command)
    else:
        add(kind, "__main__", Place(file, line), command)


def _native_main(reading: Reading, main: Function, add: object, role: str) -> None:
    """``main`` of C++; where it only hands on to one function of the code base, that function."""
    assert callable(add)
    edges = [edge for edge in reading.graph.edges[main] if edge.how == "direct" and edge.of == 1]
    handed = edges[0].callee if len(edges) == 1 and main.end - main.line < 12 else main
    kind = (
        "server"
        if "server" in main.file
        else "benchmark"
        if "bench" in main.file
        else "example"
        if role == "example"
        else "cli"
    )
    add(kind, handed.qualname, place(handed), main.file.rpartition("/")[2].rpartition(".")[0])


def _handed_out(reading: Reading, running: set[Function]) -> list[tuple[Place, str, str]]:
    """Classes and functions that a package's first file takes from below, and that run a model or a kernel."""
    found: list[tuple[Place, str, str]] = []
    tops = sorted(
        (file for file in reading.facts.graphs if file.endswith("__init__.py") and reading.is_own(file)),
        key=lambda f: f.count("/"),
    )
    if not tops:
        return []
    least = tops[0].count("/")
    for file in tops:
        if file.count("/") > least:
            break
        graph = reading.facts.graphs[file]
        for name in graph.imports:
            if name.startswith("_"):
                continue
            for value in reading.graph.evaluator.top(file, name, 0):
                methods = value.of.methods.values() if isinstance(value, ClassValue) else ()
                runs = any(method in running for method in methods)
                if isinstance(value, ClassValue | FunctionValue) and (runs or value.of in running):
                    found.append((place(value.of), name, f"from {file.split('/')[-2]} import {name}"))
        for star in graph.stars:
            there = reading.graph.evaluator.modules.file(star, file)
            inner = reading.facts.graphs.get(there or "")
            for of in inner.classes.values() if inner is not None else ():
                if any(method in running for method in of.methods.values()) and not of.name.startswith("_"):
                    found.append((place(of), of.name, f"from {file.split('/')[-2]} import {of.name}"))
    return found


def _loops(reading: Reading, running: set[Function]) -> list[Class]:
    """Classes that run a model by a public method, and that only scripts, tests or users of the package make."""
    found: dict[Class, None] = {}
    scripts = {graph.body for graph in reading.facts.graphs.values()}
    for of in reading.classes:
        if of.native or of.name.startswith("_") or {"forward", "__call__"} & set(of.methods) or of.outer or of.within:
            continue
        if reading.graph.evaluator.subclasses.get(of) or len(reading.graph.evaluator.line(of)) > 2:
            continue
        public = [each for name, each in of.methods.items() if each in running and not name.startswith("_")]
        if not any(each.loops or each.endless for each in public) and len(public) < 3:
            continue
        makers = {edge.caller for method in of.methods.values() for edge in reading.graph.callers.get(method, ())}
        makers = {each for each in makers if each.owner is not of and not (each.outer and each.outer.owner is of)}
        started = [each in scripts or each.name == "main" or not reading.is_own(each.file) for each in makers]
        if all(started) or sum(started) > 1:
            found[of] = None
    return list(found)
