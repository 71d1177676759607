"""What is wrong with a post, by file and line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmp.errors import InvalidAnalysis, UsageError


@dataclass(frozen=True, order=True)
class Problem:
    """One defect. ``file`` is relative to the folder above ``posts``."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Fault(InvalidAnalysis):
    """A reference that cannot be evaluated. The caller knows its line."""


class NotTaken(Fault):
    """A capture that is not there."""


class PostRefused(InvalidAnalysis):
    """A post that cannot be built or does not pass its check. ``problems`` is the complete list."""

    def __init__(self, problems: list[Problem]) -> None:
        first = "; ".join(str(problem) for problem in problems[:1])
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{first}{more}\ncorrect the post, then run `lmp lab build` and `lmp lab check`")
        self.problems = problems


class BrokenFile(UsageError):
    """lab.toml or sources.toml cannot be read; the message names file and line."""


def broken(file: Path, line: int, what: str, then: str = "docs/lab.md lists the keys") -> BrokenFile:
    return BrokenFile(f"{file}:{line}: {what}\n{then}")
