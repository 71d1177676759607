"""Which file a dotted name of Python means, by the files that there are: nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath


class Modules:
    """The Python files of a repository by their module names.

    A package may lie below folders that are no part of its name (``src/``, ``python/``): a file answers to every
    ending of its path, and where several answer, the one nearest to the importing file is taken. ``foreign`` are the
    names that mean another package, though a file is called so too.
    """

    def __init__(self, files: Iterable[str], foreign: Collection[str] = ()) -> None:
        self._foreign = foreign
        self._by_tail: dict[tuple[str, ...], list[str]] = {}
        self._parts: dict[str, tuple[str, ...]] = {}
        self._packages: set[tuple[str, ...]] = set()
        self._found: dict[tuple[str, str], str | None] = {}
        for file in sorted(files):
            if file.endswith(".py"):
                self._parts[file] = parts = module_parts(file)
                if file.endswith("/__init__.py"):
                    self._packages.add(parts)
                for tail in {parts[-1:] or ("",), parts[-2:] or ("",)}:
                    self._by_tail.setdefault(tail, []).append(file)

    def file(self, dotted: str, importing: str) -> str | None:
        """The file of the module, or None where it is not of this repository."""
        # Every name of a file that imports all of another asks again.
        key = dotted, importing
        if key not in self._found:
            self._found[key] = self._file(tuple(dotted.split(".")), importing)
        return self._found[key]

    def _file(self, wanted: tuple[str, ...], importing: str) -> str | None:
        candidates = self._by_tail.get(wanted[-2:], ())
        found = [
            file
            for file in candidates
            if self._parts[file][-len(wanted) :] == wanted
            and self._is_searched(self._parts[file][: -len(wanted)], importing)
        ]
        if not found:
            return None
        # A lone name is met by files anywhere: only one beside the importing file, or at the top, counts.
        if len(wanted) == 1:
            if wanted[0] in self._foreign:
                return None
            beside = tuple(importing.split("/")[:-1])
            found = [file for file in found if self._parts[file][:-1] in ((), beside, ("src",), ("python",))]
        return min(found, key=lambda file: (-shared(file, importing), len(file), file), default=None)

    def _is_searched(self, folder: tuple[str, ...], importing: str) -> bool:
        """Whether Python looks into a folder for packages.

        It does not where the folder lies in a package, as ``engine/patches`` with ``torch/`` does. A file that stands
        there may be run from there.
        """
        inside = any(folder[:end] in self._packages for end in range(1, len(folder) + 1))
        return not inside or folder == _names(PurePosixPath(importing).parts[:-1])

    def named(self, pattern: str, importing: str) -> list[str]:
        """The files of the modules of a name in which each ``*`` stands for what one or more letters may be."""
        if "*" not in pattern:
            found = self.file(pattern, importing)
            return [found] if found is not None else []
        wanted = [re.compile(re.escape(part).replace(r"\*", "[^.]+")) for part in pattern.split(".")]
        fits = [
            file
            for file, parts in self._parts.items()
            if file != importing
            and len(parts) >= len(wanted)
            and all(one.fullmatch(part) for one, part in zip(reversed(wanted), reversed(parts), strict=False))
        ]
        nearest = max((shared(file, importing) for file in fits), default=0)
        return [file for file in fits if shared(file, importing) == nearest]

    def of_import(self, dotted: str, importing: str) -> tuple[str, str] | None:
        """The file, and what of it is meant (empty: the module itself), for ``package.module.name``."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            file = self.file(".".join(parts[:end]), importing)
            if file is not None:
                return file, ".".join(parts[end:])
        return None


def of_other_packages(imports: Iterable[tuple[str, str]]) -> set[str]:
    """Of pairs of a file and a name that it imports: names that a file of the same name imports, and no folder has. No
    module imports itself: ``import torch`` in ``backends/torch.py`` means the package."""
    every = list(imports)
    folders = {part for file, _ in every for part in file.split("/")[:-1]}
    return {name for file, name in every if name not in folders and file.rpartition("/")[2] == f"{name}.py"}


def module_parts(file: str) -> tuple[str, ...]:
    """``a/b/__init__.py`` and ``a/b.py`` are both ``a.b``."""
    parts = _names(PurePosixPath(file).with_suffix("").parts)
    return parts[:-1] if parts[-1:] == ("__init__",) else parts


def absolute(dotted: str, level: int, file: str) -> str:
    """The name that a relative import of ``file`` means, counted from the repository's top."""
    if not level:
        return dotted
    package = _names(PurePosixPath(file).parts[:-1])
    base = package[: len(package) - (level - 1)] if level > 1 else package
    return ".".join((*base, *([dotted] if dotted else [])))


def _names(folders: Iterable[str]) -> tuple[str, ...]:
    """Folders as parts of a dotted name: ``engine-1.2`` is one part, which no import names."""
    return tuple(each.replace(".", "-") for each in folders)


def shared(a: str, b: str) -> int:
    """How many leading folders two files share."""
    count = 0
    for left, right in zip(a.split("/"), b.split("/"), strict=False):
        if left != right:
            break
        count += 1
    return count
