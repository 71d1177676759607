"""Measures the time of commands, as ratios to the time of their unavoidable parts, in one run.

    .venv/bin/python benchmarks/cli_speed.py [--quick]

Each number is the best of several interleaved runs, because noise only adds time. Ends with 1 if a ratio exceeds its
limit. ``--quick`` measures only `lmp --help`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

CLASS = "transformers.models.llama.modeling_llama.LlamaMLP"
MODEL = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
IMPORTS = "import torch, transformers.models.llama.modeling_llama"
LMP = [sys.executable, "-m", "lmp"]


@dataclass
class Timed:
    """A command and its best time in seconds."""

    name: str
    command: list[str]
    best: float = field(default=float("inf"))

    def run(self) -> None:
        start = time.perf_counter()
        done = subprocess.run(self.command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{self.name} failed ({done.returncode}): {done.stderr.strip()}")
        self.best = min(self.best, time.perf_counter() - start)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="lmp-speed-") as folder:
        return measure(["--results", folder, "--quiet"])


def measure(results: list[str]) -> int:
    libraries = Timed("import typer, rich", [sys.executable, "-c", "import typer, rich"])
    help_page = Timed("lmp --help", [*LMP, "--help"])
    _interleaved(20, libraries, help_page)
    ratios = [(help_page, libraries, 1.5)]
    if "--quick" not in sys.argv:
        imports = Timed("import torch and LlamaMLP's module", [sys.executable, "-c", IMPORTS])
        cold = Timed("analyze-module LlamaMLP, cold", [*LMP, "analyze-module", CLASS, "--fresh", *results])
        again = Timed("the same from the store", [*LMP, "analyze-module", CLASS, *results])
        _interleaved(5, imports, cold, again)
        ratios += [(cold, imports, 2.0), (again, imports, 0.25)]
        whole = Timed("expand LlamaForCausalLM, cold", [*LMP, "expand", MODEL, "--fresh", *results])
        stored = Timed("the same from the store", [*LMP, "expand", MODEL, *results])
        _interleaved(3, imports, whole, stored)
        ratios += [(whole, imports, 2.5), (stored, imports, 0.25)]
        few, many = (_of_layers(number, results) for number in (32, 128))
        _interleaved(3, few, many)
        ratios += [(many, few, 1.2)]
    met = True
    for timed, base, limit in ratios:
        ratio = timed.best / base.best
        met = met and ratio <= limit
        print(f"{timed.name}: {timed.best:.3f} s, {ratio:.2f} x {base.name} ({base.best:.3f} s), limit {limit} x")
    print("all within their limits" if met else "TOO SLOW")
    return 0 if met else 1


def _of_layers(number: int, results: list[str]) -> Timed:
    """A cold expand of Llama with so many layers, which are alike: their number must not matter."""
    config = Path(results[1]) / f"{number}-layers.json"
    config.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": number}))
    command = [*LMP, "expand", MODEL, "--config", str(config), "--fresh", *results]
    return Timed(f"expand with {number} layers, cold", command)


def _interleaved(rounds: int, *commands: Timed) -> None:
    """In turns, so that a slow minute of the machine hits all of them."""
    for _ in range(rounds):
        for command in commands:
            command.run()


if __name__ == "__main__":
    sys.exit(main())
