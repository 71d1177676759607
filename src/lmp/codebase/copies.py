"""Folders of a repository that hold the same files: an archive that followed a link has one package twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lmp.codebase.facts import Skipped
from lmp.codebase.walk import Listed

FEW = 3
"""Files of Python that a folder has at least, before it can be a copy of another."""


def without_copies(listed: Sequence[Listed]) -> tuple[list[Listed], list[Skipped]]:
    """The files without those of a folder at the top that has the same Python files as another one; such folders.

    Kept is the folder whose name the files import. A file that cannot be opened is no copy.
    """
    folders: dict[str, list[Listed]] = {}
    for each in listed:
        top, slash, _ = each.file.partition("/")
        if slash:
            folders.setdefault(top, []).append(each)
    alike: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for top, files in folders.items():
        python = tuple((each.file[len(top) :], each.size) for each in _python(files))
        if len(python) >= FEW:
            alike.setdefault(python, []).append(top)
    copies: dict[str, str] = {}
    for tops in alike.values():
        kept = max(tops, key=lambda top: (_imported(top, folders[top]), top)) if len(tops) > 1 else ""
        for top in tops if kept else ():
            if top != kept and _same(folders[top], folders[kept]):
                copies[top] = kept
    left = [each for each in listed if each.file.partition("/")[0] not in copies]
    return left, [
        Skipped(f"{top}/", f"the same Python files as {kept}/, which is read") for top, kept in copies.items()
    ]


def _python(files: Iterable[Listed]) -> list[Listed]:
    return [each for each in files if each.file.endswith(".py")]


def _same(files: Iterable[Listed], others: Iterable[Listed]) -> bool:
    try:
        pairs = zip(_python(files), _python(others), strict=True)
        return all(one.path.read_bytes() == other.path.read_bytes() for one, other in pairs)
    except (OSError, ValueError):
        return False


def _imported(top: str, files: Iterable[Listed]) -> int:
    """How often the files of a folder import it by its own name."""
    wanted = re.compile(rb"^\s*(?:from|import)\s+" + re.escape(top.encode()) + rb"\b", re.MULTILINE)
    found = 0
    for each in _python(files):
        try:
            found += len(wanted.findall(each.path.read_bytes()))
        except OSError:
            continue
    return found
