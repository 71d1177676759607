"""Extension points: registries, base classes with many subclasses, folders of alike files, plugin groups."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Definition, Place
from lmp.report.document.parts import Code, Inline, Line, Paragraph, Section, Table
from lmp.report.repository.pieces import ASIDE, code, joined, plural, pointer, sentence
from lmp.report.repository.study import Study

SHOWN = 24
ALIKE = 8
"""Files of a folder that define the same name make a pattern."""


_EVERYWHERE = re.compile(r"_|main$|parse_args$|build_parser|setup_|run$")
"""Names that files have for other reasons than that they are alike."""


@dataclass(frozen=True)
class Point:
    goal: Line
    place: Line
    why: Line
    used: int
    aside: bool = False


def extension(study: Study) -> Section:
    found = [*_alike(study), *_tables(study), *_registries(study), *_bases(study), *_groups(study)]
    ranked = sorted(found, key=lambda each: (each.aside, -each.used))
    rows = [[each.goal, each.place, each.why] for each in ranked[:SHOWN]]
    searched = "calls and decorators named register, abstract and subclassed classes, folders of alike files, plugins"
    blocks = [Table(("Goal", "Recommended place", "Why"), rows, searched)]
    left = ranked[SHOWN:]
    if left:
        words = sentence(
            "Used less, and not in the table: ",
            *plural(len(left), "more place", "more places"),
            ", as ",
            joined([list(_pieces(each.place)) for each in left[:6]]),
            ".",
        )
        return Section("Extension points (safe places to modify)", [*blocks, Paragraph(words)])
    return Section("Extension points (safe places to modify)", blocks)


def _pieces(line: Line) -> list[Inline]:
    return sentence(line)


# --- registries ------------------------------------------------------------------------------------------------------


def _registries(study: Study) -> Iterator[Point]:
    uses: dict[str, list[tuple[str, str, int]]] = {}
    for file, note in study.base.notes("registration"):
        uses.setdefault(note.text, []).append((file, note.symbol, note.line))
    for name, found in uses.items():
        if len(found) < 2:
            continue
        where = _definition(study, name, found[0][0])
        file, _, line = found[0]
        files = len({each[0] for each in found})
        place: Line = (
            sentence(pointer(where.place, where.qualname))
            if where
            else sentence(pointer(Place(file, line), name.rpartition(".")[2]))
        )
        why = sentence(
            Code(f"{name}(…)"),
            " is used at ",
            *plural(len(found), "place"),
            " in ",
            *plural(files, "file"),
            ", first ",
            pointer(Place(file, line)),
        )
        aside = where is None or all(ASIDE.search(each[0]) for each in found)
        yield Point(_goal(name, where), place, why, len(found), aside)


def _definition(study: Study, name: str, file: str) -> Definition | None:
    """What a registry's name means in the file that uses it: imported there, defined there, or the only one."""
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    for each in study.base.signs[file].imports:
        if first in each.names:
            found = study.base.resolve(each.module, first, file)
            where, qualname = found if found else ("", "")
            for wanted in (qualname or last, f"{qualname}.{last}"):
                definition = study.base.methods.get((where, wanted))
                if definition is not None and definition.name == last:
                    return definition
    named = study.base.by_name.get(last, [])
    owner = name.rpartition(".")[0].rpartition(".")[2].lower().strip("_")
    fitting = [each for each in named if each.place.file == file or (owner and owner in each.qualname.lower())]
    return fitting[0] if fitting else named[0] if len(named) == 1 else None


def _goal(name: str, where: Definition | None) -> Line:
    owner, _, last = name.rpartition(".")
    what = re.sub(r"^_?register_?|_?register$|^_", "", last).replace("_", " ").strip()
    if not what and where is not None:
        what = where.qualname.rpartition(".")[0] or where.place.file.rpartition("/")[2].removesuffix(".py")
    what = re.sub(r"(?i)_?registry$", "", what or owner.rpartition(".")[2])
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", what).lower().replace("_", " ").strip()
    return sentence("register another ", code(words or name, 50))


# --- base classes ----------------------------------------------------------------------------------------------------


def _bases(study: Study) -> Iterator[Point]:
    abstract = {(file, note.text): note.detail for file, note in study.base.notes("abstract")}
    for base in study.base.definitions:
        if base.kind != "class" or "." in base.qualname:
            continue
        name, must = base.name, abstract.get((base.place.file, base.qualname), "")
        own = _children(study, base)
        if len(own) < (2 if must else 4) or re.search(
            r"Error$|Exception$|Enum$|Params$|ReqInput|ReqOutput|Output$", name
        ):
            continue
        shown = joined([pointer(child.place, child.name) for child in own[:2]])
        needed: list[Inline] = ["; must define ", code(must, 70)] if must else []
        why = sentence(*plural(len(own), "class", "classes"), " do so, as ", shown, *needed)
        yield Point(
            sentence("add a subclass of ", Code(name)),
            pointer(base.place, name),
            why,
            len(own) * (2 if must else 1),
            bool(ASIDE.search(base.place.file)),
        )


def _children(study: Study, base: Definition) -> list[Definition]:
    """Classes of its own code that build on a class. Of C++, whose bases the graph does not keep, by the class's name;
    a file that does not parse has no graph."""
    graph = study.base.facts.graphs.get(base.place.file)
    of = graph.classes.get(base.name) if graph is not None else None
    if of is None or of.native:
        first = next(
            each for each in study.base.by_name[base.name] if each.kind == "class" and "." not in each.qualname
        )
        named = study.base.subclasses.get(base.name, ()) if first is base else ()
        return [child for child in named if child is not base]
    below = study.reading.graph.evaluator.subclasses.get(of, ())
    found = (study.base.definition(each.file, each.qualname) for each in below if study.base.is_own(each.file))
    return [child for child in found if child is not None]


# --- folders of alike files ------------------------------------------------------------------------------------------


def _alike(study: Study) -> Iterator[Point]:
    """``models/*.py``, each with a class of the same name or ending, or with one name for classes of its own."""
    folders: dict[str, dict[str, list[tuple[Place, str]]]] = {}
    for file, note in study.base.notes("named class"):
        folders.setdefault(file.rpartition("/")[0], {}).setdefault(note.text, []).append(
            (Place(file, note.line), note.text)
        )
    functions = {each.name for each in study.base.definitions if each.kind == "function"}
    given = {(folder, name) for folder, names in folders.items() for name in names}
    for each in study.base.definitions:
        if "." in each.qualname or each.kind == "method" or _EVERYWHERE.match(each.name):
            continue
        folder = each.place.file.rpartition("/")[0]
        ending = re.search(r"(For[A-Z]\w+|Model|Backend|Processor|Parser|Detector)$", each.name)
        for name in {each.name, f"…{ending[1]}" if ending and ending[1] != each.name else each.name}:
            folders.setdefault(folder, {}).setdefault(name, []).append((each.place, each.name))
    for folder, names in folders.items():
        counted = {name: len({place.file for place, _ in found}) for name, found in names.items()}
        counted = {name: most for name, most in counted.items() if most >= ALIKE}
        takers = {name: _taker(study, folder, name) for name in counted}
        # A helper that each file has a copy of is no interface: nobody takes it from them.
        plain = {name for name in counted if name in functions and (folder, name) not in given}
        kept = {name: most for name, most in counted.items() if name not in plain or takers[name]}
        if not kept:
            continue
        name, most = max(
            kept.items(), key=lambda item: (takers[item[0]] is not None, item[1], item[0].startswith("…"), item[0])
        )
        place, symbol = names[name][0]
        taker, loader = takers[name], _loader(study, folder)
        does = " there each set " if (folder, name) in given else " there each define "
        why = sentence(
            *(*plural(most, "file"), does, Code(name), ", as ", pointer(place, symbol)),
            *((", taken at ", pointer(taker)) if taker else ()),
            *((", loaded by name at ", pointer(loader)) if loader else ()),
        )
        yield Point(
            sentence("add a file to ", Code(f"{folder}/")),
            Code(f"{folder}/"),
            why,
            most * 2,
            bool(ASIDE.search(folder + "/")),
        )


def _taker(study: Study, folder: str, name: str) -> Place | None:
    """The first line of a file elsewhere that takes the name of a module: ``module.Model``, ``getattr(module,
    "Model")``."""
    if name.startswith("…"):
        return None
    wanted = re.compile(rf"(?<=\w)(?<!self)\.{name}\b(?!\s*=[^=])|getattr\([^()]*[\"']{name}[\"']")
    for file in study.base.code:
        if file.file.rpartition("/")[0] != folder and file.language == "python":
            for at, line in enumerate(study.base.lines(file.file), 1):
                if wanted.search(line) and not line.lstrip().startswith(("#", "import ", "from ")):
                    return Place(file.file, at)
    return None


def _loader(study: Study, folder: str) -> Place | None:
    """Where the folder's modules are loaded by a name that is put together."""
    for file, note, into in study.loaded:
        if any(each.rpartition("/")[0] == folder for each in into):
            return Place(file, note.line)
    return None


# --- mappings --------------------------------------------------------------------------------------------------------


def _tables(study: Study) -> Iterator[Point]:
    """Mappings from a name to a function or class of the repository."""
    for file, note in study.base.notes("table"):
        named = note.detail.rpartition(": ")[2]
        if named not in study.base.by_name or not note.text.strip("_").isupper():
            continue
        entries = int(note.about)
        why = sentence(
            "a mapping of ",
            *plural(entries, "name"),
            " to functions or classes, the first being ",
            code(note.detail, 70),
        )
        place = Place(file, note.line)
        yield Point(
            sentence("add an entry to ", Code(note.text)),
            sentence(pointer(place, note.text)),
            why,
            entries,
            bool(ASIDE.search(file)),
        )


# --- plugins of other packages ---------------------------------------------------------------------------------------


def _groups(study: Study) -> Iterator[Point]:
    for file in study.base.files:
        if not file.endswith("entry_points.txt"):
            continue
        parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
        text = study.base.text(file) or ""
        try:
            parser.read_string(text)
        except configparser.Error:
            continue
        for group in parser.sections():
            if group not in ("console_scripts", "gui_scripts"):
                line = next((n for n, each in enumerate(text.split("\n"), 1) if each.strip() == f"[{group}]"), 1)
                why = sentence("a group of entry points with ", *plural(len(parser.items(group)), "entry", "entries"))
                yield Point(sentence("a plugin of ", code(group)), pointer(Place(file, line)), why, 2)
