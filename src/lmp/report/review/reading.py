"""Markdown as the review sees it: lines of text and code, tables and fences, each with its line and its section."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

OPEN, CLOSE = "\x01", "\x02"
"""Stand around a code span in the text of a `Piece`."""

_CONTROLS = re.compile("[\x00\x01\x02]")

NESTING = 100
"""Quotes and lists inside of one another that are looked into."""

_ESCAPED = {"[": "(", "]": ")", "<": "‹", ">": "›"}
"""What an escaped sign is read as: it is no markup."""

_ELEMENTS = (
    "a abbr b bdo blockquote br caption center cite code dd del details dfn div dl dt em figcaption figure font h[1-6]"
    " hr i img ins kbd li mark ol p picture pre q rp rt ruby s samp small source span strike strong sub summary sup"
    " table tbody td tfoot th thead tr tt ul var video wbr"
)
_ELEMENT = re.compile(rf"</?(?:{'|'.join(_ELEMENTS.split())})(?:\s[^<>]*)?/?>", re.IGNORECASE)
"""Markup that GitHub shows as such. Whatever else looks like an element is read as text."""


def is_element(text: str) -> bool:
    """Whether this is markup of HTML, as ``<details>`` is."""
    return _ELEMENT.fullmatch(text) is not None


@dataclass(frozen=True)
class Piece:
    """A run of text between two line ends. Code spans stand between `OPEN` and `CLOSE`."""

    text: str
    line: int
    section: str
    links: tuple[str, ...] = ()
    """Targets of the links that begin in it."""

    @property
    def prose(self) -> str:
        """Without the code spans."""
        return self.without_code(" ")

    def without_code(self, instead: str) -> str:
        return re.sub(f"{OPEN}[^{CLOSE}]*{CLOSE}", instead, self.text)

    @property
    def spans(self) -> list[str]:
        return re.findall(f"{OPEN}([^{CLOSE}]*){CLOSE}", self.text)


@dataclass(frozen=True)
class FencePiece:
    language: str
    lines: tuple[str, ...]
    line: int
    """Of its first line of text."""
    section: str


@dataclass(frozen=True)
class TablePiece:
    columns: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    """Line and cells; code spans marked as in a `Piece`."""
    line: int
    section: str


@dataclass
class Text:
    """A markdown file, taken apart."""

    pieces: list[Piece] = field(default_factory=list)
    """Also those of headings and of tables' cells."""
    fences: list[FencePiece] = field(default_factory=list)
    tables: list[TablePiece] = field(default_factory=list)
    headings: list[tuple[int, int, str]] = field(default_factory=list)
    """Line, level and words of each."""
    too_deep: int | None = None
    """The first line that is nested deeper than is looked at."""


def read_markdown(text: str) -> Text:
    """Takes any text: what is no markdown is one paragraph."""
    # Escaped signs stay apart from the text: \\[ opens no placeholder.
    markdown = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable("table").disable("text_join")
    return _Reader(markdown.parse(_CONTROLS.sub(" ", text))).read()


class _Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._found, self._section = tokens, Text(), ""

    def read(self) -> Text:
        index = 0
        while index < len(self._tokens):
            token = self._tokens[index]
            if token.level >= NESTING - 1 and token.nesting == 1 and self._found.too_deep is None:
                self._found.too_deep = _first_line(token)
            if token.type == "table_open":
                index = self._table(index)
                continue
            if token.type in ("fence", "code_block"):
                self._fence(token)
            elif token.type == "html_block":
                self._html(token)
            elif token.type == "inline":
                pieces = list(self._inline(token, _first_line(token)))
                if self._tokens[index - 1].type == "heading_open" and pieces:
                    self._section = _bare(pieces[0].text)
                    level = int(self._tokens[index - 1].tag[1:])
                    self._found.headings.append((pieces[0].line, level, self._section))
                    pieces = list(self._inline(token, _first_line(token)))
                self._found.pieces += pieces
            index += 1
        return self._found

    def _fence(self, token: Token) -> None:
        language = (token.info or "").strip().split(" ")[0]
        lines = tuple(token.content.rstrip("\n").split("\n"))
        first = _first_line(token) + (1 if token.type == "fence" else 0)
        self._found.fences.append(FencePiece(language, lines, first, self._section))

    def _html(self, token: Token) -> None:
        """What a reader sees of it, as text: markdown in it is not read as such."""
        without = _without_comments(token.content)
        lines = _ELEMENT.sub(lambda found: "\n" * found[0].count("\n"), without).split("\n")
        first = _first_line(token)
        self._found.pieces += [Piece(line, first + n, self._section) for n, line in enumerate(lines) if line.strip()]

    def _inline(self, token: Token, line: int) -> Iterator[Piece]:
        parts: list[str] = []
        links: list[str] = []
        for child in token.children or ():
            if child.type in ("softbreak", "hardbreak"):
                yield Piece("".join(parts), line, self._section, tuple(links))
                parts, links, line = [], [], line + 1
            elif child.type == "code_inline":
                parts.append(f"{OPEN}{child.content}{CLOSE}")
            elif child.type == "link_open":
                links.append(str(child.attrGet("href")))
            elif child.type == "html_inline":
                # A comment may go over several lines.
                parts.append("" if child.content.startswith("<!--") else _ELEMENT.sub("", child.content))
                line += child.content.count("\n")
            elif child.type == "text":
                parts.append(child.content)
            elif child.type == "text_special":
                parts.append(_ESCAPED.get(child.content, child.content))
        if parts:
            yield Piece("".join(parts), line, self._section, tuple(links))

    def _table(self, start: int) -> int:
        rows: list[tuple[int, list[str]]] = []
        index, first = start, _first_line(self._tokens[start])
        while self._tokens[index].type != "table_close":
            token = self._tokens[index]
            if token.type == "tr_open":
                rows.append((_first_line(token), []))
            elif token.type == "inline":
                pieces = list(self._inline(token, rows[-1][0]))
                self._found.pieces += pieces
                rows[-1][1].append(" ".join(piece.text for piece in pieces))
            index += 1
        columns, *body = [(line, tuple(cells)) for line, cells in rows]
        self._found.tables.append(TablePiece(columns[1], tuple(body), first, self._section))
        return index + 1


def _without_comments(text: str) -> str:
    """With the line ends in them, so that lines keep their numbers. One that does not end is left as it is."""
    parts, place = [], 0
    while (start := text.find("<!--", place)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts += [text[place:start], "\n" * text.count("\n", start, end)]
        place = end + len("-->")
    return "".join((*parts, text[place:]))


def _first_line(token: Token) -> int:
    return (token.map[0] if token.map else 0) + 1


def _bare(text: str) -> str:
    return text.replace(OPEN, "").replace(CLOSE, "")
