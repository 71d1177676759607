"""Compile one matmul in triton without a GPU, for three generations of tensor cores: triton_aot.py [FOLDER].

Prints which tensor instructions PTX and SASS hold; writes the cubins into FOLDER. Needs the triton wheel (pip install
triton); it brings its own ptxas.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TARGETS = (80, 90, 100)
TENSOR_PTX = re.compile(r"\b((?:mma\.sync|wgmma\.mma_async|tcgen05\.mma|tcgen05\.ld|ldmatrix|cp\.async\.)\S*)")
TENSOR_SASS = re.compile(r"\b(\w*HMMA\S*|\w*GMMA\S*|LDSM\S*|LDGSTS\S*|UTMALDG\S*|LDTM\S*)")
SHOWN = 6


def kernel(triton: Any, tl: Any) -> Any:
    @triton.jit
    def matmul(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
        rows = tl.program_id(0) * M + tl.arange(0, M)
        cols = tl.program_id(1) * N + tl.arange(0, N)
        depth = tl.arange(0, K)
        total = tl.zeros((M, N), dtype=tl.float32)
        for k in range(0, n, K):
            left = tl.load(a + rows[:, None] * n + (k + depth)[None, :])
            right = tl.load(b + (k + depth)[:, None] * n + cols[None, :])
            total = tl.dot(left, right, total)
        tl.store(c + rows[:, None] * n + cols[None, :], total)

    return matmul


def sass(cubin: bytes) -> str:
    from cuda_tool import find

    tool = find("cuobjdump")
    if tool is None:
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "--dump-sass", file.name], capture_output=True, text=True, check=False).stdout


def counted(pattern: re.Pattern[str], text: str) -> str:
    found = Counter(name.rstrip(";") for name in pattern.findall(text))
    return ", ".join(f"{name} x{count}" for name, count in found.most_common(SHOWN)) or "none"


def main() -> None:
    try:
        import triton
        import triton.language as tl
    except ImportError:
        sys.exit("triton: not installed; pip install triton (a wheel of 286 MB)")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # The kernel is compiled from its source in this file, which names tl as a global.
    globals()["tl"] = tl
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "n": "i32"}
    sizes = {"M": 128, "N": 128, "K": 64}
    divisible = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    print(f"triton {triton.__version__}: matmul with tiles of 128 x 128 x 64, fp16, fp32 sums, 4 warps")
    for arch in TARGETS:
        signature = {**types, **dict.fromkeys(sizes, "constexpr")}
        source = ASTSource(fn=kernel(triton, tl), signature=signature, constexprs=sizes, attrs=divisible)
        made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 4})
        if folder is not None:
            (folder / f"triton_{arch}.cubin").write_bytes(made.asm["cubin"])
        print(f"@@sm_{arch}  shared_bytes={made.metadata.shared}")
        print(f"ptx   {counted(TENSOR_PTX, made.asm['ptx'])}")
        print(f"sass  {counted(TENSOR_SASS, sass(made.asm['cubin']))}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
