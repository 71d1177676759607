"""The distributions that lmp analyses where they are installed: their version and their RECORD.

Nothing is imported, copied or written. A file that differs from the hash in the RECORD was edited after installation.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import EngineMissing, Search

ENGINE = ("torch", "transformers")
"""Distributions of the extra ``engine``."""

INSTALL = "pip install 'lmp[engine]'"


@dataclass(frozen=True)
class Installed:
    """A distribution, as its folder beside the package names it."""

    version: str
    record: Path
    """The list of its files with their hashes. It lists no file of the package for an editable install."""


def package_folder(import_name: str) -> Path | None:
    """The folder that Python would import a top-level package from; None if there is none."""
    from importlib.util import find_spec

    spec = None
    with contextlib.suppress(ValueError):  # a module without a spec, as a program may put into sys.modules
        spec = find_spec(import_name)  # for a top-level name: finds without importing
    file = None if spec is None or spec.origin is None else Path(spec.origin)
    return file.parent if file is not None and file.stem == "__init__" else None  # a single file is no package


def distribution_of(package_dir: Path, name: str) -> Installed | None:
    """The distribution that a package belongs to, from the folder beside it; None if there is not exactly one."""
    found = list(package_dir.parent.glob(f"{name}-*.dist-info"))
    if len(found) != 1:
        return None
    version = found[0].name.removesuffix(".dist-info").partition("-")[2]
    return Installed(version, found[0] / "RECORD")


def recorded_hash(record: Path, file: str) -> str | None:
    """The sha256 of a file in a RECORD, in hexadecimal digits; None if the file is not listed with one."""
    text = _text(record)
    start = text.find(f"\n{file},sha256=")
    if start < 0:
        return None
    import base64
    import binascii

    digest = text[start + len(file) + 9 : text.find("\n", start + 1)].partition(",")[0]
    with contextlib.suppress(binascii.Error, ValueError):
        return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    return None


def recorded_files(record: Path) -> list[str]:
    """The files that a RECORD lists, in its order."""
    return [line.partition(",")[0] for line in _text(record).splitlines() if line]


@functools.lru_cache(maxsize=4)
def _text(record: Path) -> str:
    """The text of a RECORD, with a line break before each entry. The first search of a name is quick in it."""
    try:
        return "\n" + record.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    except OSError:
        return ""


def engine_missing(lacking: Sequence[str]) -> EngineMissing:
    """The error of a command that needs a distribution of the extra ``engine``."""
    verb, them, their = ("are", "them", "their") if len(lacking) > 1 else ("is", "it", "its")
    return EngineMissing(
        f"{' and '.join(lacking)} {verb} not installed: this command reads and runs {their} sources\n"
        f"install {them}: {INSTALL}",
        [Search(name, "the installed distributions", "not installed") for name in lacking],
    )


def lacking() -> list[str]:
    """The packages of the extra ``engine`` that Python cannot import."""
    return [name for name in ENGINE if package_folder(name) is None]


_said: set[str] = set()


def say_once(sentence: str) -> None:
    """Warn the user, once a process. The logger ``lmp`` writes to stderr, unless the program configures it."""
    if sentence in _said:
        return
    _said.add(sentence)
    import logging

    logging.getLogger("lmp").warning("warning: %s", sentence)
