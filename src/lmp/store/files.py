"""Writes files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lmp.errors import StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path``. If anything fails or interrupts, ``path`` is what it was before.

    Folders that were created for the file are removed again if they stay empty.
    """
    with whole_file(path) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A handle for writing ``path`` piece by piece. ``path`` changes when the block has ended without an error."""
    made = _missing_parents(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    _sync_folder(path.parent)


def remove_left_behind(path: Path) -> None:
    """Remove the temporary files that killed writers of ``path`` left. The caller holds the lock on ``path``."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            left.unlink()


@contextlib.contextmanager
def storage_errors(place: Path, option: str = "--results") -> Iterator[None]:
    """Turn an OSError about ``place`` into a StorageError that says what to do. ``option`` is the one that set it."""
    try:
        yield
    except OSError as error:
        raise _storage_error(place, option, error) from error


def _storage_error(place: Path, option: str, error: OSError) -> StorageError:
    if error.errno in _FULL:
        return StorageError(
            f"the disk is full: {place} cannot be written\nfree some space and run again; what was stored is intact"
        )
    blocking = next((p for p in (place, *place.parents) if p.exists() and not p.is_dir()), None)
    if blocking is not None and blocking != place:
        return StorageError(f"{blocking} is a file, not a folder\ngive another folder with `{option}`")
    return StorageError(
        f"cannot read or write {place}: {error.strerror or error}\ngive a folder that can be written with `{option}`"
    )


def _missing_parents(path: Path) -> list[Path]:
    """The folders above ``path`` that do not exist, innermost first."""
    missing = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.append(folder)
    return missing


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut. Not every file system can sync a folder; the file itself is synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
