"""A document as GitHub's markdown. Whatever is not markup here is escaped, so that no name or code can become any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from lmp.report.document.amounts import Number
from lmp.report.document.parts import (
    Block,
    Bold,
    Bullets,
    Code,
    Document,
    Fence,
    Image,
    Inline,
    Line,
    Link,
    Mermaid,
    Node,
    Paragraph,
    Pointer,
    Section,
    Table,
)

NONE_FOUND = "none found"
_MARKUP = re.compile(r"[\\`*\[\]<>|$~]|&(?=#?\w+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_OPENING = re.compile(r"^(\s*\d*)([#+=-]|(?<=\d)[.)])")
"""What makes a line of text a heading, a list or a rule."""
_RUNS = re.compile(r"`+")
_BLANK = re.compile(r"\s+")


def to_markdown(document: Document) -> str:
    """The whole report, with one line end at its end."""
    lines = [f"# {_line(document.title)}", ""]
    for name, content in document.head:
        lines.append(f"**{name}:** {_line(content)}  ")
    lines.append("")
    lines += _blocks(document.opening, document.dense)
    for section in document.sections:
        if document.rules:
            lines += ["---", ""]
        lines += _section(section, 2, document.dense)
    if document.foot:
        lines += ["---", "", f"*{_text(document.foot)}*", ""]
    return "\n".join(_without_double_blanks(lines)).rstrip() + "\n"


def none_found(searched: str) -> str:
    """What stands where there is nothing; it always says where was looked."""
    return f"{NONE_FOUND} (searched: {searched or 'the sources of this report'})"


# --- blocks ----------------------------------------------------------------------------------------------------------


def _section(section: Section, level: int, dense: bool) -> Iterator[str]:
    yield f"{'#' * level} {_text(section.title)}"
    if not dense:
        yield ""
    yield from _blocks(section.blocks, dense)
    for inner in section.sections:
        yield from _section(inner, level + 1, dense)


def _blocks(blocks: Sequence[Block], dense: bool) -> Iterator[str]:
    for block, following in zip(blocks, [*blocks, None][1:], strict=True):
        yield from _block(block)
        if not (dense and _stands_apart(block, following)):
            yield ""


def _stands_apart(block: Block, following: Block | None) -> bool:
    """Whether two blocks are two without a blank line between them."""
    introduced = isinstance(block, Paragraph) and isinstance(following, (Bullets, Fence))
    return introduced or (isinstance(block, Fence) and following is not None)


def _block(block: Block) -> list[str]:
    match block:
        case Paragraph(content):
            return [_paragraph(content)]
        case Bullets(items, searched):
            shown: Sequence[Line] = items or [none_found(searched)]
            return [f"- {_paragraph(item)}" for item in shown]
        case Table():
            return _table(block)
        case Fence(content, language):
            return _fence("".join(map(plain, _pieces(content))), language)
        case Mermaid():
            return _fence("\n".join(_mermaid(block)), "mermaid")
        case Image(file, alt):
            return [f"![{_text(alt)}]({_target(file)})"]


def _table(table: Table) -> list[str]:
    rule = ["---:" if index in table.right else "---" for index in range(len(table.columns))]
    rows: Sequence[Sequence[Line]] = table.rows
    if not rows:
        rows = [[none_found(table.searched), *([""] * (len(table.columns) - 1))]]
    return [_row(table.columns), "|" + "|".join(f" {cell} " for cell in rule) + "|", *map(_row, rows)]


def _row(cells: Sequence[Line]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(content: Line) -> str:
    return "".join(map(_in_cell, _pieces(content))).strip()


def _in_cell(piece: Inline) -> str:
    # A table ends a cell at any bar, also inside of code; in text bars are escaped anyway.
    return _inline(piece).replace("|", "\\|") if isinstance(piece, (Code, Pointer)) else _inline(piece)


def _fence(text: str, language: str) -> list[str]:
    longest = max((len(run) for run in _RUNS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    return [f"{marks}{language}", *(line.rstrip() for line in text.strip("\n").split("\n")), marks]


# --- graphs ----------------------------------------------------------------------------------------------------------


def _mermaid(graph: Mermaid) -> Iterator[str]:
    yield f"flowchart {graph.direction}"
    keys = {node.key: f"n{index}" for index, node in enumerate(graph.nodes)}
    groups: dict[str | None, list[Node]] = {}
    for node in graph.nodes:
        groups.setdefault(node.inside, []).append(node)
    for number, (title, nodes) in enumerate(groups.items()):
        indent = "  " if title is None else "    "
        if title is not None:
            yield f'  subgraph g{number}["{_label(title)}"]'
        yield from (f'{indent}{keys[node.key]}["{_label(node.label)}"]' for node in nodes)
        if title is not None:
            yield "  end"
    for source, target, label in graph.edges:
        arrow = f'-->|"{_label(label)}"|' if label else "-->"
        yield f"  {keys[source]} {arrow} {keys[target]}"


def _label(text: str) -> str:
    """Any text as what stands between the quotes of a label: Mermaid reads character codes there."""
    signs = (
        "<br/>" if sign == "\n" else sign if sign.isalnum() or sign in " .,:;_-+*/=()·×→@" else f"#{ord(sign)};"
        for sign in text
    )
    return "".join(signs)


# --- lines -----------------------------------------------------------------------------------------------------------


def _pieces(content: Line) -> Sequence[Inline]:
    return [content] if isinstance(content, (str, Code, Bold, Link, Pointer, Number)) else content


def renderings(content: Line) -> frozenset[str]:
    """A line as it can stand in the markdown: in a text, at the beginning of one, in a cell, in a fixed width."""
    return frozenset((_line(content), _paragraph(content), _cell(content), "".join(map(plain, _pieces(content)))))


def _paragraph(content: Line) -> str:
    return _OPENING.sub(r"\1\\\2", _line(content))


def _line(content: Line) -> str:
    return "".join(map(_inline, _pieces(content)))


def title(document: Document) -> str:
    """The document's title without markup: what its first section is called."""
    return "".join(map(plain, _pieces(document.title)))


def _inline(piece: Inline) -> str:
    match piece:
        case str():
            return _text(piece)
        case Code(text):
            return _code(text)
        case Bold(text):
            return f"**{_text(text)}**"
        case Link(text, target):
            return f"[{_text(text)}]({_target(target)})"
        case Pointer():
            beside = "" if piece.symbol is None else f" ({_code(piece.symbol)})"
            return f"{_code(piece.place)}{beside}"
        case Number():
            return piece.text
    raise TypeError(f"not a piece of a line: {piece!r}")


def plain(piece: Inline) -> str:
    """A piece as it stands in a block of text in a fixed width."""
    match piece:
        case str():
            return piece
        case Code(text) | Bold(text):
            return text
        case Link(text, target):
            return f"{text} ({target})"
        case Pointer():
            return piece.place if piece.symbol is None else f"{piece.place} ({piece.symbol})"
        case Number():
            return piece.text
    raise TypeError(f"not a piece of a line: {piece!r}")


def _text(text: str) -> str:
    return _MARKUP.sub(lambda found: f"\\{found[0]}", _BLANK.sub(" ", text))


def _code(text: str) -> str:
    text = _BLANK.sub(" ", text).strip() or " "
    longest = max((len(run) for run in _RUNS.findall(text)), default=0)
    if not longest:
        return f"`{text}`"
    marks = "`" * (longest + 1)
    return f"{marks} {text} {marks}"


def _target(target: str) -> str:
    return quote(target, safe="/.:#?=&%+,_-~@")


def _without_double_blanks(lines: Sequence[str]) -> Iterator[str]:
    before, fence = "x", ""
    for line in lines:
        marks = re.match(r"`{3,}", line)
        if marks and not fence:
            fence = marks[0]
        elif fence and line == fence:
            fence = ""
        if line or before or fence:
            yield line
        before = line
