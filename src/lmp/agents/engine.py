"""The agent engine over a whole command: the order of classes, waiting for one another, storing, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, TypeVar

from lmp.agents.attempts import Attempts
from lmp.agents.base import ANALYZER, EXPANDER, Agent, StageName, Verdict
from lmp.agents.facts import CalledClass, Facts
from lmp.agents.gate import AnalysisVerdict, Gate
from lmp.agents.gate.bindings import BindingGate, BindingVerdict, OpenReference
from lmp.agents.prompts import analyzer_prompt, facts_of, prompt_of_open
from lmp.agents.run import Run, conversation_key
from lmp.agents.stage import Brief, Stage
from lmp.agents.subject import ClassSubject
from lmp.agents.tools import analyzer_tools, expander_tools
from lmp.analyze.judging import judged_again, up_to_date
from lmp.analyze.models import is_foreign
from lmp.analyze.session import Session
from lmp.errors import AgentUnavailable, CapReached, InvalidAnalysis, LmpError, Missing, NotFound, Refused
from lmp.records import GateFinding, HandIn, Kernel, ModuleAnalysis, Provenance, Verification
from lmp.source.constructed import constructed_classes
from lmp.source.locate import ClassSource
from lmp.source.trees import Trees

T = TypeVar("T")


# --- the order of classes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """A class to be analysed, and the classes of the plan that come before it."""

    source: ClassSource
    after: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.source.class_path


def plan(
    class_paths: Sequence[str], locate: Callable[[str], ClassSource], trees: Trees, stored: Callable[[str], bool]
) -> list[Planned]:
    """The classes to analyse: requested ones and those that they construct, without stored ones; called ones first.

    A class that only execution or reading shows, as one from a registry, is not in it: it is analysed once it is
    referred to. Raises NotFound for a class that is not in the sources.
    """
    found: dict[str, ClassSource] = {}
    after: dict[str, tuple[str, ...]] = {}

    def enter(class_path: str, above: tuple[str, ...]) -> str | None:
        """The class's own path if it is to be analysed; None for one that constructs itself, or is stored."""
        source = locate(class_path)
        name = source.class_path
        if name in above or stored(name):
            return None
        if name not in found:
            found[name] = source
            inner = (enter(called, (*above, name)) for called in constructed_classes(source, trees))
            after[name] = tuple(called for called in inner if called is not None)
        return name

    for class_path in class_paths:
        enter(class_path, ())
    return [Planned(found[name], after[name]) for name in TopologicalSorter(_without_circles(after)).static_order()]


def _without_circles(after: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The order without cycles: classes that construct one another wait in one direction only."""
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        after[name] = tuple(called for called in after[name] if called not in (*above, name))
        for called in after[name]:
            if called not in done:
                visit(called, (*above, name))
        done.add(name)

    for name in list(after):
        if name not in done:
            visit(name, ())
    return after


# --- the agents at work ----------------------------------------------------------------------------------------------


class AgentWork:
    """The agents of one command, over one session and one run."""

    def __init__(self, session: Session, run: Run, agent: Agent) -> None:
        self.session, self.run, self.agent = session, run, agent
        self.failed: dict[str, LmpError] = {}
        self._tasks: dict[str, asyncio.Task[ModuleAnalysis]] = {}
        self._waits: dict[str, set[str]] = {}
        self._subjects: dict[str, ClassSubject] = {}
        for name in run.state.done:  # of a resumed run: not made again, whatever --fresh says
            found = session.stored(name)
            if found is not None:
                session.keep(found)

    # -- stage 1: modules ------------------------------------------------------------------------------------------

    async def analyse(self, class_paths: Sequence[str]) -> list[ModuleAnalysis]:
        """The analyses of these classes, made together with those of the classes that they construct.

        If one fails, the others continue; the first failure is raised in the end. Raises what `Stage.through` does.
        """
        await self._begin(class_paths)
        wanted = [self._own_name(class_path) for class_path in class_paths]
        try:
            await self._settle(self._tasks.values())
        except BaseException:
            await self._stop()
            raise
        if self.failed:
            raise next(iter(self.failed.values()))
        return [self.session.lookup(name) for name in wanted]

    def _own_name(self, class_path: str) -> str:
        return self.session.locate(class_path).class_path

    def _has(self, class_path: str) -> bool:
        """Whether a class has an analysis that need not be made again. It is judged again where that is due."""
        return up_to_date(class_path, self.session, self.session.lookup) is not None

    async def _begin(self, class_paths: Sequence[str]) -> None:
        """Start a task for each class that is to be analysed, called ones first."""
        session = self.session
        missing = await self._execute(lambda: plan(class_paths, session.locate, session.trees, self._has))
        for planned in missing:
            if planned.name not in self._tasks:
                self._tasks[planned.name] = asyncio.create_task(self._run_task(planned), name=planned.name)
        self._count_unfinished()

    def _count_unfinished(self) -> None:
        self.run.unfinished = max(1, sum(not task.done() for task in self._tasks.values()))

    async def _settle(self, tasks: Iterable[asyncio.Task[ModuleAnalysis]]) -> None:
        """Wait for all of them, and collect the failures."""
        await asyncio.gather(*tasks, return_exceptions=True)
        for name, task in self._tasks.items():
            if task.done() and not task.cancelled() and task.exception() is not None:
                error = task.exception()
                if not isinstance(error, LmpError):
                    raise error if error is not None else AssertionError
                self.failed.setdefault(name, error)

    async def _stop(self) -> None:
        """End every agent that is at work, and wait until its process has ended."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run_task(self, planned: Planned) -> ModuleAnalysis:
        """Analyse a class. If no agent can run at all, cancel the tasks of the other classes."""
        try:
            analysis = await self._analyse(planned)
            self._count_unfinished()
            return analysis
        except AgentUnavailable as error:
            if not isinstance(error, CapReached):  # no other agent can run either
                self.failed.setdefault(planned.name, error)
                for other in self._tasks.values():
                    if other is not asyncio.current_task():
                        other.cancel()
            raise
        except (Refused, NotFound):
            self.run.close(planned.name, ANALYZER)
            raise

    async def _analyse(self, planned: Planned) -> ModuleAnalysis:
        for called in planned.after:
            await self._wait(planned.name, called)
        name, source = planned.name, planned.source
        judged = await self._execute(lambda: judged_again(name, self.session, self.session.lookup))
        if judged is not None:  # the classes that it refers to are there only now
            self.session.keep(judged)
            return judged
        self.run.event(name, ANALYZER, {"event": "reads"})
        subject, facts = await self._execute(lambda: self._read(planned))
        attempts = self._attempts(name, ANALYZER, Gate(subject).check, "submit_analysis")
        tools = analyzer_tools(
            facts,
            lambda: self.session.trees,
            attempts.try_out,
            attempts.submit,
            attempts.give_up,
            lambda asked: self._analysis_of(asked, attempts),
        )
        prompt = analyzer_prompt(facts, self.session.trees)
        brief = Brief(name, ANALYZER, prompt, tools, self._roots(), lambda asked: self._need(name, asked))
        provenance = await Stage(self.run, self.agent, brief, attempts).through()
        verdict = attempts.accepted
        assert isinstance(verdict, AnalysisVerdict)
        assert verdict.analysis is not None
        analysis = verdict.analysis.model_copy(update={"provenance": [provenance]})
        self._store(analysis)
        self.session.store.drop_draft(name, self.session.names(name))
        self.run.close(source.class_path, ANALYZER)
        return analysis

    def _attempts(self, name: str, stage: StageName, check: Callable[[Any], Verdict], tool: str) -> Attempts:
        return Attempts(
            name=name,
            check=lambda submitted: self._execute(lambda: check(submitted)),
            keep=lambda submitted, findings: self._keep(name, submitted, findings),
            most=self.run.state.limits.max_rounds,
            most_checks=self.run.state.limits.max_checks,
            tool=tool,
            tried=self.run.tried(name, stage),
        )

    def _read(self, planned: Planned) -> tuple[ClassSubject, Facts]:
        subject = self._subject(planned.name)
        return subject, facts_of(self.session, planned.source, subject.lookup, subject.execution)

    async def _execute(self, work: Callable[[], T]) -> T:
        """Run in a thread, so that other agents continue; one at a time, as torch's modes are global."""
        async with self.run.executing:
            return await asyncio.to_thread(work)

    async def _analysis_of(self, class_path: str, attempts: Attempts) -> ModuleAnalysis:
        """The stored analysis, for a tool. Raises Missing if there is none: it is made, and the agent is told later."""
        name = self._own_name(class_path)
        found = await self._execute(lambda: up_to_date(name, self.session, self.session.lookup))
        if found is None:
            attempts.wait_for(name, lambda: str(CalledClass.of(self.session.lookup(name))))
            raise Missing(
                f"{name} is not analysed yet: that is done now\nstop here; you get a message when it is done",
                classes=(name,),
            )
        return found

    # -- waiting for one another -----------------------------------------------------------------------------------

    async def _need(self, name: str, class_paths: Sequence[str]) -> None:
        """Analyse classes that a submission or a tool call named, all at the same time."""
        wanted = [self._own_name(class_path) for class_path in class_paths]
        missing = await self._execute(lambda: [called for called in wanted if not self._has(called)])
        await self._begin(missing)
        for called in missing:
            await self._wait(name, called)

    async def _wait(self, name: str, called: str) -> None:
        task = self._tasks.get(called)
        if task is None:
            return
        if self._leads_to(called, name):
            raise InvalidAnalysis(
                f"{name} and {called} refer to one another\ninline the work of one of them in the other"
            )
        self._waits.setdefault(name, set()).add(called)
        try:
            await asyncio.shield(task)
        finally:
            self._waits[name].discard(called)

    def _leads_to(self, start: str, end: str) -> bool:
        """Whether ``start`` waits for ``end``, directly or through others."""
        waiting, seen = [start], set()
        while waiting:
            name = waiting.pop()
            if name == end:
                return True
            if name not in seen:
                seen.add(name)
                waiting += self._waits.get(name, ())
        return False

    # -- stage 2: references ---------------------------------------------------------------------------------------

    async def expand(self, class_path: str) -> ModuleAnalysis:
        """The class with every open reference below it closed. What changed is stored, if lmp made it."""
        await self.analyse([class_path])
        name = self._own_name(class_path)
        root = self.session.lookup(name)
        gate = BindingGate(root, self.session.lookup, self._judge, self._own_name, self._called)
        try:
            opened = await self._with_missing(name, gate.open_references)
            if opened:
                verdict, provenance = await self._bind(gate, root, opened)
            else:
                verdict, provenance = await self._execute(gate.judge_again), None
        except BaseException:
            await self._stop()
            raise
        for analysis in verdict.analyses:
            self._store_closed(analysis, provenance)
        return self.session.lookup(name)

    async def _with_missing(self, name: str, ask: Callable[[], T]) -> T:
        while True:
            try:
                return ask()
            except Missing as missing:
                await self._need(conversation_key(name, EXPANDER), missing.classes)

    async def _bind(
        self, gate: BindingGate, root: ModuleAnalysis, opened: Sequence[OpenReference]
    ) -> tuple[BindingVerdict, Provenance]:
        """Have the reference expander close the open references."""
        name = root.class_name
        attempts = self._attempts(name, EXPANDER, gate.check, "submit_bindings")
        prompt = await self._execute(lambda: prompt_of_open(self.session, root, self.session.lookup))
        tools = expander_tools(
            opened,
            lambda: self.session.trees,
            attempts.submit,
            attempts.give_up,
            lambda asked: self._analysis_of(asked, attempts),
        )
        key = conversation_key(name, EXPANDER)
        brief = Brief(name, EXPANDER, prompt, tools, self._roots(), lambda asked: self._need(key, asked))
        try:
            provenance = await Stage(self.run, self.agent, brief, attempts).through()
        except (Refused, NotFound):
            self.run.close(name, EXPANDER)
            raise
        self.session.store.drop_draft(name, self.session.names(name))
        self.run.close(name, EXPANDER)
        verdict = attempts.accepted
        assert isinstance(verdict, BindingVerdict)
        return verdict, provenance

    def _called(self, analysis: ModuleAnalysis, kernel: Kernel) -> Collection[str]:
        return self._subject(analysis.class_name).called(analysis, kernel)

    def _subject(self, class_path: str) -> ClassSubject:
        """One per class: it keeps what was executed over all attempts."""
        if class_path not in self._subjects:
            self._subjects[class_path] = ClassSubject(self.session, class_path)
        return self._subjects[class_path]

    def _judge(self, analysis: ModuleAnalysis, others: Mapping[str, ModuleAnalysis]) -> Verification:
        with self.session.instead(others):
            return self._subject(analysis.class_name).judge(analysis)

    def _store_closed(self, analysis: ModuleAnalysis, provenance: Provenance | None) -> None:
        """Store a closed analysis. One that others made is used in this session, and their file stays as it is."""
        if provenance is not None:
            analysis = analysis.model_copy(update={"provenance": [*analysis.provenance, provenance]})
        if is_foreign(analysis):
            self.session.keep(analysis)
        else:
            self._store(analysis)

    # -- the store -------------------------------------------------------------------------------------------------

    def _store(self, analysis: ModuleAnalysis) -> None:
        self.session.store.save(analysis)
        self.session.keep(analysis)
        self.run.mark_done(analysis.class_name)
        self._subjects.pop(analysis.class_name, None)

    def _keep(self, name: str, draft: Any, findings: Sequence[GateFinding]) -> str:
        refused = HandIn(class_name=name, accepted=False, status="failed", findings=list(findings))
        return str(self.session.store.keep_draft(refused, draft, self.session.names(name)))

    def _roots(self) -> list[Any]:
        return [tree.package_dir for tree in self.session.trees]
