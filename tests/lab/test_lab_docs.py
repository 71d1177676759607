"""docs/lab.md: its examples are read, and its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.lab import config, numbers, template
from lmp.lab.config import read_lab, read_sources
from lmp.lab.evaluating import ENVIRONMENT
from lmp.lab.values import RECORD

PAGE = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
*LAB, SOURCES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_lab_toml_is_one(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text("\n".join(LAB))
    lab = read_lab(file)
    assert list(lab.capture) == ["strace_decode", "build_attention"]
    assert list(lab.plot) == ["bandwidth", "where_time_goes"]


def test_the_example_of_sources_toml_is_one(tmp_path: Path) -> None:
    file = tmp_path / "sources.toml"
    file.write_text(SOURCES)
    assert read_sources(file)["hopper"].kind == "academic"


@pytest.mark.parametrize(
    "record", [config.CaptureRule, config.ValueRule, config.SubjectRule, config.PlotRule, config.Series, config.Lab]
)
def test_each_key_is_on_the_page(record: type[config.Closed]) -> None:
    names = {field.alias or name for name, field in record.model_fields.items()}
    assert [name for name in names if not re.search(rf"\b{name}\b", PAGE)] == []


@pytest.mark.parametrize("words", [template.KINDS, ENVIRONMENT, RECORD, config.RESERVED])
def test_each_word_is_on_the_page(words: tuple[str, ...]) -> None:
    assert [word for word in words if not re.search(rf"\b{word}\b", PAGE)] == []


def test_each_format_is_on_the_page() -> None:
    units = [*numbers._UNITS, "int", "comma", "si"]
    assert [unit for unit in units if unit != "f" and f"`{unit}`" not in PAGE] == []
