"""One family in a process of its own: its class found, its config made consistent, expanded, verified, summed up."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmp.pipeline.model import ModelOutcome, expand_model
from lmp.pipeline.module import Options, Progress
from lmp.pipeline.zoo.reasons import place_of, why, why_unverified
from lmp.pipeline.zoo.requests import Request
from lmp.records import ModelAnalysis, ModuleAnalysis, ZooEntry
from lmp.source.auto import Family, class_path_of
from lmp.source.names import Names
from lmp.source.trees import find_trees
from lmp.store.files import write_whole
from lmp.store.results import Store
from lmp.workload.failures import failure_of

POINT = {"batch_size": 1, "seq_len": 128}
"""Where totals are worked out, so that two runs can be compared: one prefill, the cache empty."""


def analyse_family(request: Request, progress: Progress) -> ZooEntry:
    """Expand and verify a family's class; whatever goes wrong is told in the entry."""
    entry = ZooEntry(family=request.family, task=request.task, status="error", fingerprint=request.fingerprint)
    trees = None
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
        return entry.model_copy(update=_about(outcome, Store(request.folder)))
    except Exception as error:
        reason = why(error)
        status = "failed" if reason.differs else "error"
        place = reason.place
        if place is None and trees is not None and entry.class_name is not None:
            place = place_of(entry.class_name, trees)
        return entry.model_copy(update={"status": status, "cause": reason.cause, "reason": reason.text, "place": place})


def _expanded(class_path: str, options: Options, progress: Progress) -> tuple[ModelOutcome, tuple[str, ...]]:
    """The expanded model; in float32, which is told, where an operator of it does not take the dtype asked for."""
    try:
        return expand_model(class_path, options, progress), ()
    except Exception as error:
        failure = failure_of(error)
        if options.dtype == "float32" or not failure.refuses_dtype:
            raise
        told = f"dtype = float32 (was {options.dtype}: {failure.place} does not take it)"
    return expand_model(class_path, replace(options, dtype="float32"), progress), (told,)


def _with_consistent_config(class_path: str, request: Request, options: Options) -> tuple[Options, tuple[str, ...]]:
    """The default config where the model runs with it; else one made consistent, in a file that can be used again."""
    from lmp.workload.consistent import consistent
    from lmp.workload.load import load_class, quiet_warnings

    with quiet_warnings():
        config, adjustments = consistent(load_class(class_path))
    if not adjustments:
        return options, ()
    file = request.folder / request.config_name
    write_whole(file, json.dumps(_stated(config), indent=2, sort_keys=True, default=str) + "\n")
    return replace(options, config_file=file), adjustments


def _stated(config: Any) -> dict[str, Any]:
    """What a config states beyond the defaults, which nobody is held to; all of it where that makes another one."""
    with contextlib.suppress(Exception):
        content = _beyond(config, type(config)())
        if type(config).from_dict(copy.deepcopy(content)).to_dict() == config.to_dict():
            return content
    return dict(config.to_dict())


def _beyond(config: Any, default: Any) -> dict[str, Any]:
    content, before = config.to_dict(), default.to_dict()
    found: dict[str, Any] = {"model_type": config.model_type}
    for name, value in content.items():
        part = getattr(config, name, None)
        if hasattr(part, "model_type") and type(part) is type(getattr(default, name, None)):
            found[name] = _beyond(part, getattr(default, name))
        elif value != before.get(name):
            found[name] = value
    return found


def _about(outcome: ModelOutcome, store: Store) -> dict[str, Any]:
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
        reason = why_unverified(model, _parts(model, store))
        found |= {"cause": reason.cause, "reason": reason.text, "place": reason.place}
    return found


def files_of(model: ModelAnalysis, store: Store) -> list[Path]:
    """The stored files of a model: its own, and the analyses that it was linked from."""
    parts = [store.file(*part) for part in _named(model)]
    return [file for file in [store.model_file(model.class_name, model.config.name), *parts] if file.is_file()]


def _parts(model: ModelAnalysis, store: Store) -> list[ModuleAnalysis]:
    """The analyses that a model was linked from."""
    return [found for part in _named(model) if (found := store.load(*part)) is not None]


def _named(model: ModelAnalysis) -> list[tuple[str, str]]:
    """Each part's class, and the name of the config that it is stored under."""
    config = model.config.name
    return [(name, "default" if name.startswith("torch.") else config) for name in model.parts]


def _totals(model: ModelAnalysis) -> dict[str, int]:
    """Of one prefill at the config's own values; empty where an assumption does not hold there."""
    from lmp.errors import LmpError
    from lmp.expand.numbers import ModelNumbers
    from lmp.expand.point import point

    numbers = ModelNumbers(model)
    runtime = ("batch_size", "seq_len", "cache_len")
    other_lengths = {n: POINT["seq_len"] for n in model.parameters if n not in (*runtime, *model.values)}
    try:
        values = point(model, {**POINT, **other_lengths})
        if numbers.violated(values):
            return {}
        totals = numbers.totals(values)
    except LmpError:
        return {}
    names = ("flops", "matmul_flops", "read", "write", "parameters_count")
    return {name: value for name in names if (value := getattr(totals, name)) is not None}
