"""The key components: what plays which part by what its code does, and what most files take."""

from __future__ import annotations

from lmp.report.document.parts import Inline, Line, Paragraph, Section, Table
from lmp.report.repository.pieces import joined, plural, pointer
from lmp.report.repository.study import Component, Study

LEAST_ROWS = 12
"""Where fewer parts are played, what most files take fills the table."""


def chosen(study: Study) -> list[Component]:
    found = list(study.components)
    known = {(each.definition.place.file, each.definition.qualname) for each in found}
    for each in study.most_imported:
        if len(found) >= LEAST_ROWS:
            break
        key = (each.definition.place.file, each.definition.qualname)
        if key not in known and each.definition.name not in {c.definition.name for c in found}:
            known.add(key)
            found.append(each)
    return found


def components(study: Study) -> Section:
    rows: list[list[Line]] = []
    for each in chosen(study):
        definition = each.definition
        rows.append([each.title, pointer(definition.place, definition.qualname), _responsibility(study, each)])
    words = (
        "A part is given by what the code does: what the call graph leads to, what is kept, filled and handed out."
        " Tests, vendored and legacy code are not looked at. Rows named “shared by most” are what most files import."
    )
    searched = "calls, tensors and queues of the repository's own code"
    return Section(
        "Key components (with code locations)",
        [Paragraph(words), Table(("Component", "Location", "Responsibility"), rows, searched)],
    )


def _responsibility(study: Study, component: Component) -> Line:
    told = study.told.insights(component.definition.name) if study.told else []
    if told:
        return told[0]
    parts: list[list[Inline]] = [["by its name alone"]] if component.by_name else []
    parts.append(study.what(component.definition))
    if component.importers and "." not in component.definition.qualname:
        parts.append(["imported by ", *plural(component.importers, "file")])
    children = (
        len(study.base.subclasses.get(component.definition.name, ())) if component.definition.kind == "class" else 0
    )
    if children:
        parts.append(plural(children, "subclass", "subclasses"))
    also = [d for d in component.also if d.name != component.definition.name][:2]
    if also:
        parts.append(["also ", *joined([pointer(d.place, d.name) for d in also])])
    return joined(parts, "; ")
