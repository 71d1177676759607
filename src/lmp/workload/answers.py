"""Questions that the code asks of a tensor's values, which tensors without data cannot answer.

``if mask.all():`` asks whether anything is padded, whether sequences are packed, whether all are finite. The answer
given is yes, in every run alike; where it was asked is remembered, since the path that was taken rests on it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lmp.errors import TraceFailed

Question = tuple[str, int]
"""File and line of the code that asked."""

Asked = dict[Question, set[str]]
"""Questions that were answered yes -> classes whose forward() was running."""

_TORCH = str(Path(torch.__file__).parent) + "/"
_HERE = __file__


@contextlib.contextmanager
def answered(asked: Asked) -> Iterator[None]:
    """While active, a truth value asked of a tensor without data is True, and put down in ``asked``.

    A number asked of one raises TraceFailed with the line that asks.
    """
    originals = {name: getattr(torch.Tensor, name) for name in ("__bool__", "item")}

    def truth(tensor: torch.Tensor) -> bool:
        if not tensor.is_meta and tensor.device.type != "meta":
            return bool(originals["__bool__"](tensor))
        asked.setdefault(_asking(), set()).update(_running())
        return True

    def item(tensor: torch.Tensor) -> Any:
        if not tensor.is_meta and tensor.device.type != "meta":
            return originals["item"](tensor)
        if tensor.dtype == torch.bool:
            return truth(tensor)
        file, line = _asking()
        raise TraceFailed(
            f"{Path(file).name}:{line} reads a number out of a tensor: what follows depends on data, not on shapes.\n"
            "lmp runs modules without data; it has no rule for this."
        )

    torch.Tensor.__bool__ = truth
    torch.Tensor.item = item
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.Tensor, name, original)


def _asking() -> Question:
    """The nearest line outside of torch and of this file."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _HERE)):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _running() -> Iterator[str]:
    """Classes of the modules in flight."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        if isinstance(module, torch.nn.Module):
            yield f"{type(module).__module__}.{type(module).__qualname__}"
        frame = frame.f_back
