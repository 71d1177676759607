"""The gate: every submission of an analysis, by an agent, a tool or a person, is stored only if it passes here.

All findings from reading are returned at once. Numbers are compared with execution if reading finds nothing.
"""

from __future__ import annotations

from lmp.agents.gate.checks import AnalysisVerdict, Gate

__all__ = ["AnalysisVerdict", "Gate"]
