"""Measures the CPU time of expanding models, with the sources of one checkout against those of another.

    .venv/bin/python benchmarks/derive_speed.py OTHER_CHECKOUT [CLASS ...]

Each model is expanded by both alternately, in a separate process without stored results. torch and the model's own file
are imported before the measurement. The two times of a ratio are measured within minutes on the same machine. The
resulting formulas are compared too. Ends with 1 if they differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
MODELS = "transformers.models"
CLASSES = (
    f"{MODELS}.arcee.modeling_arcee.ArceeForCausalLM",
    f"{MODELS}.gemma2.modeling_gemma2.Gemma2ForCausalLM",
    f"{MODELS}.qwen3_moe.modeling_qwen3_moe.Qwen3MoeForCausalLM",
)
ONE = """
import importlib, json, resource, sys, time
from pathlib import Path
from lmp.analyze.models import expand_model
from lmp.analyze.session import Options
from lmp.source.trees import find_trees
from lmp.workload.load import use_transformers_tree
name, folder = sys.argv[1:]
use_transformers_tree(find_trees().need("transformers").package_dir.parent)
import torch
torch.set_num_threads(1)
importlib.import_module(name.rpartition(".")[0])
import lmp.analyze.job
start = time.process_time()
expand_model(name, Options(results=Path(folder)), lambda name, stage: None)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.process_time() - start, used.ru_maxrss]))
"""
SAID = ("kernels", "assumptions", "pinned", "parameters", "parameters_count", "compulsory")
"""What has to come out the same."""


def main() -> int:
    other = Path(sys.argv[1]).resolve()
    same = True
    for name in sys.argv[2:] or CLASSES:
        with tempfile.TemporaryDirectory(prefix="lmp-speed-") as folder:
            (before, kib), theirs = expanded(other, name, Path(folder) / "other")
            (after, own_kib), own = expanded(HERE, name, Path(folder) / "own")
        short = name.rpartition(".")[2]
        print(f"{short}: {before:.1f} s there, {after:.1f} s here, {before / after:.2f} x faster", end="; ")
        print(f"{kib // 1024} MiB there, {own_kib // 1024} MiB here")
        for path in sorted(theirs.keys() | own.keys()):
            if theirs.get(path) != own.get(path):
                same = False
                print(f"  differs: {path}")
    print("the same formulas" if same else "OTHER FORMULAS")
    return 0 if same else 1


def expanded(checkout: Path, name: str, folder: Path) -> tuple[tuple[float, int], dict[str, object]]:
    """CPU seconds and KiB that it took with a checkout's sources, and what the analyses say."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", ONE, name, str(folder)]
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, check=True)
    seconds, kib = json.loads(done.stdout.splitlines()[-1])
    files = sorted(folder.rglob("module_analysis.json"))
    analyses = {str(f.relative_to(folder)): json.loads(f.read_text()) for f in files}
    return (seconds, kib), {path: [a.get(key) for key in SAID] for path, a in analyses.items()}


if __name__ == "__main__":
    sys.exit(main())
