"""A model small enough to be worked out by hand: an embedding, three layers of an add and a Linear, and attention.

At batch_size 2, seq_len 16, hidden_size 8, 3 layers, 2 bytes an element (256 elements in an activation):

    embedding   0 FLOPs      reads 256 + 256 * 2 = 768       writes 256 * 2 = 512
    add         256          reads 2 * 256 * 2 = 1,024       writes 512                  3 times
    Linear      2 * 256 * 8  reads 512 + 64 * 2 = 640        writes 512                  3 times
    attention   0: no cache
"""

from __future__ import annotations

from typing import Any

from lmp.records import ConfigOrigin, MemoryAccess, ModelAnalysis, ModelKernel, Part, Source, Totals, Verification

ROOT, LAYER, LINEAR = "a.models.Root", "a.models.Layer", "torch.nn.modules.linear.Linear"
POINT = {"batch_size": 2, "seq_len": 16}

FLOPS, MATMUL, READ, WRITE = 13_056, 12_288, 5_760, 3_584
"""3 * (256 + 4,096); 3 * 4,096; 768 + 3 * (1,024 + 640); 512 + 3 * (512 + 512)."""

COMPULSORY = 1_280  # (256 + 256) * 2 for the activation in and out, 2 * 64 * 2 for two weights
PARAMETERS = 192  # 3 * 8 * 8

_SIZE = "{batch_size} * {seq_len} * {hidden_size}"
_CACHED = "{batch_size} * {cache_len}"


def basic(line: int, flops: str, read: str, write: str, **more: Any) -> ModelKernel:
    access = MemoryAccess(read=read, write=write)
    fields = {"operation": f"kernel of line {line}", "code": "", "analysis": "", "category": "elementwise", **more}
    return ModelKernel(kernel_type="basic", line=line, flops=flops, memory_access=access, **fields)


def module(line: int, path: str, class_name: str, kernels: list[ModelKernel], **more: Any) -> ModelKernel:
    fields = {"operation": f"{path}: call", "code": "", "analysis": "", "category": "module", **more}
    return ModelKernel(kernel_type="composite", line=line, path=path, class_name=class_name, kernels=kernels, **fields)


def model(**more: Any) -> ModelAnalysis:
    product = basic(
        31,
        f"2 * {_SIZE} * {{hidden_size}}",
        f"{_SIZE} * {{a_bytes}} + {{hidden_size}} ** 2 * {{w_bytes}}",
        f"{_SIZE} * {{a_bytes}}",
        operation="matrix product",
        category="matmul",
    )
    add = basic(21, _SIZE, f"2 * {_SIZE} * {{a_bytes}}", f"{_SIZE} * {{a_bytes}}", operation="add")
    layer = [add, module(22, "layers.0.proj", LINEAR, [product])]
    attention = [
        f"where({{cache_len}} > 0, {text}, 0)" for text in (_CACHED, f"{_CACHED} * {{hidden_size}} * {{kv_bytes}}")
    ]
    kernels = [
        basic(
            10, "0", f"{_SIZE} + {_SIZE} * {{w_bytes}}", f"{_SIZE} * {{a_bytes}}", category="gather", operation="lookup"
        ),
        module(11, "layers.0", LAYER, layer, repeat="{num_hidden_layers}"),
        basic(12, *attention, "0", category="attention", operation="attention"),
        basic(13, "0", "0", "0", operation="view"),
    ]
    layers = f"{{num_hidden_layers}} * (2 * {_SIZE} * {{hidden_size}})"
    row = f"{_SIZE} * {{a_bytes}}"
    weights = "{hidden_size} ** 2 * {w_bytes}"
    totals = Totals(
        flops=f"{layers} + {{num_hidden_layers}} * {_SIZE} + {attention[0]}",
        matmul_flops=f"{layers} + {attention[0]}",
        read=f"{_SIZE} + {_SIZE} * {{w_bytes}} + {{num_hidden_layers}} * (3 * {row} + {weights}) + {attention[1]}",
        write=f"{row} + {{num_hidden_layers}} * 2 * {row}",
        parameters_count="{num_hidden_layers} * {hidden_size} * {hidden_size}",
    )
    fields: dict[str, Any] = {
        "class_name": ROOT,
        "engine": "trace",
        "source": _source("src/a/models.py"),
        "config": ConfigOrigin(name="default", origin="the class's defaults"),
        "parameters": {
            "batch_size": "inputs.x.shape[0]",
            "seq_len": "inputs.x.shape[1]",
            "cache_len": "inputs.cache.shape[1]",
            "hidden_size": "config.hidden_size",
            "num_hidden_layers": "config.num_hidden_layers",
        },
        "values": {"hidden_size": 8, "num_hidden_layers": 3},
        "kernels": kernels,
        "totals": totals,
        "compulsory": MemoryAccess(read=f"{row} + 2 * {{hidden_size}} ** 2 * {{w_bytes}}", write=row),
        "parts": {
            ROOT: Part(status="verified", sha256="0" * 64, file="src/a/models.py"),
            LAYER: Part(status="verified", sha256="0" * 64, file="src/a/layers.py"),
            LINEAR: Part(status="verified", sha256="0" * 64),
        },
        "verification": Verification(status="verified", points=5),
    }
    return ModelAnalysis(**{**fields, **more})


def _source(file: str) -> Source:
    return Source(file=file, lines=(10, 13), distribution="a", version="1.0", sha256="0" * 64)
