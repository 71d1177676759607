"""The guard: an agent may read files below the roots with Read, Grep and Glob, and nothing else.

The CLI's permissions enforce the same. The guard is asked first, and each of the two is sufficient.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from lmp.agents.globs import OddPattern, alternatives, could_lead_through

FILE_TOOLS = ("Read", "Grep", "Glob")
MCP_PREFIX = "mcp__lmp__"

_KNOWN = {
    "Read": {"file_path", "offset", "limit", "pages"},
    "Grep": {
        *("pattern", "path", "glob", "type", "output_mode", "head_limit", "offset", "multiline", "context"),
        *("-A", "-B", "-C", "-n", "-i", "-o"),
    },
    "Glob": {"pattern", "path"},
}
"""The inputs that the guard understands. It refuses all others, as a newer CLI may have."""

_TYPE = re.compile(r"[a-z0-9]+", re.ASCII)
"""Name of a type of files, as ripgrep knows it."""


class Guard:
    """Decides on each tool call."""

    def __init__(self, roots: Sequence[Path], tools: Collection[str]) -> None:
        """``tools`` are the names of lmp's own tools, without the prefix that the CLI gives them."""
        self.roots = tuple(root.resolve() for root in roots)
        self._tools = {MCP_PREFIX + name for name in tools}

    def refusal(self, tool: str, given: dict[str, Any], cwd: str) -> str | None:
        """Why ``tool`` may not be called with ``given``; None if it may. Raises nothing, whatever a model sends."""
        if tool in self._tools:
            return None
        if tool not in FILE_TOOLS:
            return f"there is no tool {tool} in this task"
        unknown = given.keys() - _KNOWN[tool]
        if unknown:
            return f"{tool} may not be given {', '.join(sorted(unknown))} in this task"
        path = given.get("file_path" if tool == "Read" else "path")
        pattern = given.get({"Grep": "glob", "Glob": "pattern"}.get(tool, ""))
        kind = given.get("type")
        if kind is not None and not (isinstance(kind, str) and _TYPE.fullmatch(kind)):
            return "the type must be the name of a kind of files, as py"
        refused = self._path_refusal(path, cwd)
        if refused is not None or pattern is None:
            return refused
        return self._pattern_refusal(pattern, Path(cwd, str(path)))

    def _path_refusal(self, path: object, cwd: str) -> str | None:
        if path is None:
            return f"say where: give a path below {self._folders()}"
        if not isinstance(path, str) or not path or "\0" in path:
            return f"the path must be the text of a path below {self._folders()}"
        if self._is_inside(Path(cwd, path)):
            return None
        return f"it is outside of what may be read here: only files below {self._folders()}"

    def _is_inside(self, path: Path) -> bool:
        """Whether a path leads below a root, with its links followed."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or an invalid file name
            return False
        return any(real.is_relative_to(root) for root in self.roots)

    def _pattern_refusal(self, pattern: object, folder: Path) -> str | None:
        """Why a pattern of files below ``folder`` may not be used."""
        if not isinstance(pattern, str):
            return "the pattern must be text"
        try:
            wanted = alternatives(pattern)
        except OddPattern as error:
            return f"the pattern must be relative and plain: {error}"
        for parts in wanted:
            if any(not self._is_inside(place) for place in could_lead_through(parts, folder)):
                return f"the pattern leads through a link to outside of {self._folders()}"
        return None

    def _folders(self) -> str:
        return " or ".join(map(str, self.roots)) or "no folder: this task reads no files"
