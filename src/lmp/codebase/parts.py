"""The parts of a code base as a reader names them, an agent or a person, in place of what rules found.

A section that a reader names, or says to be absent, is the reader's; the rules' rows of the others stay. Pitfalls of a
reader come before those of rules. A reader's word is not enough for a place: each is opened, and what is named must
stand there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import Dispatch, Edge
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles.lines import with_lines
from lmp.codebase.roles.paths import Paths
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.rows import BY_NAME, likely
from lmp.records import GateFinding, Provenance, Record
from lmp.source.quoting import escaped

ROLES = {
    "entry_points": ("cli", "server", "benchmark", "example", "library", "shell"),
    "kv_cache": ("layout", "update", "allocate", "free", "evict", "paging", "accounting", "swap"),
    "scheduler": ("queue", "batch", "admission", "preemption", "chunking", "priority"),
    "sampling": ("logits", "parameters", "sample", "seed"),
    "attention": ("backend", "module", "kernel"),
    "configuration": ("cli flag", "env var", "config class field", "config file", "argument"),
}
"""Section -> the roles that a part of it may have."""
NESTING = "nesting"
NEAR = 3
"""Lines between a place and what is named there."""
MOST, MOST_CALLS, MOST_PITFALLS, LONGEST = 600, 80, 40, 200
"""Parts, calls and pitfalls that are named at most, and characters of a reason."""
CALLED_HERE = ("direct", "attribute", "constructor", "inheritance", "registry")
"""Kinds of calls that stand as calls in the caller: others hand something over, or read what another one wrote."""
Key = tuple[str, int]
Lines = Callable[[str], Sequence[str]]
"""The lines of a file of the code base."""
Section = Literal["entry_points", "kv_cache", "scheduler", "sampling", "attention", "configuration"]


class Part(Record):
    """One thing that plays a part."""

    section: Section
    role: str = Field(description="one of the section's roles")
    symbol: str = Field(min_length=1, max_length=LONGEST, description="Class.method, function, flag or variable")
    file: str = Field(description="path below the code base's folder")
    line: int = Field(ge=1, description="of the def, class, assignment or flag")
    why: str = Field(default="", max_length=LONGEST, description="one sentence; no markup")

    @property
    def named(self) -> tuple[str, Key]:
        return self.symbol, (self.file, self.line)


class PartCall(Record):
    """One call of the nesting."""

    caller: str = Field(min_length=1, max_length=LONGEST, description="Class.method or function")
    caller_file: str
    caller_line: int = Field(ge=1, description="of the caller's def")
    callee: str = Field(min_length=1, max_length=LONGEST)
    callee_file: str
    callee_line: int = Field(ge=1, description="of the callee's def; of a class that is made, its class statement")
    line: int = Field(ge=1, description="of the call, in the caller's file")
    dispatch: Dispatch = "direct"

    @property
    def ends(self) -> dict[str, tuple[str, Key]]:
        return {
            "caller": (self.caller, (self.caller_file, self.caller_line)),
            "callee": (self.callee, (self.callee_file, self.callee_line)),
        }


class PartPitfall(Record):
    """What costs a user time."""

    symbol: str = Field(min_length=1, max_length=LONGEST, description="a name that stands at the line")
    file: str
    line: int = Field(ge=1, description="of the code that is to blame")
    trigger: str = Field(min_length=1, max_length=LONGEST, description="what brings it about; one sentence")
    effect: str = Field(min_length=1, max_length=LONGEST, description="what comes of it; one sentence")
    fix: str = Field(min_length=1, max_length=LONGEST, description="what a user can do; one sentence")

    @property
    def named(self) -> tuple[str, Key]:
        return self.symbol, (self.file, self.line)


class Parts(Record):
    """Everything that a reader names of a code base."""

    parts: list[Part] = Field(default=[], max_length=MOST)
    nesting: list[PartCall] = Field(default=[], max_length=MOST_CALLS, description="the outermost call first")
    pitfalls: list[PartPitfall] = Field(default=[], max_length=MOST_PITFALLS, description="the worst first")
    absent: list[Section | Literal["nesting"]] = Field(default=[], description="sections that the code base has not")

    @property
    def sections(self) -> set[str]:
        """The sections that are the reader's."""
        return {*self.absent, *(each.section for each in self.parts), *([NESTING] if self.nesting else [])}


class NamedParts(Record):
    """Parts with who named them: ``reports/assets/<name>-parts.json``."""

    parts: Parts
    provenance: Provenance


# --- what is wrong with them -----------------------------------------------------------------------------------------


def findings(named: Parts, reading: Reading, lines: Lines) -> list[GateFinding]:
    """Places that do not open, or where what is named does not stand; roles that a section has not."""
    if not (named.sections or named.pitfalls):
        return [_finding("schema", "the parts", "nothing is named, and nothing is said to be absent")]
    files = {each.file for each in named.parts} | {each.file for each in named.pitfalls}
    files |= {end[1][0] for call in named.nesting for end in call.ends.values()}
    if files and files.isdisjoint(reading.roles):
        what = "none of their files is one of the code base that was read: paths are relative to its folder"
        return [_finding("pointer", "the parts", what)]
    wrong = [
        _finding("pointer", f"pitfalls[{number}]", what)
        for number, each in enumerate(named.pitfalls)
        for what in _misplaced(*each.named, reading, lines)
    ]
    return [*_of_parts(named, reading, lines), *_of_calls(named, reading, lines), *wrong]


def _of_parts(named: Parts, reading: Reading, lines: Lines) -> Iterator[GateFinding]:
    seen: set[tuple[str, str, str, Key]] = set()
    things = likely(reading).weighing.things
    for number, part in enumerate(named.parts):
        at, roles = f"parts[{number}]", ROLES[part.section]
        if part.role not in roles:
            yield _finding("schema", at, f"{part.section} has no role {part.role}, but {', '.join(roles)}")
        if part.section in named.absent:
            yield _finding("schema", at, f"{part.section} is said to be absent")
        row = (part.section, part.role, *part.named)
        if row in seen:
            yield _finding("schema", at, f"{part.symbol} is named as {part.role} of {part.section} twice")
        seen.add(row)
        for what in _misplaced(*part.named, reading, lines):
            yield _finding("pointer", at, what)
        thing = things.get(_nearest(things, part))
        defined = thing.qualname if isinstance(thing, Function | Class) else part.symbol
        if _last(defined) == _last(part.symbol) and not _fits(part.symbol, defined):
            yield _finding("pointer", at, f"what is defined there is {defined}")


def _of_calls(named: Parts, reading: Reading, lines: Lines) -> Iterator[GateFinding]:
    if named.nesting and NESTING in named.absent:
        yield _finding("schema", NESTING, "it is said to be absent")
    functions = _functions(reading)
    seen: set[tuple[object, ...]] = set()
    for number, call in enumerate(named.nesting):
        at = f"{NESTING}[{number}]"
        wrong = [what for end in call.ends.values() for what in _misplaced(*end, reading, lines)]
        ends = {name: _function(functions, *end) for name, end in call.ends.items()}
        if not wrong:
            gone = [name for name, end in ends.items() if end is None]
            wrong = [f"the {name} is no function that was read, or has another name" for name in gone]
        yield from (_finding("pointer", at, what) for what in wrong)
        caller = ends["caller"]
        if caller is not None and not caller.line <= call.line <= caller.end:
            what = f"line {call.line} is not within {caller.qualname}, lines {caller.line} to {caller.end}"
            yield _finding("pointer", at, what)
        elif caller is not None and call.dispatch in CALLED_HERE and not _calls_at(reading, caller, call.line):
            yield _finding("pointer", at, f"{caller.qualname} calls nothing within {NEAR} lines of line {call.line}")
        if (row := (*call.ends.items(), call.line)) in seen:
            yield _finding("schema", at, "it is named twice")
        seen.add(row)


def _calls_at(reading: Reading, caller: Function, line: int) -> bool:
    """Whether it, or a function within it, calls something near a line. What C++ calls is not all known."""
    within = (each for each in reading.facts.graphs[caller.file].functions if caller.line <= each.line <= caller.end)
    calls = (call for each in (caller, *within) for call in each.calls)
    return caller.native or any(abs(call.line - line) <= NEAR for call in calls)


def _misplaced(symbol: str, key: Key, reading: Reading, lines: Lines) -> Iterator[str]:
    """What is wrong with a place: at most one thing. A file may have its own name, which need not stand in it."""
    file, line = key
    if file not in reading.roles:
        yield f"{file} is no file of the code base that was read: paths are relative to its folder"
        return
    text = lines(file)
    if line > len(text):
        yield f"{file} has {len(text) - (not text[-1])} lines, not {line}"
    elif symbol != _base(file) and not any(
        _stands(symbol, each) for each in text[max(0, line - 1 - NEAR) : line + NEAR]
    ):
        yield f"{_last(symbol) or symbol} does not stand within {NEAR} lines of {file}:{line}"


def _stands(symbol: str, line: str) -> bool:
    """As a word. A flag that a package makes of an argument stands there without its dashes."""
    flag = symbol[2:].replace("-", "_") if symbol.startswith("--") else ""
    names = [re.escape(each) for each in (_last(symbol), flag) if each]
    return bool(names) and re.search(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)", line) is not None


def _fits(symbol: str, qualname: str) -> bool:
    """``Class.method`` and ``package.Class.method`` are the same."""
    pairs = zip(reversed(_names(symbol)), reversed(_names(qualname)), strict=False)
    return all(one == other for one, other in pairs)


def _names(symbol: str) -> list[str]:
    return re.split(r"\.|::", symbol)


def _last(symbol: str) -> str:
    """``method`` of ``Class.method`` and ``Class::method``."""
    return _names(symbol)[-1]


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def _finding(rule: str, place: str, message: str) -> GateFinding:
    return GateFinding.model_validate({"rule": rule, "message": f"{place}: {message}"})


# --- what they make --------------------------------------------------------------------------------------------------


def rows_with(named: Parts, reading: Reading, ruled: Sequence[Row]) -> list[Row]:
    """The rows of the sections that are the reader's, in the reader's order, and the rules' rows of the others."""
    known = {(row.section, row.key): row for row in ruled}
    kept = [row for row in ruled if row.section not in named.sections]
    found: list[Row] = []
    things = likely(reading).weighing.things
    for number, part in enumerate(named.parts):
        key = _nearest(things, part)
        row = known.get((part.section, key)) or _row(reading, part, key)
        # A name is no reason where a reader says so.
        why = "" if BY_NAME.match(row.why) else row.why
        found.append(
            replace(
                row,
                role=part.role,
                # A destructor stands without its class.
                symbol=escaped(part.symbol, kept="").replace("::~", ".~"),
                why=why,
                rank=number - len(named.parts),
                # The reader says so: it is no candidate.
                chance=None,
            )
        )
    return [*kept, *with_lines(reading, found)]


def placed(named: Parts, reading: Reading) -> Parts:
    """The same with the lines of the definitions that are meant, and each absent section once."""
    things = likely(reading).weighing.things
    parts = [part.model_copy(update={"line": _nearest(things, part)[1]}) for part in named.parts]
    return named.model_copy(update={"parts": parts, "absent": list(dict.fromkeys(named.absent))})


def _nearest(things: Mapping[Key, object], part: Part) -> Key:
    """The definition that is meant, where the place is a line or two beside it."""
    name, given = _last(part.symbol), (part.file, part.line)
    return next((key for key in _around(given) if getattr(things.get(key), "name", "") == name), given)


def _around(key: Key) -> Iterator[Key]:
    """A place, then those beside it, the nearest first."""
    file, line = key
    yield from ((file, line + by) for by in sorted(range(-NEAR, NEAR + 1), key=abs))


def _row(reading: Reading, part: Part, key: Key) -> Row:
    """What no rule found. Of a way to run it is told how it is started only where the code says so."""
    begins, thing = likely(reading).begins, likely(reading).weighing.things.get(key)
    is_begun = part.section == "entry_points" and (thing is not None or key in begins.blocks)
    return Row(part.section, part.role, part.symbol, Place(*key), begins.row(key, thing).why if is_begun else "")


def calls_with(named: Parts, reading: Reading, rows: Sequence[Row], ruled: Sequence[Edge]) -> list[Edge]:
    """The nesting as the reader names it, from the entry points down; else that of the rules."""
    if NESTING not in named.sections:
        return list(ruled)
    functions = _functions(reading)
    found: list[Edge] = []
    for call in named.nesting:
        caller, callee = (_function(functions, *end) for end in call.ends.values())
        if caller is not None and callee is not None:
            read = [each for each in reading.graph.edges.get(caller, ()) if each.callee is callee]
            read.sort(key=lambda each: abs(each.line - call.line))
            edge = read[0] if read else Edge(caller, callee, call.line, call.dispatch)
            # What only a name told before, the reader tells.
            found.append(replace(edge, how=call.dispatch) if edge.how == "name" else edge)
    return list(Paths(reading).among(rows).in_order(found))


def _functions(reading: Reading) -> dict[tuple[str, Key], Function]:
    """By name and place; a class stands for its constructor, or for that of a class that it builds on. What a file runs
    when it is started is ``__main__``, at the block of that name, or has the file's name, at its first line."""
    found = {(each.name, each.key): each for each in reading.graph.functions}
    for file, graph in reading.facts.graphs.items():
        if graph.body is not None:
            found["__main__", (file, graph.main)] = found[_base(file), (file, 1)] = graph.body
    for of in reading.graph.classes:
        made = reading.graph.evaluator.method(of, "__init__")
        if made is not None:
            found[of.name, of.key] = made
    return found


def _function(functions: Mapping[tuple[str, Key], Function], symbol: str, key: Key) -> Function | None:
    """The one of that name that begins at a line, else nearest to it."""
    name = symbol if symbol == _base(key[0]) else _last(symbol)
    found = (functions[name, each] for each in _around(key) if (name, each) in functions)
    return next(
        (each for each in found if not each.qualname or each.name != name or _fits(symbol, each.qualname)), None
    )
