"""The summary that the tests of this folder have, and its page as a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import small_zoo

from lmp.report.zoo.page import page


@pytest.fixture(scope="session")
def zoo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zoo") / "causal-lm.html"
    file.write_text(page(small_zoo.summary()), encoding="utf-8")
    return file
