"""What lmp wrote: the facts of a report's lines, and where another one stands in the place of one of them.

Numbers with a claim and places with a symbol are held against the results and the code. The rest can only be held
against what lmp wrote: counts in a sentence, code, names, words that decide (`not`, `read`, `prefill`), and the order
of lines in a block of code. Other words are free: a sentence may be worded anew, added, taken away, moved or wrapped.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from lmp.records import ReviewFinding
from lmp.report.review.reading import CLOSE, OPEN, Text

BLOCK, ROW, SENTENCE = "```", "|", "~"
"""First sign of a line: of a block, where every word is a fact, and the order of lines is one; of a table; of the rest.
The last two are followed by a checksum of the words that are no facts: it tells the line, and is no fact."""
ALIKE = 0.5
"""Share of the same facts from which a line is the one that was written there."""
MOST_LINES = 400
"""Lines in a row that are held against one another where none is the same."""
NEAR_LINES = 30
"""Lines with facts by which a line of a block is moved inside of it; further away it went with its whole block."""
FEW = 3
"""Words of a cell that is a value or a name, not a sentence."""
NONE_FOUND = "none-found"

_NEGATIONS = frozenset({"not", "no", "never", "none", "nothing", "neither", "nor", "without", "cannot", NONE_FOUND})
_DECIDING = _NEGATIONS | frozenset(
    re.findall(
        r"\w+",
        "compute memory vector host read reads write writes written before after verified unverified failed least most"
        " once twice yes true false prefill decode first last more less all larger smaller static dynamic causal",
    )
)
_PLACE = re.compile(r"\.\w+:\d+")
_IDENTIFIER = re.compile(r"[A-Za-z]\w*_\w+|_\w+|[A-Za-z]+\.[\w.]+|[A-Z][a-z]*[A-Z]\w*|[a-z]+[A-Z]\w*|\w+\(\)")
_DRAWN = re.compile(r"[┌┐└┘├┤┬┴┼─│╔╗╚╝║═╭╮╰╯▼▲►◄→←↓↑█▓░]+")
_AROUND = ".,:;!?()\"'“”‘’*"
"""What belongs to the sentence, not to the word."""


# --- facts of lines --------------------------------------------------------------------------------------------------


def lines_of_facts(text: Text) -> list[tuple[int, str]]:
    """Line of the file, and what tells it and its facts, with a space between them."""
    found: dict[int, tuple[list[str], list[str]]] = {}
    in_tables = {line for table in text.tables for line, _ in table.rows}
    for piece in text.pieces:
        if piece.line not in in_tables:
            facts, words = found.setdefault(piece.line, ([], []))
            _read(piece.text, facts, words)
    lines = {line: _line(SENTENCE, *read) for line, read in found.items()}
    for table in text.tables:
        lines |= {line: _line(ROW, *_row(cells)) for line, cells in table.rows}
    for fence in text.fences:
        for offset, drawn in enumerate(fence.lines):
            words = _DRAWN.sub(" ", drawn).split()
            lines |= {fence.line + offset: " ".join((BLOCK, *words))} if words else {}
    return [(line, facts) for line, facts in sorted(lines.items()) if facts]


def _line(sign: str, facts: Sequence[str], words: Sequence[str]) -> str:
    if not facts and not words:
        return ""
    return " ".join((f"{sign}{zlib.crc32(' '.join(words).encode()) & 0xFFFFFF:06x}", *facts))


def _row(cells: Sequence[str]) -> tuple[list[str], list[str]]:
    """A row is of its first cell: all words of that are facts, and of other cells that are a value or a name."""
    facts: list[str] = []
    other: list[str] = []
    for number, cell in enumerate(cells):
        if number == 0 or len(cell.split()) <= FEW:
            for place, part in enumerate(re.split(f"[{OPEN}{CLOSE}]", cell)):
                words = part.split() if place % 2 else [word.strip(_AROUND) for word in part.split()]
                facts += [word for word in words if word]
        else:
            _read(cell, facts, other)
    return facts, other


def _read(text: str, facts: list[str], words: list[str]) -> None:
    for number, part in enumerate(re.split(f"[{OPEN}{CLOSE}]", text)):
        if number % 2:  # code
            facts += part.split()
            continue
        for word in part.replace("none found", NONE_FOUND).split():
            bare = word.strip(_AROUND)
            if bare.lower() in _DECIDING:
                facts.append(bare.lower())
            elif any(sign.isdigit() for sign in bare) or _IDENTIFIER.fullmatch(bare):
                facts.append(bare)
            elif bare:
                words.append(bare.lower())


# --- two texts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Now:
    """A line as it stands in the file."""

    line: int
    facts: str


def check_written(text: Text, written: Sequence[str]) -> Iterator[ReviewFinding]:
    """``written`` are the lines as `lines_of_facts` had them when the report was written."""
    now = [_Now(line, facts) for line, facts in lines_of_facts(text)]
    texts = [one.facts for one in now]
    yield from _twice(now, written)
    start, first = 0, 0
    gone: list[tuple[int, str]] = []
    come: list[tuple[int, _Now]] = []
    for same, same_now in (*_anchors(written, texts), (len(written), len(texts))):
        yield from _between(written[start:same], now[first:same_now])
        left, new = Counter(written[start:same]), Counter(texts[first:same_now])
        gone += [(at, written[at]) for at in range(start, same) if left[written[at]] > new[written[at]]]
        come += [(start, now[at]) for at in range(first, same_now) if new[texts[at]] > left[texts[at]]]
        start, first = same + 1, same_now + 1
    yield from _moved(gone, come)


def _twice(now: Sequence[_Now], written: Sequence[str]) -> Iterator[ReviewFinding]:
    """Rows that stand more often than lmp wrote them."""
    before = Counter(written)
    seen: Counter[str] = Counter()
    for one in now:
        seen[one.facts] += 1
        if one.facts[0] == ROW and 0 < before[one.facts] < seen[one.facts]:
            yield _differs("written", one.line, f"row of the table stands twice: {_cut(*one.facts.split(' ')[1:5])}")


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Indices of lines that both have, each of them once, in an order that both have: as many as there are."""
    places, counts = {line: at for at, line in enumerate(old)}, (Counter(old), Counter(new))
    alike = [(places[line], at) for at, line in enumerate(new) if counts[0][line] == counts[1][line] == 1]
    # The longest run of them whose old places rise: of each length the one that ends first.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (place, _) in enumerate(alike):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    found, number = [], last[-1] if last else -1
    while number >= 0:
        found.append(alike[number])
        number = before[number]
    return found[::-1]


def _moved(gone: Sequence[tuple[int, str]], come: Sequence[tuple[int, _Now]]) -> Iterator[ReviewFinding]:
    """Lines of blocks that stand a few lines from where lmp wrote them."""
    for place, one in come:
        if one.facts.startswith(BLOCK) and any(
            facts == one.facts and abs(at - place) <= NEAR_LINES for at, facts in gone
        ):
            shown = one.facts.removeprefix(BLOCK).strip()
            yield _differs("order", one.line, f"lmp wrote this line at another place of the block: {_cut(shown)}")


def _between(before: Sequence[str], after: Sequence[_Now]) -> Iterator[ReviewFinding]:
    """What differs between two lines that both texts have."""
    if max(len(before), len(after)) > MOST_LINES:
        return  # another text
    texts = [one.facts for one in after]
    for kind, first, last, start, end in SequenceMatcher(None, before, texts, autojunk=False).get_opcodes():
        old, new = before[first:last], after[start:end]
        if kind == "replace" and _words(old) != _words([one.facts for one in new]):  # not only wrapped
            for was, one in _pairs(old, new):
                yield from _changed(was, one)


def _words(lines: Sequence[str]) -> list[str]:
    return [fact for line in lines for fact in line.split(" ")[1:]]


def _pairs(before: Sequence[str], after: Sequence[_Now]) -> Iterator[tuple[str, _Now]]:
    """Lines that stand in the place of one another."""
    if len(before) == len(after):
        yield from zip(before, after, strict=True)
        return
    for one in after:
        old = max(before, key=lambda line: _likeness(line, one.facts))
        if _likeness(old, one.facts) >= ALIKE:
            yield old, one


def _likeness(old: str, new: str) -> float:
    """Share of the facts that both have; all of them where the words between are the same."""
    (first, *before), (second, *after) = old.split(" "), new.split(" ")
    if first == second != BLOCK:
        return 1
    if first[0] != second[0]:
        return 0
    one, other = Counter(before), Counter(after)
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def _changed(before: str, now: _Now) -> Iterator[ReviewFinding]:
    (first, *old), (sign, *new) = before.split(" "), now.facts.split(" ")
    is_new = NONE_FOUND in new and NONE_FOUND not in old
    if first[0] != sign[0] or ((len(old) != len(new) or is_new) and _likeness(before, now.facts) < ALIKE):
        if is_new:
            yield _differs("written", now.line, "lmp did not write here that none was found")
        return  # a line of somebody's own
    if len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            if one != other:
                yield _differs(_kind(one), now.line, f"{other} stands where lmp wrote {one}")
        return
    is_strict = sign in BLOCK or sign[0] == ROW
    for kind, start, end, at, to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        was, is_now = old[start:end], new[at:to]
        if kind == "replace":
            yield _differs(_kind(*was), now.line, f"{_cut(*is_now)} stands where lmp wrote {_cut(*was)}")
        elif kind == "delete" and (is_strict or _NEGATIONS & set(was)):
            yield _differs("written", now.line, f"lmp wrote here: {_cut(*was)}")
        elif kind == "insert" and ((sign == BLOCK and is_now[0] != "#") or _NEGATIONS & set(is_now)):
            yield _differs("written", now.line, f"lmp did not write here: {_cut(*is_now)}")


def _kind(*facts: str) -> str:
    if any(_PLACE.search(fact) for fact in facts):
        return "pointer"
    return "number" if all(fact[:1].isdigit() for fact in facts) else "written"


def _differs(kind: str, line: int, message: str) -> ReviewFinding:
    rule: Literal["pointer", "number", "written"] = "written"
    if kind == "pointer" or kind == "number":
        rule = "pointer" if kind == "pointer" else "number"
    return ReviewFinding(rule=rule, line=line, message=message)


def _cut(*words: str) -> str:
    text = " ".join(words)
    return text if len(text) <= 80 else f"{text[:80]}…"
