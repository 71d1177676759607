"""Plants mistakes in reports that lmp wrote, and shows which of them the review finds.

    lmp report --model-id meta-llama/Meta-Llama-3.1-8B --reports /tmp/reports
    python scripts/review_mutations.py /tmp/reports/implementations/*.md [--number 10] [--seed 5] [--list]

Each planted mistake changes one line of a report without findings. It is found if the review then has a finding. Other
changes are harmless, and the review should have no finding about them. The same number and seed give the same mistakes.
Results are not needed, because mistakes change only the text. The list of numbers beside it stays as written.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmp.analyze.session import Options
from lmp.errors import LmpError
from lmp.records import ReviewFinding
from lmp.report.document.ledger import Ledger
from lmp.report.folder import ledger_file
from lmp.report.remaking import Remade, remade
from lmp.report.review import Roots, review_text
from lmp.report.review.diagrams import WIDTH
from lmp.report.review.figures import NUMBER_WITH_UNIT
from lmp.report.review.reading import read_markdown
from lmp.source.trees import find_trees

POINTER = re.compile(r"`(?P<path>[\w./-]+):(?P<line>\d+)(?P<end>-\d+)?`(?P<after> \(`[^`]+`\))?")
IN_FENCE = re.compile(r"(?P<path>[\w./-]+\.py):(?P<line>\d+)(?P<end>-\d+)?(?P<after> \([\w.]+\))?")
ALONE = re.compile(r"(?<=\| )-?\d[\d,]*(?:\.\d+)?(?= \|)")
BARE = re.compile(r"(?<![\w.,:/`{#-])\d[\d,]*(?:\.\d+)?(?![\w,./:%]|-\w| ?(?:[kMGTP]?(?:FLOP|B)\b|params|%|[mµn]?s\b))")
PLACEHOLDERS = (
    "{path:line}",
    "[Answer with code references]",
    "TODO",
    "`{path:line}`",
    "<name>",
    "[Brief description]",
)

ALSO = "\1"
"""In a line as it is now: one more of the lines after it is replaced too. A line of a zero byte is taken away."""
Found = tuple[int, str, str]
"""Index of the line, the line as it is now, and what was done."""
Kind = Callable[["Page", random.Random], Iterator[Found]]


@dataclass(frozen=True)
class Page:
    """The lines of a report, each with the language of the fence that it stands in; None outside of any."""

    lines: Sequence[str]
    fences: Sequence[str | None]

    @staticmethod
    def of(text: str) -> Page:
        lines, fences = text.split("\n"), []
        language: str | None = None
        for line in lines:
            if line.startswith("```"):
                language = line.strip("`") if language is None else None
                fences.append("```")
            else:
                fences.append(language)
        return Page(lines, fences)

    def where(self, wanted: Callable[[str | None], bool]) -> Iterator[tuple[int, str]]:
        yield from ((n, line) for n, line in enumerate(self.lines) if wanted(self.fences[n]))

    def prose(self) -> Iterator[tuple[int, str]]:
        return ((n, line) for n, line in self.where(lambda fence: fence is None) if not line.startswith(("|", "#")))

    def rows(self) -> Iterator[tuple[int, str]]:
        """Of tables, without their heads."""
        for n, line in self.where(lambda fence: fence is None):
            is_rule = re.match(r"\| ?:?---", line) is not None
            is_head = n + 1 < len(self.lines) and re.match(r"\| ?:?---", self.lines[n + 1]) is not None
            if line.startswith("| ") and not is_rule and not is_head:
                yield n, line

    def drawn(self) -> Iterator[tuple[int, str]]:
        return self.where(lambda fence: fence in ("", "text"))

    def graphs(self) -> Iterator[tuple[int, str]]:
        return self.where(lambda fence: fence == "mermaid")


# --- the kinds of mistakes -------------------------------------------------------------------------------------------


def changed(line: str, start: int, end: int, new: str) -> str:
    return line[:start] + new + line[end:]


def moved(wanted: Callable[[re.Match[str], bool], bool], by: int) -> Kind:
    """Pointers whose line is another one."""

    def plant(page: Page, _: random.Random) -> Iterator[Found]:
        for n, line in enumerate(page.lines):
            is_code = page.fences[n] not in (None, "```", "mermaid")
            for found in (IN_FENCE if is_code else POINTER).finditer(line) if page.fences[n] != "mermaid" else ():
                if wanted(found, named_before(line, found)):
                    now = str(int(found["line"]) + by)
                    new = changed(line, *found.span("line"), now)
                    if found["end"]:
                        last = str(int(found["end"][1:]) + by)
                        new = new.replace(f":{now}{found['end']}", f":{now}-{last}", 1)
                    yield n, new, f"{found[0]} -> {now}"

    return plant


def named_before(line: str, found: re.Match[str]) -> bool:
    """Whether a symbol stands before a pointer: `symbol` (`path:line`)."""
    return line[: found.start()].endswith("` (")


def another_file(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in enumerate(page.lines):
        for found in POINTER.finditer(line) if page.fences[n] is None else ():
            yield n, changed(line, *found.span("path"), found["path"].replace(".py", "s.py")), found[0]


def another_symbol(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in enumerate(page.lines):
        for found in POINTER.finditer(line) if page.fences[n] is None else ():
            if found["after"]:
                yield n, changed(line, *found.span("after"), found["after"][:-2] + "z`)"), found[0]


def one_digit(lines: Callable[[Page], Iterator[tuple[int, str]]], pattern: re.Pattern[str]) -> Kind:
    """One digit of a number is another one."""

    def plant(page: Page, chance: random.Random) -> Iterator[Found]:
        for n, line in lines(page):
            bare = re.sub(r"`[^`]*`", lambda code: "`" * len(code[0]), line)
            for found in pattern.finditer(bare):
                place = chance.choice([found.start() + i for i, sign in enumerate(found[0]) if sign.isdigit()])
                digit = chance.choice([d for d in "123456789" if d != line[place]])
                yield n, changed(line, place, place + 1, digit), f"{found[0]}: {digit} for {line[place]}"

    return plant


def another_prefix(page: Page, _: random.Random) -> Iterator[Found]:
    """GB for MB."""
    for n, line in enumerate(page.lines):
        for found in re.finditer(r"\d ([MGT])(?=FLOP|B\b)", line) if page.fences[n] in (None, "", "text") else ():
            new = {"M": "G", "G": "T", "T": "P"}[found[1]]
            yield n, changed(line, *found.span(1), new), f"{new} for {found[1]}"


def a_placeholder(page: Page, chance: random.Random) -> Iterator[Found]:
    for n, line in page.prose():
        if line.startswith("- ") and len(line) > 40:
            what = chance.choice(PLACEHOLDERS)
            words = line.split(" ")
            place = chance.randrange(1, len(words))
            if not line.count("`") or "`" not in " ".join(words[:place]):
                yield n, " ".join((*words[:place], what)), what


def an_empty_row(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.rows():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) > 3 and "none found" not in line:
            yield n, "|".join((*cells[:2], *("  " for _ in cells[3:]), "")), cells[1].strip()


def without_its_rule(page: Page, _: random.Random) -> Iterator[Found]:
    """A table without the line under its head."""
    for n, line in page.where(lambda fence: fence is None):
        if re.match(r"\| ?:?---", line):
            yield n, "\0", page.lines[n - 1][:50]


def exchanged(page: Page, _: random.Random) -> Iterator[Found]:
    """Two numbers of a row that stand beside one another."""
    for n, line in page.rows():
        one, other = [*ALONE.finditer(line), None, None][:2]
        if one is not None and other is not None:
            new = line[: one.start()] + other[0] + line[one.end() : other.start()] + one[0] + line[other.end() :]
            yield n, new, f"{one[0]} and {other[0]}"


def nothing_searched(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in enumerate(page.lines):
        found = re.search(r"none found \(searched: .*\)", line)
        if found and page.fences[n] is None:
            yield n, changed(line, *found.span(), "none found"), found[0]


def a_shifted_line(page: Page, _: random.Random) -> Iterator[Found]:
    """One sign of a drawing's line is missing before a bar or corner."""
    for n, line in page.drawn():
        for found in re.finditer(r"(?<=\S) +(?=[│┐┘])|─(?=[┐┘])", line):
            yield n, changed(line, found.start(), found.start() + 1, ""), line.strip()[:50]


def an_open_box(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.drawn():
        for found in re.finditer(r"[┌┐└┘](?=[─ ]|$)", line):
            if found[0] != "└" or re.match(r"└[─┬┴┼]*┘", line[found.start() :]):
                yield n, changed(line, *found.span(), " "), line.strip()[:50]


def too_wide(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.drawn():
        if re.search(r"[│─]", line):
            yield n, line + " " * (WIDTH - len(line)) + "wide", line.strip()[:50]


def a_missing_quote(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.graphs():
        if '"' in line:
            yield n, line.replace('"', "", 1), line.strip()[:50]


def an_unknown_node(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.graphs():
        if re.search(r"> n\d+$", line):
            yield n, re.sub(r"n\d+$", "n999", line), line.strip()[:50]


def a_missing_end(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.graphs():
        if line.strip() == "end" or "-->" in line:
            yield n, line.replace("-->", "->").replace("end", ""), line.strip()[:50]


# --- what is no mistake ----------------------------------------------------------------------------------------------


def taken_away(page: Page, _: random.Random) -> Iterator[Found]:
    """Not the last place of a section: the self-review list says that each of some sections has one."""
    sections = [0]
    for line in page.lines:
        sections.append(sections[-1] + line.startswith("#"))
    places = Counter(sections[n] for n, line in page.prose() if POINTER.search(line))
    for n, line in page.prose():
        if line.startswith("- ") and not (POINTER.search(line) and places[sections[n]] == 1):
            yield n, "", line[:50]


def added(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.prose():
        if line.startswith("- "):
            yield n, f"{line}\n- A remark of the reader's on 3 points.", line[:50]


def a_place_added(page: Page, chance: random.Random) -> Iterator[Found]:
    """One that stands elsewhere in the report."""
    known = [found[0] for n, line in page.where(lambda fence: fence is None) for found in POINTER.finditer(line)]
    for n, line in page.prose():
        if line.startswith("- "):
            yield n, f"{line}\n- See {chance.choice(known)}.", line[:50]


def reworded(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.prose():
        new = re.sub(r"\b(the|of|is|are|in)\b", r"\1 really", line)
        if new != line:
            yield n, new, line[:50]


def a_row_taken_away(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.rows():
        if page.lines[n - 1].startswith("| ") and page.lines[n + 1].startswith("| "):
            yield n, "\0", line[:50]


def one_of(*kinds: Kind) -> Kind:
    """Every place of each of these kinds."""

    def plant(page: Page, chance: random.Random) -> Iterator[Found]:
        for kind in kinds:
            yield from kind(page, chance)

    return plant


# --- mistakes of meaning: form, places and numbers stay as they were -------------------------------------------------

IDENTIFIER = re.compile(r"(?<![\w.])[a-z]+(?:_[a-z]+)+(?![\w(])")
OPPOSITES = {
    "compute": "memory", "memory": "compute", "read": "written", "reads": "writes", "writes": "reads",
    "before": "after", "after": "before", "verified": "unverified", "least": "most", "once": "twice", "Yes": "No",
    "No": "Yes", "None": "True", "True": "False", "False": "True",
}  # fmt: skip
COLLECTIVES = {"all_reduce": "all_gather", "all_gather": "all_reduce", "reduce_scatter": "all_to_all"}


def exchanged_words(words: dict[str, str], lines: Callable[[Page], Iterator[tuple[int, str]]]) -> Kind:
    """One of these words stands where its opposite stood."""
    pattern = re.compile(rf"(?<![\w.'/-])(?:{'|'.join(words)})(?![\w/])")

    def plant(page: Page, _: random.Random) -> Iterator[Found]:
        for n, line in lines(page):
            for found in pattern.finditer(line):
                yield n, changed(line, *found.span(), words[found[0]]), f"{words[found[0]]} for {found[0]}"

    return plant


def said(page: Page) -> Iterator[tuple[int, str]]:
    """Sentences and rows."""
    yield from page.prose()
    yield from page.rows()


def code_lines(page: Page) -> Iterator[tuple[int, str]]:
    """Lines of quoted source in pseudocode, without comments and docstrings."""
    quoted = False
    for n, line in page.where(lambda fence: fence == "python"):
        quoted = quoted != (line.count('"' * 3) == 1)
        if not quoted and line.strip() and not line.strip().startswith(("#", "def ", '"""', "takes:", "}", "{")):
            yield n, line


def quoted_line(page: Page, _: random.Random) -> Iterator[Found]:
    """An operator or a name of a quoted source line is another one."""
    for n, line in code_lines(page):
        for found in re.finditer(r" ([+*/-]) (?=\w)|(?<=\.)([a-z_]{4,})(?=\()", line):
            new = f" {'-' if found[1] != '-' else '+'} " if found[1] else f"{found[2]}_all"
            yield n, changed(line, *found.span(), new), f"{found[0]} -> {new}"


def quoted_in_a_sentence(page: Page, _: random.Random) -> Iterator[Found]:
    """A condition or statement in a code span is another one; or the exception beside it."""
    for n, line in said(page):
        for span in re.finditer(r"`[^`]*`", line):
            found = re.search(r" (?:==|!=|>=|<=|>|<|and|or) ", span[0])
            if found:
                new = {" == ": " != ", " != ": " == ", " and ": " or ", " or ": " and "}.get(found[0], " == ")
                start = span.start() + found.start()
                yield n, changed(line, start, start + len(found[0]), new), span[0]
        for found in re.finditer(r"raises (ValueError|RuntimeError|AssertionError)", line):
            new = "TypeError" if found[1] != "TypeError" else "ValueError"
            yield n, changed(line, *found.span(1), new), found[0]


def config_value(page: Page, _: random.Random) -> Iterator[Found]:
    """A value of the configuration table that is no number of the ledger: a flag, a name, a fraction."""
    for n, line in page.rows():
        found = re.match(r"\| `[\w.]+`(?: \(`\w+`\))? \| `([^`]+)`", line)
        if found:
            value = found[1]
            new = {"True": "False", "False": "True"}.get(value) or (
                f"{value[:-1]}x'" if value[0] == "'" else f"{value}1"
            )
            yield n, changed(line, *found.span(1), new), f"{value} -> {new}"


def a_formula(page: Page, _: random.Random) -> Iterator[Found]:
    """A sign or a variable of a formula is another one."""
    for n, line in enumerate(page.lines):
        if "batch_size" not in line or "`" * 3 in line or "Mermaid" in line:
            continue
        for found in re.finditer(r"(?<=\w) ([*+]) (?=\w)", line):
            if not re.search(r"\[[^\]]*$", line[: found.start()]):  # no shape
                yield n, changed(line, *found.span(1), "+" if found[1] == "*" else "*"), line.strip()[:60]


def a_shape(page: Page, _: random.Random) -> Iterator[Found]:
    """Two sizes of a shape change places, or its data type is another one."""
    for n, line in enumerate(page.lines):
        if page.fences[n] == "mermaid":
            continue
        for found in re.finditer(
            r"\\?\[([a-z\d][\w *+/,]*?), ([a-z\d][\w *+/]*?)\\?\](?: (bfloat16|float32|int64))?", line
        ):
            one, other = found[1].rpartition(", ")[2], found[2]
            if one != other:
                start, end = found.end(1) - len(one), found.end(2)
                yield n, changed(line, start, end, f"{other}, {one}"), found[0]
            if found[3]:
                yield n, changed(line, *found.span(3), "float16"), found[0]


def a_required_section(page: Page, _: random.Random) -> Iterator[Found]:
    """A heading of the template is gone; what stood under it stays."""
    for n, line in page.where(lambda fence: fence is None):
        if re.match(r"#{2,3} (?!4\.\d|Appendix)", line):
            yield n, "", line


MUST_BEGIN = (
    r"- (?:\*\*)?(?:CLI|Server|Benchmarks/examples|Alignment|Hardware|Precision|Compute Bound|Memory Bound"
    r"|Synchronization|(?:Data|Tensor|Pipeline|Sequence) Parallelism|TL;DR is|Module map includes|Key components table"
    r"|If LLM-related|No placeholder)\b"
)
"""Sentences that the template names."""


def a_required_row(page: Page, _: random.Random) -> Iterator[Found]:
    """A row that the template names is gone."""
    of_code_base = page.lines[0].startswith("# Repo analysis")
    named = (
        r"hidden_size|num_layers|num_heads|head_dim|intermediate_size|vocab_size|max_seq_len|BLOCK_M|env vars"
        r"|config files|CLI flags|runtime loop|scheduler|KV cache|sampling|attention backend|config parser"
    )
    for n, line in page.rows():
        is_named = re.match(rf"\| `?(?P<name>{named})`?[ ,(]", line)
        is_of_model = is_named is not None and re.match(r"[a-z]+_[a-z_]+$|BLOCK_M", is_named["name"]) is not None
        if is_named and is_of_model != of_code_base and page.lines[n - 1].startswith("|"):
            yield n, "\0", line[:50]
    for n, line in page.prose():
        if re.match(MUST_BEGIN, line):
            yield n, "\0", line[:50]


def none_beside_the_thing(page: Page, _: random.Random) -> Iterator[Found]:
    """A row or a sentence says "none found" of what is there."""
    for n, line in page.rows():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) > 3 and "none found" not in line and "`" in cells[2]:
            yield n, "|".join((*cells[:2], " none found (searched: the sources) ", *cells[3:])), line[:60]
    for n, line in page.prose():
        found = re.match(r"- (?:\*\*)?[A-Z][\w /()]+:(?:\*\*)? (?=\S)", line)
        if found and "none found" not in line and "`" in line:
            yield n, f"{found[0]}none found (searched: the sources)", line[:60]


def another_class(page: Page, chance: random.Random) -> Iterator[Found]:
    """Another class or component of the same report."""
    names = sorted(set(re.findall(r"`([A-Z][a-z]+\w*[A-Z]\w+)`", "\n".join(page.lines))))
    for n, line in said(page):
        for found in re.finditer(r"`([A-Z][a-z]+\w*[A-Z]\w+)`", line):
            others = [name for name in names if name not in line]
            if others:
                yield n, changed(line, *found.span(1), chance.choice(others)), found[1]


def a_negation(page: Page, _: random.Random) -> Iterator[Found]:
    """A sentence says the contrary."""
    for n, line in said(page):
        for found in re.finditer(r"(?<= )(?:not|no|never) (?=[a-z])", line):
            yield n, changed(line, *found.span(), ""), line[max(0, found.start() - 30) : found.end() + 20]
        for found in re.finditer(r"(?<=[a-z] )(is|are) (?=[a-z])(?!not|no )", line):
            yield (
                n,
                changed(line, *found.span(1), f"{found[1]} not"),
                line[max(0, found.start() - 30) : found.end() + 20],
            )


def an_edge_turned(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.graphs():
        found = re.match(r"( *)(n\d+) (-->.*) (n\d+)$", line)
        if found and found[2] != found[4]:
            yield n, f"{found[1]}{found[4]} {found[3]} {found[2]}", line.strip()


def lines_exchanged(page: Page, _: random.Random) -> Iterator[Found]:
    """Two source lines of pseudocode that follow one another, as far as they differ, change places."""
    there = list(code_lines(page))
    for (n, one), (m, other) in itertools.pairwise(there):
        if 1 < m - n < 8 and one.strip() != other.strip() and one[:1] == other[:1] == " ":
            between = page.lines[n + 1 : m]
            yield n, "\n".join((other, *between, one)) + ALSO * (m - n), one.strip()[:50]


def first_cells(page: Page, _: random.Random) -> Iterator[Found]:
    """The subject of a row is that of the next row."""
    rows = list(page.rows())
    for (n, one), (m, other) in itertools.pairwise(rows):
        first, second = re.split(r"(?<!\\)\|", one), re.split(r"(?<!\\)\|", other)
        if m == n + 1 and first[1] != second[1] and len(first) > 2:
            yield n, "|".join((first[0], second[1], *first[2:])), f"{second[1].strip()} for {first[1].strip()}"


def number_of_another_row(page: Page, _: random.Random) -> Iterator[Found]:
    """A number of the same section, one row further down."""
    rows = list(page.rows())
    number = re.compile(rf"(?<=\| )(?:{NUMBER_WITH_UNIT.pattern}|-?\d[\d,]*(?:\.\d+)?)(?= \|)")
    for (n, one), (m, other) in itertools.pairwise(rows):
        for here, there in zip(number.finditer(one), number.finditer(other), strict=False):
            if m == n + 1 and here[0] != there[0] and one.count("|") == other.count("|"):
                yield n, changed(one, *here.span(), there[0]), f"{there[0]} for {here[0]}"


# --- more that is no mistake -----------------------------------------------------------------------------------------


def wrapped(page: Page, _: random.Random) -> Iterator[Found]:
    """A sentence goes on, on the next line."""
    for n, line in page.prose():
        bare = re.sub(r"`[^`]*`|\[[^\]]*\]|\([^)]*\)", lambda found: "x" * len(found[0]), line)
        places = [found.start() for found in re.finditer(r"(?<=[a-z,]) (?=[a-z])", bare)]
        if line.startswith("- ") and len(places) > 4:
            at = places[len(places) // 2]
            yield n, f"{line[:at]}\n  {line[at + 1 :]}", line[:50]


def moved_down(page: Page, _: random.Random) -> Iterator[Found]:
    """Two sentences of a list change places."""
    for n, line in page.prose():
        if line.startswith("- ") and n + 1 < len(page.lines) and page.lines[n + 1].startswith("- "):
            yield n, f"{page.lines[n + 1]}\n{line}{ALSO}", line[:50]


def a_comment_added(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in code_lines(page):
        yield n, f"{' ' * (len(line) - len(line.lstrip()))}# A remark of the reader's.\n{line}", line[:50]


def a_spelling(page: Page, _: random.Random) -> Iterator[Found]:
    """Another spelling or blank outside of code; a sentence ends in another sign."""
    for n, line in page.prose():
        parts = re.split(r"(`[^`]*`)", line)
        parts[::2] = [
            re.sub(r"(?<=[a-z]), (?=and |or )|(?<=[a-z])iz(?=ation|ed)", _spelled, part) for part in parts[::2]
        ]
        new = "".join(parts)
        new = new if new != line else (line.removesuffix(".") if line.endswith(".") else line + ".")
        if line.startswith("- "):
            yield n, new, line[:50]


def _spelled(found: re.Match[str]) -> str:
    return "is" if found[0] == "iz" else " "


def a_section_added(page: Page, _: random.Random) -> Iterator[Found]:
    for n, line in page.where(lambda fence: fence is None):
        if re.match(r"## \d|## [A-Z]", line):
            yield n, f"## Remarks\n\nRead by two people.\n\n{line}", line


HARMLESS: dict[str, Kind] = {
    "a sentence taken away": lambda page, chance: (
        site for site in taken_away(page, chance) if site[0] not in {n for n, *_ in a_required_row(page, chance)}
    ),
    "a sentence added": added,
    "a place added": a_place_added,
    "a sentence reworded": reworded,
    "a row taken away": lambda page, chance: (
        site for site in a_row_taken_away(page, chance) if site[0] not in {n for n, *_ in a_required_row(page, chance)}
    ),
    "a sentence on two lines": wrapped,
    "two sentences exchanged": moved_down,
    "a comment added in pseudocode": a_comment_added,
    "spelling and signs": a_spelling,
    "a section added": a_section_added,
}

KINDS: dict[str, Kind] = {
    # Places, numbers and form
    "pointer with a symbol: line moved by 10": moved(lambda p, named: bool(p["after"]) or named, 10),
    "pointer without one: line moved by 10": moved(lambda p, named: not p["after"] and not named, 10),
    "pointer: a line or a file that is not there": one_of(moved(lambda p, named: True, 100_000), another_file),
    "pointer: another symbol": another_symbol,
    "number in a table: one digit": one_of(one_digit(Page.rows, ALONE), one_digit(Page.rows, NUMBER_WITH_UNIT)),
    "number with a unit in prose: one digit": one_digit(Page.prose, NUMBER_WITH_UNIT),
    "number in a drawing: one digit": one_digit(Page.drawn, NUMBER_WITH_UNIT),
    "number without a unit in prose: one digit": one_digit(Page.prose, BARE),
    "number: GB for MB": another_prefix,
    "number: two of a row exchanged": exchanged,
    "number: that of the next row": number_of_another_row,
    "placeholder left": a_placeholder,
    "table: an empty row, or no line under its head": one_of(an_empty_row, without_its_rule),
    "none found, without where was looked": nothing_searched,
    "drawing: shifted, open or too wide": one_of(a_shifted_line, an_open_box, too_wide),
    "Mermaid: a quote, a node or an end": one_of(a_missing_quote, an_unknown_node, a_missing_end),
    # Meaning
    "quoted source line": quoted_line,
    "quoted condition, statement or exception": quoted_in_a_sentence,
    "value of the config": config_value,
    "formula": a_formula,
    "shape or data type": a_shape,
    "collective": exchanged_words(COLLECTIVES, said),
    "required section": a_required_section,
    "required row": a_required_row,
    "none found, beside the thing": none_beside_the_thing,
    "class": another_class,
    "opposite": exchanged_words(OPPOSITES, said),
    "prefill for decode": exchanged_words({"prefill": "decode", "decode": "prefill"}, said),
    "negation": a_negation,
    "edge of a graph turned": an_edge_turned,
    "two source lines exchanged": lines_exchanged,
    "row of another subject": first_cells,
}
"""32 kinds. Those of meaning leave every place and number as it was, or take one that stands in the same section."""


# --- planting and judging --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    kind: str
    report: str
    line: int
    what: str
    finding: str
    """The first one; empty where there is none."""


Judge = Callable[[str], Sequence[ReviewFinding]]


def judge(file: Path, has_ledger: bool = True, remakes: bool = True) -> Judge:
    """The review of any text in the place of this report's: with its list of numbers; without it, but with the report
    made again as `lmp review` does; or with neither."""
    ledger = Ledger.model_validate_json(ledger_file(file).read_bytes())
    folders = () if ledger.folder is None else (Path(ledger.folder),)
    roots = Roots({tree.name: tree.root for tree in find_trees(None, None, None)}, folders)

    @functools.cache
    def again(head: str) -> Remade | None:
        """What a text with this head is held against."""
        try:
            return remade(
                read_markdown(current[0]), Options(results=Path("analysis_results")), folders, file.parent.parent
            )
        except LmpError:
            return None

    current: list[str] = []

    def judged(text: str) -> Sequence[ReviewFinding]:
        current[:] = [text]
        found = again("\n".join(text.split("\n")[:30])) if remakes and not has_ledger else None
        held, worth = (ledger, None) if has_ledger else (found.ledger, found.worth) if found else (None, None)
        return review_text(file.name, text, roots, held, worth).findings

    return judged


def planted(file: Path, number: int, seed: int, judged: Judge | None = None) -> Iterator[Planted]:
    """``number`` mistakes of each kind in one report. Raises SystemExit where the review finds something in it as it
    is."""
    text = file.read_text(encoding="utf-8")
    judged = judged or judge(file, has_ledger=True)
    wrong = judged(text)
    if wrong:
        raise SystemExit(f"{file} has findings as it is: {wrong[0].line}: {wrong[0].message}")
    page = Page.of(text)
    for name, kind in {**KINDS, **HARMLESS}.items():
        chance = random.Random(f"{seed} {name} {file.name}")
        sites = [site for site in kind(page, chance) if site[1] != page.lines[site[0]]]
        for n, line, what in chance.sample(sites, min(number, len(sites))):
            rest = page.lines[n + 1 + line.count(ALSO) :]
            now = "\n".join((*page.lines[:n], line.replace(ALSO, ""), *rest)).replace("\0\n", "")
            found = judged(now)
            yield Planted(name, file.name, n + 1, what, found[0].message if found else "")


def table(all_: Sequence[Planted]) -> str:
    rows = ["| planted mistake | planted | found |", "| --- | ---: | ---: |", *_rows(KINDS, all_)]
    rows += ["", "| no mistake | done | found fault with |", "| --- | ---: | ---: |", *_rows(HARMLESS, all_)]
    return "\n".join(rows)


def _rows(kinds: Iterable[str], all_: Sequence[Planted]) -> Iterator[str]:
    ours = [one for one in all_ if one.kind in kinds]
    for name in kinds:
        some = [one for one in ours if one.kind == name]
        yield f"| {name} | {len(some)} | {sum(bool(one.finding) for one in some)} |"
    yield f"| **all** | {len(ours)} | {sum(bool(one.finding) for one in ours)} |"


def kinds_found(all_: Sequence[Planted]) -> tuple[int, int, int]:
    """Kinds of which every planted mistake was found, kinds of which at least half were, and kinds that had a place."""
    shares = []
    for name in KINDS:
        some = [bool(one.finding) for one in all_ if one.kind == name]
        shares += [sum(some) / len(some)] if some else []
    return sum(share == 1 for share in shares), sum(share >= 0.5 for share in shares), len(shares)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--number", type=int, default=10, help="mistakes of each kind in each report")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--list", action="store_true", help="every planted mistake with its first finding")
    parser.add_argument(
        "--without-ledger", action="store_true", help="no list of numbers is there: the report is made again"
    )
    parser.add_argument("--alone", action="store_true", help="neither the list, nor the report made again")
    given = parser.parse_args()
    found = [
        one
        for report in given.reports
        for one in planted(
            report, given.number, given.seed, judge(report, not (given.without_ledger or given.alone), not given.alone)
        )
    ]
    for one in found if given.list else ():
        is_right = bool(one.finding) == (one.kind in KINDS)
        mark = ("found " if one.finding else "passed") if is_right else "WRONG "
        print(f"{mark} {one.kind} | {one.report}:{one.line} | {one.what} | {one.finding}")
    print(table(found))
    whole, half, placed = kinds_found(found)
    print(f"\nkinds: {whole} of {placed} found whole, {half} at least in half of their mistakes")
    return 1 if any(bool(one.finding) != (one.kind in KINDS) for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
