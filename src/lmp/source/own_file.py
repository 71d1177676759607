"""A Python file of the user's own: its module path, and its module classes. Reads files only; nothing is imported."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmp.errors import LmpError, NotFound, Search, TreeChanged, UsageError, did_you_mean, first_line
from lmp.source.constructed import constructors_of
from lmp.source.lines import find_function
from lmp.source.locate import ClassSource, lineage_of, locate
from lmp.source.names import Definition, Names
from lmp.source.parsed import FunctionNode, parse
from lmp.source.trees import LAYOUTS, Trees

_CONFIGURED = "PreTrainedModel"
"""Base class of transformers' models: lmp builds such a model from its config, and needs no inputs."""


@dataclass(frozen=True, eq=False)
class OwnFile:
    """A file, and the path under which Python imports it from ``root``."""

    path: Path
    root: Path
    module: str


@dataclass(frozen=True, eq=False)
class OwnClass:
    """A module class of a file, with its constructor and its ``forward()``."""

    source: ClassSource
    forward: FunctionNode
    init: FunctionNode | None
    """The constructor that runs; None if it is that of nn.Module."""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def signature(self) -> str:
        """``forward()`` as the source has it, without ``self``."""
        returns = f" -> {ast.unparse(self.forward.returns)}" if self.forward.returns is not None else ""
        return f"forward({_arguments(self.forward)}){returns}"

    @property
    def constructor(self) -> str:
        """``Block(dim: int = 64)``."""
        return f"{self.name}({'' if self.init is None else _arguments(self.init)})"


@dataclass(frozen=True, eq=False)
class ClassesOfFile:
    """The module classes of a file, and why its other classes are none."""

    classes: list[OwnClass] = field(default_factory=list)
    others: list[Search] = field(default_factory=list)


def _arguments(function: FunctionNode) -> str:
    text = ast.unparse(function.args)
    first, _, rest = text.partition(", ")
    return rest if first == "self" else "" if text == "self" else text


def own_file(path: Path, folders: Sequence[Path]) -> OwnFile:
    """The module of a file, below one of ``folders`` or the first folder above it without ``__init__.py``.

    Raises UsageError for a file that Python cannot import by a name.
    """
    real = path.resolve()
    root = _root(real, folders, path)
    parts = real.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    bad = next((part for part in parts if not part.isidentifier()), None)
    if bad is not None or not parts:
        kind = "folder" if bad is not None and bad != real.stem else "file"
        raise UsageError(
            f"{path} cannot be imported: the name of its {kind} {bad or real.stem} is no Python name\n"
            f"rename the {kind}, as in {_as_name(bad or real.stem)}"
        )
    if any(parts[0] == layout.import_name for layout in LAYOUTS.values()):
        raise UsageError(f"{path} has the name of the package {parts[0]}\nrename it, as in my_{parts[0]}")
    return OwnFile(real, root, ".".join(parts))


def _root(real: Path, folders: Sequence[Path], path: Path) -> Path:
    if folders:
        above = next((folder.resolve() for folder in folders if real.is_relative_to(folder.resolve())), None)
        if above is None:
            raise UsageError(f"{path} is not below --path {', '.join(map(str, folders))}\nleave out --path")
        return above
    folder = real.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _as_name(text: str) -> str:
    name = "".join(letter if letter.isalnum() else "_" for letter in text)
    return name if name.isidentifier() else f"my_{name}"


def own_classes(file: OwnFile, trees: Trees) -> ClassesOfFile:
    """The module classes that the file defines and that have a ``forward()``, in source order; why others are none.

    Raises NotFound if the file is not valid Python.
    """
    names = [node.name for node in parse(file.path).tree.body if isinstance(node, ast.ClassDef)]
    listed = ClassesOfFile()
    for name in dict.fromkeys(names):
        try:
            listed.classes.append(_own_class(locate(f"{file.module}.{name}", trees), trees))
        except TreeChanged:
            raise
        except LmpError as error:
            listed.others.append(Search(f"class {name}", str(file.path), first_line(error)))
    return listed


def own_class(file: OwnFile, name: str, trees: Trees) -> OwnClass:
    """A class of the file, or one that the file imports. Raises NotFound with the nearest names."""
    listed = own_classes(file, trees)
    found = next((one for one in listed.classes if one.name == name), None)
    if found is not None:
        return found
    names = Names(trees)
    module = names.module(file.module)
    if module is not None and name in names.classes(module):
        return _own_class(locate(f"{file.module}.{name}", trees), trees)  # raises what is wrong with it
    raise _no_class(file, name, [one.name for one in listed.classes])


def _no_class(file: OwnFile, name: str, there: list[str]) -> NotFound:
    what = f"{file.path.name} has no class {name}"
    searched = [Search(f"class {name}", str(file.path), f"the classes {', '.join(there)}" if there else "no class")]
    close = difflib.get_close_matches(name, there, n=3, cutoff=0.5)
    has = f"it has {', '.join(there)}" if there else "it has no nn.Module with a forward()"
    return NotFound(f"{what}\n{did_you_mean(close, has)}", searched)


def no_module_class(file: OwnFile, listed: ClassesOfFile) -> NotFound:
    """The error for a file without a module class. It has the reason of the first class that is none."""
    searched = listed.others or [Search("a class that is an nn.Module", str(file.path), "it defines no class")]
    why = f": {listed.others[0].found}" if listed.others else ""
    return NotFound(f"{file.path.name} defines no nn.Module with a forward(){why}\ngive a file that does", searched)


def _own_class(source: ClassSource, trees: Trees) -> OwnClass:
    names = Names(trees)
    definition = _definition(source, names)
    constructors = [] if definition is None else constructors_of(definition, names)
    forward = find_function(parse(source.forward_path), source.forward_qualname)
    return OwnClass(source, forward, constructors[0][1] if constructors else None)


def _definition(source: ClassSource, names: Names) -> Definition | None:
    module = names.module(source.module)
    found = None if module is None else names.attribute(module, source.name)
    return found if isinstance(found, Definition) else None


def runs_in_a_model(one: OwnClass, trees: Trees) -> bool:
    """True if the class is built from a config, and its file has a model of transformers that may contain it."""
    if one.init is None or "config" not in (argument.arg for argument in one.init.args.args):
        return False
    names = Names(trees)
    module = names.module(one.source.module)
    classes = [names.attribute(module, name) for name in names.classes(module)] if module is not None else []
    lineages = [lineage_of(c, names) for c in classes if isinstance(c, Definition) and isinstance(c.node, ast.ClassDef)]
    return any(
        entry.rpartition(".")[2] == _CONFIGURED
        for lineage in lineages
        for entry in (*lineage.unknown, *(definition.qualified for definition in lineage.order))
    )
