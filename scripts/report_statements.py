"""Draws statements of a report at random, each with the source lines that it points to: to hold them against the code.

python scripts/report_statements.py reports/implementations/NAME-analysis.md --count 40 --seed 1
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from lmp.report.review.citing import cited
from lmp.report.review.reading import read_markdown
from lmp.source.trees import find_trees

ROOT = Path(__file__).parents[1]
DRAWN = re.compile(r"^[\s│┌└─▼|:-]*$")
"""Lines of drawings and tables that state nothing."""


def statements(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Every line that says something: sentences, items, rows, lines of blocks."""
    head = ""
    for number, line in enumerate(lines, 1):
        nothing = DRAWN.match(line) or line.startswith(("#", "```", "**Interface", "**Pseudocode", "**Key", "---"))
        if line.startswith("|") and number < len(lines) and re.match(r"\|[ :|-]+\|$", lines[number]):
            head = line
        elif not nothing:
            yield number, f"{head}\n     {line}" if line.startswith("|") else line


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("report", type=Path)
    asked.add_argument("--count", type=int, default=40)
    asked.add_argument("--seed", type=int, default=1)
    given = asked.parse_args()
    text = given.report.read_text(encoding="utf-8")
    places: dict[int, list[str]] = {}
    roots = dict(tree.labelled for tree in find_trees(ROOT))
    for one in cited(read_markdown(text)):
        label, _, rest = one.path.partition("/")
        file = roots.get(label, ROOT) / rest
        if file.is_file():
            code = file.read_text(encoding="utf-8").splitlines()[one.first - 1 : min(one.last, one.first + 2)]
            places.setdefault(one.line, []).append(f"{rest.rpartition('/')[2]}:{one.first}: {' / '.join(code).strip()}")
    every = list(statements(text.splitlines()))
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    for number, statement in sorted(drawn):
        print(f"{number:4} {statement}")
        for place in places.get(number, []):
            print(f"        > {place}")


if __name__ == "__main__":
    main()
