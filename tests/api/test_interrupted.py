"""A cell that is interrupted in the middle of an analysis: the results folder stays whole, and the next call works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lmp.store.results import read_result

ROOT = Path(__file__).parents[2]

CELLS = """
import os, signal, sys, threading, time
from pathlib import Path
import torch
import lmp
config, results = sys.argv[1], Path(sys.argv[2])


def interrupt():
    # Once the first classes are stored, while others are derived: what Jupyter does on "interrupt".
    while len(list(results.glob("*/module_analysis.json"))) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background starts without it
before = torch.get_default_dtype(), list(sys.path), dict(os.environ), torch.get_rng_state().tolist()
threading.Thread(target=interrupt, daemon=True).start()
try:
    lmp.model(config)
except KeyboardInterrupt:
    print("interrupted", len(list(results.glob("*/module_analysis.json"))))
assert before == (torch.get_default_dtype(), list(sys.path), dict(os.environ), torch.get_rng_state().tolist())
kept = {str(file): file.read_bytes() for file in results.glob("*/*.json")}
m = lmp.model(config)
assert all(Path(name).read_bytes() == text for name, text in kept.items())
print(m.status, m.prefill(batch=2, tokens=8)["matmul_flops"].tolist())
"""


def test_an_interrupted_cell(tmp_path: Path, transformers_tree: Path, process: None) -> None:
    config = ROOT / "tests" / "data" / "configs" / "small-llama.json"
    results = tmp_path / "results"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LMP_RESULTS": str(results)}
    done = subprocess.run(
        [sys.executable, "-c", CELLS, str(config), str(results)],
        capture_output=True, text=True, env=environment, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    word, stored = first.split()
    assert word == "interrupted"
    files = sorted(results.glob("*/module_analysis.json"))
    assert 2 <= int(stored) < len(files)  # some were made before, and the others by the next call
    for file in files:
        read_result(file)  # raises for a file that is not whole
    content = json.loads(config.read_text(encoding="utf-8"))
    hidden, inner, layers = content["hidden_size"], content["intermediate_size"], content["num_hidden_layers"]
    heads, kv = content["num_attention_heads"], content["num_key_value_heads"]
    width = content.get("head_dim") or hidden // heads
    layer = 2 * hidden * heads * width + 2 * hidden * kv * width + 3 * hidden * inner
    tokens = 2 * 8
    flops = 2 * tokens * (layers * layer + hidden * content["vocab_size"]) + 2 * 4 * layers * heads * width * 8 * 8
    assert second == f"verified [{flops}]"
