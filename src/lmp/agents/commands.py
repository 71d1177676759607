"""The commands that agents carry out: start, resume, dry run, and the summary at the end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lmp.agents.base import Agent
from lmp.agents.engine import AgentWork, Planned, plan
from lmp.agents.prompts import prompt_of_class
from lmp.agents.run import Limits, Run, State, begin, reopen
from lmp.analyze.judging import seems_up_to_date
from lmp.analyze.models import ModelOutcome, linked, model_outcome
from lmp.analyze.session import Options, Outcome, Progress, Session
from lmp.errors import AgentUnavailable, Interrupted, LmpError, UsageError
from lmp.records import ModuleAnalysis

T = TypeVar("T")
MakeAgent = Callable[[Run], Agent]
PATHS = ("results", "transformers", "pytorch", "config_file")


@dataclass(frozen=True)
class Summary:
    """The result of a run, for its user."""

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
    """Of a report: whether it has a narrative."""


@dataclass(frozen=True)
class Done:
    """The result of a command: the requested analyses, the model of an expansion, and the summary."""

    outcomes: tuple[Outcome, ...]
    model: ModelOutcome | None
    summary: Summary

    @property
    def linked(self) -> ModelOutcome:
        """The model of an expansion."""
        assert self.model is not None
        return self.model


@dataclass(frozen=True)
class DryRun:
    """What a run would do."""

    planned: tuple[Planned, ...]
    stored: tuple[str, ...]
    """Requested classes that are stored already."""
    prompt_characters: dict[str, int]
    prompt_tokens: dict[str, int]
    """An estimate."""
    limits: Limits


def start(command: Any, class_paths: Sequence[str], options: Options, limits: Limits) -> Run:
    """A new run of this command, with its options stored, so that it can be resumed.

    Raises NotFound for a class that does not exist, before there is a run.
    """
    session = Session(options, lambda name, stage: None, takes_foreign=True)
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
    """An earlier run, and its options. ``changed`` are new limits."""
    run = reopen(results, name, changed)
    try:
        return run, TypeAdapter(Options).validate_python(run.state.options)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UsageError(f"{run.folder} is of another lmp: {why}\nstart the command again") from error


def carry_out(run: Run, options: Options, progress: Progress, make_agent: MakeAgent) -> Done:
    """Carry out the run's command with agents.

    Raises their errors; on Ctrl-C Interrupted, with the command that resumes.
    """
    began, work = datetime.now(UTC), None

    def summarise() -> None:
        if work is not None:
            run.on_event({"event": "summary", "summary": _summary(work, began)})

    with finishing(run, summarise):
        session = Session(options, progress, takes_foreign=True)
        session.ask(run.state.classes)
        work = AgentWork(session, run, make_agent(run))
        asyncio.run(_work(work))
        model = _linked(session, run)
    return Done(_outcomes(session, run), model, _summary(work, began))


@contextmanager
def finishing(run: Run, summarise: Callable[[], None]) -> Iterator[None]:
    """Record how the block ends: the run is done, interrupted or failed. ``summarise`` runs unless it is done.

    Raises what the block raises; on Ctrl-C Interrupted, with the command that resumes.
    """
    try:
        yield
    except KeyboardInterrupt:
        run.finish("interrupted")
        summarise()
        raise Interrupted(
            f"interrupted; finished work is stored, and no file is incomplete\n"
            f"`{run.resume_command}` continues from here"
        ) from None
    except LmpError as error:
        run.finish("failed")
        summarise()
        if isinstance(error, AgentUnavailable) and error.resume is not None:
            error.resume = run.resume_command
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


def _linked(session: Session, run: Run) -> ModelOutcome | None:
    if run.state.command != "expand":
        return None
    root = session.lookup(run.state.classes[0])
    session.made += run.state.done
    return model_outcome(linked(root, session, session.lookup), session, reused=False)


def _outcomes(session: Session, run: Run) -> tuple[Outcome, ...]:
    wanted = [session.locate(class_path).class_path for class_path in run.state.classes]
    names = dict.fromkeys([*wanted, *run.state.done])
    return tuple(_outcome(session, session.lookup(name), name in run.state.done, name in wanted) for name in names)


def _outcome(session: Session, analysis: ModuleAnalysis, made: bool, requested: bool) -> Outcome:
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
    """What agents would do, and the size of their prompts. Nothing is sent or stored."""
    session = Session(options, lambda name, stage: None, takes_foreign=True)
    session.ask(class_paths)
    planned = plan(class_paths, session.locate, session.trees, functools.partial(seems_up_to_date, session=session))
    prompts = {p.name: prompt_of_class(session, p.name, session.lookup) for p in planned}
    sizes = {name: len(prompt.system) + len(prompt.message) for name, prompt in prompts.items()}
    names = {p.name for p in planned}
    wanted = [session.locate(class_path).class_path for class_path in class_paths]
    about = {name: prompt.tokens for name, prompt in prompts.items()}
    return DryRun(tuple(planned), tuple(n for n in wanted if n not in names), sizes, about, limits)


def plain_options(options: Options) -> dict[str, Any]:
    """The options as JSON, with absolute paths: the run may be resumed from another folder."""
    there = {name: path.absolute() for name in PATHS if (path := getattr(options, name)) is not None}
    kept = replace(options, **there, paths=tuple(path.absolute() for path in options.paths))
    plain: dict[str, Any] = TypeAdapter(Options).dump_python(kept, mode="json")
    return plain
