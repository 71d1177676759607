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
    """``path`` holds ``content`` afterwards; when anything fails or interrupts, it is what it was before.

    Folders that were made for it and stayed empty are removed again.
    """
    with whole_file(path) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """The same for what is written piece by piece: ``path`` changes when the block has ended well."""
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
    """Temporary files that killed writers of ``path`` left. Only for who holds the lock on it."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            left.unlink()


@contextlib.contextmanager
def storage_errors(place: Path, option: str = "--results") -> Iterator[None]:
    """Turns what the system says about ``place`` into a message with a way out."""
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
        return StorageError(f"{blocking} is a file where a folder is due\ngive another folder with `{option}`")
    return StorageError(
        f"cannot read or write {place}: {error.strerror or error}\ngive a folder that can be written with `{option}`"
    )


def _missing_parents(path: Path) -> list[Path]:
    """The folders above ``path`` that are not there, innermost first."""
    missing = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.append(folder)
    return missing


def _sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut too; where a folder cannot be synced, nothing is lost by it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
