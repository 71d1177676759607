"""How it is installed, started and controlled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from lmp.codebase.facts import Place
from lmp.codebase.file_kinds import role
from lmp.codebase.graph.values import ClassValue, FunctionValue
from lmp.codebase.modules import shared
from lmp.codebase.roles.entry import first_files
from lmp.codebase.roles.likely import is_candidate
from lmp.codebase.roles.reach import Row
from lmp.report.document.parts import Bullets, Code, Inline, Line, Link, Paragraph, Section, Table
from lmp.report.repository.appendix import CLI, CONFIG, ENV, SETTINGS
from lmp.report.repository.pieces import (
    ASIDE,
    OF_SYSTEM,
    code,
    counted,
    joined,
    plural,
    pointer,
    sentence,
    tally,
    with_default,
)
from lmp.report.repository.readme import commands, note
from lmp.report.repository.study import Study

MOST_COMMANDS = 14
"""Commands that install or build it."""
_INCOMPLETE = re.compile(
    r"(?:sudo )?(?:(?:uv )?pip3? install|docker (?:build|run|pull)|docker (?:login|push|tag|ps)\b.*)"
)
"""Without what is to be installed or run, and what only publishes it."""
MOST_ENTRIES = 3
"""Entries of a library whose arguments are shown."""
MOST_NAMED = 3
"""Files of settings that one way to run names."""
MOST = 8
"""Entries of a kind that are listed; how many more there are is said."""


def workflows(study: Study) -> Section:
    return Section("Primary workflows", [], [_install(study), _entries(study), _configuration(study)])


def _install(study: Study) -> Section:
    found: dict[str, Place] = dict(study.base.facts.install)
    for each in commands(study.base):
        found.setdefault(each.text, each.place)
    told: list[tuple[str, Line]] = []
    extras: dict[str, list[str]] = {}
    for command, place in found.items():
        extra = re.fullmatch(r"(.*)\[([\w.-]+)\]", command) if place.file.endswith("pyproject.toml") else None
        if extra is not None:
            extras.setdefault(extra[1], []).append(extra[2])
    for command, place in found.items():
        if command.partition("[")[0] in extras and place.file.endswith("pyproject.toml") and "[" in command:
            continue
        if _is_there(study, command) and not _INCOMPLETE.fullmatch(command) and not place.file.startswith("."):
            named = extras.get(command, [])
            more: list[Inline] = ["; with extras ", code(", ".join(named), 120)] if named else []
            words = [f" (what it does: {note(command)}; stands at ", pointer(place), *more, ")"]
            told.append((place.file, sentence(code(command, 240), words)))
    # What installs it stands at the top; what stands further down is of one part.
    told.sort(key=lambda each: (role(each[0]) in ("test", "example", "benchmark"), each[0].count("/")))
    items = [line for _, line in told[:MOST_COMMANDS]]
    if len(told) > MOST_COMMANDS:
        rest = list(dict.fromkeys(file for file, _ in told[MOST_COMMANDS:]))
        more = plural(len(told) - MOST_COMMANDS, "more command")
        items.append(sentence(*more, ", in ", joined([Code(file) for file in rest[:5]]), " …" if len(rest) > 5 else ""))
    searched = "README, METADATA, pyproject.toml, setup.py, Makefile, Dockerfile, CMakeLists.txt"
    return Section("Install / build", [Bullets(items, searched)])


_FOLDER = re.compile(
    r"(?:^| )(?P<path>\.{0,2}/?[\w.*-]+(?:/[\w.*-]+)+/?|[\w-]+\.(?:txt|whl|toml|py|yml|yaml))(?=[\s'\"\[]|$)"
)


def _is_there(study: Study, command: str) -> bool:
    """Whether every folder and file that a command names is there; addresses and images of others are not looked at.

    A path from the root of a disk is one of a machine that nobody here can see.
    """
    if re.match(r"(?:sudo )?(?:docker (?:run|pull)|git clone)|.*https?:", command):
        return True
    named = [found["path"].removeprefix("./").rstrip("/") for found in _FOLDER.finditer(command)]
    if any(path.startswith("/") for path in named):
        return False
    # More than one star is one star: glob refuses two of them inside of a name.
    return all(any(study.base.root.glob(re.sub(r"\*+", "*", path))) for path in named if ".." not in path)


def _entries(study: Study) -> Section:
    groups = (
        ("CLI", ("cli",), "console scripts, commands of click and typer, main blocks that take arguments"),
        ("Server", ("server",), "servers that a main block starts, routes that lead to a model"),
        ("Benchmarks/examples", ("benchmark", "example"), "folders and files of benchmarks and examples"),
        ("Library", ("library",), "what the package's first file exports, classes that only users make"),
    )
    items: list[Line] = []
    for title, roles, searched in groups:
        found = [row for row in study.ways if row.role in roles]
        if not found:
            items.append(_no_entry(study, title, searched))
        items += [_entry(study, title, row) for row in found[:MOST]]
        items += _handed_out(study) if title == "Library" else []
        if len(found) > MOST:
            more = plural(len(found) - MOST, "more place", "more places")
            items.append(sentence(f"{title}: ", *more, ", in ", _folders(found[MOST:])))
    return Section("Entrypoints (how to run)", [Bullets(items)])


MOST_NAMES = 16


def _handed_out(study: Study) -> list[Line]:
    """What the outermost package that does so takes from its own modules, for users to import."""
    reading = study.reading
    for file in first_files(reading):
        names = reading.facts.graphs[file].imported_at
        own = [
            name
            for name in names
            for value in reading.graph.evaluator.top(file, name, 0)[:1]
            if isinstance(value, ClassValue | FunctionValue) and reading.is_own(value.of.file)
        ]
        if len(own) > 1:
            more = [f" and {len(own) - MOST_NAMES} more"] if len(own) > MOST_NAMES else []
            shown = joined([code(name, 50) for name in own[:MOST_NAMES]])
            return [
                sentence("Library: the package exports ", shown, *more, " at ", pointer(Place(file, names[own[0]])))
            ]
    return []


def _no_entry(study: Study, title: str, searched: str) -> Line:
    """What facts have where nothing was found that starts a model."""
    kinds = {"CLI": ("cli", "script"), "Server": ("server",), "Benchmarks/examples": ("benchmark", "example")}
    of_kind = [each for each in study.entries if each.kind in kinds.get(title, ())]
    aside = title == "Benchmarks/examples"
    found = [each for each in of_kind if aside or study.base.is_own(each.place.file)]
    if found:
        shown = joined([[code(each.name, 90), " at ", pointer(each.place)] for each in found[:4]])
        more = [f" and {len(found) - 4} more"] if len(found) > 4 else []
        none = f"{title}: not determined; none was found that leads to a model. Of this kind there are: "
        return sentence(none, shown, *more, ".")
    notebooks = [file.file for file in study.base.facts.files if aside and file.language == "notebook"]
    if notebooks:
        named = joined([Code(file) for file in notebooks[:4]])
        more = [f" and {len(notebooks) - 4} more"] if len(notebooks) > 4 else []
        return sentence(f"{title}: notebooks, whose cells were not read: ", named, *more, ".")
    return f"{title}: none found (searched: {searched})"


def _entry(study: Study, title: str, row: Row) -> Line:
    definition = study.base.definition(row.place.file, row.symbol)
    what: list[Inline] = ["runs its main block"]
    if definition is not None:
        what = study.what(definition, 90)
    flags = _flags_of(study, row)
    if flags:
        what += [", takes ", *plural(flags, "flag")]
    if named := _settings_of(study, row.place.file):
        what += [", is set by ", *joined([Code(file) for file in named])]
    name = row.symbol if definition is not None else None
    told = f"{title}, candidate: " if is_candidate(row) else f"{title}: "
    return sentence(
        told, code(study.started(row), 240), " at ", pointer(row.place, name), " (what it does: ", what, ")"
    )


def _settings_of(study: Study, file: str) -> list[str]:
    """Files of settings that a file names, of each name the one nearest to it."""
    graph = study.reading.facts.graphs.get(file)
    if graph is None or not graph.settings:
        return []
    found: dict[str, str] = {}
    for each in sorted(study.base.facts.config_files, key=lambda each: (-shared(each.file, file), each.file)):
        if each.stem in graph.settings:
            found.setdefault(each.stem, each.file)
    return list(found.values())[:MOST_NAMED]


def _flags_of(study: Study, row: Row) -> int:
    """The flags of its file; of several ways in one file those in and above the function, where decorators stand."""
    file, line = row.place.file, row.place.line
    lines = [flag.place.line for flag in study.base.facts.flags if flag.place.file == file]
    ways = {each.place.line for each in study.ways if each.place.file == file}
    if len(ways) == 1:
        return len(lines)
    known = [each for each in study.base.by_file.get(file, ()) if each.kind != "class"]
    end = next((each.end for each in known if each.place.line == line), line)
    above = max((each.end for each in known if each.end < line), default=0)
    return sum(above < each <= end for each in lines)


def _folders(entries: Sequence[Row]) -> list[Inline]:
    folders: dict[str, int] = {}
    for each in entries:
        folder = each.place.file.rpartition("/")[0] or "."
        folders[folder] = folders.get(folder, 0) + 1
    ranked = sorted(folders.items(), key=lambda item: (-item[1], item[0]))
    shown: list[Inline] = joined([Code(f"{folder}/") for folder, _ in ranked[:5]])
    return [*shown, f" and {len(ranked) - 5} more folders"] if len(ranked) > 5 else shown


def _configuration(study: Study) -> Section:
    rows = [_env(study), _files(study), _flags(study), *_config_classes(study), *_arguments(study)]
    listed = [ENV, CLI, CONFIG, *([SETTINGS] if study.settings_in_code else [])]
    links = joined([[Link(each, anchor(each))] for each in listed])
    after: list[Inline] = ["Every variable, flag, file and setting with its default: ", *links, "."]
    return Section(
        "Configuration surface (how to control it)", [Table(("Mechanism", "Where", "Examples"), rows), Paragraph(after)]
    )


def anchor(title: str) -> str:
    """The name that GitHub gives to a heading."""
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return "#" + kept.replace(" ", "-")


def _env(study: Study) -> list[Line]:
    reads = [read for read in study.base.facts.env if read.resolved]
    worked_out = [read for read in study.base.facts.env if study.base.is_own(read.place.file)]
    if worked_out and not any(read.resolved for read in worked_out):
        places = [read.place for read in worked_out]
        return ["env vars", _where(places), "names that are worked out where they are read: not determined by reading"]
    if not reads:
        return ["env vars", "none found (searched: os.environ, os.getenv, getenv and wrappers of them)", ""]
    own = [read for read in reads if study.base.is_own(read.place.file)]
    if not own:
        return ["env vars", *_only_aside(study, [read.place for read in reads])]
    if OF_SYSTEM.issuperset(read.name for read in own):
        named = joined([code(each, 50) for each in dict.fromkeys(read.name for read in own)])
        return ["env vars", _where([read.place for read in own]), sentence("of the operating system alone: ", named)]
    own = [read for read in own if read.name not in OF_SYSTEM]
    often = Counter(read.name for read in own if read.name)
    beginnings = Counter(name.split("_")[0] for name in often)
    # Those of the repository before those of others, which it only reads; the most read first.
    names = sorted(often, key=lambda name: (-beginnings[name.split("_")[0]], -often[name]))
    defaults = {r.name: with_default(r.name, r) for r in reversed(own) if r.default is not None}
    examples = [defaults.get(name, name) for name in names[:5]]
    said_: Line = sentence(*plural(len(names), "variable"), ": ", joined([code(each, 50) for each in examples]))
    return ["env vars", _where([read.place for read in own]), said_]


def _flags(study: Study) -> list[Line]:
    flags = study.base.facts.flags
    if not flags:
        return ["CLI flags", "none found (searched: argparse, click, typer, fire, absl)", ""]
    own = [flag for flag in flags if study.base.is_own(flag.place.file)]
    if not own:
        return ["CLI flags", *_only_aside(study, [flag.place for flag in flags])]
    largest = max({f.place.file for f in own}, key=lambda file: (sum(f.place.file == file for f in own), file))
    examples = [with_default(flag.long, flag) for flag in own if flag.place.file == largest][:5]
    return [
        "CLI flags",
        _where([flag.place for flag in own]),
        sentence(*plural(len(own), "flag"), ": ", joined([code(each, 60) for each in examples])),
    ]


def _only_aside(study: Study, places: Sequence[Place]) -> list[Line]:
    """Where tests, examples and the like alone have some: these control nothing of the code itself."""
    roles = sorted({study.base.files[place.file].role for place in places})
    return [_where(places), f"none in its own code; only in files of: {', '.join(roles)}"]


def _config_classes(study: Study) -> list[list[Line]]:
    """Classes whose fields are settings."""
    classes = study.config_classes
    if not classes:
        return []
    where = joined([[*study.pointer(*_of_class(study, rows)), f" ({len(rows)})"] for rows in classes[:MOST_ENTRIES]])
    more = (
        [", ", *plural(len(classes) - MOST_ENTRIES, "more class", "more classes")]
        if len(classes) > MOST_ENTRIES
        else []
    )
    named = [(row.symbol.rpartition(".")[2], row.why) for row in classes[0][:5]]
    fields = [f"{name}={default}" if default else name for name, default in named]
    told = [*plural(sum(map(len, classes)), "field"), ": ", *joined([code(each, 50) for each in fields])]
    return [["config classes", [*where, *more], told]]


def _of_class(study: Study, fields: Sequence[Row]) -> tuple[Place, str]:
    """The class that fields are of; where it is not known the first field."""
    first = fields[0]
    of = study.base.definition(first.place.file, first.symbol.rpartition(".")[0])
    return (of.place, of.qualname) if of is not None else (first.place, first.symbol)


def _arguments(study: Study) -> list[list[Line]]:
    """What the entries of a library take, where that is how it is controlled."""
    found = study.arguments[:MOST_ENTRIES]
    if not found:
        return []
    examples = [
        sentence(code(of.qualname.removesuffix(".__init__"), 40), ": ", joined([code(each, 50) for each in names[:5]]))
        for of, names in found
    ]
    where = joined([[pointer(of.place, of.name), f" ({len(names)})"] for of, names in found])
    return [["arguments of library entries", where, joined(examples, "; ")]]


def _files(study: Study) -> list[Line]:
    files = study.base.facts.config_files
    read = study.base.settings_read
    if not files and read:
        shown = joined([[code(text, 40), " at ", pointer(place)] for text, place in read[1:4]])
        rest: list[Inline] = ["; also ", *shown] if shown else []
        what = sentence("none in the repository; the code reads one that the user gives: ", code(read[0][0], 60), *rest)
        return ["config files", pointer(read[0][1]), what]
    if not files:
        return ["config files", "none found (searched: YAML, TOML, JSON and INI files that hold settings)", ""]
    tables = [file for file in files if "=" in file.file.rpartition("/")[2]]
    # Those that the code or the README names come first.
    used = list(dict.fromkeys(row.place.file for row in study.rows if row.role == "config file"))
    near = {file: at - len(used) for at, file in enumerate(used)}
    ranked = sorted(
        files, key=lambda f: (f in tables, near.get(f.file, 0), bool(ASIDE.search(f.file)), f.file.count("/"), f.file)
    )
    first = [file for file in ranked if file not in tables or len(tables) == len(files)][:4]
    keys = [
        [Code(file.file.rpartition("/")[2]), " has ", *joined([code(name, 40) for name in file.names[:3]])]
        for file in first[:2]
        if file.names
    ]
    where = joined([pointer(file.keys[0]) if file.keys else Code(file.file) for file in first])
    more: list[Inline] = ["; ", tally(len(tables)), " more with values for one size or device each"]
    return [
        "config files",
        where,
        sentence(
            *counted(study.base.facts, "config_files", "file"),
            *([": ", *joined(keys, "; ")] if keys else []),
            *(more if tables and len(tables) < len(files) else []),
        ),
    ]


def _where(places: Sequence[Place]) -> Line:
    """The files that have most of them."""
    per_file: dict[str, list[Place]] = {}
    for place in places:
        per_file.setdefault(place.file, []).append(place)
    ranked = sorted(per_file.values(), key=lambda found: (-len(found), found[0].file))
    shown = joined([[pointer(found[0]), f" ({len(found)})"] for found in ranked[:3]])
    return [*shown, *([", ", *plural(len(ranked) - 3, "more file")] if len(ranked) > 3 else [])]
