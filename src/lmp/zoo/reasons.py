"""The reason why a family is not verified: its cause, a line of the sources, and a text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from lmp.errors import LmpError, VerificationFailed
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.locate import find_class
from lmp.source.names import Names
from lmp.source.trees import find_trees
from lmp.workload.failures import failure_of
from lmp.zoo.requests import Request

Cause = Literal["config", "dependency", "lmp"]


class Reason(NamedTuple):
    """Cause ``config``: the model's default config; ``dependency``: a missing optional package; ``lmp``: any other."""

    cause: Cause
    place: str | None
    """``file:line`` of the innermost executed line of a model, if there is one."""
    text: str
    """One or two lines."""
    differs: bool = False
    """True if formulas were derived and differ from execution."""


def reason_for(error: BaseException) -> Reason:
    """The reason for an error of any type."""
    failure = failure_of(error)
    cause: Cause = "lmp"
    if failure.cause == "config":
        cause = "config"
    elif failure.cause == "dependency":
        cause = "dependency"
    # A message of lmp is more specific than the error that the model raised.
    own = "\n".join(str(error).splitlines()[:2]) if failure.is_told else failure.text
    place = _file_and_line(failure.file, failure.place.rpartition(":")[2]) if failure.place else None
    if isinstance(error, LmpError) and error.place is not None:
        place = _file_and_line(*error.place)
    return Reason(cause, place, own, isinstance(error, VerificationFailed))


def reason_unverified(model: ModelAnalysis, parts: Iterable[ModuleAnalysis]) -> Reason:
    """The reason why a model with formulas is unverified, with the first line that has an operator without a rule."""
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
    return Reason("lmp", first and _file_and_line(*first), text)


def line_of_class(class_path: str, request: Request) -> str | None:
    """``file:line`` of a class's definition, for reasons without a line; None if it is not found."""
    with contextlib.suppress(LmpError):
        trees = find_trees(None, request.transformers_dir, request.pytorch_dir, [])
        found = find_class(class_path, Names(trees))
        return f"{found.module.tree.relative(found.path)}:{found.node.lineno}"
    return None


def _file_and_line(file: str, line: int | str) -> str:
    """``src/transformers/models/llama/modeling_llama.py:160``, wherever the source tree is."""
    # From the innermost folder of that name, because a tree may lie below a folder with the other tree's name.
    ends = {package: file.rpartition(f"/{Path(package).name}/")[2] for package in ("src/transformers", "torch")}
    package, rest = min(ends.items(), key=lambda end: len(end[1]))
    if rest != file:
        return f"{package}/{rest}:{line}"
    return f"{Path(file).name if Path(file).is_absolute() else file}:{line}"
