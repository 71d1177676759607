"""Attention of one layer in torch: naive (matmul, softmax, matmul) or torch's scaled_dot_product_attention.

Under callgrind, with `--library FILE` (callgrind.c compiled), only the attention itself is counted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable

from markers import mark


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=("naive", "sdpa"))
    parser.add_argument("--tokens", type=int, default=768)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--library", help="callgrind.c as a shared library")
    return parser.parse_args()


def nothing() -> None:
    """What start and stop do outside callgrind, and wait on a CPU."""


def main() -> None:
    options = arguments()
    import torch
    from attention_modules import Naive, Sdpa

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    library = ctypes.CDLL(options.library) if options.library else None
    start: Callable[[], object] = library.start if library else nothing
    stop: Callable[[], object] = library.stop if library else nothing
    shape = (1, options.heads, options.tokens, options.head_size)
    dtype = getattr(torch, options.dtype)
    q, k, v = (torch.randn(shape).to(dtype).to(options.device) for _ in range(3))
    wait: Callable[[], object] = torch.cuda.synchronize if options.device != "cpu" else nothing
    variant = Naive() if options.variant == "naive" else Sdpa()
    times, cpu_times = [], []
    with torch.inference_mode():
        variant(q[..., :64, :], k[..., :64, :], v[..., :64, :])  # sets up threads and libraries, uncounted
        wait()
        mark("prefill")
        for _ in range(options.repeats):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            start()
            output = variant(q, k, v)
            stop()
            wait()
            times.append(time.perf_counter() - begin)
            cpu_times.append(time.process_time() - cpu_begin)
        mark("end")
    row = {
        "variant": options.variant,
        "tokens": options.tokens,
        "heads": options.heads,
        "best_ms": round(1e3 * min(times), 3),
        "cpu_ms": round(1e3 * min(cpu_times), 3),
        "cpu_median_ms": round(1e3 * statistics.median(cpu_times), 3),
        "median_ms": round(1e3 * statistics.median(times), 3),
        "sum": round(output.double().sum().item(), 3),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
