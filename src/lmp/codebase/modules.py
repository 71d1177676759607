"""Which file a dotted name of Python means, by the files that there are: nothing is imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath


class Modules:
    """The Python files of a repository by their module names.

    A package may lie below folders that are no part of its name (``src/``, ``python/``): a file answers to every
    ending of its path, and where several answer, the one nearest to the importing file is taken.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._by_tail: dict[str, list[str]] = {}
        self._parts: dict[str, tuple[str, ...]] = {}
        for file in sorted(files):
            if file.endswith(".py"):
                self._parts[file] = module_parts(file)
                tail = self._parts[file][-1:] or ("",)
                self._by_tail.setdefault(tail[0], []).append(file)

    def file(self, dotted: str, importing: str) -> str | None:
        """The file of the module, or None where it is not of this repository."""
        wanted = tuple(dotted.split("."))
        found = [file for file in self._by_tail.get(wanted[-1], ()) if self._parts[file][-len(wanted) :] == wanted]
        if not found:
            return None
        # A lone name is met by files anywhere: only one beside the importing file, or at the top, counts.
        if len(wanted) == 1:
            beside = PurePosixPath(importing).parent.parts
            found = [file for file in found if self._parts[file][:-1] in ((), beside, ("src",), ("python",))]
        return min(found, key=lambda file: (-_shared(file, importing), len(file), file), default=None)

    def of_import(self, dotted: str, importing: str) -> tuple[str, str] | None:
        """The file, and what of it is meant (empty: the module itself), for ``package.module.name``."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            file = self.file(".".join(parts[:end]), importing)
            if file is not None:
                return file, ".".join(parts[end:])
        return None


def module_parts(file: str) -> tuple[str, ...]:
    """``a/b/__init__.py`` and ``a/b.py`` are both ``a.b``."""
    parts = PurePosixPath(file).with_suffix("").parts
    return parts[:-1] if parts[-1:] == ("__init__",) else parts


def absolute(dotted: str, level: int, file: str) -> str:
    """The name that a relative import of ``file`` means, counted from the repository's top."""
    if not level:
        return dotted
    package = PurePosixPath(file).parts[:-1]
    base = package[: len(package) - (level - 1)] if level > 1 else package
    return ".".join((*base, *([dotted] if dotted else [])))


def _shared(a: str, b: str) -> int:
    """How many leading folders two files share."""
    count = 0
    for left, right in zip(PurePosixPath(a).parts, PurePosixPath(b).parts, strict=False):
        if left != right:
            break
        count += 1
    return count
