"""How a report is made, whatever it is of: its document, with or without what an agent tells, its text, its review."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from lmp.records import Narration, Narrative, Review
from lmp.report.document.amending import amended
from lmp.report.document.amounts import Number
from lmp.report.document.parts import Bullets, Document, Section
from lmp.report.document.told import Asked, Told, numbers_of, written_by
from lmp.report.folder import ASSETS, Report, narrative_name
from lmp.report.review import Roots
from lmp.report.review.places import cited
from lmp.report.review.reading import read_markdown


@dataclass(frozen=True, eq=False)
class Making:
    """The steps to one report."""

    name: str
    """Of the report, as it is shown."""
    document: Callable[[Told | None], Document]
    report: Callable[[Document], Report]
    review: Callable[[Report], Review]
    roots: Roots
    """Where its places are looked for."""
    packages: Mapping[str, Path] = field(default_factory=dict)
    """First part of a place -> the folder that an agent may read where the report names such a place."""
    appendix: Callable[[], Document] | None = None
    """What is written beside the report: a narrative may state its numbers, too."""
    summary: Callable[[Document], list[str]] | None = None
    """The lines that the command prints of a written report; None: it has another summary."""

    @cached_property
    def without(self) -> Document:
        """The document without a narrative."""
        return self.document(None)

    @cached_property
    def plain(self) -> Report:
        """The report without a narrative."""
        return self.report(self.without)

    @cached_property
    def plain_review(self) -> Review:
        """What the review says of it."""
        return self.review(self.plain)

    @cached_property
    def numbers(self) -> Mapping[str, Number]:
        """The numbers that a narrative may state."""
        beside = numbers_of(self.appendix()) if self.appendix is not None else {}
        return {**beside, **numbers_of(self.without)}

    @cached_property
    def asked(self) -> Asked:
        """What this report has a place for."""
        told = Told(Narrative(tldr=["-"]))
        self._told(told)
        return told.asked

    def with_(self, narrative: Narrative) -> Report:
        """The report with a narrative, whoever wrote it."""
        return self.report(self._told(Told(narrative, self.numbers)))

    def narrated(self, narration: Narration) -> Report:
        """The report as it is written with a narrative: it says who wrote it, and the narrative lies beside it."""
        document = self._told(Told(narration.narrative, self.numbers))
        made = self.report(replace(document, head=(*document.head, ("Narrative", written_by(narration)))))
        text = narration.model_dump_json(indent=1, exclude_none=True) + "\n"
        return replace(made, assets={**made.assets, narrative_name(made.name): text.encode()})

    def _told(self, told: Told) -> Document:
        """The document with what is told: also in sections that do not ask for it themselves."""
        document = self.document(told)
        document = replace(document, sections=[_further(section, told) for section in document.sections])
        return amended(document, told)

    @cached_property
    def readable(self) -> tuple[Path, ...]:
        """What an agent may read to say more: the packages that the report points into, or the code base."""
        named = {pointer.path.partition("/")[0] for pointer in cited(read_markdown(self.plain.text))}
        packages = [folder for label, folder in self.packages.items() if label in named]
        return tuple(dict.fromkeys([*packages, *self.roots.folders]))

    def narrative_file(self, folder: Path) -> Path:
        """Where a narrative of this report is kept below the reports folder."""
        return folder / ASSETS / narrative_name(self.plain.name)


def _further(section: Section, told: Told) -> Section:
    """The section with what is told beyond it, unless it, or one inside of it, has its own place for that."""
    if any(title in told.asked.deep_dive for title in _titles(section)):
        return section
    items = told.deep_dive(section.title)
    return replace(section, blocks=[*section.blocks, Bullets(items)]) if items else section


def _titles(section: Section) -> Iterator[str]:
    yield section.title
    for inner in section.sections:
        yield from _titles(inner)
