"""Tables of calls: costs at every combination of sizes, in one vectorised sweep, and times where a device is named."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError, first_line
from lmp.formula import ArrayProgram, Number, free_variables, parse, plain, settled
from lmp.link.held import weight_bytes
from lmp.link.sweep import MAX_POINTS, Sweep, plan
from lmp.link.values import Values
from lmp.predict.eager import beyond_positions
from lmp.predict.engines import Settings
from lmp.predict.holding import held_by_formulas
from lmp.predict.quantising import stored_bytes
from lmp.predict.screen.asking import Ask, Subject, asked_for
from lmp.predict.screen.many import answers
from lmp.predict.screen.room import Room, room
from lmp.predict.shard.parallel import Parallel

if TYPE_CHECKING:
    from lmp.link.numbers import ModelNumbers
    from lmp.observe.held import Held
    from lmp.predict.prediction import Predictor

COSTS = ("flops", "matmul_flops", "read", "write")
"""Quantities of one GPU."""
SIZES = ("batch_size", "seq_len", "cache_len")
TIMES = ("time_ms", "low_ms", "high_ms", "tokens_per_s", "bound", "fits", "memory_bytes")

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Asked:
    """What a table is of: sizes by variable, bytes of elements, and perhaps a device."""

    sizes: Mapping[str, Values]
    given: Mapping[str, Number]
    ask: Ask | None = None
    """On a device. None: costs alone."""
    tp: int = 1


@dataclass
class Table:
    """The columns of a table, and what its reader has to know."""

    columns: Columns = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def table(subject: Subject, asked: Asked, predictor: Predictor, held: Held | str) -> Table:
    """One entry a point in each column; the last size varies fastest.

    Raises UsageError for sizes that the model does not take, EvaluationError at a point without a value.
    """
    made = Table()
    made.warnings += _about(subject, asked)
    made.columns |= _costs(subject, asked, made.warnings)
    if asked.tp > 1:
        made.columns |= _costs_of_one_gpu(subject, asked)
        made.warnings += subject.notes(Parallel(asked.tp))
    made.columns = _with_tokens(made.columns, asked)
    if asked.ask is not None:
        made.columns |= _times(subject, asked, predictor, held, made.warnings)
    return made


def asked(
    sizes: Mapping[str, Values], given: Mapping[str, Number], engine: str | None, how: tuple[str | None, Any, int]
) -> Asked:
    """``how``: a dtype word for all elements, a device or None, and GPUs that share each layer."""
    from lmp.dtypes import sizes as widths

    dtype, device, tp = how
    parallel = Parallel(tp)
    bytes_of = {**(widths(dtype) if dtype is not None else {}), **given}
    if device is None:
        return Asked(sizes, bytes_of, tp=tp)
    ask = asked_for(device, {}, engine, (dtype, None), parallel)
    ask = replace(ask, given={**ask.given, **given})
    return Asked(sizes, dict(ask.given), ask, tp)


# --- costs -----------------------------------------------------------------------------------------------------------


def _costs(subject: Subject, asked: Asked, warnings: list[str]) -> Columns:
    """Costs of the whole model. Every formula is evaluated once, over all points."""
    from lmp.report.warnings import of_a_sweep

    numbers = subject.numbers(asked.given)
    sweep = plan(numbers.model, _axes(asked), MAX_POINTS)
    found, broken = _swept(numbers, sweep)
    warnings += of_a_sweep(broken, sweep.size)
    stored = _stored(subject, asked)
    held = weight_bytes(numbers, sweep.fixed, subject.model) if stored is None else plain(stored)
    found["weights_bytes"] = [held] * sweep.size
    found["kv_bytes"] = _cache(numbers, sweep)
    return found


def _stored(subject: Subject, asked: Asked) -> Fraction | None:
    """Bytes of the weights with what quantising leaves; None where nothing is quantised, or of a part of a model."""
    width = asked.given.get("w_bytes")
    return None if width is None else stored_bytes(held_by_formulas(subject, asked.given), width)


def _with_tokens(columns: Columns, asked: Asked) -> Columns:
    """The costs with those of a new token, and with all bytes behind those that are read and written."""
    tokens = [int(point.get("batch_size", 1)) * int(point.get("seq_len", 1)) for point in points(asked)]
    moved = [plain(Fraction(a) + Fraction(b)) for a, b in zip(columns["read"], columns["write"], strict=True)]
    found: Columns = {}
    for name, values in columns.items():
        found[name] = values
        if name == "write":
            found["bytes"] = moved
            found["flops_per_token"] = _each(columns["flops"], tokens)
            found["bytes_per_token"] = _each(moved, tokens)
    return found


def _each(amounts: Sequence[Any], tokens: Sequence[int]) -> list[Any]:
    return [plain(Fraction(amount) / count) for amount, count in zip(amounts, tokens, strict=True)]


def _cache(numbers: ModelNumbers, sweep: Sweep) -> list[Any]:
    """Bytes that the cache holds after each call: what the next one reads more than a call without a cache.

    As `lmp.link.held.cache_bytes` at each point.
    """
    import numpy as np

    compulsory = numbers.model.compulsory
    read = None if compulsory is None else parse(compulsory.read)
    if read is None or "cache_len" not in free_variables(read):
        return [None if compulsory is None else 0] * sweep.size
    fixed = {**sweep.fixed, "w_bytes": 0}
    program = ArrayProgram(settled([read], {n: v for n, v in fixed.items() if n not in SIZES}), fractions=True)
    axes = np.meshgrid(*(np.array(sweep.axes.get(n, (fixed[n],)), dtype=object) for n in SIZES), indexing="ij")
    order = [SIZES.index(name) for name in (*sweep.axes, *(n for n in SIZES if n not in sweep.axes))]
    values = dict(zip(SIZES, (axis.transpose(order).reshape(-1) for axis in axes), strict=True))
    (after,) = program({**values, "cache_len": values["cache_len"] + values["seq_len"]})
    (before,) = program({**values, "cache_len": 0 * values["cache_len"]})
    return [plain(one) for one in after - before]


def _swept(numbers: ModelNumbers, sweep: Sweep) -> tuple[Columns, dict[str, int]]:
    """Every quantity at each point, and each assumption with the number of points at which it does not hold."""
    found: Columns = {name: [] for name in (*COSTS, "compulsory")}
    if not sweep.axes:
        totals = numbers.totals(sweep.fixed)
        broken = {one.assumption: 1 for one in numbers.violated(sweep.fixed)}
        return {name: [getattr(totals, name)] for name in found}, broken
    broken = {}
    for chunk in sweep.chunks(numbers):
        for name, values in found.items():
            values += chunk.costs[name].tolist() if name in chunk.costs else [None] * len(chunk)
        for text, count in chunk.broken.items():
            broken[text] = broken.get(text, 0) + count
    return found, broken


def _axes(asked: Asked) -> dict[str, Values]:
    return {**asked.sizes, **{name: (value,) for name, value in asked.given.items()}}


def _costs_of_one_gpu(subject: Subject, asked: Asked) -> Columns:
    """What one GPU of ``tp`` computes and moves, collectives included."""
    from lmp.predict.one_gpu import holds
    from lmp.records import MATMUL_CATEGORIES

    found: Columns = {name: [] for name in (*COSTS, "compulsory", "weights_bytes", "kv_bytes")}
    model = subject.numbers(asked.given).model
    for point in points(asked):
        values = plan(model, {name: (value,) for name, value in point.items()}, 1).fixed
        kernels = subject.kernels(asked.given, values, Parallel(asked.tp)).kernels
        products = [kernel for kernel in kernels if kernel.category in MATMUL_CATEGORIES]
        found["flops"].append(sum(kernel.repeat * kernel.flops for kernel in kernels))
        found["matmul_flops"].append(sum(kernel.repeat * kernel.flops for kernel in products))
        found["read"].append(plain(sum((kernel.repeat * kernel.read for kernel in kernels), Fraction(0))))
        found["write"].append(plain(sum((kernel.repeat * kernel.write for kernel in kernels), Fraction(0))))
        own = holds(subject, point, Parallel(asked.tp))
        for name, size in (("compulsory", own.compulsory), ("weights_bytes", own.weights), ("kv_bytes", own.cache)):
            found[name].append(None if size is None else plain(size))
    return found


def points(asked: Asked) -> Iterator[dict[str, Number]]:
    """Every combination of the sizes, the last one fastest, with the bytes of elements."""
    for values in itertools.product(*asked.sizes.values()):
        yield {**dict(zip(asked.sizes, values, strict=True)), **asked.given}


# --- times -----------------------------------------------------------------------------------------------------------


def _times(subject: Subject, asked: Asked, predictor: Predictor, held: Held | str, warnings: list[str]) -> Columns:
    """Time and memory of each point on the device. A point that stands twice is predicted once."""
    assert asked.ask is not None
    found: Columns = {name: [] for name in TIMES}
    rooms = _Rooms(held, asked.ask, subject)
    asks = {tuple(point.values()): replace(asked.ask, given=point) for point in points(asked)}
    said: dict[str, None] = {}
    known: dict[tuple[Number, ...], tuple[Any, ...]] = {}
    waiting = list(asks.items())
    for start in range(0, len(waiting), TOGETHER):
        part = waiting[start : start + TOGETHER]
        for (key, ask), now in zip(part, answers(subject, [ask for _, ask in part], predictor), strict=True):
            if isinstance(now, LmpError):
                raise now
            us, low, high = now.us
            known[key] = (us / 1e3, low / 1e3, high / 1e3, now.tokens_per_s[0], now.bound, *rooms.at(ask.given))
            too_long = beyond_positions(subject.config, now.values)
            said |= {} if too_long is None else {too_long: None}
    for point in points(asked):
        for name, value in zip(TIMES, known[tuple(point.values())], strict=True):
            found[name].append(value)
    warnings += said
    over = found["fits"].count(False)
    if over:
        warnings.append(f"{over} of {len(found['fits'])} points do not fit: their times are of a GPU with more memory")
    if rooms.unknown:
        warnings.append(f"memory is not known: {rooms.unknown}")
    return found


TOGETHER = 128
"""Points whose kernels are predicted at once: more take more memory, and little less time."""


class _Rooms:
    """Memory at many points. It grows evenly with the sequences, so that one of each length is worked out."""

    def __init__(self, held: Held | str, ask: Ask, subject: Subject) -> None:
        self._held, self._ask, self._subject = held, ask, subject
        self._known: dict[tuple[Any, ...], Room | None] = {}
        self.unknown = held if isinstance(held, str) else ""

    def at(self, point: Mapping[str, Number]) -> tuple[bool | None, int | None]:
        """Whether the point fits on each GPU, and the bytes that it holds there."""
        if isinstance(self._held, str):
            return None, None
        # Up to so many sequences an engine allocates the same beside the cache.
        batch = int(point.get("batch_size", 1))
        one = self._of_one(self._held, {**point, "batch_size": 1} if batch <= Settings.max_num_seqs else dict(point))
        if one is None:
            return None, None
        more = batch - 1 if batch <= Settings.max_num_seqs else 0
        fits = one.fits and (one.largest_batch is None or batch <= one.largest_batch)
        return fits, round(one.held + more * one.each)

    def _of_one(self, held: Held, point: dict[str, Number]) -> Room | None:
        key = tuple(point.values())
        if key not in self._known:
            try:
                self._known[key] = room(held, replace(self._ask, given=point), self._subject)
            except LmpError as error:
                self.unknown = first_line(error)
                self._known[key] = None
        return self._known[key]


# --- what the reader has to know -------------------------------------------------------------------------------------


def _about(subject: Subject, asked: Asked) -> list[str]:
    from lmp.report.warnings import of_the_model, of_the_values

    numbers = subject.numbers(asked.given)
    found = [*of_the_model(numbers.model)]
    longest = asked.sizes.get("cache_len", (0,))
    found += of_the_values(numbers.model, max(longest[0], longest[-1]))
    return found
