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
    agent_model: a.ModelOrAgentModel = None,
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
    from lmp.agents.failures import check_runnable
    from lmp.cli.commands import _results_folder, _scratchpad, show_outcomes
    from lmp.cli.expand import show_model
    from lmp.cli.report import resume_report
    from lmp.errors import UsageError
    from lmp.pipeline.agent_runs import resumed

    caps = a.Caps(agent_model, fallback_model, max_budget_usd, max_turns, concurrency, timeout)
    begun, options = resumed(_results_folder(results), run, caps.given())
    check_runnable()
    if begun.state.command == "report":
        if as_json:
            raise UsageError("a report is a file, not JSON\nleave out --json")
        resume_report(begun, options, quiet)
        return
    with _scratchpad(options, lambda: " ".join(begun.state.classes)):
        done = a.carried_out(begun, options, quiet)
    if done.model is not None:
        show_model(done.model, 0, as_json, options.why_engine)
    else:
        show_outcomes(done.outcomes, options.why_engine, as_json)
