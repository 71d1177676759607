"""An analysis job: one class in its workload and the classes that it calls, callees first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from lmp.analyze.calls import applies_as_constructed, applies_as_given, call_as_spec
from lmp.analyze.execution import Execution
from lmp.analyze.judging import submitted, up_to_date
from lmp.analyze.own import identity
from lmp.analyze.prove import prove
from lmp.analyze.session import WAITING, Outcome, Session, references_of
from lmp.analyze.workloads import own_dtype, specialisations
from lmp.errors import LmpError, NotFound, TraceFailed, VerificationFailed, first_line
from lmp.records import OWN_ENGINE, ModuleAnalysis
from lmp.source.locate import ClassSource
from lmp.store.fingerprint import fingerprint
from lmp.trace.engine import TraceEngine
from lmp.trace.runs import Run
from lmp.workload.arguments import constructor_parameters, holds_given_modules
from lmp.workload.calls import Call
from lmp.workload.load import load_class, quiet_warnings
from lmp.workload.parent_models import shared_with_encoder, takes_config
from lmp.workload.results import Results
from lmp.workload.standalone import StandaloneWorkload

Analyze = Callable[[str], list[Outcome]]
"""Returns the outcomes of a class and its callees: valid stored ones, others made now."""


def run_job(source: ClassSource, session: Session, analyze: Analyze) -> list[Outcome]:
    """Analyse a class and its callees, verify and store them.

    A standalone module has its arguments as variables. Arguments that no formula covers are fixed, fewest first. If
    every attempt fails, raises the TraceFailed or VerificationFailed of the first one.
    """
    session.progress(source.class_path, "tracing")
    results = Results()
    with quiet_warnings():
        first = _Job(source, session, analyze, frozenset(), results)
        tried: set[tuple[frozenset[str], bool]] = set()
        raised: list[TraceFailed | VerificationFailed] = []
        for fixed, general in specialisations(first.workload, lambda: first.specialised):
            if (fixed, general) in tried:
                continue
            tried.add((fixed, general))
            try:
                return (_Job(source, session, analyze, fixed, results) if fixed else first).outcomes(general)
            except (TraceFailed, VerificationFailed) as error:
                raised.append(error)
    raise raised[0]


class _Job:
    """One attempt, with some arguments ``fixed``."""

    def __init__(
        self, source: ClassSource, session: Session, analyze: Analyze, fixed: frozenset[str], results: Results
    ) -> None:
        self.source, self.session, self.analyze = source, session, analyze
        self.execution = Execution(session, source, fixed=fixed, results=results)
        self.workload = self.execution.workload
        self.specialised: frozenset[str] = frozenset()
        """Arguments that the code turned into plain numbers."""

    @functools.cached_property
    def _engine(self) -> TraceEngine:
        """The engine, with the runs that formulas are derived from."""
        engine = self.execution.engine()
        engine.prepare(self.source.class_path)
        self.specialised = frozenset(engine.pinned())
        return engine

    def outcomes(self, general: bool) -> list[Outcome]:
        """The class and its callees. ``general``: only formulas in the sizes of the constructor are accepted."""
        engine, class_path = self._engine, self.source.class_path
        engine.deriver.general = general
        if self.execution.call is not None:
            return [*self._callees_by_themselves(engine), self._prove(engine, class_path)]
        return self._in_this_workload(engine)

    def _prove(self, engine: TraceEngine, class_path: str) -> Outcome:
        """Prove a class in this workload, and store it."""
        session, execution = self.session, self.execution
        source = self.source if class_path == self.source.class_path else session.locate(class_path)
        proof = prove(execution, engine, source)
        analysis = proof.analysis.model_copy(update={"verification": proof.verification})
        files = fingerprint(execution.files({file for file, _ in engine.coverage.lines}, source))
        refers_to = {name: identity(session.lookup(name)) for name in references_of(analysis)}
        made_from = {"fingerprint": files, "refers_to": refers_to, **execution.within(analysis)}
        made_from["quantization"] = session.quantization(class_path)
        analysis = analysis.model_copy(update=made_from)
        return Outcome(analysis, session.save(analysis), reused=False, requested=class_path == self.source.class_path)

    def _know(self, engine: TraceEngine, class_path: str) -> list[Outcome]:
        """Analyse a callee and its callees standalone, and register it so that references to it can be bound."""
        found = self.analyze(class_path)
        for outcome in found:
            self.session.keep(outcome.analysis)
        engine.know(self.session.lookup(class_path), self.session.lookup)
        return [Outcome(o.analysis, o.file, o.reused, requested=False) for o in found]

    def _make(self, class_path: str) -> ModuleAnalysis:
        return next(outcome.analysis for outcome in self.analyze(class_path) if outcome.requested)

    # -- classes that run in one model -----------------------------------------------------------------------------

    def _in_this_workload(self, engine: TraceEngine) -> list[Outcome]:
        """The class and its callees, each proven in this workload unless it is analysed standalone."""
        class_path = self.source.class_path
        if any(isinstance(m, torch.nn.ModuleList) for c in self._own_calls(engine) for m in c.module.modules()):
            engine.deriver.runs.explore_layers()
        callees = self._callees_first(engine)[:-1]
        for name in [name for name in callees if not _is_there(name)]:
            engine.inline(name, "it is made while the model is built and has no source")
            callees.remove(name)
        for name in callees:
            self.session.progress(name, WAITING)
        # If encoder and decoder of another model share classes, one run of that model serves them all.
        for name in reversed(callees):
            if takes_config(load_class(name)) and self._is_elsewhere(name):
                with suppress(TraceFailed, VerificationFailed):  # the next loop meets the same error
                    self.analyze(name)
        found: list[Outcome] = []
        for name in callees:
            if holds_given_modules(load_class(name)):
                engine.inline(name, "it holds modules that it is given")
                continue
            try:
                found += self._know(engine, name) if self._is_elsewhere(name) else [self._prove(engine, name)]
            except (TraceFailed, VerificationFailed) as error:
                if self._by_others(callees):
                    raise  # the submitted analysis may be wrong: its error is not hidden
                # Formulas for any size, or for each call of a module, may fail. Those of its operators in this model
                # may still hold.
                engine.inline(name, first_line(error))
        try:
            return [*found, self._prove(engine, class_path)]
        except (TraceFailed, VerificationFailed) as error:
            if self._by_others(callees):
                raise
            # Without references to other classes: every operator below a call is listed at the line of the call.
            for name in callees:
                engine.inline(name, f"no formulas with references to it hold: {first_line(error)}")
            return [*found, self._prove(engine, class_path)]

    def _own_calls(self, engine: TraceEngine) -> list[Call]:
        calls = [c for c in engine.calls() if c.class_path == self.source.class_path]
        if not calls:
            raise TraceFailed(
                f"{self.source.class_path} is in the model, but its forward() is not executed on the inference path."
            )
        return calls

    def _callees_first(self, engine: TraceEngine) -> list[str]:
        """The requested class and its direct and indirect callees, callees before callers."""
        own = {id(c) for c in self._own_calls(engine)}
        below: dict[str, int] = {}
        for call in engine.calls():
            depth = 0
            ancestor: Call | None = call
            while ancestor is not None and id(ancestor) not in own:
                ancestor, depth = ancestor.parent, depth + 1
            if ancestor is not None:
                below[call.class_path] = max(below.get(call.class_path, 0), depth)
        return sorted(below, key=lambda name: -below[name])

    def _by_others(self, callees: Sequence[str]) -> bool:
        """True if lmp did not derive the analysis of one of these classes or of the requested class."""
        known = (self.session.known.get(name) for name in (*callees, self.source.class_path))
        return any(analysis is not None and analysis.engine != OWN_ENGINE for analysis in known)

    def _is_elsewhere(self, class_path: str) -> bool:
        """True if a callee is not analysed in this run: it is analysed standalone, or its analysis was submitted.

        Analyses stored by other runs may be for other masks, inputs and paths: a text model called with embeddings, for
        example. The cost of a model must not depend on earlier analyses.
        """
        if class_path in self.session.known or self._is_by_itself(class_path):
            return True
        stored = self.session.reusable(class_path) or submitted(class_path, self.session, self._make)
        return stored is not None and stored.engine != OWN_ENGINE

    def _is_by_itself(self, class_path: str) -> bool:
        """True if a callee is analysed standalone: it takes plain numbers, or serves encoder and decoder."""
        cls = load_class(class_path)
        if takes_config(cls):
            return not self.workload.has_encoder and shared_with_encoder(cls)
        return self._runs_alone(cls)

    def _runs_alone(self, cls: type[torch.nn.Module]) -> bool:
        try:
            StandaloneWorkload(cls, own_dtype(self.session, self.execution.call))
        except LmpError:
            return False
        return True

    # -- classes that a class of the user's own calls --------------------------------------------------------------

    def _callees_by_themselves(self, engine: TraceEngine) -> list[Outcome]:
        """Analyse and register the classes of direct calls, and of calls inside inlined ones."""
        found: list[Outcome] = []
        runs = engine.deriver.runs
        seen: set[str] = set()
        for run in (*runs.symbolic, *runs.concrete):
            inlined = {c.index for c in run.calls_of(self.source.class_path)}
            for call in run.recording.calls:
                if call.parent is None or call.parent.index not in inlined:
                    continue
                if call.class_path not in seen:
                    seen.add(call.class_path)
                    found += self._callee(engine, call, run)
                if not engine.applies(call, run):
                    inlined.add(call.index)
        return found

    def _callee(self, engine: TraceEngine, call: Call, run: Run) -> list[Outcome]:
        """Register a callee at the engine, or inline it with the reason."""
        class_path, session = call.class_path, self.session
        if class_path == self.source.class_path or "<locals>" in class_path:
            why = "it is defined in a function" if "<locals>" in class_path else "it is called by itself"
            engine.inline(class_path, why)
            return []
        own_code = self.execution.call is not None and self.execution.call.module is not None
        try:
            if session.is_own(class_path) or (own_code and not class_path.startswith("torch.")):
                return self._own_callee(engine, call, run)
            if not self._stands_alone(class_path):
                engine.inline(class_path, "it does not run by itself")
                return []
            found = self._know(engine, class_path)
        except LmpError as error:
            engine.inline(class_path, first_line(error))
            return []
        analysis = session.lookup(class_path)
        engine.know(analysis, session.lookup, applies_as_constructed(analysis))
        return found

    def _stands_alone(self, class_path: str) -> bool:
        """True if a class of PyTorch or transformers is analysed on its own inputs."""
        cls = load_class(class_path)
        if any(p.kind is p.VAR_POSITIONAL for p in constructor_parameters(cls).values()):
            return False  # the formulas of nn.Sequential depend on its contents
        if up_to_date(class_path, self.session, self._make) is not None:
            return True
        if not class_path.startswith("torch."):
            return self._is_by_itself(class_path)
        StandaloneWorkload(cls, own_dtype(self.session, self.execution.call))
        return True

    def _own_callee(self, engine: TraceEngine, call: Call, run: Run) -> list[Outcome]:
        """A user's own class: its stored analysis if that applies to this call, else one made from the call."""
        session, class_path = self.session, call.class_path
        session.classes.setdefault(class_path, type(call.module))
        known = up_to_date(class_path, session, self._make)
        if known is not None and not applies_as_given(known, self.execution)(call):
            engine.inline(class_path, "its stored analysis is of other arguments or inputs")
            return []
        if known is None:
            own = call_as_spec(call, run, self.execution)
            if own is None:
                engine.inline(class_path, "its arguments or inputs cannot be written as --init and --inputs")
                return []
            session.own[session.locate(class_path).class_path] = own
        outcomes = self._know(engine, class_path)
        known = session.lookup(class_path)
        engine.know(known, session.lookup, applies_as_given(known, self.execution))
        return outcomes


def _is_there(class_path: str) -> bool:
    """True if a class can be imported by its path."""
    try:
        load_class(class_path)
    except NotFound:
        return False
    return True
