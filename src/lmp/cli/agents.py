"""What the commands that agents carry out share: their limits, their progress, the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lmp.cli.options import AGENTS, Common
from lmp.cli.output import count, note, write, write_json
from lmp.cli.progress import scratchpad

if TYPE_CHECKING:
    from lmp.agents.commands import Done, DryRun, Summary
    from lmp.agents.run import Limits, Run
    from lmp.analyze.session import Options


def given_limits(common: Common) -> dict[str, Any]:
    """The given options of agents, by the names that limits and settings use."""
    found = {name: getattr(common, name) for name in AGENTS}
    return {name.removeprefix("agent_"): value for name, value in found.items() if value is not None}


def limits(common: Common) -> Limits:
    """The limits of agents: the given options, else the user's settings, else the defaults."""
    from lmp.agents.run import Limits
    from lmp.settings import read_settings

    settings = read_settings().model_dump(include=set(Limits.model_fields), exclude_none=True)
    return Limits(**{**settings, **given_limits(common)})


def refuse_without_agents(common: Common, add: str = "--engine agent") -> None:
    """Raise UsageError for an option that has no effect without agents. ``add`` is the option that turns them on."""
    from lmp.errors import UsageError

    given = [f"--{name.replace('_', '-')}" for name in AGENTS if getattr(common, name) is not None]
    given += ["--dry-run"] if common.dry_run else []
    if given:
        raise UsageError(f"{', '.join(given)}: for agents only\nadd {add}, or leave it out")


def at_work(command: str, classes: Sequence[str], options: Options, common: Common) -> Done | None:
    """Run the command with agents. None for a dry run, which only shows what they would do."""
    from lmp.agents.commands import start
    from lmp.agents.environment import check_runnable

    with scratchpad(options.results, lambda: " ".join(classes)):
        if common.dry_run:
            show_dry_run(classes, options, limits(common), common.as_json)
            return None
        check_runnable()
        prepares(command, classes, common.quiet)
        import lmp.agents.claude  # noqa: F401  takes a second: before there is a run that could be interrupted in it

        return carried_out(start(command, classes, options, limits(common)), options, common.quiet)


def prepares(command: str, names: Sequence[str], quiet: bool) -> None:
    """Say that agents are about to begin: what they need takes seconds to import."""
    if not quiet:
        short = ", ".join(name.rpartition(".")[2] for name in names)
        note(f"{'0:00':>6}  preparing agents: {command} {short}".rstrip())


def show_dry_run(classes: Sequence[str], options: Options, caps: Limits, as_json: bool) -> None:
    from lmp.agents.commands import dry_run as planned

    found = planned(classes, options, caps)
    if as_json:
        write_json(_dry_run_data(found))
        return
    for number, step in enumerate(found.planned, 1):
        first, last = step.source.lines
        after = f", after {', '.join(name.rpartition('.')[2] for name in step.after)}" if step.after else ""
        size = found.prompt_tokens[step.name]
        write(f"{number:>3}. {step.name}\n")
        write(f"     {step.source.forward_file} {first}-{last}, prompt of about {size:,} tokens{after}\n")
    for name in found.stored:
        write(f"  -  {name}: already stored\n")
    if found.planned:
        write("Classes that are found on the way, as from a registry, are analysed too.\n")
    write(f"model: {model_text(caps)}\ncaps: {caps_text(caps)}\nNothing was sent, nothing was spent.\n")


def caps_text(caps: Limits) -> str:
    money = "no cap in dollars" if caps.max_budget_usd is None else f"${caps.max_budget_usd:.2f}"
    turns = "no cap of turns" if caps.max_turns is None else f"{caps.max_turns} turns"
    seconds = "no time limit" if caps.timeout is None else f"{caps.timeout:g} s per agent"
    per_agent = f"{caps.max_rounds} submissions and {caps.max_checks} checks per agent"
    return f"{money}, {turns}, {caps.concurrency} at the same time, {seconds}, {per_agent}"


def model_text(caps: Limits) -> str:
    effort = "" if caps.effort is None else f", effort {caps.effort}"
    fallback = "" if caps.fallback_model is None else f"; {caps.fallback_model} while it is overloaded"
    return f"{caps.model or 'the choice of the client'}{effort}{fallback}"


def _dry_run_data(found: DryRun) -> dict[str, Any]:
    return {
        "planned": [
            {
                "class_name": p.name,
                "after": list(p.after),
                "prompt_characters": found.prompt_characters[p.name],
                "prompt_tokens": found.prompt_tokens[p.name],
            }
            for p in found.planned
        ],
        "stored": list(found.stored),
        "limits": found.limits.model_dump(),
    }


def carried_out(run: Run, options: Options, quiet: bool) -> Done:
    """Run the agents; their steps go to stderr, and so does the summary, however the run ends."""
    from lmp.agents.commands import carry_out

    with shown(run, quiet) as show:
        done = carry_out(run, options, lambda name, stage: None, claude)
        show({"event": "summary", "summary": done.summary})
    return done


def claude(run: Run) -> Any:
    """The agent of a run, made with the run's limits."""
    from lmp.agents.claude import ClaudeAgent

    caps = run.state.limits
    return ClaudeAgent(run.client_folder, model=caps.model, fallback_model=caps.fallback_model, effort=caps.effort)


# --- progress of agents ----------------------------------------------------------------------------------------------


class Lines:
    """Callback of a run: one short line for each step, with the time since the beginning."""

    def __init__(self, run: Run) -> None:
        self.run, self._began = run, time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        text = event_text(event)
        if text is not None:
            self.put(f"{self.clock():>6}  {text}")

    def put(self, line: str) -> None:
        from lmp.agents.transcript import shown

        note(shown(line))

    def clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02}"

    def status(self) -> str:
        """The state of the run: agents at work, turns, time, money."""
        ledger, caps = self.run.ledger, self.run.state.limits
        cap = "" if caps.max_budget_usd is None else f" of ${caps.max_budget_usd:.2f}"
        at_work = ", ".join(sorted(self.run.at_work)) or "preparing"
        return f"{at_work} · {count(self.run.turns, 'turn')} · {self.clock()} · ${ledger.spent:.2f}{cap}"


class LiveLines(Lines):
    """The same lines above a status line that changes in place."""

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
    """The run's steps go to stderr while the block runs. Yields the callback that shows one step."""
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
    """A time in seconds since 1970, as the user's own clock shows it; empty for anything that is no number."""
    if not isinstance(seconds, int | float):
        return ""
    return time.strftime(", until %H:%M", time.localtime(seconds))


def event_text(event: dict[str, Any]) -> str | None:
    """The line of an event; None for an event that is only in the transcript."""
    whole = str(event.get("class", ""))
    # A report has a name of its own, with dots that mean nothing.
    name = whole if event.get("stage") in ("narrator", "refuter") else whole.rpartition(".")[2]
    match event.get("event"):
        case "begins":
            resumed = ", resumed" if event.get("resumes") else ""
            return f"{name}: {str(event.get('stage', '')).replace('-', ' ')}{resumed}"
        case "reads":
            return f"{name}: reading and executing it for the prompt"
        case "started":
            return f"{name}: connected to {event.get('model') or 'the model'}"
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
            return f"{name}: interrupted, {event.get('why')}"
        case "fallback":
            return f"{name}: {event.get('model')} takes over"
        case "handed in":
            return f"{name}: submission {event.get('round')}: {event.get('outcome')}"
        case "checked":
            return f"{name}: check {event.get('number')} of {event.get('of')}: {event.get('outcome')}"
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
