"""The text of a model's report and of its appendix, made once for each model."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document, Section
from lmp.report.facts import ModelFacts
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.sections import appendix, document


@functools.lru_cache(maxsize=8)
def report(facts: ModelFacts) -> Document:
    return document(facts)


@functools.lru_cache(maxsize=8)
def whole(facts: ModelFacts) -> Document:
    """The appendix."""
    return appendix(facts)


def text_of(facts: ModelFacts) -> str:
    return to_markdown(report(facts))


def appendix_of(facts: ModelFacts) -> str:
    return to_markdown(whole(facts))


def section_text(made: Document, title: str) -> str:
    """The section whose title begins so, with those inside of it."""
    found = next(s for s in _every(made.sections) if s.title.startswith(title))
    return to_markdown(Document("t", [], [found]))


def _every(sections: object) -> Iterator[Section]:
    for section in sections:  # type: ignore[attr-defined]
        yield section
        yield from _every(section.sections)


def component(facts: ModelFacts, role: str) -> Component:
    return next(c for c in components(facts) if c.role == role)


def component_text(facts: ModelFacts, role: str) -> str:
    """A component in the appendix, wrapped lines of a block joined again."""
    name = component(facts, role).name
    found = next(s for s in _every(whole(facts).sections) if s.title.startswith("4.") and s.title.split()[1] == name)
    return " ".join(to_markdown(Document("t", [], [found])).replace("#        ", "").split())
