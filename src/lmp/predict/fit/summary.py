"""What a calibration found, as data and as the text that docs/prediction.md shows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lmp.predict.devices import device_named
from lmp.predict.fit.calibrate import Held, Result, errors_of, joined_any, pooled
from lmp.predict.kernels import FAMILIES
from lmp.predict.kernels.base import Array

ZONES = ("compute", "memory", "link", "latency")
"""What bounds a row: the limit that takes at least 40 % of its predicted time; latency if none does."""
SHARE = 0.4


def summary(result: Result) -> dict[str, Any]:
    """Errors on held-out sites: pooled, by device and kernel, by zone; and from one GPU to another."""
    held: dict[tuple[str, str], list[Held]] = defaultdict(list)
    for one in result.fitted:
        if one.held.fitted:
            continue
        held[one.slot.family, one.slot.variant].append(one.held)
    return {
        "pooled": [{"family": f, "variant": v, **pooled(parts)} for (f, v), parts in held.items()],
        "slots": [
            {"family": s.family, "device": s.device, "variant": s.variant, "kernel": s.kernel, **s.errors}
            for s in (one.slot for one in result.fitted)
        ],
        "zones": [row for key, parts in held.items() for row in _zones(key, parts)],
        "left_out": result.left_out,
    }


def zones_of(held: Held) -> Array:
    """Index into ZONES for each held-out row."""
    measured = held.measured
    limits = FAMILIES[measured.family].limits(measured.columns, device_named(measured.device))
    compute, memory, link = limits
    most = np.maximum(np.maximum(compute, memory), link)
    which = np.select(
        [most < SHARE * held.predicted, (compute >= memory) & (compute >= link), link >= memory], [3, 0, 2], 1
    )
    return np.asarray(which)


def _zones(key: tuple[str, str], parts: Iterable[Held]) -> list[dict[str, Any]]:
    by_zone: dict[int, list[Held]] = defaultdict(list)
    for held in parts:
        which = zones_of(held)
        for zone in np.unique(which):
            rows = which == zone
            by_zone[int(zone)].append(held.take(rows))
    return [
        {"family": key[0], "variant": key[1], "zone": ZONES[zone], **errors_of(joined_any(found))}
        for zone, found in sorted(by_zone.items())
    ]


def text_of(made: Mapping[str, Any], seeds: Sequence[int], dropped: Mapping[str, Mapping[str, int]]) -> str:
    """The summary as plain tables."""
    errors = ("rows", "sites", "model_mape", "mape", "median", "p90", "coverage", "half_width")
    parts = [
        f"Error on held-out sites, in per cent; seeds {', '.join(map(str, seeds))}.",
        "model: without trees; coverage: measured times inside the 80 % interval; half: median half-width.",
        "* one shape alone was measured: errors of the fit's own rows, in no sum.\n",
        _table("All devices together", ("family", "variant"), errors, made["pooled"]),
        _table("By device and kernel", ("family", "device", "variant", "kernel"), errors, made["slots"]),
        _table("By what bounds the time", ("family", "variant", "zone"), errors, made["zones"]),
    ]
    if made["left_out"]:
        names = ("family", "variant", "device", "source", "kernel")
        figures = ("model_mape", "model_median", "trees_mape", "trees_median", "coverage")
        title = "A device that was never fitted: its datasheet, and parameters of another architecture (source)"
        parts.append(_table(title, names, figures, made["left_out"]))
    for file, reasons in dropped.items():
        parts.append("".join(f"{file}: dropped {count} rows, {reason}\n" for reason, count in reasons.items()))
    return "\n".join(parts)


def text_of_files(files: Sequence[Path]) -> str:
    """The same of files that were written."""
    data = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    made: dict[str, list[Any]] = defaultdict(list)
    for one in data:
        for part, rows in one["summary"].items():
            made[part] += rows
    seeds = sorted({seed for one in data for seed in one["provenance"]["seeds"]})
    dropped = {name: reasons for one in data for name, reasons in one["provenance"]["dropped"].items()}
    return text_of(made, seeds, dropped)


HEADS = {
    "model_mape": "model", "mape": "MAPE", "half_width": "half", "model_median": "model med", "trees_mape": "trees",
    "trees_median": "trees med",
}  # fmt: skip
LONGEST_KERNEL = 34


def _table(title: str, names: Sequence[str], figures: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        [_name(row[name]) + _mark(row, name) for name in names] + [_figure(row[figure]) for figure in figures]
        for row in rows
    ]
    head = [*names, *(HEADS.get(figure, figure) for figure in figures)]
    widths = [max(len(line[place]) for line in [head, *shown]) for place in range(len(head))]
    sides: list[Any] = [str.ljust] * len(names) + [str.rjust] * len(figures)
    lines = [
        "  ".join(side(cell, w) for side, cell, w in zip(sides, line, widths, strict=True)) for line in [head, *shown]
    ]
    return title + "\n" + "\n".join(line.rstrip() for line in lines) + "\n"


def _name(value: str) -> str:
    return value if len(value) <= LONGEST_KERNEL else value[: LONGEST_KERNEL - 1] + "…"


def _mark(row: Mapping[str, Any], name: str) -> str:
    return " *" if name == "kernel" and not row.get("held_out", True) else ""


def _figure(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.1f}"
