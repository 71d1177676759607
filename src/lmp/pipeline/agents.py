"""The agent engine over a whole command: which class waits for which, what is stored, what goes on after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lmp.agents.base import ANALYZER, EXPANDER, Agent, Verdict
from lmp.agents.binding import BindingGate, Bound
from lmp.agents.facts import Facts
from lmp.agents.findings import findings_text
from lmp.agents.gate import Gate
from lmp.agents.handins import HandIns, Judged
from lmp.agents.reading import callee_of
from lmp.agents.run import Run, conversation
from lmp.agents.stage import Stage, Talk
from lmp.agents.told import analyzer_prompt
from lmp.agents.tools import analyzer_tools, expander_tools
from lmp.errors import AgentUnavailable, CapReached, InvalidAnalysis, LmpError, Missing, NotFound, Refused
from lmp.pipeline.facts import facts_of
from lmp.pipeline.model import is_foreign
from lmp.pipeline.planning import Planned, plan
from lmp.pipeline.subject import ClassSubject, HandInSession
from lmp.pipeline.telling import told_of_places
from lmp.records import GateFinding, HandIn, Kernel, ModuleAnalysis, Provenance, Verification

T = TypeVar("T")


class AgentWork:
    """The agents of one command, over one session and one run."""

    def __init__(self, session: HandInSession, run: Run, agent: Agent) -> None:
        self.session, self.run, self.agent = session, run, agent
        self.failed: dict[str, LmpError] = {}
        self._tasks: dict[str, asyncio.Task[ModuleAnalysis]] = {}
        self._waits: dict[str, set[str]] = {}
        self._subjects: dict[str, ClassSubject] = {}
        for name in run.state.done:  # of a run that is gone on with: not made again, whatever --fresh says
            found = session.stored(name)
            if found is not None:
                session.keep(found)

    # -- stage 1: modules ------------------------------------------------------------------------------------------

    async def analyse(self, class_paths: Sequence[str]) -> list[ModuleAnalysis]:
        """The analyses of these classes, made with everything that they construct where that is not stored.

        Others go on where one fails; the first failure is raised in the end. Raises what `Stage.through` does.
        """
        self._begin(class_paths)
        wanted = [self._own_name(class_path) for class_path in class_paths]
        try:
            await self._settled(self._tasks.values())
        except BaseException:
            await self._stopped()
            raise
        if self.failed:
            raise next(iter(self.failed.values()))
        return [self.session.lookup(name) for name in wanted]

    def _own_name(self, class_path: str) -> str:
        return self.session.locate(class_path).class_path

    def _begin(self, class_paths: Sequence[str]) -> None:
        """A task for each class that is to be analysed, called ones first."""
        session = self.session
        for planned in plan(class_paths, session.locate, session.trees, session.has):
            if planned.name not in self._tasks:
                self._tasks[planned.name] = asyncio.create_task(self._guarded(planned), name=planned.name)
        self._counted()

    def _counted(self) -> None:
        self.run.unfinished = max(1, sum(not task.done() for task in self._tasks.values()))

    async def _settled(self, tasks: Iterable[asyncio.Task[ModuleAnalysis]]) -> None:
        """Wait for all of them. Where no agent can run at all, the others are not waited for."""
        await asyncio.gather(*tasks, return_exceptions=True)
        for name, task in self._tasks.items():
            if task.done() and not task.cancelled() and task.exception() is not None:
                error = task.exception()
                if not isinstance(error, LmpError):
                    raise error if error is not None else AssertionError
                self.failed.setdefault(name, error)

    async def _stopped(self) -> None:
        """Ends every agent that is at work, and waits until its process has gone."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _guarded(self, planned: Planned) -> ModuleAnalysis:
        try:
            analysis = await self._analyse(planned)
            self._counted()
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
        subject, facts = await self._executing(lambda: self._read(planned))
        gate = Gate(subject)
        hand_ins = self._hand_ins(name, gate.check, "submit_analysis")
        told = analyzer_prompt(facts, self.session.trees)
        tools = analyzer_tools(
            facts,
            lambda: self.session.trees,
            hand_ins.check,
            hand_ins.submit,
            hand_ins.stop,
            lambda asked: self._analysis_of(asked, hand_ins),
        )
        talk = Talk(
            name, ANALYZER, told.system, told.prompt, tools, self._roots(), lambda asked: self._need(name, asked)
        )
        provenance = await Stage(self.run, self.agent, talk, hand_ins).through()
        verdict = hand_ins.accepted
        assert isinstance(verdict, Verdict)
        assert verdict.analysis is not None
        analysis = verdict.analysis.model_copy(update={"provenance": [provenance]})
        self._store(analysis)
        self.session.store.drop_draft(name, self.session.names(name))
        self.run.close(source.class_path, ANALYZER)
        return analysis

    def _hand_ins(self, name: str, check: Callable[[Any], Judged], tool: str) -> HandIns:
        return HandIns(
            name=name,
            check=lambda handed_in: self._executing(lambda: check(handed_in)),
            keep=lambda handed_in, findings: self._keep(name, handed_in, findings),
            shown=findings_text,
            most=self.run.state.limits.max_rounds,
            tool=tool,
        )

    def _read(self, planned: Planned) -> tuple[ClassSubject, Facts]:
        subject = self._subject(planned.name)
        return subject, facts_of(self.session, planned.source, subject.lookup, subject.making)

    async def _executing(self, work: Callable[[], T]) -> T:
        """In a thread, so that the other agents are heard meanwhile; one at a time, as torch's modes are global."""
        async with self.run.executing:
            return await asyncio.to_thread(work)

    async def _analysis_of(self, class_path: str, hand_ins: HandIns) -> ModuleAnalysis:
        """For a tool: a stored analysis; one that is not there is made, and the agent hears of it then."""
        name = self._own_name(class_path)
        found = self.session.reusable(name)
        if found is None:
            hand_ins.wait_for(name, lambda: str(callee_of(self.session.lookup(name))))
            raise Missing(
                f"{name} is not analysed yet: that is done now\nstop here; you are told when it is there",
                classes=(name,),
            )
        return found

    # -- waiting for one another -----------------------------------------------------------------------------------

    async def _need(self, name: str, class_paths: Sequence[str]) -> None:
        """Has classes analysed that turned up on the way, all at the same time."""
        wanted = [self._own_name(class_path) for class_path in class_paths]
        missing = [called for called in wanted if not self.session.has(called)]
        self._begin(missing)
        for called in missing:
            await self._wait(name, called)

    async def _wait(self, name: str, called: str) -> None:
        task = self._tasks.get(called)
        if task is None:
            return
        if self._leads_to(called, name):
            raise InvalidAnalysis(
                f"{name} and {called} refer to one another\nwrite the work of one of them out in the other"
            )
        self._waits.setdefault(name, set()).add(called)
        try:
            await asyncio.shield(task)
        finally:
            self._waits[name].discard(called)

    def _leads_to(self, start: str, end: str) -> bool:
        """Whether ``start`` waits, through others, for ``end``."""
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
        """The class with every open reference below it closed; what was closed is stored, if lmp made it."""
        await self.analyse([class_path])
        name = self._own_name(class_path)
        root = self.session.lookup(name)
        gate = BindingGate(root, self.session.lookup, self._judge, self._own_name, self._called)
        try:
            places = await self._with_missing(name, gate.places)
            if places:
                bound, provenance = await self._bound(gate, root, places)
            else:
                bound, provenance = await self._executing(gate.judged_again), None
        except BaseException:
            await self._stopped()
            raise
        for analysis in bound.analyses:
            self._closed(analysis, provenance)
        return self.session.lookup(name)

    async def _with_missing(self, name: str, ask: Callable[[], T]) -> T:
        while True:
            try:
                return ask()
            except Missing as missing:
                await self._need(conversation(name, EXPANDER), missing.classes)

    async def _bound(self, gate: BindingGate, root: ModuleAnalysis, places: Sequence[Any]) -> tuple[Bound, Provenance]:
        name = root.class_name
        hand_ins = self._hand_ins(name, gate.check, "submit_bindings")
        told = await self._executing(lambda: told_of_places(self.session, root, self.session.lookup))
        tools = expander_tools(
            places,
            lambda: self.session.trees,
            hand_ins.submit,
            hand_ins.stop,
            lambda asked: self._analysis_of(asked, hand_ins),
        )
        talk = Talk(
            name,
            EXPANDER,
            told.system,
            told.prompt,
            tools,
            self._roots(),
            lambda asked: self._need(conversation(name, EXPANDER), asked),
        )
        try:
            provenance = await Stage(self.run, self.agent, talk, hand_ins).through()
        except (Refused, NotFound):
            self.run.close(name, EXPANDER)
            raise
        self.session.store.drop_draft(name, self.session.names(name))
        self.run.close(name, EXPANDER)
        bound = hand_ins.accepted
        assert isinstance(bound, Bound)
        return bound, provenance

    def _called(self, analysis: ModuleAnalysis, kernel: Kernel) -> Collection[str]:
        return self._subject(analysis.class_name).called(analysis, kernel)

    def _subject(self, class_path: str) -> ClassSubject:
        """One a class: what it has executed is kept over the rounds."""
        if class_path not in self._subjects:
            self._subjects[class_path] = ClassSubject(self.session, class_path)
        return self._subjects[class_path]

    def _judge(self, analysis: ModuleAnalysis, others: Mapping[str, ModuleAnalysis]) -> Verification:
        with self.session.instead(others):
            return self._subject(analysis.class_name).judged(analysis)

    def _closed(self, analysis: ModuleAnalysis, provenance: Provenance | None) -> None:
        """What others made is linked as it was closed, and their file left as it is."""
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
        self.run.made(analysis.class_name)
        self._subjects.pop(analysis.class_name, None)

    def _keep(self, name: str, draft: Any, findings: Sequence[GateFinding]) -> str:
        refused = HandIn(class_name=name, accepted=False, status="failed", findings=list(findings))
        return str(self.session.store.keep_draft(refused, draft, self.session.names(name)))

    def _roots(self) -> list[Any]:
        return [tree.package_dir for tree in self.session.trees]
