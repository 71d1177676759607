"""Ways to run a code base: scripts, servers, commands, and the classes that a package hands out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

from lmp.codebase.entries import SERVERS, STARTERS
from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import Edge
from lmp.codebase.graph.records import Applied, Call, Chain, Class, Function
from lmp.codebase.graph.values import ClassValue, FunctionValue, Instance, innermost
from lmp.codebase.roles.reach import CALLED, PARTS, TEST, Reading, Row, place
from lmp.codebase.roles.sampling import hands_on
from lmp.codebase.roles.spine import decode_loops, leaves
from lmp.codebase.roles.words import says, split

PARSING = frozenset(["ArgumentParser", "HfArgumentParser", "parse_args", "parse_known_args"])
ARGUMENTS = PARSING | {"argparse", "argv", "fire", "Fire", "click", "typer", "tyro", "app", "uvicorn"}
"""Names that stand in a script which takes arguments or serves."""
GENERATES = ("generate", "decode", "benchmark", "train", "run", "ask", "chat")
METHODS, SAYING = (*GENERATES, "sample"), ("generate", "sample", "chat")
"""What the function, and the method, is called by which a program has text made, or a model trained."""
RUNS = ("generate", "sample", "chat", "train")
BUILDS = ("build_", "load_", "make_", "create_")
"""How the names begin of what builds an object for its caller."""
MAKES = ("classmethod", "staticmethod")
SERVING = (*STARTERS, *SERVERS)
MAINS = ("main", "cli", "run")
MOST_GIVERS = MOST_GIVEN = 4
"""Functions that give a model, and classes of what one function gives, from which on they stand in for one another."""
OPERATORS = ("attention", "sampling", "kv_cache", "kv_write", "runner")
"""Parts of the vocabulary of which a function that a library hands out must be."""
ASKS = re.compile(r"\S*POST\S* .*(?:generat|complet|/responses)")
"""Routes by which a request for text comes in."""
MOST_GROUPS = 4
"""Groups of commands, one in another."""
MOST_SERVERS = 2
"""Files with such routes up to which each route is named; where more servers stand side by side, only they are."""
CONFIG = re.compile(r"(?:Config(?:uration)?|Args|Arguments|Settings|Options|Params|Parameters)$")
OTHER_MODEL = re.compile(r"(?<!Base)(?<!Config)Model$|LightningModule$")


@lru_cache(maxsize=1)
def entry_rows(reading: Reading) -> tuple[Row, ...]:
    found: dict[tuple[str, int], Row] = {}

    def add(role: str, symbol: str, where: Place, command: str, rank: int = 0) -> None:
        found.setdefault((where.file, where.line), Row("entry_points", role, symbol, where, command, rank))

    running = reading.reaching(leaves(reading))
    installed = {each.what for each in reading.facts.entries if each.kind == "cli"}
    scripts: dict[tuple[str, str], str] = {}
    for each in reading.facts.entries:
        if each.kind == "cli" and ":" in each.what:
            target = _target(reading, each.what)
            if target is not None:
                scripts[target.file, each.what.rpartition(":")[2].strip()] = each.name
            if isinstance(target, Place):
                add("cli", each.what.rpartition(":")[2].strip(), target, each.name)
            elif target is not None and (reading.roles.get(each.place.file) != "vendored" or target in running):
                add("cli", target.qualname, place(target), each.name)
    for file, graph in reading.facts.graphs.items():
        role = reading.roles.get(file, "source")
        if role in ("test", "legacy", "docs", "build") or (role == "vendored" and not reading.is_own(file)):
            continue
        # Beside a run, and in what is vendored, only what runs a model is a way to run it.
        only = running if role in ("vendored", "example", "benchmark") or says(file, "trial") else None
        # Of a package, the whole of ``__main__.py`` is such a block, and so is a script that is installed as a file.
        whole = file.endswith("__main__.py") or file in installed
        begins = [call.line for call in graph.body.calls] if graph.body and whole else []
        main = graph.main or min(begins, default=0)
        if main and graph.body is not None:
            command = file.rpartition("/")[2] if file in installed else command_of(reading, file, role)
            for kind, started in _main(reading, file, main, graph.body, role, only):
                at = Place(file, main) if started is None else place(started)
                add(kind, "__main__" if started is None else started.qualname, at, command)
        elif _is_script(reading, graph.body, running):
            kind = "benchmark" if re.search(r"(?i)bench", file.rpartition("/")[2]) else "cli"
            add(kind, "__main__", Place(file, 1), command_of(reading, file, role))
        for function in graph.functions:
            if graph.body is None and function.qualname == "main" and (only is None or function in only):
                kind, started = _native_main(reading, function, role)
                add(kind, started.qualname, place(started), file.rpartition("/")[2].rpartition(".")[0])
            elif _made_command(function, ("local_entrypoint",)):
                add("cli", function.qualname, place(function), f"modal run {file}::{function.name}")
            elif _made_command(function, ("command",)):
                add("cli", function.qualname, place(function), _command(reading, function, scripts))
            elif function.qualname and role == "source" and _serves(reading, function):
                add("server", function.qualname, place(function), f"{function.name}(...)", 1)
                if function.owner is not None and function.owner.name[0] != "_":
                    add("server", function.owner.qualname, place(function.owner), f"{function.owner.name}(...)", 1)
    for command, handler in [*_subcommands(reading), *_tables(reading, set(found))]:
        add("cli", handler.qualname, place(handler), command)
    by_key = {each.key: each for each in reading.functions}
    for row in list(found.values()):
        way = by_key.get(row.key)
        for to in _handed(reading, way) if way is not None else ():
            add(row.role, to.qualname, place(to), row.why)
    # A handler within the method that makes a server belongs to its class.
    within = {each.key for each in reading.functions if each.nested and each.outermost.owner is not None}
    asked = [row for row in route_rows(reading) if ASKS.match(row.why) and not says(row.place.file, "beside")]
    asked = [row for row in asked if row.key not in within]
    for row in asked if len({row.place.file for row in asked}) <= MOST_SERVERS else ():
        add("server", row.symbol, row.place, row.why)
    given: list[Function | Class] = [*_runners(reading), *_model(reading), *_builders(reading)]
    for of in given:
        add("library", of.qualname, place(of), f"{of.name}(...)", 1)
    for where, name, handed in [*_handed_out(reading, running), *_told(reading, running)]:
        # A method is named after classes and functions.
        add("library", name, where, handed, 1 + ("." in name))
    for thing, kind in _started(reading, running, set(found)).items():
        add(kind, thing.qualname, place(thing), f"{thing.name}(...)", 1 + ("." in thing.qualname))
    return tuple(found.values())


def route_rows(reading: Reading) -> list[Row]:
    """Routes of a server: no ways to start it, but where a request comes in."""
    return [
        Row("entry_points", "server", each.name, each.place, each.what)
        for each in reading.facts.entries
        if each.kind == "server" and each.what.split(" ")[0].isupper() and reading.is_own(each.place.file)
    ]


def _is_script(reading: Reading, body: Function | None, running: set[Function]) -> bool:
    """Whether a file without a main block, which no other imports, runs a model in a loop of its own lines, or parses
    arguments for what it calls."""
    if body is None or is_used(reading, body.file):
        return False
    edges = reading.graph.edges[body]
    repeats = any(edge.call is not None and edge.call.loop and edge.callee in running for edge in edges)
    # Beside a run, only what runs a model is a way to run it.
    own = reading.roles.get(body.file, "source") == "source" and not says(body.file, "trial")
    parses = own and not PARSING.isdisjoint(body.reads) and any(edge.callee.file != body.file for edge in edges)
    return repeats or parses


def _serves(reading: Reading, function: Function) -> bool:
    """Whether a function starts a web server, or makes one for a caller that is not here."""
    return _calls(reading, function, STARTERS if reading.graph.callers.get(function) else SERVING)


def _calls(reading: Reading, function: Function, names: tuple[str, ...]) -> bool:
    return any(reading.dotted(function, call) in names for call in function.calls)


def _handed(reading: Reading, function: Function) -> list[Function]:
    """What a function that does nothing else hands to another package, which gives it the arguments: ``Fire(run)``."""
    edges = reading.graph.edges.get(function, ())
    return [edge.callee for edge in edges] if all(edge.how == "callback" for edge in edges) else []


def _made_command(function: Function, by: tuple[str, ...]) -> Chain:
    """The decorator that makes a command or a group of commands of a function: ``main.command``."""
    found = (chain for chain in function.decorators if len(chain) > 1 and not set(by).isdisjoint(chain))
    return next(found, ())


def _command(reading: Reading, function: Function, scripts: Mapping[tuple[str, str], str], deep: int = 0) -> str:
    """How a command line names it: the script that is installed, groups, its own name. Not all may be known."""
    graph = reading.facts.graphs[function.file]
    chain = _made_command(function, ("command", "group"))
    first = str(chain[0]) if chain else ""
    values = reading.graph.evaluator.top(function.file, first, 0)
    groups = [each.of for each in values if isinstance(each, FunctionValue) and each.of is not function]
    if groups and deep < MOST_GROUPS:
        before = _command(reading, groups[0], scripts, deep + 1)
    elif deep:
        return scripts.get((function.file, function.name), "")
    else:
        before = scripts.get((function.file, first), "")
        alike = [each for each in graph.functions if _made_command(each, ("command",))[:1] == chain[:1]]
        if script := before if len(alike) == 1 else scripts.get((function.file, function.name), ""):
            # One command alone has no name of its own.
            return script
    calls = graph.body.calls if graph.body is not None else ()
    named = [call for call in calls if chain[:-1] in call.callee and call.line <= function.line]
    own = max(named, key=lambda each: each.line).text if named else ""
    return f"{before} {own or function.name.replace('_', '-')}".strip()


def _subcommands(reading: Reading) -> Iterator[tuple[str, Function | Class]]:
    """What a parser of arguments starts for one of its commands; of a method that classes override, those classes."""
    evaluator = reading.graph.evaluator
    for function in reading.functions:
        for call in function.calls:
            if call.name != "set_defaults":
                continue
            for _, chains in call.keywords:
                known = [v.of for v in evaluator.values(function, chains) if isinstance(v, FunctionValue)]
                # An object that a loop over modules gives is not known, the name of its method is.
                named = [each for chain in chains for each in reading.graph.methods.get(str(chain[-1]), ())]
                for handler in known or named:
                    below = list(evaluator.below(handler.owner)) if handler.owner is not None else []
                    over = [of for of in below if handler.name in of.methods and reading.is_own(of.file)]
                    yield from ((of.name, of) for of in over)
                    if known and not over and reading.is_own(handler.file):
                        yield handler.name, handler


def _tables(reading: Reading, known: set[tuple[str, int]]) -> Iterator[tuple[str, Function]]:
    """What a table of commands starts, where one of the ways to run hands it to another package."""
    starters = {(each.file, each.qualname) for each in reading.functions if each.key in known}
    starters |= {(file, "") for file, graph in reading.facts.graphs.items() if (file, graph.main) in known}
    for file, scope, command, name in reading.facts.commands:
        if (file, scope) in starters:
            for value in reading.graph.evaluator.top(file, name, 0):
                if isinstance(value, FunctionValue) and reading.is_own(value.of.file):
                    yield command, value.of


def _target(reading: Reading, written: str) -> Function | Place | None:
    """The function that a command starts, or where the object is made by which another package starts some."""
    module, _, name = written.partition(":")
    file = reading.graph.evaluator.modules.file(module.strip(), "")
    if file is None:
        return None
    name = name.strip().partition(".")[0].partition(" ")[0]
    for value in reading.graph.evaluator.top(file, name, 0):
        if isinstance(value, FunctionValue):
            return value.of
    graph = reading.facts.graphs[file]
    made = [chain[:-1] for chain in graph.names.get(name, ()) if isinstance(chain[-1], Applied)]
    calls = graph.body.calls if graph.body is not None else ()
    return next((Place(file, call.line) for call in calls if set(made) & set(call.callee)), None)


def command_of(reading: Reading, file: str, role: str) -> str:
    module = file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    packaged = f"{file.rpartition('/')[0]}/__init__.py" in reading.facts.graphs or (role == "source" and "/" in file)
    return f"python -m {module}" if packaged else f"python {file}"


def _main(
    reading: Reading, file: str, line: int, body: Function, role: str, only: set[Function] | None
) -> Iterator[tuple[str, Function | None]]:
    """What the block under ``__main__`` starts: a function of the file, else the block itself."""
    kind = {"benchmark": "benchmark", "example": "example"}.get(role, "cli")
    block = [edge for edge in reading.graph.edges.get(body, ()) if line <= edge.line <= body.end]
    here = [edge for edge in block if edge.callee.file == file and edge.callee.owner is None]
    main = next((edge.callee for edge in here if edge.callee.name in MAINS), None)
    calls = [call for call in body.calls if line <= call.line <= body.end]
    serves = any(reading.dotted(body, call) in STARTERS or call.name == "launch" for call in calls)
    if main is None and here and not serves and sum(edge.how == "callback" for edge in here) < 2:
        # Of a table of commands the block itself is the way in, and so it is of what it does by several calls.
        main = _does(body, calls, here)
    if serves or re.search(r"(?i)server|serve", file):
        kind = "server"
    elif re.search(r"(?i)bench", file.rpartition("/")[2]):
        kind = "benchmark"
    # What is handed to another package gets its arguments from there.
    handed = any(edge.how == "callback" or _handed(reading, edge.callee) for edge in here)
    takes = handed or bool(ARGUMENTS & ({name for edge in here for name in edge.callee.reads} | body.reads))
    if any(TEST.match(each.name) for each in ([main] if main is not None else {edge.callee for edge in here})):
        return
    if only is not None and (main or body) not in only and not handed and not (kind == "benchmark" and takes):
        # What measures a server takes its address, and runs the model there.
        return
    tries = (main is None or main.name not in MAINS) and not takes
    if kind in ("cli", "server") and tries and is_used(reading, file):
        # A block that takes no arguments, in a file that others use, tries the file.
        return
    yield kind, main


def _does(body: Function, calls: list[Call], edges: list[Edge]) -> Function | None:
    """The one function that a main block calls; of several, or beside a parser, the last if it takes all arguments."""
    # What a function is given is not what is started.
    last = ([edge for edge in edges if edge.how != "callback"] or edges)[-1]
    if len({edge.callee for edge in edges}) == 1 and not {call.name for call in calls} & PARSING:
        return last.callee
    given = [*last.call.args, *(chains for _, chains in last.call.keywords)] if last.call is not None else []
    # ``run(**vars(args))`` hands on all of them as well.
    bare = [part.first for chains in given for chain in chains if chain[0] == "vars" for part in chain[1:2]]
    names = {chain[0] for chains in (*given, *bare) for chain in chains if len(chain) == 1}
    parsed = {name for name, made in body.locals.items() if any(_is_parsed(chain) for chain in made)}
    # ``run(args.model, args.port)``, where nothing else of the file is called
    each = all(any(chain[0] in parsed and len(chain) == 2 for chain in chains) for chains in given)
    alone = bool(given) and each and len({edge.callee for edge in edges}) == 1
    return last.callee if (names & parsed or alone) and last.of == 1 else None


def _is_parsed(chain: Chain) -> bool:
    """Whether a chain is what a call gives whose name says that it parses or gives arguments."""
    called = (part for part, then in pairwise(chain) if isinstance(part, str) and isinstance(then, Applied))
    return any("parse" in part or "args" in part for part in called)


def is_used(reading: Reading, file: str) -> bool:
    """Whether another file calls what a file defines."""
    edges = (edge for each in reading.facts.graphs[file].functions for edge in reading.graph.callers.get(each, ()))
    # Where only the name of a method is known, or a class above, another one may be meant.
    return any(edge.caller.file != file and edge.how not in ("name", "inheritance") for edge in edges)


def _native_main(reading: Reading, main: Function, role: str) -> tuple[str, Function]:
    """``main`` of C++; where it only hands on to one function of the code base, that function."""
    edges = [edge for edge in reading.graph.edges[main] if edge.how == "direct"]
    handed = edges[0].callee if len({each.callee.name for each in edges}) == 1 and main.end - main.line < 12 else main
    beside = "benchmark" if "bench" in main.file else "example" if role == "example" else "cli"
    return "server" if "server" in main.file else beside, handed


def package_of(reading: Reading, file: str) -> str:
    """The package whose first file it is, with those around it; the folder that was read may be one."""
    parts, names = file.split("/")[:-1], list[str]()
    while parts and (f"{'/'.join(parts)}/__init__.py" in reading.facts.graphs or not names):
        names.insert(0, parts.pop())
    if not parts and "__init__.py" in reading.facts.graphs:
        names.insert(0, reading.facts.root_name)
    return ".".join(names)


def _handed_out(reading: Reading, running: set[Function]) -> list[tuple[Place, str, str]]:
    """Classes and functions that a package's first file takes from below, and that run a model or a kernel."""
    found: list[tuple[Place, str, str]] = []
    tops = first_files(reading)
    least = level = min((file.count("/") for file in tops), default=0)
    reaching = reading.reaching(decode_loops(reading))
    for file in tops:
        if found and file.count("/") > level:
            # Packages inside count where those above them hand out nothing.
            break
        level = file.count("/")
        inner = file.count("/") > least
        graph = reading.facts.graphs[file]
        # ``Sampler = sampler.Sampler`` is handed out too.
        names = [name for name in dict.fromkeys((*graph.imports, *graph.names)) if not name.startswith("_")]
        handed = {name: reading.graph.evaluator.top(file, name, 0) for name in names}
        models = _models(reading, [v.of for vs in handed.values() for v in vs if isinstance(v, ClassValue)], inner)
        for name, values in handed.items():
            for value in values:
                if isinstance(value, ClassValue):
                    # Of packages inside, what generates and what loads a model.
                    runs = _is_facade(reading, value.of, reaching, running) if inner else _runs(value.of, running)
                elif isinstance(value, FunctionValue):
                    # Of a library's many functions, those for a part of a run of a model.
                    runs = (
                        not inner and value.of in running and any(says(f"{value.of.file}.{name}", p) for p in OPERATORS)
                    )
                    given = [of for of in _given_back(reading, value.of) if _runs(of, running)]
                    found += [(place(of), of.qualname, f"{name}(...)") for of in given]
                else:
                    continue
                if runs or value in models:
                    found.append((place(value.of), name, f"from {package_of(reading, file)} import {name}"))
    return found


def first_files(reading: Reading) -> list[str]:
    """First files of packages, the outermost first."""
    found = [file for file in reading.facts.graphs if file.endswith("__init__.py") and reading.is_own(file)]
    return sorted(found, key=lambda file: file.count("/"))


def _models(reading: Reading, handed: list[Class], inner: bool) -> set[ClassValue]:
    """Of the classes that a package hands out, those of whole models, and the settings that these are made with.

    Nothing builds on such a class: a module that attends and gives logits, or what builds on another package's model.
    """
    evaluator = reading.graph.evaluator
    handed = [of for of in handed if not evaluator.subclasses.get(of) and not split(of.name) & PARTS]
    runs = reading.attending & reading.runs_model
    modules = [of for of in handed if "Module" in named_bases(reading, of)]
    logits = [of for of in modules if any(evaluator.method(of, each) in runs for each in CALLED)]
    found = logits if len(logits) < MOST_GIVEN else []
    # ``PreTrainedModel``, ``HuggingFaceModel``
    found += [of for of in handed if not inner and any(map(OTHER_MODEL.search, named_bases(reading, of)))]
    settings = [each for of in found for each in made_with(reading, of)]
    return {ClassValue(of) for of in (*found, *(each for each in settings if CONFIG.search(each.name)))}


def made_with(reading: Reading, of: Class) -> set[Class]:
    """Classes of what a constructor takes, by what it says; where there is none, of what the fields hold."""
    begin = of.methods.get("__init__")
    said = [each.chains for each in of.fields] if begin is None else begin.params.values()
    chains = [chain for each in said for chain in each]
    values = (value for chain in chains for value in reading.graph.evaluator.scoped(of, None, of.file, chain, 0))
    return {value.of for value in map(innermost, values) if isinstance(value, ClassValue | Instance)}


def named_bases(reading: Reading, of: Class) -> set[str]:
    """The last names of what a class, and what is above it, builds on; every class builds on ``object``."""
    bases = {str(chain[-1]) for each in reading.graph.evaluator.line(of) for chain in each.bases if chain}
    return bases - {"object"}


def _given_back(reading: Reading, function: Function) -> list[Class]:
    """Classes of what a function makes, or has made, and gives back: that is what a caller has in hands."""
    values = [innermost(each) for each in reading.graph.evaluator.values(function, function.returns)]
    given = {each.of: each.exact for each in values if isinstance(each, Instance) and reading.is_own(each.of.file)}
    edges = [edge for edge in reading.reached(function, lambda edge: True, 1) if edge.how == "constructor"]
    made = [of for of, exact in given.items() if exact or any(edge.callee.owner is of for edge in edges)]
    return made if len(made) < MOST_GIVEN else []


def _model(reading: Reading) -> Iterator[Function]:
    """Functions that give a model and that nothing of the code base calls. Where many do, each gives one size."""
    evaluator = reading.graph.evaluator
    givers = []
    for each in reading.functions:
        if _is_public(reading, each) and all(one is each for one in _inside(reading, each)):
            models = _given_back(reading, each)
            if any(evaluator.method(one, name) in reading.attending for one in models for name in CALLED):
                givers.append(each)
    if len(givers) < MOST_GIVERS:
        yield from givers


def _is_facade(reading: Reading, of: Class, reaching: set[Function], running: set[Function]) -> bool:
    """Whether a class generates, or has a class method that gives a model."""
    methods = [each for name, each in of.methods.items() if name[0] != "_"]
    # ``decode`` and ``run`` say too little where no loop is found.
    asks = {each for each in (*methods, of.methods.get("__call__")) if each in reaching and each is not None}
    if any(each.name in (*METHODS, "__call__") for each in asks) or any(
        m.name in SAYING and m in running for m in methods
    ):
        return True
    makers = [each for each in methods if any(chain[-1] == "classmethod" for chain in each.decorators)]
    evaluator = reading.graph.evaluator
    given = {value.of for each in makers for value in evaluator.returned(each, 0) if isinstance(value, Instance)}
    return any(evaluator.method(one, name) or evaluator.overrides(one, name) for one in given - {of} for name in CALLED)


def _told(reading: Reading, running: set[Function]) -> Iterator[tuple[Place, str, str]]:
    """What the README shows: the functions that it imports, the classes that run a model, and what it calls of them.

    A method is one that the README calls by its class's name, ``Model.from_folder(path)``, or of an object of it. An
    object may be what a function of the README makes.
    """
    evaluator = reading.graph.evaluator
    for module, name, called, value in shown_by_readme(reading):
        how = f"from {module} import {name}" if module else f"{name}(...)"
        shown: list[Class] = []
        if isinstance(value, FunctionValue):
            yield place(value.of), value.of.qualname, how
            how, shown = f"{name}(...)", _given_back(reading, value.of)
        elif module:
            shown = [value.of]
        for of in shown:
            methods = [of.methods[each] for each in called if each in of.methods]
            asked = methods or (called and isinstance(value, ClassValue))
            if asked or any(_runs(each, running) for each in evaluator.line(of)):
                yield place(of), of.qualname, how
            for each in methods:
                # What it calls of an object counts where it runs the model; what it calls of the class makes one.
                makes = any(chain[-1] in MAKES for chain in each.decorators)
                if each in running or each.name in METHODS or makes:
                    yield place(each), f"{of.name}.{each.name}", f"{of.name}.{each.name}(...)"


def shown_by_readme(
    reading: Reading,
) -> Iterator[tuple[str, str, tuple[str, ...], ClassValue | FunctionValue]]:
    """What the README imports or calls: module (empty for a call alone), name, methods that it calls, what is meant."""
    evaluator = reading.graph.evaluator
    packages = first_files(reading)
    for module, name, called in reading.facts.told:
        if module.startswith("."):
            files = [f"{each.rpartition('/')[0]}/{module[1:]}.py".lstrip("/") for each in packages]
        else:
            file = evaluator.modules.file(module, "")
            # Of a call alone, what a package hands out by that name.
            files = packages if not module else [file] if file is not None else []
        for value in {value: None for each in files for value in evaluator.top(each, name, 0)}:
            if isinstance(value, ClassValue | FunctionValue):
                yield module, name, called, value


def _runs(of: Class, running: set[Function]) -> bool:
    return any(each in running for each in of.methods.values())


def _started(reading: Reading, running: set[Function], known: set[tuple[str, int]]) -> dict[Function | Class, str]:
    """What the ways to run start in other files, and a program may start as well.

    The class that a command makes and whose public methods run a model, the function that decodes or serves, the
    loader that gives the model, and the function by which two of them start processes.
    """
    graph = reading.graph
    bodies = {(file, each.main): each.body for file, each in reading.facts.graphs.items() if each.main and each.body}
    by_key = {each.key: each for each in reading.functions}
    starters = {body for key, body in bodies.items() if key in known}
    # What a main block calls of its own file is a part of it.
    here = [edge for each in starters for edge in graph.edges[each] if edge.callee.file == each.file]
    starters |= {edge.callee for edge in here if not edge.callee.owner}
    starters |= {by_key[key] for key in known if key in by_key}
    decoding = set(decode_loops(reading))
    repeating = reading.reaching(decoding)
    found: dict[Function | Class, str] = {}
    waiting = sorted(starters, key=lambda each: each.key)
    for starter in waiting:
        for edge in graph.edges.get(starter, ()):
            to, of = edge.callee, edge.callee.owner
            if not reading.is_own(to.file):
                continue
            if to.file == starter.file and not is_used(reading, to.file):
                # A class of one script alone is that script.
                continue
            if of is not None and to.name == "__init__" and of.name[0] != "_":
                runs = to in running and to.file != starter.file and not set(CALLED) & set(of.methods)
                if _generating(reading, of, decoding) or (runs and any(_public(of, running))):
                    found[of] = "library"
            elif to not in running or to.name[0] == "_" or to.file == starter.file:
                continue
            elif of is None and to not in starters and any(_calls(reading, one, SERVING) for one in _near(reading, to)):
                if starter in starters and to not in found:
                    # What it makes, a program may make as well.
                    waiting.append(to)
                found[to] = "server"
    found |= {each: "library" for each in hands_on(reading) if each.name in GENERATES}
    routes = {row.key for row in route_rows(reading)}
    for each in sorted(repeating, key=lambda each: each.key):
        inside = {one for one in _inside(reading, each) if one is not each}
        others = any(one.file != each.file for one in inside) and split(each.name) & set(GENERATES)
        if each.key not in routes and _is_public(reading, each) and (not inside or (each in decoding and others)):
            # What leads to a loop and nothing of the code base calls, or nothing of its file, is there for users.
            found[each] = "library"
    for of in reading.classes:
        if _for_others(of, running):
            found.setdefault(of, "library")
        if of.key in known or of in found:
            # An object that is no module generates where it is called, if it has no method for it.
            called = not of.methods.keys() & set(METHODS) and "Module" not in named_bases(reading, of)
            names = ("__call__",) if called else METHODS
            found |= {each: "library" for each in of.methods.values() if each.name in names and each in repeating}
    return found


def _builders(reading: Reading) -> Iterator[Function]:
    """What a package hands out that builds or loads an object by its name, and that nothing of the code base calls."""
    for file in first_files(reading):
        graph = reading.facts.graphs[file]
        for value in [
            value for name in (*graph.imports, *graph.names) for value in reading.graph.evaluator.top(file, name, 0)
        ]:
            of = value.of if isinstance(value, FunctionValue) and value.of.name.startswith(BUILDS) else None
            if of is not None and _is_public(reading, of) and {*_inside(reading, of)} <= {of}:
                yield of


def _inside(reading: Reading, function: Function) -> Iterator[Function]:
    """What calls a function and is no trial beside the code base."""
    edges = reading.graph.callers.get(function, ())
    return (e.caller for e in edges if reading.is_own(e.caller.file) and not says(e.caller.file, "beside"))


def _is_public(reading: Reading, each: Function) -> bool:
    hidden = each.owner or each.outer or each.native or each.name[0] == "_" or not each.qualname
    return not hidden and reading.is_own(each.file) and not says(each.file, "beside") and not TEST.match(each.name)


def _for_others(of: Class, running: set[Function]) -> bool:
    """Whether another package runs a class: one that answers the calls of a service."""
    serves = any(str(chain[-1]).endswith("Servicer") for chain in of.bases)
    return serves and of.name[0] != "_" and any(each in running for each in of.methods.values())


def _public(of: Class, running: set[Function]) -> Iterator[Function]:
    return (each for name, each in of.methods.items() if name[0] != "_" and each in running)


def _generating(reading: Reading, of: Class, decoding: set[Function]) -> list[Function]:
    """Public methods of a class that hold a loop which decodes or trains, or call it."""
    return [each for name, each in of.methods.items() if name[0] != "_" and _near(reading, each) & decoding]


def _near(reading: Reading, function: Function) -> set[Function]:
    """A function, what it calls or starts, and what that calls."""
    return {function, *(edge.callee for edge in reading.reached(function, lambda edge: True, 1))}


def _runners(reading: Reading) -> list[Class]:
    """Classes that generate or train by public methods, and that nothing of the code base makes but what starts it, or
    that several programs make.

    What makes one that builds on it makes it as well.
    """
    graphs = reading.facts.graphs
    scripts = {file for file, graph in graphs.items() if graph.main and not is_used(reading, file)}
    decoding = set(decode_loops(reading))
    repeating = reading.reaching(decoding)
    made: dict[str, set[Class | None]] = {}
    for each in reading.functions:
        if each.file not in scripts and each.name != "main" and not says(each.file, "beside"):
            for call in each.calls:
                made.setdefault(call.name, set()).add(each.owner)
    programs: dict[Class | None, set[str]] = {}
    for edge in (edge for edges in reading.graph.edges.values() for edge in edges if edge.how == "constructor"):
        if graphs[edge.caller.file].main and reading.is_own(edge.caller.file):
            programs.setdefault(edge.callee.owner, set()).add(edge.caller.file)
    found: list[Class] = []
    for of in reading.classes:
        beside = of.native or of.name.startswith("_") or of.outer or of.within or says(of.file, "beside")
        if beside or of.file in scripts:
            # A class of one script alone is that script.
            continue
        line = [of, *reading.graph.evaluator.below(of)]
        said = any(split(each.name) & set(METHODS) for each in _generating(reading, of, decoding))
        # The last word of a name says what it is: ``LLMEngine``.
        named = says(re.sub(r".*?(?=[A-Z]+[a-z]*$)", "", of.name), "runner") and any(_public(of, repeating))
        shared = len(programs.get(of, ())) > 1 and bool(of.methods.keys() & set(RUNS))
        if shared or ((said or named) and not any(made.get(each.name, set()) - {each} for each in line)):
            found.append(of)
    return found
