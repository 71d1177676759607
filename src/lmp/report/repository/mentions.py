"""Where a kernel stands by name that no launch is found for: in another kernel, or elsewhere.

A function of a kernel language that other kernels call is no kernel that is launched; one in C++ may be handed to a
launcher by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.codebase.facts import Kernel, Place
from lmp.report.repository.code_base import CodeBase

_WORD = re.compile(r"[A-Za-z_]\w*")
_ASIDE = re.compile(r"\s*(?:#|//|/?\*|from\b|import\b|def\b|@)")


class Mentions:
    """Of all kernels of a repository, found once."""

    def __init__(self, base: CodeBase, unlaunched: list[Kernel]) -> None:
        self._base = base
        self._names = {_name(kernel) for kernel in unlaunched}
        self._in_file: dict[str, dict[str, list[int]]] = {}
        self._kernels: dict[str, list[Kernel]] = {}
        for each in base.facts.kernels:
            self._kernels.setdefault(each.place.file, []).append(each)

    def caller(self, kernel: Kernel) -> Kernel | None:
        """The first kernel that calls this one."""
        found = self.of(kernel)
        return found[1] if found is not None else None

    def of(self, kernel: Kernel) -> tuple[Place, Kernel | None] | None:
        """The first place that names it outside of itself, in its file or in one with kernels that takes it by name,
        and the kernel around that place; a place in a kernel comes before others."""
        if "." in kernel.name:
            return None  # Of a function inside of another its name says too little.
        first: tuple[Place, Kernel | None] | None = None
        for place in self._places(kernel):
            around = self._around(place)
            if around is None:
                first = first or (place, None)
            elif _name(around) != _name(kernel):
                return place, around
        return first

    def _places(self, kernel: Kernel) -> Iterator[Place]:
        name, own = _name(kernel), kernel.place.file
        for line in self._lines(own).get(name, ()):
            if not kernel.place.line <= line <= kernel.end:
                yield Place(own, line)
        definition = self._base.methods.get((own, name))
        taking = self._base.importing(definition) if definition is not None else ()
        for file in sorted(taking):
            if file in self._kernels:
                yield from (Place(file, line) for line in self._lines(file).get(name, ()))

    def _lines(self, file: str) -> dict[str, list[int]]:
        """Name -> lines of a file that have it, without imports, comments and lists of names."""
        if file not in self._in_file:
            found: dict[str, list[int]] = {}
            for number, line in enumerate(self._base.lines(file), 1):
                words = self._names.intersection(_WORD.findall(line))
                if words and not _ASIDE.match(line) and not re.fullmatch(r"\s*['\"]?\w+['\"]?,?\s*", line):
                    for word in words:
                        found.setdefault(word, []).append(number)
            self._in_file[file] = found
        return self._in_file[file]

    def _around(self, place: Place) -> Kernel | None:
        inside = [each for each in self._kernels[place.file] if each.place.line <= place.line <= each.end]
        return max(inside, key=lambda each: each.place.line, default=None)


def _name(kernel: Kernel) -> str:
    return kernel.name.rpartition(".")[2]
