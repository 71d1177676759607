"""A summary of a few families, one of each status and cause, with texts that must not become markup."""

from __future__ import annotations

from typing import Any

from lmp.records import ZooEntry, ZooRun, ZooSummary

HOSTILE = "</td></script><img src=http://127.0.0.1:9/x onerror='window.intruder=1'>|`[x](javascript:y)"
PLACE = "transformers/src/transformers/models/mamba/modeling_mamba.py:123"
TOTALS = {"flops": 22_000_000_000, "matmul_flops": 21_000_000_000, "read": 500_000_000, "write": 100_000_000,
          "parameters_count": 124_439_808}  # fmt: skip
LARGE = {"flops": 22_000_000_001, "matmul_flops": 1, "read": 1, "write": 1, "parameters_count": 9_007_199_254_740_993}


def entry(family: str, status: str = "verified", **given: Any) -> ZooEntry:
    class_name = f"transformers.models.{family}.modeling_{family}.{family.title()}ForCausalLM"
    return ZooEntry(**{"family": family, "task": "causal-lm", "class_name": class_name, "status": status, **given})


def entries() -> list[ZooEntry]:
    took = {"seconds": 12.25, "cpu_seconds": 10.0, "peak_bytes": 1_500_000_000, "stored_bytes": 100_000}
    phases = ["prefill", "decode", "chunked prefill"]
    return [
        entry("gpt2", totals=TOTALS, phases=phases, classes=9, pinned=["n_layer = 12"], **took),
        entry("llama", totals=LARGE, phases=phases, seconds=2.0, cpu_seconds=30.0, peak_bytes=7, stored_bytes=300_000),
        entry("mamba", "failed", cause="lmp", reason="read is 7 by formula and 9 executed", place=PLACE, **took),
        entry("xlstm", "error", cause="dependency", reason="the package xlstm is not installed", class_name=None),
        entry("rwkv", "unverified", cause="lmp", reason=HOSTILE, adjustments=[HOSTILE], decisions=2),
        entry("zamba", "stopped", cause="config", reason="it ran for longer than 600 s", task="base"),
    ]


def summary(**given: Any) -> ZooSummary:
    found = given.pop("entries", entries())
    filled: dict[str, Any] = {
        "task": "causal-lm",
        "lmp": "0.1.0",
        "sources": {"transformers": "5.23.0", "torch": "2.13.0"},
        "dtype": "bfloat16",
        "attention": "sdpa",
        "families": 8,
        "verified": 2,
        "not_run": ["bloom", "arcee"],
        "run": ZooRun(workers="2 processes", wall_seconds=120.0, made=6, parent_peak_bytes=300_000_000),
        "entries": found,
        **given,
    }
    return ZooSummary(**filled)
