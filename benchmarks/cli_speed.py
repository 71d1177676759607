"""How long commands take, as ratios to what they cannot do without, measured in one run.

    .venv/bin/python benchmarks/cli_speed.py [--quick]

Best of several interleaved runs each: noise only ever adds. Ends with 1 when a ratio is above its limit. ``--quick``
measures `lmp --help` alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

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
    met = True
    for timed, base, limit in ratios:
        ratio = timed.best / base.best
        met = met and ratio <= limit
        print(f"{timed.name}: {timed.best:.3f} s, {ratio:.2f} x {base.name} ({base.best:.3f} s), limit {limit} x")
    print("all within their limits" if met else "TOO SLOW")
    return 0 if met else 1


def _interleaved(rounds: int, *commands: Timed) -> None:
    """In turns, so that a slow minute of the machine hits all of them."""
    for _ in range(rounds):
        for command in commands:
            command.run()


if __name__ == "__main__":
    sys.exit(main())
