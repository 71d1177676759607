"""Tables of measured rows -> the columns of the kernels' models, one set for each slot of the calibration."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmp.errors import EngineMissing, NotFound, UsageError
from lmp.predict.devices import device_named
from lmp.predict.kernels.base import BYTES, Array
from lmp.predict.rows import (
    NOT_GATED,
    SKEW,
    absorbed_columns,
    attention_sizes,
    collective_columns,
    latent_columns,
    quantise_traffic,
)

LONGEST = 1e8
"""Microseconds above which a measured time is absurd: 100 seconds of one kernel."""


@dataclass
class Measured:
    """The measured rows of one slot."""

    family: str
    device: str
    variant: str
    kernel: str
    columns: dict[str, Array]
    us: Array
    site: NDArray[np.int64]
    """Rows of one site are of one shape: they are fitted together or held out together."""
    keys: tuple[tuple[float, ...], ...]
    """What made the library choose this kernel."""
    table: str
    groups: Mapping[str, Array] = field(default_factory=dict)
    """Further values by which errors are printed."""

    @property
    def name(self) -> str:
        return f"{self.family} {self.device} {self.variant} {self.kernel}"

    def take(self, rows: NDArray[Any]) -> Measured:
        return Measured(
            self.family, self.device, self.variant, self.kernel,
            {name: values[rows] for name, values in self.columns.items()}, self.us[rows], self.site[rows],
            self.keys, self.table, {name: values[rows] for name, values in self.groups.items()},
        )  # fmt: skip


@dataclass
class Tables:
    """All slots of a folder, with what was dropped and the sha256 of each file."""

    slots: list[Measured]
    dropped: dict[str, dict[str, int]]
    sha256: dict[str, str]


def read_tables(folder: Path) -> Tables:
    """The tables of a folder in the form of its README. Raises NotFound if there are none."""
    found = Tables([], {}, {})
    for name, make in TABLES.items():
        file = folder / f"{name}.parquet"
        if not file.is_file():
            continue
        frame, dropped = clean(_frame(file), name)
        found.sha256[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        if dropped:
            found.dropped[file.name] = dropped
        found.slots += make(frame)
    if not found.slots:
        raise NotFound(
            f"no table of measured rows in {folder}\na folder has gemm.parquet or others: {', '.join(TABLES)}"
        )
    return found


def of_families(tables: Tables, families: Iterable[str] | None) -> Tables:
    """The slots of these families alone; None: all. Raises UsageError for a family that no table has."""
    if families is None:
        return tables
    wanted, known = list(families), sorted({slot.family for slot in tables.slots})
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"no table has rows of {unknown[0][:40]!r}\nthe families are {', '.join(known)}")
    return Tables([slot for slot in tables.slots if slot.family in wanted], tables.dropped, tables.sha256)


def pandas() -> Any:
    """The module, or EngineMissing with the extra that has it."""
    try:
        return importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise EngineMissing("calibrating needs pandas\ninstall it with: pip install 'lmp[calibrate]'") from error


def _frame(file: Path) -> Any:
    try:
        return pandas().read_parquet(file)
    except ImportError as error:
        raise EngineMissing("reading tables needs pyarrow\ninstall it with: pip install 'lmp[calibrate]'") from error
    except Exception as error:
        raise UsageError(
            f"{file} cannot be read as parquet: {str(error)[:200]}\ngive the tables as they were"
        ) from error


NEEDED = {
    "gemm": ("gemm_dtype", "m", "n", "k"),
    "attention_context": ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size"),
    "attention_generation": (
        "batch_size",
        "isl",
        "step",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "window_size",
    ),
    "mla_context": ("batch_size", "isl", "step", "num_heads"),
    "mla_generation": ("batch_size", "isl", "step", "num_heads"),
    "mla_bmm": ("op_name", "bmm_dtype", "num_tokens", "num_heads"),
    "moe": ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"),
    "nccl": ("op_name", "num_gpus", "bytes"),
    "custom_allreduce": ("op_name", "num_gpus", "bytes"),
    "quantize": ("op_name", "m", "k"),
}
MAY_BE_ZERO = ("step", "window_size")


def clean(frame: Any, table: str) -> tuple[Any, dict[str, int]]:
    """The usable rows, and how many were dropped for which reason. Raises UsageError for missing columns."""
    needed = ("gpu", "backend", "kernel_source", "us", *NEEDED[table])
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise UsageError(f"{table}: no column {', '.join(missing)}\nthe columns are {', '.join(needed)}")
    dropped: dict[str, int] = {}
    numbers = [c for c in needed if c not in ("gpu", "backend", "kernel_source", "op_name", "gemm_dtype", "bmm_dtype")]
    for column in numbers:
        values = pandas().to_numeric(frame[column], errors="coerce").to_numpy(dtype=float)
        least = 0 if column in MAY_BE_ZERO else np.nextafter(0, 1)
        for reason, bad in (
            (f"{column}: not a number", ~np.isfinite(values)),
            (f"{column}: not positive", np.isfinite(values) & (values < least)),
            ("us: more than 100 s", (values > LONGEST) if column == "us" else np.zeros(len(values), bool)),
        ):
            if bad.any():
                dropped[reason] = dropped.get(reason, 0) + int(bad.sum())
        good = np.isfinite(values) & (values >= least) & ((values <= LONGEST) | (column != "us"))
        frame = frame[good]
    return frame, dropped


def _by_slot(
    frame: Any, by: Iterable[str], site: Iterable[str], make: Callable[[Any], tuple[str, str, dict[str, Array]]],
    table: str, chosen_by: Callable[[Any], tuple[Array, ...]] | None = None,
) -> list[Measured]:  # fmt: skip
    """One Measured for each value of ``by``; ``make`` gives family, variant and columns."""
    found = []
    for _, part in frame.groupby(["gpu", "backend", "kernel_source", *by], observed=True, dropna=False):
        if not len(part):
            continue
        family, variant, given = make(part)
        device = device_named(str(part["gpu"].iloc[0])).name
        keys: tuple[tuple[float, ...], ...] = ()
        if chosen_by is not None:
            keys = tuple(sorted({tuple(map(float, key)) for key in zip(*chosen_by(part), strict=True)}))
        kernel = f"{part['backend'].iloc[0]}/{part['kernel_source'].iloc[0]}"
        numbers = part.groupby(list(site), observed=True, dropna=False).ngroup().to_numpy()
        found.append(Measured(family, device, variant, kernel, given, _of(part, "us"), numbers, keys, table))
    return found


def _of(frame: Any, column: str) -> Array:
    return np.asarray(frame[column].to_numpy(dtype=np.float64))


def _widths(values: Any) -> Array:
    return np.array([BYTES[str(value)] for value in values])


def _gemm(frame: Any) -> list[Measured]:
    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        width = _widths(part["gemm_dtype"])
        given = {name: _of(part, name) for name in ("m", "n", "k")}
        # The protocol of the tables: six copies of the weight; fp8 rows include the quantisation of the activation.
        given |= {"width": width, "quantise": (width == 1).astype(float), "copies": np.full(len(width), 6.0)}
        return "gemm", str(part["gemm_dtype"].iloc[0]), given

    return _by_slot(frame, ["gemm_dtype"], ["n", "k"], make, "gemm")


def _attention(phase: str) -> Callable[[Any], list[Measured]]:
    table = {"prefill": "attention_context", "decode": "attention_generation"}[phase]

    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        q = _of(part, "isl")
        given = {"batch": _of(part, "batch_size"), "q_len": q, "kv_len": q + _of(part, "step")}
        given |= {"heads": _of(part, "num_heads"), "kv_heads": _of(part, "num_key_value_heads")}
        given |= {"head_dim": _of(part, "head_dim"), "window": _of(part, "window_size"), "causal": np.ones(len(q))}
        given["kv_width"] = _widths(part["kv_cache_dtype"])
        return phase, str(part["kv_cache_dtype"].iloc[0]), {**given, **attention_sizes(given)}

    def chosen_by(part: Any) -> tuple[Array, ...]:
        return _of(part, "head_dim"), (_of(part, "isl") == 1).astype(float)

    site = ["num_heads", "num_key_value_heads", "head_dim"]
    return lambda frame: _by_slot(frame, ["kv_cache_dtype"], site, make, table, chosen_by)


def _mla(phase: str) -> Callable[[Any], list[Measured]]:
    table = {"prefill": "mla_context", "decode": "mla_generation"}[phase]

    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        q = _of(part, "isl")
        given = {"batch": _of(part, "batch_size"), "q_len": q, "kv_len": q + _of(part, "step")}
        given |= {"heads": _of(part, "num_heads"), "kv_width": _widths(part["kv_cache_dtype"])}
        columns = latent_columns(given, np.full(len(q), phase == "prefill"))
        return f"mla_{phase}", str(part["kv_cache_dtype"].iloc[0]), columns

    return lambda frame: _by_slot(frame, ["kv_cache_dtype"], ["num_heads", "batch_size"], make, table)


def _mla_bmm(frame: Any) -> list[Measured]:
    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        pre = (part["op_name"].astype(str) == "mla_gen_pre").to_numpy()
        width = _widths(part["bmm_dtype"])
        given = absorbed_columns(_of(part, "num_heads"), _of(part, "num_tokens"), pre, width)
        return "batched", str(part["bmm_dtype"].iloc[0]), given

    return _by_slot(frame, ["bmm_dtype"], ["num_heads"], make, "mla_bmm")


SHAPE = ["hidden_size", "inter_size", "topk", "num_experts"]


def _moe(frame: Any) -> list[Measured]:
    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        names = {"tokens": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "topk": "topk"}
        names |= {"experts": "num_experts", "tp": "moe_tp_size", "ep": "moe_ep_size"}
        given = {name: _of(part, column) for name, column in names.items()}
        given["skew"] = np.array([SKEW[str(value)] for value in part["distribution"]])
        given["width"] = _widths(part["moe_dtype"])
        shapes = zip(*(part[column] for column in SHAPE), strict=True)
        given["matrices"] = np.array([2.0 if shape in NOT_GATED else 3.0 for shape in shapes])
        return "moe", str(part["moe_dtype"].iloc[0]), given

    def chosen_by(part: Any) -> tuple[Array, ...]:
        return tuple(_of(part, column) for column in SHAPE)

    return _by_slot(frame, ["moe_dtype"], SHAPE, make, "moe", chosen_by)


def _collective(library: Callable[[str], str], table: str) -> Callable[[Any], list[Measured]]:
    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        kinds = [str(kind) for kind in part["op_name"]]
        name = library(str(part["kernel_source"].iloc[0]))
        given = collective_columns(_of(part, "num_gpus"), _of(part, "bytes"), kinds, [name] * len(kinds))
        return "collective", f"{name}/{kinds[0]}", given

    return lambda frame: _by_slot(frame, ["op_name"], ["num_gpus", "bytes"], make, table)


def _quantise(frame: Any) -> list[Measured]:
    def make(part: Any) -> tuple[str, str, dict[str, Array]]:
        m, k = _of(part, "m"), _of(part, "k")
        scale = {"scale_matrix": "static", "compute_scale": "dynamic"}[str(part["op_name"].iloc[0])]
        return "quantise", scale, {"m": m, "k": k, **quantise_traffic(m, k)}

    return _by_slot(_with_whole_kernels(frame), ["op_name"], ["k"], make, "quantize")


MINUS = "_minus_"
"""Between the names of two kernels whose difference a row is."""


def _with_whole_kernels(frame: Any) -> Any:
    """Rows that are a dynamic kernel less the static one, as the dynamic kernel; those without a static row are out."""
    names = frame["kernel_source"].astype(str)
    differs = names.str.contains(MINUS, regex=False)
    at = ["gpu", "backend", "m", "k"]
    static = frame[~differs].groupby(at, observed=True)["us"].median().rename("static").reset_index()
    whole = frame[differs].merge(static, on=at)
    whole["us"] = whole["us"] + whole["static"]
    whole["kernel_source"] = whole["kernel_source"].astype(str).str.partition(MINUS)[0]
    return pandas().concat([frame[~differs], whole.drop(columns="static")], ignore_index=True)


LIBRARIES = {"vLLM_custom_graph": "custom", "vLLM_custom_eager": "custom_eager"}

TABLES: dict[str, Callable[[Any], list[Measured]]] = {
    "gemm": _gemm,
    "attention_context": _attention("prefill"),
    "attention_generation": _attention("decode"),
    "mla_context": _mla("prefill"),
    "mla_generation": _mla("decode"),
    "mla_bmm": _mla_bmm,
    "moe": _moe,
    "nccl": _collective(lambda _: "nccl", "nccl"),
    "custom_allreduce": _collective(LIBRARIES.__getitem__, "custom_allreduce"),
    "quantize": _quantise,
}
