"""Source trees: their location, their version, and whether they agree with the lock or with what was installed.

A tree is a folder with the layout of a git clone: ``transformers/src/transformers`` or ``pytorch/torch``. The vendored
trees of a project are pinned: ``vendor.lock`` holds the sha256 of each tree's manifest. A manifest has the lines
``<sha256 of file>  <path>``. So one file can be checked against the lock without reading the others.

Outside a project the trees are the installed packages. Results name their files as in a clone, so that equal sources
have equal names. Their files are compared with the RECORD of the distribution.
"""

from __future__ import annotations

import ast
import functools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from lmp.errors import NotFound, Search, TreeChanged
from lmp.source.installed import (
    distribution_of,
    engine_missing,
    package_folder,
    recorded_files,
    recorded_hash,
    say_once,
)
from lmp.source.project import LOCK_NAME, project_root

MANIFEST_NAME = ".lmp-manifest"
SOURCE_SUFFIXES = (".py", ".pyi")
UNKNOWN = "unknown"
EDITED = "+edited"
"""End of the version of an installed file that was edited: 5.23.0+edited."""


@dataclass(frozen=True)
class Layout:
    """The constants of a tree: its folder in a project, its package in that folder, and its distribution."""

    name: str
    package: str
    """Posix path of the package inside the tree."""
    distribution: str
    pinned_version: str
    """The version that lmp is proven on. It is downloaded if it is neither installed nor in vendor.lock."""

    @property
    def import_name(self) -> str:
        return self.package.rpartition("/")[2]


LAYOUTS = {
    "transformers": Layout("transformers", "src/transformers", "transformers", "5.23.0"),
    "pytorch": Layout("pytorch", "torch", "torch", "2.13.0"),
}


@dataclass(frozen=True)
class Tree:
    """One tree on disk."""

    name: str
    root: Path
    package_dir: Path
    distribution: str
    version: str
    pinned: bool = False
    """True for the vendored tree of a project with a lock: every file is checked against it when it is read."""
    sha256: str | None = None
    """The lock's hash of the manifest, if the tree is pinned."""
    module: str | None = None
    """The import name of the package if it is not the folder's name: that of a single file, or ``__main__``."""
    record: Path | None = None
    """The RECORD of an installed distribution: hashes of its files. None for other trees."""
    named: str | None = None
    """For an installed package: its path in a clone. Results name its files so."""

    @property
    def is_installed(self) -> bool:
        return self.named is not None

    @property
    def import_name(self) -> str:
        return self.module or self.package_dir.name

    @property
    def manifest_path(self) -> Path:
        return self.root / MANIFEST_NAME

    def relative(self, path: Path) -> str:
        """``path`` as in results: posix, from the tree's root."""
        if self.named is None:
            return path.relative_to(self.root).as_posix()
        return (PurePosixPath(self.named) / path.relative_to(self.package_dir)).as_posix()

    def path(self, file: str | PurePosixPath) -> Path | None:
        """The place of a file that results name so; None if the name is not of the tree's package."""
        if self.named is None:
            path = self.root / file
            return path if path.is_relative_to(self.package_dir) else None
        relative = PurePosixPath(file)
        return self.package_dir / relative.relative_to(self.named) if relative.is_relative_to(self.named) else None

    @property
    def labelled(self) -> tuple[str, Path]:
        """The beginning of a report's pointers into the tree, and the folder that the rest is relative to."""
        return (self.name, self.root) if self.named is None else (f"{self.name}/{self.named}", self.package_dir)


@dataclass(frozen=True)
class Trees:
    """The trees of one command. A missing tree is an error only if it is needed."""

    transformers: Tree | None
    pytorch: Tree | None
    extra: tuple[Tree, ...] = ()
    project: Path | None = None
    """The project that the trees are vendored in; None for installed ones."""

    def __iter__(self) -> Iterator[Tree]:
        return iter([tree for tree in (self.transformers, self.pytorch, *self.extra) if tree is not None])

    def of_package(self, import_name: str) -> Tree | None:
        """The tree of the top-level package ``import_name``, extra trees last; None if there is none."""
        return next((tree for tree in self if tree.import_name == import_name), None)

    def path_of(self, file: str) -> Path | None:
        """The path of a file that an analysis names, relative to its tree's root; None if no tree has it.

        A path that leaves its tree, by ``..`` or by a symbolic link, is in no tree.
        """
        relative = PurePosixPath(file)
        if relative.is_absolute() or ".." in relative.parts:
            return None
        for tree in self:
            path = tree.path(relative)
            if path is not None:
                try:
                    inside = path.is_file() and path.resolve().is_relative_to(tree.root.resolve())
                except (OSError, ValueError):  # a name that is too long or contains NUL
                    return None
                return path if inside else None
        return None

    def need(self, name: str) -> Tree:
        """The tree ``name`` ("transformers" or "pytorch"). Raises NotFound, with the way to get it."""
        tree = self.transformers if name == "transformers" else self.pytorch
        if tree is not None:
            return tree
        layout = LAYOUTS[name]
        if self.project is None:
            raise engine_missing([layout.distribution])
        folder = self.project / layout.name / layout.package
        raise NotFound(
            f"the {name} sources are not in {folder}\n"
            f"run `lmp vendor` to put them there, or give `--{name} DIR`, a clone of the project",
            [Search(f"the {name} sources", str(folder), "no such package")],
        )


def find_trees(
    project: Path | None = None,
    transformers: Path | None = None,
    pytorch: Path | None = None,
    extra: list[Path] | None = None,
) -> Trees:
    """The trees to read: the given ones, else those of the project, else the installed packages.

    ``project`` is by default the project of the current folder. ``extra`` are folders with packages, like the entries
    of ``sys.path``. Raises NotFound if a given folder is missing or is no clone.
    """
    project = project_root() if project is None else project.absolute()
    return Trees(
        _find(project, LAYOUTS["transformers"], transformers),
        _find(project, LAYOUTS["pytorch"], pytorch),
        tuple(tree for folder in extra or [] for tree in _extra_trees(folder)),
        project,
    )


def _find(project: Path | None, layout: Layout, given: Path | None) -> Tree | None:
    if project is None:
        return installed_tree(layout.name) if given is None else _given_tree(given, layout)
    vendored = project / layout.name
    if given is not None:
        tree = _given_tree(given, layout)
        # Naming the vendored tree explicitly is the way to analyse an intentionally modified tree.
        if not _same_folder(tree.root, vendored):
            return tree
        locked = _vendored_tree(project, layout)
        return locked if locked is not None and not check_tree(locked) else tree
    return _vendored_tree(project, layout)


def _given_tree(given: Path, layout: Layout) -> Tree:
    root = given.expanduser().absolute()
    package_dir = root / layout.package
    if not (package_dir / "__init__.py").is_file():
        hint = f"--{layout.name} takes the folder of a git clone of {layout.name}"
        up = Path(*root.parts[: len(root.parts) - len(layout.package.split("/"))])
        if (up / layout.package) == root and (root / "__init__.py").is_file():
            hint = f"give the folder above it: --{layout.name} {up}"
        raise NotFound(
            f"{given} has no {layout.package}/__init__.py\n{hint}",
            [Search(f"the {layout.name} sources", str(package_dir), "no such package")],
        )
    return Tree(layout.name, root, package_dir, layout.distribution, source_version(root, package_dir))


def _vendored_tree(project: Path, layout: Layout) -> Tree | None:
    root = project / layout.name
    package_dir = root / layout.package
    if not (package_dir / "__init__.py").is_file():
        return None
    entry = read_lock(project).get(layout.name)
    if entry is None:
        return Tree(layout.name, root, package_dir, layout.distribution, source_version(root, package_dir))
    return Tree(layout.name, root, package_dir, entry.distribution, entry.version, True, entry.sha256)


def _extra_trees(folder: Path) -> list[Tree]:
    root = folder.expanduser().absolute()
    if not root.is_dir():
        raise NotFound(f"{folder} is not a folder", [Search("Python packages", str(root), "no such folder")])
    entries = [entry for entry in sorted(root.iterdir()) if entry.stem.isidentifier() and not entry.is_symlink()]
    packages = [entry for entry in entries if (entry / "__init__.py").is_file()]
    files = [entry for entry in entries if entry.suffix == ".py" and entry.is_file()]
    # A folder without __init__.py is a package too; as in Python, one with it comes first.
    plain = [entry for entry in entries if entry.is_dir() and entry not in packages and any(entry.glob("*.py"))]
    return [
        *(Tree(p.name, root, p, p.name, source_version(root, p)) for p in packages),
        *(Tree(p.stem, root, p, p.stem, UNKNOWN, module=p.stem) for p in files),
        *(Tree(p.name, root, p, p.name, UNKNOWN) for p in plain),
    ]


def siblings(tree: Tree) -> list[Tree]:
    """The other trees that Python can import from the folder of a tree."""
    if not tree.root.is_dir():  # a notebook's cell
        return []
    return [other for other in _extra_trees(tree.root) if other.package_dir != tree.package_dir]


def completed(trees: Trees) -> Trees:
    """The trees, with installed packages in place of missing ones."""
    return replace(
        trees,
        transformers=trees.transformers or installed_tree("transformers"),
        pytorch=trees.pytorch or installed_tree("pytorch"),
    )


def installed_tree(name: str, package_dir: Path | None = None) -> Tree | None:
    """The installed package of a layout, as a tree that is never written; None if it is not installed.

    ``package_dir`` is the folder of a package that is imported already.
    """
    layout = LAYOUTS[name]
    package_dir = package_dir or package_folder(layout.import_name)
    if package_dir is None:
        return None
    root, about = package_dir.parent, distribution_of(package_dir, layout.distribution)
    version = source_version(root, package_dir) if about is None else public_version(about.version)
    record = None if about is None else about.record
    return Tree(name, root, package_dir, layout.distribution, version, record=record, named=layout.package)


def other_releases(trees: Trees) -> dict[str, str]:
    """Distribution -> version, for installed trees of another release than the one that lmp is proven on."""
    installed = [tree for tree in (trees.transformers, trees.pytorch) if tree is not None and tree.is_installed]
    return {t.distribution: t.version for t in installed if t.version != LAYOUTS[t.name].pinned_version}


def say_releases(trees: Trees) -> None:
    """Say once that an installed release is not the one that lmp is proven on."""
    for name, version in other_releases(trees).items():
        proven = next(layout.pinned_version for layout in LAYOUTS.values() if layout.distribution == name)
        say_once(f"{name} {version} is installed and analysed; lmp is proven on {name} {proven}")


def _same_folder(a: Path, b: Path) -> bool:
    return a.resolve() == b.resolve()


def source_version(root: Path, package_dir: Path) -> str:
    """The version in a tree's own files, read without importing them; "unknown" if there is none."""
    for path in (package_dir / "__init__.py", package_dir / "version.py"):
        version = _assigned_string(path, "__version__")
        if version:
            return public_version(version)
    try:
        text = (root / "version.txt").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return UNKNOWN
    return public_version(text) or UNKNOWN


def _assigned_string(path: Path, name: str) -> str | None:
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        value = getattr(statement, "value", None)
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


def public_version(version: str) -> str:
    """``version`` without its local part: 2.13.0+cpu becomes 2.13.0."""
    return version.partition("+")[0]


@dataclass(frozen=True)
class LockEntry:
    """The entry of one tree in vendor.lock."""

    distribution: str
    version: str
    files: int
    sha256: str


def read_lock(project: Path) -> dict[str, LockEntry]:
    """The trees of ``vendor.lock``; empty if there is none. Raises TreeChanged if it cannot be read."""
    path = project / LOCK_NAME
    try:
        trees = json.loads(path.read_text(encoding="utf-8"))["trees"]
        return {name: LockEntry(**entry) for name, entry in trees.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TreeChanged(
            f"{path} cannot be read: {error}\nrun `lmp vendor` to write it again",
            [Search("the lock of the vendored trees", str(path), "not readable")],
        ) from error


def sha256_of(data: bytes) -> str:
    import hashlib  # loads OpenSSL, which commands without source access do not need

    return hashlib.sha256(data).hexdigest()


def manifest_text(hashes: dict[str, str]) -> str:
    """The manifest of files ``path -> sha256``, in the format of ``sha256sum -c``."""
    return "".join(sorted(f"{digest}  {path}\n" for path, digest in hashes.items()))


@functools.lru_cache(maxsize=8)
def _manifest(path: Path, stamp: tuple[int, int], expected: str) -> dict[str, str] | None:
    """``path -> sha256`` of a manifest; None if it is not the one that the lock names."""
    data = path.read_bytes()
    if sha256_of(data) != expected:
        return None
    return {line[66:]: line[:64] for line in data.decode("utf-8").splitlines()}


def _read_manifest(tree: Tree) -> dict[str, str] | None:
    try:
        stat = tree.manifest_path.stat()
        return _manifest(tree.manifest_path, (stat.st_mtime_ns, stat.st_size), tree.sha256 or "")
    except OSError:
        return None


def check_file(tree: Tree, path: Path) -> None:
    """Raise TreeChanged unless ``path`` has the hash that the lock gives; say once if an installed file was edited.

    An edited installed file is analysed as it is, because Python runs it so. A clone is not checked.
    """
    if is_edited(tree, path):
        say_once(f"{path} was edited after {tree.distribution} {tree.version} was installed; it is analysed as it is")
    if not tree.pinned:
        return
    relative = tree.relative(path)
    manifest = _read_manifest(tree)
    if manifest is None:
        raise _tree_changed(tree, f"{tree.manifest_path} is not the manifest that {LOCK_NAME} names")
    expected = manifest.get(relative)
    if expected is None:
        raise _tree_changed(tree, f"{path} is not one of the pinned files of {tree.distribution} {tree.version}")
    try:
        same = sha256_of(path.read_bytes()) == expected
    except OSError as error:
        raise _tree_changed(tree, f"{path} cannot be read: {error.strerror}") from error
    if not same:
        raise _tree_changed(tree, f"{path} differs from {tree.distribution} {tree.version} as {LOCK_NAME} pins it")


def is_edited(tree: Tree, path: Path) -> bool:
    """True if an installed file differs from what its distribution installed. False if no RECORD lists the package."""
    if tree.record is None or recorded_hash(tree.record, f"{tree.import_name}/__init__.py") is None:
        return False
    file = f"{tree.import_name}/{path.relative_to(tree.package_dir).as_posix()}"
    return recorded_hash(tree.record, file) != _hash_or_none(path)


def version_of(tree: Tree, path: Path) -> str:
    """The version of a tree's file. It says if an installed file was edited."""
    return tree.version + EDITED if is_edited(tree, path) else tree.version


def edited_files(tree: Tree) -> list[str]:
    """All sources of an installed tree that differ from its RECORD, one line each; empty if they agree."""
    if tree.record is None or recorded_hash(tree.record, f"{tree.import_name}/__init__.py") is None:
        return []
    listed = {file for file in recorded_files(tree.record) if file.endswith(SOURCE_SUFFIXES)}
    own = {file for file in listed if file.startswith(f"{tree.import_name}/")}
    there = {path.relative_to(tree.root).as_posix() for path in walk_sources(tree.package_dir, tree.root)}
    states = dict.fromkeys(there - own, "not installed with it")
    states |= dict.fromkeys(own - there, "missing")
    states |= {file: "edited" for file in own & there if is_edited(tree, tree.root / file)}
    return [f"{file}: {state}" for file, state in sorted(states.items())]


def _tree_changed(tree: Tree, what: str) -> TreeChanged:
    return TreeChanged(
        f"{what}\nrun `lmp vendor` to restore the pinned sources, "
        f"or give `--{tree.name} DIR` to analyse a modified tree on purpose",
        [Search(f"the pinned sources of {tree.distribution} {tree.version}", str(tree.root), what)],
    )


def check_tree(tree: Tree) -> list[str]:
    """All differences between a pinned tree and its lock, one line each; empty if they agree."""
    if not tree.pinned:
        return []
    manifest = _read_manifest(tree)
    if manifest is None:
        return [f"{MANIFEST_NAME}: missing, or not the one that {LOCK_NAME} names"]
    differences = []
    seen = set()
    for path in walk_sources(tree.package_dir, tree.root):
        relative = tree.relative(path)
        seen.add(relative)
        if path.is_symlink():
            differences.append(f"{relative}: a symbolic link")
        elif path.is_dir():
            differences.append(f"{relative}: a folder")
        elif relative not in manifest:
            differences.append(f"{relative}: not a pinned file")
        elif _hash_or_none(path) != manifest[relative]:
            differences.append(f"{relative}: changed")
    differences += [f"{relative}: missing" for relative in manifest.keys() - seen]
    return sorted(differences)


def _hash_or_none(path: Path) -> str | None:
    try:
        return sha256_of(path.read_bytes())
    except OSError:
        return None


def walk_sources(package_dir: Path, root: Path) -> Iterator[Path]:
    """The Python sources and the symbolic links under ``package_dir``, sorted; no link is followed."""
    for current, folders, files in os.walk(package_dir, followlinks=False):
        here = Path(current)
        yield from (here / folder for folder in folders if (here / folder).is_symlink())
        folders[:] = sorted(folder for folder in folders if folder != "__pycache__")
        for file in sorted(files):
            if file.endswith(SOURCE_SUFFIXES) or (here / file).is_symlink():
                yield here / file
