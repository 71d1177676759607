"""The operators of a kernel library: functions that lead to launches of kernels, and that others take by name."""

from __future__ import annotations

import math
import re

from lmp.codebase.facts import Definition
from lmp.report.repository.code_base import CodeBase

WHOLE = 4.0
"""What an operator with its gradient counts more than a step of one."""


def operators(base: CodeBase) -> list[Definition]:
    """Public functions that lead to the kernels of a file, one a file that launches some: those of the largest kernels
    that most files take first."""
    lines = _kernel_lines(base)
    applied = _applied(base)
    found: list[tuple[float, Definition]] = []
    for file, size in lines.items():
        if _ASIDE.search(file):
            continue
        own = [each for each in base.by_file.get(file, ()) if _is_public(each)]
        functions = [each for each in base.by_file.get(file, ()) if each.kind == "class" and each.name in applied]
        users = [user for each in functions for user in applied[each.name] if not _ASIDE.search(user.place.file)]
        # Who runs the autograd function, which has its inputs and its gradient; else who starts the kernels.
        candidates = users or [each for each in own if base.imported_by(each)]
        if not candidates:
            continue
        best = max(candidates, key=lambda each: (base.imported_by(each), -len(each.name), each.place.file))
        # The classes around an autograd function are what a library is used by.
        taken = len({name for each in [best, *functions, *own] for name in base.importing(each)})
        found.append((math.log2(1 + size) + 2 * math.log2(1 + taken) + (WHOLE if users else 0), best))
    found.sort(key=lambda item: (-item[0], item[1].place.file, item[1].place.line))
    by_name: dict[str, Definition] = {}
    for _, each in found:
        by_name.setdefault(each.name, each)
    return list(by_name.values())


_ASIDE = re.compile(r"ascend|npu|xpu|backends?/|_lib/|utils?[./]|experimental|diffus")
_NOT_PUBLIC = re.compile(r"^_|kernel|_bwd|backward|naive|_ref\b|reference|test|bench|torch_")


def _is_public(each: Definition) -> bool:
    return each.kind == "function" and "." not in each.qualname and _NOT_PUBLIC.search(each.name) is None


def _kernel_lines(base: CodeBase) -> dict[str, int]:
    """File that launches kernels -> lines of these."""
    kernels = {kernel.place: kernel for kernel in base.facts.kernels}
    started: dict[str, set[object]] = {}
    lines: dict[str, int] = {}
    for launch in base.facts.launches:
        file = launch.place.file
        if not base.is_own(file) or launch.of in started.setdefault(file, set()):
            continue
        started[file].add(launch.of)
        kernel = kernels.get(launch.of) if launch.of is not None else None
        lines[file] = lines.get(file, 0) + (kernel.end - kernel.place.line if kernel is not None else 1)
    return lines


def _applied(base: CodeBase) -> dict[str, list[Definition]]:
    """Autograd function -> the public functions that run it."""
    found: dict[str, list[Definition]] = {}
    for file in base.signs:
        if not file.endswith(".py"):
            continue
        for number, line in enumerate(base.lines(file), 1):
            match = re.search(r"\b(\w+)\.apply\(", line) if ".apply(" in line else None
            user = base.around(file, number) if match else None
            if match and user is not None and _is_public(user):
                found.setdefault(match[1], []).append(user)
    return found
