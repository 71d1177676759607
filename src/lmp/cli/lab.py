"""``lmp lab``: takes a post's captures, renders posts, and checks every number of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lmp.cli import options as o
from lmp.cli.output import DISAGREES, count, note, write, write_json
from lmp.cli.progress import watch

if TYPE_CHECKING:
    from lmp.errors import PostProblem
    from lmp.lab.post import Post


class Action(StrEnum):
    run = "run"
    build = "build"
    check = "check"


@o.takes(..., "results", *o.PRINTED)
def lab(
    common: o.Common,
    action: Annotated[
        Action, typer.Argument(help="run: take the captures here; build: render posts; check: verify each number.")
    ],
    posts: Annotated[
        list[str] | None, typer.Argument(metavar="POST...", help="Folders of posts [default for build, check: all].")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ID", help="run: take this capture, and those that it comes after."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="run: folder of the captures [default: POST/runs/TIME]."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="run: replace the post's own captures.")] = False,
) -> None:
    """Take the captures of a post, render posts, or check every number in them.

    Examples: lmp lab run posts/llm-cache-hierarchy, lmp lab build, lmp lab check

    `run` executes the programs that the post's lab.toml names. Read it first if the post is not yours.
    """
    from lmp.errors import UsageError

    if action is not Action.run and (only or out is not None or replace):
        raise UsageError(f"--only, --out and --replace are for `lmp lab run`\nleave them out of `lmp lab {action}`")
    if action is Action.run:
        _run(common, posts or [], only or [], out, replace)
    else:
        (_build if action is Action.build else _check)(common, posts or [])


def _run(common: o.Common, names: list[str], only: list[str], out: Path | None, replace: bool) -> None:
    from lmp.errors import UsageError
    from lmp.lab.post import read_post
    from lmp.lab.rerun import Where, run

    if len(names) != 1:
        raise UsageError("one post is run at a time\ngive its folder, as in lmp lab run posts/llm-cache-hierarchy")
    if replace and out is not None:
        raise UsageError("--replace writes into the post's own captures\nleave out --out")
    post = read_post(names[0])

    def say(name: str, what: str) -> None:
        if not common.quiet:
            note(f"{name}: {what}")

    taken = run(post, Where(only, out, replace, common.results), say)
    if taken.rendered is not None and taken.rendered.problems:
        _end(common, taken.rendered.problems, f"the captures are in {taken.folder}, the post is not rendered")
    captures = [{"id": each.id, "status": each.status, "message": each.message} for each in taken.captures]
    if common.as_json:
        write_json({"post": post.slug, "folder": str(taken.folder), "captures": captures})
    elif replace:
        write(f"{count(len(captures), 'capture')} in {taken.folder}; now run `lmp lab build {post.slug}`\n")
    else:
        write(f"{taken.folder / post.slug}.md and .html: {count(len(captures), 'capture')} of this machine\n")


def _build(common: o.Common, names: list[str]) -> None:
    from lmp.errors import PostRefused
    from lmp.lab.building import build
    from lmp.lab.figures import Figures

    posts, everything = _posts(names)
    with watch([], common.quiet) as progress:
        try:
            rendered = build(posts, everything, lambda post: Figures(post, common.results, progress))
        except PostRefused as error:
            _end(common, error.problems)
    if common.as_json:
        write_json([{"post": each.post.slug, "references": each.references} for each in rendered])
        return
    for each in rendered:
        write(f"{each.post.name_of(each.post.markdown)}: {count(each.references, 'reference')}\n")


def _check(common: o.Common, names: list[str]) -> None:
    from lmp.lab.checking import check
    from lmp.lab.figures import Figures

    posts, everything = _posts(names)
    with watch([], common.quiet) as progress:
        rendered, problems = check(posts, everything, lambda post: Figures(post, common.results, progress))
    if problems:
        _end(common, problems, "correct them, then run `lmp lab build`")
    references = {each.post.slug: each.references for each in rendered}
    if common.as_json:
        write_json({"references": references, "problems": []})
        return
    for slug, number in references.items():
        write(f"{slug}: {count(number, 'reference')} evaluated again\n")
    write(f"{count(sum(references.values()), 'reference')} in {count(len(rendered), 'post')}\n")


def _posts(names: list[str]) -> tuple[list[Post], list[Post]]:
    """The named posts, or all of them; and all posts beside the first."""
    from lmp.errors import NotFound
    from lmp.lab.post import all_posts, read_post

    found = [read_post(name) for name in names]
    everything = all_posts(found[0].posts if found else Path("posts"))
    if not everything:
        raise NotFound("there are no posts: no posts/*/lab.toml here\nrun this in the project's folder")
    return found or everything, everything


def _end(common: o.Common, problems: Sequence[PostProblem], end: str = "nothing was rendered") -> NoReturn:
    """Show the problems and exit."""
    if common.as_json:
        write_json({"problems": [asdict(problem) for problem in problems]})
    for problem in problems:
        note(str(problem))
    note(f"error: {count(len(problems), 'problem')}; {end}")
    raise typer.Exit(DISAGREES)
