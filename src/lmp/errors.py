"""Every error that lmp raises on purpose, and the exit code each one ends a command with.

    LmpError
    ├── UsageError                 2    an option, a class or a value that cannot be used as given
    │   ├── FormulaError                a formula that cannot be read or evaluated
    │   │   ├── FormulaSyntaxError      .. with the character at which reading stopped
    │   │   ├── UnknownVariable         .. a name that has no value
    │   │   └── EvaluationError         .. division by zero, a fraction where an integer is due
    │   ├── StorageError                a folder or disk that cannot be written
    │   └── ClusterUnavailable          a scheduler that is not there, or has no worker that can be used
    ├── NotFound                   3    source or class not found; SCRATCHPAD.md says what was looked for
    │   ├── TreeChanged                 a vendored tree that is not what vendor.lock says it is
    │   └── Missing                     a class that is there, but of which there is no analysis yet
    ├── InvalidAnalysis            4    a result that does not parse, does not validate, or is of another schema
    │   ├── UncountedOperator           an operator without a rule
    │   ├── TraceFailed                 the module could not be executed or traced
    │   │   ├── InconsistentDefault     .. a model's default config contradicts itself
    │   │   └── MissingDependency       .. a package that the model needs is not installed
    │   ├── VerificationFailed          the formulas differ from execution
    │   ├── Refused                     a hand-in that the gate refused; .. with the findings
    │   └── ReportRefused               a report that its review found something in; .. with the findings
    ├── AgentUnavailable           5    no credentials, no CLI, service refused
    │   └── CapReached                  turns, budget or time spent before a hand-in was accepted
    └── Interrupted              130     Ctrl-C during long work; says what goes on from there

A message is one or two lines and says what to do next. Anything that is not an LmpError is a bug: it keeps its
traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from lmp.records import GateFinding, ReviewFinding


class LmpError(Exception):
    """Base of all errors that are answered with a message and an exit code instead of a traceback."""

    exit_code = 1
    place: tuple[str, int] | None = None
    """The file and line of the sources that it is about, where there is one."""

    def at(self, file: str, line: int) -> Self:
        """This error, about that line."""
        self.place = (file, line)
        return self


class UsageError(LmpError):
    """The request cannot be carried out as it was made."""

    exit_code = 2


class FormulaError(UsageError):
    """A formula cannot be read or evaluated."""


class FormulaSyntaxError(FormulaError):
    """A formula is not of the grammar. ``position`` is the 0-based index of the offending character in ``text``."""

    def __init__(self, message: str, text: str, position: int) -> None:
        self.text, self.position = text, position
        # A window of the text with a caret under the character: long formulas stay readable on one terminal line.
        start = max(0, position - 40)
        window = text[start : position + 30].replace("\n", " ")
        caret = " " * (position - start) + "^"
        super().__init__(f"{message} at character {position + 1}\n  {window}\n  {caret}")


class UnknownVariable(FormulaError):
    """A formula uses a name that has no value."""


class EvaluationError(FormulaError):
    """A formula has no exact integer value at this point."""


class StorageError(UsageError):
    """A file or folder cannot be written."""


class ClusterUnavailable(UsageError):
    """A cluster's scheduler cannot be reached, or has no worker that gives what this machine would."""


@dataclass(frozen=True)
class Search:
    """One place that was looked at for a class: what SCRATCHPAD.md lists."""

    looked_for: str
    where: str
    found: str


@dataclass
class NotFound(LmpError):
    """The source or the class was not found. ``searched`` says what was looked for, where, and what was there."""

    message: str
    searched: list[Search] = field(default_factory=list)

    exit_code = 3

    def __str__(self) -> str:
        return self.message


class TreeChanged(NotFound):
    """A vendored tree differs from its lock."""


@dataclass
class Missing(NotFound):
    """There is no analysis yet of ``classes``, which are referred to: they have to be analysed first."""

    classes: tuple[str, ...] = ()


class InvalidAnalysis(LmpError):
    """A stored or handed-in analysis is not valid."""

    exit_code = 4


class UncountedOperator(InvalidAnalysis):
    """Execution met an operator that has no rule."""


class TraceFailed(InvalidAnalysis):
    """The module could not be built or executed."""


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
    """What was handed in was refused for the last time. ``findings`` say what is wrong with it."""

    def __init__(self, message: str, findings: Sequence[GateFinding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class ReportRefused(InvalidAnalysis):
    """A report was not written. ``findings`` say what its review found, by the lines of what would be ``file``."""

    def __init__(self, message: str, file: str, findings: Sequence[ReviewFinding] = ()) -> None:
        super().__init__(message)
        self.file, self.findings = file, tuple(findings)


class AgentUnavailable(LmpError):
    """The agent engine cannot run."""

    exit_code = 5


class CapReached(AgentUnavailable):
    """A cap was reached: turns, rounds, money or time."""


class Interrupted(LmpError):
    """Long work was interrupted, and can be gone on with."""

    exit_code = 130
