"""A file for speedscope.app: one profile for each weight, the chosen one in front.

Whole weights are exact in the file. A browser reads them as doubles: beyond 2^53 it shows 16 digits of them. Bytes that
are a fraction are the nearest double.
"""

from __future__ import annotations

import json
from importlib import metadata
from typing import IO, Any, get_args

from lmp.formula import number_text
from lmp.report.formats.base import Format, Result, Show, Weight
from lmp.report.formats.stacks import NAMES, UNITS, Frame, stacks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def point(result: Result, show: Show, out: IO[Any]) -> None:
    indices: dict[tuple[str, str], int] = {}
    weights: list[Weight] = [weight for weight in get_args(Weight) if any(stacks(result.model, result.tree, weight))]
    profiles = [_profile(result, weight, indices) for weight in weights]
    content = {
        "$schema": SCHEMA,
        "exporter": f"lmp {metadata.version('lmp')}",
        "name": f"{result.model.class_name} ({_values(result)})",
        "activeProfileIndex": weights.index(show.weight) if show.weight in weights else 0,
        "shared": {"frames": [_frame(name, file) for name, file in indices]},
        "profiles": profiles,
    }
    out.write(json.dumps(content, ensure_ascii=False) + "\n")


FORMAT = Format(point)


def _profile(result: Result, weight: Weight, indices: dict[tuple[str, str], int]) -> dict[str, Any]:
    samples, sizes = [], []
    for frames, size in stacks(result.model, result.tree, weight):
        samples.append([indices.setdefault(_key(frame), len(indices)) for frame in frames])
        sizes.append(size)
    weights = [size if isinstance(size, int) else float(size) for size in sizes]
    about = {"type": "sampled", "name": NAMES[weight], "unit": UNITS[weight]}
    return {**about, "startValue": 0, "endValue": sum(weights), "samples": samples, "weights": weights}


def _key(frame: Frame) -> tuple[str, str]:
    return frame.name, frame.place


def _frame(name: str, place: str) -> dict[str, Any]:
    file, _, line = place.rpartition(":")
    return {"name": name, "file": file, "line": int(line)} if place else {"name": name}


def _values(result: Result) -> str:
    return ", ".join(f"{name}={number_text(value)}" for name, value in result.evaluation.values.items())
