"""What the review finds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lmp.records import Record

Rule = Literal["pointer", "placeholder", "table", "number", "diagram"]


class ReviewFinding(Record):
    """One thing that is wrong with a report."""

    rule: Rule
    line: int = Field(description="line of the report")
    message: str = Field(description="what is wrong, and what would be right where that is known")


class Review(Record):
    """What ``lmp review --json`` prints for one file."""

    file: str
    findings: list[ReviewFinding] = Field(default_factory=list)
    pointers: int = Field(description="places in code that were opened")
    numbers: int = Field(description="numbers that were held against the results")
    notes: list[str] = Field(default_factory=list, description="what was not held against anything, and why")
