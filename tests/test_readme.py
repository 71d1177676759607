"""README.md and docs/cli.md show what the commands print: one test, so that its commands share their analyses."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from lmp.source.trees import find_trees

ROOT = Path(__file__).parents[1]


@pytest.fixture
def pages() -> ModuleType:
    """scripts/readme.py, which is no package: it runs what the pages show."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_pages_show_what_the_commands_print(pages: ModuleType) -> None:
    trees = find_trees(ROOT)
    if trees.transformers is None or trees.pytorch is None:
        pytest.skip("nothing is vendored: run `lmp vendor`")
    with tempfile.TemporaryDirectory(prefix="lmp-", dir="/tmp") as folder:
        found = pages.differences(pages.Commands(Path(folder)))
    assert found == [], "run `.venv/bin/python scripts/readme.py`"
