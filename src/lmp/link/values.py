"""The values at which an analysis is evaluated: those that a user gives, and defaults for all other names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from lmp.errors import UsageError
from lmp.formula import Number, number_text, read_number
from lmp.records import UNIVERSAL

if TYPE_CHECKING:
    from lmp.records import ModelAnalysis, ModuleAnalysis

    AnyAnalysis = ModuleAnalysis | ModelAnalysis

UNIVERSAL_DEFAULTS = {"cache_len": 0, "w_bytes": 2, "a_bytes": 2}
"""Default of the names that every formula may use and every command accepts."""

GIVEN = ("batch_size", "seq_len")
"""The size of the call. It has no default, and is at least 1."""

FOLLOWS = {"kv_bytes": "a_bytes"}
"""Name -> the name whose value it has unless it is given."""

CALL = (*GIVEN, *UNIVERSAL_DEFAULTS, *FOLLOWS)
"""Names that every command accepts, in the order in which they are shown."""

COUNTS = (*GIVEN, "cache_len")
"""Sizes of the call. Their numbers may end with a unit: ``8k`` tokens are 8,192."""

UNITS = {"k": 2**10, "m": 2**20}
"""Unit at the end of a count -> its factor. Case does not matter."""

ALIASES = {"num_attention_heads": "num_heads"}

_PREFIX = re.compile(r"^(self\.)?(config|init)\.|^self\.")
_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_COUNT = re.compile(r"([+-]?)([0-9]+(?:_[0-9]+)*)(?:\.([0-9]+))?([kKmM])")
_LIST_ITEM = re.compile(r"[+-]?[0-9][0-9_]*([./][0-9_]+)?[kKmM]?(:.*)?")
_MAX_DIGITS = 4000
"""Python itself reads no integer of more than 4300 digits."""

_LONGEST_LIST = 10**7
_MOST_VALUES = 10**12

Point = Mapping[str, Number]
"""One value for each name. Bytes of an element may be a fraction, every other value is an int."""

Values = Sequence[Number]
"""Values of one name: a tuple, or a range, which takes no memory however long it is."""


def parse_settings(settings: Iterable[str]) -> dict[str, Number]:
    """The values of ``name=value`` texts. A text may hold several, separated by commas."""
    found = {}
    for name, values in parse_axes(settings).items():
        if len(values) != 1:
            raise UsageError(f"{name} is set to several values\ngive one, as in --set {name}={number_text(values[0])}")
        found[name] = values[0]
    return found


def parse_axes(settings: Iterable[str]) -> dict[str, Values]:
    """As `parse_settings`, but a value may be a list (``batch_size=1,2,4``) or a range (``seq_len=128:4096:*2``)."""
    found: dict[str, Values] = {}
    for text in settings:
        for name, written in _settings(text):
            values = parse_values(name, written)
            if not _same(found.setdefault(name, values), values):
                before, now = (number_text(v[0]) if len(v) == 1 else "several values" for v in (found[name], values))
                raise UsageError(f"{name} is set twice: to {before} and to {now}\ngive it once")
    return found


def _same(one: Values, other: Values) -> bool:
    if isinstance(one, range) and isinstance(other, range):
        return one == other  # without looking at a trillion values
    return len(one) == len(other) and tuple(one) == tuple(other)


def _settings(text: str) -> list[tuple[str, str]]:
    """Names with their texts. ``a=1,2,b=3`` is ``a`` with a list of two, and ``b``: a bare value continues a list."""
    found: list[tuple[str, str]] = []
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals and found and name and _LIST_ITEM.fullmatch(name):
            found[-1] = (found[-1][0], f"{found[-1][1]},{name}")
        elif not equals or not name:
            raise UsageError(f"--set {part.strip()!r} is not name=value\nwrite it as in --set batch_size=2")
        else:
            found.append((_PREFIX.sub("", name), value))
    return found


def parse_values(name: str, text: str, option: str = "") -> Values:
    """The numbers that a text names: integers, or for bytes of an element also decimals and quotients.

    ``16`` · ``1,2,4`` · ``1:64`` or ``1:64:+1`` in steps of 1 · ``8:64:8`` in steps of 8 · ``128:4096:*2`` by doubling.
    A range includes both ends; an item of a list may be a range. Of bytes: ``0.5,17/32,2``. Sizes of the call may have
    a unit: ``8k``, ``1k:1M:*2``.
    """
    option = option or f"--set {name}="
    item = _sizes if is_rational(name) else _item
    parts = [item(name, part.strip(), option) for part in text.split(",")]
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) > _LONGEST_LIST:
        raise UsageError(f"{name} is set to more than {_LONGEST_LIST:,} values\ngive one range: {option}1:64:+1")
    return tuple(value for part in parts for value in part)


def is_rational(name: str) -> bool:
    """Whether the values of a name may be fractions: bytes of an element may, all others are whole numbers."""
    return canonical(name) in UNIVERSAL


def exact_size(name: str, given: object) -> Number:
    """Bytes of an element, from any kind of number or its text. Raises UsageError unless it is positive and finite."""
    try:
        value = read_number(given)
    except ValueError as error:
        raise UsageError(f"{name} is set to {str(given)[:60]!r}: {error}\n{_A_SIZE}") from None
    if value <= 0:
        raise UsageError(f"{name} is set to {number_text(value)}, but an element takes more than 0 bytes\n{_A_SIZE}")
    return value


_A_SIZE = "give a positive number of bytes, as 2, 0.5 or 17/32"


def _sizes(name: str, text: str, option: str) -> Values:
    return _item(name, text, option) if ":" in text else (exact_size(name, text),)


def _item(name: str, text: str, option: str) -> Values:
    if ":" not in text:
        number = _whole_number(name, text, option)
        return (number,)
    pieces = [piece.strip() for piece in text.split(":")]
    if len(pieces) not in (2, 3):
        raise UsageError(f"{name} is set to {text!r}, which is not a range\n{_as_a_range(option)}")
    first, last = (_whole_number(name, piece, option) for piece in pieces[:2])
    step = pieces[2] if len(pieces) == 3 else "+1"
    by = _whole_number(name, step.removeprefix("*").removeprefix("+"), option)
    if first > last:
        raise UsageError(f"{name} is set to {text!r}, a range that ends before it begins\n{_as_a_range(option)}")
    if not step.startswith("*"):
        if by < 1:
            raise UsageError(f"{name} is set to {text!r}, in steps of {by}\n{_as_a_range(option)}")
        found = range(first, last + 1, by)
        if (last - first) // by >= _MOST_VALUES:
            raise UsageError(f"{name} is set to {(last - first) // by + 1:,} values\nwiden the step: {option}A:B:STEP")
        return found
    if by < 2 or first < 1:
        raise UsageError(f"{name} is set to {text!r}, which never ends\n{_as_a_range(option)}")
    values = [first]
    while values[-1] * by <= last:
        values.append(values[-1] * by)
    return tuple(values)


def _as_a_range(option: str) -> str:
    return f"write it as in {option}1:64:8 (in steps of 8) or {option}128:32768:*2 (by doubling)"


def canonical(name: str) -> str:
    """The name that formulas use: without ``config.``, and num_heads instead of num_attention_heads."""
    bare = _PREFIX.sub("", name)
    return ALIASES.get(bare, bare)


def _whole_number(name: str, text: str, option: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise UsageError(f"{name} is set to a number of {len(text)} digits\ngive one of at most {_MAX_DIGITS}")
    count = _COUNT.fullmatch(text) if canonical(name) in COUNTS else None
    if count is not None:
        return _count(name, count, option)
    if not _INTEGER.fullmatch(text):
        raise UsageError(f"{name} is set to {text!r}, which is not a whole number\n{_as_a_number(name, option)}")
    return int(text)


def _as_a_number(name: str, option: str) -> str:
    if canonical(name) in COUNTS:
        return f"give one, as in {option}2 or {option}8k (k is 1,024, M is 1,048,576)"
    return f"give one, as in {option}2"


def _count(name: str, written: re.Match[str], option: str) -> int:
    """The whole number that a count with a unit is: ``1.5k`` is 1,536. Raises UsageError if it is none."""
    sign, whole, decimals, unit = written.groups()
    value = Fraction(f"{sign}{whole}.{decimals or 0}") * UNITS[unit.lower()]
    if value.denominator != 1:
        raise UsageError(
            f"{name} is set to {written[0]!r}, which is {number_text(value)}\n{_as_a_number(name, option)}"
        )
    return value.numerator


def values_for(analysis: AnyAnalysis, given: Mapping[str, Number]) -> dict[str, Number]:
    """A value for every parameter of the analysis and for the universal names.

    ``batch_size``, ``seq_len`` and all names without a value in the config come from ``given`` alone.
    """
    known = dict.fromkeys((*CALL, *analysis.parameters))
    named: dict[str, Number] = {}
    for written, value in given.items():
        name = known_name(analysis, written)
        value = checked(name, written, value, lowest_of(analysis, name))
        if named.setdefault(name, value) != value:
            before, now = number_text(named[name]), number_text(value)
            raise UsageError(f"{name} is set twice: to {before} and, as {written}, to {now}\ngive it once")
    config = {name: value for name, value in analysis.values.items() if name in analysis.parameters}
    values: dict[str, Number] = {**UNIVERSAL_DEFAULTS, **{n: v for n, v in config.items() if n not in GIVEN}, **named}
    values = {**{name: values[source] for name, source in FOLLOWS.items()}, **values}
    missing = [name for name in analysis.parameters if name not in values]
    if missing:
        example = " ".join(_example(name) for name in missing)
        have, it = ("has", "it") if len(missing) == 1 else ("have", "them")
        raise UsageError(
            f"{' and '.join(missing)} {have} no value: {analysis.class_name} depends on {it}\ngive {example}"
        )
    return {name: values[name] for name in known if name in values}


def _example(name: str) -> str:
    options = {"batch_size": "--batch-size 2", "seq_len": "--seq-len 16"}
    return options.get(name, f"--set {name}=16")


def whole_values(values: Point) -> dict[str, int]:
    """The same values, for what works with whole numbers alone. Raises UsageError for a fraction."""
    for name, value in values.items():
        if not isinstance(value, int):
            raise UsageError(
                f"{name} is set to {number_text(value)}, but a report takes whole numbers alone\n"
                "give a whole number, or use `lmp evaluate`, which takes fractions"
            )
    return cast("dict[str, int]", dict(values))


def lowest_of(analysis: AnyAnalysis, name: str) -> int:
    """The least value that a name can have: 1 for a size, 0 for cached tokens and for what may be off or absent.

    A number that is 0 or 1 in the config itself may be a switch, and so may an input that is no dimension.
    """
    path = analysis.parameters.get(name, "")
    switch = analysis.values.get(name) in (0, 1) or (path.startswith("inputs.") and ".shape" not in path)
    return 0 if name not in GIVEN and (name == "cache_len" or switch) else 1


def checked(name: str, written: str, value: Number, lowest: int) -> Number:
    """The value, if the name can have it. Raises UsageError if not."""
    if name in UNIVERSAL:
        return exact_size(written, value)
    if isinstance(value, Fraction):
        raise UsageError(f"{written} is set to {number_text(value)}\ngive a whole number of at least {lowest}")
    if value < lowest:
        raise UsageError(f"{written} is set to {value}\ngive a whole number of at least {lowest}")
    return value


def known_name(analysis: AnyAnalysis, written: str) -> str:
    """The name of a parameter in the formulas. Raises UsageError if they have no such parameter."""
    known = [*dict.fromkeys((*CALL, *analysis.parameters))]
    name = written if written in known else canonical(written)
    name = name if name in known else analysis.aliases.get(name, name)
    if name not in known:
        raise _unknown(analysis, written, known)
    return name


def _unknown(analysis: AnyAnalysis, name: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, n=1)
    pinned = f" (it is fixed at {analysis.pinned[name]} in these formulas)" if name in analysis.pinned else ""
    return UsageError(
        f"{analysis.class_name} has no parameter {name!r}{pinned}{f': did you mean {close[0]}?' if close else ''}\n"
        f"the names are {', '.join(known)}"
    )
