"""What a report's own lines decide: a figure beside its formula, a weight's shape beside its parameters, a collective
beside the function that is called for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from lmp.errors import LmpError
from lmp.formula import evaluate_exact
from lmp.records import ReviewFinding
from lmp.report.document.amounts import written
from lmp.report.review.reading import CLOSE, OPEN, Text
from lmp.report.review.template import IMPLEMENTATION, template_of

_IS = re.compile(rf"(?P<figure>\d[\d.,]* (?P<prefix>[kMGTPE]?)B) = {OPEN}(?P<formula>[^{CLOSE}]+){CLOSE}")
_WEIGHT = re.compile(r"weight \[(?P<shape>\d+(?:, \d+)*)\](?!.*\[).* (?P<count>\d[\d.]* [kMGT]?params)\s*")
_ROW = re.compile(rf"{OPEN}(?P<name>\w+){CLOSE}")
_CALLED = re.compile(
    rf"\({OPEN}(?P<name>all_reduce|all_gather|all_gather_into_tensor|reduce_scatter|reduce_scatter_tensor|all_to_all"
    rf"|all_to_all_single|broadcast){CLOSE}\)"
)
POINTS = tuple(
    {"batch_size": batch, "seq_len": tokens, "cache_len": cached}
    for batch in (1, 32)
    for tokens, cached in ((2048, 0), (1, 2048), (1, 32768), (128, 0))
)
"""Calls that reports state figures of."""
WIDTHS = ({"a_bytes": 2, "w_bytes": 2, "kv_bytes": 2}, {"a_bytes": 4, "w_bytes": 4, "kv_bytes": 4})
LONGEST = 2000
"""Characters of a formula."""


def check_computed(text: Text, points: Mapping[str, Mapping[str, int]] | None = None) -> Iterator[ReviewFinding]:
    """``points`` are values that are known; without any, those of the table of the config at the report's calls."""
    if template_of(text) is IMPLEMENTATION:
        yield from _formulas(text, points or {})
        yield from _weights(text)
        yield from _collectives(text)


def _formulas(text: Text, points: Mapping[str, Mapping[str, int]]) -> Iterator[ReviewFinding]:
    config = dict(_config(text))
    known = [
        {**config, **widths, **point}
        for point in (*points.values(), *(_stated(text) or POINTS if not points else ()))
        for widths in WIDTHS
    ]
    results: dict[str, set[str]] = {}
    for piece in text.pieces:
        for found in _IS.finditer(piece.text):
            formula, figure = found["formula"], found["figure"]
            if formula not in results:
                results[formula] = set(_worth(formula, known))
            if results[formula] and figure not in results[formula]:
                some = next(iter(sorted(results[formula])))
                message = f"{figure} is not what {formula} gives at any stated point, as {some}"
                yield ReviewFinding(rule="number", line=piece.line, message=message)


def _stated(text: Text) -> list[dict[str, int]]:
    """The calls that the head of a report names."""
    head = next((piece.text for piece in text.pieces if piece.line <= HEAD and piece.text.startswith("Points:")), "")
    return [
        {"batch_size": int(batch), "seq_len": 1 if phase == "decode" else int(tokens),
         "cache_len": int(tokens) if phase == "decode" else 0}
        for phase, batch, tokens in _POINT.findall(head)
    ]  # fmt: skip


HEAD = 30
"""Lines of a report's head."""
_POINT = re.compile(r"(prefill|decode):(\d{1,9}):(\d{1,9})(?!\d)")


def _worth(formula: str, known: list[dict[str, int]]) -> Iterator[str]:
    """What a formula gives at each point; nothing where a name of it is not known."""
    for values in known if len(formula) <= LONGEST else ():
        try:
            yield written(evaluate_exact(formula, values), "B")
        except LmpError:
            continue


def _config(text: Text) -> Iterator[tuple[str, int]]:
    """The whole numbers of the table of the config, by both names of each."""
    for table in text.tables:
        if table.section == "3.1 Model Configuration":
            for _, cells in table.rows:
                value = re.match(r"(\d[\d,]*)(?= |$)", cells[1].strip()) if len(cells) > 1 else None
                for name in _ROW.findall(cells[0]) if value else ():
                    yield name, int(value[1].replace(",", "")) if value else 0


def _weights(text: Text) -> Iterator[ReviewFinding]:
    for fence in text.fences:
        for offset, line in enumerate(fence.lines) if fence.section == "2.2 Module Hierarchy" else ():
            found = _WEIGHT.search(line)
            if found and line.count("[") == 1 and "bias" not in line:
                count = written(math.prod(map(int, found["shape"].split(", "))), "params")
                if count != found["count"]:
                    message = f"a weight of [{found['shape']}] has {count}, not {found['count']}"
                    yield ReviewFinding(rule="shape", line=fence.line + offset, message=message)


def _collectives(text: Text) -> Iterator[ReviewFinding]:
    for table in text.tables:
        if table.columns[:3] == ("Operation", "Primitive", "When"):
            for line, cells in table.rows:
                called = {found["name"].removesuffix("_single") for found in _CALLED.finditer(cells[2])}
                called = {re.sub(r"_into_tensor|_tensor$", "", name) for name in called}
                if called and not any(name in cells[1] for name in called):
                    message = f"{cells[1].strip()} is called for with {', '.join(sorted(called))}"
                    yield ReviewFinding(rule="code", line=line, message=message)
