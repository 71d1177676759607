"""Rows of operators: what a line of ``lmp predict-op`` may say, and the columns that the kernels' models take.

One pydantic record an operator checks a row; ``columns`` turns many rows of one family into arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lmp.errors import UsageError
from lmp.predict.kernels.base import BYTES, Array

LARGEST = 2**40
LONGEST_LINE = 65_536
Size = Annotated[int, Field(ge=1, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Dtype = Literal["bfloat16", "fp8"]
WeightBytes = Annotated[float, Field(gt=0, le=2, allow_inf_nan=False)]
"""Bytes of an element of the weights in memory, scales included, where the kernel widens them before the product."""

SAME = {
    "float16": "bfloat16",
    "bf16": "bfloat16",
    "fp16": "bfloat16",
    "half": "bfloat16",
    "e4m3": "fp8",
    "float8": "fp8",
}
"""Dtypes that run at the same rate and width, and other spellings."""


class Bench(BaseModel):
    """The protocol of a benchmark. Serving has none: nothing that a kernel reads is in the cache."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight_copies: Annotated[int, Field(ge=1, le=1024)] = 1


class Row(BaseModel):
    """What all operators have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: int | float | str | None = None
    device: str
    engine: Literal["vllm", "sglang", "trtllm", "nccl"] | None = None
    bench: Bench | None = None

    @model_validator(mode="before")
    @classmethod
    def usual_dtypes(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: SAME.get(v, v) if "dtype" in key and isinstance(v, str) else v for key, v in data.items()}
        return data


class Product(Row):
    """A product with weights. ``dtype`` is that in which it reads both operands."""

    dtype: Dtype = "bfloat16"
    weight_bytes: WeightBytes | None = None
    """None: those of ``dtype``."""

    @model_validator(mode="after")
    def no_wider(self) -> Self:
        if self.weight_bytes is not None and self.weight_bytes > BYTES[self.dtype]:
            raise ValueError(f"weight_bytes {self.weight_bytes:g} is more than {self.dtype} has, {BYTES[self.dtype]:g}")
        return self


class Gemm(Product):
    op: Literal["gemm"]
    m: Size
    n: Size
    k: Size
    quantise_activations: bool | None = None
    """The activation is quantised by a kernel before; None is yes for fp8."""


class Attention(Row):
    op: Literal["attention"]
    phase: Literal["prefill", "decode"]
    dtype: Dtype = "bfloat16"
    kv_dtype: Dtype | None = None
    batch: Size
    q_len: Size = 1
    kv_len: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    window: Count | None = None
    causal: bool = True

    @model_validator(mode="after")
    def fits(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads do not divide over {self.kv_heads} KV heads")
        if self.q_len > self.kv_len:
            raise ValueError(f"q_len {self.q_len} is more than kv_len {self.kv_len}, which includes the new tokens")
        return self


class Mla(Row):
    op: Literal["mla"]
    phase: Literal["prefill", "decode"]
    dtype: Dtype = "bfloat16"
    kv_dtype: Dtype | None = None
    batch: Size
    q_len: Size = 1
    kv_len: Size
    heads: Size


class MlaBmm(Row):
    op: Literal["mla_bmm"]
    dtype: Dtype = "bfloat16"
    which: Literal["pre", "post"]
    """``pre``: 128 to 512 of each query head; ``post``: 512 to 128 of each output head."""
    tokens: Size
    heads: Size


class Moe(Product):
    op: Literal["moe"]
    tokens: Size
    hidden: Size
    inter: Size
    topk: Size
    experts: Size
    tp: Size = 1
    ep: Size = 1
    routing: Literal["balanced", "power_law_1.01", "power_law_1.2"] = "balanced"
    gated: bool | None = None
    """None: gated, unless the calibration has this shape without a gate."""

    @model_validator(mode="after")
    def fits(self) -> Moe:
        if self.topk > self.experts:
            raise ValueError(f"topk {self.topk} is more than {self.experts} experts")
        if self.ep > self.experts:
            raise ValueError(f"ep {self.ep} is more than {self.experts} experts")
        if self.tp > self.inter:
            raise ValueError(f"tp {self.tp} is more than inter {self.inter}")
        return self


class Collective(Row):
    op: Literal["collective"]
    kind: Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall"]
    gpus: Annotated[int, Field(ge=2, le=1024)]
    bytes: Size
    library: Literal["nccl", "custom", "custom_eager"] = "nccl"
    dtype: str | None = None

    @model_validator(mode="before")
    @classmethod
    def other_names(cls, data: Any) -> Any:
        names = {"vllm": "custom", "vllm_custom": "custom", "custom_allreduce": "custom", "graph": "custom",
                 "vLLM_custom_graph": "custom", "vLLM_custom_eager": "custom_eager", "NCCL": "nccl"}  # fmt: skip
        if isinstance(data, dict) and isinstance(data.get("library"), str):
            data = {**data, "library": names.get(data["library"], data["library"])}
        if isinstance(data, dict) and data.get("kind") == "all_to_all":
            data = {**data, "kind": "alltoall"}
        return data


class Quantise(Row):
    op: Literal["quantise"]
    m: Size
    k: Size
    scale: Literal["static", "dynamic"] = "static"
    """Dynamic: the scale of each row is worked out first."""


class Pointwise(Row):
    op: Literal["pointwise", "norm"]
    read: Count
    written: Count


Flags: TypeAlias = NDArray[np.bool_]

RECORDS: dict[str, type[Row]] = {
    "gemm": Gemm,
    "attention": Attention,
    "mla": Mla,
    "mla_bmm": MlaBmm,
    "moe": Moe,
    "collective": Collective,
    "quantise": Quantise,
    "pointwise": Pointwise,
    "norm": Pointwise,
}

LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128
"""DeepSeek's latent attention: widths of the latent, the rotated part, and each head's query and value."""

FACTORS: Mapping[str, Callable[[Array], Array]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
}
"""Bytes that each of n GPUs sends for a byte of the message, on a ring."""
LEAST_FACTORS: Mapping[str, Callable[[Array], Array]] = {
    **FACTORS,
    # A switch that reduces sends every byte once.
    "all_reduce": lambda n: np.minimum(1.0, 2 * (n - 1) / n),
}


def read_row(line: str | bytes) -> Row:
    """The row of one line of JSON. Raises UsageError that says what is wrong with it."""
    if len(line) > LONGEST_LINE:
        raise UsageError(f"a line of {len(line)} characters\na row has at most {LONGEST_LINE}")
    try:
        data = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}\na row is one object on one line") from error
    return row_of(data)


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def row_of(data: object) -> Row:
    """The checked row of parsed JSON."""
    if not isinstance(data, dict):
        raise UsageError('a row is a JSON object\nsuch as {"op": "gemm", "device": "h100-sxm", "m": 1, "n": 1, "k": 1}')
    record = RECORDS.get(data.get("op", "")) if isinstance(data.get("op", ""), str) else None
    if record is None:
        raise UsageError(f"no operator {str(data.get('op'))[:40]!r}\nthe operators are {', '.join(RECORDS)}")
    try:
        return record.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"]) or str(data["op"])
        raise UsageError(
            f"{place}: {first['msg']}\nfields of {data['op']}: {', '.join(record.model_fields)}"
        ) from error


@dataclass(frozen=True)
class Want:
    """What a row asks of the calibration: a family, a variant of it, and what chooses among the library's kernels."""

    family: str
    variant: str
    engine: str | None
    key: tuple[float, ...]


def want(row: Row) -> Want:
    match row:
        case Gemm():
            return Want("gemm", row.dtype, row.engine, ())
        case Attention():
            key = (float(row.head_dim), float(row.q_len == 1))
            return Want(row.phase, row.kv_dtype or row.dtype, row.engine, key)
        case Mla():
            return Want(f"mla_{row.phase}", row.kv_dtype or row.dtype, row.engine, ())
        case MlaBmm():
            return Want("batched", row.dtype, row.engine, ())
        case Moe():
            return Want("moe", row.dtype, row.engine, tuple(map(float, (row.hidden, row.inter, row.topk, row.experts))))
        case Collective():
            return Want("collective", f"{row.library}/{row.kind}", None, ())
        case Quantise():
            return Want("quantise", row.scale, row.engine, ())
        case _:
            return Want("pointwise", "any", None, ())


def columns(family: str, rows: Sequence[Row]) -> dict[str, Array]:
    """The columns that the model of this family takes."""
    match family:
        case "gemm":
            return _gemm(rows)
        case "prefill" | "decode":
            return _attention(rows)
        case "mla_prefill" | "mla_decode":
            return _mla(rows)
        case "batched":
            return _batched(rows)
        case "moe":
            return _moe(rows)
        case "collective":
            return _collective(rows)
        case "quantise":
            m, k = _floats(rows, "m"), _floats(rows, "k")
            return {"m": m, "k": k, **quantise_traffic(m, k)}
        case _:
            return {"read": _floats(rows, "read"), "written": _floats(rows, "written")}


def _floats(rows: Iterable[Row], name: str) -> Array:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _gemm(rows: Sequence[Row]) -> dict[str, Array]:
    found = {name: _floats(rows, name) for name in ("m", "n", "k")}
    width = np.array([BYTES[row.dtype] for row in rows if isinstance(row, Gemm)])
    asked = [row.quantise_activations for row in rows if isinstance(row, Gemm)]
    quantise = np.array([float(w == 1 if a is None else a) for a, w in zip(asked, width, strict=True)])
    copies = np.array([float(row.bench.weight_copies) if row.bench is not None else 0.0 for row in rows])
    return {**found, "width": width, "stored": _stored(rows), "quantise": quantise, "copies": copies}


def _stored(rows: Sequence[Row]) -> Array:
    return np.array([row.weight_bytes or BYTES[row.dtype] for row in rows if isinstance(row, Product)])


def _attention(rows: Sequence[Row]) -> dict[str, Array]:
    names = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "causal")
    found = {name: _floats(rows, name) for name in names}
    found["window"] = np.array([float(row.window or 0) for row in rows if isinstance(row, Attention)])
    found["kv_width"] = np.array([BYTES[row.kv_dtype or row.dtype] for row in rows if isinstance(row, Attention)])
    return {**found, **attention_sizes(found)}


def attention_sizes(c: Mapping[str, Array]) -> dict[str, Array]:
    """FLOP of a pair and bytes of a token of usual heads; tables repeat a call on the same buffers."""
    return {
        "pair_flops": 4 * c["head_dim"],
        "token_bytes": 2 * c["head_dim"] * c["kv_width"],
        "warm": np.ones(len(c["head_dim"])),
    }


def _mla(rows: Sequence[Row]) -> dict[str, Array]:
    found = {name: _floats(rows, name) for name in ("batch", "q_len", "kv_len", "heads")}
    found["kv_width"] = np.array([BYTES[row.kv_dtype or row.dtype] for row in rows if isinstance(row, Mla)])
    prefill = np.array([row.phase == "prefill" for row in rows if isinstance(row, Mla)])
    return latent_columns(found, prefill)


def latent_columns(c: Mapping[str, Array], prefill: Flags) -> dict[str, Array]:
    """Columns of attention for latent heads: unabsorbed in a prompt, over the shared latent in decode."""
    size = len(c["batch"])
    return {
        **c,
        "kv_heads": np.where(prefill, c["heads"], 1.0),
        "head_dim": np.full(size, 128.0),
        "window": np.zeros(size),
        "causal": np.ones(size),
        "warm": np.ones(size),
        "pair_flops": np.where(prefill, 2.0 * (NOPE + ROPE + VALUE), 2.0 * (LATENT + ROPE + LATENT)),
        "token_bytes": c["kv_width"] * np.where(prefill, float(NOPE + ROPE + VALUE), float(LATENT + ROPE)),
    }


def _batched(rows: Sequence[Row]) -> dict[str, Array]:
    heads, tokens = _floats(rows, "heads"), _floats(rows, "tokens")
    pre = np.array([row.which == "pre" for row in rows if isinstance(row, MlaBmm)])
    width = np.array([BYTES[row.dtype] for row in rows if isinstance(row, MlaBmm)])
    return absorbed_columns(heads, tokens, pre, width)


def absorbed_columns(heads: Array, tokens: Array, pre: Flags, width: Array) -> dict[str, Array]:
    n, k = np.where(pre, float(LATENT), float(VALUE)), np.where(pre, float(NOPE), float(LATENT))
    return {"batch": heads, "m": tokens, "n": n, "k": k, "width": width}


SKEW = {"balanced": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}
NOT_GATED = {
    (2688, 1856, 6, 128),
    (1024, 2688, 22, 512),
}
"""Hidden size, inner size, top-k and experts of models whose experts have no gate, from their configs: Nemotron 3."""


def _moe(rows: Sequence[Row]) -> dict[str, Array]:
    found = {n: _floats(rows, n) for n in ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep")}
    of = [row for row in rows if isinstance(row, Moe)]
    found["skew"] = np.array([SKEW[row.routing] for row in of])
    found |= {"width": np.array([BYTES[row.dtype] for row in of]), "stored": _stored(of)}
    gated = [(r.hidden, r.inter, r.topk, r.experts) not in NOT_GATED if r.gated is None else r.gated for r in of]
    found["matrices"] = np.where(gated, 3.0, 2.0)
    return found


def _collective(rows: Sequence[Row]) -> dict[str, Array]:
    gpus, size = _floats(rows, "gpus"), _floats(rows, "bytes")
    of = [row for row in rows if isinstance(row, Collective)]
    return collective_columns(gpus, size, [row.kind for row in of], [row.library for row in of])


ONE_STAGE = ((2, 2**23), (4, 2**19), (8, 2**18))
"""GPUs at most, and bytes below which each of them reads the whole message of all others: vLLM's custom all-reduce."""
LARGEST_CUSTOM = 2**23
"""Bytes from which vLLM's custom all-reduce leaves the message to NCCL."""


def collective_columns(gpus: Array, size: Array, kinds: Sequence[str], libraries: Sequence[str]) -> dict[str, Array]:
    factor = np.array([float(FACTORS[kind](n)) for kind, n in zip(kinds, gpus, strict=True)])
    least = np.array([float(LEAST_FACTORS[kind](n)) for kind, n in zip(kinds, gpus, strict=True)])
    own = np.array([library != "nccl" for library in libraries])
    below = np.select([gpus <= most for most, _ in ONE_STAGE], [float(limit) for _, limit in ONE_STAGE], 0.0)
    stages = np.where(~own | (size >= LARGEST_CUSTOM), 0.0, np.where(size < below, 1.0, 2.0))
    eager = np.array([float(library == "custom_eager") for library in libraries])
    shape = {"gpus": gpus, "bytes": size, "factor": factor, "link_factor": least}
    return {**shape, "stages": stages, "library": own.astype(float), "eager": eager}


def quantise_traffic(m: Array, k: Array) -> dict[str, Array]:
    """Bytes that the quantise kernel reads (16 bits) and writes (8 bits)."""
    return {"read": 2 * m * k, "written": m * k}
