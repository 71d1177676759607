"""What the commands that agents carry out have in common: options, what is shown meanwhile, the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lmp.agents.run import Limits, Run
    from lmp.pipeline.agent_runs import Done, DryRun, Summary
    from lmp.pipeline.module import Options

AgentModel = Annotated[
    str | None,
    typer.Option("--agent-model", metavar="NAME", help="The model that answers [default: the client's choice]."),
]
ModelOrAgentModel = Annotated[
    str | None,
    typer.Option("--agent-model", "--model", metavar="NAME", help="The model that answers [default: the client's]."),
]
"""Where no --model names a class."""
FallbackModel = Annotated[
    str | None,
    typer.Option("--fallback-model", metavar="NAME", help="The model that takes over when the first is overloaded."),
]
Budget = Annotated[
    float | None,
    typer.Option("--max-budget-usd", min=0.01, metavar="USD", help="Dollars of all agents together [default: 5]."),
]
MaxTurns = Annotated[
    int | None,
    typer.Option("--max-turns", min=1, metavar="N", help="Answers of the model, all agents together [default: 200]."),
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", min=1, max=64, metavar="N", help="Agents at the same time [default: 2].")
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=1, metavar="S", help="Seconds of one agent [default: 1800].")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="With agents: show the plan, the prompts' sizes and the caps; spend nothing.")
]


@dataclass(frozen=True)
class Caps:
    """The options of agents' work, as they were given."""

    agent_model: str | None
    fallback_model: str | None
    max_budget_usd: float | None
    max_turns: int | None
    concurrency: int | None
    timeout: float | None

    def given(self) -> dict[str, Any]:
        """Those that were given, by the names that limits and settings use."""
        found = {name.removeprefix("agent_"): value for name, value in asdict(self).items()}
        return {name: value for name, value in found.items() if value is not None}

    def limits(self) -> Limits:
        """What is given, else the user's settings, else the defaults."""
        from lmp.agents.run import Limits
        from lmp.settings import read_settings

        settings = read_settings().model_dump(exclude={"engine"}, exclude_none=True)
        return Limits(**{**settings, **self.given()})

    def refuse_without_agents(self, dry_run: bool, add: str = "--engine agent") -> None:
        """An option that would do nothing is a mistake. ``add`` is what makes it do something."""
        from lmp.errors import UsageError

        given = [f"--{name.replace('_', '-')}" for name, value in asdict(self).items() if value is not None]
        given += ["--dry-run"] if dry_run else []
        if given:
            raise UsageError(f"{', '.join(given)}: for agents only\nadd {add}, or leave it out")


def at_work(
    command: str,
    classes: Sequence[str],
    options: Options,
    caps: Caps,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> Done | None:
    """The command by agents; None where it is only shown what they would do."""
    from lmp.agents.failures import check_runnable
    from lmp.cli.commands import _scratchpad
    from lmp.pipeline.agent_runs import start

    with _scratchpad(options, lambda: " ".join(classes)):
        if dry_run:
            show_dry_run(classes, options, caps.limits(), as_json)
            return None
        check_runnable()
        import lmp.agents.claude  # noqa: F401  takes a second: before there is a run that could be interrupted in it

        return carried_out(start(command, classes, options, caps.limits()), options, quiet)


def show_dry_run(classes: Sequence[str], options: Options, caps: Limits, as_json: bool) -> None:
    from lmp.cli.commands import _print, _print_json
    from lmp.pipeline.agent_runs import dry_run as planned

    found = planned(classes, options, caps)
    if as_json:
        _print_json(_dry_run_data(found))
        return
    for number, step in enumerate(found.planned, 1):
        first, last = step.source.lines
        after = f", after {', '.join(name.rpartition('.')[2] for name in step.after)}" if step.after else ""
        size = found.prompt_characters[step.name]
        _print(f"{number:>3}. {step.name}\n")
        _print(f"     {step.source.forward_file} {first}-{last}, prompt of {size:,} characters{after}\n")
    for name in found.stored:
        _print(f"  -  {name}: stored already\n")
    if found.planned:
        _print("A class that turns up on the way (from a registry, say) is analysed too.\n")
    _print(f"caps: {caps_text(caps)}\nNothing was sent, nothing was spent.\n")


def caps_text(caps: Limits) -> str:
    money = "no limit of dollars" if caps.max_budget_usd is None else f"${caps.max_budget_usd:.2f}"
    turns = "no limit of turns" if caps.max_turns is None else f"{caps.max_turns} turns"
    seconds = "no limit of time" if caps.timeout is None else f"{caps.timeout:g} s an agent"
    return f"{money}, {turns}, {caps.concurrency} at the same time, {seconds}, {caps.max_rounds} hand-ins an agent"


def _dry_run_data(found: DryRun) -> dict[str, Any]:
    return {
        "planned": [
            {"class_name": p.name, "after": list(p.after), "prompt_characters": found.prompt_characters[p.name]}
            for p in found.planned
        ],
        "stored": list(found.stored),
        "limits": found.limits.model_dump(),
    }


def carried_out(run: Run, options: Options, quiet: bool) -> Done:
    """Agents at work, with what they do on stderr, and the summary at the end, however that is."""
    from lmp.pipeline.agent_runs import carry_out

    with shown(run, quiet) as show:
        done = carry_out(run, options, lambda name, stage: None, claude)
        show({"event": "summary", "summary": done.summary})
    return done


def claude(run: Run) -> Any:
    """The agent of a run, with its limits."""
    from lmp.agents.claude import ClaudeAgent

    caps = run.state.limits
    return ClaudeAgent(run.client_folder, model=caps.model, fallback_model=caps.fallback_model)


# --- what is shown meanwhile -----------------------------------------------------------------------------------------


class Lines:
    """One short line for each step, with the time since the beginning."""

    def __init__(self, run: Run) -> None:
        self.run, self._began = run, time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        text = event_text(event)
        if text is not None:
            self.put(f"{self.clock():>6}  {text}")

    def put(self, line: str) -> None:
        from lmp.agents.transcript import shown

        print(shown(line), file=sys.stderr, flush=True)

    def clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02}"

    def status(self) -> str:
        """Where it is: agents at work, turns, time, money."""
        ledger, caps = self.run.ledger, self.run.state.limits
        cap = "" if caps.max_budget_usd is None else f" of ${caps.max_budget_usd:.2f}"
        at_work = ", ".join(sorted(self.run.at_work)) or "preparing"
        return f"{at_work} · {count(self.run.turns, 'turn')} · {self.clock()} · ${ledger.spent:.2f}{cap}"


class LiveLines(Lines):
    """The same above a line that says where it is."""

    def __init__(self, run: Run, status: Any) -> None:
        super().__init__(run)
        self._status = status

    def __call__(self, event: dict[str, Any]) -> None:
        from rich.text import Text

        super().__call__(event)
        self._status.update(Text(self.status()))

    def put(self, line: str) -> None:
        from rich.text import Text

        from lmp.agents.transcript import shown

        self._status.console.print(Text(shown(line)), soft_wrap=True)


@contextmanager
def shown(run: Run, quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What the run's agents do, on stderr, while the block runs; gives what shows one more step."""
    if quiet:
        run.on_event = lambda event: None
        yield run.on_event
    elif not sys.stderr.isatty():
        run.on_event = Lines(run)
        yield run.on_event
    else:
        from rich.console import Console

        with Console(stderr=True).status("preparing") as status:
            run.on_event = LiveLines(run, status)
            yield run.on_event


def until(seconds: object) -> str:
    """A time of the system's clock, in seconds since 1970, as the user's own clock shows it."""
    if not isinstance(seconds, int | float):
        return ""
    return time.strftime(", until %H:%M", time.localtime(seconds))


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def event_text(event: dict[str, Any]) -> str | None:
    """One step in a line; None for what is only in the transcript."""
    whole = str(event.get("class", ""))
    # A report has a name of its own, with dots that mean nothing.
    name = whole if event.get("stage") == "narrator" else whole.rpartition(".")[2]
    match event.get("event"):
        case "begins":
            resumed = ", gone on with" if event.get("resumes") else ""
            return f"{name}: {str(event.get('stage', '')).replace('-', ' ')}{resumed}"
        case "started":
            return f"{name}: {event.get('model') or 'the model'} is there"
        case "tool":
            return f"{name}: {event.get('tool')} {event.get('short', '')}".rstrip()
        case "denied":
            return f"{name}: DENIED {event.get('tool')} {event.get('short', '')}: {event.get('why', '')}"
        case "retry":
            wait, why = event.get("seconds"), event.get("why")
            return f"{name}: waiting {wait} s, then try {event.get('attempt')} of {event.get('of')} ({why})"
        case "rate_limit":
            return f"{name}: rate limit {event.get('status')}{until(event.get('until'))}"
        case "broken_off":
            return f"{name}: broken off, {event.get('why')}"
        case "fallback":
            return f"{name}: {event.get('model')} takes over"
        case "handed in":
            return f"{name}: hand-in {event.get('round')}: {event.get('outcome')}"
        case "waits":
            return f"{name}: waits for {', '.join(str(c).rpartition('.')[2] for c in event.get('for', ()))}"
        case "result":
            return f"{name}: {count(event.get('turns') or 0, 'turn')}, ${event.get('cost_usd') or 0:.4f}"
        case "summary":
            return summary_text(event["summary"])
    return None


def summary_text(summary: Summary) -> str:
    verified = sum(status == "verified" for status in summary.stored.values())
    others = [f"{name.rpartition('.')[2]} {status}" for name, status in summary.stored.items() if status != "verified"]
    failed = [f"{name.rpartition('.')[2]} failed: {why}" for name, why in summary.failed.items()]
    denials = f", {count(summary.denials, 'tool call')} denied" if summary.denials else ""
    by = f" by {', '.join(summary.models)}" if summary.models else ""
    took = f"{count(summary.turns, 'turn')}, ${summary.spent_usd:.4f}, {summary.seconds:.0f} s"
    head = f"{summary.report or f'{verified} verified'}{by}: {took}{denials}"
    return "; ".join([head, *others, *failed]) + f"; transcript: {summary.transcript}"
