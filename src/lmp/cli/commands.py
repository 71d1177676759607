"""The commands. Each imports what it needs when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmp.cli import agents as a
from lmp.cli import options as o
from lmp.cli.evaluate import evaluate
from lmp.cli.inspect import catalogue, inspect

if TYPE_CHECKING:
    from lmp.pipeline.module import Options, Outcome

DISAGREES = 4
UNUSABLE = 3


def register(app: typer.Typer) -> None:
    """In the order in which they are used."""
    from lmp.cli.diff import diff
    from lmp.cli.expand import expand
    from lmp.cli.mcp import mcp
    from lmp.cli.prompt import prompt
    from lmp.cli.report import report
    from lmp.cli.resume import resume
    from lmp.cli.review import review
    from lmp.cli.submit import submit
    from lmp.cli.zoo import zoo

    app.command("vendor")(vendor)
    app.command("analyze-module")(analyze_module)
    app.command("verify")(verify)
    app.command("expand")(expand)
    app.command("resume")(resume)
    app.command("evaluate")(evaluate)
    app.command("diff")(diff)
    app.command("report")(report)
    app.command("review")(review)
    app.command("prompt")(prompt)
    app.command("submit")(submit)
    app.command("mcp")(mcp)
    app.command("zoo")(zoo)
    app.command("inspect")(inspect)
    app.command("catalogue")(catalogue)
    app.command("doctor")(doctor)
    app.command("schema")(schema)


def vendor(as_json: o.Json = False, quiet: o.Quiet = False, debug: o.Debug = False) -> None:
    """Put the pinned Python sources into the project."""
    from dataclasses import asdict

    from lmp.source.trees import project_root
    from lmp.source.vendor import vendor as put

    result = put(project_root(), log=(lambda line: None) if quiet else _note)
    if as_json:
        trees = [asdict(tree) for tree in result.trees]
        _print_json({"root": str(result.root), "changed": result.changed, "trees": trees})
    elif not quiet:
        _note("vendored" if result.changed else "nothing changed")


def analyze_module(
    classes: o.ClassPaths = None,
    module: o.ModulePaths = None,
    engine: o.EngineName = o.Engine.auto,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    inputs: o.Inputs = None,
    init: o.Init = None,
    path: o.Paths = None,
    fresh: o.Fresh = False,
    agent_model: a.ModelOrAgentModel = None,
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
    """Say what each line of forward() costs."""
    options = _options(engine, results, transformers, pytorch, config, model_id, attn, dtype, fresh, agents=True)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    paths = list(dict.fromkeys([*(classes or []), *(module or [])])) or [_class_of_config(options)]
    caps = a.Caps(agent_model, fallback_model, max_budget_usd, max_turns, concurrency, timeout)
    if options.engine == "agent":
        done = a.at_work("analyze-module", paths, options, caps, dry_run, quiet, as_json)
        outcomes: Sequence[Outcome] = done.outcomes if done is not None else ()
    else:
        caps.refuse_without_agents(dry_run)
        with _watched(paths, options, quiet) as progress:
            from lmp.pipeline.module import analyze_modules

            outcomes = analyze_modules(paths, options, progress)
    if not dry_run:
        show_outcomes(outcomes, options.why_engine, as_json)


def show_outcomes(outcomes: Sequence[Outcome], why_engine: str, as_json: bool) -> None:
    """What `analyze-module` prints."""
    if as_json:
        from lmp.store.results import to_data

        _print_json([to_data(outcome.analysis) for outcome in outcomes if outcome.requested])
    else:
        from lmp.cli.tables import console, print_outcomes

        print_outcomes(console(), outcomes, why_engine)
    _exit_if_failed([outcome.analysis for outcome in outcomes])


def verify(
    class_path: o.ClassPath = None,
    module: o.ModulePath = None,
    engine: o.EngineName = o.Engine.auto,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    inputs: o.Inputs = None,
    init: o.Init = None,
    path: o.Paths = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Hold the formulas against execution again."""
    options = _options(engine, results, transformers, pytorch, config, model_id, attn, dtype)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    name = _one_class(class_path, module, options)
    with _watched([name], options, quiet) as progress:
        from lmp.pipeline.module import verify_module

        progress(name, "verifying")
        outcome = verify_module(name, options)
    verification = outcome.analysis.verification
    if as_json:
        about = {"class_name": outcome.analysis.class_name, "file": str(outcome.file)}
        _print_json({**about, "verification": verification.model_dump(mode="json", exclude_none=True)})
    else:
        from lmp.cli.tables import console, print_verification

        print_verification(console(), outcome.analysis, outcome.file)
    _exit_if_failed([outcome.analysis])


def doctor(
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Say what is there, what is missing, what to do."""
    from dataclasses import asdict

    from lmp.cli.doctor import examine, usable

    checks = examine(_results_folder(results), transformers, pytorch)
    if as_json:
        _print_json({"usable": usable(checks), "checks": [asdict(check) for check in checks]})
    else:
        from lmp.cli.tables import console, print_checks

        print_checks(console(), checks)
    if not usable(checks):
        raise typer.Exit(UNUSABLE)


def schema(
    name: Annotated[str | None, typer.Argument(help="The schema to print; without it, all are listed.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write all of them as files.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Where --write puts them [default: schemas].")
    ] = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """The JSON Schemas of lmp's files."""
    from lmp.store import schemas

    if write:
        from lmp.source.trees import project_root

        for path in schemas.write_schemas(folder or project_root() / "schemas"):
            _note(f"wrote {path}")
    elif name is not None:
        _print(schemas.schema_text(name))
    elif as_json:
        _print_json({name: schemas.schema(name) for name in schemas.DESCRIBED})
    else:
        for entry in schemas.DESCRIBED.values():
            _print(f"{entry.name:<16} {entry.what}\n")


# --- what they have in common ----------------------------------------------------------------------------------------


def _one_class(class_path: str | None, module: str | None, options: Options) -> str:
    from lmp.errors import UsageError

    if class_path is not None and module is not None and class_path != module:
        raise UsageError(f"two classes are given: {class_path} and, with --module, {module}\ngive one")
    return class_path or module or _class_of_config(options)


def _class_of_config(options: Options) -> str:
    from lmp.pipeline.module import class_of_config

    with _scratchpad(options, lambda: options.model_id or str(options.config_file)):
        return class_of_config(options)


def _options(
    engine: o.Engine,
    results: Path | None,
    transformers: Path | None,
    pytorch: Path | None,
    config: Path | None,
    model_id: str | None,
    attn: o.Attention | None,
    dtype: o.Dtype,
    fresh: bool = False,
    agents: bool = False,
) -> Options:
    """``agents``: whether the command can be carried out by agents."""
    from lmp.errors import UsageError
    from lmp.pipeline.engines import Choice, chosen_engine
    from lmp.pipeline.module import Options

    if engine is o.Engine.agent and not agents:
        raise UsageError(
            "agents work for analyze-module and expand only\nrun one of these with --engine agent, then this without"
        )
    choice = chosen_engine(str(engine)) if agents else Choice("trace")
    return Options(
        results=_results_folder(results),
        transformers=transformers,
        pytorch=pytorch,
        config_file=config,
        attention=None if attn is None else str(attn),
        dtype=str(dtype),
        fresh=fresh,
        engine=choice.engine,
        why_engine=choice.why,
        model_id=model_id,
    )


def _results_folder(given: Path | None) -> Path:
    """The given folder, or the project's own: so a command finds its results from any folder of the project."""
    if given is not None:
        return given
    from lmp.source.trees import project_root

    return project_root() / o.DEFAULT_RESULTS


@contextmanager
def _watched(paths: list[str], options: Options, quiet: bool) -> Iterator[Any]:
    """Progress while the block runs; a search that fails in it leaves SCRATCHPAD.md in the results folder."""
    from lmp.cli.progress import watch

    with watch(paths, quiet) as progress, _scratchpad(options, lambda: progress.current or " ".join(paths)):
        yield progress


@contextmanager
def _scratchpad(options: Options, looked_for: Callable[[], str]) -> Iterator[None]:
    """A search that fails in the block leaves SCRATCHPAD.md in the results folder."""
    from lmp.errors import NotFound, StorageError

    try:
        yield
    except NotFound as error:
        from lmp.source.scratchpad import write_scratchpad

        try:
            page = write_scratchpad(options.results, looked_for(), error)
        except StorageError as failure:
            error.message += f"\n({str(failure).splitlines()[0]})"
        else:
            error.message += f" (what was looked for: {page})"
        raise


def _exit_if_failed(analyses: list[Any]) -> None:
    failed = [analysis.class_name for analysis in analyses if analysis.verification.status == "failed"]
    if failed:
        _note(f"error: the formulas do not agree with execution: {', '.join(failed)}")
        _note("do not use them; `lmp verify CLASS` says where they differ")
        raise typer.Exit(DISAGREES)


def _print_json(data: object) -> None:
    """JSON on stdout, as every ``--json`` prints it."""
    import json

    _print(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _print(text: str) -> None:
    sys.stdout.write(text)


def _note(text: str) -> None:
    print(text, file=sys.stderr)
