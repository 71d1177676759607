"""What the terms of a report's numbers are worth: one way for the report that is written and for its review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce

from lmp.errors import UsageError
from lmp.formula import Number, evaluate_exact
from lmp.link.numbers import CostNumbers, KernelNumbers, ModelNumbers, ModuleNumbers
from lmp.report.document.amounts import Claim, Quantity, Term


class Worth:
    """Values of terms: of a model's formulas at named points, of facts that have a name, and constants."""

    def __init__(
        self,
        numbers: ModelNumbers | None,
        points: Mapping[str, Mapping[str, int]],
        named: Mapping[str, int],
    ) -> None:
        self._numbers, self._points, self._named = numbers, points, named
        self._trees: dict[str, ModuleNumbers] = {}
        self._kernels: dict[tuple[str, str], Sequence[KernelNumbers]] = {}

    def claimed(self, claim: Claim) -> Fraction:
        """What a number is, exactly. Raises UsageError, or another LmpError, where that cannot be worked out."""
        values = {name: self.value(term) for name, term in claim.terms.items()}
        return Fraction(evaluate_exact(claim.expression, values))

    def value(self, term: Term) -> Fraction:
        """What one term is worth."""
        if term.constant is not None:
            return Fraction(term.constant)
        if term.name is not None:
            if term.name not in self._named:
                raise UsageError(f"nothing is called {term.name}")
            return Fraction(self._named[term.name])
        point = term.point
        if point is None or point not in self._points:
            raise UsageError(f"there is no point {point!r}")
        if term.formula is not None:
            return Fraction(evaluate_exact(term.formula, self._points[point]))
        if term.quantity is None:
            raise UsageError("a term without quantity, formula, name or constant")
        return Fraction(self._quantity(term, term.quantity, point))

    def tree(self, point: str) -> ModuleNumbers:
        """The whole model with the costs of everything in it, at a point."""
        if point not in self._trees:
            if self._numbers is None:
                raise UsageError("there is no model to evaluate")
            self._trees[point] = self._numbers.tree(self._points[point])
        return self._trees[point]

    def kernels(self, point: str, path: str = "") -> Sequence[KernelNumbers]:
        """All kernels, or those of the module at ``path``."""
        key = (point, path)
        if key not in self._kernels:
            modules = modules_at(self.tree(point), path) if path else [self.tree(point)]
            self._kernels[key] = [kernel for module in modules for kernel in module.kernels()]
        return self._kernels[key]

    def _quantity(self, term: Term, quantity: Quantity, point: str) -> Number:
        whole = (term.path, term.class_name, term.category, term.line) == (None, None, None, None)
        if quantity in ("compulsory", "parameters_count"):
            value = None
            if whole and self._numbers is not None:
                value = getattr(self._numbers.totals(self._points[point]), quantity)
            if value is None:
                raise UsageError(f"{quantity} is not known of {term.path or 'the model'}")
            return Fraction(value)
        chosen = [kernel for kernel in self.kernels(point, term.path or "") if _is_chosen(kernel, term)]
        if quantity == "runs":
            return sum(kernel.runs for kernel in chosen)
        if quantity == "launches":
            return sum(kernel.runs for kernel in chosen if kernel.once.bytes)
        total = reduce(CostNumbers.plus, (kernel.total for kernel in chosen), CostNumbers())
        return Fraction(getattr(total, quantity))


def modules_at(tree: ModuleNumbers, path: str) -> list[ModuleNumbers]:
    """The modules at a path; alike layers stand once, under the path of the first."""
    if tree.path == path and tree.call is not None:
        return [tree]
    inner = [child for child in tree.children if isinstance(child, ModuleNumbers)]
    return [found for child in inner for found in modules_at(child, path)]


def _is_chosen(kernel: KernelNumbers, term: Term) -> bool:
    return (
        term.class_name in (None, kernel.class_name)
        and term.category in (None, kernel.kernel.category)
        and term.line in (None, kernel.kernel.line)
    )
