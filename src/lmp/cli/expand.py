"""``lmp expand``: a whole model from the analyses of its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import agents as a
from lmp.cli import options as o
from lmp.cli.commands import DISAGREES, _note, _options, _print_json, _watched

if TYPE_CHECKING:
    from lmp.pipeline.model import ModelOutcome
    from lmp.pipeline.module import Options
    from lmp.records import Part

ModelPath = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Class path of a model, or of any module: torch.nn.Linear.")
]
ModelOption = Annotated[str | None, typer.Option("--model", metavar="MODEL", help="The model, as an option.")]
ModuleAnalysis = Annotated[
    Path | None, typer.Option("--module-analysis", metavar="DIR", help="Where the analyses are: the same as --results.")
]
Depth = Annotated[
    int, typer.Option("--depth", min=0, metavar="N", help="Show the lines of the first N levels, with formulas.")
]


def expand(
    model_path: ModelPath = None,
    model: ModelOption = None,
    module_analysis: ModuleAnalysis = None,
    depth: Depth = 0,
    engine: o.EngineName = o.Engine.auto,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    inputs: o.Inputs = None,
    init: o.Init = None,
    path: o.Paths = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    fresh: o.Fresh = False,
    agent_model: a.AgentModel = None,
    fallback_model: a.FallbackModel = None,
    max_budget_usd: a.Budget = None,
    max_turns: a.MaxTurns = None,
    concurrency: a.Concurrency = None,
    timeout: a.Timeout = None,
    dry_run: a.DryRunOption = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Put the analyses of a model's classes together."""
    folder = _one_folder(results, module_analysis)
    options = _options(engine, folder, transformers, pytorch, config, model_id, attn, dtype, fresh, agents=True)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    name = _one_model(model_path, model, options)
    caps = a.Caps(agent_model, fallback_model, max_budget_usd, max_turns, concurrency, timeout)
    if options.engine == "agent":
        done = a.at_work("expand", [name], options, caps, dry_run, quiet, as_json)
        if done is None:
            return
        outcome = done.linked
    else:
        caps.refuse_without_agents(dry_run)
        with _watched([name], options, quiet) as progress:
            from lmp.pipeline.model import expand_model

            outcome = expand_model(name, options, progress)
    show_model(outcome, depth, as_json, options.why_engine)


def show_model(outcome: ModelOutcome, depth: int, as_json: bool, why_engine: str) -> None:
    """What `expand` prints."""
    if as_json:
        from lmp.store.results import to_data

        _print_json(to_data(outcome.model))
    else:
        from lmp.cli.model_table import print_model
        from lmp.cli.tables import console

        print_model(console(), outcome, depth, why_engine)
    for warning in outcome.warnings:
        _note(f"warning: {warning}")
    exit_if_a_part_failed(outcome.model.parts)


def _one_model(model_path: str | None, model: str | None, options: Options) -> str:
    from lmp.cli.commands import _class_of_config
    from lmp.errors import UsageError

    if model_path is not None and model is not None and model_path != model:
        raise UsageError(f"two models are given: {model_path} and, with --model, {model}\ngive one")
    return model_path or model or _class_of_config(options)


def _one_folder(results: Path | None, module_analysis: Path | None) -> Path | None:
    from lmp.errors import UsageError

    if results is not None and module_analysis is not None and results != module_analysis:
        raise UsageError(
            f"two folders are given: --results {results} and --module-analysis {module_analysis}\n"
            "give one: the model is stored beside the analyses"
        )
    return results or module_analysis


def exit_if_a_part_failed(parts: Mapping[str, Part]) -> None:
    """Ends with 4 where the formulas of a class do not agree with execution."""
    failed = [name for name, part in parts.items() if part.status == "failed"]
    if failed:
        _note(f"error: the formulas do not agree with execution: {', '.join(failed)}")
        _note("do not use the model; `lmp verify CLASS` says where they differ")
        raise typer.Exit(DISAGREES)
