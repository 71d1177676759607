"""Times in turns, in one process: reading a model's weights, its matrix products alone, and its decode step.

floor.py LIBRARY [--dtype float32]     LIBRARY is floor.c, compiled
floor.py LIBRARY --sweep               read bandwidth by working set

Times are CPU times of the thread: on a busy machine they leave out the waiting for a CPU, and elapsed times do not.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--config", type=Path, default=HERE / "four_layers.json")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8], help="sequences of a decode step")
    parser.add_argument("--rows", type=int, nargs="*", default=[16, 32, 64, 128], help="rows of products alone")
    return parser.parse_args()


def loaded(library: Path) -> Any:
    read = ctypes.CDLL(str(library)).read_words
    read.argtypes, read.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t), ctypes.c_uint64
    return read


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """CPU and elapsed milliseconds of one call."""
    cpu, elapsed = time.thread_time(), time.perf_counter()
    action()
    return 1e3 * (time.thread_time() - cpu), 1e3 * (time.perf_counter() - elapsed)


def row(what: str, batch: int, times: list[tuple[float, float]], **more: object) -> None:
    cpu, elapsed = zip(*times, strict=True)
    figures = {
        "what": what,
        "batch": batch,
        "cpu_ms": round(statistics.median(cpu), 3),
        "least_ms": round(min(cpu), 3),
        "most_ms": round(max(cpu), 3),
        "elapsed_ms": round(statistics.median(elapsed), 3),
    }
    print(json.dumps({**figures, **more}), flush=True)


def sweep(read: Any) -> None:
    import torch

    words = torch.arange(1 << 26)
    for shift in range(14, 30):
        size = 1 << shift
        rounds = max(1, (1 << 29) // size)
        cpu = min(timed(lambda: read(words.data_ptr(), size, rounds))[0] for _ in range(5))
        print(json.dumps({"bytes": size, "GB_s": round(1e-6 * size * rounds / cpu, 2)}), flush=True)


def compare(read: Any, options: argparse.Namespace) -> None:
    import torch
    from torch.nn.functional import linear
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    config = LlamaConfig.from_json_file(options.config)
    config._attn_implementation = "sdpa"
    model = LlamaForCausalLM(config).to(dtype).eval()
    weights = [module.weight for module in model.modules() if isinstance(module, torch.nn.Linear)]
    total = sum(w.numel() * w.element_size() for w in weights)

    def read_all() -> None:
        for w in weights:
            read(w.data_ptr(), w.numel() * w.element_size(), 1)

    def products(rows: int) -> Callable[[], None]:
        inputs = {w.shape[1]: torch.ones(rows, w.shape[1], dtype=dtype) for w in weights}

        def run() -> None:
            for w in weights:
                linear(inputs[w.shape[1]], w)

        return run

    def decode(batch: int) -> Callable[[], None]:
        cache = DynamicCache()
        ids = torch.randint(0, config.vocab_size, (batch, options.prompt))
        model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

        def step() -> None:
            model(ids[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)

        return step

    square = torch.ones(1024, 1024, dtype=dtype)
    reads, squares = [], []
    for batch in options.batch:
        actions = {"products": products(batch), "step": decode(batch)}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
        for turn in range(options.rounds + 1):
            times = {name: timed(action) for name, action in actions.items()}
            pair = timed(read_all), timed(lambda: square @ square)
            if turn:  # the first turn sets up libraries
                for name, value in times.items():
                    taken[name].append(value)
                reads.append(pair[0])
                squares.append(pair[1])
        for name, values in taken.items():
            row(name, batch, values)
    for rows in options.rows:
        action = products(rows)
        row("products", rows, [timed(action) for _ in range(4)][1:])
    row("read", 0, reads, weight_bytes=total, products=len(weights))
    row("square", 1024, squares, flops=2 * 1024**3)


def main() -> None:
    options = arguments()
    read = loaded(options.library)
    import torch

    with torch.inference_mode():
        if options.sweep:
            sweep(read)
        else:
            compare(read, options)


if __name__ == "__main__":
    main()
