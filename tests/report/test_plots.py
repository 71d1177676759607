"""SVG plots: the same bytes everywhere, labels apart, every share from the numbers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "page"))
sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

import small_facts

from lmp.errors import UsageError
from lmp.report.components import components
from lmp.report.devices import device_named
from lmp.report.facts import ModelFacts
from lmp.report.labels import Box, places
from lmp.report.plots import assets


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return small_facts.facts(tmp_path_factory.mktemp("sources"))


def test_two_plots_that_open(facts: ModelFacts) -> None:
    found = assets(facts)
    assert list(found) == ["a.models.Root-roofline.svg", "a.models.Root-breakdown.svg"]
    for content in found.values():
        assert len(content) < 100_000
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"<dc:date>" not in content
        assert b"<text" not in content  # letters are paths: they look the same whatever fonts there are


_AGAIN = """
import sys
from pathlib import Path
import small_facts
from lmp.report.plots import assets
for content in assets(small_facts.facts(Path(sys.argv[1]))).values():
    sys.stdout.buffer.write(content)
"""


def test_the_same_bytes_in_another_process(facts: ModelFacts, tmp_path: Path) -> None:
    # A matplotlibrc of the user's changes nothing, nor do the order of hashing and the folder.
    (tmp_path / "matplotlibrc").write_text("font.size: 30\naxes.facecolor: red\n")
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
        "PYTHONPATH": os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", _AGAIN, str(tmp_path / "sources")]
    found = subprocess.run(command, capture_output=True, check=True, env=environment, cwd=tmp_path)
    assert found.stdout == b"".join(assets(facts).values())


def test_a_name_is_only_a_name(tmp_path: Path) -> None:
    made = small_facts.facts(tmp_path)
    object.__setattr__(made, "name", "$x^2$ <b>&--> \x07")
    for name, content in assets(made).items():
        assert "/" not in name
        assert ElementTree.fromstring(content) is not None


def test_components_are_the_whole(facts: ModelFacts) -> None:
    point = facts.point("prefill-b1-s2048")
    found = {part.name: part for part in components(facts.tree(point))}
    assert list(found) == ["Root itself", "Layer"]
    # 3 layers at 2,048 tokens of 8: 3 * (16,384 + 2 * 16,384 * 8) FLOPs.
    assert found["Layer"].cost.flops == 835_584
    assert sum(part.cost.bytes for part in found.values()) == facts.tree(point).total.bytes
    # 3 * (3 * 32,768 + 2 * 32,768 + 128) bytes at 3.35 TB/s, which takes longer than the FLOPs.
    assert found["Layer"].seconds(device_named("H100")) == pytest.approx(491_904 / 3.35e12)


spots = st.lists(st.tuples(st.floats(60, 560), st.floats(50, 330)), min_size=1, max_size=12)


@given(spots)
def test_labels_do_not_overlap(points: list[tuple[float, float]]) -> None:
    inside = Box(0, 0, 640, 380)
    boxes = places(points, [(90, 10)] * len(points), inside)
    assert all(box.inside(inside) for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert not any(box.holds(*point) for box in boxes for point in points)


def test_labels_keep_clear_of_a_line() -> None:
    line = [(float(x), 100.0) for x in range(0, 600, 2)]
    (box,) = places([(300, 100)], [(90, 10)], Box(0, 0, 640, 380), line)
    assert not any(box.holds(*spot) for spot in line)


def test_a_missing_package_is_said(facts: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'lmp\[report\]'"):
        assets(facts)
