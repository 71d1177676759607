"""Installed packages as source trees: their names, releases, and edits against RECORD."""

from __future__ import annotations

import base64
import hashlib
import shutil
from pathlib import Path

import pytest
from synthetic import write

from lmp.errors import EngineMissing
from lmp.source import installed
from lmp.source.locate import locate
from lmp.source.trees import LAYOUTS, Tree, Trees, check_file, edited_files, find_trees, other_releases, say_releases
from lmp.store.fingerprint import submission_fingerprint, unsourced

CLASS = "transformers.models.m.M"
SOURCES = {
    "transformers": {
        "transformers/__init__.py": "__version__ = '5.23.0'\n",
        "transformers/models/__init__.py": "",
        "transformers/models/m.py": "from torch.nn import Module\n\nclass M(Module):\n    def forward(self, x):\n"
        "        return x + 1\n",
    },
    "torch": {
        "torch/__init__.py": "",
        "torch/nn/__init__.py": "from torch.nn.modules.module import Module\n",
        "torch/nn/modules/__init__.py": "",
        "torch/nn/modules/module.py": "class Module:\n    pass\n",
    },
}


class Site:
    """A site-packages folder with two small distributions, each with a RECORD as pip writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.install("transformers", "5.23.0")
        self.install("torch", "2.13.0+cpu")

    def install(self, name: str, version: str) -> None:
        for old in self.folder.glob(f"{name}-*.dist-info"):
            shutil.rmtree(old)
        lines = []
        for file, text in SOURCES[name].items():
            write(self.folder / file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{file},sha256={digest},{len(text)}")
        lines.append(f"{name}-{version}.dist-info/RECORD,,")
        write(self.folder / f"{name}-{version}.dist-info" / "RECORD", "\n".join(lines) + "\n")
        installed._text.cache_clear()

    def trees(self) -> Trees:
        found = find_trees()
        assert found.transformers is not None
        return found

    def transformers(self) -> Tree:
        found = self.trees().transformers
        assert found is not None
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The distributions that Python would import, seen from a folder that is no project."""
    found = Site(tmp_path / "site-packages")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr("lmp.source.trees.package_folder", lambda name: found.folder / name)
    monkeypatch.setattr(installed, "_said", set())
    return found


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "lmp"]


def test_files_are_named_as_in_a_clone(site: Site) -> None:
    source = locate(CLASS, site.trees())
    assert source.forward_file == "src/transformers/models/m.py"
    assert source.path == site.folder / "transformers" / "models" / "m.py"
    trees = site.trees()
    assert trees.path_of("src/transformers/models/m.py") == source.path
    assert trees.path_of("torch/nn/__init__.py") == site.folder / "torch" / "nn" / "__init__.py"
    # By the name of the place in site-packages it is no file of a result.
    assert trees.path_of("transformers/models/m.py") is None
    assert trees.path_of("src/transformers/../torch/__init__.py") is None


def test_versions_are_the_distributions(site: Site) -> None:
    trees = site.trees()
    assert [(tree.distribution, tree.version) for tree in trees] == [("transformers", "5.23.0"), ("torch", "2.13.0")]
    assert other_releases(trees) == {}
    site.install("torch", "2.12.1+cu126")
    assert other_releases(site.trees()) == {"torch": "2.12.1"}


def test_another_release_is_said_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.install("transformers", "5.22.2")
    for _ in range(2):
        say_releases(site.trees())
    proven = LAYOUTS["transformers"].pinned_version
    assert said(caplog) == [
        f"warning: transformers 5.22.2 is installed and analysed; lmp is proven on transformers {proven}"
    ]


def test_an_edited_file_is_said_once_and_recorded(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    file = site.folder / "transformers" / "models" / "m.py"
    assert locate(CLASS, site.trees()).record().version == "5.23.0"
    assert said(caplog) == []
    file.write_text(file.read_text().replace("x + 1", "x + 2"))
    for _ in range(2):
        source = locate(CLASS, site.trees())
    assert source.record().version == "5.23.0+edited"
    assert source.record().sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert said(caplog) == [
        f"warning: {file} was edited after transformers 5.23.0 was installed; it is analysed as it is"
    ]
    write(site.folder / "transformers" / "new.py", "")
    (site.folder / "transformers" / "models" / "__init__.py").unlink()
    assert edited_files(site.transformers()) == [
        "transformers/models/__init__.py: missing",
        "transformers/models/m.py: edited",
        "transformers/new.py: not installed with it",
    ]


def test_an_editable_install_has_nothing_to_compare_with(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    write(site.folder / "transformers-5.23.0.dist-info" / "RECORD", "__editable__.transformers.pth,sha256=AA,9\n")
    installed._text.cache_clear()
    tree = site.transformers()
    check_file(tree, tree.package_dir / "models" / "m.py")
    assert edited_files(tree) == []
    assert said(caplog) == []


def test_two_folders_of_a_distribution_decide_nothing(site: Site) -> None:
    """What a broken upgrade leaves behind: the version in the package itself counts then."""
    write(site.folder / "transformers-5.0.0.dist-info" / "RECORD", "")
    tree = site.transformers()
    assert (tree.version, tree.record) == ("5.23.0", None)


def test_what_is_not_installed_is_named_with_the_way_to_get_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmp.source.trees.package_folder", lambda name: None)
    trees = find_trees()
    assert (trees.transformers, trees.pytorch) == (None, None)
    with pytest.raises(EngineMissing, match=r"^torch is not installed: .*\ninstall it: pip install 'lmp\[engine\]'$"):
        trees.need("pytorch")
    assert EngineMissing.exit_code == 3


def test_the_release_that_runs_is_part_of_the_fingerprint(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def releases(trees: Trees) -> dict[str, str]:
        assert trees.transformers is not None
        file = trees.transformers.package_dir / "models" / "m.py"
        made = submission_fingerprint([(trees.transformers, file)])
        assert "src/transformers/models/m.py" in made
        return {key: value for key, value in made.items() if key.startswith("run_with")}

    torch = [site.trees().pytorch]
    monkeypatch.setattr("lmp.store.fingerprint._installed_torch", lambda: torch[0])
    assert releases(site.trees()) == {}
    site.install("transformers", "5.22.2")
    site.install("torch", "2.12.1")
    torch[0] = site.trees().pytorch
    assert releases(site.trees()) == {"run_with.torch": "2.12.1", "run_with.transformers": "5.22.2"}


def test_sources_that_are_not_here(site: Site) -> None:
    files = {"derived_by": "a", "src/transformers/models/m.py": "b"}
    assert unsourced(files, site.trees()) == []
    assert unsourced(files, Trees(None, None)) == ["transformers"]
    assert unsourced({**files, "torch/nn/__init__.py": "c"}, Trees(None, None)) == ["transformers", "torch"]
    assert unsourced({}, Trees(None, None)) == []


def test_only_a_package_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a_package_of_lmp" / "__init__.py", "raise RuntimeError('it is not imported')\n")
    write(tmp_path / "a_file_of_lmp.py", "")
    (tmp_path / "a_folder_of_lmp").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.package_folder("a_package_of_lmp") == tmp_path / "a_package_of_lmp"
    for name in ("a_file_of_lmp", "a_folder_of_lmp", "nothing_of_lmp"):
        assert installed.package_folder(name) is None
