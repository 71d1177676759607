"""Classes in a file of the user's own: which one a command is for, and what lmp must be told to call it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.cli.options import Common

if TYPE_CHECKING:
    from lmp.source.own_file import OwnClass


def own_class(common: Common, path: Path, name: str | None, command: str) -> tuple[Common, str]:
    """The options with the file's folder, and the path of the class.

    If lmp does not know how the class is called, it prints the classes with the commands to type, and raises
    UsageError.
    """
    from lmp.analyze.own_file import in_file
    from lmp.errors import UsageError

    if command == "inspect":
        raise UsageError(f"lmp inspect is for models with a config, not for {path}\nuse lmp analyze-module {path}")
    found = in_file(path, name, common.options(said=False))
    if found.class_path is not None:
        return replace(common, path=[found.root]), found.class_path
    _print(found.classes, path, common, command)
    if len(found.classes) > 1:
        raise UsageError(f"{path} has {len(found.classes)} classes, and none is named\ntype one of the commands above")
    raise UsageError(f"lmp does not know how {path}:{found.classes[0].name} is called\ntype the command above")


# --- what is printed -------------------------------------------------------------------------------------------------


def _print(found: Sequence[OwnClass], path: Path, common: Common, command: str) -> None:
    """The classes with their signatures and commands: on stdout, with --json on stderr."""
    from lmp.source.quoting import escaped
    from lmp.source.template import template_of

    stream = sys.stderr if common.as_json else sys.stdout
    templates = [template_of(one) for one in found]
    for one, template in zip(found, templates, strict=True):
        first = one.source.class_lines[0]
        lines = [f"{one.constructor}   {path.name}:{first}", f"  {one.signature}"]
        inputs = f' --inputs "{template.inputs}"' + (f' --init "{template.init}"' if template.init else "")
        lines.append(f"  lmp {command} {shlex.quote(f'{path}:{one.name}')}{''.join(_sizes(common))}{inputs}")
        stream.write(escaped("\n".join(lines) + "\n"))
    words = dict.fromkeys(word for template in templates for word in template.open)
    stream.write("The shapes are a template, from names and layers in the source.")
    stream.write(f" Put values in place of {', '.join(words)}.\n" if words else " Check them.\n")
    stream.flush()


def _sizes(common: Common) -> Iterator[str]:
    """The sizes of the call as they were given, so that the printed command has them too."""
    options = {
        "--phase": common.phase, "-b": common.batch_size, "-s": common.seq_len, "-c": common.cache_len,
        "--dtype": common.element_type, "--kv-dtype": common.kv_type,
    }  # fmt: skip
    yield from (f" {option} {shlex.quote(str(value))}" for option, value in options.items() if value is not None)
