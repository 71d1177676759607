"""``lmp report``: documents on models, modules and code bases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmp.cli import agents as a
from lmp.cli import options as o
from lmp.cli.output import DISAGREES, end_if_failed, note, note_failed, write
from lmp.cli.progress import class_of_config, counted, watch, watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from lmp.agents.run import Run
    from lmp.analyze.session import Options
    from lmp.records import ModelAnalysis
    from lmp.report.deployment import Deployment
    from lmp.report.making import Making
    from lmp.report.narration import First
    from lmp.report.writing import Written


class Form(StrEnum):
    markdown = "markdown"
    html = "html"


class Template(StrEnum):
    repository = "repository"
    implementation = "implementation"


Target = Annotated[
    str | None,
    typer.Argument(metavar="MODEL|DIR", help=f"{o.SUBJECT} Or the folder of a code base."),
]
Forms = Annotated[
    list[Form] | None,
    typer.Option("--format", help="markdown, or html: one page that works offline [default: markdown]."),
]
Reports = Annotated[
    Path | None,
    typer.Option(
        "--reports",
        metavar="DIR",
        help="Folder of the reports [default: reports in a project, else in the user's data folder].",
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device of the bounds and of the predicted times; `lmp devices` lists them [default: H100].",
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        "--at", metavar="PHASE:BATCH:TOKENS", help="Point of a model's report, as decode:16:8k; may be repeated."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Report on everything in the results folder, with an index.")]
Narrate = Annotated[
    bool,
    typer.Option(
        "--narrate",
        help="Let an agent write the summary, insights and pitfalls; of a code base it names the parts first.",
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include", metavar="PATTERN", help="For a code base: read only these files, as in .gitignore: 'srt/**'."
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="For a code base: skip these files, as in .gitignore."),
]
TemplateName = Annotated[
    Template,
    typer.Option("--template", help="For a code base: the template that is filled.", show_default=True),
]
Update = Annotated[bool, typer.Option("--update", help="For a code base: redo what changed, and list stale pointers.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="With --narrate: show the prompt's size and the caps; spend nothing."),
]


@dataclass(frozen=True)
class Asked:
    """The options of every report."""

    common: o.Common
    folder: Path
    forms: tuple[str, ...]
    device: str
    deployment: Deployment
    sizes: Mapping[str, int]
    narrate: bool
    run: Run | None = None
    """The interrupted narration to resume."""
    at: tuple[str, ...] = ()


@dataclass(frozen=True)
class OfFolder:
    """The options of a report on a code base."""

    folder: Path
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    update: bool
    template: str = "repository"


@o.takes(
    *(..., "kv_type", *o.FOLDERS, "no_atlas", *o.CONFIG, *o.OWN_CLASS, "settings", "agent_model", "agent_effort"),
    *("fallback_model", "max_budget_usd", "max_turns", "timeout", "dry_run", "quiet", "debug"),
    dry_run=DryRun,
)
def report(
    common: o.Common,
    target: Target = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The model, in place of the argument.")
    ] = None,
    everything: All = False,
    form: Forms = None,
    reports: Reports = None,
    device: DeviceName = None,
    at: At = None,
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    serving: o.ServingEngine = None,
    narrate: Narrate = False,
    include: Include = None,
    exclude: Exclude = None,
    update: Update = False,
    template: TemplateName = Template.repository,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Size that no config states, as in_features=4096."),
    ] = None,
) -> None:
    """Write the report on a model, a module or a code base.

    Examples: lmp report Qwen/Qwen3-30B-A3B, lmp report path/to/repo. Missing analyses are made first. A
    report is written only if its review finds nothing: every pointer opens, and every number is what `lmp evaluate`
    prints.
    """
    from lmp.link.values import parse_settings, whole_values
    from lmp.predict.screen.card import SERVING
    from lmp.predict.shard.parallel import Parallel
    from lmp.report.deployment import Deployment
    from lmp.report.devices import DEFAULT
    from lmp.report.extra import check_extra
    from lmp.source.subject import is_code_base

    check_extra()
    if not narrate:
        a.refuse_without_agents(common, "--narrate")
    forms = tuple(form or (Form.markdown,))
    sizes = whole_values(parse_settings(settings or ()))
    kv = None if common.kv_type is None else str(common.kv_type)
    deployment = Deployment(Parallel(tp, ep), kv, serving or SERVING)
    folder, points = o.reports_folder(reports), tuple(at or ())
    asked = Asked(common, folder, forms, device or DEFAULT, deployment, sizes, narrate, at=points)
    name = o.one_of("models", target, "--model", model)
    of_code_base = name is not None and is_code_base(name)
    common, class_path = (common, name) if of_code_base or everything else chosen(common, name, "report")
    options = common.options()
    filled = template == Template.implementation
    of_folders = {"--include": include, "--exclude": exclude, "--update": update, "--template": filled}
    of_one = {"--tp": tp > 1, "--ep": ep > 1, "--kv-dtype": kv, "--engine": serving}
    if everything:
        of_all = {**of_folders, **of_one, "--set": settings, "--model-id": common.model_id, "--at": at}
        _refuse(of_all, "not with --all")
        _all(name, options, asked)
        return
    if narrate:
        _can_narrate(asked)
    if name is not None and of_code_base:
        of_models = {
            "--device": device,
            "--at": at,
            "--set": settings,
            "--config": common.config,
            "--model-id": common.model_id,
        }
        of_classes = {"--attn": common.attn, "--inputs": common.inputs, "--init": common.init, "--path": common.path}
        _refuse({**of_models, **of_one, **of_classes}, "for models only, not for a folder")
        given = OfFolder(Path(name), tuple(include or ()), tuple(exclude or ()), update, template.value)
        _repository(given, options, asked)
    else:
        _refuse(of_folders, "for the folder of a code base only, as in lmp report path/to/repo")
        _model(class_path, options, asked)


def resume_report(run: Run, options: Options, common: o.Common) -> None:
    """Resume an interrupted narration, and write its report."""
    from lmp.report.deployment import DEFAULT, deployment_of

    given = run.state.report or {}
    folder, forms = Path(given["folder"]), tuple(given["forms"])
    deployment = deployment_of(given["deployment"]) if "deployment" in given else DEFAULT
    at = tuple(given.get("at", ()))
    asked = Asked(common, folder, forms, given["device"], deployment, given["sizes"], narrate=True, run=run, at=at)
    of = given["code_base"]
    if of is None:
        _model(given["model"], options, asked)
        return
    folder = Path(of["as_given"])  # the list of numbers names it so, unless that is another folder from here
    if folder.absolute() != Path(of["folder"]):
        folder = Path(of["folder"])
    filled = of.get("template", "repository")
    read = OfFolder(folder, tuple(of["include"]), tuple(of["exclude"]), of["update"], filled)
    _repository(read, options, asked)


def _can_narrate(asked: Asked) -> None:
    """Raise the error that prevents a narration, before any work is done."""
    from lmp.agents.environment import check_runnable
    from lmp.errors import UsageError

    if Form.markdown not in asked.forms:
        raise UsageError("--narrate is for the markdown: the page has no text of its own\nadd --format markdown")
    if not asked.common.dry_run:
        check_runnable("leave out `--narrate`")
        a.prepares("report", [], asked.common.quiet)
        import lmp.agents.claude  # noqa: F401  takes a second: before there is a run that could be interrupted in it


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Raise UsageError for an option that has no effect here."""
    from lmp.errors import UsageError

    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(f"{', '.join(names)}: {why}\nleave {'it' if len(names) == 1 else 'them'} out")


# --- models ----------------------------------------------------------------------------------------------------------


def _model(name: str | None, options: Options, asked: Asked) -> None:
    from lmp.report.devices import device_named
    from lmp.report.facts import STATED, parse_point

    device = device_named(asked.device)
    at = tuple(map(parse_point, asked.at)) or STATED
    class_path = name or class_of_config(options)
    with watched([class_path], options, asked.common.quiet) as progress:
        from lmp.report.gathering import gather
        from lmp.report.model import model_making, write_page

        facts = gather(class_path, options, progress, device, asked.sizes, asked.deployment, at)
        progress(facts.model.class_name, "writing the report")
        making = model_making(facts)
        if not asked.narrate:
            _write_report(making, asked)
    if asked.narrate:
        _narrate(making, options, asked, {"model": class_path, "code_base": None})
    if Form.html in asked.forms and not asked.common.dry_run:
        page, is_new = write_page(asked.folder, facts)
        _note_written(page, is_new, asked)
    _warn(facts.model)


def _warn(model: ModelAnalysis) -> None:
    """Print the warnings at the top of the report. Exit with 4 if formulas do not agree with execution."""
    from lmp.report.warnings import of_the_model

    for line in of_the_model(model):
        note(f"warning: {line}")
    end_if_failed([name for name, part in model.parts.items() if part.status == "failed"], "the model")


# --- code bases ------------------------------------------------------------------------------------------------------


def _repository(of: OfFolder, options: Options, asked: Asked) -> None:
    from lmp.errors import UsageError

    if Form.html in asked.forms:
        raise UsageError("--format html is for models, not for a code base\nleave it out")
    from lmp.agents.transcript import shown
    from lmp.codebase.facts import Selection
    from lmp.report import code_base, naming

    with counted("reading", asked.common.quiet) as progress:
        facts = code_base.read_code_base(of.folder, Selection(of.include, of.exclude), progress)
    state = code_base.last_state(asked.folder, facts) if of.update else None
    filled = of.template == Template.implementation
    study = code_base.studied(facts, of.folder, state)
    named, notes = naming.kept(asked.folder, study)
    for line in notes:
        note(shown(line))
    making = code_base.repository_making(facts, of.folder, state, filled, named)
    if of.update:
        for line in code_base.since_the_last(asked.folder, making, facts, of.folder, state):
            note(line)
    if asked.narrate:
        given = {**asdict(of), "folder": str(of.folder.absolute()), "as_given": str(of.folder)}
        first = None if named is not None else naming.first(study, asked.folder, filled)
        if asked.common.dry_run and first is not None:
            prompt = naming.parts_prompt(study)
            write(f"first the parts are named: prompt of {len(prompt.system) + len(prompt.message):,} characters\n")
        _narrate(making, options, asked, {"model": None, "code_base": given}, first)
        named, _ = naming.kept(asked.folder, study)
    else:
        _write_report(making, asked)
    if not asked.common.dry_run:
        if of.template == Template.repository:
            code_base.remember(asked.folder, facts, of.folder, asked.folder / making.plain.file)
        for line in code_base.returned(facts, of.folder, asked.folder / making.plain.file, filled, named):
            note(line)


# --- what they have in common ----------------------------------------------------------------------------------------


def _write_report(making: Making, asked: Asked) -> None:
    from lmp.agents.transcript import shown
    from lmp.report.writing import write_made

    with _findings_shown():
        _note_report(write_made(asked.folder, making), asked)
    if making.summary is not None and not asked.common.quiet:
        for line in making.summary(making.without):
            note(shown(line))


def _narrate(
    making: Making, options: Options, asked: Asked, subject: dict[str, Any], first: First | None = None
) -> None:
    """Write the report with a narration. ``subject`` says what it is of, as `resume_report` reads it; ``first`` is what
    the agent does before."""
    from lmp.report.narration import narrated, start
    from lmp.report.writing import write_made

    with _findings_shown():
        if asked.common.dry_run:
            _show_dry_run(making, asked)
            return
        run = asked.run
        if run is None:
            given = {
                "folder": str(asked.folder.absolute()),
                "forms": list(asked.forms),
                "device": asked.device,
                "deployment": asked.deployment.words,
                "sizes": dict(asked.sizes),
                "at": list(asked.at),
            }
            run = start(making, options, a.limits(asked.common), {**given, **subject})
        with a.shown(run, asked.common.quiet):
            written = narrated(
                run, making, a.claude, lambda made, narration: write_made(asked.folder, made, narration), first
            )
    _note_report(written, asked)


def _show_dry_run(making: Making, asked: Asked) -> None:
    from lmp.agents.transcript import shown
    from lmp.report.narration import dry_run

    found = dry_run(making)
    write(shown(f"report on {found.name}: {found.lines:,} lines, prompt of {found.characters:,} characters\n"))
    write(shown(f"may read below: {', '.join(map(str, found.roots)) or 'no folder'}\n"))
    caps = a.limits(asked.common)
    write(f"model: {a.model_text(caps)}\ncaps: {a.caps_text(caps)}\n")
    write("Nothing was sent, nothing was spent, nothing was written.\n")


@contextmanager
def _findings_shown() -> Iterator[None]:
    """Print the findings of a report that its review refuses."""
    from lmp.errors import ReportRefused

    try:
        yield
    except ReportRefused as error:
        for finding in error.findings:
            note(f"{error.file}:{finding.line}: {finding.rule}: {finding.message}")
        raise


def _note_report(written: Written, asked: Asked) -> None:
    from lmp.agents.transcript import shown

    for text in written.notes:
        note(shown(text))
    _note_written(written.file, bool(written.changed), asked)


def _note_written(file: Path, changed: bool, asked: Asked) -> None:
    if not asked.common.quiet:
        note(f"{'wrote' if changed else 'unchanged:'} {file}")


def _all(name: str | None, options: Options, asked: Asked) -> None:
    from lmp.agents.transcript import shown
    from lmp.errors import UsageError
    from lmp.report.devices import device_named
    from lmp.report.everything import INDEX, report_all

    if name is not None or asked.narrate:
        raise UsageError("--all reports on everything in the results folder\nleave out the model and --narrate")
    with watch([str(options.results)], asked.common.quiet) as progress:
        listed = report_all(asked.folder, options, progress, device_named(asked.device), Form.html in asked.forms)
    for one in listed:
        if one.why_not:
            note(f"not made: {one.stored.name}: {one.why_not}")
        else:
            for text in one.notes:
                note(shown(text))
            _note_written(asked.folder / str(one.report), one.changed, asked)
    note(f"index: {asked.folder / INDEX}")
    failed = [one.stored.name for one in listed if one.stored.analysis.verification.status == "failed"]
    if failed:
        note_failed(failed)
    if failed or any(one.why_not for one in listed):
        raise typer.Exit(DISAGREES)
