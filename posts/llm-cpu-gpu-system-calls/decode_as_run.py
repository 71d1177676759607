"""Prefill and decode of a transformers Llama with four layers and random weights: one JSON line a phase."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from markers import mark

HERE = Path(__file__).resolve().parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=HERE / "four_layers.json")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[1], help="sequences; several are run one after the other"
    )
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--steps", type=int, default=32, help="decode steps")
    parser.add_argument("--warmup", type=int, default=4, help="decode steps before the measured ones")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"))
    parser.add_argument("--smaps", action="store_true", help="print what /proc/self/smaps_rollup says after each phase")
    parser.add_argument("--profile", action="store_true", help="print torch.profiler's table of the decode steps")
    return parser.parse_args()


def build(options: argparse.Namespace) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = LlamaConfig.from_json_file(options.config)
    config._attn_implementation = options.attention
    model = LlamaForCausalLM(config).to(getattr(torch, options.dtype)).to(options.device)
    return model.eval()


class Run:
    """One prompt and its decode steps, each timed with the device idle before and after."""

    def __init__(self, model: Any, options: argparse.Namespace, batch: int) -> None:
        import torch
        from transformers import DynamicCache

        self.torch, self.model, self.options = torch, model, options
        shape = (batch, options.prompt)
        self.ids = torch.randint(0, model.config.vocab_size, shape, device=options.device)
        self.cache = DynamicCache()

    def forward(self) -> float:
        start = self.clock()
        output = self.model(self.ids, past_key_values=self.cache, use_cache=True)
        self.ids = output.logits[:, -1:].argmax(-1)
        return self.clock() - start

    def clock(self) -> float:
        if self.options.device != "cpu":
            self.torch.cuda.synchronize()
        return time.perf_counter()


def smaps(phase: str) -> None:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        print(phase, line)


def report(phase: str, batch: int, times: list[float], options: argparse.Namespace, **more: object) -> None:
    milliseconds = [1e3 * t for t in times]
    row = {
        "phase": phase,
        "batch": batch,
        "threads": options.threads,
        "dtype": options.dtype,
        "calls": len(times),
        "median_ms": round(statistics.median(milliseconds), 3),
        "min_ms": round(min(milliseconds), 3),
        "max_ms": round(max(milliseconds), 3),
    }
    print(json.dumps({**row, **more}), flush=True)


def decode(run: Run, options: argparse.Namespace) -> list[float]:
    if not options.profile:
        return [run.forward() for _ in range(options.steps)]
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if options.device != "cpu" else [])
    with profile(activities=activities, record_shapes=True, with_flops=True) as profiler:
        times = [run.forward() for _ in range(options.steps)]
    order = "self_cpu_time_total" if options.device == "cpu" else "self_device_time_total"
    print(profiler.key_averages().table(sort_by=order, row_limit=12, max_name_column_width=40))
    return times


def measure(model: Any, options: argparse.Namespace, batch: int) -> None:
    """Prefill and decode at one batch size, with their lines."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    Run(model, options, batch).forward()  # the first call sets up libraries: it is no part of the measured prefill
    run = Run(model, options, batch)
    if options.smaps:
        smaps("before")
    mark("prefill")
    report("prefill", batch, [run.forward()], options, tokens=batch * options.prompt)
    if options.smaps:
        smaps("prefill")
    for _ in range(options.warmup):
        run.forward()
    mark("decode")
    times = decode(run, options)
    mark("end")
    report("decode", batch, times, options, cache=options.prompt + options.warmup, weight_bytes=weights)
    if options.smaps:
        smaps("decode")


def main() -> None:
    options = arguments()
    mark("import")
    import torch

    mark("build")
    model = build(options)
    with torch.inference_mode():
        for batch in options.batch:
            measure(model, options, batch)


if __name__ == "__main__":
    main()
