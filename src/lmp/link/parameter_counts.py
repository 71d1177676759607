"""Parameters of each module in a model, from the analyses of its classes: numbers at the model's config.

A linked model has the count of the whole alone. A count of a module is its class's formula at the sizes that its
callers bind. It is a number of the module by itself: a weight that two modules share counts in both.
"""

from __future__ import annotations

from collections.abc import Mapping

from lmp.errors import EvaluationError, LmpError, UnknownVariable
from lmp.formula import Num, Number, Ref, evaluate_exact, map_references, references
from lmp.link.references import References, Trail, join
from lmp.link.values import UNIVERSAL_DEFAULTS
from lmp.records import Lookup, ModelAnalysis, ModuleAnalysis, short

Counts = dict[tuple[str, str], int | None]
"""Path and class of a module -> parameters of one such module; None if its analysis does not say them.

The root's path is "". A path alone is not enough: ``layer[-1]`` is another class in an encoder than in a decoder."""

Sizes = Mapping[str, Number]


def parameter_counts(model: ModelAnalysis, lookup: Lookup) -> Counts:
    """Parameters of every module that the model calls, by path and class. ``lookup`` returns the analysis of a class.

    A module whose count depends on a size that the config does not give has None.
    """
    found: Counts = {}
    walker = _Walker(References(lookup), found)
    root = lookup(model.class_name)
    sizes = {name: value for name, value in model.values.items() if name in model.parameters}
    walker.enter(root, {**_ELEMENTS, **sizes}, "", Trail(root.class_name))
    return found


_ELEMENTS: Sizes = {name: value for name, value in UNIVERSAL_DEFAULTS.items() if name.endswith("_bytes")}
"""Bytes of an element: a binding may name them, a count never depends on them."""


class _Walker:
    def __init__(self, known: References, found: Counts) -> None:
        self._references, self._found = known, found

    def enter(self, analysis: ModuleAnalysis, sizes: Sizes, path: str, place: Trail) -> None:
        """Count the parameters of a class at these sizes, and those of every module that it calls."""
        self._found[path, analysis.class_name] = self._count(analysis, sizes, place)
        with self._references.entered(analysis, place):
            for kernel in analysis.kernels:
                here = place.at(kernel.line)
                for ref in dict.fromkeys(references(self._references.formula(analysis, kernel.flops, here))):
                    step = kernel.path or short(ref.target)
                    below = join(path, step) if path else step
                    inside = here.below(step)
                    target = self._references.target(ref.target, inside)
                    if (below, target.class_name) not in self._found:
                        self.enter(target, self._bound(analysis, ref, target, sizes, here), below, inside)

    def _bound(
        self, analysis: ModuleAnalysis, ref: Ref, target: ModuleAnalysis, sizes: Sizes, here: Trail
    ) -> dict[str, Number]:
        """The sizes of the called class that the config gives: those of the call itself have no number."""
        bound: dict[str, Number] = dict(_ELEMENTS)
        for name, formula in self._references.bindings(analysis, ref, target, here).items():
            try:
                bound[name] = evaluate_exact(formula, sizes)
            except (UnknownVariable, EvaluationError):
                continue
        return bound

    def _count(self, analysis: ModuleAnalysis, sizes: Sizes, place: Trail) -> int | None:
        """Parameters of a class at these sizes; None if they are not known."""
        if analysis.parameters_count is None:
            return None
        formula = self._references.formula(analysis, analysis.parameters_count, place)
        counts = {}
        for ref in references(formula):
            inside = place.below(short(ref.target))
            target = self._references.target(ref.target, inside)
            with self._references.entered(analysis, place):
                found = self._count(target, self._bound(analysis, ref, target, sizes, place), inside)
            if found is None:
                return None
            counts[ref] = Num(found)
        try:
            value = evaluate_exact(map_references(formula, lambda ref: counts[ref]), sizes)
        except LmpError:
            return None
        return value if isinstance(value, int) else None
