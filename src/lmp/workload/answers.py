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
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from lmp.errors import TraceFailed
from lmp.workload.running import Running

Question = tuple[str, int]
"""File and line of the code that asked."""

Asked = dict[Question, set[str]]
"""Questions that were answered yes -> classes whose forward() was running."""

CHOSEN = "every row chooses the same entries, the first ones"
"""How indices without data are taken where what follows depends on them: a loop over the experts that were chosen."""

STANDS_FOR = "stands_for"
"""Attribute of the memory of chosen indices: what the operator made, which it stands for and which has no data."""

_METHODS = ("__bool__", "item", "__getitem__", "__setitem__", "scatter", "nonzero")
"""Methods of tensors that are answered otherwise where those have no data."""

_TORCH = str(Path(torch.__file__).parent) + "/"
_LMP = str(Path(__file__).parents[1]) + "/"
_CONTEXTS = str(contextlib.__file__)


@contextlib.contextmanager
def answered(asked: Asked, chosen: Asked | None = None) -> Iterator[None]:
    """While active, a truth value asked of a tensor without data is True, and put down in ``asked``.

    So is each place of a mask that another tensor is indexed with, and each comparison of a number that was read out of
    a tensor. What else is done with such a number raises TraceFailed with the line that reads it.

    With ``chosen``, what ``one_hot`` or ``scatter`` makes of indices without data has data: those of CHOSEN. It is put
    down there. In a mask that has none even so, ``nonzero`` finds each place.
    """
    originals = {name: getattr(torch.Tensor, name) for name in _METHODS}

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
        return _Number(_asking(), asked)

    def get(tensor: torch.Tensor, index: Any) -> Any:
        masks = _masks(index)
        if not masks:
            return originals["__getitem__"](tensor, index)
        with _all_hit(masks, asked):
            return originals["__getitem__"](tensor, index)

    def put(tensor: torch.Tensor, index: Any, value: Any) -> None:
        with _all_hit(_masks(index), asked):
            originals["__setitem__"](tensor, index, value)

    one_hot, plain_nonzero = torch.nn.functional.one_hot, torch.nonzero

    def choices(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        made: torch.Tensor = one_hot(tensor, num_classes)
        if chosen is None or not _is_without_data(tensor):
            return made
        chosen.setdefault(_asking(), set()).update(_running())
        with _disable_current_modes():
            return _standing_for(made, one_hot(_first_entries(tensor, -1), num_classes))

    def scatter(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        made: torch.Tensor = originals["scatter"](tensor, *args, **kwargs)
        match args:
            # A one marks what is chosen, in what has none yet; another number is about something else.
            case (int(dim), index, int() | float() as value) if (
                value == 1 and chosen is not None and _is_without_data(index) and index.shape[dim] <= made.shape[dim]
            ):
                chosen.setdefault(_asking(), set()).update(_running())
                with _disable_current_modes():
                    entries = torch.zeros(made.shape, dtype=made.dtype, device="cpu")
                    return _standing_for(made, entries.scatter_(dim, _first_entries(index, dim), 1))
        return made

    def nonzero(input: torch.Tensor, **kwargs: Any) -> Any:
        with _all_hit(_masks(input) if chosen is not None else [], asked):
            return plain_nonzero(input, **kwargs)

    methods = (truth, item, get, put, scatter, nonzero)
    try:
        for name, method in zip(_METHODS, methods, strict=True):
            setattr(torch.Tensor, name, method)
        torch.nn.functional.one_hot, torch.nonzero = choices, nonzero
        with Running(_together) if chosen is not None else contextlib.nullcontext():
            yield
    finally:
        for name, original in originals.items():
            setattr(torch.Tensor, name, original)
        torch.nn.functional.one_hot, torch.nonzero = one_hot, plain_nonzero


def _is_without_data(index: Any) -> bool:
    return type(index) is torch.Tensor and index.device.type == "meta" and index.dim() > 0


def _standing_for(made: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Entries with data, in memory that is known to be what an operator of the module made."""
    setattr(entries.untyped_storage(), STANDS_FOR, made)
    return entries


def _first_entries(index: torch.Tensor, dim: int) -> torch.Tensor:
    """Indices like these with data: along ``dim`` the first entries, in every row the same."""
    along = [1] * index.dim()
    along[dim] = -1
    return torch.arange(index.shape[dim], device="cpu").view(along).expand(index.shape)


class _Number:
    """A number that was read out of a tensor without data: any comparison of it is answered yes."""

    def __init__(self, read: Question, asked: Asked) -> None:
        self._read, self._asked = read, asked

    def _yes(self, other: Any) -> bool:
        self._asked.setdefault(_asking(), set()).update(_running())
        return True

    def _refuse(self, *args: Any) -> Any:
        file, line = self._read
        raise TraceFailed(
            f"{Path(file).name}:{line} reads a number out of a tensor: what follows depends on data, not on shapes.\n"
            "lmp runs modules without data; it has no rule for this."
        )

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _yes
    __hash__ = __bool__ = __int__ = __float__ = __index__ = __iter__ = __len__ = __neg__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _refuse


def _together(func: Any, args: Any, kwargs: Any) -> Any:
    """Of operators on tensors without data and on chosen indices, which have data, run the shapes alone."""
    given = (args, kwargs)
    devices = {t.device.type for t in tree_leaves(given) if isinstance(t, torch.Tensor) and t.dim() > 0}
    args, kwargs = tree_map_only(torch.Tensor, _without_data, given) if devices == {"meta", "cpu"} else given
    return func(*args, **kwargs)


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.device.type == "meta" or tensor.dim() == 0 else torch.empty_like(tensor, device="meta")


def _masks(index: Any) -> list[torch.Tensor]:
    """Masks without data in an index."""
    parts = index if isinstance(index, tuple) else (index,)
    return [p for p in parts if isinstance(p, torch.Tensor) and p.dtype == torch.bool and p.device.type == "meta"]


@contextlib.contextmanager
def _all_hit(masks: list[torch.Tensor], asked: Asked) -> Iterator[None]:
    """While active, these masks are true everywhere."""
    if not masks:
        yield
        return
    from torch.fx.experimental import _config

    asked.setdefault(_asking(), set()).update(_running())
    for mask in masks:
        if hasattr(mask, "nonzero_memo"):  # of a run with symbolic sizes
            mask.nonzero_memo = mask.numel()
    before, _config.meta_nonzero_assume_all_nonzero = _config.meta_nonzero_assume_all_nonzero, True
    try:
        yield
    finally:
        _config.meta_nonzero_assume_all_nonzero = before


def _asking() -> Question:
    """The nearest line outside of torch and of lmp."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith((_TORCH, _LMP)) or frame.f_code.co_filename == _CONTEXTS
    ):
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
