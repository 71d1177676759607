"""The page that compares three models of the packaged atlas, with few predicted points."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.atlas.archive import PACKAGED, Atlas
from lmp.predict.screen.grid import Axes
from lmp.report.compare import page
from lmp.report.on_device import Screen

MODELS = ("Qwen/Qwen3-8B", "openai/gpt-oss-20b", "google-bert/bert-base-uncased")
DEVICES = ("h100-sxm", "a100-sxm")
SCREEN = Screen(
    engines=("vllm",),
    tps=(1, 4),
    axes=(Axes("decode", (1, 4, 16), (2048, 8192)), Axes("prefill", (1, 4), (512, 2048))),
    eager=False,
    alike=True,
)


@pytest.fixture(scope="session")
def atlas() -> Atlas:
    return Atlas(PACKAGED)


@pytest.fixture(scope="session")
def compare_text(atlas: Atlas) -> str:
    return page(atlas, [atlas.named(name) for name in MODELS], DEVICES, screen=SCREEN)


@pytest.fixture(scope="session")
def compare_page(compare_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("compare") / "models.html"
    file.write_text(compare_text, encoding="utf-8")
    return file
