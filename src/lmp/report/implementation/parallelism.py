"""Section 7: how the model may be spread over devices, and what its devices send to one another then."""

from __future__ import annotations

from lmp.report.document.parts import Block, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts
from lmp.report.implementation.messages import pattern_blocks, sent_of
from lmp.report.implementation.operators import further
from lmp.report.implementation.overlap import overlap_blocks
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.strategies import strategy_blocks


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """From the plans of the model's and the config's classes, and the styles that transformers registers."""
    plans = Plans(facts)
    sent = list(sent_of(facts, plans))
    return Section(
        "7. Parallelism & Distribution",
        sections=[
            _titled("7.1 Parallelism Strategy", strategy_blocks(facts, plans), told),
            _titled("7.2 Communication Patterns", pattern_blocks(facts, plans, sent), told),
            _titled("7.3 Compute-Communication Overlap", overlap_blocks(facts, plans, sent), told),
        ],
    )


def _titled(title: str, blocks: list[Block], told: Told | None) -> Section:
    return Section(title, [*blocks, *further(told, title)])
