"""A command that agents carry out, from its first second to its summary, and the same gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lmp.agents.base import Agent
from lmp.agents.run import Limits, Run, State, begin, go_on
from lmp.errors import AgentUnavailable, Interrupted, LmpError, UsageError
from lmp.pipeline.agents import AgentWork
from lmp.pipeline.model import ModelOutcome
from lmp.pipeline.module import Options, Outcome, Progress
from lmp.pipeline.planning import Planned, plan
from lmp.pipeline.subject import HandInSession
from lmp.records import ModuleAnalysis

T = TypeVar("T")
MakeAgent = Callable[[Run], Agent]
PATHS = ("results", "transformers", "pytorch", "config_file")


@dataclass(frozen=True)
class Summary:
    """What a run came to."""

    run: str
    stored: Mapping[str, str]
    """Class -> verified or unverified."""
    failed: dict[str, str]
    """Class -> why, in one line."""
    turns: int
    spent_usd: float
    denials: int
    models: tuple[str, ...]
    seconds: float
    transcript: Path
    report: str = ""
    """Of a report: whether it was narrated."""


@dataclass(frozen=True)
class Done:
    """What a command of agents gives: the analyses that were asked for, the model, and the summary."""

    outcomes: tuple[Outcome, ...]
    model: ModelOutcome | None
    summary: Summary

    @property
    def linked(self) -> ModelOutcome:
        """The model of a command that expands one."""
        assert self.model is not None
        return self.model


@dataclass(frozen=True)
class DryRun:
    """What would be done."""

    planned: tuple[Planned, ...]
    stored: tuple[str, ...]
    """Classes that were asked for and need nothing."""
    prompt_characters: dict[str, int]
    limits: Limits


def start(command: Any, class_paths: Sequence[str], options: Options, limits: Limits) -> Run:
    """A new run of this command. The options are kept, so that it can be gone on with.

    Raises NotFound for a class that is not there: then there is no run.
    """
    session = HandInSession(options, lambda name, stage: None)
    for class_path in class_paths:
        session.locate(class_path)
    state = State(
        command=command,
        classes=list(class_paths),
        options=plain_options(options),
        limits=limits,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return begin(options.results, state)


def resumed(results: Path, name: str | None, changed: dict[str, Any]) -> tuple[Run, Options]:
    """A run that was begun, and its options. ``changed`` are limits that are given anew."""
    run = go_on(results, name, changed)
    try:
        return run, TypeAdapter(Options).validate_python(run.state.options)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UsageError(f"{run.folder} is of another lmp: {why}\nstart the command again") from error


def carry_out(run: Run, options: Options, progress: Progress, make_agent: MakeAgent) -> Done:
    """The run's command with agents. Raises what they do; Interrupted, with the command that goes on, on Ctrl-C."""
    began, work = datetime.now(UTC), None

    def summarise() -> None:
        if work is not None:
            run.on_event({"event": "summary", "summary": _summary(work, began)})

    with to_its_end(run, summarise):
        session = HandInSession(options, progress)
        session.ask(run.state.classes)
        work = AgentWork(session, run, make_agent(run))
        asyncio.run(_work(work))
        model = _linked(session, run)
    return Done(_outcomes(session, run), model, _summary(work, began))


@contextmanager
def to_its_end(run: Run, summarise: Callable[[], None]) -> Iterator[None]:
    """The run's work: when the block ends, the run is done, interrupted or failed.

    What was done and spent is said by ``summarise`` where it does not end well. Raises Interrupted on Ctrl-C, with the
    command that goes on, and what the block raises.
    """
    try:
        yield
    except KeyboardInterrupt:
        run.finish("interrupted")
        summarise()
        raise Interrupted(
            f"interrupted; what was finished is stored, and nothing was half written\n"
            f"`{run.resume_command}` goes on from here"
        ) from None
    except LmpError as error:
        run.finish("failed")
        summarise()
        if isinstance(error, AgentUnavailable):
            error.args = (str(error).replace("`lmp resume`", f"`{run.resume_command}`"),)
        raise
    except BaseException:
        run.finish("failed")
        raise
    run.finish("done")


async def _work(work: AgentWork) -> None:
    if work.run.state.command == "expand":
        for class_path in work.run.state.classes:
            await work.expand(class_path)
    else:
        await work.analyse(work.run.state.classes)


def _linked(session: HandInSession, run: Run) -> ModelOutcome | None:
    if run.state.command != "expand":
        return None
    root = session.lookup(run.state.classes[0])
    session.made += run.state.done
    return session.outcome(session.linked(root), reused=False)


def _outcomes(session: HandInSession, run: Run) -> tuple[Outcome, ...]:
    wanted = [session.locate(class_path).class_path for class_path in run.state.classes]
    names = dict.fromkeys([*wanted, *run.state.done])
    return tuple(_outcome(session, session.lookup(name), name in run.state.done, name in wanted) for name in names)


def _outcome(session: HandInSession, analysis: ModuleAnalysis, made: bool, requested: bool) -> Outcome:
    file = session.store.file(analysis.class_name, analysis.config.name)
    return Outcome(analysis, file, reused=not made, requested=requested)


def _summary(work: AgentWork, began: datetime) -> Summary:
    run, ledger = work.run, work.run.ledger
    stored = {name: work.session.lookup(name).verification.status for name in run.state.done}
    failed = {name: str(error).splitlines()[0] for name, error in work.failed.items()}
    return Summary(
        run=run.id,
        stored=stored,
        failed=failed,
        turns=ledger.turns,
        spent_usd=ledger.spent,
        denials=run.denials,
        models=tuple(run.models),
        seconds=(datetime.now(UTC) - began).total_seconds(),
        transcript=run.transcript.path,
    )


def dry_run(class_paths: Sequence[str], options: Options, limits: Limits) -> DryRun:
    """What agents would do, and how much they would be told. Nothing is sent or stored."""
    from lmp.pipeline.telling import told_of_class

    session = HandInSession(options, lambda name, stage: None)
    session.ask(class_paths)
    planned = plan(class_paths, session.locate, session.trees, session.has)
    told = {p.name: told_of_class(session, p.name, session.lookup) for p in planned}
    sizes = {name: len(said.system) + len(said.prompt) for name, said in told.items()}
    names = {p.name for p in planned}
    wanted = [session.locate(class_path).class_path for class_path in class_paths]
    return DryRun(tuple(planned), tuple(n for n in wanted if n not in names), sizes, limits)


def plain_options(options: Options) -> dict[str, Any]:
    """As JSON has it; paths absolute, as the run may be gone on with from another folder."""
    there = {name: path.absolute() for name in PATHS if (path := getattr(options, name)) is not None}
    kept = replace(options, **there, paths=tuple(path.absolute() for path in options.paths))
    plain: dict[str, Any] = TypeAdapter(Options).dump_python(kept, mode="json")
    return plain
