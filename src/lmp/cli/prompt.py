"""``lmp prompt``: the exact prompt of an agent for a class, for any other model, tool or person."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import narrative
from lmp.cli import options as o
from lmp.cli.output import note, write, write_json
from lmp.cli.progress import class_of_config, watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from lmp.agents.prompts import Prompt

SYSTEM, MESSAGE = "===== system prompt =====", "===== message ====="


class StageName(StrEnum):
    analyze = "analyze"
    expand = "expand"
    parts = "parts"
    narrate = "narrate"
    refute = "refute"


Stage = Annotated[
    StageName,
    typer.Option(
        "--stage",
        help="analyze: one class; expand: the open references of a model; parts: those of the folder of a code base;"
        " narrate: the narrative of a report on a model or on such a folder; refute: the second pass over it.",
    ),
]


@o.takes(*o.ONE_CLASS, ..., *o.FOLDERS, *o.CONFIG, *o.OWN_CLASS, *o.PRINTED)
def prompt(
    common: o.Common,
    stage: Stage = StageName.analyze,
    reports: narrative.Reports = None,
    device: narrative.DeviceName = None,
) -> None:
    """Print the prompt that an agent would get for a class, or for a report.

    Nothing is stored. Called classes without an analysis are analysed for it, for a few seconds.
    """
    named = o.one_of("classes", common.class_path, "--module", common.module)
    if stage is StageName.parts:
        from lmp.report.naming import parts_prompt

        study = narrative.study_of(common, named)
        found = parts_prompt(study)
        _print(common, found, lambda: narrative.data_of(study.base.facts.root_name, stage, found))
        return
    if stage in (StageName.narrate, StageName.refute):
        folder = o.reports_folder(reports)
        made = narrative.making_of(common, named, device, folder)
        found = narrative.prompt_of(made, stage is StageName.refute, folder)
        _print(common, found, lambda: narrative.data_of(made.name, stage, found))
        return
    narrative.refuse_of_reports(reports, device)
    common, class_path = chosen(common, named, "prompt")
    options = common.options()
    name = class_path or class_of_config(options)
    with watched([name], options, common.quiet) as progress:
        from lmp.agents.prompts import prompt_of_class, prompt_of_model
        from lmp.agents.unwritten import made_in_time, unwritten
        from lmp.analyze.session import Session

        progress(name, "reading")
        session = unwritten(Session(options, progress, takes_foreign=True))
        prompt_of = prompt_of_class if stage is StageName.analyze else prompt_of_model
        found = prompt_of(session, name, made_in_time(session))
    _print(common, found, lambda: data_of(name, stage, found))


def _print(common: o.Common, found: Prompt, data: Callable[[], dict[str, object]]) -> None:
    if common.as_json:
        write_json(data())
    else:
        write(f"{SYSTEM}\n{found.system.rstrip()}\n\n{MESSAGE}\n{found.message.rstrip()}\n")
    if not common.quiet:
        sys.stdout.flush()
        note(f"sha256 of both: {found.sha256}")


def data_of(name: str, stage: StageName, found: Prompt) -> dict[str, object]:
    """The prompt as JSON data, with the schemas of the tools that it names."""
    from lmp.agents.tools import described

    return {
        "class_name": name,
        "stage": str(stage),
        "system": found.system,
        "prompt": found.message,
        "sha256": found.sha256,
        "tools": described(expander=stage is StageName.expand),
    }
