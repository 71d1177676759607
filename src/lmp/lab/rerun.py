"""``lmp lab run``: takes a post's captures on this machine, and renders the post with them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lmp.lab.building import Rendered, render
from lmp.lab.figures import Figures
from lmp.lab.post import Post
from lmp.lab.records import Capture
from lmp.lab.taking import Progress, take
from lmp.store.files import storage_errors, write_whole

RUNS = "runs"


@dataclass(frozen=True)
class Taken:
    """What a run left: its captures and, unless it replaced the post's own, the post with them.

    Nothing of the post is written if ``rendered`` has problems. The captures are.
    """

    folder: Path
    captures: list[Capture]
    rendered: Rendered | None


@dataclass(frozen=True)
class Where:
    """Which captures are taken, and where they go."""

    only: Sequence[str] = ()
    """Ids; all captures if empty."""
    out: Path | None = None
    """Default: a folder of the post's ``runs/``."""
    replace: bool = False
    """Write into the post's own captures, and render nothing."""
    results: Path | None = None


def run(post: Post, where: Where, progress: Progress | None = None) -> Taken:
    """Take captures into a folder of this run, or with ``replace`` into the post's own.

    Raises Interrupted on Ctrl-C.
    """
    wanted = (where.out or post.folder / RUNS).resolve()
    with storage_errors(wanted, "--out` instead of `--replace" if where.replace else "--out"):
        folder = wanted if where.out is not None else _new_folder(wanted)
        build = folder / "build"
        into = post.captures if where.replace else folder / "captures"
        build.mkdir(parents=True, exist_ok=True)
        try:
            records = take(post, into, build, where.only, progress)
        finally:
            if where.replace:
                shutil.rmtree(build, ignore_errors=True)
                _remove_if_empty(folder, folder.parent)
        if where.replace:
            return Taken(into, records, None)
        rendered = render(post, Figures(post, where.results), into)
        for file, data in rendered.files(folder).items() if not rendered.problems else ():
            write_whole(file, data)
    return Taken(folder, records, rendered)


def _new_folder(runs: Path) -> Path:
    """A folder of this run alone, named by the time: another run may start in the same second."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    folder, number = runs / stamp, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = runs / f"{stamp}-{number}"
        else:
            return folder


def _remove_if_empty(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
