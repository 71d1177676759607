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
from lmp.codebase.roles.likely import FILE, LEAST, MOST_EDGES, MOST_ROWS, Witnesses, shown_at
from lmp.codebase.roles.reach import Reading
from lmp.codebase.rows import every_row, likely, nesting

PENALTY = {"entry_points": 15.0, "nesting": 60.0}
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


def samples(folder: Path) -> dict[str, Samples]:
    """Section -> its things or calls with their witnesses."""
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    found = likely(reading)
    every: dict[str, Samples] = {section: [] for section in found.ruled}
    for section, key, witnesses in found.things():
        every[section].append(((key,), witnesses))
    every["entry_points"] = [((key,), witnesses) for key, witnesses in found.starts()]
    every["nesting"] = [((edge.caller.key, edge.callee.key), witnesses) for edge, witnesses in found.calls()]
    told = pitfalls.candidates(reading, every_row(reading), nesting(reading))
    every["pitfalls"] = [(each.places, each.witnesses) for each in told]
    return every


def labels(section: str, truth: dict[str, object], of: Samples) -> np.ndarray:
    rows = truth.get(section, [])
    assert isinstance(rows, list)
    named = [place for row in rows for place in ends(section, row)]
    return np.array([any(near(one, place) for place in named) for one, _ in of], dtype=float)


class Fit:
    """One section: the matrix of each code base, and the fit of some of them."""

    def __init__(self, section: str, every: dict[str, Samples], truths: dict[str, dict[str, object]]) -> None:
        self.section = section
        seen = Counter(
            name for of in every.values() for _, witnesses in of for name, value in witnesses.items() if value
        )
        self.names = sorted(name for name, count in seen.items() if count >= SELDOM)
        column = {name: number for number, name in enumerate(self.names)}
        self.rows: dict[str, np.ndarray] = {}
        self.named: dict[str, np.ndarray] = {}
        for base, of in every.items():
            matrix = np.zeros((len(of), len(self.names)))
            for number, (_, witnesses) in enumerate(of):
                for name, value in witnesses.items():
                    if name in column:
                        matrix[number, column[name]] = value
            self.rows[base], self.named[base] = matrix, labels(section, truths[base], of)
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

    def found(self, of: Samples, fitted: tuple[np.ndarray, float]) -> list[tuple[float, Ends]]:
        weight = {"": fitted[1], **dict(zip(self.names, fitted[0], strict=True))}
        chances = ((shown_at(self.section, weight, witnesses), one) for one, witnesses in of)
        kept = [(chance, one) for chance, one in chances if chance is not None]
        kept.sort(key=lambda each: -each[0])
        return kept[: MOST.get(self.section, MOST_ROWS)]


def main(given: list[str]) -> None:
    left_out = "--left-out" in given
    folders = {name: Path(folder) for name, _, folder in (each.partition("=") for each in given if "=" in each)}
    truths = {name: tomllib.loads((TRUTH / f"{name}.toml").read_text(encoding="utf-8")) for name in folders}
    every = {name: samples(folder) for name, folder in folders.items()}
    lines = ["# What each witness weighs: written by scripts/fit_roles.py, see src/lmp/codebase/roles/likely.py.", ""]
    for section in (each for each in SECTIONS if each in LEAST):
        fit = Fit(section, {name: of[section] for name, of in every.items()}, truths)
        if left_out:
            shares = []
            held: dict[float, list[bool]] = {least: [] for least in LIKELY}
            names = list(folders)
            fitted = [
                fit.of([each for at, each in enumerate(names) if at % GROUPS != group]) for group in range(GROUPS)
            ]
            for at, name in enumerate(names):
                found = fit.found(every[name][section], fitted[at % GROUPS])
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
        else:
            weights, added = fit.of(list(folders))
            lines += [f"[{section}]", f'"" = {added:.3f}']
            lines += [
                f'"{name}" = {weight:.3f}' for name, weight in zip(fit.names, weights, strict=True) if round(weight, 3)
            ]
            lines.append("")
    if not left_out:
        FILE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
