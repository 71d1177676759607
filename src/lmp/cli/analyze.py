"""The commands that make analyses: ``lmp analyze-module``, ``verify``, ``expand`` and ``resume``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import agents as a
from lmp.cli import options as o
from lmp.cli.output import end_if_failed, note, write, write_json
from lmp.cli.progress import class_of_config, scratchpad, watched
from lmp.cli.subject import chosen, chosen_classes

if TYPE_CHECKING:
    from lmp.analyze.audit import Audit
    from lmp.analyze.models import ModelOutcome
    from lmp.analyze.session import Options, Outcome

ClassPaths = Annotated[
    list[str] | None, typer.Argument(metavar="CLASS...", help=f"{o.SUBJECT} Class paths may be several.")
]
Modules = Annotated[
    list[str] | None, typer.Option("--module", metavar="CLASS", help="A class, in place of an argument.")
]
ModelPath = Annotated[str | None, typer.Argument(metavar="MODEL", help=o.SUBJECT)]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The model, in place of the argument.")
]
ModuleAnalysis = Annotated[
    Path | None, typer.Option("--module-analysis", metavar="DIR", help="Folder of the analyses: the same as --results.")
]
Depth = Annotated[
    int, typer.Option("--depth", min=0, metavar="N", help="Levels of modules whose lines and formulas are shown.")
]
Formulas = Annotated[
    bool, typer.Option("--formulas", help="Show the totals as formulas, with their variables and assumptions.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show all checks, phases and files, and every difference.")
]
Coverage = Annotated[
    bool, typer.Option("--coverage", help="Show the arms of the formulas, and the points that took them.")
]
Points = Annotated[
    int | None,
    typer.Option("--audit", min=1, metavar="N", help="Execute N points drawn over all that the assumptions allow."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the points that --audit draws.")]
RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Name of the run [default: the last unfinished one].")
]


@o.takes(
    *(..., "engine", *o.FOLDERS, *o.CONFIG, *o.OWN_CLASS, "fresh", *o.AGENTS, "dry_run", *o.PRINTED),
    agent_model=o.ModelOrAgentModel,
)
def analyze_module(common: o.Common, classes: ClassPaths = None, module: Modules = None) -> None:
    """Derive and verify what each line of forward() costs."""
    named = list(dict.fromkeys([*(classes or []), *(module or [])]))
    common, paths = chosen_classes(common, named, "analyze-module")
    options = common.options(agents=True)
    paths = paths or [class_of_config(options)]
    if options.engine == "agent":
        done = a.at_work("analyze-module", paths, options, common)
        outcomes: Sequence[Outcome] = done.outcomes if done is not None else ()
    else:
        a.refuse_without_agents(common)
        with watched(paths, options, common.quiet) as progress:
            from lmp.analyze.modules import analyze_modules

            outcomes = analyze_modules(paths, options, progress)
    if not common.dry_run:
        _show_outcomes(outcomes, options.why_engine, common.as_json)


@o.takes(..., "engine", *o.FOLDERS, *o.CONFIG, *o.OWN_CLASS, *o.PRINTED)
def verify(
    common: o.Common,
    classes: ClassPaths = None,
    module: Modules = None,
    verbose: Verbose = False,
    coverage: Coverage = False,
    points: Points = None,
    seed: Seed = 0,
) -> None:
    """Compare the stored formulas with execution again."""
    named = list(dict.fromkeys([*(classes or []), *(module or [])]))
    common, paths = chosen_classes(common, named, "verify")
    options = common.options()
    paths = paths or [class_of_config(options)]
    if points is not None:
        _audit(paths, options, points, seed, common)
        return
    outcomes: list[Outcome] = []
    try:
        with watched(paths, options, common.quiet, first_time=False) as progress:
            from lmp.analyze.modules import verify_modules

            outcomes.extend(verify_modules(paths, options, progress))
    finally:  # an error at one class does not hide the verdicts on those before
        _show_verifications(outcomes, verbose, common.as_json, one=len(paths) == 1, coverage=coverage)
    _end_if_an_analysis_failed(outcomes)


def _audit(paths: list[str], options: Options, points: int, seed: int, common: o.Common) -> None:
    """Print what execution says at drawn points; exit with 4 if one differs."""
    audits: list[Audit] = []
    try:
        with watched(paths, options, common.quiet) as progress:
            from lmp.analyze.audit import audit_modules

            audits.extend(audit_modules(paths, options, points, seed, progress))
    finally:  # an error at one class does not hide the results of those before
        if common.as_json and audits:
            found = [audit.to_data() for audit in audits]
            write_json(found[0] if len(paths) == 1 else found)
        elif audits:
            from lmp.cli.tables import console
            from lmp.cli.verdicts import print_audits

            print_audits(console(), audits)
    end_if_failed([audit.class_name for audit in audits if audit.different], "them")


@o.takes(
    *(..., "engine", *o.FOLDERS, "config", "model_id", "attn", *o.OWN_CLASS, "dtype", "fresh"),
    *(*o.AGENTS, "dry_run", *o.PRINTED),
)
def expand(
    common: o.Common,
    model_path: ModelPath = None,
    model: ModelOption = None,
    module_analysis: ModuleAnalysis = None,
    depth: Depth = 0,
    formulas: Formulas = False,
) -> None:
    """Link the analyses of a model's classes into one."""
    common = replace(common, results=_one_folder(common.results, module_analysis))
    common, class_path = chosen(common, o.one_of("models", model_path, "--model", model), "expand")
    options = common.options(agents=True)
    name = class_path or class_of_config(options)
    if options.engine == "agent":
        done = a.at_work("expand", [name], options, common)
        if done is None:
            return
        outcome = done.linked
    else:
        a.refuse_without_agents(common)
        with watched([name], options, common.quiet) as progress:
            from lmp.analyze.models import expand_model

            outcome = expand_model(name, options, progress)
    _show_model(outcome, options, common.as_json, depth, formulas)


@o.takes(..., "results", *o.AGENTS, *o.PRINTED, agent_model=o.ModelOrAgentModel)
def resume(common: o.Common, run: RunName = None) -> None:
    """Resume an interrupted run of agents."""
    from lmp.agents.commands import resumed
    from lmp.agents.environment import check_runnable
    from lmp.errors import UsageError

    begun, options = resumed(common.said_results_folder(), run, a.given_limits(common))
    check_runnable()
    a.prepares("resume", begun.state.classes, common.quiet)
    if begun.state.command == "report":
        if common.as_json:
            raise UsageError("a report is a file, not JSON\nleave out --json")
        from lmp.cli.report import resume_report

        resume_report(begun, options, common)
        return
    with scratchpad(options.results, lambda: " ".join(begun.state.classes)):
        done = a.carried_out(begun, options, common.quiet)
    if done.model is not None:
        _show_model(done.model, options, common.as_json)
    else:
        _show_outcomes(done.outcomes, options.why_engine, common.as_json)


def _one_folder(results: Path | None, module_analysis: Path | None) -> Path | None:
    from lmp.errors import UsageError

    if results is not None and module_analysis is not None and results != module_analysis:
        raise UsageError(
            f"two folders are given: --results {results} and --module-analysis {module_analysis}\n"
            "give one: the model is stored beside the analyses"
        )
    return results or module_analysis


def _show_outcomes(outcomes: Sequence[Outcome], why_engine: str, as_json: bool) -> None:
    if as_json:
        from lmp.store.results import to_data

        write_json([to_data(outcome.analysis) for outcome in outcomes if outcome.requested])
    else:
        from lmp.cli.tables import console, print_outcomes

        print_outcomes(console(), outcomes, why_engine)
    _end_if_an_analysis_failed(outcomes)


def _show_verifications(
    outcomes: Sequence[Outcome], verbose: bool, as_json: bool, one: bool, coverage: bool = False
) -> None:
    """``one``: a single class was asked for. Its JSON is an object, that of several classes a list."""
    if not outcomes:
        return
    if as_json:
        found = [
            {
                "class_name": outcome.analysis.class_name,
                "file": str(outcome.file),
                "verification": outcome.analysis.verification.model_dump(mode="json", exclude_none=True),
            }
            for outcome in outcomes
        ]
        write_json(found[0] if one else found)
    else:
        from lmp.cli.tables import console
        from lmp.cli.verdicts import print_verdicts

        print_verdicts(console(), outcomes, verbose)
        if coverage:
            from lmp.cli.coverage import print_coverage

            print_coverage(console(), [outcome.analysis for outcome in outcomes])


def _end_if_an_analysis_failed(outcomes: Sequence[Outcome]) -> None:
    analyses = [outcome.analysis for outcome in outcomes]
    end_if_failed([one.class_name for one in analyses if one.verification.status == "failed"], "them")


def _show_model(outcome: ModelOutcome, options: Options, as_json: bool, depth: int = 0, formulas: bool = False) -> None:
    if as_json:
        from lmp.store.results import to_text

        write(to_text(outcome.model))
    else:
        from lmp.cli.model_table import print_model
        from lmp.cli.tables import console

        print_model(console(), outcome, options, depth, formulas)
    for warning in outcome.warnings:
        note(f"warning: {warning}")
    end_if_failed([name for name, part in outcome.model.parts.items() if part.status == "failed"], "the model")
