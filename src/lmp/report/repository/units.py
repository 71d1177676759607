"""A repository in few parts: folders, the large ones split further, the small ones whole. Every file is in one part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lmp.codebase.facts import FileFacts


@dataclass
class Unit:
    """A folder with everything in it, the files that lie directly in a folder, or one file."""

    path: str
    files: list[FileFacts] = field(default_factory=list)
    rest: str = ""
    """What these files are of the folder, where they are not all of it: ``files`` directly in it, ``smaller parts``."""

    @property
    def lines(self) -> int:
        return sum(file.lines for file in self.files)

    @property
    def title(self) -> str:
        if len(self.files) == 1 and self.files[0].file == self.path:
            return self.path
        folder = f"{self.path}/" if self.path else "./"
        return f"{folder}*" if self.rest == "files" else folder

    @property
    def anchor(self) -> str:
        """The file that stands for it: its ``__init__`` or first."""
        inits = [file.file for file in self.files if file.file == f"{self.path}/__init__.py"]
        return (inits or sorted(file.file for file in self.files))[0]


FEW = 6
"""So many large files directly in a folder stand each for itself."""


def units(files: Iterable[FileFacts], most: int, least: float = 0, alone: int = FEW) -> list[Unit]:
    """At most ``most`` parts: the largest folder is split as long as there is room. Where only some of its parts find
    room, the small ones stand together.

    ``least`` is the share of all lines below which a folder is not split, ``alone`` how many large files of a folder
    stand each for itself at most.
    """
    found = _split(Unit("", list(files)), alone)
    total = sum(unit.lines for unit in found)
    found = _gathered("", found, most)
    whole: set[str] = set()
    while len(found) < most:
        open_units = [unit for unit in found if not unit.rest and len(unit.files) > 1 and unit.path not in whole]
        if not open_units:
            break
        largest = max(open_units, key=lambda unit: (unit.lines, unit.path))
        parts = _split(largest, alone)
        room = most - len(found) + 1
        whole.add(largest.path)
        if largest.lines < least * total:
            break
        if len(parts) < 2 or room < min(len(parts), WORTHWHILE):
            continue
        at = found.index(largest)
        found[at : at + 1] = _gathered(largest.path, parts, room)
    return sorted(found, key=lambda unit: (unit.path, unit.rest))


SMALL = 60
"""Lines below which a file does not."""
WORTHWHILE = 4
"""Parts that a folder must at least come apart into, to be worth a split."""


def _split(unit: Unit, alone: int) -> list[Unit]:
    """The folders and files directly below; a folder of one folder is gone through."""
    while True:
        prefix = f"{unit.path}/" if unit.path else ""
        below: dict[str, Unit] = {}
        direct: list[FileFacts] = []
        for file in unit.files:
            head, slash, _ = file.file.removeprefix(prefix).partition("/")
            if slash:
                below.setdefault(head, Unit(prefix + head)).files.append(file)
            else:
                direct.append(file)
        if direct or len(below) != 1:
            break
        unit = next(iter(below.values()))
    large = [file for file in direct if file.lines >= SMALL]
    if len(large) > alone:
        large = []
    rest = [file for file in direct if file not in large]
    parts = [*below.values(), *(Unit(file.file, [file]) for file in large)]
    if len(rest) == 1:
        parts.append(Unit(rest[0].file, rest))
    elif rest:
        parts.append(Unit(unit.path, rest, rest="files"))
    return parts


def _gathered(path: str, parts: list[Unit], room: int) -> list[Unit]:
    if len(parts) <= room:
        return parts
    ranked = sorted(parts, key=lambda unit: (-unit.lines, unit.path))
    small = ranked[max(room - 1, 1) :]
    files = [file for unit in small for file in unit.files]
    return [*ranked[: max(room - 1, 1)], Unit(path, sorted(files, key=lambda file: file.file), rest="smaller parts")]
