"""Ranges of integer tensors without data, such as positions: a look-up beyond a table fails, as it does with data.

On the meta device an index beyond its table raises nothing. Positions come from ``arange``, sums and views, so their
least and largest value are known from the sizes alone. Ids of tokens and other inputs have no known range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from lmp.workload.dispatch_hook import DispatchHook
from lmp.workload.failures import hand_on
from lmp.workload.results import tensors_in

Range = tuple[int, int]
"""Least and largest value."""

MOST_READ = 1 << 20
"""Entries of a tensor with data up to which its values are read."""


MOST_MADE = 1 << 24
"""Entries of a tensor with data that an operator may make: some models build their mask on the CPU."""


class TooManyOperators(Exception):
    """A run has more operators than it may have, as in a loop over tokens, or makes too large a tensor with data."""


class ValueRanges(DispatchHook):
    """While active, an index that leaves its table raises IndexError, and ``most`` operators end the run."""

    def __init__(self, most: int) -> None:
        super().__init__(self._operate)
        self._most, self.count = most, 0
        self._too_large = False
        self._known: dict[int, tuple[torch.Tensor, Range]] = {}
        """Id of a tensor -> the tensor, which keeps its id taken, and its range."""

    @property
    def ended(self) -> bool:
        """True if the run was ended because of its many operators, or of a large tensor with data."""
        return self.count > self._most or self._too_large

    def _operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.count += 1
        name = func._schema.name.partition("::")[2].rstrip("_")
        self._too_large |= _entries_with_data(name, args, kwargs) > MOST_MADE
        if self.ended:
            raise TooManyOperators
        self._check(name, args)
        result = hand_on(func, *args, **kwargs)
        found = self._range(name, args, kwargs)
        for made in tensors_in(result):
            self._known.pop(id(made), None)
            if found is not None:
                self._known[id(made)] = (made, found)
        return result

    def of(self, value: Any) -> Range | None:
        """The range of a number or a tensor; None if it is not known."""
        if isinstance(value, (bool, int)):
            return int(value), int(value)
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) in self._known:
            return self._known[id(value)][1]  # a mask of ones may be floating-point
        if value.is_floating_point() or value.is_complex():
            return None
        if value.device.type == "cpu" and type(value) is torch.Tensor and 0 < value.numel() <= MOST_READ:
            with _disable_current_modes():
                return int(value.min()), int(value.max())
        return (0, 1) if value.dtype == torch.bool else None

    # -- look-ups ------------------------------------------------------------------------------------------------------

    def _check(self, name: str, args: Any) -> None:
        if name == "embedding":
            self._within(args[0], 0, args[1])
        elif name in ("index_select", "gather", "scatter", "index_copy", "index_add", "index_fill"):
            if args[0].dim():
                self._within(args[0], args[1], args[2])
        elif name in ("index", "index_put"):
            dim = 0
            for index in args[1]:
                if index is not None and index.dtype == torch.bool:
                    dim += index.dim()
                    continue
                if index is not None:
                    self._within(args[0], dim, index)
                dim += 1

    def _within(self, table: torch.Tensor, dim: int, index: Any) -> None:
        found, rows = self.of(index), table.shape[dim]
        if found is not None and (found[1] >= rows or found[0] < -rows):
            raise IndexError(f"index {found[1]} is out of range in a table of {rows}")

    # -- ranges of results ---------------------------------------------------------------------------------------------

    def _range(self, name: str, args: Any, kwargs: Any) -> Range | None:
        if name == "arange":
            start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
            whole = all(isinstance(n, int) for n in (start, end, step)) and step > 0
            return (start, max(start, start + (end - start - 1) // step * step)) if whole else None
        if name in _FILLED:
            return _FILLED[name](args, kwargs)
        if name in _KEPT:
            return self.of(args[0])
        if name in _JOINED:
            return _joined([self.of(part) for part in _JOINED[name](args)])
        first, second = (self.of(arg) for arg in (*args, None, None)[:2])
        if first is not None and second is not None and name in _COMPUTED and kwargs.get("alpha", 1) == 1:
            return _COMPUTED[name](first, second)
        if first is not None and name == "cumsum":
            # A sum of at least one and at most all entries of the dimension.
            length = args[0].shape[args[1]] if args[0].dim() else 1
            return min(first[0], first[0] * length), max(first[1], first[1] * length)
        if first is not None and name == "clamp":
            least, most = (self.of(bound) for bound in (*args[1:3], None, None)[:2])
            first = _COMPUTED["clamp_min"](first, least) if least is not None else first
            return _COMPUTED["clamp_max"](first, most) if first is not None and most is not None else first
        return None


def _entries_with_data(name: str, args: Any, kwargs: Any) -> int:
    """Entries that an operator makes in memory on the CPU, at most; 0 on the meta device."""
    tensors = tensors_in((args, kwargs))
    if tensors:
        if any(t.device.type == "meta" for t in tensors) or kwargs.get("device") == torch.device("meta"):
            return 0
        try:
            return math.prod(torch.broadcast_shapes(*(t.shape for t in tensors)))
        except RuntimeError:
            return max(t.numel() for t in tensors)
    made = name in _FILLED or name in ("empty", "rand", "randn")
    if not made or kwargs.get("device") == torch.device("meta") or not isinstance(args[0], (list, tuple)):
        return 0
    return math.prod(args[0])


_KEPT = frozenset(
    {
        "view", "_unsafe_view", "reshape", "expand", "slice", "select", "unsqueeze", "squeeze", "permute", "transpose",
        "t", "clone", "_to_copy", "detach", "alias", "repeat", "flip", "roll", "index_select", "gather", "index",
        "embedding", "lift_fresh", "lift_fresh_copy", "split", "split_with_sizes", "chunk", "unbind", "sort",
        "as_strided", "unfold", "diagonal",
    }
)  # fmt: skip
"""Operators whose results have entries of their first argument alone."""

_FILLED: dict[str, Callable[[Any, Any], Range | None]] = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), lambda args, kwargs: (0, 0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda args, kwargs: (1, 1)),
    **dict.fromkeys(("full", "full_like", "fill"), lambda args, kwargs: _whole(args[1])),
    "new_full": lambda args, kwargs: _whole(args[2]),
}

_JOINED: dict[str, Callable[[Any], Any]] = {
    "cat": lambda args: args[0],
    "stack": lambda args: args[0],
    "where": lambda args: args[1:3] if len(args) > 2 else (None,),
    "masked_fill": lambda args: (args[0], args[2]),
    "constant_pad_nd": lambda args: (args[0], args[2] if len(args) > 2 else 0),
    "tril": lambda args: (args[0], 0),
    "triu": lambda args: (args[0], 0),
}
"""Operators whose results have entries of these arguments."""

_COMPUTED: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "rsub": lambda a, b: (b[0] - a[1], b[1] - a[0]),
    "mul": lambda a, b: (min(x * y for x in a for y in b), max(x * y for x in a for y in b)),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "clamp_min": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "clamp_max": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "floor_divide": lambda a, b: (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] > 0 else None,
    "remainder": lambda a, b: (0, b[1] - 1) if b[0] > 0 else None,
}


def _whole(value: Any) -> Range | None:
    return (int(value), int(value)) if isinstance(value, (bool, int)) else None


def _joined(parts: list[Range | None]) -> Range | None:
    known = [part for part in parts if part is not None]
    return (min(p[0] for p in known), max(p[1] for p in known)) if known and len(known) == len(parts) else None
