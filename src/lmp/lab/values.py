"""Numbers of captures, read from the raw text each time, and the names that an expression may use."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from lmp.errors import PostFault
from lmp.formula import Number, evaluate_exact, free_variables, parse
from lmp.lab.config import OUTPUT, Series, ValueRule
from lmp.lab.post import Stored
from lmp.lab.taking import sections

LONGEST_LINE = 10_000
"""Characters of a line that a pattern sees."""

CUT = "@@cut "
"""How the line begins that stands for what was left out."""

RECORD = (
    "seconds", "cpus", "threads", "memory", "exit_code", "repeat", "left_out", "redactions",
    "load_before", "load_after",
)  # fmt: skip
"""Fields of a record that expressions may use, as ``{record.cpus}``."""

_NUMBER = re.compile(r"[-+]?(?:\d(?:[\d,_']*\d)?(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)


def number_in(text: str, base: int = 10) -> Fraction:
    """The exact number that a text spells: 12,345 and 1.5e-3 too. Raises PostFault for anything else."""
    plain = text.strip()
    if base == 16 or plain.lower().startswith("0x"):
        try:
            return Fraction(int(plain, 16))
        except ValueError:
            raise PostFault(f"{text!r} is no number") from None
    if not _NUMBER.fullmatch(plain):
        raise PostFault(f"{text[:40]!r} is no number")
    return Fraction(re.sub(r"[,_']", "", plain))


def values_of(
    stored: Stored, rules: Mapping[str, ValueRule], text_of: Callable[[str], str] | None = None
) -> dict[str, Fraction]:
    """``name``, ``name.min`` and ``name.max`` of each rule; of one run all three are equal.

    ``text_of`` gives the command line and the files that rules name in place of the output. Raises PostFault if a
    pattern matches nowhere.
    """
    found = {}
    for name, rule in rules.items():
        if rule.text == OUTPUT:
            each = [_value(name, rule, lines) for lines in sections(stored.lines)]
        elif text_of is None:
            raise PostFault(f"value {name}: {rule.text} is not at hand here")
        else:
            each = [_value(name, rule, text_of(rule.text).splitlines())]
        found[name] = Fraction(statistics.median(each))
        found[f"{name}.min"], found[f"{name}.max"] = min(each), max(each)
    return found


def _value(name: str, rule: ValueRule, lines: list[str]) -> Fraction:
    pattern = re.compile(rule.pattern)
    seen = list(_between(lines, rule.after, rule.until))
    cut = next((i for i, line in enumerate(seen) if line.startswith(CUT)), None)
    at = {i: match for i, line in enumerate(seen) if (match := pattern.search(line))}
    matches = list(at.values())
    if cut is not None and not _known_despite(rule.take, cut, list(at)):
        raise PostFault(
            f"value {name}: the output was cut where {rule.take} must look: raise max_bytes, or use after and until"
        )
    if rule.take == "count":
        return Fraction(len(matches))
    if not matches:
        where = "" if rule.text == OUTPUT else f" of {rule.text}"
        raise PostFault(f"value {name}: no line{where} matches {rule.pattern!r}")
    texts = [match[1] if rule.column is None else _word(name, match.string, rule.column) for match in matches]
    if rule.take in ("first", "last"):
        return _read(name, texts[0 if rule.take == "first" else -1], rule.base)
    numbers = [_read(name, text, rule.base) for text in texts]
    combine: dict[str, Callable[[list[Fraction]], Fraction]] = {
        "sum": lambda all_: sum(all_, Fraction(0)),
        "min": min,
        "max": max,
        "median": lambda all_: Fraction(statistics.median(all_)),
    }
    return combine[rule.take](numbers)


def _word(name: str, line: str, column: int) -> str:
    """The word of the line at a column, from 1 or from the end. Words have blanks between them."""
    words = line.split()
    if abs(column) > len(words):
        raise PostFault(f"value {name}: {line.strip()[:40]!r} has {len(words)} columns, and no column {column}")
    return words[column - 1 if column > 0 else column]


def _known_despite(take: str, cut: int, at: list[int]) -> bool:
    """True if what was left out at a line cannot change the value: a first match above it, a last one below."""
    return bool(at) and ((take == "first" and at[0] < cut) or (take == "last" and at[-1] > cut))


def _read(name: str, text: str | None, base: int) -> Fraction:
    try:
        return number_in(text or "", base)
    except PostFault as error:
        raise PostFault(f"value {name}: {error}") from None


def _between(lines: list[str], after: str | None, until: str | None) -> Iterator[str]:
    """The lines below ``after`` and above ``until``, each no longer than a pattern should see."""
    inside = after is None
    for line in lines:
        if inside and until is not None and until in line:
            return
        if inside:
            yield line[:LONGEST_LINE]
        inside = inside or (after is not None and after in line)


def pairs_of(stored: Stored, series: Series) -> list[list[tuple[str, Fraction]]]:
    """For each run the pairs that a series' pattern finds: x as text, y as a number."""
    pattern = re.compile(series.pattern or "")
    found = []
    for lines in sections(stored.lines):
        seen = list(_between(lines, series.after, series.until))
        if any(line.startswith(CUT) for line in seen):
            raise PostFault(f"the output of {stored.record.id} was cut among the points: raise max_bytes")
        matches = [match for line in seen if (match := pattern.search(line))]
        found.append([(match[1] or "", number_in(match[2] or "")) for match in matches])
    if not any(found):
        raise PostFault(f"no line of {stored.record.id} matches {series.pattern!r}")
    return found


def record_values(stored: Stored) -> dict[str, Fraction]:
    """``record.cpus`` and other facts of the record that are numbers."""
    record = stored.record
    found = {name: getattr(record, name) for name in RECORD}
    found["redactions"] = sum(record.redactions.values())
    found |= {"load_before": record.load_before[0], "load_after": record.load_after[0]}
    return {f"record.{name}": Fraction(str(value)) for name, value in found.items() if value is not None}


def evaluated(expression: str, look_up: Callable[[str], Number]) -> Fraction:
    """The value of an expression of lmp's own grammar. Each name is looked up once."""
    formula = parse(expression)
    values = {name: look_up(name) for name in free_variables(formula)}
    return Fraction(evaluate_exact(formula, values))
