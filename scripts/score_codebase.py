"""Scores what reading finds of a code base against the truth that was written by reading (tests/data/truth).

    python scripts/score_codebase.py NAME FOLDER
    python scripts/score_codebase.py NAME --second        what a second reader named, as if a tool had found it

NAME is the truth's file without ``.toml``, FOLDER the unpacked archive's folder from which the truth's paths count.
For each section: the recall of the core rows, and the precision of what was found. A found row is right where a core
or also row of its section stands in the same file within 3 lines; an edge where caller and callee are those of a row.
A pitfall is told with its definition and its causes, a part with the lines that do it: any of these places counts.
``P read`` counts only the found rows of files that the truth names in that section: other files may not have been read.
"""

from __future__ import annotations

import sys
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

SECTIONS = ("entry_points", "nesting", "kv_cache", "scheduler", "sampling", "attention", "configuration", "pitfalls")
NEAR = 3
TRUTH = Path(__file__).parents[1] / "tests" / "data" / "truth"
Ends = tuple[tuple[str, int], ...]
"""Of a row its place; of an edge the places of caller and callee."""


def near(one: Ends, other: Ends) -> bool:
    if len(one) > len(other):
        # A pitfall is told with its causes, a part with the lines that do it: a reader finds it by any of them.
        return any(near((each,), other) for each in one)
    return all(a[0] == b[0] and abs(a[1] - b[1]) <= NEAR for a, b in zip(one, other, strict=True))


def ends(section: str, row: Mapping[str, object]) -> list[Ends]:
    """What counts as this row: its place, and for a pitfall also the exact line of the cause."""
    if section == "nesting":
        return [
            (
                (str(row["caller_file"]), int(str(row["caller_line"]))),
                (str(row["callee_file"]), int(str(row["callee_line"]))),
            )
        ]
    lines = [row["line"], *([row["at_line"]] if row.get("at_line") else [])]
    return [((str(row["file"]), int(str(line))),) for line in lines]


def score(section: str, truth: Mapping[str, object], found: Iterable[Ends]) -> tuple[int, int, int, int, int, int]:
    """Core rows met, core rows, found rows right, found rows, and the last two in files that the section names."""
    rows = truth.get(section, [])
    assert isinstance(rows, list)
    every = [(row["weight"], ends(section, row)) for row in rows]
    distinct = sorted(set(found))
    core = [places for weight, places in every if weight == "core"]
    met = sum(any(near(one, place) for one in distinct for place in places) for places in core)
    right = [one for one in distinct if any(near(one, place) for _, places in every for place in places)]
    named = {file for _, places in every for place in places for file, _ in place}
    read = [one for one in distinct if all(file in named for file, _ in one)]
    return met, len(core), len(right), len(distinct), len([one for one in right if one in read]), len(read)


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:4.0f} % {part:4}/{whole:<4}" if whole else f"   -   {part:4}/{whole:<4}"


def main(name: str, folder: str) -> None:
    from lmp.codebase.rows import rows_of

    truth = tomllib.loads((TRUTH / f"{name}.toml").read_text(encoding="utf-8"))
    begun = time.time()
    if folder == "--second":
        second = tomllib.loads((TRUTH / "second" / f"{name}.toml").read_text(encoding="utf-8"))
        found = {section: [ends(section, row)[0] for row in second.get(section, [])] for section in SECTIONS}
    else:
        found = rows_of(Path(folder))
    print(f"{name}: {time.time() - begun:.1f} s")
    print_scores(truth, found)


def print_scores(truth: Mapping[str, object], found: Mapping[str, Iterable[Ends]]) -> None:
    print(f"{'':14} {'recall (core)':>18} {'precision':>18} {'P read':>18}")
    for section in SECTIONS:
        met, core, right, every, right_read, read = score(section, truth, found.get(section, ()))
        print(f"{section:14} {share(met, core):>18} {share(right, every):>18} {share(right_read, read):>18}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
