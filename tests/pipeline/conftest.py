"""One results folder for all tests of this room: what one test analysed, another one reuses."""

from __future__ import annotations

from typing import Any

import pytest

from lmp.pipeline.module import Options


@pytest.fixture(scope="session")
def shared_options(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Any) -> Options:
    return Options(results=tmp_path_factory.mktemp("results"))
