"""The gate: whoever hands in an analysis, an agent, a tool or a person, it is stored only if it passes here.

Everything that reading can tell is found at once; the numbers are held against execution when nothing else is wrong.
"""

from __future__ import annotations

from lmp.agents.gate.checks import Gate

__all__ = ["Gate"]
