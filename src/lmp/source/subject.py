"""The kinds of names that a command takes: a class path, a model's id, a config.json, or a class in a file."""

from __future__ import annotations

import contextlib
import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound, Search, UsageError, did_you_mean
from lmp.source.catalogue import catalogued, close_ids
from lmp.source.hub import CONFIG_NAME
from lmp.source.names import is_class_path

_OWN = re.compile(r"(?P<file>.+\.pyi?)(?::(?P<name>[^:/\\]*))?", re.DOTALL)


@dataclass(frozen=True)
class Subject:
    """What a name is. Exactly one of the first four is set; ``class_name`` only beside ``file``."""

    class_path: str | None = None
    model_id: str | None = None
    config: Path | None = None
    file: Path | None = None
    """A Python file of the user's own."""
    class_name: str | None = None
    """The class in the file; None if the name has none."""


def subject_of(text: str) -> Subject:
    """The kind of a name, by its form and by the files that are there.

    Raises UsageError for a name of no kind, NotFound for a Python file that is not there.
    """
    own = _OWN.fullmatch(text)
    if own is not None:
        return _own(text, Path(own["file"]), own["name"])
    if is_model_id(text):
        return Subject(model_id=text)
    path = Path(text)
    if _exists(path) and not (path.is_dir() and is_class_path(text)):
        return _existing(path)
    if looks_like_path(text):
        raise UsageError(_no_file(path, "a config.json, a .py file, a class path or a model id"))
    if not is_class_path(text):
        raise _no_kind(text)
    return Subject(class_path=text)


def config_in(text: str) -> str:
    """The config.json in the folder of this name; the name itself for everything else.

    A folder may have the form of a class path or of a model id: where it has a config, the folder is meant.
    """
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        config = Path(text) / CONFIG_NAME
        return str(config) if config.is_file() else text
    return text


def is_code_base(text: str) -> bool:
    """True if a report on the name is one on a code base: a folder, or the path of none."""
    if _is_folder(Path(text)):
        return True
    return looks_like_path(text) and _OWN.fullmatch(text) is None and not text.endswith(".json")


def is_model_id(text: str) -> bool:
    """True for ``org/name`` that is no existing path. In an existing folder, it is one only in the catalogue."""
    return not looks_like_path(text) and "/" in text and not _exists(Path(text))


def looks_like_path(text: str) -> bool:
    """True if the text can only be a path. Both a model id and a path may have one slash."""
    if text.endswith((".json", ".py")) or text.startswith(("/", ".", "~")) or text.count("/") > 1 or text.endswith("/"):
        return True
    return "/" in text and _is_folder(Path(text.partition("/")[0])) and catalogued(text) is None


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        return path.exists()
    return False


def _is_folder(path: Path) -> bool:
    return _exists(path) and path.is_dir()


def _own(text: str, file: Path, name: str | None) -> Subject:
    if _is_folder(file):
        raise UsageError(f"{file} is a folder, not a Python file\ngive a file in it, as in {file}/blocks.py:Block")
    if not _exists(file):
        raise NotFound(_no_file(file, "a Python file"), [Search("a Python file", str(file), "not there")])
    if name == "":
        raise UsageError(
            f"{text!r} ends before the class\nwrite it as in {file}:Block, or {file} alone for its classes"
        )
    return Subject(file=file, class_name=name)


def _existing(path: Path) -> Subject:
    if path.is_dir():
        config = path / CONFIG_NAME
        hint = f"give its config: {config}" if config.is_file() else f"give a file in it, as in {path}/blocks.py:Block"
        raise UsageError(f"{path} is a folder\n{hint}")
    if path.suffix == ".json":
        return Subject(config=path)
    raise UsageError(f"{path} is neither a config.json nor a .py file\ngive one of these, a class path or a model id")


def _no_file(path: Path, what: str) -> str:
    return f"there is no file {path}\n{did_you_mean(close_files(path), f'give {what}')}"


def close_files(path: Path, most: int = 3) -> list[str]:
    """At most ``most`` files beside the missing one with similar names and the same suffix.

    A name with control characters is left out: it could steer the terminal that the hint is printed on.
    """
    try:
        files = [entry for entry in path.parent.iterdir() if entry.suffix == path.suffix and entry.is_file()]
        there = [entry.stem for entry in files if entry.name.isprintable()]
        close = difflib.get_close_matches(path.stem, there, n=most, cutoff=0.6)
        return [str(path.with_name(stem + path.suffix)) for stem in close]
    except (OSError, ValueError):
        return []


def _no_kind(text: str) -> UsageError:
    otherwise = "give dotted names, as in torch.nn.Linear, or a model id, as in Qwen/Qwen3-8B"
    return UsageError(f"{text!r} is not a class path\n{did_you_mean(close_ids(text), otherwise)}")
