"""The guard: an agent may read files below the roots with Read, Grep and Glob, and nothing else.

The CLI's permissions enforce the same. The guard is asked first, and each of the two is sufficient.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

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

_UP = re.compile(r"(?:^|[/\\{,])\.\.(?:$|[/\\},])")


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
        return self._path_refusal(path, cwd) or (self._pattern_refusal(pattern) if pattern is not None else None)

    def _path_refusal(self, path: object, cwd: str) -> str | None:
        if path is None:
            return f"say where: give a path below {self._folders()}"
        if not isinstance(path, str) or not path or "\0" in path:
            return f"the path must be the text of a path below {self._folders()}"
        try:
            real = Path(cwd, path).resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or an invalid file name
            return f"this path cannot be resolved; give one below {self._folders()}"
        if any(real.is_relative_to(root) for root in self.roots):
            return None
        return f"it is outside of what may be read here: only files below {self._folders()}"

    def _pattern_refusal(self, pattern: object) -> str | None:
        if not isinstance(pattern, str):
            return "the pattern must be text"
        if os.path.isabs(pattern.lstrip("!{")) or pattern.startswith("~") or ",/" in pattern or _UP.search(pattern):
            return "the pattern must be relative and stay below the path: no leading `/` or `~`, no `..`"
        return None

    def _folders(self) -> str:
        return " or ".join(map(str, self.roots)) or "no folder: this task reads no files"
