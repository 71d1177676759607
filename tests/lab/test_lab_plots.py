"""Plots and flame graphs: the same bytes each time, transparent, escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from lab_posts import no_figures

from lmp.errors import PostRefused
from lmp.lab.building import build, render
from lmp.lab.config import PlotRule
from lmp.lab.evaluating import Evaluator
from lmp.lab.flame import flame_svg, stacks_of
from lmp.lab.plots import COLOURS, INK, plot_svg
from lmp.lab.post import Post, load, read_post, save, sha256
from lmp.lab.rerun import Where, run

SVG = "{http://www.w3.org/2000/svg}"

FOLDED = ["@@run 1", "main;decode;mm 6", "main;decode;<softmax> 3", "main;load 1", "no count", ""]

# Two samples of one stack and one of another, as `perf script` prints them, innermost frame first.
PERF = """\
python 4242/4242  100.000001:     250000 cpu-clock:pppH:
\t    7f1e8e0d2c3a at::_ops::mm::call+0x3a (/usr/lib/libtorch_cpu.so)
\t    55d0c0ffee00 main+0x10 (/usr/bin/python3.11)

python 4242/4242  100.000251:     250000 cpu-clock:pppH:
\t    7f1e8e0d2c3b at::_ops::mm::call+0x3b (/usr/lib/libtorch_cpu.so)
\t    55d0c0ffee00 main+0x10 (/usr/bin/python3.11)

thread pool 4243  100.000301:     250000 cpu-clock:pppH:
\tffffffff81000000 [unknown] ([kernel.kallsyms])
"""


def test_folded_stacks() -> None:
    assert stacks_of(FOLDED, "folded") == {
        ("main", "decode", "mm"): 6,
        ("main", "decode", "<softmax>"): 3,
        ("main", "load"): 1,
    }


def test_stacks_of_perf_script() -> None:
    assert stacks_of(PERF.splitlines(), "perf") == {
        ("python", "main", "at::_ops::mm::call"): 2,
        ("thread pool", "[unknown]"): 1,
    }


def frames(svg: bytes) -> dict[str, float]:
    """Title of each frame -> its width."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert box is not None
        found[str(title.text)] = float(box.attrib["width"])
    return found


def test_a_frame_is_as_wide_as_its_share() -> None:
    found = frames(flame_svg(stacks_of(FOLDED, "folded"), "t", "samples", 0))
    # 900 wide, 0.4 left between frames: 9 of 10 samples are 810, 6 are 540.
    assert found["all: 10 samples, 100.0 %"] == pytest.approx(900 - 0.4)
    assert found["decode: 9 samples, 90.0 %"] == pytest.approx(810 - 0.4)
    assert found["mm: 6 samples, 60.0 %"] == pytest.approx(540 - 0.4)


def test_small_frames_are_not_drawn() -> None:
    assert "load: 1 samples, 10.0 %" not in frames(flame_svg(stacks_of(FOLDED, "folded"), "t", "samples", 0.2))


def test_names_are_escaped_and_the_same_bytes_come_again() -> None:
    stacks = stacks_of(['<script>alert(1)</script>;"&\x07 3'], "folded")
    svg = flame_svg(stacks, "<b>", "samples", 0)
    assert b"<script" not in svg
    assert b"<b>" not in svg
    assert svg == flame_svg(stacks, "<b>", "samples", 0)


def test_a_stack_of_many_thousand_frames() -> None:
    stacks = {tuple(f"f{i}" for i in range(5000)): 1}
    assert len(frames(flame_svg(stacks, "t", "samples", 0))) == 5001


# --- plots -----------------------------------------------------------------------------------------------------------


def rule(**fields: object) -> PlotRule:
    series = [{"label": "a $x$ <b>", "capture": "sums", "pattern": r"^(\d+) numbers: (\d+)"}]
    return PlotRule.model_validate({"title": "$t$ <i>", "y": "sum", "series": series} | fields)


@pytest.fixture
def evaluator(tiny: Post) -> Evaluator:
    return Evaluator(tiny, tiny.captures, no_figures(tiny))


@pytest.mark.parametrize(
    "fields", [{}, {"log_x": True, "log_y": True}, {"kind": "bar"}, {"kind": "bar", "log_y": True}]
)
def test_a_plot_is_transparent_and_the_same_each_time(evaluator: Evaluator, fields: dict[str, object]) -> None:
    svg = plot_svg("p", rule(**fields), evaluator)
    assert svg == plot_svg("p", rule(**fields), evaluator)
    ElementTree.fromstring(svg)
    text = svg.decode().lower()
    assert "<dc:date>" not in text
    assert "<script" not in text
    assert "mathdefault" not in text
    # No white and no black: neither would be seen on one of the grounds.
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text))
    assert used
    assert used <= {INK.lower(), *(colour.lower() for colour in COLOURS)}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#FFFFFF", "#0D1117"])
@pytest.mark.parametrize("colour", [INK, *COLOURS])
def test_colours_are_seen_on_both_grounds(colour: str, ground: str) -> None:
    low, high = sorted([luminance(colour), luminance(ground)])
    # WCAG asks 3 of graphics.
    assert (high + 0.05) / (low + 0.05) >= 3


def test_points_of_expressions(tiny: Post) -> None:
    series = [
        {"label": "a", "points": [["ten", "{sums.ten}"], ["half", "{sums.ten} / 2"], ["more", "{sums.record.cpus}"]]}
    ]
    evaluator = Evaluator(tiny, tiny.captures, no_figures(tiny))
    assert plot_svg("p", rule(kind="bar", series=series), evaluator).startswith(b"<?xml")


def test_a_series_without_points_is_named(tiny: Post) -> None:
    file = tiny.folder / "lab.toml"
    file.write_text(file.read_text().replace("numbers: (\\d+)'\n\n[table", "words: (\\d+)'\n\n[table"))
    post = read_post(tiny.folder)
    with pytest.raises(PostRefused, match="no line of sums matches"):
        build([post], [post], no_figures)


def test_a_flame_graph_in_a_post(tiny: Post) -> None:
    (tiny.folder / "lab.toml").write_text(
        'title = "t"\nquestion = "q"\n[capture.stacks]\nargv = ["echo", "a;b 3"]\ntool = "echo"\n'
        '[plot.flame]\nkind = "flame"\ntitle = "Where time goes"\ncapture = "stacks"\n'
    )
    (tiny.folder / "post.md").write_text("{{plot:flame}}\n")
    run(read_post(tiny.folder), Where(replace=True))
    rendered = render(read_post(tiny.folder), no_figures(tiny))
    assert rendered.problems == []
    assert "b: 3 samples, 100.0 %" in frames(rendered.plots["flame"])
    assert "![Where time goes](tiny/plots/flame.svg)" in rendered.markdown


def test_a_plot_of_several_runs_has_a_band(tiny: Post) -> None:
    folder: Path = tiny.captures
    stored = load(folder, "sums")
    assert stored is not None
    text = "@@run 1\n1 numbers: 5\n2 numbers: 6\n@@run 2\n1 numbers: 7\n2 numbers: 9\n"
    one = plot_svg("p", rule(), Evaluator(tiny, folder, no_figures(tiny)))
    save(folder, stored.record.model_copy(update={"output_sha256": sha256(text)}), text)
    several = plot_svg("p", rule(), Evaluator(tiny, folder, no_figures(tiny)))
    assert b"FillBetweenPolyCollection" in several or b"PolyCollection" in several
    assert b"PolyCollection" not in one
    # A point that is one value of a capture has the least and the most of its runs; one worked out of it has none.
    series = [{"points": [[1, "{sums.first}"], [2, "{sums.first} * 2"]]}]
    lab = tiny.folder / "lab.toml"
    text = lab.read_text().replace("[capture.sums.values]", "[capture.sums.values]\nfirst = '^1 numbers: (\\d+)'")
    lab.write_text(text.replace("ten = '^10", "ten = '^1").replace("forty = '^40", "forty = '^2"))
    points = plot_svg("p", rule(series=series), Evaluator(read_post(tiny.folder), folder, no_figures(tiny)))
    assert b"PolyCollection" in points


def texts(svg: bytes) -> list[str]:
    """Comments that matplotlib writes above each text it draws as a path."""
    return re.findall(r"<!-- (.*?) -->", svg.decode())


def test_ticks_of_bytes_and_of_few_decades(tiny: Post) -> None:
    series = [{"points": [["65536", "{sums.ten} / 285 * 3"], ["4194304", "{sums.ten} / 285 * 90"]]}]
    evaluator = Evaluator(tiny, tiny.captures, no_figures(tiny))
    drawn = texts(plot_svg("p", rule(series=series, log_x=True, log_y=True, x_bytes=True), evaluator))
    assert {"64 KiB", "1 MiB", "4 MiB"} <= set(drawn)
    # 3 to 90: between the powers of ten the ticks at 5, 20 and 50 are labelled.
    assert {"5", "10", "20", "50"} <= set(drawn)
