"""Evaluates every reference of posts again, and holds captures, sources and rendered files against them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lmp.errors import LmpError, PostFault, PostProblem, first_line
from lmp.lab.building import Rendered, index_files, render
from lmp.lab.config import line_of
from lmp.lab.figures import FiguresOf
from lmp.lab.plots import same_drawing
from lmp.lab.post import LAB, SOURCES, Post, Stored, edited_line, load, sha256

FEWEST_SOURCES = 3
RECENT = 2022
MOST_BYTES = 5_000_000
"""Of all posts with their captures, without runs of readers."""


def check(
    posts: Sequence[Post], everything: Sequence[Post], figures: FiguresOf
) -> tuple[list[Rendered], list[PostProblem]]:
    """The posts as they should be, and everything that is wrong with what is there. Writes nothing."""
    rendered, problems = [], list[PostProblem]()
    for post in posts:
        found = render(post, figures(post))
        rendered.append(found)
        problems += [*found.problems, *captures_problems(post), *source_problems(post, found)]
        if not found.problems:
            take_same_drawings(found)
            problems += differences(post, found.files())
    if len(posts) == len(everything) and not problems:
        known = {each.post.slug: each for each in rendered}
        problems += differences(posts[0], index_files(everything, known, figures))
        problems += [*strangers(posts[0].posts, everything), *size_problems(posts[0].posts)]
    return rendered, sorted(set(problems))


def captures_problems(post: Post) -> list[PostProblem]:
    """Captures that are not what their record says, or not what lab.toml asks for."""
    text = (post.folder / LAB).read_text(encoding="utf-8")
    found = []
    for name, rule in post.lab.capture.items():
        named = re.findall(r"\{(?:workloads|post)\}/([\w./-]+)", " ".join(rule.argv))
        for program in dict.fromkeys(program for program in named if program not in rule.workloads):
            said = f"capture {name} runs {program}, which is not in its `workload`: a change of it would not be found"
            found.append(PostProblem(post.name_of(post.folder / LAB), line_of(text, ("capture", name)), said))
        try:
            stored = load(post.captures, name)
            if stored is not None:
                found += _capture_problems(post, name, stored)
        except LmpError as error:
            line = line_of(text, ("capture", name))
            found.append(PostProblem(post.name_of(post.folder / LAB), line, first_line(error)))
    known = {f"{name}{suffix}" for name in post.lab.capture for suffix in (".json", ".txt")}
    for file in sorted(post.captures.glob("*")) if post.captures.is_dir() else []:
        if file.name not in known:
            found.append(PostProblem(post.name_of(file), 1, "belongs to no capture of lab.toml"))
    return found


def _capture_problems(post: Post, name: str, stored: Stored) -> list[PostProblem]:
    record, rule = stored.record, post.lab.capture[name]
    file, raw = post.name_of(post.captures / f"{name}.json"), post.name_of(post.captures / f"{name}.txt")
    again = f"run `lmp lab run {post.slug} --only {name} --replace`"
    found = []
    if record.id != name:
        found.append(PostProblem(file, 2, f"is the record of capture {record.id}, not of {name}"))
    if sha256(stored.text) != record.output_sha256:
        line = edited_line(stored.text, record.line_sums)
        found.append(PostProblem(raw, line, f"the raw text is not that of {name}.json: it was edited or swapped"))
    asked: dict[str, tuple[object, object]] = {
        "argv": (record.argv_template, rule.argv),
        "env": (record.env, rule.env),
        "repeat": (record.repeat, rule.repeat if stored.usable else record.repeat),
    }
    found += [
        PostProblem(file, 1, f"was taken with another {what} than lab.toml has: {again}")
        for what, (was, is_now) in asked.items()
        if was != is_now
    ]
    try:
        hashes = post.workload_hashes(rule.workloads)
    except PostFault as error:
        return [*found, PostProblem(file, 1, first_line(error))]
    changed = [work for work, digest in hashes.items() if record.workload_sha256.get(work) != digest]
    if changed:
        found.append(PostProblem(file, 1, f"was taken with another {changed[0]}: {again}"))
    return found


def source_problems(post: Post, rendered: Rendered) -> list[PostProblem]:
    file = post.folder / SOURCES
    name_of_file = post.name_of(file)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = []
    for name, source in post.sources.items():
        line = line_of(text, (name,))
        if not source.sentence.strip():
            found.append(PostProblem(name_of_file, line, f"source {name} has no sentence that carries the claim"))
        elif source.value is not None and " ".join(source.value.split()) not in " ".join(source.sentence.split()):
            found.append(PostProblem(name_of_file, line, f"the value of source {name} does not occur in its sentence"))
    cited = [post.sources[name] for name in rendered.cited]
    recent = [source for source in cited if source.year >= RECENT]
    if len(recent) < FEWEST_SOURCES:
        said = f"cites {len(recent)} sources from {RECENT} on, and a post needs {FEWEST_SOURCES}"
        found.append(PostProblem(name_of_file, 1, said))
    for kind in ("academic", "practical"):
        if kind not in {source.kind for source in recent}:
            found.append(PostProblem(name_of_file, 1, f"cites no {kind} source from {RECENT} on"))
    return found


def take_same_drawings(rendered: Rendered) -> None:
    """Take a plot as it is there if another release of matplotlib drew it from the same data."""
    for name, data in rendered.plots.items():
        file = rendered.post.folder / "plots" / f"{name}.svg"
        there = file.read_bytes() if file.is_file() else b""
        if same_drawing(there, data):
            rendered.plots[name] = there


def strangers(posts: Path, everything: Sequence[Post]) -> list[PostProblem]:
    """Files that look like rendered posts and are of no post: nobody checks their numbers."""
    known = {posts / "README.md", posts / "html" / "index.html"}
    known |= {file for post in everything for file in (post.markdown, post.html)}
    there = [*posts.glob("*.md"), *posts.glob("html/*.html")]
    return [
        PostProblem(file.relative_to(posts.parent).as_posix(), 1, "is rendered from no post")
        for file in sorted(there)
        if file not in known
    ]


def size_problems(posts: Path) -> list[PostProblem]:
    """A problem if posts and captures are larger than git should have them."""
    files = [file for file in posts.rglob("*") if file.is_file() and not _is_scratch(file.relative_to(posts))]
    size = sum(file.stat().st_size for file in files)
    if size <= MOST_BYTES:
        return []
    largest = max(files, key=lambda file: file.stat().st_size)
    said = f"posts have {size:,} bytes, more than {MOST_BYTES:,}; this file is the largest"
    return [PostProblem(largest.relative_to(posts.parent).as_posix(), 1, said)]


def _is_scratch(file: Path) -> bool:
    return "runs" in file.parts or "__pycache__" in file.parts


def differences(post: Post, files: dict[Path, bytes]) -> list[PostProblem]:
    """Rendered files that differ from what build gives, at the first line that does."""
    found = []
    for file, data in files.items():
        name = post.name_of(file)
        try:
            there = file.read_bytes()
        except OSError:
            found.append(PostProblem(name, 1, "is not there: run `lmp lab build`"))
            continue
        if there != data:
            line = _first_difference(there, data)
            found.append(PostProblem(name, line, "differs from what `lmp lab build` gives"))
    plots = post.folder / "plots"
    for file in sorted(plots.glob("*")) if plots.is_dir() else []:
        if file not in files and post.markdown in files:
            found.append(PostProblem(post.name_of(file), 1, "belongs to no plot of the post"))
    return found


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = zip(one.split(b"\n"), other.split(b"\n"), strict=False)
    shorter = min(one.count(b"\n"), other.count(b"\n")) + 1
    return next((number for number, (left, right) in enumerate(pairs, 1) if left != right), shorter)
