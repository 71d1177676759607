"""Which files of a repository are read, and why the others are not. Nothing is opened here but ``.gitignore``.

Links are never followed: what a link inside the repository leads to is read under its own name, what lies outside is
not the repository's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lmp.codebase.facts import Selection, Skipped
from lmp.codebase.file_kinds import role
from lmp.codebase.texts import printable
from lmp.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SKIPPED_FOLDERS = {
    **dict.fromkeys((".git", ".hg", ".svn"), "version control"),
    **dict.fromkeys(
        ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", ".cache"),
        "a cache",
    ),
    **dict.fromkeys((".tox", ".nox", ".venv", "venv", "node_modules", "site-packages"), "installed packages"),
    **dict.fromkeys((".eggs",), "a build output"),
}
BUILD_OUTPUTS = ("build", "dist", "target")
"""Skipped at the top of a repository only, and only where they are no package of it: deeper down the names are used for
sources."""


class Spec(Protocol):
    def match_file(self, file: str) -> bool: ...


@dataclass(frozen=True)
class Listed:
    """A file to be read. ``size`` is in bytes."""

    file: str
    path: Path
    size: int


@dataclass(frozen=True)
class _Ignoring:
    """A ``.gitignore`` and the folder that it speaks of."""

    folder: str
    spec: Spec


def gitignore(patterns: Sequence[str]) -> Spec:
    """Raises UsageError where the package is missing or a pattern cannot be read."""
    try:
        from pathspec import GitIgnoreSpec
    except ImportError:
        raise UsageError("reading a repository needs more packages: pip install lmp[report]") from None
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise UsageError(f"a pattern of --include or --exclude cannot be read: {error}") from None


def list_files(root: Path, selection: Selection) -> tuple[list[Listed], list[Skipped]]:
    """All regular files that the selection leaves, and what was left out, both in the order of their names."""
    walk = _Walk(root, selection)
    walk.folder(root, "", ())
    return sorted(walk.listed, key=lambda each: each.file), sorted(walk.skipped, key=lambda each: each.file)


class _Walk:
    def __init__(self, root: Path, selection: Selection) -> None:
        self.root = root
        self.real_root = os.path.realpath(root)
        self.include = gitignore(selection.include) if selection.include else None
        self.exclude = gitignore(selection.exclude) if selection.exclude else None
        self.largest = selection.largest
        self.listed: list[Listed] = []
        self.skipped: list[Skipped] = []

    def folder(self, path: Path, name: str, ignoring: tuple[_Ignoring, ...]) -> None:
        """Iterative, as folders may nest deeper than Python calls."""
        waiting = [(path, name, ignoring)]
        while waiting:
            path, name, ignoring = waiting.pop()
            try:
                entries = sorted(os.scandir(path), key=lambda entry: entry.name)
            except OSError as error:
                self.skipped.append(Skipped(printable(name) + "/", _why(error)))
                continue
            here = tuple(self._ignoring(path, name, {entry.name for entry in entries}))
            # A vendored folder with patterns of its own is a repository within, of which those around say nothing.
            ignoring = here if here and name and role(f"{name}/x") == "vendored" else (*ignoring, *here)
            for entry in entries:
                file = f"{name}/{entry.name}" if name else entry.name
                if self._folder_wanted(entry, file, ignoring):
                    waiting.append((Path(entry.path), file, ignoring))

    def _ignoring(self, path: Path, name: str, entries: set[str]) -> Iterator[_Ignoring]:
        if ".gitignore" not in entries:
            return
        ignore = path / ".gitignore"
        try:
            if ignore.is_symlink() or not ignore.is_file() or ignore.stat().st_size > 100_000:
                return
            yield _Ignoring(name, gitignore(ignore.read_text("utf-8", errors="replace").splitlines()))
        except (OSError, UsageError) as error:
            self.skipped.append(Skipped(f"{name}/.gitignore".lstrip("/"), f"its patterns are not used: {error}"))

    def _folder_wanted(self, entry: os.DirEntry[str], file: str, ignoring: tuple[_Ignoring, ...]) -> bool:
        """Whether to go down. Files are listed or left out here."""
        shown = printable(file)
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            self.skipped.append(Skipped(shown, _why(error)))
            return False
        if stat.S_ISLNK(status.st_mode):
            self.skipped.append(Skipped(shown, self._link(entry.path)))
            return False
        if stat.S_ISDIR(status.st_mode):
            why = self._folder_skipped(entry, file, ignoring)
            if why:
                self.skipped.append(Skipped(f"{shown}/", why))
            return not why
        left_out = self._file_skipped(status, file, shown, ignoring)
        if left_out is None:
            self.listed.append(Listed(file, Path(entry.path), status.st_size))
        elif left_out:
            self.skipped.append(Skipped(shown, left_out))
        return False

    def _link(self, path: str) -> str:
        try:
            target = os.path.realpath(path, strict=True)
        except OSError:
            return "a link that leads nowhere or to itself"
        if target == self.real_root or target.startswith(self.real_root + os.sep):
            return "a link: what it leads to is read under its own name"
        return "a link that leaves the repository: not followed"

    def _folder_skipped(self, entry: os.DirEntry[str], file: str, ignoring: tuple[_Ignoring, ...]) -> str:
        if entry.name in SKIPPED_FOLDERS:
            return f"{SKIPPED_FOLDERS[entry.name]}: not read"
        if os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
            return "installed packages: not read"
        if file in BUILD_OUTPUTS and not os.path.exists(os.path.join(entry.path, "__init__.py")):
            return "a build output: not read"
        if entry.name.endswith(".egg-info"):
            return "a build output: not read"
        if self.exclude is not None and self.exclude.match_file(file + "/"):
            return "excluded by a pattern"
        if _ignored(file + "/", ignoring):
            return "named by .gitignore"
        return ""

    def _file_skipped(
        self, status: os.stat_result, file: str, shown: str, ignoring: tuple[_Ignoring, ...]
    ) -> str | None:
        """Why a file is not read; None where it is, empty where the user's own ``include`` leaves it out."""
        if self.include is not None and not self.include.match_file(file):
            return ""
        if self.exclude is not None and self.exclude.match_file(file):
            return "excluded by a pattern"
        if _ignored(file, ignoring):
            return "named by .gitignore"
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        if status.st_size > self.largest:
            return f"{status.st_size:,} bytes, more than the {self.largest:,} that are read of a file"
        if shown != file:
            return "its name is not UTF-8 or has control characters"
        return None


def _ignored(file: str, ignoring: tuple[_Ignoring, ...]) -> bool:
    return any(
        each.spec.match_file(file[len(each.folder) + 1 :] if each.folder else file)
        for each in ignoring
        if not each.folder or file.startswith(each.folder + "/")
    )


def _why(error: OSError) -> str:
    return "no permission to read" if isinstance(error, PermissionError) else f"cannot be read: {error.strerror}"
