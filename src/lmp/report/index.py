"""The page that leads to every report: what is in the results folder, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lmp.records import DEFAULT_CONFIG, ModelAnalysis, ModuleAnalysis
from lmp.report.document.parts import Bullets, Code, Document, Line, Link, Paragraph, Section, Table
from lmp.report.folder import REPOSITORIES


@dataclass(frozen=True)
class Stored:
    """One result in the store that gets a report of its own."""

    analysis: ModelAnalysis | ModuleAnalysis
    file: Path

    @property
    def name(self) -> str:
        config = self.analysis.config.name
        return self.analysis.class_name + ("" if config == DEFAULT_CONFIG.name else f"@{config}")


@dataclass
class Listed:
    """What became of one result: a row of the index."""

    stored: Stored
    report: str | None = None
    """File of the report, relative to the reports folder."""
    why_not: str = ""
    changed: bool = False
    notes: tuple[str, ...] = ()
    """What its reader should know now."""


@dataclass(frozen=True)
class Found:
    """What is in a results folder."""

    roots: tuple[Stored, ...]
    """Models, and modules that are part of none of them."""
    covered: Mapping[str, str] = field(default_factory=dict)
    """Result that has no report of its own -> the model in whose report it stands."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Folder -> what is wrong with it."""


def index(folder: Path, listed: list[Listed], found: Found) -> Document:
    """The page that leads to every report."""
    columns = ("Report", "Class", "Config", "Engine", "Status")
    rows = [_row(one, folder) for one in listed]
    sections = [
        Section("Models and modules", [Table(columns, rows, "the results folder")]),
        Section("Code bases", [Bullets(list(_repositories(folder)), f"{REPOSITORIES}/")]),
        Section("Classes that stand in another report", [_covered(found, listed)]),
    ]
    if found.unreadable:
        rows = [[Code(name), why] for name, why in found.unreadable.items()]
        sections.append(Section("Results that cannot be read", [Table(("Folder", "Why"), rows)]))
    opening = [Paragraph(["Made by ", Code("lmp report --all"), ". What could not be reported on says why."])]
    return Document("Reports", (), sections, opening=opening)


def _row(one: Listed, folder: Path) -> list[Line]:
    analysis = one.stored.analysis
    link: Line = "not made"
    if one.report is not None:
        page = one.report.removesuffix(".md") + ".html"
        link = [Link("report", one.report)]
        if (folder / page).is_file():
            link = [*link, " · ", Link("page", page)]
    status = analysis.verification.status if not one.why_not else f"{analysis.verification.status}; {one.why_not}"
    return [link, Code(analysis.class_name), analysis.config.name, analysis.engine, status]


def _repositories(folder: Path) -> Iterator[Line]:
    for file in sorted((folder / REPOSITORIES).glob("*-analysis.md")):
        yield [Link(file.name.removesuffix("-analysis.md"), f"{REPOSITORIES}/{file.name}")]


def _covered(found: Found, listed: list[Listed]) -> Table:
    reports = {one.stored.name: one.report for one in listed}
    rows: list[list[Line]] = []
    for name, model in found.covered.items():
        report = reports.get(model)
        rows.append([Code(name), Link(model, report) if report is not None else Code(model)])
    return Table(("Class", "Stands in"), rows, "the results folder")
