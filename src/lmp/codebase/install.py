"""How a repository is installed and built, from its own files: commands, each with the line that it comes from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from lmp.codebase.entries import line_of
from lmp.codebase.facts import Place

COMMAND = re.compile(
    r"^\s*(?:\$\s+|>\s+)?((?:sudo\s+)?(?:(?:uv\s+)?pip3?\s+install|python3?\s+-m\s+pip\s+install|uv\s+sync|conda\s+install|"
    r"poetry\s+install|docker\s+(?:run|pull|build)|python3?\s+setup\.py)\b.*?)\s*(?:#.*)?$"
)
_BUILDS = re.compile(
    r"^(?:all|deps|env|venv)$|build|install|compile|wheel|setup|dist|docker|image|sync|lib|kernel|cuda"
)
"""Targets of a Makefile that make or install something; others test, format or document."""
MOST = 12
"""Commands of one file."""


def install(file: str, language: str, text: str) -> list[tuple[str, Place]]:
    """In the order of their lines; nothing for files that say nothing of installing."""
    path = PurePosixPath(file)
    name = path.name.lower()
    folder = str(path.parent)
    if name == "pyproject.toml":
        return _pyproject(file, folder, text)
    if name == "setup.py":
        match = re.search(r"^[ \t]*(?:setuptools\.)?setup\(", text, re.MULTILINE)
        return [(f"pip install {folder}", Place(file, _line(text, match.start())))] if match else []
    if re.fullmatch(r"requirements.*\.txt", name):
        first = next((at for at, line in enumerate(text.split("\n"), 1) if line.strip() and line[0] not in "#-"), 0)
        return [(f"pip install -r {file}", Place(file, first))] if first else []
    if language == "makefile":
        return _make(file, folder, text)
    if language == "dockerfile":
        match = re.search(r"^FROM\b", text, re.MULTILINE | re.IGNORECASE)
        return [(f"docker build -f {file} .", Place(file, _line(text, match.start())))] if match else []
    if name == "cmakelists.txt":
        match = re.search(r"^[ \t]*project\s*\(", text, re.MULTILINE | re.IGNORECASE)
        return [(f"cmake -S {folder} -B build", Place(file, _line(text, match.start())))] if match else []
    if (
        name == "metadata"
        or (name.startswith("readme") and folder.count("/") < 1)
        or re.match(r"install.*\.(md|rst)", name)
    ):
        return _told(file, text)
    return []


REQUIREMENT = re.compile(r"""^[\s\-"']*([A-Za-z][\w.-]*)\s*(?:\[[\w,\s-]*\])?\s*(?:[<>=!~;@ "',#(]|$)""")


def requires(file: str, text: str) -> Iterator[tuple[str, bool]]:
    """Packages that a file of the build names, and whether each is installed with it: those of an extra are not."""
    name = PurePosixPath(file).name.lower()
    if name in ("metadata", "pkg-info"):
        for stated in re.findall(r"^Requires-Dist: *(.+)$", text, re.MULTILINE):
            yield from _named(stated, "extra" not in stated.partition(";")[2])
    elif re.fullmatch(r"requirements.*\.(?:txt|in)|environment\.ya?ml|requires\.txt", name):
        for line in text.split("\n"):
            yield from _named(line, name == "requirements.txt")
    elif name in ("setup.py", "setup.cfg"):
        for stated in re.findall(r"""["']([^"'\n]+)["']""", text) if name == "setup.py" else text.split("\n"):
            yield from _named(stated, True)
    elif name == "pyproject.toml":
        yield from _project_requires(text)


def builds_with(file: str, text: str) -> Iterator[str]:
    """Packages that a build of its own is given, beside setuptools."""
    if PurePosixPath(file).name == "pyproject.toml":
        try:
            system = tomllib.loads(text).get("build-system", {})
        except (tomllib.TOMLDecodeError, RecursionError):
            return
        for stated in system.get("requires", []) if isinstance(system, dict) else ():
            yield from (name for name, _ in _named(str(stated), True))


def _project_requires(text: str) -> Iterator[tuple[str, bool]]:
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    project, poetry = table.get("project", {}), table.get("tool", {}).get("poetry", {})
    if isinstance(project, dict):
        for stated in project.get("dependencies", []):
            yield from _named(str(stated), True)
        extras = project.get("optional-dependencies", {})
        for listed in extras.values() if isinstance(extras, dict) else ():
            for stated in listed if isinstance(listed, list) else ():
                yield from _named(str(stated), False)
    if isinstance(poetry, dict) and isinstance(poetry.get("dependencies"), dict):
        for stated in poetry["dependencies"]:
            yield from _named(str(stated), True)


def _named(stated: str, always: bool) -> Iterator[tuple[str, bool]]:
    found = REQUIREMENT.match(stated)
    if found:
        yield re.sub(r"[-_.]+", "-", found[1]).lower(), always


def _pyproject(file: str, folder: str, text: str) -> list[tuple[str, Place]]:
    try:
        project = tomllib.loads(text).get("project", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return []
    if not isinstance(project, dict) or "name" not in project:
        return []
    found = [(f"pip install {folder}", Place(file, line_of(text, "name")))]
    extras = project.get("optional-dependencies", {})
    if isinstance(extras, dict):
        found += [(f"pip install {folder}[{extra}]", Place(file, line_of(text, str(extra)))) for extra in extras]
    return found[:MOST]


def _make(file: str, folder: str, text: str) -> list[tuple[str, Place]]:
    where = "" if folder == "." else f" -C {folder}"
    found: dict[str, Place] = {}
    for match in re.finditer(r"^([A-Za-z][\w.-]*)\s*:(?!=)", text, re.MULTILINE):
        if not _BUILDS.search(match[1]):
            continue
        found.setdefault(f"make{where} {match[1]}", Place(file, _line(text, match.start())))
    return list(found.items())[:MOST]


def _told(file: str, text: str) -> list[tuple[str, Place]]:
    """Commands as a document gives them."""
    found: dict[str, Place] = {}
    lines = text.split("\n")
    for at, line in enumerate(lines, 1):
        match = COMMAND.match(whole(lines, at - 1) if line.rstrip().endswith("\\") else line)
        if match and "`" not in match[1] and len(match[1]) <= 200:
            found.setdefault(match[1], Place(file, at))
    return list(found.items())[:MOST]


def whole(lines: Sequence[str], at: int) -> str:
    """A command with the lines that it goes on over, as one."""
    parts: list[str] = []
    for line in lines[at:]:
        text = line.rstrip()
        parts.append(text.removesuffix("\\").strip() if parts else text.removesuffix("\\").rstrip())
        if not text.endswith("\\"):
            break
    return " ".join(parts)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
