"""A post: its folder with template, lab.toml, sources.toml and captures."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from lmp.errors import NotFound, PostFault, UsageError
from lmp.lab.config import Lab, Source, read_lab, read_sources
from lmp.lab.records import Capture
from lmp.store.files import write_whole

TEMPLATE, LAB, SOURCES = "post.md", "lab.toml", "sources.toml"
WORKLOADS = "workloads"


@dataclass(frozen=True)
class Post:
    """``folder`` is ``posts/<slug>``."""

    folder: Path

    @property
    def slug(self) -> str:
        return self.folder.name

    @property
    def posts(self) -> Path:
        """The folder of all posts."""
        return self.folder.parent

    @property
    def root(self) -> Path:
        """The folder above ``posts``: names of files in messages are relative to it."""
        return self.posts.parent

    @property
    def workloads(self) -> Path:
        return self.posts / WORKLOADS

    @property
    def captures(self) -> Path:
        return self.folder / "captures"

    @property
    def markdown(self) -> Path:
        return self.posts / f"{self.slug}.md"

    @property
    def html(self) -> Path:
        return self.posts / "html" / f"{self.slug}.html"

    def name_of(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else str(file)

    @cached_property
    def lab(self) -> Lab:
        return read_lab(self.folder / LAB)

    @cached_property
    def sources(self) -> dict[str, Source]:
        return read_sources(self.folder / SOURCES)

    @cached_property
    def template(self) -> str:
        file = self.folder / TEMPLATE
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.name_of(file)}:1: not UTF-8 text\nwrite the file again as UTF-8") from error
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}\na post has {TEMPLATE} and {LAB}") from error

    def workload_hashes(self, names: list[str]) -> dict[str, str]:
        """File below ``posts/workloads`` or in the post's folder -> its sha256.

        Raises PostFault for one that is in neither.
        """
        return {name: hashlib.sha256(self._workload(name)).hexdigest() for name in names}

    def workload_text(self, name: str, sha256: str | None) -> str:
        """The text of such a file. Raises PostFault if it is not the file of that sha256."""
        data = self._workload(name)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise PostFault(f"{name} is not the file that the capture was taken with")
        return data.decode("utf-8", errors="replace")

    def _workload(self, name: str) -> bytes:
        file = confined(self.workloads, name)
        own = confined(self.folder, name)
        file = own if own.is_file() and not file.is_file() else file
        try:
            return file.read_bytes()
        except OSError as error:
            raise PostFault(f"workload {name} cannot be read: {error.strerror}") from error


def confined(folder: Path, name: str) -> Path:
    """The file of that name below the folder. Raises PostFault for a path that leads out of it."""
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise PostFault(f"{name} leads out of {folder.name}/")
    return file


def read_post(name: str | Path) -> Post:
    """The post of a folder, of its slug, or of one of its files."""
    given = Path(name)
    place = given.resolve()  # "." has no name to take a suffix from
    for folder in (given, given.parent, place.with_suffix(""), Path("posts") / given):
        if (folder / LAB).is_file():
            return Post(folder.resolve())
    raise NotFound(f"{name} is no post: there is no {given / LAB}\ngive a folder such as posts/llm-cache-hierarchy")


def all_posts(posts: Path) -> list[Post]:
    """The posts of a folder. One without a template is not a post yet; its captures can be taken."""
    return [Post(file.parent) for file in sorted(posts.resolve().glob(f"*/{LAB}")) if (file.parent / TEMPLATE).exists()]


# --- captures as stored ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A capture with its raw text."""

    record: Capture
    text: str
    folder: Path

    @cached_property
    def lines(self) -> list[str]:
        lines = self.text.split("\n")
        return lines[:-1] if lines and not lines[-1] else lines

    @property
    def usable(self) -> bool:
        """True if there is an output to read numbers from."""
        return self.record.status in ("ok", "cut")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def line_sums(text: str) -> str:
    """A checksum of 16 bits for each line."""
    return "".join(f"{zlib.crc32(line.encode()) & 0xFFFF:04x}" for line in text.split("\n"))


def edited_line(text: str, sums: str) -> int:
    """The first line, from 1, that is not what the checksums were made of; 1 if they do not tell."""
    mine = line_sums(text)
    if not sums or mine == sums:
        return 1
    steps = range(0, max(len(mine), len(sums)), 4)
    return next(step for step in steps if mine[step : step + 4] != sums[step : step + 4]) // 4 + 1


def save(folder: Path, record: Capture, text: str) -> None:
    """Store a capture, or leave the one that is there. Text and record are changed together.

    A raw text without its record is no capture, so a process that is killed in between leaves none.
    """
    content = json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    raw, file = folder / f"{record.id}.txt", folder / f"{record.id}.json"
    new = {path: path.with_name(f".{path.name}.new") for path in (raw, file)}
    try:
        write_whole(new[raw], text)
        write_whole(new[file], content)
        with _no_interrupt():
            file.unlink(missing_ok=True)
            new[raw].replace(raw)
            new[file].replace(file)
    finally:
        for path in new.values():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C waits until the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def load(folder: Path, name: str) -> Stored | None:
    """The capture of that name; None if it was not taken. Raises PostFault if its files cannot be used."""
    file, raw = folder / f"{name}.json", folder / f"{name}.txt"
    if not file.exists():
        return None
    try:
        record = Capture.model_validate_json(file.read_bytes())
        text = raw.read_bytes().decode("utf-8")
    except ValidationError as error:
        first = error.errors()[0]
        raise PostFault(f"{file.name} is no capture: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (OSError, ValueError) as error:
        raise PostFault(f"capture {name} cannot be read: {error}") from error
    return Stored(record, text, folder)
