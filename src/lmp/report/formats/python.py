"""A Python module with one function, ``cost``: the formulas of the totals, without lmp.

Exact as the formulas are: a quotient that is no integer stays a fraction until the end, and what is not an integer
there is a ValueError.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import metadata
from typing import IO, Any

from lmp.expand.numbers import ModelNumbers
from lmp.expand.point import GIVEN, UNIVERSAL_DEFAULTS
from lmp.formula import (
    Add,
    And,
    Call,
    Compare,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Node,
    Not,
    Num,
    Or,
    Pow,
    Var,
    Where,
)
from lmp.report.formats.base import Format

# How tightly Python binds, loosest first.
CHOICE, OR, AND, NOT, COMPARE, SUM, PRODUCT, NEGATIVE, POWER, ATOM = range(10)

_QUOTIENTS = {FloorDiv: "//", Mod: "%"}
_GROUP = 60
"""Terms of one sum: Python cannot compile one of some thousands."""

_RESERVED = {"min", "max", "math", "Fraction", "_quotient", "_power", "_whole", "cost", "dict", "int", "isinstance"}


def model(numbers: ModelNumbers, given: Mapping[str, int], out: IO[Any]) -> None:
    """``given`` become the defaults of the function's arguments."""
    defaults = _defaults(numbers, given)
    names = _identifiers(defaults)
    write = _Writer(names)
    formulas = {name: write.formula(formula) for name, formula in numbers.quantities.items()}
    out.write(f'"""{_doc(_about(numbers))}"""\n\n')
    out.write(_helpers(write.used))
    out.write(f"def cost({', '.join(_arguments(defaults, names))}):\n")
    out.write(f'    """{_doc(_what(numbers, names), indent="    ")}"""\n    return {{\n')
    for name, formula in formulas.items():
        value = f"_whole({formula})" if "_whole" in write.used else formula
        out.write(f"        {name!r}: {value},\n")
    out.write("    }\n")


FORMAT = Format(model=model)


def _defaults(numbers: ModelNumbers, given: Mapping[str, int]) -> dict[str, int | None]:
    """Every name with its default, the required ones (None) first."""
    analysis = numbers.model
    known = {**{n: v for n, v in analysis.values.items() if n not in GIVEN}, **UNIVERSAL_DEFAULTS, **given}
    names = dict.fromkeys((*GIVEN, "cache_len", *analysis.parameters, *UNIVERSAL_DEFAULTS))
    found = {name: known.get(name) for name in names}
    return dict(sorted(found.items(), key=lambda pair: pair[1] is not None))


def _arguments(defaults: Mapping[str, int | None], names: Mapping[str, str]) -> Iterator[str]:
    for name, value in defaults.items():
        yield names[name] if value is None else f"{names[name]}={value}"


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
    """Formulas in Python's own words. ``used`` are the helpers that they need."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.used: set[str] = set()

    def formula(self, formula: Expr) -> str:
        """In a place where anything may stand, over several lines where it is a sum."""
        if isinstance(formula, Add):
            return "(\n            " + "\n            + ".join(self._terms(formula.terms)) + "\n        )"
        return self._at(formula, CHOICE)

    def condition(self, condition: Condition) -> str:
        return self._at(condition, CHOICE)

    def _terms(self, terms: Sequence[Expr]) -> list[str]:
        texts = [self._at(term, PRODUCT) for term in terms]
        while len(texts) > _GROUP:
            groups = [texts[start : start + _GROUP] for start in range(0, len(texts), _GROUP)]
            texts = [f"({' + '.join(group)})" for group in groups]
        return texts

    def _at(self, node: Node, place: int) -> str:
        text, binding = self._written(node)
        return text if binding >= place else f"({text})"

    def _list(self, nodes: Sequence[Node]) -> str:
        return ", ".join(self._at(node, CHOICE) for node in nodes)

    def _written(self, node: Node) -> tuple[str, int]:
        match node:
            case Var(name):
                return self._names[name], ATOM
            case Num(value):
                return self._number(value)
            case Add(terms):
                return " + ".join(self._terms(terms)), SUM
            case Mul(factors):
                first, *rest = factors
                return " * ".join([self._at(first, PRODUCT), *(self._at(factor, NEGATIVE) for factor in rest)]), PRODUCT
            case Div(left, right):
                self.used |= {"_quotient", "_whole"}
                return f"_quotient({self._list((left, right))})", ATOM
            case FloorDiv(left, right) | Mod(left, right):
                sign = _QUOTIENTS[type(node)]
                return f"{self._at(left, PRODUCT)} {sign} {self._at(right, NEGATIVE)}", PRODUCT
            case Pow(left, Num(int() as exponent)) if exponent >= 0:
                return f"{self._at(left, ATOM)} ** {exponent}", POWER
            case Pow(left, right):
                self.used |= {"_power", "_quotient", "_whole"}
                return f"_power({self._list((left, right))})", ATOM
            case Call("floor", (Div(left, right),)):
                return f"{self._at(left, PRODUCT)} // {self._at(right, NEGATIVE)}", PRODUCT
            case Call("ceil", (Div(left, right),)):
                return f"-(-{self._at(left, POWER)} // {self._at(right, NEGATIVE)})", NEGATIVE
            case Call("floor" | "ceil" as function, arguments):
                self.used.add("math")
                return f"math.{function}({self._list(arguments)})", ATOM
            case Call(function, (only,)):
                return self._at(only, ATOM), ATOM
            case Call(function, arguments):
                return f"{function}({self._list(arguments)})", ATOM
            case Where(condition, then, otherwise):
                texts = self._at(then, OR), self._at(condition, OR), self._at(otherwise, CHOICE)
                return "{} if {} else {}".format(*texts), CHOICE
            case Compare(relation, left, right):
                return f"{self._at(left, SUM)} {relation} {self._at(right, SUM)}", COMPARE
            case Not(part):
                return f"not {self._at(part, NOT)}", NOT
            case And(parts):
                return " and ".join(self._at(part, NOT) for part in parts), AND
            case Or(parts):
                return " or ".join(self._at(part, AND) for part in parts), OR
        raise TypeError(f"not a formula: {node!r}")

    def _number(self, value: int | Fraction) -> tuple[str, int]:
        if isinstance(value, Fraction):
            self.used |= {"_quotient", "_whole"}
            return f"_quotient({value.numerator}, {value.denominator})", ATOM
        return (str(value), ATOM) if value >= 0 else (str(value), NEGATIVE)


_HELPERS = {
    "math": "import math\n",
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


def _helpers(used: set[str]) -> str:
    imports = _HELPERS["math"] if "math" in used else ""
    imports += "from fractions import Fraction\n" if "_quotient" in used else ""
    functions = "".join(_HELPERS[name] for name in ("_quotient", "_power", "_whole") if name in used)
    return imports + functions + ("\n\n" if imports or functions else "\n")


def _about(numbers: ModelNumbers) -> list[str]:
    analysis = numbers.model
    source, config = analysis.source, analysis.config
    statuses = sorted({part.status for part in analysis.parts.values()})
    uncounted = sorted({operator for part in analysis.parts.values() for operator in part.uncounted})
    return [
        f"What {analysis.class_name} costs.",
        "",
        f"Written by lmp {metadata.version('lmp')}. Nothing needs to be installed for it.",
        f"Source: {source.distribution} {source.version}, {source.file}",
        f"Config: {config.name} ({config.origin})",
        f"Formulas: {', '.join(statuses) or 'unverified'}",
        *([f"NOT counted, there is no rule for: {', '.join(uncounted)}"] if uncounted else []),
    ]


def _what(numbers: ModelNumbers, names: Mapping[str, str]) -> list[str]:
    analysis = numbers.model
    write = _Writer(names)
    lines = ["FLOPs, and bytes of eager execution, of one forward(): exact integers.", ""]
    lines += [f"{names[name]}: {origin}" for name, origin in analysis.parameters.items() if name in names]
    lines += ["w_bytes, a_bytes: bytes of a weight and of an activation element"]
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
