"""All errors that lmp raises on purpose, with the exit codes of commands.

    LmpError
    ├── UsageError                 2    an option, a class or a value that cannot be used as given
    │   ├── FormulaError                a formula that cannot be read or evaluated
    │   │   ├── FormulaSyntaxError      .. with the position of the first invalid character
    │   │   ├── UnknownVariable         .. a name without a value
    │   │   └── EvaluationError         .. division by zero, a fraction in place of an integer
    │   ├── StorageError                a folder or disk that cannot be written
    │   ├── BrokenPostFile              lab.toml or sources.toml of a post cannot be read
    │   ├── UnsupportedDtype            a --dtype in which nothing can be executed
    │   └── ClusterUnavailable          a missing scheduler, or one without usable workers
    ├── NotFound                   3    source or class not found; SCRATCHPAD.md lists the searches
    │   ├── TreeChanged                 a vendored tree that differs from vendor.lock
    │   ├── EngineMissing               torch or transformers is needed and not installed
    │   └── Missing                     an existing class without an analysis
    ├── InvalidAnalysis            4    a result that does not parse, does not validate, or has another schema
    │   ├── UncountedOperator           an operator without a rule
    │   ├── TraceFailed                 the module could not be executed or traced
    │   │   ├── Indistinct              .. calls that differ in cost and in no variable
    │   │   ├── InconsistentDefault     .. a model's default config contradicts itself
    │   │   └── MissingDependency       .. a package that the model needs is not installed
    │   ├── VerificationFailed          the formulas differ from execution
    │   ├── Refused                     a submission that the gate refused, with the findings
    │   ├── ReportRefused               a report with findings of its review
    │   ├── PostRefused                 a post with references, captures or sources that do not hold
    │   └── PostFault                   one reference, capture or value of a post that cannot be used
    │       └── NotTaken                .. a capture that was not taken
    ├── AgentUnavailable           5    no credentials, no CLI, service refused
    │   └── CapReached                  turns, budget or time spent before a submission was accepted
    └── Interrupted              130    Ctrl-C during long work; states how to continue

A message has one or two lines and states the next step. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from lmp.records import GateFinding, ReviewFinding


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its class if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def did_you_mean(close: Sequence[str], otherwise: str) -> str:
    """The next step after a miss: the nearest names, or ``otherwise`` if there are none."""
    return f"did you mean {' or '.join(close)}?" if close else otherwise


@dataclass(frozen=True, order=True)
class PostProblem:
    """One defect of a post. ``file`` is relative to the folder above ``posts``."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class LmpError(Exception):
    """Base of all errors that end a command with a message and an exit code instead of a traceback."""

    exit_code = 1
    place: tuple[str, int] | None = None
    """File and line of the sources that the error is about, if there is one."""

    def at(self, file: str, line: int) -> Self:
        """Set the place to this line and return the error."""
        self.place = (file, line)
        return self


class UsageError(LmpError):
    """The request cannot be carried out as given."""

    exit_code = 2


class FormulaError(UsageError):
    """A formula cannot be read or evaluated."""


class FormulaSyntaxError(FormulaError):
    """A formula violates the grammar. ``position`` is the 0-based index of the offending character in ``text``."""

    def __init__(self, message: str, text: str, position: int) -> None:
        self.text, self.position = text, position
        # A window of the text with a caret under the character keeps long formulas readable on one terminal line.
        start = max(0, position - 40)
        window = text[start : position + 30].replace("\n", " ")
        caret = " " * (position - start) + "^"
        super().__init__(f"{message} at character {position + 1}\n  {window}\n  {caret}")


class UnknownVariable(FormulaError):
    """A formula uses a name without a value."""


class EvaluationError(FormulaError):
    """A formula has no exact integer value at this point."""


class StorageError(UsageError):
    """A file or folder cannot be written."""


class BrokenPostFile(UsageError):
    """A file of a post cannot be read; the message names file and line."""


class UnsupportedDtype(UsageError):
    """The requested dtype is no floating dtype of torch."""


class ClusterUnavailable(UsageError):
    """The scheduler of a cluster cannot be reached, or has no worker with the same results as this machine."""


@dataclass(frozen=True)
class Search:
    """One searched place for a class, as listed in SCRATCHPAD.md."""

    looked_for: str
    where: str
    found: str


@dataclass
class NotFound(LmpError):
    """The source or the class was not found. ``searched`` lists the searches: object, place and result."""

    message: str
    searched: list[Search] = field(default_factory=list)

    exit_code = 3

    def __str__(self) -> str:
        return self.message


class TreeChanged(NotFound):
    """A vendored tree differs from its lock."""


class EngineMissing(NotFound):
    """The command needs torch or transformers, and they are not installed."""


@dataclass
class Missing(NotFound):
    """The referenced ``classes`` have no analysis yet: they must be analysed first."""

    classes: tuple[str, ...] = ()


class InvalidAnalysis(LmpError):
    """A stored or submitted analysis is not valid."""

    exit_code = 4


class UncountedOperator(InvalidAnalysis):
    """Execution met an operator that has no rule."""


class TraceFailed(InvalidAnalysis):
    """The module could not be built or executed."""


class Indistinct(TraceFailed):
    """Calls of a class cost differently although all variables are equal, so no formula explains them."""


class InconsistentDefault(TraceFailed):
    """A model does not run with the default values of its own config."""


class MissingDependency(TraceFailed):
    """A model needs a package that is not installed. ``package`` is its name."""

    def __init__(self, message: str, package: str) -> None:
        super().__init__(message)
        self.package = package


class VerificationFailed(InvalidAnalysis):
    """Formulas and execution differ."""


class Refused(InvalidAnalysis):
    """A submission was refused for the last time. ``findings`` state its defects."""

    def __init__(self, message: str, findings: Sequence[GateFinding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class ReportRefused(InvalidAnalysis):
    """A report was not written. ``findings`` are those of its review, by line of the text meant for ``file``."""

    def __init__(self, message: str, file: str, findings: Sequence[ReviewFinding] = ()) -> None:
        super().__init__(message)
        self.file, self.findings = file, tuple(findings)


class PostRefused(InvalidAnalysis):
    """A post cannot be built, or does not pass its check. ``problems`` is the complete list."""

    def __init__(self, problems: Sequence[PostProblem]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}\ncorrect the post, then run `lmp lab build` and `lmp lab check`")
        self.problems = tuple(problems)


class PostFault(InvalidAnalysis):
    """A reference, a capture or a value of a post cannot be used. The caller knows the line."""


class NotTaken(PostFault):
    """A capture is not there."""


class AgentUnavailable(LmpError):
    """The agent engine cannot run.

    ``resume`` is the command that continues the work, shown at the end of the message; None if there is none.
    """

    exit_code = 5

    def __init__(self, message: str, resume: str | None = None) -> None:
        super().__init__(message)
        self.resume = resume

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.resume is None else f"{message} `{self.resume}`"


class CapReached(AgentUnavailable):
    """A cap was reached: turns, rounds, money or time."""


class Interrupted(LmpError):
    """Long work was interrupted and can be continued."""

    exit_code = 130
