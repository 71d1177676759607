"""Renders posts: the template line by line, sources and captures at the end, plots, HTML, and the index."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmp.errors import LmpError, PostFault, PostProblem, PostRefused, StorageError, first_line
from lmp.lab.config import Source, line_of
from lmp.lab.evaluating import Evaluator
from lmp.lab.figures import Figures, FiguresOf
from lmp.lab.html import index_page, post_page
from lmp.lab.plots import plot_svg
from lmp.lab.post import LAB, TEMPLATE, Post
from lmp.lab.quoting import escaped
from lmp.lab.template import BLOCKS, Reference, Text, pieces, stray_digits
from lmp.store.files import write_whole

GENERATED = "<!-- written by `lmp lab build`: change {slug}/post.md, not this file -->"


@dataclass
class Rendered:
    """A post as text, with its plots; or with what is wrong."""

    post: Post
    markdown: str
    plots: dict[str, bytes]
    problems: list[PostProblem]
    references: int
    ratios: list[tuple[str, str, str, str]] = field(default_factory=list)
    """What, measured, predicted, ratio."""
    cited: list[str] = field(default_factory=list)
    """Ids of the cited sources, in the order of their numbers."""

    def files(self, folder: Path | None = None) -> dict[Path, bytes]:
        """The files of the post: beside its template, or in a reader's own folder."""
        post, plots = self.post, {f"plots/{name}.svg": data for name, data in self.plots.items()}
        if folder is None:
            page = post_page(post.lab.title, self.markdown, {f"{post.slug}/{name}": plots[name] for name in plots})
            files = {post.markdown: self.markdown.encode(), post.html: page.encode()}
            return files | {post.folder / name: data for name, data in plots.items()}
        markdown = self.markdown.replace(f"]({post.slug}/plots/", "](plots/")
        page = post_page(post.lab.title, markdown, plots)
        files = {folder / f"{post.slug}.md": markdown.encode(), folder / f"{post.slug}.html": page.encode()}
        return files | {folder / name: data for name, data in plots.items()}


class _Rendering:
    """One pass over the template of a post."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.post = evaluator, evaluator.post
        self.problems: list[PostProblem] = []
        self.plots: dict[str, bytes] = {}
        self.references = 0
        self.file = self.post.name_of(self.post.folder / TEMPLATE)
        self.lab_file = self.post.name_of(self.post.folder / LAB)
        self.lab_text = (self.post.folder / LAB).read_text(encoding="utf-8")
        self.tables: set[str] = set()

    def lines(self) -> list[str]:
        found = []
        for number, line in enumerate(self.post.template.splitlines(), 1):
            try:
                found += self._line(line, number)
            except LmpError as error:
                self.problem(self.file, number, first_line(error))
        return found

    def problem(self, file: str, line: int, message: str) -> None:
        self.problems.append(PostProblem(file, line, message))

    def _line(self, line: str, number: int) -> list[str]:
        found = list(pieces(line, number))
        references = [piece for piece in found if isinstance(piece, Reference)]
        self.references += len(references)
        text = " ".join(piece.text if isinstance(piece, Text) else "R" for piece in found)
        self._check_digits(self.file, number, text)
        block = next((reference for reference in references if reference.kind in BLOCKS), None)
        if block is not None:
            if len(found) > 1 and any(isinstance(p, Reference) or p.text.strip() for p in found if p is not block):
                raise PostFault(f"{block} stands alone on a line")
            return self._block(block).split("\n")
        shown = []
        for piece in found:
            try:
                shown.append(piece.text if isinstance(piece, Text) else self.evaluator.inline(piece))
            except LmpError as error:
                self.problem(self.file, number, f"{piece}: {first_line(error)}")
        return ["".join(shown)]

    def _check_digits(self, file: str, number: int, text: str) -> None:
        for stray in stray_digits(text, self.post.lab.allowed.words):
            self.problem(file, number, f"{stray!r} has a digit that is in no reference and not among [allowed] words")

    def _block(self, reference: Reference) -> str:
        try:
            if reference.kind == "plot":
                return self._plot(reference.body)
            if reference.kind == "table":
                self._table_cells(reference.body)
            return self.evaluator.blocks[reference.kind](reference)
        except LmpError as error:
            raise PostFault(f"{reference}: {first_line(error)}") from error

    def _plot(self, name: str) -> str:
        rule = self.post.lab.plot.get(name)
        if rule is None:
            raise PostFault(f"{name} is no plot: lab.toml has {', '.join(self.post.lab.plot) or 'none'}")
        texts = [rule.title, rule.x, rule.y, *(series.label for series in rule.series)]
        if rule.kind == "bar":
            texts += [str(first) for series in rule.series for first, _ in series.points]
        self.check_lab(("plot", name), texts)
        self.plots[name] = plot_svg(name, rule, self.evaluator)
        return f"![{escaped(rule.title)}]({self.post.slug}/plots/{name}.svg)"

    def _table_cells(self, name: str) -> None:
        rule = self.post.lab.table.get(name)
        if rule is None or name in self.tables:
            return
        self.tables.add(name)
        line = line_of(self.lab_text, ("table", name))
        texts = [rule.title]
        for cell in (cell for row in [rule.columns, *rule.rows] for cell in row):
            found = list(pieces(cell, line))
            self.references += sum(isinstance(piece, Reference) for piece in found)
            texts.append(" ".join(piece.text if isinstance(piece, Text) else "R" for piece in found))
        self.check_lab(("table", name), texts)

    def check_lab(self, where: tuple[str, ...], texts: Iterable[str]) -> None:
        for text in texts:
            self._check_digits(self.lab_file, line_of(self.lab_text, where), text)

    def ratios(self) -> list[tuple[str, str, str, str]]:
        found = []
        for name, rule in self.post.lab.ratio.items():
            self.check_lab(("ratio", name), [rule.what])
            try:
                numbers = [self._inline_number(text) for text in (rule.measured, rule.predicted, rule.ratio)]
                found.append((rule.what, numbers[0], numbers[1], numbers[2]))
            except LmpError as error:
                self.problem(self.lab_file, line_of(self.lab_text, ("ratio", name)), first_line(error))
        return found

    def _inline_number(self, text: str) -> str:
        self.references += 1
        return self.evaluator.inline(Reference("num", text, 0))


def render(post: Post, figures: Figures, captures: Path | None = None) -> Rendered:
    """The post with its own captures, or with a reader's captures and the original's beside them."""
    post.lab, post.sources  # noqa: B018 - a file that cannot be read is one error, not one for each reference
    original = Evaluator(post, post.captures, figures)
    evaluator = original if captures is None else Evaluator(post, captures, figures, original)
    rendering = _Rendering(evaluator)
    rendering.check_lab(("title",), [post.lab.title])
    rendering.check_lab(("question",), [post.lab.question])
    body = rendering.lines()
    ratios = rendering.ratios()
    try:
        taken = _captures(post, evaluator)
    except LmpError as error:
        taken = []
        rendering.problem(post.name_of(post.captures), 1, first_line(error))
    head = [GENERATED.format(slug=post.slug), "", f"# {post.lab.title}", "", f"*{post.lab.question}*", ""]
    if evaluator is not original:
        head += ["Measured on this machine; the numbers of the original stand beside.", ""]
    if ratios:
        body += ["", *_ratio_table(ratios)]
    cited = [(name, post.sources[name]) for name in evaluator.citations]
    lines = [*head, *body, "", *_sources(cited), *taken]
    text = "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
    problems = sorted(set(rendering.problems))
    return Rendered(post, text, rendering.plots, problems, rendering.references, ratios, list(evaluator.citations))


def _ratio_table(ratios: Sequence[tuple[str, str, str, str]]) -> list[str]:
    rows = [f"| {' | '.join(row)} |" for row in ratios]
    head = "| what | measured | lmp's figure | measured / lmp |"
    return ["## Measured and predicted", "", head, "| --- | ---: | ---: | ---: |", *rows]


def _sources(cited: Sequence[tuple[str, Source]]) -> list[str]:
    if not cited:
        return []
    lines = ["## Sources", ""]
    for number, (_, source) in enumerate(cited, 1):
        read = f" Read: {_copy(source.read_at)}." if source.read_at else ""
        lines.append(
            f"{number}. {escaped(source.authors)}: [{escaped(source.title)}](<{source.url}>), {source.year} "
            f"({source.kind}).{read} “{escaped(source.sentence)}”"
        )
    return [*lines, ""]


def _copy(read_at: str) -> str:
    return f"<{read_at}>" if re.fullmatch(r"https?://[^\s<>]+", read_at) else escaped(read_at)


def _captures(post: Post, evaluator: Evaluator) -> list[str]:
    """The table of all captures, and how to take them again."""
    if not post.lab.capture:
        return []
    lines = ["## Captures", "", f"To take them on another machine: `lmp lab run posts/{post.slug}`.", ""]
    rows, machines = [], dict[str, None]()
    for name in post.lab.capture:
        stored = evaluator.taken(name)
        if stored is None:
            rows.append(f"| {name} | | not taken | | |")
            continue
        record = stored.record
        gpu = f", {record.gpu}" if record.gpu else ""
        machines[f"{record.cpus} × {record.cpu}, {round(record.memory / 2**30)} GiB, {record.kernel}{gpu}"] = None
        status = record.status + (f": {record.message}" if record.message else "")
        status += f"; {record.escaped:,} bytes that are no text stand as \\xNN" if record.escaped else ""
        load = f"{record.load_before[0]:.2f} → {record.load_after[0]:.2f}"
        rows.append(
            f"| {name} | {escaped(record.tool_version or record.tool)} | {escaped(status)} | {record.date} | {load} |"
        )
    lines += [*(f"- {escaped(machine)}" for machine in machines), ""]
    return [*lines, "| capture | tool | status | date | load |", "| --- | --- | --- | --- | --- |", *rows]


# --- writing ---------------------------------------------------------------------------------------------------------


def build(posts: Sequence[Post], everything: Sequence[Post], figures: FiguresOf) -> list[Rendered]:
    """Render and write posts, and the index over all. Raises PostRefused, before anything is written, for a problem."""
    rendered = [render(post, figures(post)) for post in posts]
    problems = [problem for each in rendered for problem in each.problems]
    if problems:
        raise PostRefused(problems)
    for each in rendered:
        for file, data in each.files().items():
            _write(file, data)
    for file, data in index_files(everything, {each.post.slug: each for each in rendered}, figures).items():
        _write(file, data)
    return rendered


def index_files(everything: Sequence[Post], known: dict[str, Rendered], figures: FiguresOf) -> dict[Path, bytes]:
    """``posts/README.md`` and ``posts/html/index.html``. A post that cannot be rendered has no ratios there."""
    if not everything:
        return {}
    ratios = []
    for post in everything:
        if post.lab.ratio:
            rendered = known.get(post.slug) or render(post, figures(post))
            ratios += [(post, *ratio) for ratio in rendered.ratios]
    lines = [
        "<!-- written by `lmp lab build` -->",
        "",
        "# Posts",
        "",
        "Each number in these posts is worked out from a capture of a real tool, from lmp's formulas, or stands in a",
        "source. `lmp lab run posts/NAME` takes the captures again and shows your numbers beside these.",
        "",
        "| post | question |",
        "| --- | --- |",
        *(f"| [{escaped(post.lab.title)}]({post.slug}.md) | {escaped(post.lab.question)} |" for post in everything),
    ]
    if ratios:
        lines += ["", "## Measured and predicted", "", "| post | what | measured | lmp's figure | measured / lmp |"]
        lines += ["| --- | --- | ---: | ---: | ---: |"]
        lines += [f"| [{escaped(post.lab.title)}]({post.slug}.md) | {' | '.join(rest)} |" for post, *rest in ratios]
    markdown = "\n".join(lines) + "\n"
    posts = everything[0].posts
    return {posts / "README.md": markdown.encode(), posts / "html" / "index.html": index_page(markdown).encode()}


def _write(file: Path, data: bytes) -> None:
    try:
        if not file.is_file() or file.read_bytes() != data:
            write_whole(file, data)
    except OSError as error:
        raise StorageError(
            f"{file} cannot be written: {error.strerror or error}\nmake {file.parent} a folder that you can write to"
        ) from error
