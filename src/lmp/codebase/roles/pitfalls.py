"""Pitfalls: what costs a user time, from what the code does: each with its trigger, its effect and what to do."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from lmp.codebase.facts import Place
from lmp.codebase.graph.hazards import LIMITS
from lmp.codebase.graph.records import Class, Function, Hazard
from lmp.codebase.modules import module_parts
from lmp.codebase.roles import operators
from lmp.codebase.roles.configuration import configuration_rows
from lmp.codebase.roles.entry import entry_rows
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.sampling import PARAMETERS

PORT = re.compile(r"(?i)(?:^|[_.-])port$")
TIMEOUT = re.compile(r"(?i)time_?out")
LOCAL = re.compile(
    r"^[frb]?[\"'](?:\./|\.\./|/tmp/|/home/|/data|tests/|[a-z_]+/[\w./-]+\.(?:json|ya?ml|txt|model|bin))"
)
CHANGES = ("falls back", "leaves", "replaced")
"""What a setting that is given does not do."""
OF_SETTINGS = ("replaced", "overwritten")
"""What costs a user time only where it is a setting."""
MOST = 40
MOST_OF_ONE = 8
"""Causes of one function that are named with it."""
MOST_ALIKE = 2
ODDS, AT_SETTINGS, RUN, BESIDE, CALLS, MANY, FILE, LONG = 1.7, 1.65, 0.4, 0.2, 1.0, 0.4, 0.3, 0.1
WITH_SETTING, CHANGED = 0.35, 1.8
"""What tells places that readers named from others: a logistic fit over 24 code bases. Of a base that the fit left out,
41 % of the core rows stood among the 40, and 20 % of the 40 were right."""
AT_IMPORT, AT_PACKAGE = 1.4, 2.8
"""Ranks of what is no function of its own: its odds, and that it is met at the start."""
NEAR = 4
"""Calls below an entry point from which on a function is no nearer to the user than others."""
USUAL = 20
"""Lines of a function."""
Key = tuple[str, int]
SHORT = 4
"""Letters of a setting's name that say nothing in a condition."""
WORD = re.compile(r"[A-Za-z_]\w+")


@dataclass(frozen=True, slots=True)
class Pitfall:
    """``place`` is the definition or setting that it is of, ``cause`` the line that does it; ``more`` are further ones
    of the same place."""

    symbol: str
    place: Place
    cause: Place
    trigger: str
    effect: str
    fix: str
    written: str
    rank: float
    more: tuple[Pitfall, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The definition, then each cause."""
        return self.place, self.cause, *(each.cause for each in self.more)


class Said(NamedTuple):
    odds: float
    """The logarithm of how many of this kind readers named to how many they did not."""
    trigger: str
    effect: str
    fix: str


SAID: dict[str, Said] = {
    "not awaited": Said(
        -1.3, "The line is reached.", "The coroutine is never run, and counts as true.", "Await the call."
    ),
    "none used": Said(
        -2,
        "The line is reached.",
        "The method returns None, which replaces the value.",
        "Call the method first, then use the object.",
    ),
    "overwritten": Said(
        -1.3,
        "The argument is given.",
        "Another value replaces it before it is read.",
        "Remove the argument, or read it.",
    ),
    "not handed on": Said(
        -0.7, "The argument is given.", "The call below takes it and does not get it.", "Hand the argument on."
    ),
    "rank": Said(
        -1.5,
        "The run has more than one machine.",
        "The rank of the whole run is taken as device number, which is missing there.",
        "Use the rank on the machine (LOCAL_RANK).",
    ),
    "exits": Said(
        -1.7,
        "The condition holds, or the error is raised.",
        "The process ends, past the handlers of errors.",
        "Choose values that do not meet the condition.",
    ),
    "compiles": Said(
        -1.3,
        "The line is reached for the first time.",
        "It compiles C++ or CUDA, which takes minutes and needs a compiler and the CUDA toolkit.",
        "Install them, or a build that has the extension.",
    ),
    "no super": Said(
        -1.3,
        "An object is made.",
        "Module's own constructor has not run when a module is set on it, so that it ends with an AttributeError.",
        "Call super().__init__() first.",
    ),
    "other value": Said(
        -1.9,
        "The value is none of those that are compared with, for example misspelled.",
        "The last branch is taken without a message.",
        "Check how the value is written.",
    ),
    "cut": Said(
        -1.4,
        "The value is above the limit.",
        "It is cut, and the caller is not told.",
        "Stay below, or raise the limit.",
    ),
    "fixed": Said(
        -2.1,
        "Another value is wanted.",
        "The value is fixed in the code, and no argument changes it here.",
        "Change it at this line, or make it an argument.",
    ),
    "limit": Said(
        -1.9,
        "The default is kept.",
        "It bounds what is taken: longer or more may be cut off, refused, or left waiting.",
        "Give the argument a value that fits the run.",
    ),
    "replaced": Said(
        -1.9,
        "The condition holds.",
        "Another value silently takes the place of the one that was given.",
        "Pass values that do not meet the condition.",
    ),
    "address": Said(
        -1.3,
        "The service or file is elsewhere, or two processes run on one machine.",
        "The address stands in the code.",
        "Make it an argument, or change it at this line.",
    ),
    "first only": Said(
        -1.3,
        "More than one is given.",
        "The first is used, and the others are dropped without a message.",
        "Give one at a time, or loop over them.",
    ),
    "total memory": Said(
        -1.8,
        "Another process uses the same device.",
        "Its memory counts as free, so that the device runs out of memory.",
        "Ask for the free memory, or set the size by hand.",
    ),
    "unguarded": Said(
        -1.7,
        "An error is raised in the loop, which runs in a thread.",
        "The thread ends, and who waits for its results waits for ever.",
        "Catch errors in the loop, and hand them to who waits.",
    ),
    "any value": Said(
        -1.8,
        "The variable is set to any text, 0 too.",
        "The switch counts as on.",
        "Unset the variable to switch it off.",
    ),
    "falls back": Said(
        -2.2,
        "The case of the message occurs.",
        "The code warns and goes on in another way.",
        "Read the log for this message.",
    ),
    "leaves": Said(
        -2.0,
        "The case of the message occurs.",
        "The function warns and returns; the rest of it is not run.",
        "Read the log for this message.",
    ),
    "missing": Said(
        -2.2,
        "The line is reached.",
        "The class sets no attribute of this name, so that it ends with an AttributeError.",
        "Set the attribute, or take the one that is meant.",
    ),
    "unbounded": Said(
        -1.3,
        "More comes in than is taken out.",
        "The queue has no size, so that it is never full and grows.",
        "Give the queue a size.",
    ),
    "raise": Said(
        -2.0, "The condition holds.", "The call raises an error.", "Choose values that do not meet the condition."
    ),
    "unbound": Said(
        -1.8,
        "The loop before it has nothing to run over.",
        "The name that it sets is not there, and an UnboundLocalError is raised.",
        "Set it before the loop.",
    ),
    "launcher": Said(
        -1.4,
        "The process is started without torchrun, or without the device of the backend.",
        "The variables of the launcher are missing, so that it ends with an error.",
        "Start it with torchrun, with as many processes as are asked for.",
    ),
    "sync": Said(
        -1.5, "The loop runs.", "Each time the host waits for the device.", "Read the values once, after the loop."
    ),
    "full size": Said(
        -0.4,
        "The limits in the shape are large.",
        "All of it is allocated when the object is made, whatever is used.",
        "Lower the limits.",
    ),
    "by name": Said(
        -1.7,
        "The name is misspelled, or the module fails to import.",
        "The module is looked for by a text, and the error names another cause.",
        "Look up which modules are there.",
    ),
    "port": Said(
        -1.7,
        "Two processes keep the default port {}.",
        "The second one cannot bind it.",
        "Give each process its own port.",
    ),
    "timeout": Said(
        -1.0,
        "One step takes longer than {}.",
        "The run is given up, though nothing is wrong.",
        "Raise the limit for slow machines, first compilations and large models.",
    ),
    "path": Said(
        -2.1,
        "The default path is kept in another folder or machine.",
        "The file is not found, or is written where nobody looks.",
        "Give a path that is there on this machine.",
    ),
    "seed": Said(
        -1.7,
        "Two objects are made in one process, or one is asked twice.",
        "The seed is set once for the whole process, so that calls do not repeat.",
        "Set the seed before each call.",
    ),
    "assert": Said(
        -2.1, "The condition does not hold.", "An assert stops the run.", "Check the condition before the call."
    ),
}


def pitfalls(reading: Reading, run: Collection[Key]) -> list[Pitfall]:
    """Best first, one for each function. ``run`` are the places of what takes part in a run: a user meets what lies
    there."""
    every = (
        *_of_code(reading, run),
        *_of_settings(reading),
        *_of_process(reading),
        *_of_imports(reading),
        *_of_packages(reading, run),
    )
    found = sorted(every, key=lambda each: (each.rank, each.place.file, each.place.line, each.cause.line))
    causes: set[Place] = set()
    of_place: dict[Place, list[Pitfall]] = {}
    for each in found:
        here = of_place.setdefault(each.place, [])
        if each.cause not in causes and len(here) < MOST_OF_ONE:
            here.append(each)
            causes.add(each.cause)
    kept: list[Pitfall] = []
    told: Counter[tuple[str, str]] = Counter()
    alike: Counter[tuple[str, str]] = Counter()
    for first, *more in filter(None, of_place.values()):
        each = replace(first, more=tuple(more))
        # Variants of one method in the files of one folder ask for the same.
        name = each.symbol.rpartition(".")[2]
        of = each.place.file if name.startswith("__") else each.place.file.rpartition("/")[0], name
        words = each.effect, each.written.partition(" = ")[0].replace("-", "_")
        if MOST_ALIKE in (alike[of], told[words]):
            continue
        alike[of] += 1
        told[words] += 1
        kept.append(each)
    return kept[:MOST]


def _depths(reading: Reading, first: Collection[Key]) -> dict[Function, int]:
    """How many calls below an entry point a function is."""
    waiting = [each for each in reading.functions if each.key in first]
    waiting += [m for of in reading.classes if of.key in first for m in of.methods.values() if m.name[:1] != "_"]
    known = {each.key for each in waiting} | {of.key for of in reading.classes}
    scripts = {file for file, line in first if (file, line) not in known}
    waiting += [graph.body for file, graph in reading.facts.graphs.items() if graph.body and file in scripts]
    found = dict.fromkeys(waiting, 0)
    while waiting:
        function = waiting.pop(0)
        if found[function] == NEAR:
            continue
        for edge in reading.graph.edges.get(function, ()):
            if edge.callee not in found:
                found[edge.callee] = found[function] + 1
                waiting.append(edge.callee)
    return found


def _of_code(reading: Reading, run: Collection[Key]) -> Iterator[Pitfall]:
    """Of each function what costs most: what no message tells, and what a setting of the user brings about."""
    settings = _names_of_settings(reading)
    depths = _depths(reading, {(row.place.file, row.place.line) for row in entry_rows(reading)})
    taken = Counter(file for file, _ in set(run))
    bodies = [graph.body for file, graph in reading.facts.graphs.items() if graph.body and reading.is_own(file)]
    for function in (*reading.functions, *bodies):
        hazards = [
            each for each in (*function.hazards, *_of_graph(reading, function)) if _counts(reading, function, each)
        ]
        if not hazards or reading.is_beside(function.file):
            continue
        running = function.key in run
        beside = not running and function.owner and any(each.key in run for each in function.owner.methods.values())
        met = RUN * running + BESIDE * bool(beside) + CALLS * max(0, NEAR - depths.get(function, NEAR)) / NEAR
        met += MANY * math.log1p(len(hazards)) + FILE * math.log1p(taken[function.file])
        met += LONG * math.log((function.end - function.line + 2) / USUAL)
        for hazard in hazards:
            said = SAID[hazard.kind]
            by_setting = _names_one(hazard.text, settings)
            if (hazard.kind in OF_SETTINGS and not by_setting) or (hazard.kind == "sync" and not running):
                continue
            cause = Place(function.file, hazard.line)
            where = Place(function.file, function.line) if function.qualname else _around(reading, cause)
            changed = hazard.kind in CHANGES
            points = ODDS * said.odds + met + (CHANGED * changed + WITH_SETTING * running) * by_setting
            symbol = function.qualname or hazard.text
            yield Pitfall(symbol, where, cause, said.trigger, said.effect, said.fix, hazard.text, -points)


def _around(reading: Reading, at: Place) -> Place:
    """The class whose body a line stands in, or the line."""
    within = (each for each in reading.facts.graphs[at.file].classes.values() if each.line <= at.line <= each.end)
    of = next(within, None)
    return Place(of.file, of.line) if of is not None else at


def _counts(reading: Reading, function: Function, hazard: Hazard) -> bool:
    if hazard.kind == "total memory":
        return FREE.isdisjoint(function.reads)
    if hazard.kind == "unguarded":
        return _runs_in_thread(reading, function)
    if hazard.kind == "cut":
        return hazard.text.partition("[")[0] not in _grown(reading, function)
    return True


FREE = frozenset(["mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "max_memory_allocated"])
"""What is asked by who knows that others take memory too."""
THREADS = frozenset(["Thread", "Timer", "submit"])


def _runs_in_thread(reading: Reading, function: Function) -> bool:
    """A thread is given the function, or the object that is called by it: ``Thread(target=self)``."""
    of = function.owner
    if of is not None and function.name == "run" and any(chain[-1] == "Thread" for chain in of.bases):
        return True
    called = [edge.call for edge in reading.graph.callers.get(function, ()) if edge.call is not None]
    if of is not None and function.name == "__call__":
        every = [call for method in of.methods.values() for call in method.calls]
        called += [call for call in every if any(("self",) in chains for _, chains in call.keywords)]
    return any(call.name in THREADS for call in called)


def _grown(reading: Reading, function: Function) -> set[str]:
    """What a function, or one inside or around it, appends to: cut in its own place, it is a window of the last."""
    every = reading.facts.graphs[function.file].functions
    near = [each for each in every if _one(each.qualname, function.qualname)]
    grown = [call.written.rpartition(".") for each in near for call in each.calls]
    return {receiver for receiver, _, method in grown if method in ("append", "extend")}


def _one(qualname: str, other: str) -> bool:
    """Whether of two functions one stands in the other, or both are the same."""
    return qualname == other or qualname.startswith(f"{other}.") or other.startswith(f"{qualname}.")


def _names_of_settings(reading: Reading) -> set[str]:
    """What a user sets, without the verb that switches it on."""
    names = set(PARAMETERS)
    for row in configuration_rows(reading):
        name = re.sub(r"^(?:enable|disable|use|no)_", "", row.symbol.rpartition(".")[2].lstrip("-").replace("-", "_"))
        if len(name) > SHORT and row.role != "env var":
            names.add(name.lower())
    return names


def _names_one(text: str, settings: AbstractSet[str]) -> bool:
    """Whether a condition names a setting, or a message with blanks: ``prefix_caching``, ``prefix caching``."""
    words = [word.lower() for word in WORD.findall(text)]
    pairs = ("_".join(pair) for pair in itertools.pairwise(words))
    return not settings.isdisjoint(words) or any(pair in settings for pair in pairs)


def _of_graph(reading: Reading, function: Function) -> Iterator[Hazard]:
    """A coroutine that is made in a condition and never awaited, an argument that a call below does not get, and what
    an object does not have."""
    read_back = next((each for each in function.calls if each.loop and each.name in ("item", "tolist")), None)
    if read_back is not None:
        yield Hazard("sync", read_back.line, f"{read_back.written}()")
    read = {*function.reads, *(name for inner in function.inner.values() for name in inner.reads)}
    unread = [] if function.abstract or function.native else [n for n in function.params if n not in read]
    for edge in reading.graph.edges[function]:
        call = edge.call
        if call is None or edge.how not in ("direct", "attribute"):
            continue
        if call.tested and edge.callee.is_async:
            yield Hazard("not awaited", edge.line, call.written)
        given = {name for name, _ in call.keywords}
        takes = [name for name in edge.callee.params if name not in ("self", "cls")]
        used = edge.callee.reads if not (edge.callee.abstract or edge.callee.native) else set(takes)
        open_to = [n for at, n in enumerate(takes) if n in used and not {n, "**"} & given and at >= len(call.args)]
        lost = [n for n in unread if n in open_to]
        if edge.how == "direct":
            lost += [n for n in open_to if n in PARAMETERS and n in function.params and n not in lost]
        if lost and lost[0][:1] != "*":
            yield Hazard("not handed on", edge.line, ", ".join(lost))
    if function.owner is not None and not function.native:
        if function.name == "__init__" and _skips_module(reading, function, function.owner):
            yield Hazard("no super", function.line, f"class {function.owner.name}")
        has = None
        for name, line in function.gets.items() if "hasattr" not in function.reads else ():
            if name[:2] != "__":
                has = has if has is not None else _attributes(reading, function.owner)
                if has and name not in has:
                    yield Hazard("missing", line, f"self.{name}")


def _skips_module(reading: Reading, function: Function, of: Class) -> bool:
    """A constructor of a module of torch that sets attributes and calls no constructor above it."""
    imports = reading.facts.graphs[of.file].imports
    of_torch = any(each[-1] == "Module" and str(imports.get(each[0], each[0])).startswith("torch") for each in of.bases)
    sets = any(one is function for set_by in of.attributes.values() for one, _ in set_by)
    return of_torch and sets and not any(chain[-1] == "__init__" for call in function.calls for chain in call.callee)


def _attributes(reading: Reading, of: Class) -> set[str]:
    """Every name that an object of the class may have; empty where another package has a part in it."""
    evaluator = reading.graph.evaluator
    known: dict[Class, None] = dict.fromkeys(evaluator.line(of))
    for below in evaluator.below(of):
        known.update(dict.fromkeys(evaluator.line(below)))
    found: set[str] = set()
    for each in known:
        bases = [chain for chain in each.bases if str(chain[-1]) not in ("object", "ABC", "Generic", "Protocol")]
        if len(evaluator.bases(each)) < len(bases) or {"__getattr__", "__getattribute__"} & set(each.methods):
            return set()
        found.update(each.methods, each.attributes, each.lines, each.classes, (one.name for one in each.fields))
    return found


def _of_imports(reading: Reading) -> Iterator[Pitfall]:
    """Names that a module of the code base is asked for and does not have."""
    modules = reading.graph.evaluator.modules
    for file, graph in reading.facts.graphs.items():
        for name, line in graph.imported_at.items() if reading.is_own(file) else ():
            found = modules.of_import(graph.imports.get(name, ""), file)
            if found is None or not found[1] or "." in found[1] or found[0] == file:
                continue
            parts = module_parts(found[0])
            around = "/".join(parts[: len(parts) - graph.imports[name].count(".")])
            if f"{around}/__init__.py" in reading.roles:
                # A name that is looked for at the top is no module inside of a package.
                continue
            there = reading.facts.graphs[found[0]]
            has = (there.top, there.classes, there.names, there.imports, there.body.reads if there.body else ())
            if there.stars or any("__getattr__" in each or found[1] in each for each in has):
                continue
            folder = found[0].removesuffix("/__init__.py")
            if not any(each.startswith(f"{folder}/{found[1]}") for each in reading.roles):
                where = Place(file, line)
                effect = f"{found[0]} has no such name, so that the import ends with an ImportError."
                yield Pitfall(
                    name, where, where, "The file is imported.", effect, "Import it from where it is.", name, AT_IMPORT
                )


IMPORTED_AS = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "google": "protobuf",
    "grpc": "grpcio",
    "pil": "pillow",
    "pkg-resources": "setuptools",
    "pynvml": "nvidia-ml-py",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Packages whose name on the index is not the one that is imported."""
BROUGHT = re.compile(
    r"torch|filelock|fsspec|huggingface-hub|jinja2|networkx|numpy|packaging|psutil|pyyaml|regex|requests|safetensors"
    r"|setuptools|sympy|tokenizers|tqdm|typing-extensions"
)
"""torch, which users install themselves, and what it, transformers and accelerate bring."""
MOST_PACKAGES = 4
FEW = 3
"""Packages that a code base names at least, before it is believed to name those that it needs."""


def _of_packages(reading: Reading, run: Collection[Key]) -> Iterator[Pitfall]:
    """Packages that are imported without a guard, and are not installed with the code base."""
    requires = reading.facts.requires
    if len(requires) < FEW:
        return
    read = {file for file, _ in run}
    own = {part for file in reading.roles for part in re.split(r"[/.]", file)}
    found: dict[str, list[Place]] = {}
    for file, graph in reading.facts.graphs.items():
        if file in read and reading.is_own(file) and not reading.is_beside(file):
            for name, line in graph.packages.items():
                if name and name not in own and name not in sys.stdlib_module_names and name != "__future__":
                    found.setdefault(name, []).append(Place(file, line))
    told = 0
    for name, places in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        plain = name.lower().replace("_", "-")
        asked = (plain, IMPORTED_AS.get(plain, plain))
        named = [each for each in requires if each in asked or plain.replace("-", "") in each.replace("-", "")]
        if told == MOST_PACKAGES or any(map(BROUGHT.fullmatch, asked)) or any(requires[each] for each in named):
            continue
        told += 1
        effect = "The import ends with a ModuleNotFoundError: " + (
            f"{named[0]} is installed with an extra alone." if named else "no file of the build names the package."
        )
        for cause in places:
            yield Pitfall(
                name,
                places[0],
                cause,
                "The package is installed as its files say, and this file is imported.",
                effect,
                f"Install {named[0] if named else name}.",
                f"import {name}",
                AT_PACKAGE,
            )


LIMIT = re.compile(r"(?:^|_)(?:max|tokens)(?:_|$)")
NUMBER = re.compile(r"[1-9][\d_.]*(?: ?[*+] ?\d+)*")


def _of_settings(reading: Reading) -> Iterator[Pitfall]:
    """Fixed ports, limits, and paths that count from the folder in which the command is given."""
    for row in configuration_rows(reading):
        name, default = row.symbol.rpartition(".")[2].lstrip("-").replace("-", "_"), row.why
        number = NUMBER.fullmatch(default)
        kinds = {
            "port": PORT.search(name) and re.fullmatch(r"\d{4,5}", default),
            "timeout": TIMEOUT.search(name) and number,
            "limit": (LIMITS.fullmatch(name) or LIMIT.search(name)) and number,
            "path": LOCAL.match(default),
        }
        for kind in [each for each, counts in kinds.items() if counts][:1]:
            yield _plain(kind, row.symbol, row.place, row.place, f"{name} = {default}", default)


def _plain(kind: str, symbol: str, place: Place, cause: Place, written: str, default: str = "") -> Pitfall:
    said = SAID[kind]
    rank = -ODDS * said.odds - AT_SETTINGS
    return Pitfall(symbol, place, cause, said.trigger.format(default), said.effect, said.fix, written, rank)


def _of_process(reading: Reading) -> Iterator[Pitfall]:
    """State of the whole process that one object sets."""
    for function in reading.functions:
        if function.name in ("__init__", "init_model", "setup") and function.owner is not None:
            for call in function.calls:
                if call.name in operators.SEEDS and "enerator" not in call.written:
                    # A generator of its own is no state of the process.
                    at, line = Place(function.file, function.line), Place(function.file, call.line)
                    yield _plain("seed", function.qualname, at, line, call.written)
