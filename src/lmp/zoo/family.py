"""One family in a separate process: find the class, repair the config, expand, verify, and summarise in an entry."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmp.analyze.models import ModelOutcome, expand_model
from lmp.analyze.session import Options, Progress
from lmp.records import ModelAnalysis, ModuleAnalysis, ZooEntry
from lmp.source.auto import Family, class_path_of
from lmp.source.names import Names
from lmp.source.trees import find_trees
from lmp.store.files import write_whole
from lmp.store.results import Store
from lmp.workload.failures import failure_of
from lmp.zoo.reasons import line_of_class, reason_for, reason_unverified
from lmp.zoo.requests import Request

POINT = {"batch_size": 1, "seq_len": 128}
"""The point of an entry's totals: one prefill with an empty cache. It makes two runs comparable."""


def analyse_family(request: Request, progress: Progress) -> ZooEntry:
    """Expand and verify a family's class. An error of any kind becomes the entry's reason."""
    entry = ZooEntry(family=request.family, task=request.task, status="error", fingerprint=request.fingerprint)
    try:
        trees = find_trees(None, request.transformers_dir, request.pytorch_dir, [])
        class_path = class_path_of(Family(request.family, request.task, request.class_name), Names(trees))
        progress(class_path, "reading")
        entry = entry.model_copy(update={"class_name": class_path})
        options = Options(
            results=request.folder,
            transformers=request.transformers_dir,
            pytorch=request.pytorch_dir,
            attention=request.attention,
            dtype=request.dtype,
            fresh=request.fresh,
        )
        options, adjustments = _with_consistent_config(class_path, request, options)
        config = options.config_file.stem if options.config_file else "default"
        entry = entry.model_copy(update={"config": config, "adjustments": list(adjustments)})
        outcome, refused = _expanded(class_path, options, progress)
        entry = entry.model_copy(update={"adjustments": [*adjustments, *refused]})
        return entry.model_copy(update=_measurements(outcome, Store(request.folder)))
    except Exception as error:
        reason = reason_for(error)
        status = "failed" if reason.differs else "error"
        place = reason.place
        if place is None and entry.class_name is not None:
            place = line_of_class(entry.class_name, request)
        return entry.model_copy(update={"status": status, "cause": reason.cause, "reason": reason.text, "place": place})


def _expanded(class_path: str, options: Options, progress: Progress) -> tuple[ModelOutcome, tuple[str, ...]]:
    """The expanded model and its adjustments: float32 if an operator does not support the given dtype."""
    try:
        return expand_model(class_path, options, progress), ()
    except Exception as error:
        failure = failure_of(error)
        if options.dtype == "float32" or not failure.refuses_dtype:
            raise
        adjustment = f"dtype = float32 (was {options.dtype}: {failure.place} does not take it)"
    return expand_model(class_path, replace(options, dtype="float32"), progress), (adjustment,)


def _with_consistent_config(class_path: str, request: Request, options: Options) -> tuple[Options, tuple[str, ...]]:
    """The options with their adjustments. They get a file with a repaired config if the model needs one."""
    from lmp.workload.config_repair import consistent
    from lmp.workload.load import load_class, quiet_warnings

    with quiet_warnings():
        config, adjustments = consistent(load_class(class_path))
    if not adjustments:
        return options, ()
    file = request.folder / request.config_name
    write_whole(file, json.dumps(_content(config), indent=2, sort_keys=True, default=str) + "\n")
    return replace(options, config_file=file), adjustments


def _content(config: Any) -> dict[str, Any]:
    """Config values that differ from the class's defaults; all values if those do not reproduce the config."""
    with contextlib.suppress(Exception):
        content = _non_defaults(config, type(config)())
        if type(config).from_dict(copy.deepcopy(content)).to_dict() == config.to_dict():
            return content
    return dict(config.to_dict())


def _non_defaults(config: Any, default: Any) -> dict[str, Any]:
    content, before = config.to_dict(), default.to_dict()
    found: dict[str, Any] = {"model_type": config.model_type}
    for name, value in content.items():
        part = getattr(config, name, None)
        if hasattr(part, "model_type") and type(part) is type(getattr(default, name, None)):
            found[name] = _non_defaults(part, getattr(default, name))
        elif value != before.get(name):
            found[name] = value
    return found


def _measurements(outcome: ModelOutcome, store: Store) -> dict[str, Any]:
    model = outcome.model
    status = model.verification.status
    found: dict[str, Any] = {
        "status": status,
        "phases": [phase for phase in model.verification.phases if phase != "first token"],
        "classes": len(model.parts),
        "pinned": sorted(model.pinned),
        "assumptions": len(model.assumptions),
        "decisions": len(model.decisions),
        "totals": _totals(model),
        "stored_bytes": sum(file.stat().st_size for file in files_of(model, store)),
    }
    if status != "verified":
        reason = reason_unverified(model, _analyses(model, store))
        found |= {"cause": reason.cause, "reason": reason.text, "place": reason.place}
    return found


def files_of(model: ModelAnalysis, store: Store) -> list[Path]:
    """The stored files of a model: its own file and those of the analyses that it was linked from."""
    parts = [store.file(*part) for part in _names_of_parts(model)]
    return [file for file in [store.model_file(model.class_name, model.config.name), *parts] if file.is_file()]


def _analyses(model: ModelAnalysis, store: Store) -> list[ModuleAnalysis]:
    """The analyses that a model was linked from."""
    return [found for part in _names_of_parts(model) if (found := store.load(*part)) is not None]


def _names_of_parts(model: ModelAnalysis) -> list[tuple[str, str]]:
    """The class of each part, and the name of its stored config."""
    config = model.config.name
    return [(name, "default" if name.startswith("torch.") else config) for name in model.parts]


def _totals(model: ModelAnalysis) -> dict[str, int]:
    """Totals of one prefill at the config's values; empty if an assumption is violated there."""
    from lmp.errors import LmpError
    from lmp.link.numbers import ModelNumbers
    from lmp.link.values import values_for

    numbers = ModelNumbers(model)
    runtime = ("batch_size", "seq_len", "cache_len")
    other_lengths = {n: POINT["seq_len"] for n in model.parameters if n not in (*runtime, *model.values)}
    try:
        values = values_for(model, {**POINT, **other_lengths})
        if numbers.violated(values):
            return {}
        totals = numbers.totals(values)
    except LmpError:
        return {}
    names = ("flops", "matmul_flops", "read", "write", "parameters_count")
    return {name: value for name in names if (value := getattr(totals, name)) is not None}
