"""What kept a model from being built or run, and where in its source: its config, a missing package, or neither."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import InconsistentDefault, LmpError, MissingDependency

CONFIG, DEPENDENCY, LMP = "config", "dependency", "lmp"
"""Whose matter a failure is."""

_PACKAGE = re.compile(r"requires the (\S+) library|install (?:it with )?[`']?pip:? ?[`']?pip install (\S+?)[`']")
_NOTHING = re.compile(
    r"NoneType|\b(is|are) none\b|to be multiple of \d+|split_sizes to sum exactly|'bool' object has no attribute",
    re.IGNORECASE,
)
"""What operators say of an absent size, of one that does not fit them, and of ids compared with nothing."""
_DTYPE = re.compile(
    r"expected scalar type|unsupported dtype|must have the same dtype|have the same dtype", re.IGNORECASE
)
"""What operators say of elements that they do not take."""
_MACHINERY = ("configuration_utils.py", "modeling_utils.py", "cache_utils.py", "output_capturing.py", "generic.py")
"""Files of transformers that run for every model: the model's own line says more."""


@dataclass(frozen=True)
class Failure:
    """An exception, and the innermost line of the tree of models that it came from ("" where there is none)."""

    error: BaseException
    cause: str
    place: str
    """``modeling_llama.py:160``."""
    file: str
    code: str
    """The line's text."""
    text: str
    package: str | None = None
    """Which package is not installed."""
    depth: int = 0

    @property
    def is_of_config(self) -> bool:
        return self.cause == CONFIG

    @property
    def refuses_dtype(self) -> bool:
        """Whether an operator does not take elements of the dtype that the model was run in."""
        return _DTYPE.search(self.text) is not None

    @property
    def identity(self) -> tuple[str, str]:
        return self.place, self.text

    @property
    def is_told(self) -> bool:
        """Whether the exception is lmp's own, with words of its own."""
        return isinstance(self.error, LmpError)

    def is_further_than(self, other: Failure) -> bool:
        """Whether the model came to a later stage: its config, its construction, its forward()."""
        return self.depth > other.depth


def failure_of(error: BaseException) -> Failure:
    """What an exception says: see ``Failure``. An exception that was made of another one is sorted by that one."""
    chain = list(_causes(error))
    root = next((e for e in reversed(chain) if _frames(e)), chain[-1])
    frames = _frames(root)
    own = next((f for f in reversed(frames) if _name(f.filename).startswith(("modeling_", "configuration_"))
                and _name(f.filename) not in _MACHINERY), frames[-1] if frames else None)  # fmt: skip
    text = _text(root)
    package = next((p for e in chain if (p := missing_package(e))), None)
    running = any(f.name == "forward" for f in frames)
    default = any(isinstance(e, InconsistentDefault) for e in chain)
    cause = DEPENDENCY if package else CONFIG if default or _is_of_config(root, frames, running) else LMP
    if package:
        text = f"the package {package} is not installed"
    place = f"{_name(own.filename)}:{own.lineno}" if own is not None else ""
    depth = 2 if running else 1 if frames else 0
    return Failure(
        error, cause, place, own.filename if own else "", (own.line or "") if own else "", text, package, depth
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames in transformers, outermost first."""
    return [f for f in traceback.extract_tb(error.__traceback__) if "/transformers/" in f.filename]


def _name(file: str) -> str:
    return Path(file).name


def _text(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Validators say first who they are, and then what they found.
    return f"{type(error).__name__}: {' '.join(lines[:2])[:300]}"


def missing_package(error: BaseException | None) -> str | None:
    """The package that an ImportError says is not installed."""
    if isinstance(error, MissingDependency):
        return error.package
    if not isinstance(error, ImportError):
        return None
    told = _PACKAGE.search(str(error))
    if told:
        return next(group for group in told.groups() if group)
    return error.name or None


def _is_of_config(error: BaseException, frames: list[traceback.FrameSummary], running: bool) -> bool:
    """Whether the values of a config are what the failure speaks of."""
    if isinstance(error, LmpError):
        return False
    if "StrictDataclass" in type(error).__name__:
        return True
    text = str(error)
    if "Config' object has no attribute" in text or _NOTHING.search(text):
        return True
    if isinstance(error, KeyError | AttributeError) and frames and "config" in (frames[-1].line or ""):
        return True
    if isinstance(error, AssertionError | ValueError) and frames and not isinstance(error, UnicodeError):
        # What a model refuses by itself, in words, it refuses for what it was configured to be.
        return not running or _raises(frames[-1])
    return not running and bool(frames)


def _raises(frame: traceback.FrameSummary) -> bool:
    line = (frame.line or "").strip()
    return line.startswith(("raise ", "assert "))
