"""Bounds on the sizes of a call, beyond which the module raises: a number stated there would be of a call that fails.

A length is tried far beyond every number of the config and of the module's tables. If the module raises there, a
bisection over these numbers finds the largest length that runs. Where a variable moves the bound, the bound is stated
in it, else as a number. The fewest tokens of a user's module are stated in its arguments likewise.

Not covered: lengths beyond the one tried, loops over tokens with more operators than are run, a table that is read at
positions which do not follow from sizes, and one that is read at a part of a longer range (``arange(n)[:m]``).
"""

from __future__ import annotations

import contextlib
import itertools
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import torch

from lmp.errors import EvaluationError, LmpError
from lmp.formula import Condition, Expr, eq, evaluate, free_variables, ge, le, num, simplify, var
from lmp.workload.base import Workload
from lmp.workload.configs import sections_of
from lmp.workload.failures import blame
from lmp.workload.inputs import InputsWorkload
from lmp.workload.questions import UndecidedError
from lmp.workload.spec import Dim, Spec, TensorInput, TupleInput
from lmp.workload.value_ranges import TooManyOperators, ValueRanges

LEAST_TRIED = 4099
"""A length that is tried at least, whatever the numbers of the config."""

FARTHEST = 1 << 16
"""Largest length that is tried."""

MORE_OPERATORS = 2000
"""Operators that a long call may have more than four times those of a short one."""

NEAR = 2
"""Largest distance of a bound from the variable that it is stated in: two positions may be reserved."""

MOST_TIMES_FEWEST = 8
"""Times the usual length that is tried with other arguments, of which each is at most three times its own value."""

MOST_NAMES = 6
"""Largest number of variables that are tried as the name of a bound."""


@dataclass(frozen=True)
class Bound:
    """A condition on the sizes of a call, and the classes whose ``forward()`` was running where it failed."""

    condition: Condition
    classes: frozenset[str]
    instead_of: Condition | None = None
    """The condition on a number that this one states in variables."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(free_variables(self.condition))


class _Unknown(Exception):
    """A run that ended for another reason than its sizes."""


def bounds_of(workload: Workload) -> list[Bound]:
    """Bounds of the lengths of a call, and sizes that the given shapes of inputs fix."""
    if workload.standalone:
        return []  # the sizes of its inputs are synthetic
    found = list(_fixed_by_inputs(workload)) if isinstance(workload, InputsWorkload) else []
    for name in (*(["seq_len"] if workload.has_tokens else []), *sorted(workload.required)):
        with contextlib.suppress(_Unknown, TooManyOperators):
            found += _Prober(workload, name).bounds()
    if isinstance(workload, InputsWorkload):
        lengths = ["seq_len"] if workload.fewest_tokens > 1 else []
        for name in (*lengths, *sorted(workload.required)):
            with contextlib.suppress(_Unknown, TooManyOperators):
                for few, fewest in _Prober(workload, name).fewest():
                    number = ge(var(name), num(few))
                    if name == "seq_len" and fewest == num(few):
                        continue  # the derivation states the number, unless another assumption implies it
                    found.append(Bound(ge(var(name), fewest), frozenset({_path(workload.cls)}), number))
    return found


class _Prober:
    """Looks for the bound of one length."""

    def __init__(self, workload: Workload, name: str) -> None:
        self.workload, self.name = workload, name
        few = workload.fewest_tokens
        self._base = {**workload.hints, "batch_size": 1, "seq_len": 5 * few, "cache_len": 0}
        self._most = 1 << 30
        self._most = 4 * self._operators() + MORE_OPERATORS

    def bounds(self) -> Iterator[Bound]:
        """The bound of prefill, which is one of positions where a cached token counts as a new one does."""
        edge = self._edge(self._base)
        if edge is None:
            return
        length, classes = edge
        lengths: Expr = var(self.name)
        if self.name == "seq_len" and self.workload.has_cache and self._counts_cached(length):
            lengths = lengths + var("cache_len")
        named = list(self._named(length))
        for bound in named or [num(length)]:
            yield Bound(le(lengths, bound), classes)

    def fewest(self) -> Iterator[tuple[int, Expr]]:
        """The smallest length as a number, and in the arguments that move it, such as a window; nothing if it is 1.

        It is linear in each argument, and in the product of two, as that of a dilated kernel is.
        """
        own = {n: v for n, v in self.workload.hints.items() if n not in self.workload.flags and v > 0}
        few = self._fewest({})
        if few is None or few == 1 or any(self._fails(self._base, few + more) is not None for more in (1, 2, 4)):
            return
        others = own.keys() - self.workload.required
        moved = {n: own[n] for n in sorted(others) if self._fewest({n: 2 * own[n]}) not in (few, None)}
        found = self._through(moved) if 0 < len(moved) <= 2 else num(few)
        further = [{n: 3 * v for n, v in moved.items()}, *({n: 3 * v} for n, v in moved.items())]
        with contextlib.suppress(EvaluationError):
            if any(self._fewest(changed) != evaluate(found, {**own, **changed}) for changed in further):
                found = num(few)
            yield few, found

    def _through(self, moved: Mapping[str, int]) -> Expr:
        """The expression in these arguments that gives the fewest tokens at their own values and at twice these."""
        found: Expr = num(0)
        for chosen in _subsets(tuple(moved)):
            # What doubling these changes together, beside what doubling fewer of them does.
            share: Expr = num(0)
            for part in _subsets(chosen):
                least = self._fewest({n: 2 * moved[n] for n in part})
                share = share + (-1) ** (len(chosen) - len(part)) * num(0 if least is None else least)
            for n in chosen:
                share = share * (var(n) - moved[n]) * num(Fraction(1, moved[n]))
            found = simplify(found + share)
        return found

    def _fewest(self, changed: Mapping[str, int]) -> int | None:
        """The smallest length with which the module runs at other arguments; None if it does not run at many either."""
        base = {**self._base, **changed}
        low, high = 0, MOST_TIMES_FEWEST * self._base[self.name]
        if self._fails(base, high) is not None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(base, middle) is None:
                high = middle
            else:
                low = middle
        return high

    def _counts_cached(self, length: int) -> bool:
        """True if one token after ``length - 1`` cached ones runs, and after one more does not."""
        return self._fails(self._base, 1, length - 1) is None and self._fails(self._base, 1, length) is not None

    def _edge(self, base: Mapping[str, int]) -> tuple[int, frozenset[str]] | None:
        """The largest length that runs, and the classes that fail at the next one; None if there is no such length."""
        known = sorted(self._known_sizes())
        top = min(max(2 * max(known, default=0) + 3, LEAST_TRIED), FARTHEST)
        low = base[self.name]
        while (end := self._until_too_many(base, top)) is None:
            top //= 32
            if top <= low:
                return None
        if not end:
            return None
        high = top
        while high - low > 1:
            tries = [c for size in known for c in (size, size + 1) if low < c < high]
            middle = tries[len(tries) // 2] if tries else (low + high) // 2
            if found := self._fails(base, middle):
                high, end = middle, found
            else:
                low = middle
        # A module that takes multiples of a block only fails in between, and has no bound there.
        further = (low + 2, low + 3, low + 4, 2 * low, 2 * low + 64 - 2 * low % 64, 3 * low)
        return (low, end) if all(self._fails(base, length) for length in further) else None

    def _until_too_many(self, base: Mapping[str, int], length: int) -> frozenset[str] | None:
        """The classes that fail at a length, empty if it runs; None if it has too many operators."""
        try:
            return self._fails(base, length) or frozenset()
        except TooManyOperators:
            return None

    def _named(self, length: int) -> Iterator[Expr]:
        """The variables that move the bound: with half the value, half the length is the largest that runs."""
        values, layers = self.workload.hints, self.workload.full_layers
        near = [n for n, v in values.items() if abs(v - length) <= NEAR and n not in layers]
        for name in sorted(near, key=lambda n: (abs(values[n] - length), "position" not in n))[:MOST_NAMES]:
            less, apart = values[name] // 2, length - values[name]
            base = {**self._base, name: less}
            if less + apart > base[self.name]:
                runs = self._fails(base, less + apart) is None
                if runs and self._fails(base, less + apart + 1) is not None:
                    yield var(name) + apart if apart else var(name)

    def _known_sizes(self) -> set[int]:
        """Numbers of the config, of the variables, and of the module's tables."""
        found = {*self.workload.hints.values()}
        if self.workload.config is not None:
            for _, section in sections_of(self.workload.config):
                found |= {v for v in vars(section).values() if type(v) is int}
        module = self.workload.build(self._base)
        found |= {size for buffer in module.buffers() for size in buffer.shape}
        found |= {m.num_embeddings for m in module.modules() if isinstance(m, torch.nn.Embedding)}
        return {size for size in found if self._base[self.name] < size <= FARTHEST}

    def _operators(self) -> int:
        mode = ValueRanges(self._most)
        if _failing(self.workload, self._base, mode) is not None:
            raise _Unknown
        return mode.count

    def _fails(self, base: Mapping[str, int], length: int, cached: int = 0) -> frozenset[str] | None:
        """The classes that were running where a call failed; None if it runs."""
        point = {**base, self.name: length, "cache_len": cached}
        return _failing(self.workload, point, ValueRanges(self._most))


def _path(cls: type[object]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _subsets(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(len(names) + 1))


def _failing(workload: Workload, point: Mapping[str, int], mode: ValueRanges) -> frozenset[str] | None:
    """The classes whose ``forward()`` was running where a call failed; None if it runs."""
    try:
        workload.run(workload.build(point), point, mode)
    except (LmpError, UndecidedError) as error:
        raise _Unknown from error
    except Exception as error:
        if mode.ended:
            raise TooManyOperators from error
        if blame(error) == "lmp":
            raise
        modules = [
            frame.f_locals.get("self")
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_name == "forward"
        ]
        classes = {type(m) for m in modules if isinstance(m, torch.nn.Module)}
        return frozenset({"", *map(_path, classes)})
    return None


def _fixed_by_inputs(workload: InputsWorkload) -> Iterator[Bound]:
    """Arguments that the numbers in ``--inputs`` fix: changed alone they do not run, changed with these they do."""
    mode = ValueRanges(1 << 30)
    base = {**workload.hints, "batch_size": 2, "seq_len": 5 * workload.fewest_tokens, "cache_len": 0}
    for name in (n for n in workload.leaves if n not in workload.flags):
        value = base[name]
        with contextlib.suppress(_Unknown):
            doubled, tripled = ({**base, name: value * factor} for factor in (2, 3))
            if _failing(workload, doubled, mode) is None or _failing(workload, tripled, mode) is None:
                continue
            before = workload.spec
            try:
                workload.spec = Spec(_doubled(before.inputs), before.init)
                fits = _failing(workload, doubled, mode) is None
            finally:
                workload.spec = before
            if fits:
                yield Bound(eq(var(name), num(value)), frozenset({_path(workload.cls)}))


def _doubled(inputs: Mapping[str, object]) -> dict[str, object]:
    """The same inputs, with every number among the dimensions doubled."""

    def of(value: object) -> object:
        if isinstance(value, TupleInput):
            return TupleInput(tuple(of(part) for part in value.parts))  # type: ignore[misc]
        if not isinstance(value, TensorInput):
            return value
        dims = (
            Dim(2 * d.value) if isinstance(d.value, int) and not d.operation and d.value > 1 else d for d in value.dims
        )
        return TensorInput(value.dtype, tuple(dims))

    return {name: of(value) for name, value in inputs.items()}
