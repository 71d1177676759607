"""Plants mistakes in reports that lmp wrote, and shows which of them the review finds.

    lmp report --model-id meta-llama/Meta-Llama-3.1-8B --reports /tmp/reports
    python scripts/review_mutations.py /tmp/reports/implementations/*.md [--number 10] [--seed 5] [--list]

Each planted mistake changes one line of a report without findings. It is found if the review then has a finding. Other
changes are harmless, and the review should have no finding about them. The same number and seed give the same mistakes.
Results are not needed, because mistakes change only the text. The list of numbers beside it stays as written.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmp.report.document.ledger import Ledger
from lmp.report.folder import ledger_file
from lmp.report.review import Roots, review_text
from lmp.report.review.diagrams import WIDTH
from lmp.report.review.figures import NUMBER_WITH_UNIT
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
    for n, line in page.prose():
        if line.startswith("- "):
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


HARMLESS: dict[str, Kind] = {
    "a sentence taken away": taken_away,
    "a sentence added": added,
    "a place added": a_place_added,
    "a sentence reworded": reworded,
    "a row taken away": a_row_taken_away,
}

KINDS: dict[str, Kind] = {
    "pointer with a symbol: line moved by 10": moved(lambda p, named: bool(p["after"]) or named, 10),
    "pointer without one: line moved by 10": moved(lambda p, named: not p["after"] and not named, 10),
    "pointer: line that the file does not have": moved(lambda p, named: True, 100_000),
    "pointer: a file of another name": another_file,
    "pointer: another symbol": another_symbol,
    "number in a table: one digit": one_digit(Page.rows, ALONE),
    "number with a unit in a table: one digit": one_digit(Page.rows, NUMBER_WITH_UNIT),
    "number with a unit in prose: one digit": one_digit(Page.prose, NUMBER_WITH_UNIT),
    "number with a unit in a drawing: one digit": one_digit(Page.drawn, NUMBER_WITH_UNIT),
    "number without a unit in prose: one digit": one_digit(Page.prose, BARE),
    "number: GB for MB": another_prefix,
    "number: two of a row exchanged": exchanged,
    "placeholder left": a_placeholder,
    "table: an empty row": an_empty_row,
    "table: no line under its head": without_its_rule,
    "none found, without where was looked": nothing_searched,
    "drawing: a shifted line": a_shifted_line,
    "drawing: an open box": an_open_box,
    "drawing: wider than 100 columns": too_wide,
    "Mermaid: a missing quote": a_missing_quote,
    "Mermaid: an unknown node": an_unknown_node,
    "Mermaid: a missing end, or half an arrow": a_missing_end,
}


# --- planting and judging --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    kind: str
    report: str
    line: int
    what: str
    finding: str
    """The first one; empty where there is none."""


def planted(file: Path, number: int, seed: int) -> Iterator[Planted]:
    """``number`` mistakes of each kind in one report. Raises SystemExit where the review finds something in it as it
    is."""
    text = file.read_text(encoding="utf-8")
    ledger = Ledger.model_validate_json(ledger_file(file).read_bytes())
    folders = () if ledger.folder is None else (Path(ledger.folder),)
    roots = Roots({tree.name: tree.root for tree in find_trees(None, None, None)}, folders)
    wrong = review_text(file.name, text, roots, ledger).findings
    if wrong:
        raise SystemExit(f"{file} has findings as it is: {wrong[0].line}: {wrong[0].message}")
    page = Page.of(text)
    for name, kind in {**KINDS, **HARMLESS}.items():
        chance = random.Random(f"{seed} {name} {file.name}")
        sites = [site for site in kind(page, chance) if site[1] != page.lines[site[0]]]
        for n, line, what in chance.sample(sites, min(number, len(sites))):
            now = "\n".join((*page.lines[:n], line, *page.lines[n + 1 :])).replace("\0\n", "")
            found = review_text(file.name, now, roots, ledger).findings
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--number", type=int, default=10, help="mistakes of each kind in each report")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--list", action="store_true", help="every planted mistake with its first finding")
    given = parser.parse_args()
    found = [one for report in given.reports for one in planted(report, given.number, given.seed)]
    for one in found if given.list else ():
        is_right = bool(one.finding) == (one.kind in KINDS)
        mark = ("found " if one.finding else "passed") if is_right else "WRONG "
        print(f"{mark} {one.kind} | {one.report}:{one.line} | {one.what} | {one.finding}")
    print(table(found))
    return 1 if any(bool(one.finding) != (one.kind in KINDS) for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
