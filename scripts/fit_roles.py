"""Fits what each witness weighs (src/lmp/codebase/roles/weights.toml) to the truths that readers wrote.

    python scripts/fit_roles.py NAME=FOLDER [NAME=FOLDER …]          writes the weights
    python scripts/fit_roles.py --left-out NAME=FOLDER …             only scores each by weights of other ones

Left out, it is also counted how many rows were right, by how likely they were.

NAME is a truth's file of tests/data/truth without ``.toml``, FOLDER the unpacked archive's folder from which the
truth's paths count. The fit is a logistic regression of whether a reader named the thing or the call, core or also,
with a penalty on the sum of the weights, so that most of them are zero. Code bases weigh alike.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
from score_codebase import SECTIONS, TRUTH, Ends, ends, near, score

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles import pitfalls
from lmp.codebase.roles.likely import FILE, LEAST, MOST_EDGES, MOST_ROWS, Witnesses, chance_of, of_role, shown_at
from lmp.codebase.roles.lines import with_lines
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.rows import PLAYED, every_row, likely, nesting

PENALTY = {
    "entry_points": 15.0,
    "nesting": 60.0,
    "roles of sampling": 8.0,
    "roles of attention": 8.0,
}
OTHERWISE = 30.0
"""What the sum of the weights, in standard deviations, costs beside the loss of all samples."""
POSITIVES, NEGATIVES = 40.0, 800.0
"""Things that readers named, and others, that a code base counts for at most."""
SELDOM = 20
"""What fewer samples have is no witness."""
STEPS = 600
MOST = {"nesting": MOST_EDGES, "pitfalls": pitfalls.MOST}
LIKELY = (0.95, 0.9, 0.8, 0.6, 0.4, 0.0)
"""From how likely on rows are counted together."""
GROUPS = 5
"""Of code bases: those of one group are scored by weights of the others."""

Samples = list[tuple[Ends, Witnesses]]
TOLD_APART = ("sampling", "attention")
"""Sections whose roles weights tell better than rules do, on code bases that were left out of the fit."""
ROLES = "roles of "
"""Before the name of a section: of its things, what tells which role they have."""


def samples(folder: Path) -> dict[str, Samples]:
    """Section -> its things or calls with their witnesses. A thing is told with the lines that do it."""
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    found = likely(reading)
    every: dict[str, Samples] = {section: [] for section in (*found.ruled, *(ROLES + each for each in TOLD_APART))}
    roles = {section: role for section, (_, role) in PLAYED.items()}
    things: list[tuple[Row, Witnesses]] = []
    for section, key, witnesses in found.things():
        row = found.row(section, key, roles[section])
        if row is not None:
            things.append((row, witnesses))
    told = with_lines(reading, [row for row, _ in things])
    for row, (_, witnesses) in zip(told, things, strict=True):
        ends = (row.key, *((row.place.file, line) for line, _ in row.lines))
        every[row.section].append((ends, witnesses))
        if row.section in TOLD_APART:
            every[ROLES + row.section].append((ends, {**witnesses, **of_role(row)}))
    every["entry_points"] = [((key,), witnesses) for key, witnesses in found.starts()]
    every["nesting"] = [((edge.caller.key, edge.callee.key), witnesses) for edge, witnesses in found.calls()]
    traps = pitfalls.candidates(reading, every_row(reading), nesting(reading))
    every["pitfalls"] = [(each.places, each.witnesses) for each in traps]
    return every


def labels(section: str, truth: dict[str, object], of: Samples) -> np.ndarray:
    rows = truth.get(section, [])
    assert isinstance(rows, list)
    named = [place for row in rows for place in ends(section, row)]
    return np.array([any(near(one, place) for place in named) for one, _ in of], dtype=float)


def of_named(section: str, truth: dict[str, object], of: Samples) -> tuple[Samples, list[str]]:
    """Things that a reader named, each with the role that it has there."""
    rows = truth.get(section, [])
    assert isinstance(rows, list)
    kept: Samples = []
    roles: list[str] = []
    for one, witnesses in of:
        near_by = [row["role"] for row in rows if any(near(one[:1], place) for place in ends(section, row))]
        near_by += [row["role"] for row in rows if any(near(one, place) for place in ends(section, row))]
        if near_by:
            kept.append((one, witnesses))
            roles.append(near_by[0])
    return kept, roles


class Fit:
    """One section: the matrix of each code base, and the fit of some of them."""

    def __init__(self, section: str, every: dict[str, Samples], named: dict[str, np.ndarray]) -> None:
        self.section = section
        seen = Counter(
            name for of in every.values() for _, witnesses in of for name, value in witnesses.items() if value
        )
        self.names = sorted(name for name, count in seen.items() if count >= SELDOM)
        column = {name: number for number, name in enumerate(self.names)}
        self.rows: dict[str, np.ndarray] = {}
        self.named = named
        for base, of in every.items():
            matrix = np.zeros((len(of), len(self.names)))
            for number, (_, witnesses) in enumerate(of):
                for name, value in witnesses.items():
                    if name in column:
                        matrix[number, column[name]] = value
            self.rows[base] = matrix
        self.scale = np.concatenate(list(self.rows.values())).std(0) + 1e-3

    def of(self, bases: list[str]) -> tuple[np.ndarray, float]:
        """The weights and what is added, by steps down the gradient that shrink each weight (FISTA)."""
        x = np.concatenate([self.rows[base] for base in bases]) / self.scale
        y = np.concatenate([self.named[base] for base in bases])
        counts = []
        for base in bases:
            named = self.named[base]
            few, many = min(1.0, POSITIVES / max(1.0, named.sum())), min(1.0, NEGATIVES / max(1, len(named)))
            counts.append(np.where(named > 0, few, many))
        count = np.concatenate(counts)
        x = np.hstack([x, np.ones((len(x), 1))])
        step = 4 / np.linalg.eigvalsh((x * count[:, None]).T @ x)[-1]
        at = ahead = np.zeros(x.shape[1])
        momentum = 1.0
        cost = PENALTY.get(self.section, OTHERWISE)
        for _ in range(STEPS):
            chance = 1 / (1 + np.exp(-(x @ ahead)))
            new = ahead - step * (x.T @ (count * (chance - y)))
            new[:-1] = np.sign(new[:-1]) * np.maximum(abs(new[:-1]) - step * cost, 0)
            faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            at, ahead, momentum = new, new + (momentum - 1) / faster * (new - at), faster
        return at[:-1] / self.scale, float(at[-1])

    def chance(self, fitted: tuple[np.ndarray, float], witnesses: Witnesses) -> float:
        return chance_of({"": fitted[1], **dict(zip(self.names, fitted[0], strict=True))}, witnesses)

    def found(self, of: Samples, fitted: tuple[np.ndarray, float]) -> list[tuple[float, Ends]]:
        weight = {"": fitted[1], **dict(zip(self.names, fitted[0], strict=True))}
        chances = ((shown_at(self.section, weight, witnesses), one) for one, witnesses in of)
        kept = [(chance, one) for chance, one in chances if chance is not None]
        kept.sort(key=lambda each: -each[0])
        return kept[: MOST.get(self.section, MOST_ROWS)]


def written(name: str, fit: Fit, fitted: tuple[np.ndarray, float]) -> list[str]:
    weights, added = fitted
    kept = [f'"{each}" = {weight:.3f}' for each, weight in zip(fit.names, weights, strict=True) if round(weight, 3)]
    return [f"[{name}]", f'"" = {added:.3f}', *kept, ""]


def of_groups(fit: Fit, names: list[str]) -> list[tuple[np.ndarray, float]]:
    """The weights for each group of code bases, fitted to those of the others."""
    return [fit.of([each for at, each in enumerate(names) if at % GROUPS != group]) for group in range(GROUPS)]


def scored(section: str, fit: Fit, every: dict[str, Samples], truths: dict[str, dict[str, object]]) -> None:
    """Prints how each code base is scored by weights of others, and how many rows are right by how likely they are."""
    shares = []
    held: dict[float, list[bool]] = {least: [] for least in LIKELY}
    fitted = of_groups(fit, list(every))
    for at, (name, of) in enumerate(every.items()):
        found = fit.found(of, fitted[at % GROUPS])
        met, core, right, shown, _, _ = score(section, truths[name], [one for _, one in found])
        named = labels(section, truths[name], [(one, {}) for _, one in found])
        for (chance, _), is_right in zip(found, named, strict=True):
            held[next(least for least in LIKELY if chance >= least)].append(bool(is_right))
        print(f"{section:10} {name:24} {met:3}/{core:<3} {right:3}/{shown:<3}", flush=True)
        shares += [(met / core, right / shown if shown else 0.0)] if core else []
    recall, precision = np.mean(shares, axis=0)
    print(f"{section:10} mean of {len(shares)}: recall {recall:.0%}, precision {precision:.0%}")
    for least, rows in held.items():
        print(f"{section:10} likely from {least}: {sum(rows)} of {len(rows)} right")


def roles_of(
    section: str, every: dict[str, Samples], truths: dict[str, dict[str, object]], left_out: bool
) -> list[str]:
    """The weights of each role of a section; left out, prints how often the likeliest role is the reader's."""
    named = {name: of_named(section, truths[name], of) for name, of in every.items()}
    things = {name: of for name, (of, _) in named.items()}
    fits = {
        role: Fit(
            ROLES + section,
            things,
            {name: np.array([each == role for each in told], float) for name, (_, told) in named.items()},
        )
        for role in sorted({role for _, told in named.values() for role in told})
    }
    if not left_out:
        return [
            line for role, fit in fits.items() for line in written(f'"{section}: {role}"', fit, fit.of(list(every)))
        ]
    fitted = {role: of_groups(fit, list(every)) for role, fit in fits.items()}
    right = ruled = count = 0
    for at, (of, told) in enumerate(named.values()):
        for (_, witnesses), role in zip(of, told, strict=True):
            chances = {each: fits[each].chance(fitted[each][at % GROUPS], witnesses) for each in fits}
            right += max(chances, key=chances.__getitem__) == role
            ruled += bool(witnesses.get(f"ruled as {role}"))
            count += 1
    print(f"{section:10} role of the reader: {right} of {count} by weights, {ruled} by rules")
    return []


def main(given: list[str]) -> None:
    left_out = "--left-out" in given
    folders = {name: Path(folder) for name, _, folder in (each.partition("=") for each in given if "=" in each)}
    truths = {name: tomllib.loads((TRUTH / f"{name}.toml").read_text(encoding="utf-8")) for name in folders}
    every = {name: samples(folder) for name, folder in folders.items()}
    fit_all(every, truths, left_out)


def fit_all(every: dict[str, dict[str, Samples]], truths: dict[str, dict[str, object]], left_out: bool) -> None:
    lines = ["# What each witness weighs: written by scripts/fit_roles.py, see src/lmp/codebase/roles/likely.py.", ""]
    for section in (each for each in SECTIONS if each in LEAST):
        things = {name: of[section] for name, of in every.items()}
        fit = Fit(section, things, {name: labels(section, truths[name], of) for name, of in things.items()})
        if left_out:
            scored(section, fit, things, truths)
        else:
            lines += written(section, fit, fit.of(list(every)))
        if section in TOLD_APART:
            lines += roles_of(section, {name: of[ROLES + section] for name, of in every.items()}, truths, left_out)
    if not left_out:
        FILE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
