"""``lmp report``: documents on models, modules and code bases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmp.cli import agents as a
from lmp.cli import options as o

if TYPE_CHECKING:
    from lmp.agents.run import Run
    from lmp.pipeline.module import Options
    from lmp.records import ModelAnalysis
    from lmp.report.making import Making
    from lmp.report.writing import Written

DEFAULT_REPORTS = "reports"


class Form(StrEnum):
    markdown = "markdown"
    html = "html"


Target = Annotated[
    str | None,
    typer.Argument(metavar="MODEL|DIR", help="Class path of a model or module, or the folder of a code base."),
]
Forms = Annotated[
    list[Form] | None,
    typer.Option("--format", help="markdown, or html: one page that works offline [default: markdown]."),
]
Reports = Annotated[
    Path | None,
    typer.Option("--reports", metavar="DIR", help=f"Where reports are written [default: {DEFAULT_REPORTS}]."),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Whose peak rates bounds are for: A100-80GB, H100, H200, MI300X [default: H100].",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Everything in the results folder, and an index.")]
Narrate = Annotated[
    bool, typer.Option("--narrate", help="Let an agent write the summary, insights and pitfalls from the facts.")
]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="PATTERN", help="Of a code base: read only this, as in .gitignore: 'srt/**'."),
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Of a code base: do not read this.")
]
Update = Annotated[
    bool, typer.Option("--update", help="Of a code base: redo what changed, and list the pointers that are stale.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="With --narrate: show the prompt's size and the caps; spend nothing."),
]


@dataclass(frozen=True)
class Asked:
    """What is asked for, whatever the report is of."""

    folder: Path
    forms: tuple[str, ...]
    device: str
    sizes: Mapping[str, int]
    narrate: bool
    dry_run: bool
    caps: a.Caps
    quiet: bool
    run: Run | None = None
    """A narration that was begun, to be gone on with."""


@dataclass(frozen=True)
class OfFolder:
    """What is asked for of a code base."""

    folder: Path
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    update: bool


def report(
    target: Target = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="The model, as an option.")] = None,
    everything: All = False,
    form: Forms = None,
    reports: Reports = None,
    device: DeviceName = None,
    narrate: Narrate = False,
    include: Include = None,
    exclude: Exclude = None,
    update: Update = False,
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
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A size that no config has, as in_features=4096."),
    ] = None,
    agent_model: a.AgentModel = None,
    fallback_model: a.FallbackModel = None,
    max_budget_usd: a.Budget = None,
    max_turns: a.MaxTurns = None,
    timeout: a.Timeout = None,
    dry_run: DryRun = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write the report on a model, a module or a code base.

    As in: lmp report --model-id Qwen/Qwen3-30B-A3B, or lmp report path/to/repo. What is not analysed yet is analysed
    first. A report is written only if its review finds nothing: every pointer opens, every number is what `lmp
    evaluate` says.
    """
    from lmp.cli.commands import _options
    from lmp.expand.point import parse_settings
    from lmp.report.devices import DEFAULT
    from lmp.report.extra import check_extra

    check_extra()
    caps = a.Caps(agent_model, fallback_model, max_budget_usd, max_turns, None, timeout)
    if not narrate:
        caps.refuse_without_agents(dry_run, "--narrate")
    forms = tuple(form or (Form.markdown,))
    sizes = parse_settings(settings or ())
    asked = Asked(_reports_folder(reports), forms, device or DEFAULT, sizes, narrate, dry_run, caps, quiet)
    options = _options(o.Engine.trace, results, transformers, pytorch, config, model_id, attn, dtype)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    name = _one(target, model)
    of_folders = {"--include": include, "--exclude": exclude, "--update": update}
    if everything:
        _refuse({**of_folders, "--set": settings, "--model-id": model_id}, "not with --all")
        _all(name, options, asked)
        return
    if narrate:
        _can_narrate(asked)
    if name is not None and _is_path(name):
        of_models = {"--device": device, "--set": settings, "--config": config, "--model-id": model_id, "--attn": attn}
        _refuse({**of_models, "--inputs": inputs, "--init": init, "--path": path}, "for models only, not for a folder")
        _repository(OfFolder(Path(name), tuple(include or ()), tuple(exclude or ()), update), options, asked)
    else:
        _refuse(of_folders, "for the folder of a code base only, as in lmp report path/to/repo")
        _model(name, options, asked)


def resume_report(run: Run, options: Options, quiet: bool) -> None:
    """Go on with a narration that was interrupted, and write its report."""
    given = run.state.report or {}
    asked = Asked(
        Path(given["folder"]),
        tuple(given["forms"]),
        given["device"],
        given["sizes"],
        narrate=True,
        dry_run=False,
        caps=a.Caps(*[None] * 6),
        quiet=quiet,
        run=run,
    )
    of = given["code_base"]
    if of is None:
        _model(given["model"], options, asked)
        return
    folder = Path(of["as_given"])  # the list of numbers names it so, unless that is another folder from here
    if folder.absolute() != Path(of["folder"]):
        folder = Path(of["folder"])
    _repository(OfFolder(folder, tuple(of["include"]), tuple(of["exclude"]), of["update"]), options, asked)


def _can_narrate(asked: Asked) -> None:
    """Raises what stands against it, before any work is done."""
    from lmp.agents.failures import check_runnable
    from lmp.errors import UsageError

    if Form.markdown not in asked.forms:
        raise UsageError("--narrate is for the markdown, the page has no text of its own\nadd --format markdown")
    if not asked.dry_run:
        check_runnable("leave out `--narrate`")
        import lmp.agents.claude  # noqa: F401  takes a second: before there is a run that could be interrupted in it


def _one(target: str | None, model: str | None) -> str | None:
    from lmp.errors import UsageError

    if target is not None and model is not None and target != model:
        raise UsageError(f"two models are given: {target} and, with --model, {model}\ngive one")
    return target or model


def _is_path(name: str) -> bool:
    return "/" in name or name in (".", "..") or Path(name).exists()


def _refuse(given: Mapping[str, object], why: str) -> None:
    """An option that would do nothing is a mistake."""
    from lmp.errors import UsageError

    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(f"{', '.join(names)}: {why}\nleave {'it' if len(names) == 1 else 'them'} out")


def _reports_folder(given: Path | None) -> Path:
    from lmp.errors import UsageError
    from lmp.source.trees import project_root

    if given is not None and given.exists() and not given.is_dir():
        raise UsageError(f"--reports {given} is a file where a folder is due\ngive another folder")
    return given if given is not None else project_root() / DEFAULT_REPORTS


# --- models ----------------------------------------------------------------------------------------------------------


def _model(name: str | None, options: Options, asked: Asked) -> None:
    from lmp.cli.commands import _class_of_config, _watched
    from lmp.report.devices import device_named

    device = device_named(asked.device)
    class_path = name or _class_of_config(options)
    with _watched([class_path], options, asked.quiet) as progress:
        from lmp.report.gathering import gather
        from lmp.report.model import model_making, write_page

        facts = gather(class_path, options, progress, device, asked.sizes)
        progress(facts.model.class_name, "writing the report")
        making = model_making(facts)
        if not asked.narrate:
            _write(making, asked)
    if asked.narrate:
        _narrate(making, options, asked, {"model": class_path, "code_base": None})
    if Form.html in asked.forms and not asked.dry_run:
        page, is_new = write_page(asked.folder, facts)
        _say_written(page, is_new, asked)
    _warn(facts.model)


def _warn(model: ModelAnalysis) -> None:
    """What the report says at its top. Ends with 4 where formulas do not agree with execution."""
    from lmp.cli.commands import _note
    from lmp.cli.expand import exit_if_a_part_failed
    from lmp.report.warnings import of_the_model

    for line in of_the_model(model):
        _note(f"warning: {line}")
    exit_if_a_part_failed(model.parts)


# --- code bases ------------------------------------------------------------------------------------------------------


def _repository(of: OfFolder, options: Options, asked: Asked) -> None:
    from lmp.errors import UsageError

    if Form.html in asked.forms:
        raise UsageError("the page is of a model, not of a code base\nleave out --format html")
    from lmp.cli.commands import _note
    from lmp.cli.progress import counted
    from lmp.recon.facts import Selection
    from lmp.report import code_base

    with counted("reading", asked.quiet) as progress:
        facts = code_base.read_code_base(of.folder, Selection(of.include, of.exclude), progress)
    state = code_base.last_state(asked.folder, facts) if of.update else None
    making = code_base.repository_making(facts, of.folder, state)
    if of.update:
        for line in code_base.since_the_last(asked.folder, making, facts, of.folder, state):
            _note(line)
    if asked.narrate:
        given = {**asdict(of), "folder": str(of.folder.absolute()), "as_given": str(of.folder)}
        _narrate(making, options, asked, {"model": None, "code_base": given})
    else:
        _write(making, asked)
    if not asked.dry_run:
        code_base.remember(asked.folder, facts, of.folder, asked.folder / making.plain.file)


# --- what they have in common ----------------------------------------------------------------------------------------


def _write(making: Making, asked: Asked) -> None:
    from lmp.report.writing import write_made

    with _findings_shown():
        _say(write_made(asked.folder, making), asked)


def _narrate(making: Making, options: Options, asked: Asked, subject: dict[str, Any]) -> None:
    """``subject`` is what the report is of, as `resume_report` reads it."""
    from lmp.report.narration import narrated, start
    from lmp.report.writing import write_made

    with _findings_shown():
        if asked.dry_run:
            _show_dry_run(making, asked)
            return
        run = asked.run
        if run is None:
            given = {
                "folder": str(asked.folder.absolute()),
                "forms": list(asked.forms),
                "device": asked.device,
                "sizes": dict(asked.sizes),
            }
            run = start(making, options, asked.caps.limits(), {**given, **subject})
        with a.shown(run, asked.quiet):
            written = narrated(run, making, a.claude, lambda narration: write_made(asked.folder, making, narration))
    _say(written, asked)


def _show_dry_run(making: Making, asked: Asked) -> None:
    from lmp.agents.transcript import shown
    from lmp.cli.commands import _print
    from lmp.report.narration import dry_run

    found = dry_run(making)
    _print(shown(f"report on {found.name}: {found.lines:,} lines, prompt of {found.characters:,} characters\n"))
    _print(shown(f"may read below: {', '.join(map(str, found.roots)) or 'no folder'}\n"))
    _print(f"caps: {a.caps_text(asked.caps.limits())}\nNothing was sent, nothing was spent, nothing was written.\n")


@contextmanager
def _findings_shown() -> Iterator[None]:
    """A report that was refused says why, line by line."""
    from lmp.cli.review import print_findings
    from lmp.errors import ReportRefused

    try:
        yield
    except ReportRefused as error:
        print_findings(error.file, error.findings)
        raise


def _say(written: Written, asked: Asked) -> None:
    from lmp.agents.transcript import shown
    from lmp.cli.commands import _note

    for note in written.notes:
        _note(shown(note))
    _say_written(written.file, bool(written.changed), asked)


def _say_written(file: Path, changed: bool, asked: Asked) -> None:
    from lmp.cli.commands import _note

    if not asked.quiet:
        _note(f"{'wrote' if changed else 'unchanged:'} {file}")


def _all(name: str | None, options: Options, asked: Asked) -> None:
    from lmp.agents.transcript import shown
    from lmp.cli.commands import DISAGREES, _note
    from lmp.cli.progress import watch
    from lmp.errors import UsageError
    from lmp.report.devices import device_named
    from lmp.report.everything import INDEX, report_all

    if name is not None or asked.narrate:
        raise UsageError("--all is of everything in the results folder\nleave out the model and --narrate")
    with watch([str(options.results)], asked.quiet) as progress:
        listed = report_all(asked.folder, options, progress, device_named(asked.device), Form.html in asked.forms)
    for one in listed:
        if one.why_not:
            _note(f"not made: {one.stored.name}: {one.why_not}")
        else:
            for note in one.notes:
                _note(shown(note))
            _say_written(asked.folder / str(one.report), one.changed, asked)
    _note(f"index: {asked.folder / INDEX}")
    failed = [one.stored.name for one in listed if one.stored.analysis.verification.status == "failed"]
    if failed:
        _note(f"error: the formulas do not agree with execution: {', '.join(failed)}")
    if failed or any(one.why_not for one in listed):
        raise typer.Exit(DISAGREES)
