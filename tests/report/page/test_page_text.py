"""What stands in the file of a page, without a browser."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import small_facts
import small_models as small

from lmp.dtypes import WORDS, sizes
from lmp.errors import UsageError
from lmp.formula import read_number
from lmp.link.quantised import with_own_bytes
from lmp.records import Part, Quantization, Verification
from lmp.report.facts import ModelFacts
from lmp.report.page import controls, page, writing
from lmp.report.page.content import content

PROJECT = Path(__file__).parents[3]


class Reader(HTMLParser):
    """Elements with their attributes, and the text of scripts, as the standard library reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(facts: ModelFacts) -> str:
    return page(facts)


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    return Reader(text)


def test_nothing_is_fetched(read: Reader) -> None:
    assert [e for e in read.elements if "src" in e[1]] == []
    assert [link["href"] for link in read.all("link")] == ["data:,"]
    policy = next(m["content"] for m in read.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in read.scripts[1:]]
    assert rules["script-src"].split() == hashes


def test_three_scripts_whatever_stands_in_the_sources(read: Reader, text: str) -> None:
    # The data, plotly and the page's own: none of the three that small_facts has in a comment.
    assert len(read.all("script")) == 3
    assert small_facts.HOSTILE not in text
    data = json.loads(read.scripts[0])
    assert f"    # {small_facts.HOSTILE}" in data["code"][0][0]["lines"]


def test_markup_in_names_and_reasons_stays_text(tmp_path: Path) -> None:
    wrong = {
        "verification": Verification(status="unverified", reason=small_facts.HOSTILE),
        "pinned": {small_facts.HOSTILE: 3},
        "parts": {
            small.ROOT: Part(status="unverified", sha256="0" * 64, uncounted=[small_facts.HOSTILE]),
            small.LAYER: Part(status="verified", sha256="0" * 64),
            small.LINEAR: Part(status="verified", sha256="0" * 64),
        },
    }
    found = Reader(page(small_facts.facts(tmp_path, **wrong)))
    assert len(found.all("script")) == 3
    assert found.all("img") == []
    assert found.text.count(small_facts.HOSTILE) == 3  # the reason, the pinned name, the uncounted operator


def test_status_and_warnings_are_there_without_javascript(tmp_path: Path, read: Reader) -> None:
    assert "verified" in read.text
    assert "pinned" not in read.text
    parts = {name: Part(status="unverified", sha256="0" * 64) for name in (small.ROOT, small.LAYER, small.LINEAR)}
    reason = "nobody looked"
    found = Reader(
        page(
            small_facts.facts(
                tmp_path, parts=parts, pinned={"window": 7}, verification=Verification(status="failed", reason=reason)
            )
        )
    )
    assert "nobody looked" in found.text
    assert f"the formulas of {small.LAYER} are unverified" in found.text
    assert "window = 7" in found.text


def test_the_same_twice_and_on_every_machine(facts: ModelFacts, text: str, tmp_path: Path) -> None:
    assert page(small_facts.facts(tmp_path)) == text
    assert str(tmp_path) not in text
    assert str(facts.trees.project) not in text


def test_formulas_share_their_parts(facts: ModelFacts) -> None:
    data = json.loads(Reader(page(facts)).scripts[0])
    steps = [tuple(step) for step in data["program"]["steps"]]
    assert len(steps) == len(set(steps))


def test_precisions_are_those_of_evaluate() -> None:
    shown = {word: {n: read_number(text) for n, text in found.items()} for word, found in controls.precisions().items()}
    assert shown == {word: sizes(word) for word in WORDS}


BYTE_SIZES = ("w_bytes", "a_bytes", "kv_bytes")


def test_only_variables_that_exist(tmp_path: Path) -> None:
    whole = controls.variables(small.model())
    assert [v["name"] for v in whole if "slider" in v] == ["batch_size", "seq_len", "cache_len"]
    assert [v["name"] for v in whole if "slider" not in v] == ["hidden_size", "num_hidden_layers", *BYTE_SIZES]
    less = small.model(parameters={"batch_size": "inputs.x.shape[0]", "width": "init.width"}, values={})
    assert [v["name"] for v in controls.variables(less)] == ["batch_size", "width", *BYTE_SIZES]
    assert [v["name"] for v in controls.variables(less) if "not_given" in v] == ["width"]
    assert controls.phases(less) == {}
    given = controls.variables(less, {"width": 64})
    assert [(v["value"], "not_given" in v) for v in given if v["name"] == "width"] == [("64", False)]


def test_facts_stand_below_the_answers(text: str) -> None:
    assert text.index('id="answers"') < text.index('id="icicle"') < text.index('class="about"')


def test_the_first_line_counts_the_notes(tmp_path: Path) -> None:
    found = Reader(page(small_facts.facts(tmp_path, pinned={"window": 7, "depth": 2})))
    assert "2 pinned values below the answers." in found.text


def test_a_quantised_checkpoint_without_its_bytes_is_not_known(tmp_path: Path) -> None:
    about = Quantization(config={"quant_method": "gptq", "bits": 3, "group_size": 8}, whole=True)
    found = small_facts.facts(tmp_path, quantization=about)
    data = content(replace(found, model=with_own_bytes(found.model)))
    assert data["stored"] is None
    assert "weights" not in data["held"]


def test_every_file_of_the_page_is_in_the_package() -> None:
    patterns = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["lmp"]
    root = PROJECT / "src" / "lmp"
    files = [file.relative_to(root).as_posix() for file in (root / "report" / "page" / "static").iterdir()]
    assert [file for file in files if not any(fnmatch.fnmatch(file, pattern) for pattern in patterns)] == []
    scripts = {Path(file).stem for file in files if file.endswith(".js")}
    assert scripts == set(writing.SCRIPTS)


def test_scripts_put_no_markup_together() -> None:
    scripts = [file.read_text() for file in Path(writing.__file__).parent.joinpath("static").glob("*.js")]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", "".join(scripts)
    )


def test_a_missing_package_is_said(facts: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(UsageError, match=r"pip install 'lmp\[report\]'"):
        page(facts)


def test_many_kernels_beside_modules_stand_together(tmp_path: Path) -> None:
    model = small.model()
    own = [small.basic(10, "{batch_size}", "0", "0", operation=f"mask {i}") for i in range(5)]
    kernels = [own[0], model.kernels[1], *own[1:]]
    nodes = json.loads(Reader(page(small_facts.facts(tmp_path, kernels=kernels))).scripts[0])["nodes"]
    assert [(node["name"], node["up"]) for node in nodes] == [
        ("Root", -1),
        ("5 own operators", 0),
        ("mask 0", 1),
        ("layers.0", 0),
        ("add", 3),
        ("proj", 3),
        ("matrix product", 5),
        *((f"mask {i}", 1) for i in (1, 2, 3, 4)),
    ]
