"""The two steps from an analysis to numbers, as `lmp.api.Analysis.evaluate` takes them: link, then evaluate."""

from __future__ import annotations

from collections.abc import Mapping

from lmp.link.link import link
from lmp.link.numbers import ModelNumbers
from lmp.link.records import Evaluation
from lmp.link.references import Lookup
from lmp.link.values import values_for
from lmp.records import ModuleAnalysis


def evaluate_analysis(analysis: ModuleAnalysis, lookup: Lookup, given: Mapping[str, int]) -> Evaluation:
    """The cost of one call of the class at the values that ``given`` and the analysis's own config make."""
    model = link(analysis, lookup)
    return ModelNumbers(model).evaluation(values_for(model, given))
