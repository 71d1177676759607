"""Counts which operators of many models have operands, and holds the FLOPs of the operands against the formulas.

    .venv/bin/python scripts/operand_coverage.py [--only TEXT] [--results DIR] > FILE

The models are those of `compare_figures.py`: families at their default config, and public configs. Each is expanded
and evaluated in processes of its own. For every model one line: operators with a cost, those with operands; operators
with a product, those with operands; edges; and the largest difference between the FLOPs from operands and the matmul
FLOPs of the formulas, over all operators and points. The exit code is 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from compare_figures import CONFIG_FILES, CONFIGS, FAMILIES, ROOT

PRODUCTS = {"matmul", "attention", "convolution", "grouped_matmul"}
POINTS = ((2, 37, 0), (3, 1, 512), (2, 16, 100))
"""Batch size, new tokens, cached tokens."""


def _products(operands: dict[str, Any]) -> int:
    """FLOPs from the operands of one operator, a multiply-add as 2 (see `lmp.records.Operands`)."""
    o = operands
    if o.get("q_len") is not None:
        return 2 * o["batch"] * o["heads"] * o["q_len"] * o["kv_len"] * (o["head_dim"] + o["v_head_dim"])
    if o.get("tokens") is not None:
        return 2 * o["tokens"] * o["top_k"] * o["n"] * o["k"]
    return 2 * o["batch"] * o["m"] * o["n"] * o["k"] if o.get("m") is not None else 0


def _basic(kernels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for kernel in kernels:
        if kernel["kernel_type"] == "basic":
            yield kernel
        yield from _basic(kernel.get("kernels", []))


def _lmp(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "lmp", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


def counted(target: list[str], results: str) -> dict[str, Any]:
    code, out, err = _lmp("expand", *target, "--json", "--quiet", "--results", results)
    if code:
        return {"exit": code, "message": (err.strip().splitlines() or [""])[0]}
    model = json.loads(out)
    costing = [
        k for k in _basic(model["kernels"]) if k["flops"] != "0" or k["memory_access"] != {"read": "0", "write": "0"}
    ]
    bias = [k for k in costing if k["operation"] == "bias addition"]
    products = [k for k in costing if k["category"] in PRODUCTS]
    found: dict[str, Any] = {
        "status": model["verification"]["status"],
        "operators": len(costing) - len(bias),
        "with_operands": sum(k.get("operands") is not None for k in costing),
        "products": len(products),
        "products_with_operands": sum(k.get("operands") is not None for k in products),
        "edges": sum(len(k.get("inputs_from", ())) for k in costing),
        "without": sorted({f"{k['line']} {k['operation']}" for k in products if k.get("operands") is None}),
    }
    difference, held = 0, 0
    for batch, new, cached in POINTS:
        sizes = ["--batch-size", str(batch), "--seq-len", str(new), "--cache-len", str(cached)]
        code, out, err = _lmp("evaluate", *target, *sizes, "--json", "--quiet", "--results", results)
        if code:
            found.setdefault("points", []).append((err.strip().splitlines() or [""])[0])
            continue
        for kernel in json.loads(out)["kernels"]:
            operands = kernel.get("operands")
            if operands and kernel["category"] in PRODUCTS:
                difference = max(difference, abs(_products(operands) - kernel["flops"]))
                held += 1
    return {**found, "held": held, "difference": difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="models with this text")
    parser.add_argument("--results", help="folder of results that may be there already")
    asked = parser.parse_args()
    targets = {
        f"families/{f}": [f"transformers.models.{f.replace('.', f'.modeling_{f.partition(chr(46))[0]}.')}"]
        for f in FAMILIES
    }
    targets |= {f"configs/{c}": ["--config", str(CONFIG_FILES / f"{c}.json")] for c in CONFIGS}
    wrong = False
    for name, target in targets.items():
        if asked.only in name:
            with tempfile.TemporaryDirectory() as folder:
                found = counted(target, asked.results or folder)
            wrong |= bool(found.get("difference"))
            print(json.dumps({"model": name, **found}), flush=True)
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
