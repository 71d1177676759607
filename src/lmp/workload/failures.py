"""Classification of failures to build or run a model: by the config, a missing package, or lmp, with the source line.

``blame`` decides whether an error is the module's or lmp's own. Imports no torch.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lmp.errors import InconsistentDefault, LmpError, MissingDependency

CONFIG, DEPENDENCY, LMP = "config", "dependency", "lmp"
"""Causes of a failure."""

_PACKAGE = re.compile(r"requires the (\S+) library|install (?:it with )?[`']?pip:? ?[`']?pip install (\S+?)[`']")
_NOTHING = re.compile(
    r"NoneType|\b(is|are) none\b|to be multiple of \d+|split_sizes to sum exactly|'bool' object has no attribute",
    re.IGNORECASE,
)
"""Operator messages for a missing size, a size that does not fit, and ids compared with None."""
_DTYPE = re.compile(
    r"expected scalar type|unsupported dtype|must have the same dtype|have the same dtype", re.IGNORECASE
)
"""Operator messages for unsupported dtypes."""
_MACHINERY = ("configuration_utils.py", "modeling_utils.py", "cache_utils.py", "output_capturing.py", "generic.py")
"""Files of transformers that run for every model. The model's own line is more specific."""

_LMP = str(Path(__file__).parents[1]) + "/"
_PYTHON = str(Path(os.__file__).parent) + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
"""Folders of installed packages. They may lie inside the standard library's folder."""

Owner = Literal["module", "lmp", "torch", "python"]


@functools.lru_cache(maxsize=4096)
def owner_of(file: str) -> Owner:
    """The owner of a file: lmp, PyTorch, the standard library, or the module with its dependencies."""
    if file.startswith(_LMP):
        return "lmp"
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is not None and file.startswith(f"{Path(torch).parent}/"):
        return "torch"
    if file.startswith("<frozen") or (file.startswith(_PYTHON) and not any(part in file for part in _INSTALLED)):
        return "python"
    return "module"


SIZES_LEAD_TO = (RuntimeError, ValueError, LookupError, ArithmeticError, AssertionError)
"""Errors for sizes that a module does not accept, raised at their first use, also in lmp's own frames."""


def blame(error: BaseException) -> Literal["module", "lmp"]:
    """The owner of the error that ended a run: the module, which does not run so, or lmp, whose code is wrong.

    PyTorch and the standard library raise errors for their caller. So the owner is that of the innermost frame of
    neither. An error that lmp raises on purpose (LmpError) concerns the module. So does an error about sizes.
    """
    if isinstance(error, (LmpError, *SIZES_LEAD_TO)):
        return "module"
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        owner = owner_of(frame.f_code.co_filename)
        if owner == "module" or frame.f_code is hand_on.__code__:
            return "module"
        if owner == "lmp":
            return "lmp"
    return "lmp"


def hand_on(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the module, or a function for it, from lmp's own frame. ``blame`` then attributes errors to the module."""
    return function(*args, **kwargs)


@dataclass(frozen=True)
class Failure:
    """An exception with its innermost line in the tree of models ("" if there is none)."""

    error: BaseException
    cause: str
    place: str
    """File and line, such as ``modeling_llama.py:160``."""
    file: str
    code: str
    """Text of the line."""
    text: str
    package: str | None = None
    """The package that is not installed, if that is the cause."""
    depth: int = 0

    @property
    def is_of_config(self) -> bool:
        return self.cause == CONFIG

    @property
    def refuses_dtype(self) -> bool:
        """True if an operator does not support the dtype of the run."""
        return _DTYPE.search(self.text) is not None

    @property
    def identity(self) -> tuple[str, str]:
        return self.place, self.text

    @property
    def is_told(self) -> bool:
        """True if lmp itself raised the exception, with its own message."""
        return isinstance(self.error, LmpError)

    def is_further_than(self, other: Failure) -> bool:
        """True if the model reached a later stage than in ``other``, of: config, construction, forward()."""
        return self.depth > other.depth


def failure_of(error: BaseException) -> Failure:
    """Classify an exception: see ``Failure``. A chained exception is classified by the one that caused it."""
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
    """The traceback frames in transformers, outermost first."""
    return [f for f in traceback.extract_tb(error.__traceback__) if "/transformers/" in f.filename]


def _name(file: str) -> str:
    return Path(file).name


def _text(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The first line of a validator's message names the validator, and the second states the problem.
    return f"{type(error).__name__}: {' '.join(lines[:2])[:300]}"


def missing_package(error: BaseException | None) -> str | None:
    """The package that an ImportError reports as not installed; None for other errors."""
    if isinstance(error, MissingDependency):
        return error.package
    if not isinstance(error, ImportError):
        return None
    told = _PACKAGE.search(str(error))
    if told:
        return next(group for group in told.groups() if group)
    return error.name or None


def _is_of_config(error: BaseException, frames: list[traceback.FrameSummary], running: bool) -> bool:
    """True if a failure is about the values of the config."""
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
        # An error that a model itself raises with a message is about its config.
        return not running or _raises(frames[-1])
    return not running and bool(frames)


def _raises(frame: traceback.FrameSummary) -> bool:
    line = (frame.line or "").strip()
    return line.startswith(("raise ", "assert "))
