"""What stands under a repository report's title. Git's files are read as text: no process is started on them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from lmp.codebase.facts import Place
from lmp.report.document.parts import Code, Line
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.pieces import code, folder_name, pointer, sentence

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_URL = re.compile(r"\s*url\s*=\s*(\S+)")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_PROJECT_URL = re.compile(r"^(?:Project-URL:\s*(\w[\w -]*),\s*|(Home-page):\s*)(https?://\S+)", re.MULTILINE)
SMALL = 1_000_000
"""Bytes of a file of git's that is read."""


def commit(base: CodeBase) -> Line:
    """The commit that is checked out, or the version that the package's metadata states."""
    sha = _head(base.root)
    if sha is not None:
        return Code(sha)
    for file, text in metadata(base):
        found = re.search(r"^Version: *(\S+)", text, re.MULTILINE)
        if found:
            place = Place(file, text[: found.start()].count("\n") + 1)
            return sentence("none (not a git checkout); version ", code(found[1]), " at ", pointer(place, "Version"))
    return "none (not a git checkout)"


def address(base: CodeBase) -> Line:
    """Where the repository is published, as its own files say, without what they may hold of credentials."""
    folder = _git_folder(base.root)
    config = _small(folder / "config") if folder else None
    for part in re.split(r"^\[", config or "", flags=re.MULTILINE):
        found = _URL.search(part) if part.startswith('remote "origin"') else None
        if found:
            return code(_CREDENTIALS.sub("", found[1]), 200)
    named = [
        (found[1] or found[2], found[3], Place(file, text[: found.start()].count("\n") + 1))
        for file, text in metadata(base)
        for found in _PROJECT_URL.finditer(text)
    ]
    named += list(_pyproject_urls(base))
    named.sort(key=lambda each: ("repositor" not in each[0].lower() and "source" not in each[0].lower(), each[2].line))
    for _, url, place in named:
        return sentence(code(_CREDENTIALS.sub("", url), 200), " (", pointer(place), ")")
    return sentence(folder_name(base.facts.root_name), " (no address in its files)")


def metadata(base: CodeBase) -> Iterator[tuple[str, str]]:
    """``METADATA`` or ``PKG-INFO`` of an installed or unpacked package: file and text."""
    places = [
        *sorted(base.root.glob("*.dist-info/METADATA")),
        base.root / "PKG-INFO",
        *sorted(base.root.glob("*.egg-info/PKG-INFO")),
    ]
    for path in places:
        file = path.relative_to(base.root).as_posix()
        text = base.text(file) if path.is_file() else None
        if text is not None:
            yield file, text


def required(base: CodeBase) -> set[str]:
    """Names of the packages that are always installed with it, in small letters with hyphens: those of an extra or of
    one platform are not."""
    stated = [each for _, text in metadata(base) for each in re.findall(r"^Requires-Dist: *(.+)$", text, re.MULTILINE)]
    dependencies = _project(base).get("dependencies", [])
    stated += [str(each) for each in dependencies] if isinstance(dependencies, list) else []
    names = (re.match(r"[\w.-]+", each) for each in stated if ";" not in each)
    return {re.sub(r"[-_.]+", "-", found[0]).lower() for found in names if found}


def _project(base: CodeBase) -> dict[str, object]:
    """The table ``project`` of pyproject.toml; empty where it is none."""
    text = base.text("pyproject.toml") if (base.root / "pyproject.toml").is_file() else None
    try:
        project = tomllib.loads(text or "").get("project", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    return project if isinstance(project, dict) else {}


def _pyproject_urls(base: CodeBase) -> Iterator[tuple[str, str, Place]]:
    text = (base.text("pyproject.toml") if (base.root / "pyproject.toml").is_file() else None) or ""
    urls = _project(base).get("urls", {})
    for name, url in urls.items() if isinstance(urls, dict) else ():
        line = next((n for n, line in enumerate(text.split("\n"), 1) if str(url) in line), 1)
        yield str(name), str(url), Place("pyproject.toml", line)


# --- git's own files -------------------------------------------------------------------------------------------------


def _head(root: Path) -> str | None:
    folder = _git_folder(root)
    head = (_small(folder / "HEAD") or "").strip() if folder else ""
    if folder is None or not head.startswith("ref: "):
        return _sha(head)
    name = head.removeprefix("ref: ").strip()
    if ".." in name or name.startswith("/"):
        return None
    common = _small(folder / "commondir")
    for place in (folder, folder / common.strip()) if common else (folder,):
        found = _sha((_small(place / name) or "").strip()) or _packed(place, name)
        if found:
            return found
    return None


def _git_folder(root: Path) -> Path | None:
    """``.git``, or the folder that a worktree's or submodule's file ``.git`` names."""
    path = root / ".git"
    if path.is_dir():
        return path
    named = (_small(path) or "").strip()
    return (root / named.removeprefix("gitdir: ")) if named.startswith("gitdir: ") else None


def _packed(folder: Path, name: str) -> str | None:
    for line in (_small(folder / "packed-refs") or "").split("\n"):
        sha, _, ref = line.partition(" ")
        if ref.strip() == name:
            return _sha(sha)
    return None


def _sha(text: str) -> str | None:
    return text if _SHA.fullmatch(text) else None


def _small(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > SMALL:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
