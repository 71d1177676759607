"""Why a family is not verified: whose matter it is, at which line of the sources, and in which words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from lmp.errors import LmpError, VerificationFailed
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.locate import find_class
from lmp.source.names import Names
from lmp.source.trees import Trees
from lmp.workload.failures import failure_of

Cause = Literal["config", "dependency", "lmp"]


class Why(NamedTuple):
    """``config``: the model's default config; ``dependency``: an optional package is missing; ``lmp``: all else."""

    cause: Cause
    place: str | None
    """``file:line`` of the innermost line of a model that ran, where there is one."""
    text: str
    """One or two lines."""
    differs: bool = False
    """Whether there were formulas, and execution differs from them."""


def why(error: BaseException) -> Why:
    """Sort what ended the analysis of a family."""
    failure = failure_of(error)
    cause: Cause = "lmp"
    if failure.cause == "config":
        cause = "config"
    elif failure.cause == "dependency":
        cause = "dependency"
    # What lmp says of it by itself says more than what the model raised.
    own = "\n".join(str(error).splitlines()[:2]) if failure.is_told else failure.text
    place = _below_package(failure.file, failure.place)
    if isinstance(error, LmpError) and error.place is not None:
        place = _at(*error.place)
    return Why(cause, place or None, own, isinstance(error, VerificationFailed))


def why_unverified(model: ModelAnalysis, parts: Iterable[ModuleAnalysis]) -> Why:
    """What keeps a model that has formulas from being verified, and the first line of an operator without a rule."""
    bad = [part for part in parts if part.verification.status != "verified"]
    reasons = dict.fromkeys(part.verification.reason for part in bad if part.verification.reason)
    text = "; ".join([model.verification.reason or model.verification.status, *reasons])
    lines = (
        (kernel.file or part.source.file, kernel.line)
        for part in bad
        for kernel in part.kernels
        if kernel.operation in part.uncounted
    )
    first = next(lines, None)
    return Why("lmp", first and _at(*first), text)


def place_of(class_path: str, trees: Trees) -> str | None:
    """The line at which a class stands: what is said where no line of it is known."""
    with contextlib.suppress(LmpError):
        found = find_class(class_path, Names(trees))
        return f"{found.module.tree.relative(found.path)}:{found.node.lineno}"
    return None


def _at(file: str, line: int) -> str:
    return _below_package(file, f"{file}:{line}")


def _below_package(file: str, place: str) -> str:
    """``src/transformers/models/llama/modeling_llama.py:160``, wherever the tree lies."""
    line = place.rpartition(":")[2]
    # The innermost folder of that name: either tree may lie below a folder that is called as the other one.
    ends = {package: file.rpartition(f"/{Path(package).name}/")[2] for package in ("src/transformers", "torch")}
    package, rest = min(ends.items(), key=lambda end: len(end[1]))
    if rest != file:
        return f"{package}/{rest}:{line}"
    return f"{Path(file).name}:{line}" if Path(file).is_absolute() else place
