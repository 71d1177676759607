"""What `lmp prompt` and `lmp submit` do for a report: the prompts of parts and narratives, and their submission."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.output import DISAGREES, count, note, write
from lmp.cli.progress import class_of_config, counted, watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from lmp.agents.prompts import Prompt
    from lmp.records import GateFinding, Narration
    from lmp.report.making import Making
    from lmp.report.repository.study import Study

Reports = Annotated[
    Path | None,
    typer.Option("--reports", metavar="DIR", help="Of a report: folder of the reports [default: as for `lmp report`]."),
]
DeviceName = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Of a report on a model: its device [default: H100]."),
]


def refuse_of_reports(reports: Path | None, device: str | None, by: str | None = None) -> None:
    """Raise UsageError for options that only the stages of a report have."""
    from lmp.errors import UsageError

    given = {"--reports": reports, "--device": device, "--by": by}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise UsageError(f"{', '.join(names)}: for a report only\nadd --stage parts, narrate or refute")


def making_of(common: o.Common, target: str | None, device: str | None, folder: Path) -> Making:
    """The report on a model, a module or a code base, as `lmp report` would make it in the reports folder."""
    from lmp.report.extra import check_extra
    from lmp.source.subject import is_code_base

    check_extra()
    if target is not None and is_code_base(target):
        from lmp.agents.transcript import shown
        from lmp.report import naming
        from lmp.report.code_base import repository_making

        study = study_of(common, target)
        named, notes = naming.kept(folder, study)
        for line in notes:
            note(shown(line))
        return repository_making(study.base.facts, study.clone, named=named)
    return _of_model(common, target, device)


def study_of(common: o.Common, target: str | None) -> Study:
    """What reading finds of a code base. Raises UsageError for what is none: only a code base has parts to name."""
    from lmp.codebase.facts import Selection
    from lmp.errors import UsageError
    from lmp.report.code_base import read_code_base, studied
    from lmp.report.extra import check_extra
    from lmp.source.subject import is_code_base

    check_extra()
    if target is None or not is_code_base(target):
        raise UsageError(
            "--stage parts is for a code base\ngive its folder, as in lmp prompt path/to/repo --stage parts"
        )
    with counted("reading", common.quiet) as progress:
        facts = read_code_base(Path(target), Selection(), progress)
    return studied(facts, Path(target))


def _of_model(common: o.Common, target: str | None, device: str | None) -> Making:
    from lmp.report.devices import DEFAULT, device_named

    wanted = device_named(device or DEFAULT)
    common, class_path = chosen(common, target, "report")
    options = common.options()
    name = class_path or class_of_config(options)
    with watched([name], options, common.quiet) as progress:
        from lmp.report.gathering import gather
        from lmp.report.model import model_making

        return model_making(gather(name, options, progress, wanted))


def prompt_of(making: Making, is_second: bool, folder: Path) -> Prompt:
    """The prompt of the narrator; or of the second reader, of the narrative that is kept in the reports folder."""
    from lmp.agents.narrator import narrator_prompt
    from lmp.agents.refuter import refuter_prompt
    from lmp.report.narration import assignment, claimed

    given = assignment(making)
    if not is_second:
        return narrator_prompt(given)
    return refuter_prompt(given, claimed(making, _kept(making, folder).narrative))


def data_of(name: str, stage: str, found: Prompt) -> dict[str, object]:
    """The prompt as JSON data, with the schema of what is submitted."""
    from lmp.codebase.parts import Parts
    from lmp.records import Narrative, Refutation

    kinds: dict[str, type[BaseModel]] = {"parts": Parts, "narrate": Narrative, "refute": Refutation}
    schema = kinds[stage].model_json_schema()
    parts = {"system": found.system, "prompt": found.message, "sha256": found.sha256}
    return {"report": name, "stage": str(stage), **parts, "submission": schema}


def submit_parts(study: Study, content: object, by: str, folder: Path) -> None:
    """Keep the parts that were submitted, and write the report with them."""
    from lmp.report import naming
    from lmp.report.code_base import repository_making

    named, findings = naming.submitted(content, study, by)
    if named is None:
        _refuse(findings)
    else:
        naming.keep(folder, study.base.facts.root_name, named)
        note(f"accepted: {naming.counted(named.parts)}")
        _write(folder, repository_making(study.base.facts, study.clone, named=named))


def named_by(by: str | None) -> str:
    """Who submits. Raises UsageError for nobody."""
    from lmp.errors import UsageError

    if by is None or not by.strip():
        raise UsageError("--by is missing: the report says who wrote what is submitted\ngive a name, as --by 'Ada'")
    return by


def submit(making: Making, content: object, is_second: bool, by: str, folder: Path) -> None:
    """Write the report with a submitted narrative, or with what a second pass leaves of the one that is kept."""
    from lmp.report.narration import submitted, submitted_refutation

    if is_second:
        narration, findings = submitted_refutation(making, _kept(making, folder), content, by)
    else:
        narration, findings = submitted(making, content, by)
    if narration is None:
        _refuse(findings)
    else:
        _write(folder, making, narration)
        if narration.refutation is None:
            note("no second pass yet: `lmp prompt … --stage refute` prints its prompt")


def _write(folder: Path, making: Making, narration: Narration | None = None) -> None:
    from lmp.agents.transcript import shown
    from lmp.report.writing import write_made

    written = write_made(folder, making, narration)
    for line in written.notes:
        note(shown(line))
    note(f"{'wrote' if written.changed else 'unchanged:'} {written.file}")


def _refuse(findings: Sequence[GateFinding]) -> None:
    from lmp.source.quoting import escaped

    for number, finding in enumerate(findings, start=1):
        write(f"  {number}. {finding.rule}: {escaped(finding.message, kept='')}\n")
    note(f"error: refused, with {count(len(findings), 'finding')}")
    note("nothing was written; correct the file and submit it again")
    raise typer.Exit(DISAGREES)


def _kept(making: Making, folder: Path) -> Narration:
    from pydantic import ValidationError

    from lmp.errors import UsageError
    from lmp.records import Narration
    from lmp.store.results import strict_json

    file = making.narrative_file(folder)
    try:
        return Narration.model_validate(strict_json(file.read_bytes()))
    except OSError as error:
        raise UsageError(f"there is no narrative in {file}\nsubmit one with --stage narrate") from error
    except (ValueError, RecursionError, ValidationError) as error:
        raise UsageError(f"{file} is no narrative of lmp's\nsubmit one with --stage narrate") from error
