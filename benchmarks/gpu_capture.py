"""Times, launches and memory of models and kernels on a GPU: the rows against which predictions are held.

    python benchmarks/gpu_capture.py FILE.json [--parts host calls kernels] [--seconds 300] [--smoke]

It needs torch and transformers, not lmp; weights are random. Configs are those of the catalogue. A row that fails has
`error`. `benchmarks/gpu_scores.py` compares the rows with predictions. `--smoke` takes few small rows, on a CPU too.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers

CATALOGUE = Path(__file__).parents[1] / "src" / "lmp" / "catalogue"
Row = dict[str, Any]
Call = Callable[[], object]

SHORT = [("decode", 1, 128), ("decode", 1, 960), ("decode", 8, 960), ("prefill", 1, 128), ("prefill", 4, 960)]
LONG = [
    ("decode", 1, 128), ("decode", 1, 1024), ("decode", 1, 8192), ("decode", 8, 1024), ("decode", 32, 1024),
    ("decode", 8, 8192), ("decode", 64, 256), ("prefill", 1, 128), ("prefill", 1, 1024), ("prefill", 4, 2048),
    ("prefill", 1, 8192),
]  # fmt: skip
SQUARES = [*LONG[:-2], ("prefill", 1, 4096), ("prefill", 4, 512)]
"""Of models whose attention writes its scores: 8,192 tokens have 8 GB of them in each layer of 64 heads."""
MODELS: list[tuple[str, str, list[tuple[str, int, int]]]] = [
    ("Qwen/Qwen3-0.6B", "sdpa", LONG),
    ("openai/gpt-oss-20b", "eager", SQUARES),
    ("meta-llama/Meta-Llama-3.1-8B", "sdpa", LONG),
    ("openai-community/gpt2", "sdpa", SHORT),
    ("Qwen/Qwen3-0.6B", "eager", SQUARES),
    ("Qwen/Qwen3-30B-A3B", "sdpa", LONG),
]
"""Model, attention, and its calls: phase, sequences, tokens (cached ones of a decode, new ones of a prefill)."""


class Machine:
    """The device that is timed."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.end = time.monotonic() + seconds
        self.cuda = name == "cuda"

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def free(self) -> None:
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def about(self) -> Row:
        """What the figures depend on beside the code."""
        found: Row = {
            "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
            "kernel": platform.release(), "cpu": _processor(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }  # fmt: skip
        if self.cuda:
            about = torch.cuda.get_device_properties(0)
            found |= {
                "gpu": about.name, "sms": about.multi_processor_count, "memory": about.total_memory,
                "l2": about.L2_cache_size, "cuda": torch.version.cuda,
            }  # fmt: skip
        return found


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "not known")


# --- times -----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> list[float]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return [round(statistics.median(ordered), 3), *(round(ordered[round(last * part)], 3) for part in (0.1, 0.9))]


def wall(machine: Machine, prepare: Call, call: Call, most: int, seconds: float) -> Row:
    """Microseconds of a call until the device is done, and until the host has started its last kernel."""
    whole, host = [], []
    start = time.monotonic()
    for number in range(most + 2):
        prepare()
        machine.wait()
        before = time.perf_counter()
        made = call()
        started = time.perf_counter()
        machine.wait()
        after = time.perf_counter()
        del made
        if number >= 2:
            whole.append((after - before) * 1e6)
            host.append((started - before) * 1e6)
        if time.monotonic() - start > seconds and len(whole) >= 3:
            break
    return {"wall_us": spread(whole), "host_us": spread(host), "repeats": len(whole)}


def graph_us(machine: Machine, calls: Sequence[Call], replays: int = 5) -> float:
    """Microseconds of one call among `calls`, which run one after the other without the host."""
    if not machine.cuda:
        before = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - before) * 1e6 / len(calls)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    found = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3 / len(calls))
    del graph
    return round(statistics.median(found), 3)


def profiled(machine: Machine, call: Call) -> Row:
    """What the device ran in one call: launches, copies, their time; of each operator how often and how long."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if machine.cuda else []
    with torch.profiler.profile(activities=kinds) as profile:
        call()
        machine.wait()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    operators = {
        each["args"].get("External id"): each for each in events if each.get("cat") == "cpu_op" and "args" in each
    }
    ran = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    grouped: dict[str, list[float]] = defaultdict(list)
    for each in ran:
        grouped[operators.get(each["args"].get("External id"), {}).get("name", "?")].append(each["dur"])
    return {
        "launches": sum(each["cat"] == "kernel" for each in ran),
        "copies": sum(each["cat"] != "kernel" for each in ran),
        "device_us": round(sum(each["dur"] for each in ran), 1),
        "operators": {name: [len(us), round(sum(us), 1)] for name, us in grouped.items()},
        "kernels": sorted({each["name"][:60] for each in ran}),
    }


# --- calls of models -------------------------------------------------------------------------------------------------


def config_of(model: str, attention: str, smoke: bool) -> Any:
    """The config of the catalogue. Weights are not quantised: they are random, and of 16 bits."""
    found = json.loads((CATALOGUE / f"{model.replace('/', '--')}.json").read_text())["config"]
    found.pop("quantization_config", None)
    if smoke:
        layers = "n_layer" if "n_layer" in found else "num_hidden_layers"
        found |= {layers: 2, **({"layer_types": found["layer_types"][:2]} if "layer_types" in found else {})}
        found |= {"num_local_experts": 8} if "num_local_experts" in found else {}
        found |= {"num_experts": 8} if "num_experts" in found else {}
    made = transformers.AutoConfig.for_model(found.pop("model_type"), **found)
    made._attn_implementation = attention
    return made


def model_of(config: Any, machine: Machine) -> torch.nn.Module:
    with torch.device(machine.name):
        made = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation=config._attn_implementation
        )
    return made.to(machine.name).eval()


class Cache:
    """A cache with random content that can be put back to where it was before a call."""

    def __init__(self, config: Any, machine: Machine, batch: int, tokens: int) -> None:
        self.made = transformers.DynamicCache(config=config)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers if tokens else 0):
            keys = torch.randn(batch, heads, tokens, width, dtype=torch.bfloat16, device=machine.name)
            values = torch.randn(batch, heads, tokens, width, dtype=torch.bfloat16, device=machine.name)
            self.made.update(keys, values, layer)
        self.saved: list[dict[str, Any]] = []

    def save(self) -> None:
        self.saved = [dict(vars(layer)) for layer in self.made.layers]

    def restore(self) -> None:
        for layer, saved in zip(self.made.layers, self.saved, strict=True):
            vars(layer).clear()
            vars(layer).update(saved)


def call_row(model: torch.nn.Module, config: Any, machine: Machine, point: tuple[str, int, int], smoke: bool) -> Row:
    """One call at one point: memory, time of the host, what the device ran, and its time without the host."""
    phase, batch, tokens = point
    cached, new = (tokens, 1) if phase == "decode" else (0, tokens)
    ids = torch.randint(0, config.vocab_size, (batch, new), device=machine.name)
    cache = Cache(config, machine, batch, cached)
    content = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.made.layers) if cached else 0

    def call() -> object:
        return model(input_ids=ids, past_key_values=cache.made, use_cache=True).logits

    def again() -> object:
        cache.restore()
        return call()

    row: Row = {"phase": phase, "batch": batch, "new": new, "cached": cached, "cache": content}
    if machine.cuda:
        machine.wait()
        torch.cuda.reset_peak_memory_stats()
        row["held"] = torch.cuda.memory_allocated()
        made = call()
        machine.wait()
        row["peak"] = torch.cuda.max_memory_allocated()
        del made
        del cache
        machine.free()
        cache = Cache(config, machine, batch, cached)
    cache.save()
    row |= wall(machine, cache.restore, call, 3 if smoke else 15 if phase == "decode" else 8, 0.7)
    cache.restore()
    row |= {name: figure for name, figure in profiled(machine, call).items() if name != "kernels"}
    if machine.cuda:
        try:
            row["graph_us"] = graph_us(machine, [again])
        except Exception as error:
            # A call that waits for the device cannot be captured.
            row["graph_error"] = str(error).splitlines()[0][:120]
    return row


def calls(machine: Machine, smoke: bool) -> Iterator[Row]:
    for name, attention, points in MODELS[:2] if smoke else MODELS:
        if machine.left < 20:
            print("out of time before", name, attention, flush=True)
            return
        begun = time.monotonic()
        config = config_of(name, attention, smoke)
        model = model_of(config, machine)
        stored = {each.data_ptr(): each.nbytes for each in (*model.parameters(), *model.buffers())}
        # Libraries take their workspaces at the first call: they are not of a point.
        model(input_ids=torch.zeros(1, 8, dtype=torch.long, device=machine.name))
        machine.free()
        print(name, attention, f"built in {time.monotonic() - begun:.1f} s, left {machine.left:.0f} s", flush=True)
        for point in [points[0], points[-2]] if smoke else points:
            point = (point[0], point[1], 16) if smoke and not machine.cuda else point
            about = {
                "model": name, "attention": attention, "layers": config.num_hidden_layers,
                "weights": sum(stored.values()),
            }  # fmt: skip
            if machine.left < 5:
                break
            try:
                row = {**about, **call_row(model, config, machine, point, smoke)}
            except Exception as error:
                row = {**about, "point": point, "error": f"{type(error).__name__}: {str(error)[:200]}"}
            machine.free()
            print({key: value for key, value in row.items() if key != "operators"}, flush=True)
            yield row
        del model
        machine.free()


# --- host time of one operator ---------------------------------------------------------------------------------------


def host(machine: Machine, smoke: bool) -> Iterator[Row]:
    """Microseconds in which the host starts one operator on a small tensor; the device is faster than that."""
    on = {"dtype": torch.bfloat16, "device": machine.name}
    x, y, w, b = torch.randn(4, 64, **on), torch.randn(4, 64, **on), torch.randn(64, 64, **on), torch.randn(64, **on)
    q, k = torch.randn(1, 8, 1, 64, **on), torch.randn(1, 8, 128, 64, **on)
    linear = torch.nn.Linear(64, 64, bias=False, **on)
    ids = torch.zeros(4, dtype=torch.long, device=machine.name)
    named: dict[str, Call] = {
        "add_scalar": lambda: x + 1, "add": lambda: x + y, "mul": lambda: x * y, "clone": lambda: x.clone(),
        "add_inplace": lambda: x.add_(1), "to_float32": lambda: x.float(), "silu": lambda: F.silu(x),
        "neg": lambda: -x, "pow": lambda: x.pow(2), "mean": lambda: x.mean(-1, keepdim=True),
        "rsqrt": lambda: x.rsqrt(), "softmax": lambda: torch.softmax(x, -1), "cat": lambda: torch.cat([x, y]),
        "mm": lambda: x @ w, "linear": lambda: F.linear(x, w), "linear_bias": lambda: F.linear(x, w, b),
        "linear_module": lambda: linear(x), "layer_norm": lambda: F.layer_norm(x, (64,), b, b),
        "embedding": lambda: F.embedding(ids, w), "sdpa_decode": lambda: F.scaled_dot_product_attention(q, k, k),
        "view": lambda: x.view(8, 32), "transpose": lambda: x.transpose(0, 1), "empty": lambda: torch.empty_like(x),
    }  # fmt: skip
    times = 20 if smoke else 400
    for name, call in named.items():
        for _ in range(10):
            call()
        found = []
        for _ in range(5):
            machine.wait()
            before = time.perf_counter()
            for _ in range(times):
                call()
            found.append((time.perf_counter() - before) * 1e6 / times)
        machine.wait()
        # A biased product is one launch, or one and an addition: it is counted.
        row = profiled(machine, call)
        yield {"operator": name, "host_us": spread(found), "launches": row["launches"], "copies": row["copies"]}


# --- kernels ---------------------------------------------------------------------------------------------------------

COLD = 256 << 20
"""Bytes over which operands rotate, several times the cache, so that each call reads from memory."""
Made = tuple[Row, int, Callable[[], Call]]
"""Columns of the row, bytes of its operands, and what makes operands and returns the call."""


def pointwise_points(device: str, smoke: bool) -> Iterator[Made]:
    sizes = [2**12, 2**15, 2**18, 2**21, 2**24, 2**27]
    wide = {"dtype": torch.float32, "device": device}
    half = {"dtype": torch.bfloat16, "device": device}

    def two(n: int, op: Callable[[torch.Tensor, torch.Tensor], object], half: Any = half) -> Call:
        a, b = torch.randn(n, **half), torch.randn(n, **half)
        return lambda: op(a, b)

    def one(n: int, op: Callable[[torch.Tensor], object], of: Any) -> Call:
        a = torch.rand(n, **of)
        return lambda: op(a)

    def rows(n: int, width: int, op: Callable[[torch.Tensor], object], of: Any) -> Call:
        a = torch.randn(n // width, width, **of)
        return lambda: op(a)

    def cat(tokens: int) -> Call:
        a, b = torch.randn(1, 8, tokens - 1, 128, **half), torch.randn(1, 8, 1, 128, **half)
        return lambda: torch.cat([a, b], dim=-2)

    def turn(tokens: int) -> Call:
        a = torch.randn(1, tokens, 8, 128, **half).transpose(1, 2)
        return lambda: torch.cat([-a[..., 64:], a[..., :64]], dim=-1)

    def gather(n: int) -> Call:
        table = torch.randn(max(n // 256, 4096), 2048, **half)
        ids = torch.randint(0, len(table), (max(n // 2048, 1),), device=device)
        return lambda: F.embedding(ids, table)

    for n in sizes[:1] if smoke else sizes:
        for name, op, of, size, made in [
            ("mul", None, half, 2, 2), ("silu", F.silu, half, 2, 2), ("to_float32", torch.Tensor.float, half, 2, 4),
            ("to_bfloat16", torch.Tensor.bfloat16, wide, 4, 2), ("pow", lambda a: a.pow(2), wide, 4, 4),
            ("rsqrt", torch.rsqrt, wide, 4, 4), ("neg", torch.neg, half, 2, 2), ("clone", torch.clone, half, 2, 2),
            ("add_scalar", lambda a: a + 1e-6, wide, 4, 4),
        ]:  # fmt: skip
            read, written = (2 * n * size if op is None else n * size), n * made
            row = {"op": "pointwise", "kind": name, "read": read, "written": written}
            if op is None:
                yield row, read + written, partial(two, n, torch.mul)
            else:
                yield row, read + written, partial(one, n, op, of)
        width = 1024 if n < 2**21 else 4096
        count = n // width
        for name, op, of, read, written in [
            ("mean", lambda a: a.mean(-1, keepdim=True), wide, 4 * n, 4 * count),
            ("softmax", lambda a: torch.softmax(a, -1, dtype=torch.float32), half, 2 * n, 4 * n),
            ("layer_norm", lambda a: F.layer_norm(a, a.shape[-1:]), half, 2 * n, 2 * n),
        ]:
            row = {"op": "norm", "kind": name, "read": read, "written": written, "width": width}
            yield row, read + written, partial(rows, n, width, op, of)
        # Rows of a cache and one new row, as a decode step appends it; half of a head turned, as rope does.
        heads, dim = 8, 128
        tokens = max(n // heads // dim, 2)
        shape = {"heads": heads, "tokens": tokens, "width": dim}
        moved = 2 * heads * dim * tokens
        yield (
            {"op": "pointwise", "kind": "cat_cache", "read": moved, "written": moved, **shape},
            2 * moved,
            partial(cat, tokens),
        )
        row = {"op": "pointwise", "kind": "rotate_half", "read": moved * 3 // 2, "written": moved * 3 // 2, **shape}
        yield {**row, "calls": 2}, 3 * moved, partial(turn, tokens)
        looked = max(n // 2048, 1)
        row = {"op": "pointwise", "kind": "embedding", "read": looked * (2048 * 2 + 8), "written": looked * 2048 * 2}
        yield row, max(n // 256, 4096) * 4096, partial(gather, n)


def product_points(device: str, smoke: bool) -> Iterator[Made]:
    half = {"dtype": torch.bfloat16, "device": device}
    sizes = [
        (3072, 1024), (1024, 3072), (2048, 1024), (4096, 2880), (2880, 4096), (4096, 4096), (1024, 4096),
        (14336, 4096), (4096, 14336), (2304, 768), (151936, 1024), (128256, 4096),
    ]  # fmt: skip
    for n, k in sizes[:1] if smoke else sizes:
        for m in (1, 8) if smoke else (1, 8, 64, 512, 2048, 8192):

            def linear(m: int, n: int, k: int, biased: bool) -> Call:
                x, w = torch.randn(m, k, **half), torch.randn(n, k, **half)
                b = torch.randn(n, **half) if biased else None
                return lambda: F.linear(x, w, b)

            if m * n > 2**30:
                continue
            size = 2 * (m * k + n * k + m * n)
            for biased in (False, True) if n <= 4096 and k <= 4096 else (False,):
                row = {"op": "gemm", "kind": "linear_bias" if biased else "linear", "m": m, "n": n, "k": k}
                yield row, size, partial(linear, m, n, k, biased)
    for batch, m, n, k in [(8, 1, 1024, 64)] if smoke else [
        (64, 1, 1024, 64), (64, 1, 64, 1024), (512, 1, 1024, 64), (512, 1, 64, 1024), (16, 1024, 1024, 128),
        (16, 1024, 128, 1024), (64, 4096, 4096, 64), (64, 4096, 64, 4096), (128, 1, 8192, 128), (128, 1, 128, 8192),
    ]:  # fmt: skip

        def batched(batch: int, m: int, n: int, k: int) -> Call:
            a, b = torch.randn(batch, m, k, **half), torch.randn(batch, k, n, **half)
            return lambda: a @ b

        row = {"op": "batched", "kind": "bmm", "batch": batch, "m": m, "n": n, "k": k}
        yield row, 2 * batch * (m * k + k * n + m * n), partial(batched, batch, m, n, k)
    for rows, experts, n, k in [(16, 8, 64, 64)] if smoke else [
        (r, e, n, k) for e, n, k in ((128, 1536, 2048), (128, 2048, 768), (32, 5760, 2880), (32, 2880, 2880))
        for r in (8, 64, 256, 8192, 65536)
    ]:  # fmt: skip

        def grouped(rows: int, experts: int, n: int, k: int) -> Call:
            # Tokens that choose independently: the counts of experts vary.
            chosen = torch.randint(0, experts, (rows,), device=device)
            ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32)
            x, w = torch.randn(rows, k, **half), torch.randn(experts, n, k, **half)
            return lambda: F.grouped_mm(x, w.transpose(-2, -1), offs=ends)

        row = {"op": "grouped", "kind": "grouped_mm", "rows": rows, "experts": experts, "n": n, "k": k}
        yield (
            row,
            2 * (rows * k + experts * n * k + rows * n),
            partial(grouped, rows, experts, n, k),
        )


def attention_points(device: str, smoke: bool) -> Iterator[Made]:
    half = {"dtype": torch.bfloat16, "device": device}
    heads = [(16, 8, 128), (32, 8, 128), (32, 4, 128), (12, 12, 64)]
    decode = [(b, 1, c) for b in (1, 8, 32, 64) for c in (128, 1024, 8192)]
    prefill = [(1, 128, 128), (1, 1024, 1024), (4, 2048, 2048), (1, 8192, 8192), (8, 512, 512)]
    for of, kv, dim in heads[:1] if smoke else heads:
        for batch, q, tokens in [(1, 1, 64)] if smoke else decode + prefill:

            def sdpa(batch: int, q: int, tokens: int, of: int, kv: int, dim: int) -> Call:
                query = torch.randn(batch, q, of, dim, **half).transpose(1, 2)
                # A cat of the cache has its heads contiguous.
                keys, values = (torch.randn(batch, kv, tokens, dim, **half) for _ in range(2))
                return lambda: F.scaled_dot_product_attention(query, keys, values, is_causal=q > 1, enable_gqa=of != kv)

            row = {
                "op": "attention", "kind": "sdpa", "phase": "decode" if q == 1 else "prefill", "batch": batch,
                "q_len": q, "kv_len": tokens, "heads": of, "kv_heads": kv, "head_dim": dim,
            }  # fmt: skip
            yield (
                row,
                2 * batch * dim * (2 * kv * tokens + 2 * q * of),
                partial(sdpa, batch, q, tokens, of, kv, dim),
            )


def kernels(machine: Machine, smoke: bool) -> Iterator[Row]:
    """Microseconds of one kernel in a row of them, on operands that the cache does not hold, and that it may hold."""
    for points in (pointwise_points, attention_points, product_points):
        for row, size, make in points(machine.name, smoke):
            if machine.left < 3:
                print("out of time at", row, flush=True)
                return
            try:
                warm = make()
                # Up to 40 launches a graph: the device's time to start them is a part, the graph's own is not.
                copies = min(max(1, -(-COLD // size)), 40)
                cold = [warm, *(make() for _ in range(copies - 1))]
                many = max(8 if size < COLD else 3, copies)
                row = {
                    **row,
                    "rotated": copies * size,
                    "cold_us": graph_us(machine, [cold[i % copies] for i in range(many)]),
                }
                if size < COLD // 8:
                    row["warm_us"] = graph_us(machine, [warm] * 20)
                if row["kind"] in ("linear_bias", "linear", "sdpa", "bmm", "grouped_mm"):
                    found = profiled(machine, warm)
                    row |= {name: found[name] for name in ("launches", "kernels")}
                del warm, cold
            except Exception as error:
                row = {**row, "error": f"{type(error).__name__}: {str(error)[:200]}"}
            if size > COLD:
                machine.free()
            yield row


def text_of(found: Row) -> str:
    """JSON with one row a line."""
    lines = [f'"about": {json.dumps(found["about"])}']
    for part in (part for part in PARTS if part in found):
        lines.append(f'"{part}": [\n' + ",\n".join(map(json.dumps, found[part])) + "\n]")
    return "{" + ",\n".join(lines) + "}\n"


PARTS = {"host": host, "calls": calls, "kernels": kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seconds", type=float, default=300.0, help="of each part at most")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu" and not options.smoke:
        sys.exit("there is no GPU\nrun it where torch.cuda.is_available(), or with --smoke")
    torch.manual_seed(0)
    found: Row = {"about": Machine(name, 0).about()}
    with torch.no_grad():
        for part in options.parts:
            machine = Machine(name, options.seconds)
            begun = time.monotonic()
            found[part] = []
            for row in PARTS[part](machine, options.smoke):
                found[part].append(row)
                options.file.write_text(text_of(found), encoding="utf-8")
            failed = [row for row in found[part] if "error" in row]
            print(f"{part}: {len(found[part])} rows in {time.monotonic() - begun:.1f} s, {len(failed)} failed")
            for row in failed[:5]:
                print("  ", row)


if __name__ == "__main__":
    main()
