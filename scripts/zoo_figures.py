"""Writes the figures of a run over families into docs/zoo.md, from the summary of `lmp zoo`.

    .venv/bin/python scripts/zoo_figures.py            write
    .venv/bin/python scripts/zoo_figures.py --check    end with 1 if the page has other figures

Between its two comments the page has the output of `figures` for reports/zoo/causal-lm.json.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lmp.records import ZooSummary
from lmp.report.formats.figures import figure
from lmp.report.zoo import told
from lmp.zoo.entries import read_summary

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "zoo.md"
SUMMARY = ROOT / "reports" / "zoo" / "causal-lm.json"

BLOCK = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end -->)", re.S)
CORES = 1_000
CONFIGS = 100_000


def figures(summary: ZooSummary) -> str:
    """Two tables: what a family took, and what so many configs on so many cores would take at the same rate."""
    took = told.cost(summary.entries)
    if took is None:
        return "No run has been measured yet.\n"
    hours = CONFIGS * took.cpu_mean / CORES / 3600
    run, most = told.made_by(summary), figure(took.memory_most, "B")
    rows = [
        ("families measured", f"{took.families:,}, of which {summary.verified:,} verified ({told.versions(summary)})"),
        ("seconds of a core, on average", f"{took.cpu_mean:.1f}"),
        ("half of the families within", f"{took.cpu_median:.1f} s"),
        ("nine of ten within", f"{took.cpu_nine_tenths:.1f} s"),
        ("the longest", f"{took.cpu_most:.1f} s"),
        ("memory of its process", f"{figure(took.memory_median, 'B')} in the middle, {most} at most"),
        ("stored, on average", figure(took.stored_mean, "B")),
        *([("last run", run)] if run else []),
    ]
    at_scale = [
        ("time", f"{hours:.2f} hours if every core is busy; the longest family is {took.cpu_most:.0f} s of it"),
        ("core hours", f"{CONFIGS * took.cpu_mean / 3600:,.0f}"),
        ("results", f"{CORES / took.cpu_mean:.0f} a second"),
        ("memory", f"{figure(CORES * took.memory_median, 'B')} in all; {most} for the largest"),
        ("stored", figure(CONFIGS * took.stored_mean, "B")),
    ]
    title = f"{CONFIGS:,} configs on {CORES:,} cores"
    return f"{_table('a family takes', 'measured', rows)}\n{_table(title, 'worked out from it', at_scale)}"


def _table(first: str, second: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {first} | {second} |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join(lines) + "\n"


def written(page: str, summary: ZooSummary) -> str:
    """The page with the figures of this summary."""
    text = figures(summary)
    return BLOCK.sub(lambda _: text, page)


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    new = written(page, read_summary(SUMMARY))
    if "--check" not in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    elif new != page:
        print("docs/zoo.md has other figures than reports/zoo/causal-lm.json: run scripts/zoo_figures.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
