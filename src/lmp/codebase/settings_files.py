"""Files of settings: their first keys, each with its line. Files for tests, documentation and building are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from lmp.codebase.facts import ConfigFile, Place
from lmp.codebase.file_kinds import role

MOST_KEYS = 2_000
"""Of one file: enough to know what it sets."""
LEFT_OUT = re.compile(
    r"(?:package|package-lock|tsconfig|vercel)\.json|(?:ruff|rustfmt|clippy|taplo|uv|pixi|pyproject\w*)\.toml|(?:mypy|tox|pytest)\.ini"
    r"|(?:mkdocs|codecov|environment|readthedocs)\.ya?ml|\.(?!env).*"
)
"""Of tools that build, check or publish a repository, hidden ones among them: they set nothing of what it does."""

Keys = Iterator[tuple[str, int]]


def config_file(file: str, language: str, text: str) -> ConfigFile | None:
    """None for a file that sets nothing by name, such as a list of records."""
    name = PurePosixPath(file).name
    kind = "env" if name == ".env" or name.startswith(".env.") else language
    if kind not in READERS or role(file) in ("test", "docs", "build") or LEFT_OUT.fullmatch(name):
        return None
    found: dict[str, int] = {}
    for key, line in READERS[kind](text):
        found.setdefault(key, line)
        if len(found) == MOST_KEYS:
            break
    if not found:
        return None
    listed = re.search(r"^defaults:[ \t]*\n((?:[ \t]*-[^\n]*\n?)+)", text, re.MULTILINE) if kind == "yaml" else None
    composed = re.findall(r"-\s*(?:[^\n:]*:\s*)?([\w.\-]+)\s*$", listed[1], re.MULTILINE) if listed else ()
    places = tuple(Place(file, line) for line in found.values())
    return ConfigFile(file, kind, places, tuple(found), tuple(composed))


def _json(text: str) -> Keys:
    """The keys of the outermost object."""
    depth = 0
    for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"(\s*:)?|[\[\]{}]', text):
        if match[0] in ("[", "{"):
            if depth == 0 and match[0] == "[":
                return
            depth += 1
        elif match[0] in ("]", "}"):
            depth -= 1
        elif depth == 1 and match[2]:
            yield match[1], text.count("\n", 0, match.start()) + 1


def _yaml(text: str) -> Keys:
    """Keys that stand at a line's beginning, and those one level below them."""
    above, indent = "", 0
    for at, line in enumerate(text.split("\n"), 1):
        match = re.match(r"( *)([\"']?)([A-Za-z_][\w.\-/]*)\2\s*:(?:\s|$)", line)
        if match is None:
            continue
        if not match[1]:
            above, indent = match[3], 0
            yield above, at
        elif above and (not indent or len(match[1]) == indent):
            indent = len(match[1])
            yield f"{above}.{match[3]}", at


def _toml(text: str) -> Keys:
    return _in_sections(text, r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$", r"([A-Za-z_][\w.-]*|\"[^\"]+\")\s*=")


def _ini(text: str) -> Keys:
    return _in_sections(text, r"\[([^\]]+)\]\s*$", r"([A-Za-z_][\w.\-]*)\s*[=:]")


def _in_sections(text: str, heading: str, assignment: str) -> Keys:
    """Keys with the name of the section that they stand in."""
    section = ""
    for at, line in enumerate(text.split("\n"), 1):
        header = re.match(heading, line)
        key = re.match(assignment, line)
        if header:
            section = header[1]
        elif key:
            yield f"{section}.{key[1]}" if section else key[1], at


def _env(text: str) -> Keys:
    for at, line in enumerate(text.split("\n"), 1):
        key = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=", line)
        if key:
            yield key[1], at


READERS: dict[str, Callable[[str], Keys]] = {"json": _json, "yaml": _yaml, "toml": _toml, "ini": _ini, "env": _env}
