"""What each reference of a post is, as markdown text."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from lmp.errors import LmpError, NotTaken, PostFault
from lmp.formula import Number, free_variables, parse
from lmp.lab.config import COMMAND, OUTPUT, CaptureRule, Source
from lmp.lab.figures import Figures
from lmp.lab.numbers import written
from lmp.lab.post import Post, Stored, confined, load
from lmp.lab.quoting import command, escaped, fenced, quoted, within
from lmp.lab.template import Reference, Text, line_ranges, pieces
from lmp.lab.values import RECORD, evaluated, number_in, record_values, values_of

ENVIRONMENT = ("kernel", "cpu", "cpus", "threads", "memory", "gpu", "tool_version", "date", "status", "message")
"""Fields of a record that ``{{env:ID:FIELD}}`` quotes."""

_VENDORED = ("transformers/", "pytorch/")
_LANGUAGES = {
    ".py": "python", ".c": "c", ".h": "c", ".cu": "cuda", ".cpp": "cpp", ".sh": "bash", ".toml": "toml",
    ".json": "json", ".bt": "bpftrace",
}  # fmt: skip


class Evaluator:
    """Evaluates references with the captures of one folder. ``original``: those that a reader's are shown beside."""

    def __init__(self, post: Post, captures: Path, figures: Figures, original: Evaluator | None = None) -> None:
        self.post, self.captures, self.figures, self.original = post, captures, figures, original
        self.citations: list[str] = [] if original is None else original.citations
        """Ids of cited sources, in the order of their numbers."""
        self._stored: dict[str, Stored | None] = {}
        self._values: dict[str, dict[str, Fraction]] = {}

    # -- inline ----------------------------------------------------------------------------------------------------

    def inline(self, reference: Reference) -> str:
        """The text of a reference in running text. Raises PostFault or another LmpError."""
        return {
            "num": self._num,
            "lmp": self._lmp,
            "src": self._src,
            "cite": self._cite,
            "env": self._env,
        }[reference.kind](reference)

    def inline_text(self, text: str, line: int) -> str:
        """Template text of one line, for a cell of a table."""
        found = [piece.text if isinstance(piece, Text) else self._in_line(piece) for piece in pieces(text, line)]
        return "".join(found)

    def _in_line(self, reference: Reference) -> str:
        if reference.kind in ("cap", "code", "plot", "table"):
            raise PostFault(f"{reference} stands alone on a line")
        return self.inline(reference)

    def _num(self, reference: Reference) -> str:
        # An expression holds no colon: without one there is no capture of its own.
        without = ":" not in reference.content and not re.fullmatch(r"\s*[a-z][a-z0-9_]*\s*", reference.content)
        name, expression = ("", reference.content) if without else _named(reference)
        return self.number_text(name, expression, reference.form)

    def number_text(self, name: str, expression: str, form: str | None) -> str:
        """The number, and beside a reader's the original's."""
        if self.original is None:
            return written(self.number(name, expression), form)
        try:
            before = self.original.number_text(name, expression, form)
        except NotTaken:
            return written(self.number(name, expression), form)
        if not self._is_measured(name, expression):
            return before
        try:
            mine = written(self.number(name, expression), form)
        except NotTaken:
            return f"{before} (original)"
        except LmpError:
            # The block that quotes the capture and the table of captures have the reason.
            stored = self.taken(name) if name else None
            why = "no value" if stored is None or stored.usable else stored.record.status.replace("_", " ")
            return f"{before} (original; {why} here)"
        return f"{mine} (original: {before})"

    def _is_measured(self, name: str, expression: str) -> bool:
        """True if an output is in the expression: what lmp or a source says, and what was asked for, is the same."""
        return any(self._is_output(name, variable) for variable in free_variables(parse(expression)))

    def _is_output(self, name: str, variable: str) -> bool:
        place = self._place(name, variable)
        rule = None if place is None else self._rule(place[0]).values.get(place[1].partition(".")[0])
        return place is not None and (rule is None or rule.text == OUTPUT)

    def number(self, name: str, expression: str) -> Fraction:
        """The exact value of an expression over the values of a capture. The name is empty if there is no own one.

        Raises PostFault if the expression reads nothing of that capture, or nothing at all.
        """
        variables = free_variables(parse(expression))
        if name:
            have = ", ".join(self._rule(name).values) or "no values"
            places = [self._place(name, variable) for variable in variables]
            if not any(place is not None and place[0] == name for place in places):
                raise PostFault(f"{expression} reads nothing of capture {name}, which has {have}")
        elif not variables:
            raise PostFault(f"{expression} reads nothing: a number comes from a capture, a figure of lmp or a source")
        return evaluated(expression, lambda variable: self._look_up(name, variable))

    def _place(self, name: str, variable: str) -> tuple[str, str] | None:
        """The capture and the value that a variable names; None for a figure of lmp, its settings, and a source.

        Raises PostFault for a name that is none of these.
        """
        rules, figures = self.post.lab.capture, self.post.lab.lmp
        own = rules[name].values if name else {}
        top, _, rest = variable.partition(".")
        if variable in figures or top == "source":
            return None
        if (top == "record" and rest in RECORD and name) or (top in own and (not rest or rest in ("min", "max"))):
            return name, variable
        if top in rules and rest:
            return top, rest
        if top in figures:
            return None
        known = ", ".join([*own, *figures])
        raise PostFault(f"{{{variable}}} has no value: {name or 'the post'} has {known or 'no values'}")

    def _look_up(self, name: str, variable: str) -> Number:
        place, figures = self._place(name, variable), self.post.lab.lmp
        if place is not None:
            return self._value(*place)
        if variable in figures:
            return self.figures.value(figures[variable])
        top, _, rest = variable.partition(".")
        return self._source_number(rest) if top == "source" else self.figures.setting(figures[top], rest)

    def _value(self, name: str, variable: str) -> Fraction:
        stored = self._usable(name)
        if variable.removeprefix("record.") in RECORD and variable.startswith("record."):
            found = record_values(stored)
        else:
            if name not in self._values:
                self._values[name] = values_of(stored, self._rule(name).values, lambda text: self._text(stored, text))
            found = self._values[name]
        if variable not in found:
            raise PostFault(f"{{{variable}}} has no value: {name} has {', '.join(found)}")
        return found[variable]

    def _text(self, stored: Stored, text: str) -> str:
        """The command line of a capture, or a file that it was taken with."""
        if text == COMMAND:
            return command(stored.record.argv_template, stored.record.env)
        return self.post.workload_text(text, stored.record.workload_sha256.get(text))

    def _lmp(self, reference: Reference) -> str:
        return written(self.figures.value(reference.content), reference.form)

    def _src(self, reference: Reference) -> str:
        name = reference.body
        value = self._source(name).value
        if value is None:
            raise PostFault(f"source {name} has no value: cite it with {{{{cite:{name}}}}}")
        return f"{escaped(value)} {self._link(name)}"

    def _cite(self, reference: Reference) -> str:
        self._source(reference.body)
        return self._link(reference.body)

    def _link(self, name: str) -> str:
        if name not in self.citations:
            self.citations.append(name)
        return f"[[{self.citations.index(name) + 1}]](#sources)"

    def _source(self, name: str) -> Source:
        found = self.post.sources.get(name)
        if found is None:
            raise PostFault(f"{name} is no source: sources.toml has {', '.join(self.post.sources) or 'none'}")
        return found

    def _source_number(self, name: str) -> Fraction:
        value = self._source(name).value or ""
        number = re.search(r"\d[\d,]*(?:\.\d+)?", value)
        if number is None:
            raise PostFault(f"the value of source {name} holds no number")
        return number_in(number[0])

    def _env(self, reference: Reference) -> str:
        name, field = _named(reference)
        if field not in ENVIRONMENT:
            raise PostFault(f"{field} is no field of a capture: fields are {', '.join(ENVIRONMENT)}")
        text = self._field(name, field)
        if self.original is None:
            return text
        before = self.original._field(name, field)
        return before if text == before else f"{text} (original: {before})"

    def _field(self, name: str, field: str) -> str:
        stored = self.taken(name)
        if stored is None:
            return "not taken"
        value = getattr(stored.record, field)
        if field == "memory":
            return written(Fraction(value), "GiB")
        return escaped(str(value)) if value is not None else "none"

    # -- captures --------------------------------------------------------------------------------------------------

    def _rule(self, name: str) -> CaptureRule:
        rules = self.post.lab.capture
        if name not in rules:
            raise PostFault(f"{name} is no capture: lab.toml has {', '.join(rules) or 'none'}")
        return rules[name]

    def taken(self, name: str) -> Stored | None:
        """The capture as stored; None if it was not taken. Raises PostFault for an unknown id."""
        self._rule(name)
        if name not in self._stored:
            self._stored[name] = load(self.captures, name)
        return self._stored[name]

    def _usable(self, name: str) -> Stored:
        stored = self.taken(name)
        if stored is None:
            raise NotTaken(f"capture {name} was not taken: run `lmp lab run {self.post.slug} --only {name} --replace`")
        if not stored.usable:
            raise PostFault(f"capture {name} has no numbers: {stored.record.status}: {stored.record.message}")
        return stored

    def stored(self, name: str) -> Stored:
        """The capture, usable or not. Raises PostFault if it was not taken."""
        stored = self.taken(name)
        if stored is None:
            raise NotTaken(f"capture {name} was not taken: run `lmp lab run {self.post.slug} --only {name} --replace`")
        return stored

    # -- blocks ----------------------------------------------------------------------------------------------------

    def cap(self, reference: Reference) -> str:
        """A quoted capture, as a fenced block with its command line."""
        name, _, ranges = (part.strip() for part in reference.body.partition(":"))
        if self.original is None:
            return self._quoted(name, ranges)
        mine = self.taken(name)
        if mine is not None and mine.usable and mine.lines:
            return self._quoted(name, within(ranges, len(mine.lines)))
        if self.original.taken(name) is None:
            return self._quoted(name, "")
        return f"*{escaped(self.why_not(name))}. The original:*\n\n{self.original._quoted(name, ranges)}"

    def why_not(self, name: str) -> str:
        """Why a reader's run has no output of this capture."""
        mine = self.taken(name)
        if mine is None:
            return "Not taken here"
        said = mine.record.message or "without output"
        return f"{mine.record.status.replace('_', ' ').capitalize()} here: {said}"

    def _quoted(self, name: str, ranges: str) -> str:
        stored = self.stored(name)
        rule = self._rule(name)
        lines = [f"$ {command(rule.argv, rule.env)}"]
        if stored.record.status in ("missing", "refused", "timed_out"):
            lines += [] if stored.record.message in stored.text else [f"[{stored.record.message}]"]
        if stored.lines or ranges:
            lines += quoted(stored.lines, ranges, f"capture {name}")
        return fenced(lines, "text")

    def code(self, reference: Reference) -> str:
        """Quoted lines of a file: of a workload, of the post's own folder, or of the vendored sources."""
        name, _, ranges = (part.strip() for part in reference.body.partition(":"))
        file = self._file(name)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PostFault(f"{name} cannot be read: {error}") from error
        lines = quoted(text.splitlines(), ranges, name)
        shown = ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in line_ranges(ranges)) if ranges else ""
        caption = f"`{name}`{f', lines {shown}' if shown else ''}:"
        return f"{caption}\n\n{fenced(lines, _LANGUAGES.get(file.suffix, 'text'))}"

    def _file(self, name: str) -> Path:
        if name.startswith(_VENDORED):
            return confined(self.post.root / name.partition("/")[0], name.partition("/")[2])
        if name.startswith("captures/"):
            return self._raw_text(name.removeprefix("captures/"))
        for folder in (self.post.workloads, self.post.folder):
            file = confined(folder, name)
            if file.is_file():
                return file
        raise PostFault(f"{name} is in neither {self.post.posts.name}/workloads nor {self.post.slug}/")

    def _raw_text(self, name: str) -> Path:
        """The raw text of a capture: a reader's own where it was taken."""
        stored = self.taken(name.removesuffix(".txt"))
        if self.original is not None and (stored is None or not stored.usable):
            return self.original._raw_text(name)
        return confined(self.captures, name)

    def table(self, reference: Reference) -> str:
        rule = self.post.lab.table.get(reference.body)
        if rule is None:
            raise PostFault(f"{reference.body} is no table: lab.toml has {', '.join(self.post.lab.table) or 'none'}")
        rows = [[self.inline_text(cell, reference.line) for cell in row] for row in [rule.columns, *rule.rows]]
        # A column of numbers stands on the right.
        edges = [
            "---:" if all(re.match(r"[-+]?\d", row[i]) for row in rows[1:]) else "---" for i in range(len(rows[0]))
        ]
        lines = [f"| {' | '.join(row)} |" for row in (rows[0], edges, *rows[1:])]
        return "\n".join([*([f"*{rule.title}*", ""] if rule.title else []), *lines])

    @cached_property
    def blocks(self) -> dict[str, Callable[[Reference], str]]:
        """The references that stand alone, except plots."""
        return {"cap": self.cap, "code": self.code, "table": self.table}


def _named(reference: Reference) -> tuple[str, str]:
    name, colon, rest = reference.content.partition(":")
    if not colon or not rest.strip():
        raise PostFault(f"{reference} is incomplete: write {{{{{reference.kind}:ID:...}}}}")
    return name.strip(), rest.strip()
