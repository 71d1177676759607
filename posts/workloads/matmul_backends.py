"""Product of two square matrices in torch by the library behind it: GFLOP/s of one thread, error against float64.

matmul_backends.py N REPEATS WAY...    ways: highest, medium (float32 precision of torch), bfloat16

Times are processor times of the thread. The error is the largest difference over the largest element.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit((__doc__ or "").strip())
    n, repeats, ways = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    a, b = torch.randn(n, n), torch.randn(n, n)
    exact = a.double() @ b.double()
    for way in ways:
        torch.set_float32_matmul_precision("medium" if way == "medium" else "highest")
        x, y = (a.bfloat16(), b.bfloat16()) if way == "bfloat16" else (a, b)
        times = []
        with torch.inference_mode():
            for _ in range(repeats + 1):
                start = time.thread_time()
                c = torch.mm(x, y)
                times.append(time.thread_time() - start)
        best = min(times[1:])
        error = float((c.double() - exact).abs().max() / exact.abs().max())
        print(f"{way:<10} n {n}  ms {1e3 * best:8.3f}  GFLOP/s {2e-9 * n**3 / best:8.2f}  error {error:.1e}")


if __name__ == "__main__":
    main()
