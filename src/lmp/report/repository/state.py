"""What is kept of a repository between two reports: the bytes of its files by hash, their signs, and the cited lines.

With it `--update` reads again only what changed, and finds a cited line where it stands now.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from lmp.records import Record
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.signs import Signs
from lmp.report.review.places import cited
from lmp.report.review.reading import read_markdown
from lmp.store.files import write_whole

VERSION = 6
"""Of the signs: a state of another version is not used."""


class RepoState(Record):
    """Kept beside the report's assets."""

    version: int = VERSION
    files: dict[str, str] = Field(description="file -> sha256 of its bytes")
    signs: dict[str, Signs] = Field(description="sha256 -> what the file says of itself")
    lines: dict[str, str] = Field(description="place that the report cites -> the line's text")

    def save(self, path: Path) -> None:
        """Written whole or not at all. Raises OSError."""
        write_whole(path, self.model_dump_json(exclude_defaults=True) + "\n")


def load(path: Path) -> RepoState | None:
    """None where there is none, or one that this version cannot use: everything is read again then."""
    try:
        state = RepoState.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return state if state.version == VERSION else None


def state_of(base: CodeBase, report: str) -> RepoState:
    """After a report on ``base``, whose text is ``report``."""
    files = {file.file: file.sha256 for file in base.facts.files}
    lines: dict[str, str] = {}
    for pointer in cited(read_markdown(report)):
        text = base.lines(pointer.path) if pointer.path in files else []
        if 0 < pointer.first <= len(text):
            lines[f"{pointer.path}:{pointer.first}"] = text[pointer.first - 1].strip()
    return RepoState(files=files, signs={file.sha256: base.signs[file.file] for file in base.code}, lines=lines)


@dataclass(frozen=True)
class Changes:
    """Files since the last report, in the order of their names."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: int

    def __str__(self) -> str:
        named = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        parts = [f"{len(files)} {what}" for what, files in named]
        return f"files since the last report: {', '.join(parts)}, {self.unchanged} unchanged"


def changes(state: RepoState, base: CodeBase) -> Changes:
    now = {file.file: file.sha256 for file in base.facts.files}
    both = sorted(now.keys() & state.files.keys())
    changed = tuple(file for file in both if now[file] != state.files[file])
    return Changes(
        tuple(sorted(now.keys() - state.files.keys())),
        tuple(sorted(state.files.keys() - now.keys())),
        changed,
        len(both) - len(changed),
    )
