"""Vendoring: whole or not at all, idempotent, and held against the lock."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from synthetic import write

from lmp.errors import NotFound, StorageError, TreeChanged, UsageError
from lmp.source import vendor as vendor_module
from lmp.source.project import LOCK_NAME
from lmp.source.trees import MANIFEST_NAME, check_file, check_tree, find_trees
from lmp.source.vendor import vendor


class FakeFile(metadata.PackagePath):
    """One line of RECORD."""

    @classmethod
    def of(cls, path: str, data: bytes) -> FakeFile:
        import base64

        file = cls(path)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        file.hash = metadata.FileHash(f"sha256={digest}")
        return file


class Installed:
    """A site-packages folder with tiny distributions in it, in place of importlib.metadata's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.versions = {"transformers": "5.23.0", "torch": "2.13.0+cpu"}
        self.files: dict[str, dict[str, str]] = {
            "transformers": {"transformers/__init__.py": "a = 1\n", "transformers/models/m.py": "b = 2\n"},
            "torch": {"torch/__init__.py": "", "torch/nn/linear.py": "c = 3\n", "torch/_C/__init__.pyi": "x: int\n"},
        }
        self.records: dict[str, list[FakeFile]] = {}
        self.write()

    def write(self) -> None:
        for name, files in self.files.items():
            for path, text in files.items():
                write(self.folder / path, text)
            self.records[name] = [FakeFile.of(path, text.encode()) for path, text in files.items()]

    def distribution(self, name: str) -> metadata.Distribution:
        if name not in self.versions:
            raise metadata.PackageNotFoundError(name)
        installed = self

        class Fake(metadata.Distribution):
            version = installed.versions[name]
            files = installed.records[name]  # type: ignore[assignment]

            def read_text(self, filename: str) -> None:
                return None

            def locate_file(self, path: object) -> Path:  # type: ignore[override]
                return installed.folder / str(path)

        return Fake()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    fake = Installed(tmp_path / "site-packages")
    monkeypatch.setattr(metadata, "distribution", fake.distribution)
    return fake


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lmp-vendor"
    }


# --- the real distributions ------------------------------------------------------------------------------------------


def test_vendors_what_is_installed(vendored: Path) -> None:
    site = Path(str(metadata.distribution("transformers").locate_file("")))
    for name in ("transformers/models/llama/modeling_llama.py", "transformers/__init__.py"):
        assert (vendored / "transformers" / "src" / name).read_bytes() == (site / name).read_bytes()
    for name in ("torch/nn/modules/linear.py", "torch/_C/__init__.pyi"):
        assert (vendored / "pytorch" / name).read_bytes() == (site / name).read_bytes()


def test_lock_says_what_was_vendored(vendored: Path) -> None:
    lock = json.loads((vendored / LOCK_NAME).read_text())["trees"]
    for name, package in (("transformers", "src"), ("pytorch", "torch")):
        files = [p for p in (vendored / name / package).rglob("*") if p.is_file()]
        assert lock[name]["files"] == len(files) > 2000
        assert {path.suffix for path in files} <= {".py", ".pyi"}
        manifest = (vendored / name / MANIFEST_NAME).read_bytes()
        assert lock[name]["sha256"] == hashlib.sha256(manifest).hexdigest()
    assert lock["pytorch"]["version"] == metadata.version("torch").partition("+")[0]
    assert lock["transformers"]["version"] == metadata.version("transformers")


def test_manifest_is_one_that_sha256sum_reads(vendored: Path) -> None:
    lines = (vendored / "pytorch" / MANIFEST_NAME).read_text().splitlines()
    assert lines == sorted(lines)
    digest, path = lines[0].split("  ")
    assert hashlib.sha256((vendored / "pytorch" / path).read_bytes()).hexdigest() == digest


def test_trees_agree_with_the_lock(vendored: Path) -> None:
    trees = find_trees(vendored)
    assert [check_tree(tree) for tree in trees] == [[], []]
    assert all(tree.pinned for tree in trees)


def test_vendoring_imports_neither_package(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from lmp.source.vendor import vendor;"
        f"vendor(Path({str(tmp_path)!r})); assert not {{'torch', 'transformers'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=with_source())


def with_source() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(vendor_module.__file__).parents[2])}


# --- small distributions ---------------------------------------------------------------------------------------------


def test_second_run_does_nothing(project: Path, installed: Installed) -> None:
    said: list[str] = []
    assert vendor(project).changed
    before = snapshot(project)
    result = vendor(project, log=said.append)
    assert not result.changed
    assert snapshot(project) == before
    assert all("unchanged" in line for line in said)


@pytest.mark.parametrize("harm", ["changed", "missing", "added", "linked", "manifest", "lock"])
def test_a_harmed_tree_is_repaired(project: Path, installed: Installed, harm: str) -> None:
    vendor(project)
    good = snapshot(project)
    file = project / "pytorch" / "torch" / "nn" / "linear.py"
    match harm:
        case "changed":
            file.write_text("c = 4\n")
        case "missing":
            file.unlink()
        case "added":
            write(file.parent / "more.py", "d = 5\n")
        case "linked":
            file.unlink()
            file.symlink_to(installed.folder / "torch" / "nn" / "linear.py")
        case "manifest":
            (project / "pytorch" / MANIFEST_NAME).write_text("")
        case "lock":
            (project / LOCK_NAME).write_text("{")
    if harm != "lock":
        assert check_tree(find_trees(project).need("pytorch"))
    assert vendor(project).changed
    assert snapshot(project) == good


def test_readme_beside_the_tree_is_kept(project: Path, installed: Installed) -> None:
    write(project / "pytorch" / "README.md", "mine")
    vendor(project)
    write(project / "pytorch" / "torch" / "nn" / "linear.py", "c = 4\n")
    vendor(project)
    assert (project / "pytorch" / "README.md").read_text() == "mine"
    assert sorted(p.name for p in (project / "pytorch").iterdir()) == [MANIFEST_NAME, "README.md", "torch"]


def test_another_installed_version_is_vendored(project: Path, installed: Installed) -> None:
    vendor(project)
    installed.versions["transformers"] = "5.23.1"
    said: list[str] = []
    vendor(project, log=said.append)
    assert find_trees(project).need("transformers").version == "5.23.1"
    assert any("named transformers 5.23.0" in line for line in said)


@pytest.mark.parametrize("step", ["read", "rename 1", "rename 3", "rename 7", "lock"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_interrupted_run_leaves_what_was_there(
    project: Path,
    installed: Installed,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: BaseException | type[BaseException],
) -> None:
    vendor(project)
    write(project / "pytorch" / "torch" / "nn" / "linear.py", "mine = 4\n")
    write(project / "transformers" / "src" / "transformers" / "mine.py", "mine = 4\n")
    before = snapshot(project)

    with monkeypatch.context() as patch:
        if step == "read":

            def read_some(*args: object) -> object:
                from pathlib import PurePosixPath

                yield PurePosixPath("__init__.py"), b""
                raise error

            patch.setattr(vendor_module, "_recorded_files", read_some)
        elif step == "lock":
            patch.setattr(vendor_module.os, "replace", raiser(error))
        else:
            rename, count = os.rename, int(step.split()[1])
            calls = []

            def rename_some(source: Path, target: Path) -> None:
                calls.append(source)
                if len(calls) == count:
                    raise error
                rename(source, target)

            patch.setattr(vendor_module.os, "rename", rename_some)
        with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt):
            vendor(project)
    assert snapshot(project) == before
    assert vendor(project).changed
    assert not vendor(project).changed


def raiser(error: BaseException | type[BaseException]) -> object:
    def fail(*args: object, **options: object) -> None:
        raise error

    return fail


def test_a_killed_run_is_recovered(project: Path, installed: Installed) -> None:
    """Killed between the two renames: the tree is aside, its place is empty."""
    vendor(project)
    good = snapshot(project)
    left = project / "pytorch" / ".lmp-new-1"
    left.mkdir()
    (project / "pytorch" / "torch").rename(left / "old-package")
    assert not vendor(project).changed
    assert snapshot(project) == good


def test_a_clone_in_the_trees_place_is_left_alone(project: Path, installed: Installed) -> None:
    write(project / "transformers" / ".git" / "HEAD", "ref")
    write(project / "transformers" / "src" / "transformers" / "__init__.py", "mine")
    with pytest.raises(UsageError, match="is a git clone"):
        vendor(project)
    assert (project / "transformers" / "src" / "transformers" / "__init__.py").read_text() == "mine"


def test_links_are_not_followed_out(project: Path, installed: Installed, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "torch" / "__init__.py", "mine")
    (project / "pytorch").symlink_to(outside)
    with pytest.raises(StorageError, match="symbolic link"):
        vendor(project)
    assert (outside / "torch" / "__init__.py").read_text() == "mine"


def test_folder_that_cannot_be_written(project: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", raiser(PermissionError(13, "Permission denied", str(project / "pytorch"))))
    with pytest.raises(StorageError) as caught:
        vendor(project)
    assert str(caught.value).startswith(f"cannot write {project / 'pytorch'}: Permission denied\n")


def test_file_where_the_folder_is_due(project: Path, installed: Installed) -> None:
    write(project / "transformers", "a file")
    with pytest.raises(StorageError, match="is a file, not a folder of sources"):
        vendor(project)


def test_installed_sources_must_be_those_of_their_record(project: Path, installed: Installed) -> None:
    write(installed.folder / "torch" / "nn" / "linear.py", "patched = 1\n")
    with pytest.raises(TreeChanged) as caught:
        vendor(project)
    assert "the installed torch was changed\nreinstall it: pip install" in str(caught.value)
    assert not (project / LOCK_NAME).exists()
    assert snapshot(project) == {}


def test_not_installed_is_read_from_the_wheel(
    project: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip is replaced: it puts a wheel into the folder that it is told."""
    del installed.versions["torch"]
    commands: list[list[str]] = []

    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as wheel:
            for name in ("torch/__init__.py", "torch/a.so", "torch/../../evil.py", "torchgen/x.py"):
                wheel.writestr(name, "raise SystemExit('executed')\n")
        (Path(command[command.index("--dest") + 1]) / "torch-2.13.0-py3-none-any.whl").write_bytes(data.getvalue())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    vendor(project)
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert commands[0][-1] == "torch==2.13.0"
    assert [p.name for p in (project / "pytorch" / "torch").iterdir()] == ["__init__.py"]
    assert find_trees(project).need("pytorch").version == "2.13.0"


def test_neither_installed_nor_downloadable(
    project: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    del installed.versions["torch"]
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: no network\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: failed)
    with pytest.raises(NotFound) as caught:
        vendor(project)
    assert "torch==2.13.0 is not installed and cannot be downloaded: ERROR: no network" in str(caught.value)
    assert [search.where for search in caught.value.searched] == ["the installed distributions", "pip download"]
    assert snapshot(project) == {}


def test_two_runs_at_once(tmp_path: Path, vendored: Path) -> None:
    script = f"from pathlib import Path; from lmp.source.vendor import vendor; vendor(Path({str(tmp_path)!r}))"
    runs = [subprocess.Popen([sys.executable, "-c", script], env=with_source()) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    assert (tmp_path / LOCK_NAME).read_bytes() == (vendored / LOCK_NAME).read_bytes()


# --- trees -----------------------------------------------------------------------------------------------------------


def test_changed_file_is_told(project: Path, installed: Installed) -> None:
    vendor(project)
    tree = find_trees(project).need("pytorch")
    file = tree.package_dir / "nn" / "linear.py"
    check_file(tree, file)
    file.write_text("c = 4\n")
    with pytest.raises(TreeChanged) as caught:
        check_file(tree, file)
    assert str(caught.value) == (
        f"{file} differs from torch 2.13.0 as vendor.lock pins it\n"
        "run `lmp vendor` to restore the pinned sources, or give `--pytorch DIR` to analyse a modified tree on purpose"
    )
    assert check_tree(tree) == ["torch/nn/linear.py: changed"]


def test_manifest_changed_along_with_the_file_is_told(project: Path, installed: Installed) -> None:
    vendor(project)
    tree = find_trees(project).need("pytorch")
    file = tree.package_dir / "nn" / "linear.py"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_text("c = 4\n")
    new = hashlib.sha256(file.read_bytes()).hexdigest()
    tree.manifest_path.write_text(tree.manifest_path.read_text().replace(old, new))
    with pytest.raises(TreeChanged, match=r"is not the manifest that vendor.lock names"):
        check_file(tree, file)


def test_vendored_tree_given_by_name_is_pinned_while_unchanged(project: Path, installed: Installed) -> None:
    vendor(project)
    assert find_trees(project, pytorch=project / "pytorch").need("pytorch").pinned
    write(project / "pytorch" / "torch" / "nn" / "linear.py", "c = 4\n")
    assert not find_trees(project, pytorch=project / "pytorch").need("pytorch").pinned
    assert find_trees(project).need("pytorch").pinned


def test_missing_tree_is_told_to_who_needs_it(project: Path) -> None:
    trees = find_trees(project)
    with pytest.raises(NotFound, match="run `lmp vendor`") as caught:
        trees.need("transformers")
    assert caught.value.searched[0].where == str(project / "transformers" / "src" / "transformers")


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"torch/__init__.py": "", "torch/version.py": "__version__ = '2.9.1+cu128'\n"}, "2.9.1"),
        ({"torch/__init__.py": "", "version.txt": "2.14.0a0\n"}, "2.14.0a0"),
        ({"torch/__init__.py": "__version__ = compute()\n"}, "unknown"),
        ({"torch/__init__.py": "def ("}, "unknown"),
    ],
)
def test_version_of_a_clone(tmp_path: Path, files: dict[str, str], version: str) -> None:
    for name, text in files.items():
        write(tmp_path / "clone" / name, text)
    tree = find_trees(tmp_path, pytorch=tmp_path / "clone").need("pytorch")
    assert (tree.version, tree.pinned) == (version, False)


def test_given_folder_must_be_a_clone(tmp_path: Path) -> None:
    write(tmp_path / "clone" / "src" / "transformers" / "__init__.py", "")
    with pytest.raises(NotFound, match="takes the folder of a git clone"):
        find_trees(tmp_path, transformers=tmp_path / "nowhere")
    with pytest.raises(NotFound, match=rf"--transformers {tmp_path / 'clone'}$"):
        find_trees(tmp_path, transformers=tmp_path / "clone" / "src" / "transformers")


def test_copy_of_the_vendored_project_is_whole(vendored: Path, tmp_path: Path) -> None:
    """A file changed in a real tree is found among thousands, and named."""
    copy = tmp_path / "copy"
    shutil.copytree(vendored, copy)
    llama = copy / "transformers" / "src" / "transformers" / "models" / "llama" / "modeling_llama.py"
    llama.write_text(llama.read_text() + "\n")
    assert check_tree(find_trees(copy).need("transformers")) == [
        "src/transformers/models/llama/modeling_llama.py: changed"
    ]
    result = vendor(copy)
    assert [(tree.name, tree.status) for tree in result.trees] == [
        ("transformers", "repaired"),
        ("pytorch", "unchanged"),
    ]
