"""``lmp prompt``: exactly what an agent would be told of a class, for any other model, tool or person."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.commands import _note, _one_class, _options, _print, _print_json, _watched

if TYPE_CHECKING:
    from lmp.agents.told import Told

SYSTEM, MESSAGE = "===== system prompt =====", "===== message ====="


class StageName(StrEnum):
    analyze = "analyze"
    expand = "expand"


Stage = Annotated[
    StageName, typer.Option("--stage", help="analyze: one class; expand: the open references of a model.")
]


def prompt(
    class_path: o.ClassPath = None,
    module: o.ModulePath = None,
    stage: Stage = StageName.analyze,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    inputs: o.Inputs = None,
    init: o.Init = None,
    path: o.Paths = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Print what an agent would be told of a class."""
    options = _options(o.Engine.auto, results, transformers, pytorch, config, model_id, attn, dtype)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    name = _one_class(class_path, module, options)
    with _watched([name], options, quiet) as progress:
        from lmp.pipeline.model import ModelSession
        from lmp.pipeline.telling import told_of_class, told_of_model

        progress(name, "reading")
        session = ModelSession(options, progress)
        told = (told_of_class if stage is StageName.analyze else told_of_model)(session, name)
    if as_json:
        _print_json(data_of(name, stage, told))
    else:
        _print(f"{SYSTEM}\n{told.system.rstrip()}\n\n{MESSAGE}\n{told.prompt.rstrip()}\n")
    if not quiet:
        sys.stdout.flush()
        _note(f"sha256 of both: {told.sha256}")


def data_of(name: str, stage: StageName, told: Told) -> dict[str, object]:
    """With the schemas of the tools that the prompt names."""
    from lmp.agents.tools import described

    return {
        "class_name": name,
        "stage": str(stage),
        "system": told.system,
        "prompt": told.prompt,
        "sha256": told.sha256,
        "tools": described(expander=stage is StageName.expand),
    }
