"""``lmp atlas``: the verified analyses that ship with lmp: listed, made, and made again to compare."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.output import note, write_json
from lmp.cli.progress import steps

if TYPE_CHECKING:
    from lmp.analyze.session import Options
    from lmp.atlas.archive import Atlas
    from lmp.atlas.records import Listed


class Action(StrEnum):
    list = "list"
    build = "build"
    check = "check"


SAMPLE = 10
"""Entries that `lmp atlas check` makes again."""


@o.takes(..., "results", *o.PRINTED)
def atlas(
    common: o.Common,
    action: Annotated[
        Action,
        typer.Argument(help="list: show the entries; build: make what is not current; check: make entries again."),
    ] = Action.list,
    number: Annotated[
        int | None, typer.Argument(metavar="N", min=1, help=f"check: number of entries [default: {SAMPLE}].")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="MODEL", help="build, check, --html: a model id, or a family."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", metavar="N", min=1, help="Number of processes [default: 1; of --html one for each core]."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="check: seed of the draw.")] = 0,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one offline page that compares the models."),
    ] = None,
    devices: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="NAME", help="--html: device of the page; `lmp devices` lists them."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Folder of the atlas [default: that of the package].")
    ] = None,
) -> None:
    """List the verified analyses that ship with lmp; make them, or make some again and compare.

    Examples: lmp atlas, lmp atlas build --only Qwen/Qwen3-8B --only llama, lmp atlas check 10,
    lmp atlas --html models.html --device h100-sxm --jobs 2

    Commands answer from own results first, then from the atlas, then by an analysis; --no-atlas leaves it out.
    """
    from lmp.atlas.archive import PACKAGED, Atlas
    from lmp.atlas.asking import atlas_folder
    from lmp.errors import UsageError

    given = {"N": number, "--only": only, "--seed": seed or None, "--html": page, "--device": devices}
    _refuse(action, page is not None, {option for option, value in given.items() if value})
    if number is not None and only:
        raise UsageError("a number and --only are given\ngive one of them")
    found = Atlas(folder or atlas_folder() or PACKAGED, is_new=action is Action.build)
    if page is not None:
        _page(found, page, (only or [], devices or [], jobs or os.cpu_count() or 1), common.quiet)
        return
    if action is Action.list:
        _list(found, common.as_json)
        return
    _need_engine()
    (_build if action is Action.build else _check)(found, common, only or [], (number or SAMPLE, seed, jobs or 1))


ALLOWED = {
    Action.list: {"--html"},
    Action.build: {"--only"},
    Action.check: {"N", "--only", "--seed"},
}
OF_THE_PAGE = {"--html", "--device", "--only"}


def _refuse(action: Action, is_page: bool, given: set[str]) -> None:
    """Raise UsageError for an option that has no effect here."""
    from lmp.errors import UsageError

    allowed = OF_THE_PAGE if is_page and action is Action.list else ALLOWED[action]
    for option in sorted(given - allowed):
        beside = " without --html" if action is Action.list and option in OF_THE_PAGE else ""
        raise UsageError(f"{option} is not for `lmp atlas {action}`{beside}\nleave it out")


def _page(found: Atlas, file: Path, asked: tuple[list[str], list[str], int], quiet: bool) -> None:
    """Write the page that compares models: those of the catalogue, or those that are named."""
    from lmp.errors import UsageError
    from lmp.report.compare import page
    from lmp.report.compare.models import DEVICES
    from lmp.store.files import storage_errors, write_whole

    only, devices, jobs = asked
    named = [found.named(name) for name in only] or [one for one in found.index.entries if one.model_id is not None]
    if not named:
        raise UsageError(f"the atlas in {found.folder} has no models\nbuild it: lmp atlas build")
    models = list({one.name: one for one in named}.values())
    with steps("model", quiet) as progress:
        text = page(found, models, devices or DEVICES, min(jobs, len(models)), progress)
    with storage_errors(file, "--html"):
        write_whole(file, text)
    if not quiet:
        note(f"wrote {file}")


def _need_engine() -> None:
    from lmp.source.installed import engine_missing, lacking

    if lacking():
        raise engine_missing(lacking())


def _list(found: Atlas, as_json: bool) -> None:
    from lmp.cli.atlas_table import print_atlas
    from lmp.cli.tables import console

    if as_json:
        rows = [{**entry.model_dump(mode="json"), "rules": _rules(found, entry)} for entry in found.index.entries]
        write_json({"folder": str(found.folder), "entries": rows, "left_out": found.index.left_out})
    else:
        print_atlas(console(), found, [(entry, _rules(found, entry)) for entry in found.index.entries])


def _rules(found: Atlas, entry: Listed) -> str:
    """``current`` or ``older``: whether the installed rules of lmp made the entry."""
    from lmp.atlas.matching import has_older_rules

    return "older" if has_older_rules(entry) else "current"


def _options(common: o.Common, results: Path) -> Options:
    from lmp.analyze.session import Options

    return Options(results=results)


def _say(quiet: bool) -> Callable[[str, str], None]:
    return (lambda name, what: None) if quiet else (lambda name, what: note(f"{name}: {what}"))


def _build(found: Atlas, common: o.Common, only: list[str], how: tuple[int, int, int]) -> None:
    from lmp.atlas.making import build, targets

    build(found, targets(only), _options(common, common.said_results_folder()), how[2], _say(common.quiet))
    if common.as_json:
        _list(found, as_json=True)


def _check(found: Atlas, common: o.Common, only: list[str], how: tuple[int, int, int]) -> None:
    import tempfile

    from lmp.atlas.making import check, drawn, targets

    number, seed, jobs = how
    wanted = targets(only) if only else drawn(found, number, seed)
    say = _say(common.quiet)
    made = []
    with tempfile.TemporaryDirectory(prefix="lmp-atlas-") as results:
        for one in check(found, wanted, _options(common, Path(results)), jobs):
            made.append(one)
            say(one.name, "equal" if one.differs is None else f"DIFFERS: {one.differs}")
    if common.as_json:
        write_json([{"name": one.name, "differs": one.differs} for one in made])
    different = [one.name for one in made if one.differs is not None]
    if different:
        from lmp.errors import InvalidAnalysis

        raise InvalidAnalysis(
            f"{len(different)} of {len(made)} entries are not as made again: {', '.join(different)}\n"
            "build them again: lmp atlas build"
        )
    note(f"{len(made)} of {len(made)} entries are as made again")
