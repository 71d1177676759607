"""Measures the evaluation of an expanded model, against FlopCounterMode's run of it and in a sweep of a million points.

    .venv/bin/python benchmarks/evaluate_speed.py

Everything is measured in one run. Ends with 1 if a limit is missed.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options
from lmp.link.numbers import ModelNumbers
from lmp.link.sweep import plan
from lmp.link.values import values_for

CLASS = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
FASTER = 1000
SWEEPS = {
    "batch_size x seq_len": {"batch_size": range(1, 101), "seq_len": range(1, 10_001)},
    "batch_size x cache_len, decode": {"batch_size": range(1, 101), "seq_len": (1,), "cache_len": range(1, 10_001)},
    "three axes": {"batch_size": range(1, 101), "seq_len": range(1, 101), "cache_len": range(0, 1_000, 10)},
    "hidden_size x seq_len": {"batch_size": (1,), "hidden_size": range(128, 128_001, 128), "seq_len": range(1, 1_001)},
}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="lmp-speed-") as folder:
        model = expand_model(CLASS, Options(results=Path(folder)), lambda name, stage: None).model
        met = compare(ModelNumbers(model))
        for title, axes in SWEEPS.items():
            sweep(ModelNumbers(model), title, axes)  # type: ignore[arg-type]
        command_line(folder)
    print("within the limit" if met else "TOO SLOW")
    return 0 if met else 1


def compare(numbers: ModelNumbers) -> bool:
    """One more evaluation against one more run on the meta device, at the same point and with the same matmul FLOPs."""
    values = values_for(numbers.model, {"batch_size": 2, "seq_len": 128})
    counted, run = counter(values["batch_size"], values["seq_len"])
    totals = numbers.totals(values)
    assert totals.matmul_flops == counted, (totals.matmul_flops, counted)
    one = best(lambda: numbers.totals(values), 2_000)
    numbers.tree(values)
    tree = best(lambda: numbers.tree(values), 200)
    counter_run = best(run, 3)
    layers = values["num_hidden_layers"]
    print(f"FlopCounterMode, LlamaForCausalLM with {layers} layers on meta: {counter_run * 1e3:.0f} ms")
    print(f"lmp, its totals once more:       {one * 1e3:.3f} ms, {counter_run / one:,.0f} x faster, limit {FASTER} x")
    print(f"lmp, every module and operator:  {tree * 1e3:.3f} ms, {counter_run / tree:,.0f} x faster")
    return counter_run / one >= FASTER


def counter(batch_size: int, seq_len: int) -> tuple[int, Callable[[], object]]:
    """Matmul FLOPs as torch counts them, and the run that counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig()).to(torch.bfloat16).eval()
        ids = torch.zeros((batch_size, seq_len), dtype=torch.long)

    def run() -> int:
        with FlopCounterMode(display=False) as mode, torch.no_grad():
            model(ids)
        return int(mode.get_total_flops())

    return run(), run


def sweep(numbers: ModelNumbers, title: str, axes: dict[str, range]) -> None:
    planned = plan(numbers.model, axes)
    start = time.perf_counter()
    points = sum(len(chunk) for chunk in planned.chunks(numbers))
    seconds = time.perf_counter() - start
    tracemalloc.start()
    for _ in planned.chunks(numbers):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    rate = points / seconds / 1e6
    print(f"sweep, {title}: {points:,} points in {seconds:.2f} s, {rate:.1f} M points/s, peak {peak / 1e6:.0f} MB")


def command_line(folder: str) -> None:
    """The whole command, with every row written to a file."""
    sizes = ["--batch-size", "1:100", "--seq-len", "1:10000", "--results", folder, "--quiet"]
    for name in ("csv", "json", "parquet"):
        output = Path(folder) / f"rows.{name}"
        start = time.perf_counter()
        command = [sys.executable, "-m", "lmp", "evaluate", CLASS, *sizes, "--format", name, "--output", str(output)]
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        print(f"lmp evaluate, a million rows of {name}: {seconds:.1f} s, {output.stat().st_size / 1e6:.0f} MB")
    with open(Path(folder) / "rows.csv", newline="") as rows, open(Path(folder) / "rows.json") as lines:
        assert all(
            int(row["flops"]) == json.loads(line)["flops"]
            for row, line in zip(csv.DictReader(rows), lines, strict=True)
        )


def best(work: Callable[[], object], times: int) -> float:
    found = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - start)
    return found


if __name__ == "__main__":
    sys.exit(main())
