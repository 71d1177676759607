"""Why a family is not verified: whose matter it is, at which line of the sources, and in which words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from lmp.errors import VerificationFailed
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
    return Why(cause, _below_package(failure.file, failure.place) or None, own, isinstance(error, VerificationFailed))


def _below_package(file: str, place: str) -> str:
    """``src/transformers/models/llama/modeling_llama.py:160``, wherever the tree lies."""
    _, mark, rest = file.rpartition("/transformers/")
    line = place.rpartition(":")[2]
    return f"src/transformers/{rest}:{line}" if mark else place
