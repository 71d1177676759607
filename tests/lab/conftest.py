"""Two small posts with their captures, in a folder of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lmp.lab.post import Post, read_post
from lmp.lab.rerun import Where, run

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The posts of tests/lab/data with captures of this machine."""
    folder = tmp_path_factory.mktemp("lab") / "posts"
    shutil.copytree(DATA / "posts", folder)
    for name in ("tiny", "costs"):
        run(read_post(folder / name), Where(replace=True))
    return folder


@pytest.fixture
def posts(taken: Path, tmp_path: Path) -> Path:
    """A copy of the posts with their captures, to break."""
    shutil.copytree(taken, tmp_path / "posts")
    return tmp_path / "posts"


@pytest.fixture
def tiny(posts: Path) -> Post:
    """The post that needs no formulas of lmp, alone in its folder."""
    shutil.rmtree(posts / "costs")
    return read_post(posts / "tiny")
