"""What a result was made from: sha256 of source files, and of the parts of lmp that derived, judged and linked it."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from lmp.records import OWN_ENGINE
from lmp.source.trees import LAYOUTS, Tree, Trees, installed_tree, other_releases, sha256_of

if TYPE_CHECKING:
    from lmp.records import ModelAnalysis, ModuleAnalysis

Standing = Literal["current", "judge again", "derive again"]
"""What has to be done with a stored analysis before it is used."""

# Keys of a fingerprint. Every other key is a source file, relative to its tree's root.
DERIVED_BY = "derived_by"
"""The parts of lmp that decide formulas. A submission has no such key."""
JUDGED_BY = "judged_by"
"""The parts of lmp that decide whether an analysis holds."""
LINKED_BY = "linked_by"
"""The parts of lmp that link analyses to a model, with the options that were asked for."""
RUN_WITH = "run_with."
"""Beginning of a key, before ``torch`` or ``transformers``: the release that executed the module, if it is not the one
that lmp is proven on."""
FORMER_JUDGED_BY = "lmp.verify"
"""Key that submissions had in place of `JUDGED_BY`: such a file is judged again."""

DERIVING = ("trace", "workload", "formula", "flops.py", "records.py", "source/lines.py", "analyze")
"""Sources of `DERIVED_BY`. `analyze` is one of them: it chooses the workload, which arguments are variables and which
calls are inlined, and so the formulas."""

JUDGING = ("verify", "workload", "formula", "flops.py", "records.py", "source/lines.py", "analyze")
"""Sources of `JUDGED_BY`. `analyze` is one of them: it chooses the points and executes them."""

LINKING = ("link", "formula", "records.py")
"""Sources of `LINKED_BY`."""


# --- making fingerprints ---------------------------------------------------------------------------------------------


def fingerprint(files: Iterable[tuple[Tree, Path]]) -> dict[str, str]:
    """The fingerprint of an analysis that lmp derives and judges now, from these source files."""
    return {DERIVED_BY: derived_by(), **submission_fingerprint(files)}


def submission_fingerprint(files: Iterable[tuple[Tree, Path]]) -> dict[str, str]:
    """The fingerprint of a submission that is judged now; its class is in these source files."""
    read = list(files)
    hashes = {tree.relative(path): sha256_of(_content(path)) for tree, path in read}
    return judged_now({**run_with(tree for tree, _ in read), **dict(sorted(hashes.items()))})


def run_with(trees: Iterable[Tree]) -> dict[str, str]:
    """The keys `RUN_WITH` of a module of these trees that is executed now.

    PyTorch always runs as installed. A vendored tree and a clone are told by the hashes of their files.
    """
    own = next((tree for tree in trees if tree.name == "transformers"), None)
    found = other_releases(Trees(own, _installed_torch()))
    return {f"{RUN_WITH}{name}": version for name, version in sorted(found.items())}


@functools.cache
def _installed_torch() -> Tree | None:
    return installed_tree("pytorch")


def judged_now(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """The fingerprint of the same analysis after it was judged again."""
    kept = {key: digest for key, digest in fingerprint.items() if key not in (JUDGED_BY, FORMER_JUDGED_BY)}
    derived = {DERIVED_BY: kept.pop(DERIVED_BY)} if DERIVED_BY in kept else {}
    return {**derived, JUDGED_BY: judged_by(), **kept}


def derived_by() -> str:
    """sha256 over lmp's own sources that decide formulas."""
    return sources_fingerprint(DERIVING)


def judged_by() -> str:
    """sha256 over lmp's own sources that decide whether an analysis holds."""
    return sources_fingerprint(JUDGING)


def linked_by(*asked: str) -> str:
    """sha256 over lmp's linking and over what was asked for: versions of the sources, config, attention, dtype."""
    return sha256_of("\n".join([sources_fingerprint(LINKING), *asked]).encode())


@functools.cache
def sources_fingerprint(names: tuple[str, ...]) -> str:
    """sha256 over some of lmp's own sources: folders and files below ``lmp``."""
    package = Path(__file__).resolve().parents[1]
    files: list[Path] = []
    for name in names:
        path = package / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    lines = [f"{sha256_of(file.read_bytes())}  {file.relative_to(package).as_posix()}\n" for file in files]
    return sha256_of("".join(lines).encode())


# --- comparing fingerprints ------------------------------------------------------------------------------------------


def standing(analysis: ModuleAnalysis, trees: Trees) -> Standing:
    """What has to be done with a stored analysis before it is used.

    An analysis is derived again if a source file has changed, or what derived it. It is judged again if only what
    judged it has changed. An analysis without a fingerprint, or with one of a former form, is derived again. lmp
    cannot derive a submission again, so it is not used then.
    """
    files = dict(analysis.fingerprint)
    derived, judged = files.pop(DERIVED_BY, None), files.pop(JUDGED_BY, None)
    former = files.pop(FORMER_JUDGED_BY, None)
    if _releases(files) != run_with(_trees_of(files, trees)):
        return "derive again"
    if derived is None:
        derives_as_now = analysis.engine != OWN_ENGINE and (judged or former) is not None
    else:
        derives_as_now = derived == derived_by()
    if not derives_as_now or not files or not _files_are_as_then(files, trees):
        return "derive again"
    return "current" if judged == judged_by() else "judge again"


def is_model_current(model: ModelAnalysis, trees: Trees, linked: str) -> bool:
    """Whether a stored model is linked as ``linked`` says, from analyses that were derived and judged as now.

    False also where a source file of a part has changed. Parts that other tools made have no fingerprint: their files
    are compared by the caller.
    """
    files = dict(model.fingerprint)
    if files.pop(LINKED_BY, None) != linked:
        return False
    derived, judged = derived_by(), judged_by()
    if files.pop(DERIVED_BY, derived) != derived or files.pop(JUDGED_BY, judged) != judged:
        return False
    releases = _releases(files)
    if files and releases != run_with(_trees_of(files, trees)):  # parts of other tools have no files
        return False
    return _files_are_as_then(files, trees)


def _releases(files: dict[str, str]) -> dict[str, str]:
    """Takes the keys `RUN_WITH` out of a fingerprint."""
    return {key: files.pop(key) for key in list(files) if key.startswith(RUN_WITH)}


def unsourced(fingerprint: Mapping[str, str], trees: Trees) -> list[str]:
    """Distributions whose sources a result was made from and which are not here, vendored or installed."""
    layouts = {"transformers": trees.transformers, "pytorch": trees.pytorch}
    gone = [LAYOUTS[name] for name, tree in layouts.items() if tree is None]
    return [one.distribution for one in gone if any(file.startswith(f"{one.package}/") for file in fingerprint)]


def agrees_with_sources(fingerprint: Mapping[str, str], trees: Trees) -> bool:
    """Whether the sources that are here are those that a result was made from.

    Sources that are not here are not compared: `unsourced` names them.
    """
    rules = (DERIVED_BY, JUDGED_BY, LINKED_BY, FORMER_JUDGED_BY)
    files = {key: digest for key, digest in fingerprint.items() if key not in rules}
    if _releases(files) != run_with(_trees_of(files, trees)):
        return False
    layouts = {"transformers": trees.transformers, "pytorch": trees.pytorch}
    gone = tuple(f"{LAYOUTS[name].package}/" for name, tree in layouts.items() if tree is None)
    return _files_are_as_then({f: digest for f, digest in files.items() if not f.startswith(gone)}, trees)


def _trees_of(files: Iterable[str], trees: Trees) -> list[Tree]:
    """The trees that have any of the files."""
    return [tree for tree in trees if any(tree.path(file) is not None for file in files)]


def _files_are_as_then(files: Mapping[str, str], trees: Trees) -> bool:
    return all(_hash_in(trees, file) == digest for file, digest in files.items())


def _content(path: Path) -> bytes:
    """The bytes of a source file. The text of a notebook's cell, which is no file, is in Python's `linecache`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return "".join(linecache.getlines(str(path))).encode()


def _hash_in(trees: Trees, file: str) -> str | None:
    """The hash of a tree's file; None where no tree has it."""
    relative = PurePosixPath(file)
    if relative.is_absolute() or ".." in relative.parts:
        return None
    for tree in trees:
        path = tree.path(relative)
        if path is None:
            continue
        try:
            stat = path.stat()
            return _file_hash(path, stat.st_mtime_ns, stat.st_size)
        except OSError:
            return None
    return None


@functools.lru_cache(maxsize=4096)
def _file_hash(path: Path, modified: int, size: int) -> str:
    return sha256_of(path.read_bytes())
