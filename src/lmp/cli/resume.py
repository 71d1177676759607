"""``lmp resume``: a command of agents that was interrupted, or that came to a cap, gone on with."""

from __future__ import annotations

from typing import Annotated

import typer

from lmp.cli import agents as a
from lmp.cli import options as o

RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="The run's name [default: the last one that is not done].")
]


def resume(
    run: RunName = None,
    results: o.Results = None,
    agent_model: a.AgentModel = None,
    fallback_model: a.FallbackModel = None,
    max_budget_usd: a.Budget = None,
    max_turns: a.MaxTurns = None,
    concurrency: a.Concurrency = None,
    timeout: a.Timeout = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Go on with agents' work that was interrupted."""
    from lmp.cli.commands import _results_folder
    from lmp.pipeline.agent_runs import resumed

    changed = {
        "model": agent_model,
        "fallback_model": fallback_model,
        "max_budget_usd": max_budget_usd,
        "max_turns": max_turns,
        "concurrency": concurrency,
        "timeout": timeout,
    }
    begun, options = resumed(_results_folder(results), run, {n: v for n, v in changed.items() if v is not None})
    print_done(a.carried_out(begun, options, quiet), as_json)


def print_done(done: object, as_json: bool) -> None:
    """What the command that is gone on with prints."""
