"""The facts of a class for its prompt: its source, its constructor's arguments, and how it will be executed.

`read_facts` reads the sources; ``execution`` makes `Executed`. Counted numbers are never part of it: an answer must
come from reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from lmp.agents.excerpt import LEFT_OUT, excerpt
from lmp.agents.points import CallAt, PointSets, calls_text, points_text, ranges
from lmp.records import ModuleAnalysis
from lmp.source.constructed import constructed_classes
from lmp.source.lines import FunctionSource, called_functions, forward_lines
from lmp.source.locate import ClassSource
from lmp.source.quoting import SourceRange, config_names, constructors, escaped
from lmp.source.trees import Trees

MOST_LINES = 250
"""Lines of one function that a prompt quotes; the rest can be read with read_source."""

SHORT = 16
"""Lines of a function that only decides something, up to which it is quoted."""

Located = tuple[str, int]
"""A file as analyses name it, and a line of it."""


@dataclass(frozen=True)
class Executed:
    """What execution at the verification points shows of the class."""

    calls: tuple[CallAt, ...]
    instance: tuple[str, ...]
    """What ``self`` holds at the class's own values: plain attributes, own parameters, modules with their arguments."""
    ran: Mapping[Located, frozenset[int]]
    """Line of this class's own work -> the points at which it ran. Lines of modules that it calls are not included."""
    points: int
    """Number of points at which the class was called."""
    functions: tuple[FunctionSource, ...]
    """Plain functions that ran, of any file of the tree."""
    called: Mapping[str, tuple[CallAt, ...]]
    """Classes of the modules that it called, with their calls."""
    asked: tuple[FunctionSource, ...] = ()
    """Functions without operators that the others called: their results may decide which path is taken."""
    operators: frozenset[str] = frozenset()
    """Names of the operators that ran in it, those of modules that it calls included."""


@dataclass(frozen=True)
class CalledClass:
    """A called class, with what a reference to it needs."""

    class_path: str
    parameters: Mapping[str, str]
    takes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    assumptions: Sequence[str] = ()
    missing: str = ""
    """Why nothing is known: it has no analysis."""
    dtype: str | None = None
    """Of the tensors at which its analysis was verified."""

    @classmethod
    def of(cls, analysis: ModuleAnalysis) -> Self:
        found = analysis.interface, analysis.assumptions
        return cls(analysis.class_name, analysis.parameters, *found, dtype=analysis.dtype)

    def __str__(self) -> str:
        if self.missing:
            return f"{self.class_path}\n  {self.missing}"
        names = ", ".join(f"{name} ({path})" for name, path in self.parameters.items()) or "none"
        lines = [self.class_path, f"  parameters, all to be bound: {names}"]
        lines += [f"  takes {name}: [{', '.join(shape)}]" for name, shape in self.takes.items()]
        lines += [f"  assumes {condition}" for condition in self.assumptions]
        bound = ", ".join(f"{name}=…" for name in self.parameters)
        return "\n".join([*lines, f"  reference: ${{{{{self.class_path}}}}}({bound})"])


@dataclass(frozen=True)
class Facts:
    """Everything that a prompt says of a class."""

    source: ClassSource
    forward: FunctionSource
    functions: tuple[FunctionSource, ...]
    """Plain functions that forward() may call, those that ran first."""
    constructors: tuple[SourceRange, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    """Plain values of the config at which it is analysed."""
    origin: str = ""
    """Origin of that config."""
    setting: str = ""
    """Dtype and attention implementation of its execution."""
    executed: Executed | None = None
    why_not: str = ""
    """Why it is not executed here; its analysis is stored as unverified then."""
    callees: tuple[CalledClass, ...] = ()

    def ran_at(self, function: FunctionSource, first: int, last: int) -> frozenset[int] | None:
        """The points at which a statement ran; None if nothing was executed."""
        if self.executed is None:
            return None
        lines = ((function.file, line) for line in range(first, last + 1))
        return frozenset().union(*(self.executed.ran.get(line, frozenset()) for line in lines))

    def ran(self, function: FunctionSource, first: int, last: int) -> str:
        """The points at which a statement ran, in words; empty if that is all of them, or nothing was executed."""
        points = self.ran_at(function, first, last)
        if points is None or (self.executed is not None and len(points) == self.executed.points):
            return ""
        if not points:
            return "not run: "
        return f"only at point{'s' if len(points) > 1 else ''} {ranges(points)}: "

    @property
    def sets(self) -> PointSets:
        """Names for sets of the points."""
        return PointSets(call.number for call in (self.executed.calls if self.executed is not None else ()))


def read_facts(source: ClassSource, trees: Trees, executed: Executed | None = None, **more: Any) -> Facts:
    """The facts that are read from the sources, with those of execution. ``more`` are fields of `Facts`."""
    found = called_functions(source, trees)
    functions = list(executed.functions) if executed is not None else []
    there = {(function.path.resolve(), function.lines) for function in functions}
    there.add((source.forward_path.resolve(), source.lines))
    functions += [f for f in found if (f.path.resolve(), f.lines) not in there]
    built = tuple(constructors(source.class_path, trees))
    return Facts(source, forward_lines(source), tuple(functions), built, executed=executed, **more)


def called_classes(source: ClassSource, trees: Trees, executed: Executed | None) -> list[str]:
    """Classes that references may name: those that were called, then those that the constructor names."""
    called = executed.called if executed is not None else ()
    return list(dict.fromkeys([*called, *constructed_classes(source, trees)]))


# --- as text ---------------------------------------------------------------------------------------------------------


def source_text(facts: Facts) -> str:
    """forward(), then the functions that it calls, each with its numbered lines."""
    ran = [f for f in facts.functions if _did_run(facts, f)]
    others = [f for f in facts.functions if f not in ran]
    parts = [LEFT_OUT, *(_quoted(function, facts) for function in (facts.forward, *ran))]
    asked = facts.executed.asked if facts.executed is not None else ()
    short = [f for f in asked if f.lines[1] - f.lines[0] < SHORT and f.tree is not None]
    if asked:
        parts.append("Called from there too, with no operator in them; what they return may decide:")
        parts += [_quoted(function, facts) for function in short]
        parts += [text for text in [_listed([f for f in asked if f not in short])] if text]
    if others:
        parts.append(f"Named in the source, and run at no verification point:\n\n{_listed(others)}")
    return "\n\n".join(parts)


def _listed(functions: Sequence[FunctionSource]) -> str:
    return "\n".join(f"- {f.qualname}: {f.file}, lines {f.lines[0]}-{f.lines[1]}" for f in functions)


def constructor_text(facts: Facts) -> str:
    """The constructors, and the config values that they and the class's own functions read."""
    parts = [_block(f"`{place.name}`: {place.file}", place) for place in facts.constructors]
    return "\n\n".join([*parts, config_text(facts, [*facts.constructors, *_places(facts)])])


def config_text(facts: Facts, places: list[SourceRange]) -> str:
    """The config's values that the given source reads, one a line."""
    names = [name for name in config_names(places) if name in facts.config]
    if not names:
        read = ", ".join(config_names(places))
        return (
            f"Config values that it reads, of unknown value: {read}." if read else "Config values that it reads: none."
        )
    values = "\n".join(f"- config.{name} = {escaped(repr(facts.config[name]))}" for name in names)
    return f"Config values that it reads ({facts.origin}):\n\n{values}"


def statements_text(facts: Facts, sets: PointSets) -> str:
    """The lines of all computational statements, by function and by the points at which they ran."""
    ran = [f for f in facts.functions if _did_run(facts, f)]
    return "\n".join(_lines_of(function, facts, sets) for function in (facts.forward, *ran))


def _lines_of(function: FunctionSource, facts: Facts, sets: PointSets) -> str:
    groups: dict[str, list[str]] = {}
    for s in function.statements:
        points = facts.ran_at(function, s.first, s.last)
        all_of_them = points is None or len(points) == (facts.executed.points if facts.executed is not None else 0)
        when = "" if all_of_them else f"only at {sets.name(points)}: " if points else "not run: "
        groups.setdefault(when, []).append(f"{s.first}-{s.last}" if s.last > s.first else f"{s.first}")
    groups = dict(sorted(groups.items(), key=lambda group: group[0] != ""))  # those that always run come first
    said = "; ".join(f"{when}{', '.join(lines)}" for when, lines in groups.items())
    return f"- `{function.qualname}` in {function.file}: {said or 'none'}"


def statements_of(function: FunctionSource, facts: Facts | None = None) -> str:
    lines = [f"`{function.qualname}` in {function.file}:", ""]
    for s in function.statements:
        span = f"{s.first}-{s.last}" if s.last > s.first else f"{s.first}"
        when = facts.ran(function, s.first, s.last) if facts is not None else ""
        lines.append(f"- {span}: {when}`{escaped(s.code)}`")
    return "\n".join(lines if function.statements else [*lines, "- none"])


def execution_text(facts: Facts, sets: PointSets) -> str:
    """How the judge will call the class, or why it cannot."""
    if facts.executed is None:
        why = escaped(facts.why_not) or "nothing is known about it"
        return f"It cannot be executed here: {why}\nSo nothing is compared with execution. Be all the more careful."
    parts = [
        f"Executed on the meta device, {facts.setting}. What `self` is:",
        *[f"- {x}" for x in facts.executed.instance],
    ]
    calls = facts.executed.calls
    names = ", ".join(calls[0].runtime) if calls else ""
    parts.append(
        f"\nThe points that formulas are compared at: number, kind, ({names}), and what differs there of what the "
        "class reads. A submission is compared at other sizes as well, drawn for it: formulas must hold for all.\n"
    )
    read = _read(facts)
    parts += points_text(calls, read)
    parts.append("\nWhat forward() is given:\n")
    parts += [f"- {line}" for line in calls_text(calls, sets, read)]
    named = str(sets)
    if named:
        parts.append(f"\nSets of points: {named}.")
    return "\n".join(parts)


def _read(facts: Facts) -> set[str]:
    """The values that the class reads: those of its config, and all others that points change."""
    read = {f"config.{name}" for name in config_names([*facts.constructors, *_places(facts)])}
    calls = facts.executed.calls if facts.executed is not None else ()
    others = {name for call in calls for name in (*call.changed, *call.sizes) if not name.startswith("config.")}
    return read | others


def callees_text(callees: Sequence[CalledClass], facts: Facts | None = None, sets: PointSets | None = None) -> str:
    """The called classes, and how the class of ``facts`` calls them."""
    shown = []
    for callee in callees:
        text = str(callee)
        if facts is not None and facts.executed is not None and sets is not None:
            calls = facts.executed.called.get(callee.class_path, ())
            text += "".join(f"\n  called here: {line}" for line in calls_text(calls, sets, _read(facts)))
            text += "".join(f"\n  DOES NOT FIT here: {why}" for why in misfits(callee, calls))
        shown.append(text)
    return "\n\n".join(shown) or "It calls no module."


def misfits(callee: CalledClass, calls: Sequence[CallAt]) -> list[str]:
    """Why a callee's analysis does not apply to some of these calls, as far as the inputs tell."""
    if callee.missing or not callee.takes:
        return []
    found: dict[str, None] = {}
    for given in (given for call in calls for given in call.inputs if given.shape is not None):
        if given.name not in callee.takes:
            found[f"it is called with {given.name}, which its analysis has not"] = None
        elif callee.dtype is not None and "float" in given.what and given.what != callee.dtype:
            found[f"{given.name} is {given.what}, and its analysis is for {callee.dtype}"] = None
    return list(found)


def _did_run(facts: Facts, function: FunctionSource) -> bool:
    """Whether a function is quoted: it ran, or nothing was executed."""
    return facts.executed is None or function in facts.executed.functions


def _places(facts: Facts) -> list[SourceRange]:
    functions = [facts.forward, *(f for f in facts.functions if _did_run(facts, f))]
    return [SourceRange(f.qualname, f.tree or facts.source.forward_tree, f.path, f.lines) for f in functions]


def _quoted(function: FunctionSource, facts: Facts) -> str:
    """A function; of one in another file without the statements that ran at no point, which nothing is due for."""
    assert function.tree is not None
    idle: list[int] = []
    if function.file != facts.forward.file:
        for s in function.statements:
            if facts.ran_at(function, s.first, s.last) == frozenset():
                idle += range(s.first, s.last + 1)
    place = SourceRange(function.qualname, function.tree, function.path, function.lines)
    return _block(f"`{function.qualname}`: {function.file}", place, idle)


def _block(title: str, place: SourceRange, idle: Sequence[int] = ()) -> str:
    first, last = place.lines
    shown = min(last, first + MOST_LINES - 1)
    more = f"\n… up to line {last}: read_source shows the rest" if shown < last else ""
    if idle:
        more += f"\n(without lines {ranges(idle)}, which ran at no point)"
    return f"{title}\n\n```text\n{excerpt(place.path, first, shown, idle)}{more}\n```"
