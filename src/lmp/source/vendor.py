"""``lmp vendor``: copies the Python sources of the pinned distributions into the project, completely or not at all.

The sources are those in the RECORD of the installed distribution, or in its wheel if it is not installed. No code of
either is imported or executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lmp.errors import NotFound, Search, StorageError, TreeChanged, UsageError
from lmp.source.installed import package_folder
from lmp.source.project import LOCK_NAME
from lmp.source.trees import (
    LAYOUTS,
    MANIFEST_NAME,
    SOURCE_SUFFIXES,
    Layout,
    LockEntry,
    Tree,
    check_tree,
    manifest_text,
    public_version,
    read_lock,
    sha256_of,
    walk_sources,
)

if TYPE_CHECKING:
    from importlib.metadata import Distribution

Log = Callable[[str], None]
LOCK_FORMAT = 1


@dataclass(frozen=True)
class VendoredTree:
    """The result of `lmp vendor` for one tree: ``status`` is "unchanged", "written" or "repaired"."""

    name: str
    lock: LockEntry
    status: str
    differences: tuple[str, ...] = ()
    """The differences that a repaired tree had."""


@dataclass(frozen=True)
class VendorResult:
    root: Path
    trees: tuple[VendoredTree, ...]

    @property
    def changed(self) -> bool:
        return any(tree.status != "unchanged" for tree in self.trees)


@dataclass(frozen=True)
class _Origin:
    """The origin of a distribution's sources. ``files`` yields paths inside the package and their bytes."""

    version: str
    description: str
    files: Iterable[tuple[PurePosixPath, bytes]]


@dataclass(frozen=True)
class _Staged:
    """A complete tree in a temporary folder beside the tree that it replaces."""

    layout: Layout
    folder: Path
    lock: LockEntry


def vendor(root: Path, *, log: Log = lambda message: None) -> VendorResult:
    """Make ``root/transformers/src/transformers``, ``root/pytorch/torch`` and ``root/vendor.lock`` agree.

    If they differ, every tree is first completed beside its place, then all are swapped in. A run that fails or is
    interrupted before the end changes nothing. ``log`` receives one message a step.

    Raises UsageError for a git clone in a tree's place, NotFound without sources, StorageError if it cannot write.
    """
    root = root.absolute()
    with _storage_errors(root):
        for layout in LAYOUTS.values():
            _refuse_foreign_folder(root, layout)
        with _exclusive(root), contextlib.ExitStack() as scratch:
            return _vendor(root, log, scratch)


def _vendor(root: Path, log: Log, scratch: contextlib.ExitStack) -> VendorResult:
    old = _lock_or_empty(root, log)
    staged: list[_Staged] = []
    results: list[VendoredTree] = []
    for layout in LAYOUTS.values():
        entry = old.get(layout.name)
        installed = _installed(layout)
        differences = _differences(root, layout, entry, installed)
        if entry is not None and not differences:
            log(f"{layout.name}: {entry.distribution} {entry.version}, {entry.files} files: unchanged")
            results.append(VendoredTree(layout.name, entry, "unchanged"))
            continue
        origin = installed or _downloaded(layout, entry, log, scratch)
        new = _stage(root, layout, origin, scratch)
        _log_tree(log, layout, origin, entry, new.lock)
        repaired = entry is not None and (root / layout.name / layout.package).exists()
        staged.append(new)
        results.append(VendoredTree(layout.name, new.lock, "repaired" if repaired else "written", tuple(differences)))
    if staged:
        _commit(root, staged, {tree.name: tree.lock for tree in results})
    return VendorResult(root, tuple(results))


def _differences(root: Path, layout: Layout, entry: LockEntry | None, installed: _Origin | None) -> list[str]:
    if entry is None:
        return [f"not in {LOCK_NAME}"]
    if installed is not None and installed.version != entry.version:
        return [f"{layout.distribution} {installed.version} is installed, {LOCK_NAME} names {entry.version}"]
    package_dir = root / layout.name / layout.package
    if not package_dir.is_dir():
        return [f"{package_dir}: missing"]
    tree = Tree(layout.name, root / layout.name, package_dir, entry.distribution, entry.version, True, entry.sha256)
    return check_tree(tree)


def _log_tree(log: Log, layout: Layout, origin: _Origin, old: LockEntry | None, new: LockEntry) -> None:
    log(f"{layout.name}: {new.distribution} {new.version}, {new.files} files from {origin.description}")
    if old is not None and old != new:
        # The same version of torch differs between builds (CPU, CUDA, macOS) in torch/version.py at least.
        which = "another build of it" if old.version == new.version else f"{old.distribution} {old.version}"
        log(f"{layout.name}: {LOCK_NAME} named {which}; it now names what is installed here")


# --- origin of the sources -------------------------------------------------------------------------------------------


def _installed(layout: Layout) -> _Origin | None:
    """The distribution in this environment, found without an import; None if missing or of another minor version."""
    from importlib import metadata

    try:
        distribution = metadata.distribution(layout.distribution)
    except metadata.PackageNotFoundError:
        return None
    version = public_version(distribution.version)
    if version.split(".")[:2] != layout.pinned_version.split(".")[:2]:
        return None
    recorded = [file for file in distribution.files or [] if file.parts[0] == layout.import_name]
    if recorded:
        where = Path(str(distribution.locate_file(layout.import_name)))
        return _Origin(version, f"{where} (installed)", _recorded_files(distribution, layout))
    folder = package_folder(layout.import_name)  # of an editable install: its RECORD lists no sources
    return None if folder is None else _Origin(version, f"{folder} (installed)", _folder_files(folder))


def _recorded_files(distribution: Distribution, layout: Layout) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The sources in the distribution's RECORD, each checked against its hash there."""
    for file in distribution.files or []:
        if file.parts[0] != layout.import_name or not _is_source(file):
            continue
        path = Path(str(distribution.locate_file(file)))
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = None
        if data is None or not _agrees(file.hash.mode if file.hash else "", file.hash.value if file.hash else "", data):
            state = "missing" if data is None else "not the file that was installed"
            raise TreeChanged(
                f"{path} is {state}: the installed {layout.distribution} was changed\n"
                f"reinstall it: pip install --force-reinstall --no-deps {layout.distribution}=={distribution.version}",
                [Search(f"the sources of {layout.distribution} {distribution.version}", str(path), state)],
            )
        yield PurePosixPath(*file.parts[1:]), data


def _agrees(algorithm: str, expected: str, data: bytes) -> bool:
    if algorithm != "sha256":
        return True
    import base64
    import hashlib

    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() == expected.rstrip("=")


def _folder_files(folder: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    inside = folder.resolve()
    for path in walk_sources(folder, folder):
        if path.is_dir() or not _is_source(path) or not path.resolve().is_relative_to(inside):
            continue
        yield PurePosixPath(path.relative_to(folder).as_posix()), path.read_bytes()


def _downloaded(layout: Layout, entry: LockEntry | None, log: Log, scratch: contextlib.ExitStack) -> _Origin:
    """The pinned wheel, downloaded by pip to a temporary folder: it is read as an archive, never installed."""
    import subprocess
    import tempfile

    version = entry.version if entry else layout.pinned_version
    requirement = f"{layout.distribution}=={version}"
    folder = Path(scratch.enter_context(tempfile.TemporaryDirectory(prefix="lmp-vendor-")))
    log(f"{layout.name}: {requirement} is not installed; pip downloads its wheel")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise NotFound(
            f"{requirement} is not installed and cannot be downloaded: {said}\n"
            f"install it (pip install {requirement}) and run `lmp vendor` again",
            [
                Search(requirement, "the installed distributions", "not installed"),
                Search(requirement, "pip download", said),
            ],
        )
    return _Origin(version, wheels[0].name, _wheel_files(wheels[0], layout))


def _wheel_files(wheel: Path, layout: Layout) -> Iterator[tuple[PurePosixPath, bytes]]:
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            path = PurePosixPath(name)
            if path.parts[0] == layout.import_name and ".." not in path.parts and _is_source(path):
                yield PurePosixPath(*path.parts[1:]), archive.read(name)


def _is_source(path: PurePosixPath | Path) -> bool:
    return path.suffix in SOURCE_SUFFIXES


# --- writing ---------------------------------------------------------------------------------------------------------


def _stage(root: Path, layout: Layout, origin: _Origin, scratch: contextlib.ExitStack) -> _Staged:
    """The complete new tree and its manifest, in a temporary folder beside the tree."""
    tree_dir = root / layout.name
    tree_dir.mkdir(parents=True, exist_ok=True)
    folder = tree_dir / f".lmp-new-{os.getpid()}"
    scratch.callback(_recover, tree_dir, layout)
    package = folder / "package"
    package.mkdir(parents=True)
    hashes: dict[str, str] = {}
    for path, data in origin.files:
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        hashes[f"{layout.package}/{path}"] = sha256_of(data)
    if f"{layout.package}/__init__.py" not in hashes:
        raise NotFound(
            f"{origin.description} holds no {layout.import_name}/__init__.py\n"
            f"reinstall it: pip install --force-reinstall {layout.distribution}=={origin.version}",
            [Search(f"the sources of {layout.distribution}", origin.description, f"{len(hashes)} files")],
        )
    text = manifest_text(hashes).encode()
    (folder / "manifest").write_bytes(text)
    return _Staged(layout, folder, LockEntry(layout.distribution, origin.version, len(hashes), sha256_of(text)))


def _commit(root: Path, staged: list[_Staged], lock: dict[str, LockEntry]) -> None:
    """Swap in every staged tree and write the lock last. Any failure undoes all swaps."""
    with contextlib.ExitStack() as undo:
        for new in staged:
            tree_dir = root / new.layout.name
            _swap(new.folder / "package", tree_dir / new.layout.package, new.folder / "old-package", undo)
            _swap(new.folder / "manifest", tree_dir / MANIFEST_NAME, new.folder / "old-manifest", undo)
        text = json.dumps(
            {"lock_version": LOCK_FORMAT, "trees": {name: asdict(entry) for name, entry in lock.items()}}, indent=2
        )
        temporary = staged[0].folder / LOCK_NAME
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, root / LOCK_NAME)
        undo.pop_all()


def _swap(new: Path, place: Path, aside: Path, undo: contextlib.ExitStack) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    # The undo of each step is registered before the step: an interrupt between them must not lose the old tree.
    if place.exists():
        undo.callback(_put_back, aside, place)
        os.rename(place, aside)
    undo.callback(_put_back, place, new)
    os.rename(new, place)


def _put_back(source: Path, place: Path) -> None:
    if source.exists() and not place.exists():
        os.rename(source, place)


def _lock_or_empty(root: Path, log: Log) -> dict[str, LockEntry]:
    try:
        return read_lock(root)
    except TreeChanged as error:
        log(str(error).splitlines()[0])
        return {}


def _refuse_foreign_folder(root: Path, layout: Layout) -> None:
    """Raise an error for a clone or a link in the tree's place: lmp does not replace a user's files."""
    tree_dir = root / layout.name
    way_out = f"move it away, or leave it and give it as `--{layout.name} DIR`"
    if (tree_dir / ".git").exists():
        raise UsageError(f"{tree_dir} is a git clone, which `lmp vendor` does not overwrite\n{way_out}")
    folder = tree_dir / layout.package
    while folder != root:
        if folder.is_symlink():
            raise StorageError(f"{folder} is a symbolic link, which `lmp vendor` does not follow\n{way_out}")
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"{folder} is a file, not a folder of sources\nmove it away")
        folder = folder.parent


@contextlib.contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    """A lock, so that one `lmp vendor` runs per project. Leftovers of a killed run are removed."""
    folder = root / LAYOUTS["transformers"].name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lmp-vendor", "w") as handle:
        try:
            import fcntl
        except ImportError:  # Windows: the swap is still atomic, but two runs do not exclude each other
            pass
        else:
            fcntl.flock(handle, fcntl.LOCK_EX)
        for layout in LAYOUTS.values():
            _recover(root / layout.name, layout)
        yield


def _recover(tree_dir: Path, layout: Layout) -> None:
    """Restore what a killed run had moved aside, then remove the temporary folders."""
    for left in sorted(tree_dir.glob(".lmp-new-*")):
        _put_back(left / "old-package", tree_dir / layout.package)
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _storage_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename or root
        raise StorageError(
            f"cannot write {place}: {error.strerror or error}\n"
            f"make {root} writable, or free space on its disk, and run `lmp vendor` again"
        ) from error
