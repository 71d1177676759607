"""Which copy of transformers a test process runs: the vendored tree where it exists, and never two of them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from lmp.source.trees import find_trees
from lmp.workload.load import use_transformers_tree

PROJECT = Path(__file__).parents[1]


def pytest_configure() -> None:
    """Choose the copy before any test module can import one; leave no credential or setting of who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE_"))]:
        del os.environ[name]
    os.environ["LMP_SETTINGS"] = os.devnull
    tree = find_trees(PROJECT).transformers
    if tree is not None:
        use_transformers_tree(tree.package_dir.parent)


@pytest.fixture(scope="session")
def transformers_tree() -> Path:
    """The vendored transformers package, which ``import transformers`` takes in this process."""
    tree = find_trees(PROJECT).transformers
    if tree is None:
        pytest.skip("transformers is not vendored: run `lmp vendor`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

    assert Path(str(transformers.__file__)).resolve().parent == tree.package_dir.resolve()
    return tree.package_dir
