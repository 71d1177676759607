"""The trace engine's derivation of a class whose analysis was handed in, and both analyses in the same variables."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmp.analyze.session import references_of
from lmp.errors import LmpError, first_line
from lmp.formula import Condition, Expr
from lmp.records import Lookup, ModuleAnalysis
from lmp.trace.engine import TraceEngine
from lmp.verify.points import PointKind
from lmp.workload.paths import Unresolvable, resolve

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution
    from lmp.analyze.session import Session
    from lmp.trace.runs import Run


@dataclass(frozen=True)
class Derivation:
    """What the trace engine derives for a class. ``proven``: it equals execution at the held-out points."""

    analysis: ModuleAnalysis
    engine: TraceEngine
    proven: bool
    arms_at: Sequence[Mapping[str, int]] = ()
    """Values of all variables where an arm of its formulas was executed."""


@dataclass(frozen=True)
class View:
    """Variables of two analyses at one call of a run, as formulas of the workload's variables.

    ``conditions``: the comparisons on the run's path, with their results. ``plain``: variables that were numbers.
    """

    own: Mapping[str, Expr | int]
    other: Mapping[str, Expr | int]
    conditions: tuple[tuple[Condition, bool], ...]
    plain: Mapping[str, int]
    run: int
    """Number of the run: its calls have the same conditions."""


def derivation_or_reason(execution: Execution, analysis: ModuleAnalysis) -> Derivation | str:
    """The derivation of the class of an analysis, or why there is none."""
    try:
        return derive(execution, analysis)
    except LmpError as error:
        return first_line(error)


def derive(execution: Execution, analysis: ModuleAnalysis) -> Derivation:
    """The derivation of the class of an analysis, with the same references as far as they hold.

    Raises TraceFailed if the engine derives nothing.
    """
    first: Derivation | None = None
    failed: LmpError | None = None
    callees = [execution.session.lookup(name) for name in references_of(analysis)]
    with execution.session.instead({}), _without_progress(execution.session):
        tries = [(callees, _as_made), (callees, _for_each_call)] if callees else []
        # Without references, every operator below a call stands at the line of the call.
        for referred, register in [*tries, ([], _as_made)]:
            try:
                found = _derived(execution, referred, register)
            except LmpError as error:
                failed = failed or error
                continue
            if found.proven:
                return found
            first = first or found
    if first is None:
        assert failed is not None
        raise failed
    return first


def other_base(execution: Execution) -> dict[str, int]:
    """Other values of the config or arguments at which the class runs, from a judged point. Empty if none has any."""
    own = execution.workload.hints
    fixed = {*execution.workload.full_layers, *execution.workload.flags}
    for point in execution.held_out:
        found = {n: v for n, v in point.values.items() if n in own and n not in fixed and v != own[n]}
        if point.kind is PointKind.SYNTHETIC and found:
            return found
    return {}


def derive_from(base: Mapping[str, int], execution: Execution, analysis: ModuleAnalysis) -> Derivation:
    """A second derivation: its runs start at the values of ``base`` instead of the config's own.

    Raises TraceFailed if the engine derives nothing there.
    """
    other = _twin(execution)
    other.workload = copy.copy(execution.workload)
    other.workload.hints = {**execution.workload.hints, **base}
    for name in ("_held_out", "literals", "_mixed", "_compared", "_numbers", "_modules", "comparisons"):
        other.__dict__.pop(name, None)  # points and modules at the values before
    return derive(other, analysis)


def _as_made(engine: TraceEngine, analysis: ModuleAnalysis, lookup: Lookup) -> None:
    """Register an analysis for the calls that it covers: one made standalone folds the leading dimensions of a call."""
    if analysis.within is None:
        engine.know(analysis, lookup)
    else:
        engine.refer(analysis)


def _for_each_call(engine: TraceEngine, analysis: ModuleAnalysis, lookup: Lookup) -> None:
    """Register an analysis for every call of its class."""
    engine.refer(analysis)


@contextmanager
def _without_progress(session: Session) -> Iterator[None]:
    """While active, the session reports no steps: those of a second derivation are not the user's."""
    before, session.progress = session.progress, lambda name, stage: None
    try:
        yield
    finally:
        session.progress = before


def _derived(
    execution: Execution,
    callees: Iterable[ModuleAnalysis],
    register: Callable[[TraceEngine, ModuleAnalysis, Lookup], None],
) -> Derivation:
    """A derivation with references to the ``callees``, each registered at the engine."""
    from lmp.analyze.prove import prove

    twin, source = _twin(execution), execution.source
    engine = twin.engine()
    engine.prepare(source.class_path)
    for callee in callees:
        register(engine, callee, execution.session.lookup)
    with suppress(LmpError):
        proof = prove(twin, engine, source)
        if proof.verification.status == "verified":
            arms_at = [point.values for point in twin.extra if point not in execution.extra]
            return Derivation(proof.analysis, engine, proven=True, arms_at=arms_at)
    return Derivation(engine.analyse(source.class_path, source.record(), lambda full: ()), engine, proven=False)


def _twin(execution: Execution) -> Execution:
    """An execution that shares all runs with this one, and that may keep other values at its points."""
    twin = copy.copy(execution)
    twin.kept = set(execution.kept)
    twin._changed = {}
    twin.extra = list(execution.extra)
    return twin


def views(derivation: Derivation, other: ModuleAnalysis) -> list[View]:
    """Both analyses' variables at each call of the class in the symbolic runs, each combination once."""
    found: list[View] = []
    for number, run in enumerate(derivation.engine.deriver.runs.symbolic):
        conditions = tuple((condition, asked.holds) for asked, condition in run.conditions)
        plain = {name: value for name, value in run.values.items() if isinstance(value, int)}
        seen: set[Any] = set()
        for own, its in _variables(run, derivation.analysis, other):
            key = (tuple(sorted(own.items())), tuple(sorted(its.items())))
            if key not in seen:
                seen.add(key)
                found.append(View(own, its, conditions, plain, number))
    return found


def _variables(
    run: Run, own: ModuleAnalysis, other: ModuleAnalysis
) -> Iterator[tuple[dict[str, Expr | int], dict[str, Expr | int]]]:
    config = getattr(run.model, "config", None)
    for call in run.calls_of(own.class_name):
        with suppress(Unresolvable):
            mine, its = (
                {n: resolve(n, path, call, run.values, run.size, config) for n, path in analysis.parameters.items()}
                for analysis in (own, other)
            )
            yield mine, its
