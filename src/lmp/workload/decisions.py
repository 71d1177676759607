"""Decisions that the source takes on the values of tensors: ``if x.sum() > 0``, ``.item()``, ``.tolist()``.

Tensors of an analysis have shapes and no values. So the module is rehearsed once with values, small random ones on the
CPU, and what each line was answered there is what it is answered in every later run: one path, the same at all sizes.
Each answer that was used is part of the analysis. A call of a module is answered from the first answer of its lines on,
so that a loop ends where it ended in the rehearsal, and layers that are alike stay alike.
"""

from __future__ import annotations

import json
import linecache
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_LMP = str(Path(__file__).parents[1]) + "/"
_TORCH = str(Path(torch.__file__).parent) + "/"
_CALL_CODE = torch.nn.Module._call_impl.__code__

ASKING = frozenset(
    {
        "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
        "item", "tolist", "is_nonzero", "equal", "allclose",
    }
)  # fmt: skip
"""Functions of tensors that answer with plain values."""

Place = tuple[str, int]
"""A file and a line of it."""


class UndecidedError(RuntimeError):
    """A line asks for the values of a tensor, and no rehearsal has answered it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        super().__init__(f"{Path(place[0]).name}:{place[1]} depends on the values of a tensor")


@dataclass
class Decisions:
    """Answers by line, in the order in which one call of a module asks. Empty until a rehearsal or a stored result."""

    answers: dict[Place, list[Any]] = field(default_factory=dict)

    def described(self, place: Place) -> tuple[str, list[str]]:
        """The line's text, and its answers as JSON."""
        return linecache.getline(*place).strip(), [json.dumps(a) for a in self.answers[place]]

    def learn(self, place: Place, taken: Iterable[str]) -> None:
        """Take over what a stored result says."""
        self.answers[place] = [json.loads(text) for text in taken]


class Answering(TorchFunctionMode):
    """To be entered around a run: answers from the rehearsal. With ``rehearsing``, real values are noted instead."""

    def __init__(self, decisions: Decisions, rehearsing: bool = False) -> None:
        super().__init__()
        self.decisions, self.rehearsing = decisions, rehearsing
        # The calls in flight are kept, so that no frame's identity is given out twice.
        self._asked: dict[Place, list[tuple[FrameType | None, int]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in ASKING:
            return func(*args, **kwargs)
        place, call = asking_place()
        index = self._count(place, call)
        if self.rehearsing:
            answer = func(*args, **kwargs)
            if len(self._asked[place]) == 1:
                self.decisions.answers.setdefault(place, []).append(answer)
            return answer
        known = self.decisions.answers.get(place)
        if not known:
            raise UndecidedError(place)
        return known[min(index, len(known) - 1)]

    def _count(self, place: Place, call: FrameType | None) -> int:
        """How often this call of a module has asked at this line before."""
        calls = self._asked.setdefault(place, [])
        if calls and calls[-1][0] is call:
            calls[-1] = (call, calls[-1][1] + 1)
        else:
            calls.append((call, 0))
        return calls[-1][1]

    def __exit__(self, *exc: Any) -> None:
        self._asked = {}
        super().__exit__(*exc)


def asking_place() -> tuple[Place, FrameType | None]:
    """The innermost line that is neither PyTorch's nor lmp's, and the module call it stands in."""
    place: Place | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if place is None and not name.startswith((_LMP, _TORCH)) and not name.startswith("<frozen"):
            place = (name, frame.f_lineno)
        if frame.f_code is _CALL_CODE:
            break
        frame = frame.f_back
    return place or ("<unknown>", 0), frame
