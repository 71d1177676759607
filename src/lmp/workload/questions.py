"""Questions of the analysed code about tensor values, such as ``if mask.all():``, ``.item()`` and ``.tolist()``.

Tensors without data cannot answer them. A policy does while a module runs:

- ``Yes``, for models: every question is answered yes, in every run. ``if mask.all():`` tests for no padding, for packed
  sequences, or for finite values.
- ``Rehearsed``, for the user's modules: one rehearsal runs the module with small random values on the CPU. Its answer
  at each line is repeated in every later run.

The policy records the place of each question, since the executed path depends on the answer.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from lmp.errors import TraceFailed
from lmp.workload.dispatch_hook import DispatchHook
from lmp.workload.failures import hand_on, owner_of

Question = tuple[str, int]
"""File and line of the code that asked for a tensor's values."""

Asked = dict[Question, set[str]]
"""Questions that were answered without data -> classes whose forward() was running."""

CHOSEN = "every row chooses the same entries, the first ones"
"""The values of indices without data if later code depends on them: a loop over the chosen experts."""

STANDS_FOR = "stands_for"
"""Attribute of the memory of chosen indices: the operator's result without data that they replace."""

_CALL_CODE = torch.nn.Module._call_impl.__code__


# -- who asks ---------------------------------------------------------------------------------------------------------


def asking() -> tuple[Question, FrameType | None]:
    """The innermost line outside of PyTorch and lmp, and the frame of the innermost running module call."""
    question: Question | None = None
    call: FrameType | None = None
    for frame in _frames():
        if question is None and owner_of(frame.f_code.co_filename) == "module":
            question = frame.f_code.co_filename, frame.f_lineno
        if call is None and frame.f_code is _CALL_CODE:
            call = frame
        if question is not None and call is not None:
            break
    return question or ("<unknown>", 0), call


def _running() -> Iterator[str]:
    """Classes of the modules whose forward() is running, innermost first."""
    for frame in _frames():
        module = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        if isinstance(module, torch.nn.Module):
            yield f"{type(module).__module__}.{type(module).__qualname__}"


def _frames() -> Iterator[FrameType]:
    """The running frames, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


# -- yes --------------------------------------------------------------------------------------------------------------

_METHODS = ("__bool__", "item", "__getitem__", "__setitem__", "scatter", "nonzero")
"""Methods of tensors that are replaced for tensors without data."""


class Yes:
    """Policy: while active, the truth value of a tensor without data is True. ``asked`` records the question.

    The same holds for a mask that indexes another tensor: each of its elements is True. It also holds for the
    comparison of a number read from a tensor. Any other use of such a number raises TraceFailed with the line that
    reads it.

    With ``chosen``, ``one_hot`` and ``scatter`` of indices without data return data: those of CHOSEN. ``chosen``
    records the question. In a mask that still has no data, ``nonzero`` finds each element.
    """

    def __init__(self, asked: Asked, chosen: Asked | None = None) -> None:
        self.asked, self.chosen = asked, chosen
        self._active = contextlib.ExitStack()

    def __enter__(self) -> Yes:
        self._active.enter_context(_answering_yes(self.asked, self.chosen))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._active.__exit__(*exc)


@contextlib.contextmanager
def _answering_yes(asked: Asked, chosen: Asked | None) -> Iterator[None]:
    originals = {name: getattr(torch.Tensor, name) for name in _METHODS}

    def truth(tensor: torch.Tensor) -> bool:
        if not tensor.is_meta and tensor.device.type != "meta":
            return bool(originals["__bool__"](tensor))
        _put_down(asked)
        return True

    def item(tensor: torch.Tensor) -> Any:
        if not tensor.is_meta and tensor.device.type != "meta":
            return hand_on(originals["item"], tensor)
        if tensor.dtype == torch.bool:
            return truth(tensor)
        return _Number(asking()[0], asked)

    def get(tensor: torch.Tensor, index: Any) -> Any:
        masks = _masks(index)
        if not masks:
            return hand_on(originals["__getitem__"], tensor, index)
        with _all_hit(masks, asked):
            return hand_on(originals["__getitem__"], tensor, index)

    def put(tensor: torch.Tensor, index: Any, value: Any) -> None:
        with _all_hit(_masks(index), asked):
            hand_on(originals["__setitem__"], tensor, index, value)

    one_hot, plain_nonzero = torch.nn.functional.one_hot, torch.nonzero

    def choices(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        made: torch.Tensor = hand_on(one_hot, tensor, num_classes)
        if chosen is None or not _is_without_data(tensor):
            return made
        _put_down(chosen)
        with _disable_current_modes():
            return _standing_for(made, one_hot(_first_entries(tensor, -1), num_classes))

    def scatter(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        made: torch.Tensor = hand_on(originals["scatter"], tensor, *args, **kwargs)
        match args:
            # A value of 1 marks a choice in a tensor without any yet. Other numbers have another meaning.
            case (int(dim), index, int() | float() as value) if (
                value == 1 and chosen is not None and _is_without_data(index) and index.shape[dim] <= made.shape[dim]
            ):
                _put_down(chosen)
                with _disable_current_modes():
                    entries = torch.zeros(made.shape, dtype=made.dtype, device="cpu")
                    return _standing_for(made, entries.scatter_(dim, _first_entries(index, dim), 1))
        return made

    def nonzero(input: torch.Tensor, **kwargs: Any) -> Any:
        with _all_hit(_masks(input) if chosen is not None else [], asked):
            return hand_on(plain_nonzero, input, **kwargs)

    methods = (truth, item, get, put, scatter, nonzero)
    try:
        for name, method in zip(_METHODS, methods, strict=True):
            setattr(torch.Tensor, name, method)
        torch.nn.functional.one_hot, torch.nonzero = choices, nonzero
        with DispatchHook(_together) if chosen is not None else contextlib.nullcontext():
            yield
    finally:
        for name, original in originals.items():
            setattr(torch.Tensor, name, original)
        torch.nn.functional.one_hot, torch.nonzero = one_hot, plain_nonzero


def _put_down(asked: Asked) -> None:
    asked.setdefault(asking()[0], set()).update(_running())


def _is_without_data(index: Any) -> bool:
    return type(index) is torch.Tensor and index.device.type == "meta" and index.dim() > 0


def _standing_for(made: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Entries with data, in memory that refers to the operator's result that they replace."""
    setattr(entries.untyped_storage(), STANDS_FOR, made)
    return entries


def _first_entries(index: torch.Tensor, dim: int) -> torch.Tensor:
    """Indices like these with data: along ``dim`` the first entries, the same in every row."""
    along = [1] * index.dim()
    along[dim] = -1
    return torch.arange(index.shape[dim], device="cpu").view(along).expand(index.shape)


class _Number:
    """A number read from a tensor without data: any comparison of it is True."""

    def __init__(self, read: Question, asked: Asked) -> None:
        self._read, self._asked = read, asked

    def _yes(self, other: Any) -> bool:
        _put_down(self._asked)
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
    """Run only the shapes of operators that mix tensors without data and chosen indices, which have data."""
    given = (args, kwargs)
    devices = {t.device.type for t in tree_leaves(given) if isinstance(t, torch.Tensor) and t.dim() > 0}
    args, kwargs = tree_map_only(torch.Tensor, _without_data, given) if devices == {"meta", "cpu"} else given
    return hand_on(func, *args, **kwargs)


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.device.type == "meta" or tensor.dim() == 0 else torch.empty_like(tensor, device="meta")


def _masks(index: Any) -> list[torch.Tensor]:
    """Masks without data in an index."""
    parts = index if isinstance(index, tuple) else (index,)
    return [p for p in parts if isinstance(p, torch.Tensor) and p.dtype == torch.bool and p.device.type == "meta"]


@contextlib.contextmanager
def _all_hit(masks: list[torch.Tensor], asked: Asked) -> Iterator[None]:
    """While active, these masks are True everywhere."""
    if not masks:
        yield
        return
    from torch.fx.experimental import _config

    _put_down(asked)
    for mask in masks:
        if hasattr(mask, "nonzero_memo"):  # in a run with symbolic sizes
            mask.nonzero_memo = mask.numel()
    before, _config.meta_nonzero_assume_all_nonzero = _config.meta_nonzero_assume_all_nonzero, True
    try:
        yield
    finally:
        _config.meta_nonzero_assume_all_nonzero = before


# -- rehearsed --------------------------------------------------------------------------------------------------------

_ASKING = frozenset(
    {
        "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
        "item", "tolist", "is_nonzero", "equal", "allclose",
    }
)  # fmt: skip
"""Functions of tensors that return plain values."""


class UndecidedError(RuntimeError):
    """A line asks for the values of a tensor, and no rehearsal has answered it."""

    def __init__(self, place: Question) -> None:
        self.place = place
        super().__init__(f"{Path(place[0]).name}:{place[1]} depends on the values of a tensor")


@dataclass
class Decisions:
    """Answers by line, in the order in which one call of a module asks. Empty until a rehearsal or a stored result.

    Each used answer is part of the analysis, which covers one path for all sizes.
    """

    answers: dict[Question, list[Any]] = field(default_factory=dict)

    def described(self, place: Question) -> tuple[str, list[str]]:
        """The line's text, and its answers as JSON."""
        return linecache.getline(*place).strip(), [json.dumps(a) for a in self.answers[place]]

    def learn(self, place: Question, taken: Iterable[str]) -> None:
        """Set the answers of a stored result."""
        self.answers[place] = [json.loads(text) for text in taken]


class Rehearsed(TorchFunctionMode):
    """Policy: while active, answers are those of the rehearsal. With ``rehearsing``, real values are recorded instead.

    Each call of a module starts with the first answer of a line. So a loop ends as in the rehearsal, and layers that
    are alike stay alike.
    """

    def __init__(self, decisions: Decisions, rehearsing: bool = False) -> None:
        super().__init__()
        self.decisions, self.rehearsing = decisions, rehearsing
        # The frames of calls are kept, so that their ids are not reused.
        self._asked: dict[Question, list[tuple[FrameType | None, int]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in _ASKING:
            return hand_on(func, *args, **kwargs)
        place, call = asking()
        index = self._count(place, call)
        if self.rehearsing:
            answer = hand_on(func, *args, **kwargs)
            if len(self._asked[place]) == 1:
                self.decisions.answers.setdefault(place, []).append(answer)
            return answer
        known = self.decisions.answers.get(place)
        if not known:
            raise UndecidedError(place)
        return known[min(index, len(known) - 1)]

    def _count(self, place: Question, call: FrameType | None) -> int:
        """Number of earlier questions of this module call at this line."""
        calls = self._asked.setdefault(place, [])
        if calls and calls[-1][0] is call:
            calls[-1] = (call, calls[-1][1] + 1)
        else:
            calls.append((call, 0))
        return calls[-1][1]

    def __exit__(self, *exc: Any) -> None:
        self._asked = {}
        super().__exit__(*exc)


Policy: TypeAlias = Yes | Rehearsed
"""Policy for questions about tensor values: a context manager around a run."""
