"""A file of the user's own, read without importing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.errors import NotFound, UsageError
from lmp.source.own_file import OwnClass, own_class, own_classes, own_file, runs_in_a_model
from lmp.source.trees import Trees, find_trees

TWO = """
import torch
from torch import nn
raise RuntimeError("imported")


class Helper:
    pass


class MLP(nn.Module):
    def __init__(self, dim: int, *, bias: bool = False):
        super().__init__()

    def forward(self, x: torch.Tensor, /, scale=1.0) -> torch.Tensor:
        return x


class Wide(MLP):
    pass


class NoForward(nn.Module):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trees_of(root: Path) -> Trees:
    return find_trees(root, extra=[root])


def classes(folder: Path, text: str) -> list[OwnClass]:
    (folder / "blocks.py").write_text(text)
    file = own_file(Path("blocks.py"), ())
    return own_classes(file, trees_of(file.root)).classes


def test_its_module_classes_in_order(folder: Path) -> None:
    found = classes(folder, TWO)
    assert [(one.name, one.source.class_lines[0]) for one in found] == [("MLP", 11), ("Wide", 19)]
    assert found[0].constructor == "MLP(dim: int, *, bias: bool=False)"
    assert found[0].signature == "forward(x: torch.Tensor, /, scale=1.0) -> torch.Tensor"
    assert found[1].signature == found[0].signature  # inherited
    assert found[1].constructor == "Wide(dim: int, *, bias: bool=False)"


def test_why_other_classes_are_none(folder: Path) -> None:
    (folder / "blocks.py").write_text(TWO)
    file = own_file(Path("blocks.py"), ())
    others = own_classes(file, trees_of(folder)).others
    assert [search.looked_for for search in others] == ["class Helper", "class NoForward"]
    assert "is not a torch.nn.Module" in others[0].found


def test_the_nearest_class(folder: Path) -> None:
    (folder / "blocks.py").write_text(TWO)
    file = own_file(Path("blocks.py"), ())
    assert own_class(file, "Wide", trees_of(folder)).name == "Wide"
    with pytest.raises(NotFound, match=r"blocks\.py has no class MPL\ndid you mean MLP\?"):
        own_class(file, "MPL", trees_of(folder))
    with pytest.raises(NotFound, match=r"blocks\.py has no class Zz\nit has MLP, Wide"):
        own_class(file, "Zz", trees_of(folder))
    with pytest.raises(UsageError, match=r"Helper is not a torch\.nn\.Module"):
        own_class(file, "Helper", trees_of(folder))


def test_a_class_that_the_file_imports(folder: Path) -> None:
    (folder / "blocks.py").write_text(TWO)
    (folder / "model.py").write_text("from blocks import MLP\n")
    file = own_file(Path("model.py"), ())
    assert own_classes(file, trees_of(folder)).classes == []
    assert own_class(file, "MLP", trees_of(folder)).source.class_path == "blocks.MLP"


def test_the_module_of_a_file(folder: Path) -> None:
    for name in ("pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/blocks.py", "plain/deep/blocks.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    inner = own_file(Path("pkg/sub/blocks.py"), ())
    assert (inner.module, inner.root) == ("pkg.sub.blocks", folder.resolve())
    plain = own_file(Path("plain/deep/blocks.py"), ())
    assert (plain.module, plain.root) == ("blocks", folder.resolve() / "plain/deep")
    below = own_file(Path("plain/deep/blocks.py"), [Path("plain")])
    assert (below.module, below.root) == ("deep.blocks", folder.resolve() / "plain")
    assert own_file(Path("pkg/__init__.py"), ()).module == "pkg"
    with pytest.raises(UsageError, match="is not below --path pkg"):
        own_file(Path("plain/deep/blocks.py"), [Path("pkg")])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-model.py", r"the name of its file my-model is no Python name\nrename the file, as in my_model"),
        ("3d.py", r"the name of its file 3d is no Python name\nrename the file, as in my_3d"),
        ("torch.py", r"torch\.py has the name of the package torch\nrename it, as in my_torch"),
    ],
)
def test_files_that_cannot_be_imported(folder: Path, name: str, message: str) -> None:
    (folder / name).write_text(TWO)
    with pytest.raises(UsageError, match=message):
        own_file(Path(name), ())


def test_files_that_are_no_python(folder: Path) -> None:
    for data in (b"def f(:\n", b"\x00\x01\xff", b"\xff\xfe\x00"):
        (folder / "blocks.py").write_bytes(data)
        file = own_file(Path("blocks.py"), ())
        with pytest.raises(NotFound, match=r"blocks\.py (is not valid Python|cannot be)"):
            own_classes(file, trees_of(folder))


def test_a_link_is_read_where_it_leads(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "blocks.py").write_text(TWO)
    (folder / "link.py").symlink_to(folder / "real" / "blocks.py")
    file = own_file(Path("link.py"), ())
    assert (file.module, file.root) == ("blocks", (folder / "real").resolve())


def test_what_runs_in_a_model_of_its_file(folder: Path) -> None:
    part = "class Part(nn.Module):\n    def __init__(self, config): ...\n    def forward(self, x): return x\n"
    head = "from torch import nn\nfrom transformers import PreTrainedModel\n"
    model = "class Model(PreTrainedModel):\n    def __init__(self, config): ...\n    def forward(self, x): return x\n"
    alone = classes(folder, head + part)
    assert [runs_in_a_model(one, trees_of(folder)) for one in alone] == [False]
    (folder / "both.py").write_text(head + part + model)
    file = own_file(Path("both.py"), ())
    assert runs_in_a_model(own_class(file, "Part", trees_of(folder)), trees_of(folder))
