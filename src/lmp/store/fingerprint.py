"""What a result was made from: sha256 of the source files that were read, and of the rules that lmp applied."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lmp.source.trees import sha256_of

if TYPE_CHECKING:
    from lmp.records import ModelAnalysis, ModuleAnalysis
    from lmp.source.trees import Tree, Trees

RULES = "lmp"
"""The key of lmp's own rules in a fingerprint; every other key is a file, relative to its tree's root."""

RULE_SOURCES = ("trace", "workload", "formula", "flops.py", "records.py")
"""The parts of the package whose change may change a formula."""

COUNTING = "lmp.verify"
"""The key of the rules that a handed-in analysis was held against: those by which lmp derives have no part in it."""

COUNTING_SOURCES = ("flops.py", "formula", "verify/operators.py")

LINKED = "lmp.expand"
"""The key of the rules by which analyses were linked to a model, and of what was asked for."""

LINK_SOURCES = ("expand", "formula", "records.py")


def fingerprint(files: Iterable[tuple[Tree, Path]]) -> dict[str, str]:
    """The fingerprint of a result that was made from these files, now."""
    hashes = {tree.relative(path): sha256_of(_content(path)) for tree, path in files}
    return {RULES: rules_fingerprint(), **dict(sorted(hashes.items()))}


def _content(path: Path) -> bytes:
    """A source's text; that of a notebook's cell, which is no file, is where tracebacks find it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return "".join(linecache.getlines(str(path))).encode()


def handed_in_fingerprint(files: Iterable[tuple[Tree, Path]]) -> dict[str, str]:
    """The fingerprint of an analysis that somebody handed in, of a class whose sources are these files."""
    hashes = {tree.relative(path): sha256_of(_content(path)) for tree, path in files}
    return {COUNTING: sources_fingerprint(COUNTING_SOURCES), **dict(sorted(hashes.items()))}


def _by_other_rules(expected: dict[str, str]) -> bool:
    """Takes lmp's own rules out of a fingerprint, and says whether they have changed."""
    rules = {RULES: rules_fingerprint(), COUNTING: sources_fingerprint(COUNTING_SOURCES)}
    return any(expected.pop(key, digest) != digest for key, digest in rules.items())


def is_current(analysis: ModuleAnalysis, trees: Trees) -> bool:
    """Whether everything that the analysis was made from is still what it was. Without a fingerprint it is not."""
    expected = dict(analysis.fingerprint)
    if not {RULES, COUNTING} & expected.keys() or _by_other_rules(expected):
        return False
    return bool(expected) and all(_hash_in(trees, file) == digest for file, digest in expected.items())


def linked_fingerprint(*asked: str) -> str:
    """sha256 over lmp's linking and over what was asked for: versions of the sources, config, attention, dtype."""
    return sha256_of("\n".join([sources_fingerprint(LINK_SOURCES), *asked]).encode())


def is_model_current(model: ModelAnalysis, trees: Trees, linked: str) -> bool:
    """Whether a model was linked so, and the sources of its parts are what they were.

    Parts that were not made from sources have no fingerprint: whether their files are the same is for the store to say.
    """
    expected = dict(model.fingerprint)
    if expected.pop(LINKED, None) != linked or _by_other_rules(expected):
        return False
    return all(_hash_in(trees, file) == digest for file, digest in expected.items())


def _hash_in(trees: Trees, file: str) -> str | None:
    """The hash of a tree's file; None where no tree has it."""
    relative = PurePosixPath(file)
    if relative.is_absolute() or ".." in relative.parts:
        return None
    for tree in trees:
        path = tree.root / relative
        if not path.is_relative_to(tree.package_dir):
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


def rules_fingerprint() -> str:
    """sha256 over lmp's own sources that decide what formulas come out."""
    return sources_fingerprint(RULE_SOURCES)


@functools.cache
def sources_fingerprint(names: tuple[str, ...]) -> str:
    """sha256 over some of lmp's own sources, folders and files below ``lmp``."""
    package = Path(__file__).resolve().parents[1]
    files: list[Path] = []
    for name in names:
        path = package / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    lines = [f"{sha256_of(file.read_bytes())}  {file.relative_to(package).as_posix()}\n" for file in files]
    return sha256_of("".join(lines).encode())
