"""Product of two square matrices in torch: what the library that torch was built with reaches. One JSON line."""

from __future__ import annotations

import argparse
import json
import time

from markers import mark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=512)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    a, b = (torch.randn(options.n, options.n).to(getattr(torch, options.dtype)) for _ in range(2))
    times = []
    mark("prefill")
    with torch.inference_mode():
        for _ in range(options.repeats + 1):
            start = time.perf_counter()
            torch.mm(a, b)
            times.append(time.perf_counter() - start)
    mark("end")
    best = min(times[1:])
    row = {"version": "torch", "n": options.n, "dtype": options.dtype, "best_ms": round(1e3 * best, 3)}
    print(json.dumps({**row, "gflops": round(2e-9 * options.n**3 / best, 3)}))


if __name__ == "__main__":
    main()
