"""Charts: readable on dark pages, whole or not at all, and refused in words."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
from pathlib import Path

import pytest

from lmp.errors import StorageError, UsageError
from lmp.predict.charts import COLOURS, FORMATS, GREY, GROUND, INK, Chart, Panel, Series, is_doubling, plottable, write

BAND = Series("a <b>", [1, 2, 4], [1.0, None, 3.0], [0.5, None, 2.0], [2.0, None, 4.0])
CHART = Chart("t <script>", [Panel("x", "ms", [BAND], log_x=True, log_y=True, ticks=[1, 2, 4])], stacked=True)


def luminance(colour: str) -> float:
    """Of WCAG 2.1."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_texts_and_lines_stand_out_from_the_ground() -> None:
    # WCAG 2.1: 4.5 for text, 3 for graphics.
    assert all(contrast(colour, GROUND) >= 4.5 for colour in (INK, GREY))
    assert all(contrast(colour, GROUND) >= 3 for colour in COLOURS if colour not in ("#CC79A7", "#009E73"))
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)  # the known limit of grey text on white


def test_the_ground_is_opaque_on_a_dark_page(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    write(CHART, tmp_path / "a.png")
    pixels = image.imread(tmp_path / "a.png")
    assert all(tuple(pixels[row, column]) == (1, 1, 1, 1) for row in (0, -1) for column in (0, -1))
    write(CHART, tmp_path / "a.svg")
    first = re.search(r'<g id="patch_1">\s*<path d="[^"]*" style="fill: (#\w+)', (tmp_path / "a.svg").read_text())
    assert first is not None
    assert first[1] == "#ffffff"
    write(CHART, tmp_path / "a.html")
    assert f"body{{background:{GROUND}" in (tmp_path / "a.html").read_text()


def test_a_page_needs_no_network_and_runs_no_text(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    write(CHART, tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "<script>" not in text.partition("<body>")[0]
    assert "t &lt;script&gt;" in text
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', text)


def test_the_same_chart_is_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        write(CHART, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "a.svg"
    file.write_text("before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lmp.store.files.os.fsync", full)
    with pytest.raises(StorageError, match="the disk is full"):
        write(CHART, file)
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.jpeg2", "has no ending of a picture"), ("a", "give one of .svg, .png, .html, .pdf"), ("d.svg", "is a folder")],
)
def test_files_that_are_no_pictures(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(UsageError, match=message):
        plottable(tmp_path / name)


@pytest.mark.parametrize(("ending", "library"), [(".svg", "matplotlib"), (".html", "plotly")])
def test_a_missing_extra_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, library: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=f"plots need {library}, which is not installed\nrun `pip install"):
        plottable(tmp_path / f"a{ending}")


def test_ranges_by_factors_are_on_a_log_axis() -> None:
    assert is_doubling([1, 2, 4, 8])
    assert not is_doubling([8, 16, 24, 32])
    assert not is_doubling([1, 2])
    assert ".png" in FORMATS
