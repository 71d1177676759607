"""Section 8: what a call moves and holds on the device, the least time it takes there, and what it waits for."""

from __future__ import annotations

from lmp.report.document.parts import Block, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts
from lmp.report.implementation.bottlenecks import bottleneck_blocks
from lmp.report.implementation.device_memory import hierarchy_blocks
from lmp.report.implementation.operators import further
from lmp.report.implementation.timing import timeline_blocks


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """Numbers at the stated points, on the facts' device; times are bounds and never measurements."""
    return Section(
        "8. Memory & Performance",
        sections=[
            _titled("8.1 Memory Access Pattern", hierarchy_blocks(facts), told),
            _titled("8.2 Execution Timeline", timeline_blocks(facts), told),
            _titled("8.3 Bottleneck Analysis", bottleneck_blocks(facts), told),
        ],
    )


def _titled(title: str, blocks: list[Block], told: Told | None) -> Section:
    return Section(title, [*blocks, *further(told, title)])
