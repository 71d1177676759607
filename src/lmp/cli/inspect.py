"""`lmp inspect` and `lmp catalogue`: what a model is made of, and which models lmp knows by itself."""

from __future__ import annotations

from typing import Annotated

import typer

from lmp.cli import options as o

InspectDtype = Annotated[o.Dtype | None, typer.Option("--dtype", help="Instead of the dtype that the config states.")]
Depth = Annotated[int | None, typer.Option("--depth", min=0, help="Levels of the tree to show [default: all].")]


def inspect(
    class_path: o.ClassPath = None,
    model: Annotated[str | None, typer.Option("--model", metavar="CLASS", help="The class, as an option.")] = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    results: o.Results = None,
    dtype: InspectDtype = None,
    depth: Depth = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Show a model's tree, parameters and cache.

    As in: lmp inspect --model-id meta-llama/Llama-3.1-8B. No weights are loaded. Without a class it is the config's;
    without a config, the class's defaults.
    """
    from lmp.cli.commands import _print_json, _results_folder, _scratchpad
    from lmp.cli.progress import watch
    from lmp.errors import UsageError
    from lmp.pipeline.module import Options

    if class_path is not None and model is not None and class_path != model:
        raise UsageError(f"two classes are given: {class_path} and, with --model, {model}\ngive one")
    path = class_path or model
    options = Options(_results_folder(results), transformers, pytorch, config_file=config, model_id=model_id)
    looked_for = path or model_id or str(config or "a model")
    with watch([looked_for], quiet) as progress, _scratchpad(options, lambda: looked_for):
        progress(looked_for, "reading")
        from lmp.pipeline.inspecting import inspect_model

        inspection = inspect_model(path, options, None if dtype is None else str(dtype))
    if as_json:
        _print_json(inspection.cut(depth).model_dump(mode="json", exclude_none=True))
    else:
        from lmp.cli.inspection import print_inspection
        from lmp.cli.tables import console

        print_inspection(console(), inspection.cut(depth))


def catalogue(as_json: o.Json = False, debug: o.Debug = False) -> None:
    """List the models that lmp knows without a network."""
    from dataclasses import asdict

    from lmp.cli.commands import _print_json
    from lmp.source.catalogue import entries

    if as_json:
        _print_json([asdict(entry) for entry in entries()])
    else:
        from lmp.cli.inspection import print_catalogue
        from lmp.cli.tables import console

        print_catalogue(console(), entries())
