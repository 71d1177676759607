"""What a repository puts in the place of other packages' functions and classes: by assignment to their modules."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.codebase.facts import Definition, Place
from lmp.report.document.parts import Bold, Line
from lmp.report.repository.pieces import ASIDE, code, joined, plural, pointer, sentence
from lmp.report.repository.signs import Note
from lmp.report.repository.study import Study

SHOWN = 12
LEAST = 2
"""Places from which replacing is what a repository does, and no mending of one thing."""


@dataclass(frozen=True)
class _Stand:
    """One function or class of the repository, and where it takes the place of another."""

    own: Definition
    found: tuple[tuple[str, Note], ...]


def replaced(study: Study) -> list[Line]:
    """A bullet for each function or class that stands in for others, that of most places first."""
    stands = _stands(study)
    lines = [_line(study, each) for each in stands[:SHOWN]]
    if len(stands) > SHOWN:
        more = [pointer(each.own.place, each.own.qualname) for each in stands[SHOWN:]]
        lines.append(
            sentence(
                *(Bold("Replaced in other packages"), " by ", *plural(len(more), "more definition"), ": "),
                *(joined(more[:SHOWN]), " …" if len(more) > SHOWN else ""),
            )
        )
    return lines


def _stands(study: Study) -> list[_Stand]:
    base = study.base
    taken: dict[tuple[str, str], list[tuple[str, Note]]] = {}
    for file, note in base.notes("replaced"):
        if note.about.split(".")[0] not in base.packages_used or ASIDE.search(file):
            continue
        own = _meant(study, file, note.detail)
        if own is not None:
            taken.setdefault((own.place.file, own.qualname), []).append((file, note))
    stands = [_Stand(base.methods[key], tuple(found)) for key, found in taken.items() if len(found) >= LEAST]
    return sorted(stands, key=lambda each: (-len(each.found), each.own.place.file, each.own.place.line))


def _meant(study: Study, file: str, name: str) -> Definition | None:
    """The definition of the repository that a name means in a file: its own, or an imported one."""
    if "." in name:
        return None
    for each in study.base.signs[file].imports:
        if name in each.names:
            found = study.base.resolve(each.module, name, file)
            return study.base.methods.get(found) if found else None
    return study.base.methods.get((file, name))


def _line(study: Study, stand: _Stand) -> Line:
    file, first = stand.found[0]
    modules = len({note.about for _, note in stand.found})
    more = len(stand.found) - 1
    return sentence(
        *(Bold("Replaced in other packages"), ": ", pointer(stand.own.place, stand.own.qualname)),
        *(" takes the place of ", code(f"{first.about}.{first.text}", 100), " at ", pointer(Place(file, first.line))),
        *(", and of others at ", *plural(more, "more place"), " (", *plural(modules, "module"), " in all)"),
    )
