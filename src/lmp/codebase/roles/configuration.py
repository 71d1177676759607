"""The configuration surface: flags, environment variables, fields of config classes, keys of config files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from lmp.codebase.facts import ConfigFile, Flag, Place
from lmp.codebase.graph.records import Chain, Class, Function
from lmp.codebase.graph.values import ClassValue, FunctionValue, innermost
from lmp.codebase.roles.entry import CONFIG, MAKES, is_used, made_with, named_bases, shown_by_readme
from lmp.codebase.roles.reach import Reading, Row, place
from lmp.codebase.roles.spine import leaves
from lmp.codebase.roles.words import says, split, vocabulary

OPENED = re.compile(r"[\w.-]*(?:config|param|setting|args)[\w.-]*\.(?:json|ya?ml|toml)")
"""Names of files of settings that code looks for in a folder."""
FEW = 40
"""Settings below which a code base counts as one that is run by other scripts."""
NEXT_TO_NONE = 10
"""Settings below which a code base has none to speak of."""
FILES = re.compile(r"(?:\w+_)?(?:configs?|configuration|settings|options|arguments)")
"""Names of files whose records are settings."""
RECORD = 3
"""Values in the body of a class without bases that make it a record of settings."""
WORDS = 200
"""Keys of a file that are data, such as words and tokens, where code has nearly none of their names."""
TABLE = 10
"""Files of settings that one file names from which on it is a table of them, and singles none out."""
SIBLINGS = 10
"""Folders with classes of settings, side by side, from which on each is of one model among many."""
REQUESTED = re.compile(r"Param(?:eter)?s$")
"""Parameters of sampling come with each request: they are no settings of the program."""
PARSERS = ("jsonargparse.CLI", "jsonargparse.auto_cli", "tyro.cli")
MODELS = frozenset(["BaseModel", "BaseSettings", "NamedTuple", "Struct"])
CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
OF_LIBRARY = frozenset(["model_config"])
"""Attributes by which pydantic itself is set."""
KIN = re.compile(r"(?:Config(?:uration)?|Args|Arguments|Settings|Options|Params|Parameters)(?:Base|Model|Mixin)?$")
"""A class of another package for settings: what builds on it and has annotated fields is of its kind."""


def configuration_rows(reading: Reading, beginnings: Sequence[Row]) -> list[Row]:
    """Settings of a run: not those of tools beside it, nor the sizes that a module of a model is made with.

    ``beginnings`` are the ways to run.
    """
    found: dict[tuple[Place, str], Row] = {}

    def add(mechanism: str, symbol: str, where: Place, default: str | None, part: str = "") -> None:
        found.setdefault((where, part), Row("configuration", mechanism, symbol, where, default or ""))

    def add_fields(of: Class) -> None:
        asked = {line: default for _, _, default, line in reading.facts.graphs[of.file].keys}
        for name, line, value in _settings(of):
            if not name.startswith("_") and not (name in OF_LIBRARY and named_bases(reading, of) & MODELS):
                add("config class field", f"{of.qualname}.{name}", Place(of.file, line), value or asked.get(line), name)

    def add_arguments(function: Function, may_be_left_out: bool = False) -> None:
        of = function.qualname.removesuffix(".__init__")
        for name, line, default in function.arguments:
            if name not in ("self", "cls") and (default or not may_be_left_out):
                add("argument", f"{of}.{name}", Place(function.file, line), default, name)

    run = _files(reading)

    users = {row.place for row in beginnings if row.role == "library"}
    rows = [row for row in beginnings if row.role != "library"]
    commands = {row.place.file for row in rows if row.role == "cli"}

    def counts(file: str) -> bool:
        return reading.is_own(file) and (not says(file, "beside") or file in commands)

    # A command that is installed counts wherever its file lies.
    ways = {row.place.file for row in rows if row.role == "cli" and not row.why.startswith("python")}
    flags_of_its_own = [flag for flag in reading.facts.flags if counts(flag.place.file) or flag.place.file in ways]
    # What serves takes part in a run, also where another process runs the model; so does every way to start one.
    serves = {each.place.file for each in reading.facts.entries if each.kind == "server"}
    takes_part = run | serves | {row.place.file for row in rows}
    flags = [flag for flag in flags_of_its_own if flag.place.file in takes_part or not run]
    # A function that is run by itself only as a trial has its flags in the command that calls it.
    flags = [each for each in flags if each.parser != "fire" or not is_used(reading, each.place.file)]
    for flag in _once(flags):
        add("cli flag", flag.names[0], flag.place, flag.value or flag.default)
    for function in _handed_to_parsers(reading):
        for name, line, default in function.arguments:
            if name not in ("self", "cls"):
                add("cli flag", f"--{name}", Place(function.file, line), default)
    # What a script sets before it runs a file of the command line in its own place, that file may set anew.
    for file, graph in reading.facts.graphs.items():
        calls = graph.body.calls if graph.body and counts(file) else []
        opens = {call.line for call in calls if call.name == "open"}
        runs = [call.line for call in calls if call.name == "exec" and call.line in opens]
        for name, values in graph.names.items() if runs else ():
            at = graph.body.lines.get(name) if graph.body is not None else None
            if at is not None and at < max(runs) and not values and name[0] != "_":
                add("cli flag", f"--{name}", Place(file, at), None)
    # In each file a variable stands once.
    for read in {(each.place.file, each.name): each for each in reversed(reading.facts.env)}.values():
        # What builds it from source is set by the environment alone.
        if counts(read.place.file) or read.place.file == "setup.py":
            add("env var", read.name, read.place, read.value or read.default)
    modules = {of.file for of in reading.classes if "forward" in of.methods or "Module" in named_bases(reading, of)}
    sizes = [of for of in reading.classes if counts(of.file) and is_config(reading, of)]
    # Of models that stand in for one another, each in its folder, none has the settings of the others.
    siblings = Counter(_folder(folder) for folder in {_folder(of.file) for of in sizes})
    sizes = [of for of in sizes if siblings[_folder(_folder(of.file))] < SIBLINGS]
    # What users make is made with settings, but for modules: these take the sizes of a model.
    makers = [of for of in reading.classes if place(of) in users and "Module" not in named_bases(reading, of)]
    made = {each for of in makers if "__init__" in of.methods for each in made_with(reading, of)}
    for of in sizes:
        if of.file not in modules or of in made:
            add_fields(of)
    for of in reading.classes:
        # What users make as settings, they make with its arguments.
        if place(of) in users and CONFIG.search(of.name) and "__init__" in of.methods:
            add_arguments(of.methods["__init__"])
    for of in _made_by_users(reading, users, sizes):
        if counts(of.file) and of not in sizes:
            add_fields(of)
    for settings in _settings_files(reading):
        for name, where in zip(settings.names, settings.keys, strict=False):
            add("config file", name, where, None)
    for name, where in _opened(reading, counts):
        add("config file", name, where, None)
    if len(found) < FEW:
        # With few settings of its own, the sizes of its models are what a user sets.
        for of in sizes:
            add_fields(of)
    if len(found) < FEW:
        # With few settings of its own, it is run by the scripts beside it, and by those of its users with its flags.
        for flag in _once(flags_of_its_own):
            add("cli flag", flag.names[0], flag.place, flag.value or flag.default)
        for flag in reading.facts.flags:
            script = reading.facts.graphs.get(flag.place.file)
            if script is not None and script.main and reading.roles.get(flag.place.file) in ("benchmark", "example"):
                add("cli flag", flag.names[0], flag.place, flag.value or flag.default)
    few, none = len(found) < FEW, len(found) < NEXT_TO_NONE
    # A library is then set by what users make it with and may leave out; what else they call comes with each request.
    for function in _called_by_users(reading, users) if few else ():
        if none or function.name == "__init__" or any(chain[-1] in MAKES for chain in function.decorators):
            add_arguments(function, not none)
    for of in reading.classes if few else ():
        if place(of) in users and "Module" in named_bases(reading, of) and "__init__" not in of.methods:
            add_fields(of)
    if none:
        # By dictionaries that users hand in as well.
        asked: dict[tuple[str, str], tuple[Place, str]] = {}
        for file, graph in reading.facts.graphs.items():
            for name, key, default, line in sorted(graph.keys, key=lambda each: each[3]) if counts(file) else ():
                # What a function takes out of its keywords, its callers write as arguments.
                if name != "kwargs":
                    asked.setdefault((name, key), (Place(file, line), default))
        for (name, key), (where, default) in asked.items():
            add("key", f"{name}.{key}", where, default, key)
        # By constants of its files, where there are not so many that most are none.
        constants = [
            (name, Place(file, graph.body.lines[name]))
            for file, graph in reading.facts.graphs.items()
            for name, values in graph.names.items()
            if counts(file) and graph.body is not None and name in graph.body.lines
            if CONSTANT.fullmatch(name) and not values and all(name != of for of, _ in asked)
        ]
        for name, where in constants if len(constants) < FEW else ():
            add("constant", name, where, None)
    return list(found.values())


def _once(flags: list[Flag]) -> list[Flag]:
    """Where most flags are repeated by commands side by side, each name once, where the most stand together."""
    count = Counter(flag.place.file for flag in flags)
    found: dict[str, Flag] = {}
    for flag in sorted(flags, key=lambda each: (says(each.place.file, "beside"), -count[each.place.file])):
        found.setdefault(flag.names[0], flag)
    return list(found.values()) if 2 * len(found) < len(flags) else flags


def _opened(reading: Reading, counts: Callable[[str], bool]) -> Iterator[tuple[str, Place]]:
    """Files of settings that code looks for by name: each once, where the model or the plainest run has the name."""
    model = reading.model.file if reading.model is not None else ""
    found: dict[str, list[Place]] = {}
    for file, graph in reading.facts.graphs.items():
        for name, line in graph.opens if counts(file) else ():
            if OPENED.fullmatch(name):
                found.setdefault(name, []).append(Place(file, line))
    plain = vocabulary()["plain_run"]
    for name, places in found.items():
        yield name, min(places, key=lambda at: (at.file != model, -sum(word <= split(at.file) for word in plain)))


def _called_by_users(reading: Reading, users: set[Place]) -> Iterator[Function]:
    """Functions, methods and constructors by which a program runs the library: those that the README shows or calls,
    and those that nothing of it calls."""
    told = {value.of.key for _, _, _, value in shown_by_readme(reading)}
    evaluator = reading.graph.evaluator
    classes = [(value.of, called) for _, _, called, value in shown_by_readme(reading) if isinstance(value, ClassValue)]
    asked = {evaluator.method(of, name) for of, called in classes for name in called}
    begins: dict[Function, bool] = {}
    for of in reading.classes:
        for made in _constructors(reading, of) if place(of) in users or of.key in told else ():
            begins[made] = begins.get(made, False) or of.key in told
    for each in reading.functions:
        callers = [edge for edge in reading.graph.callers.get(each, ()) if reading.is_own(edge.caller.file)]
        shown = begins.get(each, False) or each.key in told or each in asked
        if shown or ((each in begins or place(each) in users) and not callers):
            yield each


def _constructors(reading: Reading, of: Class) -> Iterator[Function]:
    """What an object of the class is made with: the nearest constructor, and those that it hands its keywords on to."""
    for each in reading.graph.evaluator.line(of):
        made = each.methods.get("__init__")
        if made is not None:
            yield made
            above = (call for call in made.calls if call.written == "super().__init__")
            if not any(name == "**" for call in above for name, _ in call.keywords):
                return


def _handed_to_parsers(reading: Reading) -> Iterator[Function]:
    """Functions whose arguments a package turns into flags: one, or a dictionary of one for each command."""
    own = [graph for file, graph in reading.facts.graphs.items() if reading.is_own(file)]
    for each in [each for graph in own for each in graph.functions]:
        for call in each.calls:
            if call.name in ("CLI", "auto_cli", "cli") and call.args and reading.dotted(each, call) in PARSERS:
                for of in map(innermost, reading.graph.evaluator.values(each, call.args[0])):
                    if isinstance(of, FunctionValue) and reading.is_own(of.of.file):
                        yield of.of


def _made_by_users(reading: Reading, users: set[Place], settings: list[Class]) -> Iterator[Class]:
    """Records that a program makes to run the library: its ways to run, and what fields of these and of settings hold.

    What a field holds counts where the code base makes none itself: what it makes is what it works with.
    """
    evaluator = reading.graph.evaluator
    made = {call.name for function in reading.graph.functions for call in function.calls}
    begin = [of for of in reading.classes if place(of) in users or of in settings]
    # What a class builds on, it is made with as well.
    waiting = list(dict.fromkeys(above for of in begin for above in evaluator.line(of)))
    seen = set(waiting)
    while waiting:
        of = waiting.pop(0)
        if not _is_record(reading, of):
            continue
        yield of
        held = {below for one in made_with(reading, of) for below in (one, *evaluator.below(one))}
        more = {one for one in held if one.name not in made} - seen
        waiting += sorted(more, key=lambda one: one.key)
        seen |= more


def _settings_files(reading: Reading) -> Iterator[ConfigFile]:
    """Files that the code or the README names, or most of whose keys it reads: those named first, then the largest.

    One with few new keys is a preset, as is one beside another that is named.
    """
    known = {name for function in reading.functions for name in function.reads}
    known |= {each.name for of in reading.classes for each in of.fields}
    stems = {each.stem for each in reading.facts.config_files}
    named: set[str] = set()
    for code, graph in reading.facts.graphs.items():
        if reading.is_own(code) and len(graph.settings & stems) < TABLE:
            named |= graph.settings
    for each in reading.facts.config_files:
        if each.stem in named:
            named.update(each.composed)
    shown = {
        each.file: max((count for path, count in reading.facts.shown.items() if _ends_with(each.file, path)), default=0)
        for each in reading.facts.config_files
    }
    known_keys: set[str] = set()
    chosen: set[str] = set()

    def order(file: ConfigFile) -> tuple[bool, int, int]:
        return file.stem not in named, -shown[file.file], -len(file.names)

    for file in sorted(reading.facts.config_files, key=order):
        names, folder = set(file.names), file.file.rpartition("/")[0]
        if not names or file.file.startswith(".") or "/." in file.file:
            # A hidden folder is for the tools of its authors.
            continue
        if not reading.is_own(file.file) or says(file.file, "beside"):
            continue
        if len(names) > WORDS and 10 * len(names & known) < len(names):
            continue
        is_named = file.stem in named or shown[file.file] > 0
        is_read = 2 * len(names & known) > len(names) and folder not in chosen
        if (is_named or is_read) and 4 * len(names & known_keys) < 3 * len(names):
            known_keys |= names
            if is_named:
                chosen.add(folder)
            yield file


def _ends_with(file: str, path: str) -> bool:
    return f"/{file}".rpartition(".")[0].endswith(f"/{path}")


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _files(reading: Reading) -> set[str]:
    """Files that take part in a run of a model: those with a function that leads to it, and those that these call."""
    key = reading.reaching(leaves(reading))
    found = {each.file for each in key}
    for each in key:
        found |= {edge.callee.file for edge in reading.graph.edges.get(each, ())}
        # What wraps it runs with it: a decorator may read the command line.
        body = reading.facts.graphs[each.file].body
        wraps = reading.graph.evaluator.values(body, each.decorators) if body is not None else ()
        found |= {value.of.file for value in map(innermost, wraps) if isinstance(value, FunctionValue)}
    return found


def _settings(of: Class) -> list[tuple[str, int, str | None]]:
    """What the body of a class names, annotated or by a value alone; else what its constructor sets.

    These are plain values, what it keeps of its arguments that may be left out, and what it takes out of its keywords:
    ``self.layers = kwargs.pop("layers", 12)``.
    """
    fields = [(each.name, each.line, each.default) for each in of.fields]
    known = {each.name for each in of.fields} | of.methods.keys()
    inside = [(each.line, each.end) for each in of.methods.values()]
    named = [(name, line, None) for name, line in of.lines.items() if name not in known]
    found = fields + [each for each in named if not any(first <= each[1] <= last for first, last in inside)]
    made = of.methods.get("__init__")
    if found or made is None:
        return found
    plain = [each for each in named if each[0] not in made.params and all(map(_taken, of.attributes.get(each[0], ())))]
    kept = [each for each in made.arguments if each[2] and each[0] in of.attributes]
    return [*kept, *(each for each in plain if made.line <= each[1] <= made.end)]


def _taken(value: tuple[Function | None, Chain]) -> bool:
    """Whether a value is taken out of the keywords of its function."""
    function, chain = value
    return function is not None and f"*{chain[0]}" in function.params and chain[1:2] in (("pop",), ("get",))


def is_config(reading: Reading, of: Class) -> bool:
    """A dataclass, a model of pydantic or a record of values that is named for settings.

    A class on top of it, or, of a dataclass or a model, its file, may have the name.
    """
    above = reading.graph.evaluator.subclasses.get(of, ())
    of_file = FILES.fullmatch(PurePosixPath(of.file).stem) is not None and _is_record(reading, of)
    named = of_file or any(CONFIG.search(each.name) for each in (of, *above))
    if of.native or not named or not _settings(of) or (REQUESTED.search(of.name) and says(of.name, "sampling")):
        return False
    bases = named_bases(reading, of)
    kin = len(_settings(of)) >= RECORD and any(KIN.search(base) for base in bases)
    others = bases - {each.name for each in reading.graph.evaluator.line(of)}
    return _is_record(reading, of) or kin or (not others and len(_settings(of)) >= RECORD)


def _is_record(reading: Reading, of: Class) -> bool:
    """A dataclass, a class of attrs, or a model of pydantic or msgspec, also by a class above it."""
    line = reading.graph.evaluator.line(of)
    marked = any("dataclass" in str(chain) or "define" in chain for each in line for chain in each.decorators)
    return marked or bool(named_bases(reading, of) & MODELS)
