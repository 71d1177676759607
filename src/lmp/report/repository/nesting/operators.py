"""The operators of a kernel library: functions that lead to launches of kernels, and that others take by name."""

from __future__ import annotations

import re

from lmp.recon.facts import Definition
from lmp.report.repository.code_base import CodeBase


def operators(base: CodeBase) -> list[Definition]:
    """Public functions and ``forward`` methods nearest to the kernels that are launched most, one a folder; attention
    and what else runs in prefill and decode comes first."""
    launches: dict[str, int] = {}
    for launch in base.facts.launches:
        if base.is_own(launch.place.file):
            folder = launch.place.file.rpartition("/")[0]
            launches[folder] = launches.get(folder, 0) + 1
    best: dict[str, tuple[tuple[int, int, int, int], Definition]] = {}
    for each in base.definitions:
        folder = each.place.file.rpartition("/")[0]
        if folder not in launches or "." in each.qualname or each.kind != "function" or each.name.startswith("_"):
            continue
        if re.search(r"kernel|_bwd|backward|naive|_ref\b|reference|test|bench|torch_", each.name):
            continue
        importers = base.imported_by(each)
        rank = (_phase(each.name), importers, launches[folder], -each.place.line)
        if importers and (folder not in best or rank > best[folder][0]):
            best[folder] = rank, each
    ranked = sorted(best.values(), key=lambda item: (-item[0][0], -item[0][1], -item[0][2], item[1].place.file))
    return [each for _, each in ranked]


def _phase(name: str) -> int:
    """2 for what is named by a phase of inference, 1 for attention."""
    if re.search(r"recurrent|decod|prefill|decoding|paged", name):
        return 2
    return 1 if re.search(r"attn|attention|chunk", name) else 0
