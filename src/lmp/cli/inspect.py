"""``lmp inspect`` and ``lmp catalogue``: the modules of a model, and the models that lmp knows without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.output import write_json
from lmp.cli.progress import watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from lmp.analyze.session import Options

InspectDtype = Annotated[
    o.Dtype | None, typer.Option("--dtype", help="Dtype in place of the one that the config states.")
]
Depth = Annotated[int | None, typer.Option("--depth", min=0, help="Levels of the tree to show [default: all].")]

FullNames = Annotated[bool, typer.Option("--full-names", help="Show the full path of each class in the tree.")]


@o.takes("class_path", "model", "config", "model_id", "transformers", "pytorch", "results", "no_atlas", ..., *o.PRINTED)
def inspect(
    common: o.Common,
    model: Annotated[
        str | None, typer.Option("--model", metavar="CLASS", help="The class, in place of the argument.")
    ] = None,
    as_dtype: InspectDtype = None,
    depth: Depth = None,
    full_names: FullNames = False,
) -> None:
    """Show a model's tree, parameters and cache.

    Example: lmp inspect meta-llama/Llama-3.1-8B. No weights are loaded. The default class is the
    config's; the default config is the class's.
    """
    named = o.one_of("classes", common.class_path, "--model", model)
    common, path = chosen(common, named, "inspect")
    options = common.options()
    looked_for = path or common.model_id or str(common.config or "a model")
    from lmp.source.installed import lacking

    if lacking() and not common.as_json:
        _print_stored(path, options, common.quiet)
        return
    with watched([looked_for], options, common.quiet) as progress:
        progress(looked_for, "reading")
        from lmp.observe.inspecting import inspect_model

        inspection = inspect_model(path, options, None if as_dtype is None else str(as_dtype))
    if common.as_json:
        write_json(inspection.cut(depth).model_dump(mode="json", exclude_none=True))
    else:
        from lmp.cli.inspection import print_inspection
        from lmp.cli.tables import console

        print_inspection(console(), inspection.cut(depth), full_names)


def _print_stored(path: str | None, options: Options, quiet: bool) -> None:
    """What a stored analysis says of a model, where nothing can build it. Raises EngineMissing if none is stored."""
    from lmp.cli.output import note
    from lmp.cli.progress import class_of_config

    name = path or class_of_config(options)
    with watched([name], options, quiet) as progress:
        from lmp.atlas.models import expand_model

        outcome = expand_model(name, options, progress, keep=False)
    note("warning: torch or transformers is not installed: this is the stored analysis, without the shapes of weights")
    from lmp.cli.model_table import print_model
    from lmp.cli.tables import console

    print_model(console(), outcome, options)


@o.takes("as_json", "debug")
def catalogue(common: o.Common) -> None:
    """List the models that lmp knows without a network."""
    from dataclasses import asdict

    from lmp.source.catalogue import entries

    if common.as_json:
        write_json([asdict(entry) for entry in entries()])
    else:
        from lmp.cli.inspection import print_catalogue
        from lmp.cli.tables import console

        print_catalogue(console(), entries())
