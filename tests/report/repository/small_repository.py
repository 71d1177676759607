"""Repositories written by a test, read and reported on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmp.codebase.facts import RepoFacts, Selection
from lmp.codebase.reading import read_repository
from lmp.records import Review
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document
from lmp.report.evaluating import Worth
from lmp.report.repository.document import document, implementation_document
from lmp.report.review import Roots, review_text


@dataclass(frozen=True)
class Reported:
    facts: RepoFacts
    document: Document
    text: str
    review: Review

    def section(self, title: str) -> str:
        """The text between a heading and the next of the same or a higher level."""
        lines = self.text.split("\n")
        start = next(at for at, line in enumerate(lines) if line.lstrip("#") == f" {title}")
        level = len(lines[start]) - len(lines[start].lstrip("#"))
        fenced, end = False, len(lines)
        for at, line in enumerate(lines[start + 1 :], start + 1):
            fenced ^= line.startswith("```")
            marks = len(line) - len(line.lstrip("#"))
            if not fenced and 0 < marks <= level and line[marks : marks + 1] == " ":
                end = at
                break
        return "\n".join(lines[start:end])


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def read(root: Path) -> RepoFacts:
    return read_repository(root, Selection(), lambda done, of, name: None)


def reported(root: Path) -> Reported:
    """The report with its review: what `lmp report` would refuse is among the findings."""
    return of_facts(read(root), root)


def implementation(root: Path) -> Reported:
    """The same in the template of implementations."""
    facts = read(root)
    return _reviewed(facts, implementation_document(facts, root), root)


def of_facts(facts: RepoFacts, root: Path) -> Reported:
    """The same of what was read already."""
    return _reviewed(facts, document(facts, root), root)


def _reviewed(facts: RepoFacts, made: Document, root: Path) -> Reported:
    text = to_markdown(made)
    ledger = Ledger(
        kind="repository",
        subject=facts.root_name,
        folder="given",
        named=dict(facts.counts),
        numbers=list(entries(made)),
    )
    review = review_text("report.md", text, Roots(folders=(root,)), ledger, Worth(None, {}, facts.counts))
    return Reported(facts, made, text, review)


def line_of(root: Path, file: str, text: str) -> int:
    """The only line of a file that has a text: where a pointer must lead."""
    found = [n for n, line in enumerate((root / file).read_text().split("\n"), 1) if text in line]
    assert len(found) == 1, f"{text!r} stands at {found} of {file}"
    return found[0]
