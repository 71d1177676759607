"""Sections from a jinja2 template: what stands in the template is markup, what is put into it never is.

A template is markdown: headings, paragraphs, lists, tables, fences, bold, code and links. A value that it prints is
a piece of a line, several in a list, or a whole block. It stays what it is: a `Number` keeps its claim, a text is
escaped when the document is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmp.errors import UsageError
from lmp.report.document.amounts import Number
from lmp.report.document.markdown import plain
from lmp.report.document.parts import (
    Block,
    Bold,
    Bullets,
    Code,
    Fence,
    Image,
    Inline,
    Line,
    Link,
    Mermaid,
    Paragraph,
    Pointer,
    Section,
    Table,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Around the number of a value, in the text that jinja2 makes."""
_TOKEN = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_INLINE = re.compile(
    rf"(?P<value>{_OPEN}\d+{_CLOSE})|\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`|\[(?P<text>[^\]]+)\]\((?P<target>[^)]+)\)"
)
_HEADING = re.compile(r"(#{2,6}) (.+)")
_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<file>[^)]+)\)")
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")


@dataclass
class _Values:
    """The values that a template printed, by their numbers."""

    kept: list[Any] = field(default_factory=list)

    def token(self, value: Any) -> str:
        if value is None or (isinstance(value, (str, list, tuple)) and not value):
            return ""
        self.kept.append(value)
        return f"{_OPEN}{len(self.kept) - 1}{_CLOSE}"

    def line(self, text: str) -> list[Inline]:
        """A line of the template as pieces."""
        pieces: list[Inline] = []
        end = 0
        for found in _INLINE.finditer(text):
            pieces += [text[end : found.start()]] if found.start() > end else []
            end = found.end()
            if found["value"]:
                pieces += self.pieces(found["value"])
            elif found["bold"]:
                pieces.append(Bold(self.flat(found["bold"])))
            elif found["code"]:
                pieces.append(Code(self.flat(found["code"])))
            else:
                pieces.append(Link(self.flat(found["text"]), self.flat(found["target"])))
        return [*pieces, *([text[end:]] if end < len(text) else [])]

    def pieces(self, token: str) -> list[Inline]:
        value = self.kept[int(token[1:-1])]
        if isinstance(value, (list, tuple)):
            return [piece for one in value for piece in self._of(one)]
        return self._of(value)

    def _of(self, value: Any) -> list[Inline]:
        if isinstance(value, (str, Number, Code, Bold, Link, Pointer)):
            return [value]
        if isinstance(value, int):
            return [f"{value:,}"]
        if isinstance(value, (list, tuple)):
            return [piece for one in value for piece in self._of(one)]
        raise TypeError(f"no piece of a line: {value!r}")

    def flat(self, text: str) -> str:
        return _TOKEN.sub(lambda found: "".join(map(plain, self.pieces(found[0]))), text)

    def block(self, line: str) -> Block | None:
        """The block that a line is, where it is nothing else."""
        found = _TOKEN.fullmatch(line.strip())
        value = self.kept[int(found[1])] if found else None
        return value if isinstance(value, (Table, Fence, Mermaid, Image, Bullets, Paragraph)) else None


def _environment(package: str, values: _Values) -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined
    except ImportError as error:
        raise UsageError("a report needs more packages\nrun `pip install 'lmp[report]'`") from error

    def printed(value: Any) -> str:
        # A name that is not there raises jinja2's own error, with the name.
        return str(value) if isinstance(value, Undefined) else values.token(value)

    return Environment(
        loader=PackageLoader(package, "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printed,
    )


def sections(package: str, template: str, context: Mapping[str, Any]) -> list[Section]:
    """The sections of a file of the package's ``templates/``. Raises UsageError without the extra ``report``."""
    values = _Values()
    text = _environment(package, values).get_template(template).render(**context)
    found: list[tuple[int, str, list[str]]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        heading = None if fenced else _HEADING.fullmatch(line)
        if heading is not None:
            found.append((len(heading[1]), values.flat(heading[2]), []))
        elif found:
            found[-1][2].append(line)
        elif line.strip():
            raise ValueError(f"{template}: a line before the first heading: {line[:80]}")
    return list(_nested([(level, title, list(_blocks(lines, values))) for level, title, lines in found]))


def _nested(found: Sequence[tuple[int, str, list[Block]]]) -> Iterator[Section]:
    start = 0
    while start < len(found):
        level, title, blocks = found[start]
        end = next((n for n in range(start + 1, len(found)) if found[n][0] <= level), len(found))
        yield Section(title, blocks, list(_nested(found[start + 1 : end])))
        start = end


def _blocks(lines: Sequence[str], values: _Values) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        block = values.block(line)
        end = at + 1
        if block is not None:
            yield block
        elif line.startswith("```"):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].startswith("```")) + 1
            pieces: list[Inline] = []
            for number, inner in enumerate(lines[at + 1 : end - 1]):
                pieces += ["\n"] if number else []
                for part in re.split(f"({_TOKEN.pattern.replace('(', '(?:')})", inner):
                    pieces += values.pieces(part) if part.startswith(_OPEN) else [part] if part else []
            yield Fence(pieces, line[3:].strip())
        elif (picture := _IMAGE.fullmatch(line.strip())) is not None:
            yield Image(values.flat(picture["file"]), values.flat(picture["alt"]))
        elif line.startswith("- "):
            end = _while(lines, at, "- ")
            yield Bullets([values.line(one[2:]) for one in lines[at:end]])
        elif line.startswith("|"):
            end = _while(lines, at, "|")
            yield _table(lines[at:end], values)
        elif line.strip():
            end = next((n for n in range(at + 1, len(lines)) if _ends(lines[n], values)), len(lines))
            yield Paragraph(values.line(" ".join(one.strip() for one in lines[at:end])))
        at = end


def _ends(line: str, values: _Values) -> bool:
    """Whether a line ends the paragraph before it."""
    return not line.strip() or line.startswith(("- ", "|", "```")) or values.block(line) is not None


def _while(lines: Sequence[str], at: int, beginning: str) -> int:
    return next((n for n in range(at, len(lines)) if not lines[n].startswith(beginning)), len(lines))


def _table(lines: Sequence[str], values: _Values) -> Table:
    if len(lines) < 2 or not _RULE.fullmatch(lines[1].strip()):
        raise ValueError(f"a table without a rule under its head: {lines[0][:80]}")
    rule = _cells(lines[1])
    rows: list[list[Line]] = [[values.line(cell) for cell in _cells(line)] for line in lines[2:]]
    return Table(
        [values.flat(cell) for cell in _cells(lines[0])],
        rows,
        right=frozenset(n for n, cell in enumerate(rule) if cell.endswith(":")),
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
