"""lab.toml and sources.toml as closed records, with file and line in every error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from lmp.errors import BrokenPostFile

MAX_OUTPUT = 2_000_000
"""Most bytes of one capture that may be kept: posts and captures stay text of a few megabytes."""

RESERVED = frozenset({"config", "self", "source"})
"""Names with a meaning of their own in expressions. The grammar drops ``config.`` and ``self.``."""

_BEYOND_RE2 = re.compile(r"\(\?(?:=|!|<=|<!|P=|\(|>)")
_ESCAPE = re.compile(r"\\.", re.DOTALL)


def _name(text: str) -> str:
    if text in RESERVED:
        raise ValueError(f"{text} is a reserved name")
    return text


def _pattern(text: str) -> str:
    """A regular expression without look-around and backreferences, matched line by line."""
    escapes = _ESCAPE.findall(text)
    if _BEYOND_RE2.search(_ESCAPE.sub("", text)) or any(each[1] in "123456789" for each in escapes):
        raise ValueError("a pattern has no look-around and no backreference")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,59}$"), BeforeValidator(_name)]
Pattern = Annotated[str, BeforeValidator(_pattern), Field(max_length=500)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Snapshot = Literal["interrupts", "loadavg", "psi"]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


OUTPUT, COMMAND = "output", "command"


class ValueRule(Closed):
    """A number of a capture: a pattern applied to each line of a text, and its group or a column of that line."""

    text: Text = Field(default=OUTPUT, alias="from")
    """What is read: the raw text (``output``), the command line with its variables as the post quotes it
    (``command``), or a file of ``workload``, as the capture's sha256 has it."""
    pattern: Pattern
    column: int | None = None
    """Which word of a matching line is the number: from 1, or from the end as -1. The pattern has no group then."""
    base: Literal[10, 16] = 10
    """16 for digits of an address or of a memory dump. With ``0x`` in front they are read so anyway."""
    take: Literal["first", "last", "sum", "min", "max", "median", "count"] = "first"
    """Which of the matches; ``count`` is the number of matching lines and needs no group."""
    after: str | None = None
    """Only lines below the first line that contains this text."""
    until: str | None = None
    """Only lines above the next line that contains this text."""

    @model_validator(mode="after")
    def _one_number(self) -> ValueRule:
        groups = re.compile(self.pattern).groups
        if self.column == 0:
            raise ValueError("columns are counted from 1, or from the end as -1")
        if self.column is not None and (groups or self.take == "count"):
            raise ValueError("a value with a column has a pattern without groups, and does not count")
        if self.column is None and self.take != "count" and groups != 1:
            raise ValueError(f"a value's pattern has one group, this one has {groups}")
        return self


def _as_rule(value: Any) -> Any:
    return {"pattern": value} if isinstance(value, str) else value


class CaptureRule(Closed):
    """How one capture is taken."""

    argv: list[str] = Field(min_length=1)
    tool: Text
    package: str | None = None
    version: list[str] | None = None
    """Command that prints the tool's version; default: the tool with ``--version``."""
    workload: str | list[str] | None = None
    limit_s: float = Field(default=120, gt=0, le=3600)
    repeat: int = Field(default=1, ge=1, le=100)
    max_bytes: int = Field(default=200_000, ge=200, le=MAX_OUTPUT)
    needs: Literal["gpu"] | None = None
    before: list[Snapshot] = []
    env: dict[str, str] = {}
    after: list[Name] = []
    ok_exit: list[int] = [0]
    """Exit codes that are no refusal."""
    refusal: Pattern | None = None
    """A line that matches is a refusal even if the exit code is 0."""
    others: Pattern | None = None
    """Group ``name`` or ``pid`` of a process: those that are not of this capture become ``[other]``."""
    values: dict[Name, Annotated[ValueRule, BeforeValidator(_as_rule)]] = {}

    @property
    def workloads(self) -> list[str]:
        return [self.workload] if isinstance(self.workload, str) else list(self.workload or ())

    @model_validator(mode="after")
    def _named_groups(self) -> CaptureRule:
        if self.others is not None and not re.compile(self.others).groupindex.keys() & {"name", "pid"}:
            raise ValueError("others needs a group (?P<name>...) or (?P<pid>...)")
        return self

    @model_validator(mode="after")
    def _guarded(self) -> CaptureRule:
        for name, value in self.values.items():
            if value.text not in (OUTPUT, COMMAND, *self.workloads):
                raise ValueError(f"values.{name}: from is {OUTPUT}, {COMMAND} or a file of workload, not {value.text}")
        return self


Size = int | float | str


class SubjectRule(Closed):
    """A class or a model whose cost lmp derives."""

    class_path: str | None = Field(default=None, alias="class")
    model: str | None = None
    config: str | None = None
    set: dict[str, Size] = {}
    w_bytes: Size | None = None
    a_bytes: Size | None = None
    kv_bytes: Size | None = None
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    attention: Literal["sdpa", "eager"] | None = None
    inputs: str | None = None
    init: str | None = None

    @model_validator(mode="after")
    def _something(self) -> SubjectRule:
        if self.class_path is None and self.model is None and self.config is None:
            raise ValueError("a subject needs class, model or config")
        return self


class Series(Closed):
    """Points of a plot: of each line that matches in a capture, or of expressions."""

    label: str = ""
    capture: Name | None = None
    pattern: Pattern | None = None
    """Two groups: x (or the label of a bar) and y."""
    after: str | None = None
    until: str | None = None
    points: list[tuple[Size, Size]] = []
    """Pairs of expressions; the x of a bar is its label."""
    scale: Size = 1
    """Factor of y, as an expression of numbers."""

    @model_validator(mode="after")
    def _one_way(self) -> Series:
        by_pattern = self.capture is not None and self.pattern is not None
        if by_pattern == bool(self.points):
            raise ValueError("a series has either capture and pattern, or points")
        if self.pattern is not None and re.compile(self.pattern).groups != 2:
            raise ValueError("the pattern of a series has two groups: x and y")
        return self


class PlotRule(Closed):
    """A plot. ``x`` and ``y`` are the titles of the axes, with units."""

    kind: Literal["line", "bar", "flame"] = "line"
    title: Text
    x: str = ""
    y: str = ""
    log_x: bool = False
    x_bytes: bool = False
    """With ``log_x``: x are bytes, and the ticks read 64 KiB, 1 MiB."""
    log_y: bool = False
    series: list[Series] = []
    capture: Name | None = None
    """For a flame graph: the capture with stacks."""
    stacks: Literal["folded", "perf"] = "folded"
    """``folded``: lines ``a;b;c 12`` as of py-spy; ``perf``: the output of perf script."""
    unit: str = "samples"
    min_share: float = Field(default=0.002, ge=0, lt=1)
    """Frames below this share of all samples are not drawn."""

    @model_validator(mode="after")
    def _complete(self) -> PlotRule:
        if self.kind == "flame":
            if self.capture is None or self.series:
                raise ValueError("a flame graph has capture, and no series")
        elif not self.series or self.capture is not None or not self.y:
            raise ValueError(f"a {self.kind} plot has series and y, and no capture of its own")
        return self


class TableRule(Closed):
    """A table. Each cell is template text: ``{{num:...}}`` and other references in line."""

    title: str = ""
    columns: list[str] = Field(min_length=1)
    rows: list[list[str]] = Field(min_length=1)

    @model_validator(mode="after")
    def _square(self) -> TableRule:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"each row has {len(self.columns)} cells")
        return self


class RatioRule(Closed):
    """A row of the table over all posts: what was measured, and what lmp says."""

    what: Text
    measured: Text
    """``ID:EXPR|FORMAT`` as in ``{{num:...}}``."""
    predicted: Text
    """The same. Its names are mostly those of ``[lmp]``."""
    ratio: Text
    """The same: usually measured divided by predicted."""


def _allowed(word: str) -> str:
    if not re.search(r"[A-Za-zµ]", word):
        raise ValueError(f"{word!r} has no letter: a bare number needs a reference")
    return word


class Allowed(Closed):
    words: list[Annotated[str, BeforeValidator(_allowed)]] = []


class Lab(Closed):
    """lab.toml."""

    title: Text
    question: Text
    capture: dict[Name, CaptureRule] = {}
    subject: dict[Name, SubjectRule] = {}
    lmp: dict[Name, str] = {}
    plot: dict[Name, PlotRule] = {}
    table: dict[Name, TableRule] = {}
    ratio: dict[Name, RatioRule] = {}
    allowed: Allowed = Allowed()

    @model_validator(mode="after")
    def _known_captures(self) -> Lab:
        for name, rule in self.capture.items():
            for before in rule.after:
                if before not in self.capture:
                    raise ValueError(f"capture.{name}: after names {before}, which is no capture")
        in_order(self.capture)
        return self


class Source(Closed):
    """One source, with the sentence that carries the claim."""

    title: Text
    authors: Text
    year: int = Field(ge=1900, le=2100)
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s<>\"`]+$")]
    read_at: Text | None = None
    """The copy that was read, if it was another: an address or words."""
    kind: Literal["academic", "vendor", "practical"]
    sentence: str = ""
    value: str | None = None


def in_order(captures: dict[str, CaptureRule]) -> list[str]:
    """The captures, each behind those that it comes after. Raises ValueError for a circle."""
    done: dict[str, None] = {}

    def take(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"captures wait for one another: {' -> '.join([*above, name])}")
        if name not in done:
            for before in captures[name].after:
                take(before, (*above, name))
            done[name] = None

    for name in captures:
        take(name, ())
    return list(done)


# --- reading ---------------------------------------------------------------------------------------------------------

Record = TypeVar("Record", bound=BaseModel)


def read_lab(file: Path) -> Lab:
    text, content = _read(file)
    return _validated(Lab, content, (), file, text)


def read_sources(file: Path) -> dict[str, Source]:
    """The sources by id; none if there is no file."""
    if not file.exists():
        return {}
    text, content = _read(file)
    found = {}
    for name, entry in content.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or not isinstance(entry, dict):
            raise broken(file, line_of(text, (name,)), f"{name} is no source", "a source is a table: [ID]")
        found[name] = _validated(Source, entry, (name,), file, text)
    return found


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else len(text.splitlines())
        raise broken(file, line, f"not TOML: {error}", "correct the line") from error
    except UnicodeDecodeError as error:
        raise broken(file, 1, "not UTF-8 text", "write the file again as UTF-8") from error
    except OSError as error:
        raise BrokenPostFile(
            f"{file} cannot be read: {error.strerror}\na post has post.md, lab.toml and sources.toml"
        ) from error


def _validated(kind: type[Record], content: Any, above: tuple[str, ...], file: Path, text: str) -> Record:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        # A misspelt key is named before the key that it leaves missing.
        first = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")[0]
        where = (*above, *map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise broken(file, line_of(text, where), f"{'.'.join(where) or 'file'}: {message}") from error


def broken(file: Path, line: int, what: str, then: str = "docs/lab.md lists the keys") -> BrokenPostFile:
    return BrokenPostFile(f"{file}:{line}: {what}\n{then}")


def line_of(text: str, where: tuple[str, ...]) -> int:
    """The line of a key or of the closest table above it, from 1."""
    lines = text.splitlines()
    best = 1
    for depth in range(1, len(where) + 1):
        table = re.escape(".".join(where[:depth]))
        header = next((i for i, line in enumerate(lines, 1) if re.match(rf"\s*\[\[?\s*{table}\s*\]", line)), None)
        best = header or _line_of_key(lines, best, where[depth - 1]) or best
    return best


def _line_of_key(lines: list[str], start: int, key: str) -> int | None:
    """The line of a key from ``start`` on, before the next table begins."""
    for number, line in enumerate(lines[start - 1 :], start):
        if number > start and line.startswith("["):
            return None
        # Keys may be dotted: ``values.futex = ...``.
        if re.match(rf"\s*(?:[\w-]+\.)*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
            return number
    return None
