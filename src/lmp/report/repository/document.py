"""The repository template, filled: every heading and column as the template has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lmp.codebase.facts import RepoFacts
from lmp.codebase.parts import NamedParts
from lmp.codebase.texts import printable
from lmp.report.document.parts import Document
from lmp.report.document.quoting import quoted_code
from lmp.report.document.told import Told
from lmp.report.repository.appendix import appendices
from lmp.report.repository.checklist import checklist
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.components import components
from lmp.report.repository.consistent import settled
from lmp.report.repository.deep_dive import deep_dive
from lmp.report.repository.extension import extension
from lmp.report.repository.header import address, commit
from lmp.report.repository.implementation import implementation
from lmp.report.repository.modules import modules
from lmp.report.repository.named import with_parts
from lmp.report.repository.of_run import of_run
from lmp.report.repository.overview import architecture, problem, tldr
from lmp.report.repository.pieces import folder_name, is_plain
from lmp.report.repository.pitfalls import pitfalls, questions
from lmp.report.repository.signs import Signs
from lmp.report.repository.study import Study
from lmp.report.repository.workflows import workflows


def document(
    facts: RepoFacts,
    root: Path,
    told: Told | None = None,
    known: Mapping[str, Signs] | None = None,
    named: NamedParts | None = None,
) -> Document:
    """The report on the repository in ``root``, which is read once more for what the facts do not have.

    ``known`` are signs of files that were read before, by the sha256 of their bytes. Nothing of the repository is run.
    """
    return of_study(study(facts, root, told, known, named))


def implementation_document(
    facts: RepoFacts,
    root: Path,
    told: Told | None = None,
    known: Mapping[str, Signs] | None = None,
    named: NamedParts | None = None,
) -> Document:
    """The same code base in the template of implementations."""
    found = study(facts, root, told, known, named)
    return settled(with_parts(implementation(found), found), found)


_LAST: list[Study] = []
"""The last repository that was studied: a report that an agent tells more of is made twice of the same. Behind it the
same with the parts that a reader named last."""


def study(
    facts: RepoFacts,
    root: Path,
    told: Told | None = None,
    known: Mapping[str, Signs] | None = None,
    named: NamedParts | None = None,
) -> Study:
    """What the report is made from, read once for the same facts."""
    if not (_LAST and _LAST[0].base.facts is facts and _LAST[0].clone == root):
        _LAST[:] = [Study(CodeBase(facts, root, known or {}), root)]
    if named is not None and _LAST[-1].named != named:
        _LAST[1:] = [Study(_LAST[0].base, root, named=named, plain=_LAST[0])]
    found = _LAST[-1] if named is not None else _LAST[0]
    found.told = told
    return found


def of_study(found: Study) -> Document:
    """The same for what was studied already."""
    base = found.base
    sections = [
        tldr(found),
        problem(found),
        architecture(found),
        modules(found),
        workflows(found),
        components(found),
        deep_dive(found),
        extension(found),
        pitfalls(found),
        questions(found),
    ]
    name = base.facts.root_name
    made = Document(
        title=["Repo analysis: ", name if is_plain(name) else folder_name(name)],
        head=[
            ("Repo", address(base)),
            ("Local clone", quoted_code(printable(str(found.clone)))),
            ("Commit", commit(base)),
            ("LLM-related", found.llm.line()),
        ],
        sections=[*sections, *appendices(found), *of_run(found)],
    )
    made = settled(with_parts(made, found), found)
    body, after = made.sections[: len(sections)], made.sections[len(sections) :]
    return replace(made, sections=[*body, checklist(found, body), *after])
