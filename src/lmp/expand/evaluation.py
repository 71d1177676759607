"""An analysis with numbers put in: linked into a model first, so that there is one way to evaluate."""

from __future__ import annotations

from collections.abc import Mapping

from lmp.expand.link import link
from lmp.expand.numbers import ModelNumbers
from lmp.expand.point import point
from lmp.expand.records import Evaluation
from lmp.expand.references import Lookup
from lmp.records import ModuleAnalysis


def evaluate_analysis(analysis: ModuleAnalysis, lookup: Lookup, given: Mapping[str, int]) -> Evaluation:
    """What one call of the class costs at the point that ``given`` and the analysis's own config values make."""
    model = link(analysis, lookup)
    return ModelNumbers(model).evaluation(point(model, given))
