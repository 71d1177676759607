"""Drafts as the scripts change them: an analysis as data, in the form in which an agent hands it in."""

from __future__ import annotations

from typing import Any

from lmp.records import Draft, ModuleAnalysis

Data = dict[str, Any]
FORMULAS = ("flops", "read", "write")


def as_draft(analysis: ModuleAnalysis) -> Data:
    """What an agent would hand in to say the same."""
    data = analysis.model_dump(mode="json")
    return {name: data[name] for name in Draft.model_fields}


def formula(kernel: Data, which: str) -> str:
    """One of FORMULAS of a kernel."""
    return str(kernel["flops"] if which == "flops" else kernel["memory_access"][which])


def put(kernel: Data, which: str, text: str) -> None:
    """Replace one of FORMULAS of a kernel."""
    if which == "flops":
        kernel["flops"] = text
    else:
        kernel["memory_access"][which] = text
