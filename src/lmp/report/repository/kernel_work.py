"""What a kernel's own text does: loads and stores by level of memory, products, barriers. Nothing is run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lmp.codebase.facts import Kernel
from lmp.report.document.parts import Block, Fence, Inline
from lmp.report.repository.code_base import CodeBase

LOAD, STORE, SHARED = "loads from global memory", "stores to global memory", "uses of shared memory"
PRODUCT, EXCHANGE, BARRIER = "products on tensor cores", "exchanges between registers of a warp", "barriers"
LANGUAGES = {
    "triton": {
        LOAD: r"\btl\.load\(|\.load\(",
        STORE: r"\btl\.store\(|\btl\.atomic_\w+\(|\.store\(",
        PRODUCT: r"\btl\.dot(?:_scaled)?\(",
        BARRIER: r"\btl\.debug_barrier\(",
    },
    "cuda": {
        LOAD: r"\b__ldg\(|\bcp_async\w*|\bcp\.async\w*|\.(?:cast_)?load\(|\btma_load\w*",
        STORE: r"\.(?:cast_)?store\(|\batomic\w+\(|\btma_store\w*",
        SHARED: r"\b__shared__\b|\bldmatrix\w*",
        PRODUCT: r"\bmma_\w+|\bwmma\b|\bwgmma\w*|\bmma\.sync\b|\bmma\(",
        EXCHANGE: r"\b__shfl\w*\(|\bwarp_reduce\w*",
        BARRIER: r"\b__syncthreads\b|\b__syncwarp\b|\bcp_async_wait\w*|\bbar\.sync\b",
    },
    "metal": {SHARED: r"\bthreadgroup\b", EXCHANGE: r"\bsimd_\w+", BARRIER: r"\bthreadgroup_barrier\b"},
    "cute": {
        LOAD: r"\bcute\.copy\(|\bcp_async\w*|\btma_load\w*|\.load\(",
        STORE: r"\btma_store\w*|\.store\(|\bcute\.autovec_copy\(",
        SHARED: r"\bsmem\.allocate\w*|\ballocate_tensor\(|\bget_dyn_smem\(|\bSmemAllocator\(",
        PRODUCT: r"\bcute\.gemm\(|\btcgen05\.mma\w*|\bmma_\w+\(",
        EXCHANGE: r"\bshuffle_sync\w*|\bwarp_reduc\w+",
        BARRIER: r"\bsync_threads\(|\bbarrier\w*\(|\bcp_async_wait\w*|\.arrive_and_wait\(",
    },
    "cutile": {
        LOAD: r"\bct\.(?:load|gather)\(",
        STORE: r"\bct\.(?:store|scatter|atomic_\w+)\(",
        PRODUCT: r"\bct\.mma\(",
    },
    "pallas": {
        LOAD: r"\bpl\.load\(|\bmake_async_copy\(|\b\w+_ref\[[^\]]*\](?!\s*=[^=])",
        STORE: r"\bpl\.store\(|\b\w+_ref\[[^\]]*\]\s*=[^=]",
        PRODUCT: r"\b(?:jnp\.dot|lax\.dot_general|jnp\.matmul|jnp\.einsum)\(",
        BARRIER: r"\bsemaphore_wait\(|\.wait\(",
    },
}  # fmt: skip
"""Language -> what is counted, and the calls that do it. In CUDA and Metal a plain read of a pointer shows no call."""


@dataclass(frozen=True)
class Work:
    counts: dict[str, int]
    """How often each stands in the kernel's lines."""

    @property
    def multiplies(self) -> bool:
        return bool(self.counts.get(PRODUCT))


def work_of(base: CodeBase, kernel: Kernel) -> Work:
    """Counted on the kernel's own lines; what it calls is not gone into."""
    lines = base.lines(kernel.place.file)[kernel.place.line - 1 : kernel.end]
    text = "\n".join(re.sub(r"(?:#|//).*", "", line) for line in lines)
    patterns = LANGUAGES.get(kernel.language, {})
    return Work({name: number for name, pattern in patterns.items() if (number := len(re.findall(pattern, text)))})


def hierarchy(worked: Sequence[tuple[Kernel, Work]]) -> Block:
    """The levels of memory, with how many kernels move data between them, by the calls in their own lines."""
    kernels: Counter[str] = Counter(name for _, work in worked for name in work.counts)
    calls: Counter[str] = Counter()
    for _, work in worked:
        calls.update(work.counts)

    def moved(name: str, otherwise: str) -> str:
        if not kernels[name]:
            return otherwise
        return f"{calls[name]} {name} in {kernels[name]} of {len(worked)} kernels"

    lines = [
        "Global memory (HBM)",
        f"       | load:    {moved(LOAD, 'no call that loads was found')}",
        f"Shared memory (SRAM): {moved(SHARED, 'no use of it was found; compilers of tiles place it themselves')}",
        "       |",
        f"Registers: {moved(EXCHANGE, 'no exchange between lanes was found')}",
        f"       | compute: {moved(PRODUCT, 'no product on tensor cores was found')}",
        f"       | wait:    {moved(BARRIER, 'no barrier was found')}",
        f"       | store:   {moved(STORE, 'no call that stores was found')}",
        "Global memory (HBM)",
    ]
    pieces: list[Inline] = ["\n".join(lines) + "\n"]
    return Fence(pieces, "text")
