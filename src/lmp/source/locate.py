"""Locator: maps a class path, or a public alias of it, to the lines of the class and of its ``forward()``."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.errors import NotFound, Search, UsageError, did_you_mean
from lmp.source.names import Definition, External, Found, Module, Names, check_class_path, dotted_name, file_bytes
from lmp.source.parsed import FunctionNode
from lmp.source.trees import LAYOUTS, Tree, Trees, check_file, version_of

if TYPE_CHECKING:
    from lmp import records

MODULE_CLASS = "torch.nn.modules.module.Module"
_PUBLIC_MODULE_CLASS = "torch.nn.Module"
_UNIMPLEMENTED = "_forward_unimplemented"


@dataclass(frozen=True, eq=False)
class ClassSource:
    """The source of a module class. Paths named ``file`` are posix and relative to their tree's root."""

    class_path: str
    """The path under the defining module."""
    requested: str
    """The path in the request: the class path or an alias."""
    name: str
    module: str
    tree: Tree
    file: str
    path: Path
    class_lines: tuple[int, int]
    """First and last line of the class, decorators included."""
    lines: tuple[int, int]
    """First and last line of ``forward()``, from its ``def`` line, in ``forward_file``."""
    forward_qualname: str
    """Qualified name of forward(), such as LlamaMLP.forward; for an alias, that of the original function."""
    forward_class: str
    """The class whose body holds forward(): ``class_path`` itself, or the base it is inherited from."""
    forward_tree: Tree
    forward_file: str
    forward_path: Path
    sha256: str
    """sha256 of the file that contains ``forward()``."""
    bases: tuple[str, ...]
    """Defining paths of the direct bases; an unresolved name stands as in the source."""
    mro: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Unresolved names that were not needed, as text."""

    @property
    def inherited(self) -> bool:
        return self.forward_class != self.class_path

    def record(self) -> records.Source:
        """The record in stored analyses. ``class_lines`` is None if the class and ``forward()`` are in two files."""
        from lmp.records import Source

        return Source(
            file=self.forward_file,
            lines=self.lines,
            class_lines=self.class_lines if self.path == self.forward_path else None,
            distribution=self.forward_tree.distribution,
            version=version_of(self.forward_tree, self.forward_path),
            sha256=self.sha256,
        )


@dataclass(frozen=True, eq=False)
class Lineage:
    """A class with its bases in method resolution order, and the names of bases that could not be read."""

    order: tuple[Definition, ...]
    unknown: tuple[str, ...]
    is_module: bool


def locate(class_path: str, trees: Trees) -> ClassSource:
    """The source of the class at ``class_path``. Reads files only: the analysed code is never imported.

    Raises NotFound if the class or its ``forward()`` is missing, UsageError if it is no module.
    """
    check_class_path(class_path)
    names = Names(trees)
    definition = find_class(class_path, names)
    lineage = lineage_of(definition, names)
    _must_be_module(definition, lineage, names)
    # Checked before the search for forward(): a modified base may have lost or gained one.
    for entry in {entry.path: entry for entry in lineage.order}.values():
        check_file(entry.module.tree, entry.path)
    holder, qualname, forward, home = _find_forward(definition, lineage, names)
    check_file(home.module.tree, home.path)
    return ClassSource(
        class_path=definition.qualified,
        requested=class_path,
        name=definition.node.name,
        module=definition.module.name,
        tree=definition.module.tree,
        file=definition.module.tree.relative(definition.path),
        path=definition.path,
        class_lines=_span_with_decorators(definition.node),
        lines=(forward.lineno, forward.end_lineno or forward.lineno),
        forward_qualname=qualname,
        forward_class=holder.qualified,
        forward_tree=home.module.tree,
        forward_file=home.module.tree.relative(home.path),
        forward_path=home.path,
        sha256=home.parsed.sha256,
        bases=tuple(_base_names(definition, names)),
        mro=tuple(entry.qualified for entry in lineage.order),
        notes=tuple(f"base {name} is not in the sources" for name in lineage.unknown),
    )


# --- the class -------------------------------------------------------------------------------------------------------


def find_class(class_path: str, names: Names) -> Definition:
    """The definition of the class at a class path; it need not be a module. Raises NotFound if there is none."""
    module, rest = _longest_module(class_path, names)
    if not rest:
        raise _not_found(f"{class_path} is a module, not a class", names, class_path, module, "a module")
    is_top = module.name == "transformers" and len(rest) == 1
    found: Found | None = class_offered_by_models(rest[0], names) if is_top else None
    found = found or _attributes(module, rest, names)
    if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef):
        return found
    if isinstance(found, Definition):
        what = f"a function, in {found.path} at line {found.node.lineno}"
        raise _not_found(f"{class_path} is a function, not a class", names, class_path, module, what)
    if isinstance(found, External):
        what = f"an import of {found.name}, which is not in the source trees"
        raise _not_found(f"{class_path} is {what}", names, class_path, module, what)
    if isinstance(found, Module):
        raise _not_found(f"{class_path} is a module, not a class", names, class_path, module, "a module")
    raise _no_such_class(class_path, ".".join(rest), module, names)


def _longest_module(class_path: str, names: Names) -> tuple[Module, list[str]]:
    parts = class_path.split(".")
    for layout in LAYOUTS.values():
        if parts[0] == layout.import_name and names.trees.of_package(parts[0]) is None:
            names.trees.need(layout.name)
    module = names.module(parts[0])
    if module is None:
        raise _no_such_package(parts, names)
    for length in range(len(parts), 0, -1):
        longest = names.module(".".join(parts[:length]))
        if longest is not None:
            return longest, parts[length:]
    raise AssertionError("unreachable: the package itself is a module")


def _no_such_package(parts: list[str], names: Names) -> NotFound:
    import difflib

    from lmp.source.catalogue import close_ids

    packages = sorted(tree.import_name for tree in names.trees)
    if len(parts) == 1:
        close = _classes_named(parts[0], names) or close_ids(parts[0])
    else:
        near = difflib.get_close_matches(parts[0], packages, n=1)
        close = [".".join([name, *parts[1:]]) for name in near]
    otherwise = "give the full path, as in transformers.models.llama.modeling_llama.LlamaMLP or torch.nn.Linear"
    return NotFound(
        f"no source tree holds a package {parts[0]!r} (there are: {', '.join(packages) or 'none'})\n"
        f"{did_you_mean(close, otherwise)}",
        [Search(f"package {parts[0]}", str(tree.root), "not there") for tree in names.trees],
    )


def _classes_named(name: str, names: Names, most: int = 3) -> list[str]:
    """Paths of classes with this name, or one that differs in case: in torch.nn and in the files of transformers."""
    nn, transformers = names.module("torch.nn"), names.module("transformers")
    found = [f"torch.nn.{one}" for one in names.classes(nn) if one.lower() == name.lower()] if nn is not None else []
    if transformers is not None and transformers.folder is not None:
        defines = re.compile(rb"^class (%s)\s*[(:]" % re.escape(name.encode()), re.MULTILINE | re.IGNORECASE)
        for path in sorted(transformers.folder.glob("models/*/modeling_*.py")):
            parts = path.relative_to(transformers.folder.parent).with_suffix("").parts
            found += [".".join([*parts, one.decode()]) for one in defines.findall(file_bytes(path))]
    return found[:most]


def _attributes(module: Module, rest: Sequence[str], names: Names) -> Found | None:
    found: Found | None = module
    for part in rest:
        if not isinstance(found, Module):
            return None
        found = names.attribute(found, part)
    return found


def class_offered_by_models(name: str, names: Names) -> Definition | None:
    """The class that transformers' top level exports under a name, or None.

    The top level is lazy: it exports every name in an ``__all__`` under models/, 2500 files. So a text search selects
    the files that define the name. Only their star imports are followed.
    """
    module = names.module("transformers")
    if module is None or module.folder is None:
        return None
    models = module.folder / "models"
    for path in _files_defining(models, name):
        parts = path.relative_to(models).with_suffix("").parts
        inner = names.module(".".join([module.name, "models", *parts]))
        found = names.attribute(inner, name) if inner is not None else None
        if isinstance(found, Definition) and found.path == path:
            return found
    names.searched.append(Search(f"class {name}", str(models / "*" / "*.py"), "no file defines and offers it"))
    return None


def _files_defining(models: Path, name: str) -> list[Path]:
    """The files under ``models`` that define and export the class; generated files before modular_ files."""
    head = b"class " + name.encode()
    define = re.compile(rb"^%s\s*[(:]" % head, re.MULTILINE)
    offer = re.compile(rb"""["']%s["']""" % name.encode())

    def defines(path: Path) -> bool:
        text = file_bytes(path)
        return head in text and bool(define.search(text)) and bool(offer.search(text))

    folders = _folders(models)
    # LlamaForCausalLM is most likely in llama/, so matching folders are read first.
    likely = [folder for folder in folders if name.lower().startswith(folder.name.replace("_", ""))]
    for chosen in (likely, folders):
        found = [path for folder in chosen for path in folder.glob("*.py") if defines(path)]
        if found:
            return sorted(found, key=lambda path: (path.name.startswith("modular_"), path))
    return []


@functools.lru_cache(maxsize=8)
def _folders(models: Path) -> tuple[Path, ...]:
    return tuple(sorted(entry for entry in models.iterdir() if entry.is_dir())) if models.is_dir() else ()


def _no_such_class(class_path: str, name: str, module: Module, names: Names) -> NotFound:
    import difflib

    first, _, rest = name.partition(".")
    if rest and module.folder is not None:
        there = sorted({path.stem for path in module.folder.iterdir() if path.suffix == ".py" or path.is_dir()})
        message, wanted, what = f"{module.name} has no module {first}", first, "modules"
    else:
        there = names.classes(module)
        message, wanted, what = f"{module.name} has no class {name}", name, "classes"
    close = difflib.get_close_matches(wanted, there, n=3, cutoff=0.6)
    found = f"{len(there)} {what}" + (f"; closest: {', '.join(close)}" if close else "")
    hint = did_you_mean(close, f"there are {len(there)} {what} in {module.name}")
    return _not_found(f"{message}\n{hint}", names, class_path, module, found)


def _not_found(message: str, names: Names, class_path: str, module: Module, found: str) -> NotFound:
    where = str(module.path or module.folder)
    return NotFound(message, [*names.searched, Search(f"class {class_path}", where, found)])


# --- bases of a class ------------------------------------------------------------------------------------------------


def lineage_of(definition: Definition, names: Names) -> Lineage:
    """The class and its bases in Python's method resolution order, as far as the sources define it."""
    unknown: list[str] = []
    order = _linearise(definition, names, unknown, frozenset())
    qualified = {entry.qualified for entry in order}
    is_module = MODULE_CLASS in qualified or _PUBLIC_MODULE_CLASS in unknown or MODULE_CLASS in unknown
    return Lineage(tuple(order), tuple(dict.fromkeys(unknown)), is_module)


def _linearise(definition: Definition, names: Names, unknown: list[str], above: frozenset[str]) -> list[Definition]:
    """C3 order, or depth first if the known bases admit none. A class among its own bases is left out."""
    above = above | {definition.qualified}
    parents = []
    for dotted, found in _bases(definition, names):
        if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef):
            if found.qualified not in above:
                parents.append(_linearise(found, names, unknown, above))
        else:
            unknown.append(found.name if isinstance(found, External) else dotted)
    direct = [parent[0] for parent in parents]
    return [definition, *_merge([*parents, direct])]


def _merge(sequences: list[list[Definition]]) -> list[Definition]:
    merged: list[Definition] = []
    sequences = [list(sequence) for sequence in sequences if sequence]
    while sequences:
        tails = {entry.qualified for sequence in sequences for entry in sequence[1:]}
        head = next((s[0] for s in sequences if s[0].qualified not in tails), sequences[0][0])
        merged.append(head)
        sequences = [[e for e in sequence if e.qualified != head.qualified] for sequence in sequences]
        sequences = [sequence for sequence in sequences if sequence]
    return merged


_NOT_BASES = frozenset({"object", "Generic", "Protocol", "ABC", "Exception", "dict", "list", "tuple", "str", "int"})
_STANDARD = ("typing.", "typing_extensions.", "abc.", "collections.", "enum.", "dataclasses.", "builtins.")


def _bases(definition: Definition, names: Names) -> list[tuple[str, Found | None]]:
    assert isinstance(definition.node, ast.ClassDef)
    bases: list[tuple[str, Found | None]] = []
    for node in definition.node.bases:
        dotted = dotted_name(node)
        if dotted is None:
            bases.append((ast.unparse(node), None))
            continue
        found = names.dotted(definition.module, dotted)
        if found is None and dotted in _NOT_BASES:
            continue
        if isinstance(found, External) and found.name.startswith(_STANDARD):
            continue
        if found is not None and not isinstance(found, Definition | External):
            found = None
        bases.append((dotted, found))
    return bases


def _base_names(definition: Definition, names: Names) -> list[str]:
    described = []
    for dotted, found in _bases(definition, names):
        if isinstance(found, Definition):
            described.append(found.qualified)
        else:
            described.append(found.name if isinstance(found, External) else dotted)
    return described


def _must_be_module(definition: Definition, lineage: Lineage, names: Names) -> None:
    if lineage.is_module:
        return
    if not lineage.unknown:
        raise UsageError(
            f"{definition.qualified} is not a torch.nn.Module, so it has no forward() to analyse\n"
            f"it is a plain class, in {definition.path} at line {definition.node.lineno}"
        )
    if any(name.startswith("torch.") for name in lineage.unknown) and names.trees.pytorch is None:
        names.trees.need("pytorch")
    unread = ", ".join(lineage.unknown)
    raise NotFound(
        f"cannot tell whether {definition.qualified} is a torch.nn.Module: its base {unread} is not in the sources\n"
        "give the class that defines forward() itself, or a source tree that holds the base",
        [*names.searched, Search(f"base {unread}", str(definition.path), "not in any source tree")],
    )


# --- forward() of a class --------------------------------------------------------------------------------------------


def _find_forward(
    definition: Definition, lineage: Lineage, names: Names
) -> tuple[Definition, str, FunctionNode, Definition]:
    """The class whose body binds ``forward``, its qualified name and node, and a definition in the node's file."""
    for holder in lineage.order:
        if holder.qualified == MODULE_CLASS:
            break
        assert isinstance(holder.node, ast.ClassDef)
        bound = method_of(holder.node, "forward")
        if isinstance(bound, str):
            resolved = _aliased_forward(holder, bound, lineage, names)
            if resolved is not None:
                return holder, *resolved
        elif bound is not None:
            return holder, f"{holder.node.name}.forward", bound, holder
    if any(name.startswith("torch.") for name in lineage.unknown) and names.trees.pytorch is None:
        names.trees.need("pytorch")
    hint = (
        f"it may come from {', '.join(lineage.unknown)}, which is not in the sources"
        if any(name not in (MODULE_CLASS, _PUBLIC_MODULE_CLASS) for name in lineage.unknown)
        else "analyse a subclass that defines it"
    )
    raise NotFound(
        f"{definition.qualified} has no forward() of its own and inherits none\n{hint}",
        [
            *names.searched,
            *(Search("forward()", f"class {e.qualified} in {e.path}", "not defined") for e in lineage.order),
        ],
    ).at(str(definition.path), definition.node.lineno)


def method_of(node: ast.ClassDef, name: str) -> FunctionNode | str | None:
    """The last binding of ``name`` in a class body: a function, or the dotted name of an alias."""
    bound: FunctionNode | str | None = None
    for statement in _class_level(node.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            bound = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                bound = dotted_name(statement.value) or bound
    return bound


def _class_level(body: list[ast.stmt]) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    for statement in body:
        statements.append(statement)
        if isinstance(statement, ast.If | ast.Try):
            for part in ("body", "orelse", "finalbody"):
                statements += _class_level(getattr(statement, part, []))
    return statements


def _aliased_forward(
    holder: Definition, dotted: str, lineage: Lineage, names: Names
) -> tuple[str, FunctionNode, Definition] | None:
    """``forward = other``: a method of the class or its bases, a method of a named class, or a plain function."""
    head, _, method = dotted.rpartition(".")
    if not head:
        for entry in lineage.order:
            assert isinstance(entry.node, ast.ClassDef)
            bound = method_of(entry.node, dotted)
            if bound is not None and not isinstance(bound, str):
                return (f"{entry.node.name}.{dotted}", bound, entry) if dotted != _UNIMPLEMENTED else None
    found = names.dotted(holder.module, dotted)
    if isinstance(found, Definition) and not isinstance(found.node, ast.ClassDef):
        return (found.node.name, found.node, found) if found.node.name != _UNIMPLEMENTED else None
    owner = names.dotted(holder.module, head) if head else None
    if isinstance(owner, Definition) and isinstance(owner.node, ast.ClassDef):
        bound = method_of(owner.node, method)
        if bound is not None and not isinstance(bound, str):
            return f"{owner.node.name}.{method}", bound, owner
    return None


def _span_with_decorators(node: ast.ClassDef | FunctionNode) -> tuple[int, int]:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first, node.end_lineno or node.lineno
