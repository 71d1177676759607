"""Compares lmp with other counters on the same models and calls: correctness of matmul FLOPs, and time.

    python benchmarks/other_tools.py [--attn sdpa|eager] [--only CASE]

Needs the extra `benchmarks` (`pip install -e '.[benchmarks]'`, best in a separate environment). A tool that is not
installed is shown as failed. Prints Markdown. Every tool runs in a separate process, on small models on the CPU. The
models have real weights, because most tools need some. Each gets a module from token ids to logits, which all tools
accept. The reference is torch's FlopCounterMode on the meta device with lmp's rule for grouped matmuls. This is the
judge's counter.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BATCH, SEQ, CACHED = 2, 128, 127
PLACE = "transformers.models"


@dataclass(frozen=True)
class Case:
    """A model of a config, and one call of it."""

    title: str
    class_path: str
    config: dict[str, Any]
    seq_len: int = SEQ
    cache_len: int = 0


_GROUPED = {"vocab_size": 2000, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512}
_LLAMA = {**_GROUPED, "intermediate_size": 1376, "num_hidden_layers": 4}
CASES = {
    "llama": Case("Llama, prefill", f"{PLACE}.llama.modeling_llama.LlamaForCausalLM", _LLAMA),
    "llama-decode": Case("Llama, decode", f"{PLACE}.llama.modeling_llama.LlamaForCausalLM", _LLAMA, 1, CACHED),
    "mixtral": Case(
        "Mixtral, prefill",
        f"{PLACE}.mixtral.modeling_mixtral.MixtralForCausalLM",
        {
            **_GROUPED,
            "intermediate_size": 896,
            "num_hidden_layers": 2,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "gpt2": Case(
        "GPT-2, prefill",
        f"{PLACE}.gpt2.modeling_gpt2.GPT2LMHeadModel",
        {"vocab_size": 2000, "n_embd": 256, "n_layer": 4, "n_head": 4},
    ),
    "bert": Case(
        "BERT",
        f"{PLACE}.bert.modeling_bert.BertForMaskedLM",
        {
            **{"vocab_size": 2000, "num_attention_heads": 4, "hidden_size": 256},
            **{"intermediate_size": 1024, "num_hidden_layers": 4},
        },
    ),
}


# --- the tools: each takes a module and token ids, and returns what it counts in its own unit ------------------------


def calflops(module: Any, ids: Any) -> int:
    from calflops import calculate_flops

    _, macs, _ = calculate_flops(model=module, args=[ids], print_results=False, output_as_string=False)
    return int(macs)


def fvcore(module: Any, ids: Any) -> int:
    from fvcore.nn import FlopCountAnalysis

    return int(FlopCountAnalysis(module, ids).unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())


def ptflops(backend: str) -> Callable[[Any, Any], int]:
    def count(module: Any, ids: Any) -> int:
        from ptflops import get_model_complexity_info

        macs, _ = get_model_complexity_info(
            module,
            (1,),
            input_constructor=lambda _: {"ids": ids},
            as_strings=False,
            print_per_layer_stat=False,
            backend=backend,
        )
        if macs is None:
            raise RuntimeError("it gives no total (what it printed is on stderr)")
        return int(macs)

    return count


def torchinfo(module: Any, ids: Any) -> int:
    from torchinfo import summary

    return int(summary(module, input_data=[ids], verbose=0).total_mult_adds)


def deepspeed(module: Any, ids: Any) -> int:
    from deepspeed.profiling.flops_profiler import get_model_profile

    _, macs, _ = get_model_profile(model=module, args=[ids], print_profile=False, as_string=False)
    return int(macs)


def flop_counter(module: Any, ids: Any) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as mode, torch.no_grad():
        module(ids)
    return int(mode.get_total_flops())


@dataclass(frozen=True)
class Tool:
    """``factor`` makes FLOPs of its unit: 2 for multiply-adds."""

    unit: str
    factor: int
    count: Callable[[Any, Any], int]


TOOLS = {
    "calflops": Tool("MACs", 2, calflops),
    "fvcore": Tool("flops, one a multiply-add", 2, fvcore),
    "ptflops, pytorch": Tool("MACs", 2, ptflops("pytorch")),
    "ptflops, aten": Tool("MACs", 2, ptflops("aten")),
    "torchinfo": Tool("mult-adds", 2, torchinfo),
    "DeepSpeed": Tool("MACs", 2, deepspeed),
    "torch's FlopCounterMode": Tool("FLOPs", 1, flop_counter),
}


# --- one process, one tool -------------------------------------------------------------------------------------------


def built(case: Case, attention: str, device: str) -> tuple[Any, Any]:
    """The module that takes ids and returns logits, and the ids."""
    import importlib

    import torch

    place, _, name = case.class_path.rpartition(".")
    model_class = getattr(importlib.import_module(place), name)
    config = model_class.config_class(**case.config)
    config._attn_implementation = attention
    torch.manual_seed(0)
    with torch.device(device):
        model = model_class(config).eval()
        ids = torch.zeros((BATCH, case.seq_len), dtype=torch.long)
        cached = _cached(config, case.cache_len)

    class Call(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            if not cached:
                return self.model(input_ids=ids).logits
            from transformers import DynamicCache

            # Made anew: every call adds to it, and tools call the module more than once.
            weight = next(model.parameters())
            cache = DynamicCache([(key.to(weight.dtype), value.to(weight.dtype)) for key, value in cached])
            return self.model(input_ids=ids, past_key_values=cache, use_cache=True).logits

    return Call().eval(), ids


def _cached(config: Any, length: int) -> list[Any]:
    import torch

    if not length:
        return []
    size = (BATCH, config.num_key_value_heads, length, config.hidden_size // config.num_attention_heads)
    return [(torch.zeros(size), torch.zeros(size)) for _ in range(config.num_hidden_layers)]


def work(tool: str, name: str, attention: str) -> dict[str, Any]:
    start = time.perf_counter()
    case = CASES[name]
    if tool == "reference":
        return {"flops": reference(case, attention)}
    try:
        module, ids = built(case, attention, "cpu")
        ready = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            units = TOOLS[tool].count(module, ids)
    except (Exception, SystemExit) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        return {"error": f"{type(error).__name__}: {first.strip()}"}
    end = time.perf_counter()
    return {"flops": TOOLS[tool].factor * units, "count": end - ready, "all": end - start}


def reference(case: Case, attention: str) -> int:
    """What the judge's own counter says, on the meta device."""
    import torch

    from lmp.verify.counter import flop_counter_total

    module, ids = built(case, attention, "meta")
    module.to(torch.bfloat16)  # grouped matmuls have no other kind on meta; the count is the same

    def run(counter: Any) -> None:
        with torch.no_grad(), counter:
            module(ids)

    return flop_counter_total(run)


def process(tool: str, name: str, attention: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lmp-tools-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, "--worker", tool, "--only", name, "--attn", attention, "--answer", answer]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.is_file():
            found: dict[str, Any] = json.loads(answer.read_text())
            return found
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"error": f"ended with {done.returncode}: {last}"}


# --- lmp -------------------------------------------------------------------------------------------------------------


def lmp(name: str, attention: str) -> dict[str, Any]:
    """Seconds of a cold expand and of one from the store, and of one more evaluation; matmul FLOPs at the point."""
    from lmp.link.numbers import ModelNumbers
    from lmp.link.values import values_for
    from lmp.store.results import read_result

    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="lmp-tools-") as folder:
        config = Path(folder) / "small.json"
        config.write_text(json.dumps({"model_type": case.class_path.split(".")[2], **case.config}))
        options = ["--config", str(config), "--results", f"{folder}/results", "--attn", attention, "--quiet"]
        run = [sys.executable, "-m", "lmp"]
        try:
            cold = _seconds([*run, "expand", case.class_path, *options])
            stored = _seconds([*run, "expand", case.class_path, *options])
        except subprocess.CalledProcessError as error:
            return {"error": (error.stderr.strip().splitlines() or [f"ended with {error.returncode}"])[0]}
        (file,) = Path(folder, "results").glob("*/model_analysis.json")
        model = read_result(file)
        numbers = ModelNumbers(model)  # type: ignore[arg-type]
        given = {"batch_size": BATCH, "seq_len": case.seq_len}
        given |= {"cache_len": case.cache_len} if "cache_len" in model.parameters else {}
        values = values_for(model, given)
        flops = numbers.totals(values).matmul_flops
        once = min(_timed(lambda: numbers.totals(values)) for _ in range(1000))
        return {"flops": flops, "cold": cold, "stored": stored, "once": once}


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# --- the tables ------------------------------------------------------------------------------------------------------


def verdict(found: dict[str, Any], right: int) -> str:
    if "error" in found:
        return "failed"
    if found["flops"] == right:
        return "right"
    percent = 100 * (found["flops"] - right) / right
    return f"{percent:+.1f}%" if abs(percent) >= 0.05 else f"{found['flops'] - right:+,} FLOPs"


def tables(names: list[str], attention: str) -> Iterator[str]:
    found, ours = {}, {}
    for name in names:
        found[name] = {tool: process(tool, name, attention) for tool in ["reference", *TOOLS]}
        ours[name] = lmp(name, attention)
    right = {name: found[name]["reference"]["flops"] for name in names}
    titles = [CASES[name].title for name in names]
    call = f"batch {BATCH}, {SEQ} tokens (decode: 1 token on a cache of {CACHED}), {attention} attention"
    yield f"Matmul FLOPs, {call}:\n"
    yield from _table(["tool", "unit", *titles])
    yield _row("right", "FLOPs", *(f"{right[name]:,}" for name in names))
    yield _row("**lmp**", "FLOPs", *(verdict(ours[name], right[name]) for name in names))
    for tool, about in TOOLS.items():
        yield _row(tool, about.unit, *(verdict(found[name][tool], right[name]) for name in names))
    yield "\nSeconds; of a tool: its count, and in brackets with building the model and all imports:\n"
    yield from _table(["", *titles])
    for label, key in (("expand, cold, the whole command", "cold"), ("expand from the store, the same", "stored")):
        yield _row(f"lmp: {label}", *(_figure(ours[name], key, 2) for name in names))
    yield _row("lmp: one more evaluation", *(_figure(ours[name], "once", 6) for name in names))
    for tool in TOOLS:
        yield _row(tool, *(_times(found[name][tool]) for name in names))
    for name in names:
        for tool, answer in {"lmp": ours[name], **found[name]}.items():
            if "error" in answer:
                yield f"\n{tool}, {CASES[name].title}, failed: `{answer['error'][:200]}`"


def _figure(found: dict[str, Any], key: str, digits: int) -> str:
    return "failed" if "error" in found else f"{found[key]:.{digits}f}"


def _table(heads: list[str]) -> Iterator[str]:
    yield _row(*heads)
    yield _row(*("---" for _ in heads))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _times(found: dict[str, Any]) -> str:
    return "failed" if "error" in found else f"{found['count']:.2f} ({found['all']:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description="lmp beside other counters")
    parser.add_argument("--attn", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if given.worker:
        given.answer.write_text(json.dumps(work(given.worker, given.only, given.attn)))
        return 0
    for line in tables([given.only] if given.only else list(CASES), given.attn):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
