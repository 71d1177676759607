"""Small layers as lists of kernels, with sizes that tell their axes apart."""

from __future__ import annotations

import math
from typing import Any

from lmp.link.records import EvaluatedKernel
from lmp.records import Operand, Operands

TOKENS = 101
VALUES = {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2, "batch_size": TOKENS, "seq_len": 1, "cache_len": 0}
ROLES = {"w": "weight", "a": "activation", "kv": "cache", "i": "index"}


def tensor(text: str, name: str) -> Operand:
    """``w 8 4``: a weight of 8 times 4."""
    kind, *sizes = text.split()
    width: Any = 8 if kind == "i" else kind
    return Operand.model_validate(
        {"name": name, "shape": [*map(int, sizes)], "width": width, "role": ROLES.get(kind, "activation")}
    )


def bytes_of(operand: Operand) -> int:
    return math.prod(map(int, operand.shape)) * (operand.width if isinstance(operand.width, int) else 2)


def kernel(id_: str, operator: str, category: str, sources: str, tensors: str, **more: Any) -> EvaluatedKernel:
    """``tensors``: inputs -> outputs, separated by commas. It moves each once; ``path``, ``repeat``, ``flops``."""
    left, right = tensors.split("->")
    ins = [tensor(text, f"x{n}") for n, text in enumerate(left.split(",")) if text.strip()]
    outs = [tensor(text, str(n)) for n, text in enumerate(right.split(","))]
    names = more.pop("names", None)
    if names is not None:
        ins = [one.model_copy(update={"name": name}) for one, name in zip(ins, names, strict=True)]
    about = {"path": more.pop("path", "layer"), "repeat": more.pop("repeat", 1)}
    about["flops"] = more.pop("flops", math.prod(map(int, outs[0].shape)))
    return EvaluatedKernel(
        id=id_, class_name="a.B", line=1, operation=operator, category=category, inputs_from=sources.split(),
        read=sum(map(bytes_of, ins)), write=sum(map(bytes_of, outs)),
        operands=Operands.model_validate({"operator": operator, "inputs": ins, "outputs": outs, **more}), **about,
    )  # fmt: skip


def product(id_: str, sources: str, n: int, k: int, m: int = TOKENS, **more: Any) -> EvaluatedKernel:
    """A product with a weight: ``m`` rows of ``k``, ``n`` columns."""
    return kernel(id_, "mm", "matmul", sources, f"a {m} {k}, w {k} {n} -> a {m} {n}", flops=2 * m * n * k, batch=1,
                  m=m, n=n, k=k, **more)  # fmt: skip


def embedding(id_: str, hidden: int, vocabulary: int) -> EvaluatedKernel:
    made = kernel(id_, "embedding", "copy", "inputs", f"w {vocabulary} {hidden}, i {TOKENS} -> a {TOKENS} {hidden}",
                  flops=0, path="embed")  # fmt: skip
    return made.model_copy(update={"read": TOKENS * (8 + 2 * hidden)})


def mlp(source: str, hidden: int, inner: int, name: str = "f", **more: Any) -> list[EvaluatedKernel]:
    """Gate, up, activation, product, down; and the sum with the input."""
    g, u, s, p, d, r = (f"{name}.{n}" for n in range(6))
    wide, narrow = f"a {TOKENS} {inner}", f"a {TOKENS} {hidden}"
    return [
        product(g, source, inner, hidden, **more),
        product(u, source, inner, hidden, **more),
        kernel(s, "silu", "activation", g, f"{wide} -> {wide}", **more),
        kernel(p, "mul", "elementwise", f"{s} {u}", f"{wide}, {wide} -> {wide}", **more),
        product(d, p, hidden, inner, **more),
        kernel(r, "add", "elementwise", f"{source} {d}", f"{narrow}, {narrow} -> {narrow}", **more),
    ]


def attention(
    source: str, hidden: int, heads: int, kv_heads: int, width: int = 16, name: str = "t", **more: Any
) -> list[EvaluatedKernel]:
    """Queries, keys and values; keys and values repeated for their queries; attention, output; the sum."""
    q, k, v, kk, vv, a, o, r = (f"{name}.{n}" for n in range(8))
    each = heads // kv_heads
    repeated = f"a {TOKENS} {kv_heads} {each} 1 {width}"
    head, narrow = f"a {TOKENS} {heads} 1 {width}", f"a {TOKENS} {hidden}"
    both = f"{repeated} -> {repeated}"
    copies = [kernel(to, "clone", "copy", one, both, flops=0, **more) for to, one in ((kk, k), (vv, v))]
    if each > 1:
        copies = [copy.model_copy(update={"read": TOKENS * kv_heads * width * 2}) for copy in copies]
    return [
        product(q, source, heads * width, hidden, **more),
        product(k, source, kv_heads * width, hidden, **more),
        product(v, source, kv_heads * width, hidden, **more),
        *copies,
        kernel(a, "scaled_dot_product_attention", "attention", f"{q} {kk} {vv}", f"{head}, {head}, {head} -> {head}",
               names=("query", "key", "value"), flops=4 * TOKENS * heads * width, batch=TOKENS, q_len=1, kv_len=1,
               heads=heads, kv_heads=heads, head_dim=width, v_head_dim=width, causal=0, **more),
        product(o, a, hidden, heads * width, **more),
        kernel(r, "add", "elementwise", f"{source} {o}", f"{narrow}, {narrow} -> {narrow}", **more),
    ]  # fmt: skip


def mixture(source: str, hidden: int, inner: int, experts: int, top_k: int, name: str = "m") -> list[EvaluatedKernel]:
    """A router, its choice, the rows of all experts, two products of each, the weighted sum; and the sum."""
    ids = [f"{name}.{n}" for n in range(10)]
    rows, path, narrow = TOKENS * top_k, "layer.experts", f"a {TOKENS} {hidden}"
    sizes = {"tokens": TOKENS, "experts": experts, "top_k": top_k, "path": path}

    def grouped(id_: str, sources: str, n: int, k: int) -> EvaluatedKernel:
        tensors = f"a {rows} {k}, w {experts} {k} {n} -> a {rows} {n}"
        return kernel(id_, "_grouped_mm", "grouped_matmul", sources, tensors, flops=2 * rows * n * k, n=n, k=k, **sizes)

    return [
        product(ids[0], source, experts, hidden, path="layer.router"),
        kernel(ids[1], "topk", "selection", ids[0], f"a {TOKENS} {experts} -> a {TOKENS} {top_k}", path="layer.router"),
        kernel(ids[2], "index", "copy", f"{source} {ids[1]}", f"{narrow}, i {rows} -> a {rows} {hidden}", path=path),
        grouped(ids[3], ids[2], inner, hidden),
        kernel(ids[4], "silu", "activation", ids[3], f"a {rows} {inner} -> a {rows} {inner}", path=path),
        grouped(ids[5], ids[4], hidden, inner),
        kernel(ids[6], "mul", "elementwise", f"{ids[5]} {ids[1]}",
               f"a {rows} {hidden}, a {rows} 1 -> a {rows} {hidden}", path=path),
        kernel(ids[7], "sum", "reduction", ids[6], f"a {TOKENS} {top_k} {hidden} -> {narrow}", path=path),
        kernel(ids[8], "add", "elementwise", f"{source} {ids[7]}", f"{narrow}, {narrow} -> {narrow}"),
    ]  # fmt: skip
