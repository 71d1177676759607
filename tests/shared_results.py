"""One results folder for all test processes, and for later runs by the same rules: its name has their digest."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree

from filelock import FileLock

from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options, references_of
from lmp.records import ModuleAnalysis
from lmp.source.trees import sha256_of
from lmp.store.fingerprint import sources_fingerprint
from lmp.store.results import Store

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / ".pytest_cache" / "lmp-results"
ABOVE = {"agents", "atlas", "cli", "codebase", "lab", "observe", "report", "zoo"}
"""Rooms of the package that decide nothing in a stored analysis. Every other one does."""
DEPENDENCIES = ("torch", "transformers", "sympy", "numpy")
DAY = 24 * 3600

Analysed = Callable[[str], dict[str, ModuleAnalysis]]
"""The analyses of a class and of all that it refers to, by defining path: the class's own is the first."""


@cache
def results() -> Path:
    """The folder of the rules of now: lmp below `ABOVE`, Python, and the dependencies."""
    package = PROJECT / "src" / "lmp"
    names = {p.name for p in package.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()} - ABOVE
    versions = [f"{name} {version(name)}" for name in DEPENDENCIES]
    return FOLDER / sha256_of("\n".join([sources_fingerprint(tuple(sorted(names))), sys.version, *versions]).encode())


def remove_old() -> None:
    """Remove results of other rules, of which none has been added for a day."""
    for folder in FOLDER.glob("*"):
        if folder != results() and folder.stat().st_mtime < time.time() - DAY:
            rmtree(folder, ignore_errors=True)


def analysed(class_path: str, options: Options) -> dict[str, ModuleAnalysis]:
    """What `Analysed` says. One process makes what is missing; another one that asks for the same class waits."""
    options.results.mkdir(parents=True, exist_ok=True)
    with FileLock(options.results / f".{class_path}.lock"):
        analysis, lookup = load_for_evaluation(class_path, options, lambda name, stage: None)
    found, waiting = {analysis.class_name: analysis}, references_of(analysis)
    while waiting:
        part = lookup(waiting.pop())
        if part.class_name not in found:
            found[part.class_name] = part
            waiting += references_of(part)
    return found


def copied(analyses: dict[str, ModuleAnalysis], folder: Path) -> None:
    """Store analyses in a test's own results folder."""
    for analysis in analyses.values():
        Store(folder).save(analysis)
