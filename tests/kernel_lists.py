"""Small lists of kernels that tests write by hand, and the kernels of stored models at chosen sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lmp.link.numbers import ModelNumbers
from lmp.link.records import EvaluatedKernel
from lmp.link.values import values_for
from lmp.predict.rewrite.profiles import profiles
from lmp.predict.rewrite.rewriting import Rewritten, rewritten
from lmp.records import ModelAnalysis, Operand, Operands

RESULTS = Path(__file__).parents[1] / "analysis_results"
SIZES = {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2, "batch_size": 2, "seq_len": 1}
SERVING = profiles()["sglang"].rules
ROLES = {"w": "weight", "a": "activation", "kv": "cache", "i": "index"}


def tensor(text: str) -> Operand:
    """``w 8 4``: a weight of 8 times 4; ``f`` has 4 bytes an element."""
    kind, *sizes = text.split()
    role = ROLES.get(kind, "activation")
    width = {"i": 8, "f": 4}.get(kind, kind)
    return Operand(name="x", shape=[*map(int, sizes)], width=width, role=role)  # type: ignore[arg-type]


def size_of(operand: Operand) -> int:
    width = operand.width if isinstance(operand.width, int) else 2
    return math.prod(map(int, operand.shape)) * width


def kernel(id_: str, operator: str, category: str, sources: str, tensors: str, **more: Any) -> EvaluatedKernel:
    """``tensors``: inputs -> outputs, separated by commas."""
    ins, outs = ([tensor(t) for t in side.split(",") if t.strip()] for side in tensors.split("->"))
    about = {"path": more.pop("path", "layer"), "repeat": more.pop("repeat", 1), "flops": more.pop("flops", 1)}
    return EvaluatedKernel(
        id=id_, class_name="a.B", line=int(more.pop("line", 1)), operation=operator, category=category,
        inputs_from=sources.split(), read=sum(map(size_of, ins)), write=sum(map(size_of, outs)),
        operands=Operands(operator=operator, inputs=ins, outputs=outs, **more), **about,
    )  # fmt: skip


def product(id_: str, sources: str, m: int, n: int, k: int, **more: Any) -> EvaluatedKernel:
    flops = more.pop("flops", 2 * m * n * k)
    return kernel(
        id_, "mm", "matmul", sources, f"a {m} {k}, w {k} {n} -> a {m} {n}", flops=flops, batch=1, m=m, n=n, k=k, **more
    )


def after(kernels: list[EvaluatedKernel], *rules: str, dtype: str = "bfloat16", **values: int) -> Rewritten:
    return rewritten(kernels, rules or SERVING, {**SIZES, **values}, dtype)


def launched(found: Rewritten) -> list[tuple[str | None, str]]:
    return [(launch.rule, launch.kernel.operation) for launch in found.launches]


def stored_model(name: str) -> ModelAnalysis:
    """The expanded model of a class that git has."""
    (file,) = RESULTS.glob(f"*.{name}@*/model_analysis.json")
    return ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))


def evaluated(name: str, **sizes: int) -> tuple[list[EvaluatedKernel], dict[str, Any]]:
    """The kernels of a stored model, its formulas evaluated at these sizes."""
    model = stored_model(name)
    numbers, values = ModelNumbers(model), values_for(model, sizes)
    return numbers.evaluation(values, numbers.tree(values)).kernels, dict(values)


TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 1000}  # fmt: skip
