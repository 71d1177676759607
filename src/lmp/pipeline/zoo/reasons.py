"""placeholder"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Literal

from lmp.errors import VerificationFailed


@dataclass(frozen=True)
class Reason:
    cause: Literal["config", "dependency", "lmp"]
    place: str | None
    text: str
    differs: bool = False


def why(error: BaseException) -> Reason:
    inside = [f for f in traceback.extract_tb(error.__traceback__) if "/transformers/models/" in f.filename]
    place = f"{os.path.basename(inside[-1].filename)}:{inside[-1].lineno}" if inside else None
    text = (str(error).splitlines() or [type(error).__name__])[0]
    cause: Literal["config", "dependency", "lmp"] = "dependency" if isinstance(error, ImportError) else "lmp"
    return Reason(cause, place, text, isinstance(error, VerificationFailed))
