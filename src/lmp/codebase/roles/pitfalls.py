"""Pitfalls: what costs a user time, from what the code does: each with its trigger, its effect and what to do."""

from __future__ import annotations

import itertools
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import Edge
from lmp.codebase.graph.hazards import FETCHES, LIMITS, LOCAL, NO_LIMIT
from lmp.codebase.graph.records import Call, Class, Function, Hazard
from lmp.codebase.modules import module_parts
from lmp.codebase.roles.entry import entry_rows
from lmp.codebase.roles.likely import LEAST, Witnesses, chance_of, weights
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.sampling import PARAMETERS

PORT = re.compile(r"(?i)(?:^|[_.-])port$")
TIMEOUT = re.compile(r"(?i)time_?out")
OF_SETTINGS = ("replaced", "overwritten", "unread")
"""What costs a user time only where it is a setting."""
OF_RUN = ("sync", "sync decides")
"""What costs a user time only where it takes part in a run."""
MOST = 80
MOST_OF_ONE = 8
"""Causes of one function that are named with it."""
MOST_ALIKE = 3
MEDIUM, SMALLEST = 300, 20
"""Functions of a code base of middle size, and of one that is counted as small as any."""
NEAR = 4
"""Calls below an entry point from which on a function is no nearer to the user than others."""
FEWEST = 20
"""Causes that are told however unlikely they are: of a small code base they are all that there is."""
USUAL = 20
"""Lines of a function."""
Key = tuple[str, int]
Played = Mapping[Key, Collection[str]]
"""Place -> the parts that it plays in a run."""
SHORT = 4
"""Letters of a setting's name that say nothing in a condition."""
WORD = re.compile(r"[A-Za-z_]\w+")


@dataclass(frozen=True, slots=True)
class Pitfall:
    """``place`` is the definition or setting that it is of, ``cause`` the line that does it; ``more`` are further ones
    of the same place."""

    kind: str
    symbol: str
    place: Place
    cause: Place
    trigger: str
    effect: str
    fix: str
    written: str
    rank: float = 0.0
    more: tuple[Pitfall, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The definition, then each cause."""
        return self.place, self.cause, *(each.cause for each in self.more)


class Candidate(NamedTuple):
    """Pitfalls of one place, with the witnesses of whether a user meets them (:mod:`lmp.codebase.roles.likely`)."""

    pitfalls: list[Pitfall]
    witnesses: Witnesses

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        every = dict.fromkeys(at for each in self.pitfalls for at in each.places)
        return tuple((at.file, at.line) for at in every)


class Said(NamedTuple):
    trigger: str
    effect: str
    fix: str


FILE = Path(__file__).with_name("pitfalls.toml")
SAID = {kind: Said(*said) for kind, said in tomllib.loads(FILE.read_text(encoding="utf-8")).items()}


def taking_part(rows: Iterable[Row], edges: Iterable[Edge]) -> Played:
    """Places of what takes part in a run, each with the parts that it plays."""
    found: dict[Key, set[str]] = {}
    for key in (each.key for edge in edges for each in (edge.caller, edge.callee)):
        found.setdefault(key, set()).add("nesting")
    for row in rows:
        if row.section != "configuration":
            found.setdefault(row.key, set()).add(row.section)
    return found


def candidates(reading: Reading, rows: Sequence[Row], edges: Iterable[Edge]) -> Iterator[Candidate]:
    """Of every place what may cost a user time: a user meets what lies on a run, and what a setting brings about."""
    run = taking_part(rows, edges)
    set_by_user = [row for row in rows if row.section == "configuration"]
    settings = list(_of_settings(row for row in set_by_user if _is_read(reading, row)))
    found = list(_of_code(reading, run, {each.cause for each in settings}, _names_of(set_by_user)))
    for each in (*settings, *_of_imports(reading), *_of_packages(reading, run), *_of_builds(reading)):
        found.append(Candidate([each], {f"kind {each.kind}": 1.0, "no function": 1.0}))
    number = Counter(each.kind for every in found for each in every.pitfalls)
    for every in found:
        # What a code base has a hundred times is its way of writing.
        fewest = min(number[each.kind] for each in every.pitfalls)
        yield Candidate(every.pitfalls, {**every.witnesses, "seldom": -math.log1p(fewest)})


def pitfalls(reading: Reading, rows: Sequence[Row], edges: Iterable[Edge]) -> list[Pitfall]:
    """Best first, one for each function; behind them those that are much alike."""
    weight = weights()["pitfalls"]
    listed = list(candidates(reading, rows, edges))
    number = Counter(each.kind for every, _ in listed for each in every)
    found: list[Pitfall] = []
    for every, witnesses in listed:
        chance = chance_of(weight, witnesses)
        # Of one place what tells most comes first; of equals, what the code base has seldom.
        every.sort(key=lambda each: (-weight.get(f"kind {each.kind}", 0.0), number[each.kind]))
        found += (replace(each, rank=-chance) for each in every)
    found.sort(key=lambda each: (each.rank, each.place.file, each.place.line))
    found = max([each for each in found if -each.rank >= LEAST["pitfalls"]], found[:FEWEST], key=len)
    causes: set[Place] = set()
    of_place: dict[Place, list[Pitfall]] = {}
    for each in found:
        here = of_place.setdefault(each.place, [])
        if each.cause not in causes and len(here) < MOST_OF_ONE:
            here.append(each)
            causes.add(each.cause)
    kept: list[Pitfall] = []
    later: list[Pitfall] = []
    told: Counter[tuple[str, str]] = Counter()
    alike: Counter[tuple[str, str]] = Counter()
    for first, *more in filter(None, of_place.values()):
        each = replace(first, more=tuple(more))
        # Variants of one method in the files of one folder ask for the same: further ones come last.
        name = each.symbol.rpartition(".")[2]
        of = each.place.file if name.startswith("__") else each.place.file.rpartition("/")[0], name
        words = each.effect, each.written.partition(" = ")[0].replace("-", "_")
        if MOST_ALIKE in (alike[of], told[words]):
            later.append(each)
            continue
        alike[of] += 1
        told[words] += 1
        kept.append(each)
    return [*kept, *later][:MOST]


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


def _of_code(
    reading: Reading, run: Played, known: AbstractSet[Place], settings: AbstractSet[str]
) -> Iterator[Candidate]:
    """Of each function what costs most: what no message tells, and what a setting of the user brings about. What stands
    at the ``known`` places is told as a setting."""
    depths = _depths(reading, {row.key for row in entry_rows(reading)})
    taken = Counter(file for file, _ in set(run))
    size = math.log(max(SMALLEST, len(reading.functions)) / MEDIUM)
    bodies = [graph.body for file, graph in reading.facts.graphs.items() if graph.body and reading.is_own(file)]
    builds = [one for file, graph in reading.facts.graphs.items() if _builds(file) for one in graph.functions]
    for function in (*reading.functions, *bodies, *builds):
        running = function.key in run
        of_place: dict[tuple[Place, str], list[Hazard]] = {}
        for hazard in (*function.hazards, *_of_graph(reading, function)):
            of_settings = hazard.kind not in OF_SETTINGS or _names_one(hazard.text, settings)
            if of_settings and (hazard.kind not in OF_RUN or running) and _counts(reading, function, hazard):
                cause, of = Place(function.file, hazard.line), function if function.qualname else None
                if cause in known:
                    continue
                of_place.setdefault(_named(of or _around(reading, cause), cause, hazard), []).append(hazard)
        for (where, symbol), hazards in of_place.items():
            kinds = {each.kind for each in hazards}
            speaks = {
                "function": bool(function.qualname),
                "running": running,
                "builds": _builds(function.file),
                "beside": reading.is_beside(function.file) and not running,
                "near": max(0, NEAR - depths.get(function, NEAR)) / NEAR,
                "share": math.log1p(taken[function.file]) / math.log1p(max(taken.values(), default=1)),
                "setting": any(_names_one(each.text, settings) for each in hazards),
                "kinds": math.log1p(len(kinds)),
                "causes": math.log1p(len(hazards)),
                "long": math.log((function.end - function.line + 2) / USUAL),
            }
            witnesses = {name: float(value) for name, value in speaks.items()}
            witnesses |= {f"{name} in a large code base": size * value for name, value in witnesses.items()}
            witnesses |= {f"kind {kind}": 1.0 for kind in kinds}
            witnesses |= {f"plays {part}": 1.0 for part in run.get(function.key, ())}
            around = run.get(function.owner.key, ()) if function.owner is not None else ()
            witnesses |= {f"class plays {part}": 1.0 for part in around}
            told = [
                Pitfall(each.kind, symbol, where, Place(function.file, each.line), *SAID[each.kind], each.text)
                for each in hazards
            ]
            yield Candidate(told, witnesses)


def _builds(file: str) -> bool:
    return file.rpartition("/")[2] == "setup.py" and file.count("/") <= 1


def _around(reading: Reading, at: Place) -> Class | None:
    """The class whose body a line stands in."""
    return next((of for of in reading.facts.graphs[at.file].classes.values() if of.line <= at.line <= of.end), None)


def _named(of: Function | Class | None, at: Place, hazard: Hazard) -> tuple[Place, str]:
    """Where a pitfall is told, and by which name: a line of no function or class by what stands there."""
    return (at, hazard.text) if of is None else (Place(of.file, of.line), of.qualname)


def _counts(reading: Reading, function: Function, hazard: Hazard) -> bool:
    if reading.is_dead(function):
        return False
    if _builds(function.file) and hazard.kind in ("path", "read once"):
        # A build runs in its folder, once. What it opens may be left out of the archive.
        opened = OPENED.match(hazard.text)
        return opened is not None and opened[1] not in reading.roles
    if hazard.kind == "waits" and any(
        edge.call is not None and edge.line == hazard.line and hazard.text.startswith(edge.call.written)
        for edge in reading.graph.edges.get(function, ())
    ):
        # A method of its own, which says itself how long it waits.
        return False
    if hazard.kind == "none used":
        # A method of its own gives what it says.
        return not any(edge.line == hazard.line and edge.callee.returns for edge in reading.graph.edges[function])
    if hazard.kind == "fixed" and not function.qualname:
        return hazard.text.partition(" = ")[0] not in _defaults(reading)
    if hazard.kind == "no module":
        top = reading.graph.evaluator.modules.file(hazard.text.partition(".")[0], "") or ""
        return top.endswith("__init__.py") and bool(_ends_import(reading, hazard.text, function.file))
    if hazard.kind == "total memory":
        return FREE.isdisjoint(function.reads)
    if hazard.kind == "download":
        # A function of the code base may have the name of a library's.
        own = (edge for edge in reading.graph.edges.get(function, ()) if edge.line == hazard.line)
        return not any(edge.callee.name in FETCHES for edge in own)
    if hazard.kind == "unguarded":
        return _runs_in_thread(reading, function)
    if hazard.kind == "cut":
        return hazard.text.partition("[")[0] not in _grown(reading, function)
    return True


@lru_cache(maxsize=1)
def _defaults(reading: Reading) -> frozenset[str]:
    """What is written as the default of an argument or field: a constant that is one can be given another value."""
    given = {default for each in reading.functions for _, _, default in each.arguments}
    return frozenset(given | {one.default or "" for each in reading.classes for one in each.fields})


OPENED = re.compile(r"""open\(["']([^"']+)""")
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


def _names_of(settings: Iterable[Row]) -> set[str]:
    """What a user sets, without the verb that switches it on."""
    names = set(PARAMETERS)
    for row in settings:
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
    read = {*function.reads, *(name for inner in function.inner.values() for name in inner.reads)}
    unread = [] if function.abstract or function.native else [n for n in function.params if n not in read]
    for edge in reading.graph.edges[function]:
        call = edge.call
        if call is not None and edge.how in ("direct", "constructor") and (lacks := _lacks(edge.callee, call)):
            yield Hazard("lacks", edge.line, f"{call.written} without {', '.join(lacks)}")
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
        # Of arguments that are None unless they are given, one may stand for the other.
        optional = {name for name, _, default in edge.callee.arguments if default == "None"}
        lost = [n for n in lost if n not in optional or optional.isdisjoint(given)]
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


def _lacks(callee: Function, call: Call) -> list[str]:
    """Parameters without a default that a call of a function or class by its own name does not give."""
    given = {name for name, _ in call.keywords}
    made = callee.owner if callee.name == "__init__" else None
    named = made.name if made is not None else callee.name
    if call.spread or "**" in given or callee.native or callee.decorators or call.written != named:
        return []
    needed = {name for name, _, default in callee.arguments if not default} - given
    return [name for name in callee.names[len(call.args) :] if name in needed]


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
    """Names that a module of the code base is asked for and does not have, by its own files and by its README."""
    for file, graph in reading.facts.graphs.items():
        for name, line in graph.imported_at.items() if reading.is_own(file) else ():
            effect = _ends_import(reading, graph.imports.get(name, ""), file)
            if effect:
                where = Place(file, line)
                said = "The import is run.", effect, "Import what is there."
                yield Pitfall("import", name, where, where, *said, name)
    told: set[str] = set()
    for module, name, place in reading.facts.shown_imports:
        effect = _ends_import(reading, f"{module}.{name}", "")
        if "-" in module and reading.graph.evaluator.modules.file(module.replace("-", "_"), "") is not None:
            effect = "A name of Python has no hyphen, so that the line ends with a SyntaxError."
        if effect and f"{module}.{name}" not in told:
            told.add(f"{module}.{name}")
            said = "The example is run as it stands.", effect, "Import what the package has."
            yield Pitfall("import", name, place, place, *said, f"from {module} import {name}")


def _ends_import(reading: Reading, dotted: str, file: str) -> str:
    """How an import of a module of the code base ends, where that does not have what is asked for; else nothing."""
    found = reading.graph.evaluator.modules.of_import(dotted, file)
    if found is None or not found[1] or found[0] == file:
        return ""
    asked, _, within = found[1].partition(".")
    parts = module_parts(found[0])
    first = dotted.partition(".")[0]
    around = "/".join(parts[: parts.index(first) if first in parts else len(parts)])
    if f"{around}/__init__.py" in reading.roles:
        # A name that is looked for at the top is no module inside of a package.
        return ""
    there = reading.facts.graphs[found[0]]
    has = (there.top, there.classes, there.names, there.imports, there.body.reads if there.body else ())
    # What sets names by a text may have any.
    opens = ("__getattr__", "globals", asked)
    if there.stars or any(name in each for each in has for name in opens):
        return ""
    folder = found[0].removesuffix("/__init__.py")
    if any(each.startswith((f"{folder}/{asked}.", f"{folder}/{asked}/")) for each in reading.roles):
        return ""
    if within:
        return f"{folder} has no module {asked}, so that the import ends with a ModuleNotFoundError."
    return f"{found[0]} has no such name, so that the import ends with an ImportError."


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


def _of_builds(reading: Reading) -> Iterator[Pitfall]:
    """Packages that setup.py imports, and that an isolated build is not given."""
    for file, graph in reading.facts.graphs.items():
        if _builds(file):
            for name, line in graph.packages.items():
                plain = name.lower().replace("_", "-")
                known = name in sys.stdlib_module_names or plain in reading.facts.builds_with or name in BUILDERS
                if not known and not any(name in re.split(r"[/.]", each) for each in reading.roles):
                    where = Place(file, line)
                    yield Pitfall("setup needs", name, where, where, *SAID["setup needs"], f"import {name}")


BUILDERS = frozenset(["setuptools", "distutils", "pkg_resources"])


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
        asked = (name, IMPORTED_AS.get(plain, name))
        effect = "No file of the build names the package: unless another one brings it, the import fails."
        if named:
            effect = f"The import ends with a ModuleNotFoundError: {named[0]} is installed with an extra alone."
        for cause in places:
            yield Pitfall(
                "package",
                name,
                places[0],
                cause,
                "The package is installed as its files say, and this file is imported.",
                effect,
                f"Install {named[0] if named else asked[-1]}.",
                f"import {name}",
            )


LIMIT = re.compile(r"(?:^|_)(?:max(?:_|$)|tokens$)")
NUMBER = re.compile(r"[1-9][\d_.]*(?: ?[*+] ?\d+)*")


def _is_read(reading: Reading, setting: Row) -> bool:
    """Whether a file reads the arguments of its functions by that name: one that it does not changes nothing."""
    name, graph = setting.symbol.rpartition(".")[2], reading.facts.graphs.get(setting.place.file)
    return setting.role != "argument" or graph is None or any(name in each.reads for each in graph.functions)


def _of_settings(settings: Iterable[Row]) -> Iterator[Pitfall]:
    """Fixed ports, limits, and paths that count from the folder in which the command is given."""
    for row in settings:
        name, default = row.symbol.rpartition(".")[2].lstrip("-").replace("-", "_"), row.why
        number = NUMBER.fullmatch(default)
        kinds = {
            "port": PORT.search(name) and re.fullmatch(r"\d{4,5}", default),
            "timeout": TIMEOUT.search(name) and number,
            "limit": (LIMITS.fullmatch(name) or (LIMIT.search(name) and not NO_LIMIT.search(name))) and number,
            "path": LOCAL.match(default),
        }
        for kind in [each for each, counts in kinds.items() if counts][:1]:
            trigger, effect, fix = SAID[kind]
            written = f"{name} = {default}"
            yield Pitfall(kind, row.symbol, row.place, row.place, trigger.format(default), effect, fix, written)
