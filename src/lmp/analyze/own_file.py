"""A class in a Python file, given as ``FILE.py:Class``: which class it is, and whether lmp knows how it is called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmp.analyze.session import Options, origin_of
from lmp.errors import UsageError
from lmp.source.own_file import (
    OwnClass,
    OwnFile,
    no_module_class,
    own_class,
    own_classes,
    own_file,
    runs_in_a_model,
)
from lmp.source.trees import Trees, completed, find_trees
from lmp.store.results import Store


@dataclass(frozen=True)
class InFile:
    """The class that a name is of, or the classes of the file that the user must choose from or tell more about."""

    root: Path
    """The folder that Python imports the file from."""
    class_path: str | None = None
    """None if no class is chosen, or if lmp does not know how it is called."""
    classes: tuple[OwnClass, ...] = ()
    """The classes to show, if there is no ``class_path``."""


def in_file(path: Path, name: str | None, options: Options) -> InFile:
    """The class ``name`` of a file; without a name the only class. The file is read, not imported.

    Raises NotFound if there is no such class, UsageError if Python cannot import the file. Raises UsageError if
    ``--inputs`` are given and the file has several classes.
    """
    file = own_file(path, options.paths)
    trees = completed(find_trees(None, options.transformers, options.pytorch, [file.root]))
    found = _candidates(file, name, trees)
    if len(found) == 1 and _is_told(found[0], options, trees):
        return InFile(file.root, found[0].source.class_path)
    if len(found) > 1 and options.inputs is not None:
        names = ", ".join(one.name for one in found)
        raise UsageError(f"{path} has {len(found)} classes: {names}\nname one, as in {path}:{found[0].name}")
    return InFile(file.root, None, found)


def _candidates(file: OwnFile, name: str | None, trees: Trees) -> tuple[OwnClass, ...]:
    if name is not None:
        return (own_class(file, name, trees),)
    listed = own_classes(file, trees)
    if not listed.classes:
        raise no_module_class(file, listed)
    return tuple(listed.classes)


def _is_told(one: OwnClass, options: Options, trees: Trees) -> bool:
    """True if the options, a stored analysis, or a model in the file say how the class is called."""
    if options.inputs is not None or options.init is not None or runs_in_a_model(one, trees):
        return True
    config = origin_of(options.found_config).name
    return Store(options.results).load(one.source.class_path, config) is not None
