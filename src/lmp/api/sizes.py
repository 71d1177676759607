"""Sizes and formats of a call as a notebook has them: numbers, lists, ranges, arrays, tensors, words."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from lmp.dtypes import CACHE_WORDS, WORDS, Bytes, cache_size
from lmp.errors import UsageError, did_you_mean
from lmp.formula import Number
from lmp.link.values import COUNTS, Values, exact_size, parse_values

Sizes = Any
"""A whole number, a text as ``"8k"``, a list, tuple or range of them, or an array or tensor of one dimension."""
Format = str | int | float | Fraction
"""A dtype word as ``"fp8"``, or bytes of an element."""

MOST_VALUES = 10**7


def sizes_of(name: str, given: Sizes, lowest: int) -> Values:
    """The values of one argument. Raises UsageError, in its name, for what is no whole number of at least ``lowest``.

    A range stays a range. Anything with ``tolist()`` is taken as what that returns: arrays, tensors, series.
    """
    if isinstance(given, range):
        values: Values = given
    else:
        plain = _listed(name, given)
        values = (
            tuple(_whole(name, one) for one in plain) if isinstance(plain, list | tuple) else (_whole(name, plain),)
        )
    if not values:
        raise UsageError(f"{name} has no values\ngive one at least, as in {name}=[1, 8]")
    if len(values) > MOST_VALUES:
        raise UsageError(f"{name} has {len(values):,} values\ngive at most {MOST_VALUES:,}")
    least = min(values[0], values[-1]) if isinstance(values, range) else min(values)
    if least < lowest:
        raise UsageError(f"{name} is {least}\ngive whole numbers of at least {lowest}")
    return values


def _listed(name: str, given: Sizes) -> Any:
    to_list = getattr(given, "tolist", None)
    if not callable(to_list):
        return given
    try:
        return to_list()
    except Exception as error:  # of another library: a tensor without data, say
        raise UsageError(f"the values of {name} cannot be read: {str(error)[:80]}\ngive whole numbers") from error


def _whole(name: str, given: object) -> int:
    """One whole number. A float is taken if it is one: arrays often hold such."""
    if isinstance(given, str):
        return _from_text(name, given)
    if isinstance(given, float) and given.is_integer():
        return int(given)
    if isinstance(given, list | tuple | range):
        raise UsageError(f"{name} is a table of several dimensions\ngive a list of whole numbers, as in {name}=[1, 8]")
    single = _listed(name, given)
    if not isinstance(single, bool):
        try:
            return operator.index(single)
        except TypeError:
            pass
    raise UsageError(f"{name} is {given!r:.60}, which is not a whole number\n{_as_in(name)}")


def _from_text(name: str, text: str) -> int:
    try:
        values = parse_values(COUNTS[0], text)
    except UsageError as error:
        raise UsageError(f"{name} is {text[:40]!r}, which is not a whole number\n{_as_in(name)}") from error
    if len(values) != 1 or not isinstance(values[0], int):
        raise UsageError(f"{name} is {text[:40]!r}, which is several numbers\n{_as_in(name)}")
    return values[0]


def _as_in(name: str) -> str:
    return f'give one, as in {name}=8, or a list, as in {name}=[1, "8k"] (k is 1,024, M is 1,048,576)'


def weights_size(given: Format) -> Bytes:
    """Bytes of an element of a weight, by a dtype word or a number."""
    return _size("weights", given, tuple(WORDS), lambda word: WORDS[word].weights)


def kv_size(given: Format) -> Bytes:
    """Bytes of an element of the KV cache, by a dtype word or a number."""
    return _size("kv", given, CACHE_WORDS, cache_size)


def word_of(name: str, given: str) -> str:
    """A word for all dtypes of a call. Raises UsageError, with the nearest words, for an unknown one."""
    if given in WORDS:
        return given
    raise _unknown(name, given, tuple(WORDS))


def _size(name: str, given: Format, words: tuple[str, ...], bytes_of: Callable[[str], Bytes]) -> Number:
    if isinstance(given, str):
        if given in words:
            return bytes_of(given)
        if not given[:1].isdigit():
            raise _unknown(name, given, words)
    return exact_size(name, given)


def _unknown(name: str, given: object, words: tuple[str, ...]) -> UsageError:
    text = str(given)[:40]
    hint = did_you_mean(difflib.get_close_matches(text, words, n=3), f"known are {', '.join(words)}")
    return UsageError(f"{name} is {text!r}, which is no dtype\n{hint}")
