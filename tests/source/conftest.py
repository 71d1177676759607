"""The real trees, vendored once a session, and small synthetic ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import TORCH, MakeTrees, write

from lmp.source.trees import Trees, find_trees
from lmp.source.vendor import vendor


@pytest.fixture(scope="session")
def vendored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with both trees vendored. Tests that change it must put it back: see ``test_vendor``'s own copies."""
    root = tmp_path_factory.mktemp("project")
    vendor(root)
    return root


@pytest.fixture(scope="session")
def real(vendored: Path) -> Trees:
    return find_trees(vendored)


@pytest.fixture
def make_trees(tmp_path: Path) -> MakeTrees:
    """Trees of a tiny torch, and of a transformers made of the given files under src/transformers/."""

    def make(files: dict[str, str]) -> Trees:
        for name, text in TORCH.items():
            write(tmp_path / "pytorch" / name, text)
        for name, text in {"__init__.py": "__version__ = '7.0.0'\n", **files}.items():
            write(tmp_path / "transformers" / "src" / "transformers" / name, text)
        return find_trees(tmp_path)

    return make
