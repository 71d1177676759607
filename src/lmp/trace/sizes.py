"""Converts PyTorch's size expressions (sympy) to formulas, with the divisibility that the model relies on.

A model writes ``hidden_size // num_heads`` and means an exact division. If the sizes of the run divide, the formula has
the exact quotient. The divisibility then becomes an assumption of every formula that contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from lmp.formula import Condition, Expr, Num, as_polynomial, eq, from_polynomial, maximum, minimum, num, simplify, var
from lmp.formula import nodes as n
from lmp.workload.base import RUNTIME


class Sizes:
    """Converts expressions over the symbols of one run. ``values``: symbol -> number in that run."""

    def __init__(self, values: Mapping[sympy.Symbol, int], own: Mapping[str, int] | None = None) -> None:
        """``own``: config values by name; this run may use other values.

        A quotient that is not exact at them is rounded in the formula, so that it holds at both.
        """
        self.values, self._own = values, own or {}
        self._cache: dict[sympy.Basic, Expr] = {}
        self._assumed: set[Condition] = set()
        self.relied: dict[Expr, set[Condition]] = {}
        """Formula of a size -> divisibility conditions without which the formula would differ."""

    def formula(self, size: Any) -> Any:
        """The size as a formula; a plain integer stays an integer."""
        if not isinstance(size, sympy.Basic):
            return size
        if size.is_Integer:
            return int(size)
        found = self._cache.get(size)
        if found is None:
            self._assumed = set()
            found = self._cache[size] = simplify(self._convert(size))
            if self._assumed:
                self.relied.setdefault(found, set()).update(self._assumed)
        return int(found.value) if isinstance(found, Num) and isinstance(found.value, int) else found

    def condition(self, relation: sympy.Basic) -> Condition | None:
        """A comparison as a condition of the formula language; None if it does not compare integers."""
        kinds = {
            "Equality": n.eq, "Unequality": n.ne, "StrictLessThan": n.lt, "LessThan": n.le,
            "StrictGreaterThan": n.gt, "GreaterThan": n.ge,
        }  # fmt: skip
        build = kinds.get(type(relation).__name__)
        if build is None:
            return None
        try:
            left, right = (self._convert(a) for a in relation.args)
        except TypeError:
            return None
        # Sizes are positive, so heads / kv_heads > 1 is heads > kv_heads.
        divisors = [a**-e for m in as_polynomial(left) for a, e in m if e < 0]
        for divisor in divisors:
            left, right = left * divisor, right * divisor
        left, right = _balanced(simplify(left), simplify(right))
        if right == num(0) and build in (n.eq, n.ne, n.gt):
            left = _that_may_be_0(left)
        return build(left, right)

    def _convert(self, e: Any) -> Expr:
        if isinstance(e, int) or e.is_Integer:
            return num(int(e))
        if e.is_Symbol:
            return var(e.name)
        if e.is_Add:
            return n.add(*(self._convert(a) for a in e.args))
        if e.is_Mul:
            return n.mul(*(self._convert(a) for a in e.args))
        if e.is_Rational:
            return num(int(e.p)) / int(e.q)
        if e.is_Float:
            # A fraction of a size, such as partial_rotary_factor, becomes an exact fraction.
            share = Fraction(float(e)).limit_denominator(1024)
            if float(share) != float(e):
                raise TypeError(f"no exact formula for the factor {e}")
            return num(share.numerator) / share.denominator
        if e.is_Pow and e.exp.is_Integer:
            base = self._convert(e.base)
            return base ** int(e.exp) if int(e.exp) > 0 else num(1) / base ** int(-e.exp)
        kind = type(e).__name__
        if kind in ("FloorDiv", "CleanDiv"):
            return self._divide(e.args[0], e.args[1])
        if kind == "Max":
            return self._extreme(maximum, e.args)
        if kind == "Min":
            return self._extreme(minimum, e.args)
        if kind in ("Mod", "PythonMod"):
            return self._convert(e.args[0]) % self._convert(e.args[1])
        if kind in ("CeilToInt", "FloorToInt", "TruncToInt", "ToFloat", "Identity"):
            inside = e.args[0]
            if kind == "TruncToInt" and type(inside).__name__ in ("IntTrueDiv", "FloatTrueDiv"):
                # int(a / b) of sizes is a // b.
                return self._divide(*(a.args[0] if type(a).__name__ == "ToFloat" else a for a in inside.args))
            inner = self._convert(inside)
            return n.ceil(inner) if kind == "CeilToInt" else n.floor(inner) if kind != "ToFloat" else inner
        if kind in ("IntTrueDiv", "FloatTrueDiv"):
            return self._convert(e.args[0]) / self._convert(e.args[1])
        raise TypeError(f"no formula for {kind} in {e}")

    def _divides(self, term: Any, divisor: Any) -> bool:
        """True if a quotient is exact in this run and at the config's own values."""
        own = {k: self._own.get(k.name, v) for k, v in self.values.items()}
        # A rest of one token divides anything, which says nothing of other rests.
        if (
            divisor.is_Add
            and _value(divisor, self.values) == 1
            and any(k.name in RUNTIME for k in divisor.free_symbols)
        ):
            return False
        bounds = [(at, _value(divisor, at)) for at in (self.values, own)]
        return all(bound != 0 and _value(term, at) % bound == 0 for at, bound in bounds)

    def _extreme(self, build: Any, arguments: Any) -> Expr:
        """max(1, size) is PyTorch's protection against empty tensors. It is dropped: sizes here are positive."""
        parts = [a for a in arguments if not (a.is_Integer and int(a) <= 1)] if build is maximum else list(arguments)
        if build is maximum and len(parts) == 1 and parts[0].is_positive:
            return self._convert(parts[0])
        return build(*(self._convert(a) for a in arguments))

    def _divide(self, numerator: Any, denominator: Any) -> Expr:
        """``numerator // denominator``, exact for each term that the sizes of the run make exact."""
        below = self._convert(denominator)
        exact: list[Expr] = []
        rest: list[Any] = []
        for term in sympy.Add.make_args(sympy.expand(numerator) if numerator.is_Add else numerator):
            (exact if not term.is_Integer and self._divides(term, denominator) else rest).append(term)
        if not exact or (rest and not denominator.is_Integer):
            return self._convert(numerator) // below
        total = n.add(*(self._convert(t) for t in exact)) if exact else num(0)
        quotient = simplify(total / below)
        # heads * head_dim // heads divides for any sizes; a fraction that remains needs the assumption.
        if any(not isinstance(c, int) or any(e < 0 for _, e in m) for m, c in as_polynomial(quotient).items()):
            for atom, power in {a: e for m in as_polynomial(total) for a, e in m if e < 0}.items():
                total, below = total * atom**-power, below * atom**-power
            self._assumed.add(eq(simplify(total) % simplify(below), 0))
        if rest:
            remainder = sympy.Add(*rest)
            if not (remainder.is_Integer and denominator.is_Integer):
                return self._convert(numerator) // below
            quotient = quotient + int(remainder) // int(denominator)
        return quotient


def _value(e: Any, values: Mapping[sympy.Symbol, int]) -> int:
    return int(sympy.sympify(e).xreplace({k: sympy.Integer(v) for k, v in values.items()}))


def _that_may_be_0(product: Expr) -> Expr:
    """The factor that decides whether a product is 0: only the cache may be empty."""
    cache = var("cache_len")
    terms = list(as_polynomial(product))
    return cache if len(terms) == 1 and any(factor == cache and power > 0 for factor, power in terms[0]) else product


def _balanced(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Both sides without subtractions: ``1 - window < 0`` becomes ``1 < window``."""
    difference = as_polynomial(left - right)
    above = {m: c for m, c in difference.items() if c > 0}
    below = {m: -c for m, c in difference.items() if c < 0}
    return from_polynomial(above), from_polynomial(below)
