"""A class of the user's own as it was at a git revision: taken out into a folder, and analysed there.

Git is asked for an archive; nothing of the working tree or of the repository is changed. Each revision is analysed by
a process of its own, so that two versions of one module never meet.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from lmp.errors import InvalidAnalysis, NotFound, UsageError

_NAMED = re.compile(r"(?P<file>[^:@]+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?:@(?P<revision>.+))?")
MOST_FILES = 200_000
MOST_BYTES = 2 << 30
"""Of one revision; larger ones are not taken out."""
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")


@dataclass(frozen=True)
class OwnAt:
    """A class in a file, at a revision; None: as the file is now."""

    file: Path
    class_name: str
    revision: str | None

    @property
    def now(self) -> str:
        """The same class as the file is now, as it is typed."""
        return f"{self.file}:{self.class_name}"


def own_at(text: str) -> OwnAt | None:
    """``my_model.py:Block``, ``my_model.py:Block@HEAD~1``; None for anything else."""
    found = _NAMED.fullmatch(text)
    return None if found is None else OwnAt(Path(found["file"]), found["name"], found["revision"])


def analysed(own: OwnAt, place: Path, options: Sequence[str]) -> Path:
    """Take the class out and analyse it below an empty folder; returns the file of its linked analysis.

    ``options`` are those of ``lmp expand`` that say how the class is called. Raises UsageError, NotFound and
    InvalidAnalysis as that command ends.
    """
    results = place / "results"
    folder, file = Path.cwd(), own.file
    if own.revision is not None:
        top, inside = _repository(own.file)
        tree = place / "tree"
        _take_out(top, _commit(top, own), own, inside, tree)
        folder, file = tree, Path(inside)
    # -P: what lies in that folder stands in place of no package of the process itself.
    command = [sys.executable, "-P", "-m", "lmp", "expand", f"{file}:{own.class_name}", "--results", str(results)]
    done = subprocess.run([*command, "--quiet", "--fresh", *options], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise _ended(own, done)
    (found,) = [one for one in results.glob("*/model_analysis.json") if own.class_name in one.parent.name]
    return found


def _ended(own: OwnAt, done: subprocess.CompletedProcess[str]) -> UsageError | NotFound | InvalidAnalysis:
    """The error that the process ended with."""
    said = [line.partition(" (what was looked for: ")[0] for line in done.stderr.splitlines() if line.strip()]
    first = next((number for number, line in enumerate(said) if line.startswith("error: ")), max(0, len(said) - 2))
    lines = [line.removeprefix("error: ") for line in said[first : first + 2]] or ["the analysis ended without a word"]
    at = "" if own.revision is None else f" at {own.revision}"
    if "type the command above" in lines[-1]:
        lines[-1] = f"give --inputs, as `lmp expand {own.now}` prints them"
    text = "\n".join([f"{own.now}{at}: {lines[0]}", *lines[1:]])
    if done.returncode == NotFound.exit_code:
        return NotFound(text, [])
    return InvalidAnalysis(text) if done.returncode == InvalidAnalysis.exit_code else UsageError(text)


# --- git -------------------------------------------------------------------------------------------------------------


def _repository(file: Path) -> tuple[Path, str]:
    """The top folder of the file's repository, and the file's path in it."""
    folder = file.absolute().parent
    while not folder.is_dir():  # the file may be there at the revision alone
        folder = folder.parent
    done = _git(folder, "rev-parse", "--show-toplevel")
    if done.returncode:
        raise UsageError(f"{folder} is in no git repository\nleave out @REVISION, or give a file that git has")
    top = Path(done.stdout.decode().removesuffix("\n")).resolve()
    inside = Path(os.path.normpath(file.absolute().parent.resolve() / file.name))
    if not inside.is_relative_to(top):
        raise UsageError(f"{file} is outside of the repository {top}\ngive a file that git has")
    return top, inside.relative_to(top).as_posix()


def _commit(top: Path, own: OwnAt) -> str:
    done = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{own.revision}^{{commit}}")
    if done.returncode:
        raise UsageError(
            f"git knows no revision {str(own.revision)[:80]!r}\n"
            f"give a commit, a branch or a tag, as in {own.now}@HEAD~1"
        )
    return done.stdout.decode().strip()


def _take_out(top: Path, commit: str, own: OwnAt, inside: str, tree: Path) -> None:
    """Write the files of a commit below ``tree``."""
    if _git(top, "cat-file", "-e", f"{commit}:{inside}").returncode:
        raise UsageError(f"{inside} is not there at {own.revision}\ngive a revision that has the file")
    command = [*GIT, "-C", str(top), "archive", "--format=tar", commit]
    tree.mkdir(parents=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            _unpack(process.stdout, tree)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise UsageError(f"git cannot write an archive of {own.revision}\ntry `git archive {own.revision}` yourself")


def _unpack(stream: IO[bytes], tree: Path) -> None:
    """Regular files alone, each inside of the folder: a link could name a place outside."""
    count = size = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isfile():
                continue
            count, size = count + 1, size + member.size
            if count > MOST_FILES or size > MOST_BYTES:
                raise UsageError("the revision is larger than 2 GiB or 200,000 files\ngive a smaller repository")
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts:
                continue
            source = archive.extractfile(member)
            target = tree.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            assert source is not None
            with target.open("xb") as file:
                while piece := source.read(1 << 20):
                    file.write(piece)


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Git's answer, without a shell. Raises UsageError where git is not installed."""
    try:
        return subprocess.run([*GIT, "-C", str(folder), *arguments], capture_output=True)
    except FileNotFoundError as error:
        raise UsageError(
            "git is not installed, and revisions are read with it\ninstall it, or leave out @REV"
        ) from error
