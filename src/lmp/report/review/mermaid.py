"""Flowcharts of Mermaid: what its own parser would stumble over. Its other diagrams are not looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_HEADER = re.compile(r"(?:flowchart(?:-elk)?|graph)(?:\s+(?:TB|TD|BT|LR|RL))?\s*;?")
_OTHER_KINDS = re.compile(
    r"(?:sequenceDiagram|classDiagram(?:-v2)?|stateDiagram(?:-v2)?|erDiagram|journey|gantt|pie|quadrantChart|gitGraph"
    r"|requirementDiagram|C4\w+|mindmap|timeline|zenuml|kanban|info|(?:sankey|xychart|block|packet|architecture|radar"
    r"|treemap)(?:-beta)?)\b.*"
)
_SETTINGS = re.compile(r"%%.*|---")

_PLAIN = r'(?:<br\s*/?>|[^"()\[\]{}|<>])*'
_TEXT = rf'\s*(?:"[^"]*"|{_PLAIN})\s*'
_SHAPES = (
    (r"\(\(\(", r"\)\)\)"), (r"\(\(", r"\)\)"), (r"\(\[", r"\]\)"), (r"\[\[", r"\]\]"), (r"\[\(", r"\)\]"),
    (r"\[/", r"[/\\]\]"), (r"\[\\", r"[/\\]\]"), (r"\{\{", r"\}\}"), (r"\[", r"\]"), (r"\(", r"\)"), (r"\{", r"\}"),
    (r">", r"\]"), (r"@\{", r"\}"),
)  # fmt: skip
_LABEL = "|".join(f"{opening}{_TEXT}{closing}" for opening, closing in _SHAPES[:-1]) + r"|@\{[^{}]*\}"
_NODE = re.compile(rf"\s*(?P<key>\w(?:\w|[-.](?=\w))*)(?P<label>{_LABEL})?(?::::\w+)?")
_LINK = re.compile(
    rf"\s*(?:<|(?<=\s)[ox])?(?:(?:-{{2,}}[->xo]|={{2,}}[=>xo]|-\.+-[>xo]?|~{{3,}})(?:\s*\|{_TEXT}\|)?"
    r'|(?:--|==|-\.)\s+(?:"[^"]*"|[^"|()\[\]{}]*?)\s+(?:-{2,}[->xo]|={2,}[=>xo]|\.+-[>xo]?))'
)
_AND = re.compile(r"\s*&")
_GROUP = re.compile(rf'subgraph\s+(?:"[^"]*"|(?P<key>[\w.-]+)(?:\s*\[{_TEXT}\])?|{_PLAIN})')
_OTHER = re.compile(r"(?:classDef|class|style|linkStyle|direction|click|accTitle|accDescr)\b.*|%%.*")


@dataclass
class _Graph:
    labelled: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    """Node -> the line that it first stands in an edge."""


def wrong_in(lines: Sequence[str], strict: bool) -> Iterator[tuple[int, str]]:
    """Index of a line, and what is wrong with it.

    ``strict`` is for graphs that lmp wrote: there every label is quoted, and every node has one.
    """
    start = next((n for n, line in enumerate(lines) if line.strip() and not _SETTINGS.fullmatch(line.strip())), 0)
    first = lines[start].strip()
    if _OTHER_KINDS.fullmatch(first) and not strict:
        return
    if not _HEADER.fullmatch(first):
        if not _settings_end(lines):  # what stands before a graph between two lines of --- is not known here
            yield start, "a Mermaid graph begins with flowchart TB, or another direction"
        return
    graph, depth = _Graph(), 0
    for offset, statement in _statements(lines, start + 1):
        if _GROUP.fullmatch(statement):
            depth += 1
            graph.labelled.add(_group_key(statement))
        elif statement == "end":
            depth -= 1
        elif not _OTHER.fullmatch(statement) and not _chain(statement, offset, graph, strict):
            yield offset, f"not a node with a label, an edge or a group: {statement[:60]}"
    if depth:
        yield len(lines) - 1, "a subgraph of the Mermaid graph has no end, or an end no subgraph"
    for key, offset in graph.used.items() if strict else ():
        if key not in graph.labelled:
            yield offset, f"the edge leads to {key}, which is no node of the graph"


def _settings_end(lines: Sequence[str]) -> bool:
    return lines[0].strip() == "---" and any(line.strip() == "---" for line in lines[1:])


def _statements(lines: Sequence[str], start: int) -> Iterator[tuple[int, str]]:
    """A line, or several with a quoted label that goes over their ends."""
    pending, first = "", start
    for offset in range(start, len(lines)):
        first = first if pending else offset
        pending = f"{pending} {lines[offset].strip()}".strip()
        if pending.count('"') % 2 == 0 or offset == len(lines) - 1:
            parts = [pending] if '"' in pending else pending.split(";")
            yield from ((first, part.strip().rstrip(";").strip()) for part in parts if part.strip().strip(";"))
            pending = ""


def _chain(statement: str, offset: int, graph: _Graph, strict: bool) -> bool:
    """Whether it is nodes with arrows between them; they are taken into the graph."""
    place, nodes, edges = 0, [], 0
    while True:
        node = _NODE.match(statement, place)
        if node is None or (strict and node["label"] and '"' not in node["label"]):
            return False
        nodes.append(node)
        place = node.end()
        if place == len(statement.rstrip()):
            break
        found = _AND.match(statement, place) or _LINK.match(statement, place)
        if found is None:
            return False
        edges += 1
        place = found.end()
    graph.labelled |= {node["key"] for node in nodes if node["label"] or not edges}
    if edges:
        for node in nodes:
            graph.used.setdefault(node["key"], offset)
    return True


def _group_key(statement: str) -> str:
    found = _GROUP.fullmatch(statement)
    return (found["key"] if found else None) or ""
