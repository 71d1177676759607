"""Classes in a file of the user's own: which one a command is for, and what lmp must be told to call it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.cli.options import Common
from lmp.cli.typed import again, again_for

if TYPE_CHECKING:
    from lmp.analyze.session import Options
    from lmp.codebase.revisions import OwnAt
    from lmp.source.own_file import OwnClass
    from lmp.source.subject import Subject


def own_class(common: Common, text: str, subject: Subject, command: str) -> tuple[Common, str]:
    """The options with the file's folder, and the path of the class. ``text`` is the subject as it was typed.

    If lmp does not know how the class is called, it prints the classes with the commands to type, and raises
    UsageError.
    """
    from lmp.analyze.own_file import in_file
    from lmp.errors import UsageError

    path = subject.file
    assert path is not None
    if command == "inspect":
        raise UsageError(f"lmp inspect is for models with a config, not for {path}\nuse lmp analyze-module {path}")
    found = in_file(path, subject.class_name, common.options(said=False))
    if found.class_path is not None:
        return replace(common, path=[found.root]), found.class_path
    commands = [again_for(text, f"{path}:{one.name}", command) for one in found.classes]
    _print(found.classes, path, commands, common.as_json)
    if len(found.classes) > 1:
        raise UsageError(f"{path} has {len(found.classes)} classes, and none is named\ntype one of the commands above")
    raise UsageError(f"lmp does not know how {path}:{found.classes[0].name} is called\ntype the command above")


def need_inputs(own: OwnAt, options: Options, beside_stdout: bool) -> None:
    """Print the command with its inputs, and raise UsageError, if a comparison lacks them for this class.

    The file is read as it is now. One that is not there now, or has no such class, is left to the analysis.
    """
    from lmp.analyze.own_file import in_file
    from lmp.errors import NotFound, UsageError

    try:
        found = in_file(own.file, own.class_name, options)
    except (NotFound, UsageError):
        return
    if found.class_path is not None:
        return
    _print(found.classes, own.file, [again()], beside_stdout)
    raise UsageError(f"lmp does not know how {own.now} is called\ntype the command above")


# --- what is printed -------------------------------------------------------------------------------------------------


def _print(found: Sequence[OwnClass], path: Path, commands: Sequence[str], beside_stdout: bool) -> None:
    """The classes with their signatures, and the commands with what they lack, on stdout or on stderr."""
    from lmp.source.quoting import escaped
    from lmp.source.template import template_of

    stream = sys.stderr if beside_stdout else sys.stdout
    templates = [template_of(one) for one in found]
    for one, command, template in zip(found, commands, templates, strict=True):
        first = one.source.class_lines[0]
        inputs = f' --inputs "{template.inputs}"' + (f' --init "{template.init}"' if template.init else "")
        lines = [f"{one.constructor}   {path.name}:{first}", f"  {one.signature}", f"  {command}{inputs}"]
        stream.write(escaped("\n".join(lines) + "\n"))
    words = dict.fromkeys(word for template in templates for word in template.open)
    stream.write("The shapes are a template, from names and layers in the source.")
    stream.write(f" Put values in place of {', '.join(words)}.\n" if words else " Check them.\n")
    stream.flush()
