"""The commands for a project's own files: ``lmp vendor`` and ``lmp schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmp.cli import options as o
from lmp.cli.output import note, write, write_json


@o.takes(*o.PRINTED)
def vendor(common: o.Common) -> None:
    """Copy the pinned Python sources into the project."""
    from dataclasses import asdict

    from lmp.source.project import project_root
    from lmp.source.vendor import vendor as put

    result = put(project_root() or Path.cwd(), log=(lambda line: None) if common.quiet else note)
    if common.as_json:
        trees = [asdict(tree) for tree in result.trees]
        write_json({"root": str(result.root), "changed": result.changed, "trees": trees})
    elif not common.quiet:
        note("vendored" if result.changed else "nothing changed")


@o.takes(..., "as_json", "debug")
def schema(
    common: o.Common,
    name: Annotated[str | None, typer.Argument(help="Schema to print [default: list all].")] = None,
    write_files: Annotated[bool, typer.Option("--write", help="Write all schemas to files.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Folder for --write [default: schemas].")
    ] = None,
) -> None:
    """Print the JSON Schemas of lmp's files."""
    from lmp.store import schemas

    if write_files:
        from lmp.source.project import project_root

        for path in schemas.write_schemas(folder or (project_root() or Path.cwd()) / "schemas"):
            note(f"wrote {path}")
    elif name is not None:
        write(schemas.schema_text(name))
    elif common.as_json:
        write_json({name: schemas.schema(name) for name in schemas.DESCRIBED})
    else:
        for entry in schemas.DESCRIBED.values():
            write(f"{entry.name:<16} {entry.what}\n")
