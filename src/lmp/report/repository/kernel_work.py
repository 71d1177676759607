"""What a kernel's own text does: loads and stores by level of memory, products, barriers. Nothing is run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lmp.codebase.facts import Kernel
from lmp.report.repository.code_base import CodeBase

TRITON = {
    "loads from global memory": r"\btl\.load\(",
    "stores to global memory": r"\btl\.store\(|\btl\.atomic_\w+\(",
    "products on tensor cores": r"\btl\.dot\(",
    "barriers": r"\btl\.debug_barrier\(",
}
CUDA = {
    "loads through shared memory": r"\bcp_async|\bldmatrix|\bcp\.async",
    "shared arrays": r"\b__shared__\b|\bextern\s+__shared__|\bsmem\b",
    "products on tensor cores": r"\bmma\w*|\bwmma\b|\bwgmma\w*",
    "stores of whole vectors": r"\bfloat4\b|\bint4\b|\bcast_store\b|\bvec_t\b",
    "exchange between registers of a warp": r"\b__shfl_\w+",
    "barriers": r"\b__syncthreads\b|\b__syncwarp\b|\bcp_async_wait\w*",
}
METAL = {
    "threadgroup arrays": r"\bthreadgroup\b",
    "exchange between registers of a group": r"\bsimd_\w+",
    "barriers": r"\bthreadgroup_barrier\b",
}
LANGUAGES = {"triton": TRITON, "cuda": CUDA, "metal": METAL}


@dataclass(frozen=True)
class Work:
    counts: dict[str, int]
    """How often each stands in the kernel's lines."""

    @property
    def multiplies(self) -> bool:
        return bool(self.counts.get("products on tensor cores"))


def work_of(base: CodeBase, kernel: Kernel) -> Work:
    """Counted on the kernel's own lines; what it calls is not gone into."""
    text = "\n".join(base.lines(kernel.place.file)[kernel.place.line - 1 : kernel.end])
    patterns = LANGUAGES.get(kernel.language, {})
    return Work({name: number for name, pattern in patterns.items() if (number := len(re.findall(pattern, text)))})
