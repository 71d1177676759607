"""What reading a class tells of its instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.source.locate import locate
from lmp.source.members import Members, members_of
from lmp.source.trees import find_trees

MODULES = """
import torch
from torch import nn
from shapes.configuration import Config


class Base(nn.Module):
    def __init__(self, width, *, depth=2):
        super().__init__()
        self.width = width
        self.register_buffer("table", torch.zeros(3))

    @property
    def size(self):
        return 1

    def forward(self, x, mask=None):
        return x


class Passing(Base):
    def __init__(self, extra, **kwargs):
        super().__init__(**kwargs)
        self.a, self.b = extra, 2


class Any(Base):
    def __init__(self, names):
        for name in names:
            setattr(self, name, 1)

    def forward(self, x, **kwargs):
        return x


class Annotated(nn.Module):
    def __init__(self, config: "Config | None"):
        self.config = config

    def forward(self, x):
        return x


class Bare(nn.Module):
    def __init__(self, config):
        self.config = config

    def forward(self, x):
        return x
"""

CONFIG = """
class Parent:
    attribute_map = {"hidden_size": "width"}
    layers: int = 12

    def __init__(self, heads=4, **kwargs):
        self.heads = heads


class Config(Parent):
    width: int = 768
    name: str = "x"

    @property
    def head_dim(self):
        return self.width // self.heads
"""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path):  # type: ignore[no-untyped-def]
    root = tmp_path_factory.mktemp("members")
    (root / "shapes").mkdir()
    (root / "shapes" / "__init__.py").write_text("")
    (root / "shapes" / "modules.py").write_text(MODULES)
    (root / "shapes" / "configuration.py").write_text(CONFIG)
    trees = find_trees(Path(__file__).parents[2], extra=[root])

    def of(name: str) -> Members:
        return members_of(locate(f"shapes.modules.{name}", trees), trees)

    return of


def test_arguments_and_attributes(members) -> None:  # type: ignore[no-untyped-def]
    found = members("Base")
    assert (found.init.known, found.init.any) == ({"width", "depth"}, False)
    assert (found.inputs.known, found.inputs.any) == ({"x", "mask"}, False)
    assert {"width", "table", "size", "training"} <= found.attributes.known
    assert not found.attributes.any
    assert "anything" not in found.config


def test_a_constructor_that_hands_the_rest_on(members) -> None:  # type: ignore[no-untyped-def]
    found = members("Passing")
    assert (found.init.known, found.init.any) == ({"extra", "width", "depth"}, False)
    assert {"a", "b", "width"} <= found.attributes.known


def test_what_reading_cannot_follow_may_be_anything(members) -> None:  # type: ignore[no-untyped-def]
    found = members("Any")
    assert found.attributes.any
    assert found.inputs.any


@pytest.mark.parametrize("name", ["Annotated", "Bare"])
def test_the_configs_names_and_numbers(members, name: str) -> None:  # type: ignore[no-untyped-def]
    # Bare is annotated with nothing: what another class of the file asks for counts.
    found = members(name)
    for known in ("width", "hidden_size", "layers", "heads", "head_dim", "name"):
        assert known in found.config
    assert "wdith" not in found.config
    assert found.config_values == {"width": 768, "layers": 12, "heads": 4}
