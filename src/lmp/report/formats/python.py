"""A Python module with one function, ``cost``: the formulas of the totals, without lmp.

Exact as the formulas are: a quotient that is no integer stays a fraction until the end. What is not an integer there is
a ValueError, except bytes where those of an element are a fraction.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import metadata
from typing import IO, Any

from lmp.formula import Condition, Expr, Number, lower, number_text
from lmp.link.numbers import IN_BYTES, ModelNumbers
from lmp.link.values import CALL, FOLLOWS, GIVEN, UNIVERSAL_DEFAULTS, Point
from lmp.records import UNIVERSAL
from lmp.report.formats.base import Format

# How tightly Python binds, loosest first.
CHOICE, OR, AND, NOT, COMPARE, SUM, PRODUCT, NEGATIVE, POWER, ATOM = range(10)

_GROUP = 60
"""Terms of one sum: Python cannot compile one of some thousands."""

_RESERVED = {
    "min",
    "max",
    "math",
    "Fraction",
    "_quotient",
    "_power",
    "_whole",
    "_size",
    "_exact",
    "cost",
    "dict",
    "int",
    "isinstance",
}


def model(numbers: ModelNumbers, given: Point, out: IO[Any]) -> None:
    """``given`` become the defaults of the function's arguments."""
    defaults = _defaults(numbers, given)
    names = _identifiers(defaults)
    write = _Writer(numbers.quantities.values(), names)
    formulas = {name: write.formula(formula) for name, formula in numbers.quantities.items()}
    out.write(f'"""{_doc(_about(numbers))}"""\n\n')
    out.write(_helpers(write.used))
    out.write(f"def cost({', '.join(_arguments(defaults, names))}):\n")
    out.write(f'    """{_doc(_what(numbers, names), indent="    ")}"""\n')
    for name, source in FOLLOWS.items():
        if defaults[name] is NOT_GIVEN:
            out.write(f"    {names[name]} = {names[source]} if {names[name]} is None else {names[name]}\n")
    for name in UNIVERSAL:
        out.write(f"    {names[name]} = _size({names[name]})\n")
    out.write("    return {\n")
    for name, formula in formulas.items():
        value = f"_whole({formula})" if "_whole" in write.used else formula
        value = f"_exact({formula})" if name in IN_BYTES else value
        out.write(f"        {name!r}: {value},\n")
    out.write("    }\n")


FORMAT = Format(model=model)


NOT_GIVEN = "None"
"""Default of an argument that has the value of another one unless it is given."""


def _defaults(numbers: ModelNumbers, given: Point) -> dict[str, str]:
    """Every name with its default as Python's text, the required ones (an empty text) first."""
    analysis = numbers.model
    known = {**UNIVERSAL_DEFAULTS, **{n: v for n, v in analysis.values.items() if n not in GIVEN}, **given}
    texts = {**dict.fromkeys(FOLLOWS, NOT_GIVEN), **{name: _literal(value) for name, value in known.items()}}
    names = dict.fromkeys((*GIVEN, "cache_len", *analysis.parameters, *CALL))
    found = {name: texts.get(name, "") for name in names}
    return dict(sorted(found.items(), key=lambda pair: pair[1] != ""))


def _literal(value: Number) -> str:
    """A whole number, or the text that ``_size`` reads: '0.5' or '1/3'."""
    return str(value) if isinstance(value, int) else repr(number_text(value))


def _arguments(defaults: Mapping[str, str], names: Mapping[str, str]) -> Iterator[str]:
    for name, value in defaults.items():
        yield f"{names[name]}={value}" if value else names[name]


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    """Name -> an identifier of Python that no other name has, and that hides nothing the module uses."""
    found: dict[str, str] = {}
    for name in names:
        made = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
        made = f"_{made}" if made[0].isdigit() else made
        while keyword.iskeyword(made) or made in _RESERVED or made in found.values():
            made += "_"
        found[name] = made
    return found


class _Writer:
    """The formulas, lowered, in Python's own words. ``used`` are the helpers that they need."""

    def __init__(self, formulas: Iterable[Expr | Condition], names: Mapping[str, str]) -> None:
        self._lowered = lower(formulas)
        self._names = names
        self.used: set[str] = set()

    def formula(self, formula: Expr) -> str:
        """In a place where anything may stand, over several lines where it is a sum."""
        index = self._lowered.index[formula]
        instruction = self._lowered.instruction(index)
        if instruction is not None and instruction.operation == "+":
            return "(\n            " + "\n            + ".join(self._terms(instruction.operands)) + "\n        )"
        return self._at(index, CHOICE)

    def condition(self, condition: Condition) -> str:
        return self._at(self._lowered.index[condition], CHOICE)

    def _terms(self, terms: Sequence[int]) -> list[str]:
        texts = [self._at(term, PRODUCT) for term in terms]
        while len(texts) > _GROUP:
            groups = [texts[start : start + _GROUP] for start in range(0, len(texts), _GROUP)]
            texts = [f"({' + '.join(group)})" for group in groups]
        return texts

    def _at(self, index: int, place: int) -> str:
        text, binding = self._written(index)
        return text if binding >= place else f"({text})"

    def _list(self, operands: Sequence[int]) -> str:
        return ", ".join(self._at(operand, CHOICE) for operand in operands)

    def _written(self, index: int) -> tuple[str, int]:
        instruction = self._lowered.instruction(index)
        if instruction is None:
            leaf = self._lowered.leaf(index)
            return (self._names[leaf], ATOM) if isinstance(leaf, str) else self._number(leaf)
        operation, operands, node = instruction
        match operation, operands:
            case "+", _:
                return " + ".join(self._terms(operands)), SUM
            case "*", (first, *rest):
                return " * ".join([self._at(first, PRODUCT), *(self._at(factor, NEGATIVE) for factor in rest)]), PRODUCT
            case "/", _:
                self.used |= {"_quotient", "_whole"}
                return f"_quotient({self._list(operands)})", ATOM
            case "//" | "%", (left, right):
                return f"{self._at(left, PRODUCT)} {operation} {self._at(right, NEGATIVE)}", PRODUCT
            case "**", (left, right):
                return self._power(left, right)
            case "floor" | "ceil", (only,):
                return self._rounded(operation, only)
            case "min" | "max", (only,):
                return self._at(only, ATOM), ATOM
            case "min" | "max", _:
                return f"{operation}({self._list(operands)})", ATOM
            case "where", (condition, then, otherwise):
                texts = self._at(then, OR), self._at(condition, OR), self._at(otherwise, CHOICE)
                return "{} if {} else {}".format(*texts), CHOICE
            case "not", (only,):
                return f"not {self._at(only, NOT)}", NOT
            case "and", _:
                return " and ".join(self._at(part, NOT) for part in operands), AND
            case "or", _:
                return " or ".join(self._at(part, AND) for part in operands), OR
            case _, (left, right):
                return f"{self._at(left, SUM)} {operation} {self._at(right, SUM)}", COMPARE
        raise TypeError(f"not a formula: {node!r}")

    def _power(self, base: int, exponent: int) -> tuple[str, int]:
        count = None if self._lowered.instruction(exponent) else self._lowered.leaf(exponent)
        if isinstance(count, int) and count >= 0:
            return f"{self._at(base, ATOM)} ** {count}", POWER
        self.used |= {"_power", "_quotient", "_whole"}
        return f"_power({self._list((base, exponent))})", ATOM

    def _rounded(self, function: str, index: int) -> tuple[str, int]:
        """``floor(a / b)`` is a // b, ``ceil(a / b)`` is -(-a // b)."""
        quotient = self._lowered.instruction(index)
        if quotient is None or quotient.operation != "/":
            self.used.add("math")
            return f"math.{function}({self._at(index, CHOICE)})", ATOM
        left, right = quotient.operands
        if function == "floor":
            return f"{self._at(left, PRODUCT)} // {self._at(right, NEGATIVE)}", PRODUCT
        return f"-(-{self._at(left, POWER)} // {self._at(right, NEGATIVE)})", NEGATIVE

    def _number(self, value: int | Fraction) -> tuple[str, int]:
        if isinstance(value, Fraction):
            self.used |= {"_quotient", "_whole"}
            return f"_quotient({value.numerator}, {value.denominator})", ATOM
        return (str(value), ATOM) if value >= 0 else (str(value), NEGATIVE)


_HELPERS = {
    "math": "import math\n",
    "_size": '''

def _size(value):
    """Bytes of an element, exact: an int, a Fraction, a text as '17/32', or a float, which means its decimal text."""
    found = Fraction(str(value))
    if found <= 0:
        raise ValueError(f"an element takes more than 0 bytes, not {value}")
    return _exact(found)
''',
    "_exact": '''

def _exact(value):
    """The value as an int where it is one, else as it is."""
    return int(value) if value == int(value) else value
''',
    "_quotient": '''

def _quotient(left, right):
    """Exact: a Fraction where it is not an integer."""
    found = Fraction(left) / Fraction(right)
    return found.numerator if found.denominator == 1 else found
''',
    "_power": '''

def _power(base, exponent):
    """Exact: a Fraction where it is not an integer."""
    return base**exponent if exponent >= 0 else _quotient(1, base**-exponent)
''',
    "_whole": '''

def _whole(value):
    """The value as an int; a ValueError where it is none."""
    if value != int(value):
        raise ValueError(f"{value} is not an integer: the formulas do not hold for these sizes")
    return int(value)
''',
}


_ALWAYS = ("_size", "_exact")


def _helpers(used: set[str]) -> str:
    imports = (_HELPERS["math"] if "math" in used else "") + "from fractions import Fraction\n"
    return (
        imports
        + "".join(_HELPERS[name] for name in ("_quotient", "_power", "_whole") if name in used)
        + "".join(_HELPERS[name] for name in _ALWAYS)
        + "\n\n"
    )


def _about(numbers: ModelNumbers) -> list[str]:
    analysis = numbers.model
    source, config = analysis.source, analysis.config
    own = None if analysis.quantization is None else analysis.quantization.applied
    statuses = sorted({part.status for part in analysis.parts.values()})
    uncounted = sorted({operator for part in analysis.parts.values() for operator in part.uncounted})
    return [
        f"What {analysis.class_name} costs.",
        "",
        f"Written by lmp {metadata.version('lmp')}. Nothing needs to be installed for it.",
        f"Source: {source.distribution} {source.version}, {source.file}",
        f"Config: {config.name} ({config.origin})",
        f"Formulas: {', '.join(statuses) or 'unverified'}",
        *([f"Weights: as the checkpoint stores them ({own}); w_bytes is for all others"] if own else []),
        *([f"NOT counted, there is no rule for: {', '.join(uncounted)}"] if uncounted else []),
    ]


def _what(numbers: ModelNumbers, names: Mapping[str, str]) -> list[str]:
    analysis = numbers.model
    write = _Writer(numbers.assumptions.values(), names)
    lines = ["FLOPs, and bytes of eager execution, of one forward(): exact.", ""]
    lines += [f"{names[name]}: {origin}" for name, origin in analysis.parameters.items() if name in names]
    lines += ["w_bytes, a_bytes, kv_bytes: bytes of an element of weights, activations and KV cache (default: a_bytes)"]
    if numbers.assumptions:
        lines += ["", "Holds where:", *(f"    {write.condition(c)}" for c in numbers.assumptions.values())]
    return lines


def _doc(lines: Sequence[str], indent: str = "") -> str:
    """Text for between three quotes, whatever is in it."""
    escaped = ["".join(map(_sign, line)).rstrip() for line in lines]
    body = f"\n{indent}".join(escaped)
    body = "\n".join(line.rstrip() for line in body.split("\n"))
    return body + (f"\n{indent}" if len(lines) > 1 else "")


def _sign(sign: str) -> str:
    if sign in '\\"':
        return f"\\{sign}"
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode()
