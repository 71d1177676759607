"""The facts of a class for its prompt: its source, its constructor's arguments, and how it will be executed.

`read_facts` reads the sources; ``execution`` makes `Executed`. Counted numbers are never part of it: an answer must
come from reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from lmp.records import ModuleAnalysis
from lmp.source.constructed import constructed_classes
from lmp.source.lines import FunctionSource, called_functions, forward_lines
from lmp.source.locate import ClassSource
from lmp.source.quoting import SourceRange, config_names, constructors, escaped, numbered
from lmp.source.trees import Trees

MOST_LINES = 250
"""Lines of one function that a prompt quotes; the rest can be read with read_source."""

Located = tuple[str, int]
"""A file as analyses name it, and a line of it."""


@dataclass(frozen=True)
class CallAt:
    """A call of the class at one verification point; equal calls are one."""

    number: int
    """Of the point, from 1."""
    point: str
    """The point's label with batch_size, seq_len and cache_len."""
    changed: Mapping[str, int]
    """Config values or arguments that differ from the class's own."""
    inputs: tuple[str, ...]
    """One line an argument of forward(): name, shape, dtype, strides where it is not contiguous."""
    times: int = 1


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
    called: tuple[str, ...]
    """Classes of the modules that it called."""
    asked: tuple[FunctionSource, ...] = ()
    """Functions without operators that the others called: their results may decide which path is taken."""


@dataclass(frozen=True)
class CalledClass:
    """A called class, with what a reference to it needs."""

    class_path: str
    parameters: Mapping[str, str]
    takes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    assumptions: Sequence[str] = ()
    missing: str = ""
    """Why nothing is known: it has no analysis."""

    @classmethod
    def of(cls, analysis: ModuleAnalysis) -> Self:
        return cls(analysis.class_name, analysis.parameters, analysis.interface, analysis.assumptions)

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

    def ran(self, function: FunctionSource, first: int, last: int) -> str:
        """The points at which a statement ran, in words; empty if that is all of them, or nothing was executed."""
        if self.executed is None:
            return ""
        lines = ((function.file, line) for line in range(first, last + 1))
        points = sorted(frozenset().union(*(self.executed.ran.get(line, frozenset()) for line in lines)))
        if not points:
            return "not run: "
        if len(points) == self.executed.points:
            return ""
        return f"only at point{'s' if len(points) > 1 else ''} {', '.join(map(str, points))}: "


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
    parts = [_quoted(facts.forward), *map(_quoted, ran)]
    asked = facts.executed.asked if facts.executed is not None else ()
    if asked:
        parts.append(
            f"Called from there too, with no operator in them; what they return may decide:\n\n{_listed(asked)}"
        )
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
        return "Config values that it reads: none."
    values = "\n".join(f"- config.{name} = {escaped(repr(facts.config[name]))}" for name in names)
    return f"Config values that it reads ({facts.origin}):\n\n{values}"


def statements_text(facts: Facts) -> str:
    """Every computational statement, by function, and at which points it ran where that is not all of them."""
    ran = [f for f in facts.functions if _did_run(facts, f)]
    return "\n\n".join(statements_of(function, facts) for function in (facts.forward, *ran))


def statements_of(function: FunctionSource, facts: Facts | None = None) -> str:
    lines = [f"`{function.qualname}` in {function.file}:", ""]
    for s in function.statements:
        span = f"{s.first}-{s.last}" if s.last > s.first else f"{s.first}"
        when = facts.ran(function, s.first, s.last) if facts is not None else ""
        lines.append(f"- {span}: {when}`{escaped(s.code)}`")
    return "\n".join(lines if function.statements else [*lines, "- none"])


def execution_text(facts: Facts) -> str:
    """How the judge will call the class, or why it cannot."""
    if facts.executed is None:
        why = escaped(facts.why_not) or "nothing is known about it"
        return f"It cannot be executed here: {why}\nSo nothing is compared with execution. Be all the more careful."
    parts = [
        f"Executed on the meta device, {facts.setting}. What `self` is:",
        *[f"- {x}" for x in facts.executed.instance],
    ]
    parts.append(
        "\nThe points that formulas are compared at, and what forward() is given at each. A submission is compared at "
        "other sizes as well, which are drawn for it: formulas must hold for all."
    )
    for call in facts.executed.calls:
        changed = _changed(facts, call)
        times = f" ({call.times} calls alike)" if call.times > 1 else ""
        parts.append(f"\n{call.number}. {call.point}{times}{f'; with {changed}' if changed else ''}")
        parts += [f"  - {line}" for line in call.inputs]
    return "\n".join(parts)


def _changed(facts: Facts, call: CallAt) -> str:
    """The values that differ at a point: config values that the class reads, and all others."""
    read = set(config_names([*facts.constructors, *_places(facts)]))
    shown = [
        f"{name}={value}"
        for name, value in call.changed.items()
        if not name.startswith("config.") or name.rpartition(".")[2] in read
    ]
    return ", ".join(shown)


def callees_text(callees: Sequence[CalledClass]) -> str:
    return "\n\n".join(str(callee) for callee in callees) or "It calls no module."


def _did_run(facts: Facts, function: FunctionSource) -> bool:
    """Whether a function is quoted: it ran, or nothing was executed."""
    return facts.executed is None or function in facts.executed.functions


def _places(facts: Facts) -> list[SourceRange]:
    functions = [facts.forward, *(f for f in facts.functions if _did_run(facts, f))]
    return [SourceRange(f.qualname, f.tree or facts.source.forward_tree, f.path, f.lines) for f in functions]


def _quoted(function: FunctionSource) -> str:
    assert function.tree is not None
    return _block(
        f"`{function.qualname}`: {function.file}",
        SourceRange(function.qualname, function.tree, function.path, function.lines),
    )


def _block(title: str, place: SourceRange) -> str:
    first, last = place.lines
    shown = min(last, first + MOST_LINES - 1)
    more = f"\n… up to line {last}: read_source shows the rest" if shown < last else ""
    return f"{title}\n\n```text\n{numbered(place.path, first, shown)}{more}\n```"
