"""The page in a real browser: its numbers are those of `lmp evaluate`, and it asks nobody for anything."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import small_facts
import small_models as small
from headless import Browser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formula.strategies import NAMES, conditions, formulas, huge, points
from lmp.analyze.session import Options
from lmp.errors import EvaluationError
from lmp.formula import Condition, Expr, Number, number_text, read_number
from lmp.formula.evaluate import exact, holds
from lmp.link.numbers import ModelNumbers
from lmp.link.quantised import with_own_bytes
from lmp.link.values import values_for
from lmp.records import ModelAnalysis, Quantization, Verification
from lmp.report.facts import ModelFacts
from lmp.report.formats.figures import figure, percent, ratio
from lmp.report.page import page, writing
from lmp.report.page.steps import Steps

pytestmark = pytest.mark.xdist_group("browser")

SIZES = ((1280, False), (1280, True), (400, False), (400, True))
TOTALS = ("flops", "matmul_flops", "read", "write", "compulsory", "parameters_count")

# --- numbers ---------------------------------------------------------------------------------------------------------


def shown_totals(browser: Browser) -> dict[str, Number]:
    """The exact totals that the page has: where the mouse rests, and as text when they are asked for."""
    found = {}
    for box in browser.run(
        "return [...document.querySelectorAll('[data-total]')]"
        ".map((d) => [d.dataset.total, d.querySelector('dd').dataset.exact])"
    ):
        if box[1] is not None:
            found[box[0]] = read_number(box[1])
    return found


def put(browser: Browser, values: Mapping[str, Number]) -> None:
    """Types every value into its field."""
    for name, value in values.items():
        text = number_text(value)
        if browser.run("return document.getElementById(`set-${arguments[0]}`).value", name) != text:
            browser.type(f"#set-{name}", text)


def check_totals(browser: Browser, model: ModelAnalysis, values: Mapping[str, Number]) -> None:
    totals = dict(ModelNumbers(model).totals(values_for(model, values)))
    shown = {name: value for name, value in shown_totals(browser).items() if name in TOTALS}
    assert shown == {name: totals[name] for name in TOTALS if totals[name] is not None}


def check_rows(browser: Browser, model: ModelAnalysis, values: Mapping[str, Number]) -> None:
    """Every row that runs, in the order of execution, against the tree of `lmp evaluate`."""
    numbers = ModelNumbers(model)
    tree = numbers.tree(values_for(model, values))
    expected = sorted((k.path, k.kernel.operation, k.total.flops, k.total.read, k.total.write) for k in tree.kernels())
    found = browser.run(
        "return [...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((c) => c.title))"
    )
    names = browser.texts("#table tbody tr .kernel")
    rows = [
        (cells[0].split("\n")[0], *(read_number(cells[i].replace(",", "")) for i in (2, 3, 4)))
        for cells in found
        if cells[6] != "0 runs in all"
    ]
    assert len(names) == len(found)
    # What does not run is in no tree of lmp's; the path is the first line of the title, where there is one.
    assert sorted(row[1:] for row in rows) == sorted(e[2:] for e in expected)


POINTS: tuple[dict[str, Number], ...] = (
    {"batch_size": 2, "seq_len": 16, "cache_len": 0},
    {"batch_size": 3, "seq_len": 1, "cache_len": 77},
    {"batch_size": 5, "seq_len": 7, "cache_len": 11, "hidden_size": 5120, "num_hidden_layers": 61},
    {"batch_size": 1, "seq_len": 1, "cache_len": 0, "num_hidden_layers": 1},
    # 2 * 94,906,267 ** 2 and more: far beyond 2 ** 53, where a JavaScript number would lose the last digits.
    {"batch_size": 94_906_267, "seq_len": 94_906_267, "cache_len": 10**15 + 1, "hidden_size": 9_007_199_254_740_993},
    {"batch_size": 10**40 + 7, "seq_len": 3, "cache_len": 1, "w_bytes": 1, "a_bytes": 4},
    {"batch_size": 3, "seq_len": 7, "cache_len": 5, "w_bytes": Fraction(17, 32), "a_bytes": 1},
    {"batch_size": 10**20 + 1, "seq_len": 7, "cache_len": 5, "w_bytes": Fraction(1, 3), "a_bytes": Fraction(9, 2)},
)


@pytest.mark.parametrize("values", POINTS)
def test_numbers_are_those_of_evaluate(browser: Browser, small_page: Path, values: dict[str, Number]) -> None:
    browser.open(small_page)
    put(browser, values)
    check_totals(browser, small.model(), values)
    browser.click("#free")
    check_rows(browser, small.model(), values)


def test_numbers_of_a_quantised_checkpoint(browser: Browser, tmp_path: Path) -> None:
    about = Quantization(config={"quant_method": "gptq", "bits": 3, "group_size": 8}, whole=True)
    found = small_facts.facts(tmp_path, quantization=about)
    found = replace(found, model=with_own_bytes(found.model))
    browser.open(small_facts.written(page(found), tmp_path))
    # Of 10 * 10 weights 3 bits each are 37.5 bytes, so that the bytes of one layer are a fraction.
    for values in (
        {"batch_size": 1, "seq_len": 1, "cache_len": 0, "hidden_size": 10, "num_hidden_layers": 1},
        POINTS[2],
    ):
        put(browser, values)
        check_totals(browser, found.model, values)
    assert "not quantised (gptq)" in browser.texts("label[for=set-w_bytes]")[0]


def test_numbers_by_hand(browser: Browser, small_page: Path) -> None:
    browser.open(small_page)
    put(browser, small.POINT)
    found = shown_totals(browser)
    assert found["flops"] == small.FLOPS
    assert found["read"] == small.READ
    assert found["parameters_count"] == small.PARAMETERS
    assert browser.texts("[data-total=flops] dd:not(.why)") == ["13.06 kFLOP"]
    # 13,056 / (5,760 + 3,584) = 1.397
    assert browser.texts("[data-total=intensity] dd") == ["1.40"]
    # On an H100, each kernel as long as its bytes take at 3.35 TB/s (or its FLOPs, which are quicker here):
    # (768 + 512 + 3 * (1,024 + 512) + 3 * (640 + 512)) / 3.35e12 s = 9,344 / 3.35e12 s = 2.789 ns
    assert browser.texts("[data-total=bound] dd") == ["2.789 ns"]
    browser.click("#exact")
    browser.rest()
    assert browser.texts("[data-total=flops] dd:not(.why)") == ["13,056 FLOP"]
    assert "12,288" in browser.texts("#table tbody td")


def test_answers_by_hand(browser: Browser, tmp_path: Path) -> None:
    row = "{batch_size} * {hidden_size}"
    kept = {
        "read": f"{row} * {{a_bytes}} + {row} * {{cache_len}} * {{kv_bytes}}",
        "write": f"{row} * {{a_bytes}} + {row} * {{seq_len}} * {{kv_bytes}}",
    }
    found = small_facts.facts(tmp_path, compulsory=kept)
    browser.open(small_facts.written(page(found), tmp_path), "#batch_size=2&seq_len=16&cache_len=100")
    shown = shown_totals(browser)
    # Without the cache 5,760 + 3,584; attention reads 2 * 100 * 8 * 2 = 3,200.
    assert shown["bytes"] == 5_760 + 3_584 + 3_200
    # 2 * 8 * 2 for a row, twice, and the cache: 3,200, and 2 * 8 * 16 * 2 = 512 more.
    assert shown["compulsory"] == 64 + 3_200 + 512
    assert (shown["weights"], shown["cache"]) == (192 * 2, 3_200)
    words = {name: " ".join(browser.texts(f"[data-total={name}] .why")) for name in ("bytes", "flops", "cache")}
    assert "512 B are added by it" in words["cache"]
    # FLOPs: 13,056 + 2 * 100 of attention on 32 tokens.
    assert words["flops"] == "414.3 FLOP per token"  # 13,256 / 32 = 414.25
    # 12,544 / 3,776 = 3.32. The adds move 3 * (1,024 + 512) = 4,608: 36.7 %.
    assert "3.32 times the compulsory; 36.7% of it in elementwise, activation" in words["bytes"]
    browser.type("#set-kv_bytes", "0.5")
    assert shown_totals(browser)["cache"] == 800
    browser.open(small_facts.written(page(small_facts.facts(tmp_path, compulsory=None)), tmp_path))
    unknown = [browser.texts(f"[data-total={name}] dd") for name in ("compulsory", "cache")]
    assert unknown == [
        ["not known", "the analysis does not have them"],
        ["not known", "the formulas do not have it apart"],
    ]


@pytest.mark.parametrize("width", [1280, 400])
def test_the_answers_are_on_the_first_screen(browser: Browser, small_page: Path, width: int) -> None:
    browser.open(small_page, width=width, height=900)
    places = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('#answers > div')]"
        ".map((d) => [d.dataset.total, d.querySelector('dd').getBoundingClientRect().bottom]))"
    )
    assert set(places) == {"flops", "bytes", "compulsory", "weights", "cache"}
    assert max(places.values()) < 900
    assert browser.run("return document.querySelector('.about').getBoundingClientRect().top") > 900


def test_sliders_change_the_numbers(browser: Browser, small_page: Path) -> None:
    browser.open(small_page)
    for name, stop, value in (("batch_size", 5, 8), ("seq_len", 4, 6), ("cache_len", 3, 3)):
        # Stops: 1 2 3 4 6 8 12; a cache may be empty, so 0 is before them.
        browser.type(f"#slide-{name}", str(stop))
        assert browser.run("return document.getElementById(`set-${arguments[0]}`).value", name) == str(value)
        assert browser.run("return document.getElementById(`slide-${arguments[0]}`).ariaValueText", name) == str(value)
    check_totals(browser, small.model(), {"batch_size": 8, "seq_len": 6, "cache_len": 3})


def test_phases_and_precision(browser: Browser, small_page: Path) -> None:
    browser.open(small_page)
    model = small.model()
    browser.click("[data-phase=decode]")
    browser.rest()
    check_totals(browser, model, {"batch_size": 1, "seq_len": 1, "cache_len": 2048})
    assert browser.run("return document.querySelector('[data-phase=decode]').ariaPressed") == "true"
    browser.choose("#set-precision", "w8a16")
    decode = {"batch_size": 1, "seq_len": 1, "cache_len": 2048}
    check_totals(browser, model, {**decode, "w_bytes": 1, "a_bytes": 2})
    browser.choose("#set-precision", "float32")
    check_totals(browser, model, {**decode, "w_bytes": 4, "a_bytes": 4})
    browser.click("[data-phase='chunked prefill']")
    browser.rest()
    check_totals(browser, model, {"batch_size": 1, "seq_len": 512, "cache_len": 2048, "w_bytes": 4, "a_bytes": 4})
    browser.click("#reset")
    browser.rest()
    check_totals(browser, model, {"batch_size": 1, "seq_len": 2048})


REFUSED = {
    "": "empty", " ": "empty", "0": "below 1", "-1": "below 1", "1e99": "not a whole", "1e3": "not a whole",
    "abc": "not a whole", "8q": "not a whole", "1/0": "not a whole", "NaN": "not a whole", "Infinity": "not a whole",
    "0x10": "not a whole", "1,000": "not a whole", "1.5": "not a whole", "1.0001k": "not a whole",
    "\u0663": "not a whole", "<script>window.intruder = 4</script>": "not a whole", "9" * 101: "more than 100 digits",
    "1 000": "not a whole", "--1": "not a whole", "k": "not a whole", "8kk": "not a whole", "1__0": "not a whole",
}  # fmt: skip
"""Text in a field of tokens -> a part of what is said of it."""

TAKEN: dict[str, int] = {
    " 5 ": 5, "8k": 8_192, "128k": 131_072, "1M": 1_048_576, "1.5k": 1_536, "1_000": 1_000, "+7": 7, "007": 7,
    "9" * 100: 10**100 - 1,
}  # fmt: skip
"""Text in a field of tokens -> its value: k is 1,024 and M is 1,024 * 1,024."""

REFUSED_SIZES = {
    "0": "more than 0", "0.0": "more than 0", "-1": "not a number", "1/0": "divides by 0", "nan": "not a number",
    "": "empty", "1.5/2": "not a number", "inf": "not a number", "8k": "not a number", "1e-1": "not a number",
    "0,5": "not a number", "<b>2</b>": "not a number", ".5": "not a number", "2.": "not a number",
}  # fmt: skip


def test_what_is_no_number_is_said(browser: Browser, small_page: Path) -> None:
    """The figures keep the last good value, and the text stands until it is mended."""
    browser.open(small_page, "#seq_len=16&w_bytes=0.5")
    before = shown_totals(browser)
    for field, texts in (("seq_len", REFUSED), ("w_bytes", REFUSED_SIZES)):
        for text, why in texts.items():
            browser.type(f"#set-{field}", text)
            said = browser.texts(f"#set-{field}-wrong")[0]
            assert why in said, text
            assert f"The figures keep {'16' if field == 'seq_len' else '0.5'}." in said, text
            assert browser.run("return document.getElementById(arguments[0]).ariaInvalid", f"set-{field}") == "true"
            assert browser.run("return document.getElementById(arguments[0]).value", f"set-{field}") == text
            assert shown_totals(browser) == before, text
    assert browser.run("return document.getElementById('set-seq_len-wrong').ariaLive") == "polite"
    # Another value changes: what was refused is still there, and still said.
    browser.type("#set-batch_size", "4")
    assert "empty" not in browser.texts("#set-w_bytes-wrong")[0]
    assert "not a number" in browser.texts("#set-w_bytes-wrong")[0]
    browser.type("#set-w_bytes", "2")
    assert browser.texts("#set-w_bytes-wrong") == [""]
    check_totals(browser, small.model(), {"batch_size": 4, "seq_len": 16, "cache_len": 0})
    browser.type("#slide-seq_len", "4")  # stops: 1 2 3 4 6
    assert browser.texts("#set-seq_len-wrong") == [""]
    assert browser.run("return document.getElementById('set-seq_len').value") == "6"
    assert browser.run("return window.intruder === undefined")


@pytest.mark.parametrize("text", TAKEN)
def test_words_that_people_type_are_numbers(browser: Browser, small_page: Path, text: str) -> None:
    browser.open(small_page)
    browser.type("#set-seq_len", text)
    assert browser.texts("#set-seq_len-wrong") == [""]
    check_totals(browser, small.model(), {"batch_size": 1, "seq_len": TAKEN[text], "cache_len": 0})


def test_a_config_value_has_no_unit(browser: Browser, small_page: Path) -> None:
    browser.open(small_page)
    browser.type("#set-hidden_size", "8k")
    assert "not a whole number" in browser.texts("#set-hidden_size-wrong")[0]


def test_a_model_without_layers_is_refused_as_evaluate_refuses_it(browser: Browser, small_page: Path) -> None:
    browser.open(small_page)
    browser.type("#set-num_hidden_layers", "0")
    assert "below 1" in browser.texts("#set-num_hidden_layers-wrong")[0]


def test_half_a_byte_is_half_a_byte(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=2&seq_len=16")
    browser.type("#set-w_bytes", "0.5")
    # Read at 2 bytes: 5,760. The table's rows are 256 weights and each Linear has 64: (256 + 3 * 64) * 1.5 less is 672.
    assert shown_totals(browser)["read"] == 5_760 - 672
    browser.type("#set-w_bytes", "17/32")
    # 448 weights of 17/32 bytes are 238, and all else is 5,760 - 448 * 2 = 4,864.
    assert shown_totals(browser)["read"] == 4_864 + 238


def test_an_address_that_is_half_of_use_says_so(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=abc&seq_len=16&by=nothing&colour=<b>red</b>")
    assert "“abc” is not a whole number" in browser.texts("#set-batch_size-wrong")[0]
    check_totals(browser, small.model(), {"batch_size": 1, "seq_len": 16, "cache_len": 0})
    assert browser.displayed("#ignored")
    assert "“by=nothing”, “colour=<b>red</b>”" in browser.texts("#ignored")[0]


def test_an_address_leads_to_its_numbers(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=3&cache_len=9&seq_len=1&by=read&device=A100-80GB&nonsense=1")
    check_totals(browser, small.model(), {"batch_size": 3, "seq_len": 1, "cache_len": 9})
    assert browser.run("return document.getElementById('metric').value") == "read"
    assert "A100" in browser.texts("#roofline-note")[0]
    browser.type("#set-batch_size", "4")
    assert "batch_size=4" in browser.run("return location.hash")


# --- what does not hold ----------------------------------------------------------------------------------------------


def test_broken_assumptions_are_shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    held = ["{hidden_size} % 4 == 0", "{cache_len} == 0 or {seq_len} == 1"]
    made = page(small_facts.facts(tmp_path_factory.mktemp("sources"), assumptions=held))
    browser.open(small_facts.written(made, tmp_path_factory.mktemp("page")))
    assert not browser.displayed("#broken")
    assert browser.texts("#assumptions .held code") == held
    status = "const s = document.querySelector('header .status'); return `${s.className}: ${s.textContent}`"
    assert browser.run(status) == "status verified: verified"
    browser.type("#set-hidden_size", "10")
    assert browser.run(status) == "status failed: not verified at these values"
    assert browser.displayed("#broken")
    assert "{hidden_size} % 4 == 0 does not hold (hidden_size = 10)" in browser.texts("#broken")[0]
    assert browser.texts("#assumptions .violated code") == held[:1]
    browser.type("#set-cache_len", "5")
    assert browser.texts("#assumptions .violated code") == held


def test_values_without_a_result_are_shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    kernels = [small.basic(12, "{batch_size} / {cache_len}", "0", "0", operation="odd")]
    totals = {"flops": "{batch_size} / {cache_len}", "matmul_flops": "0", "read": "0", "write": "0"}
    made = page(small_facts.facts(tmp_path_factory.mktemp("sources"), kernels=kernels, totals=totals, compulsory=None))
    browser.open(small_facts.written(made, tmp_path_factory.mktemp("page")), "#batch_size=8&cache_len=8")
    assert shown_totals(browser)["flops"] == 1
    browser.type("#set-batch_size", "3")
    assert "FLOPs of odd (line 12) has no value at these sizes: it is 3/8" in browser.texts("#broken")[0]
    browser.type("#set-cache_len", "0")
    assert "divides by zero" in browser.texts("#broken")[0]


# --- table -----------------------------------------------------------------------------------------------------------


def names(browser: Browser) -> list[str]:
    return browser.texts("#table tbody tr .kernel, #table tbody tr .module")


def test_folding(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#list=tree")
    assert names(browser) == ["Root", "lookup", "layers.0", "add", "proj"]
    browser.click("[data-node='2'] .fold")
    assert names(browser) == ["Root", "lookup", "layers.0"]
    assert browser.run("return document.querySelector('[data-node=\"2\"]').ariaExpanded") == "false"
    browser.click("#unfold")
    assert names(browser) == ["Root", "lookup", "layers.0", "add", "proj", "matrix product"]
    browser.click("#free")
    assert names(browser)[-2:] == ["attention", "view"]
    browser.click("#fold")
    assert names(browser) == ["Root", "lookup", "layers.0", "attention", "view"]


def test_sorting(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=2&seq_len=16&cache_len=1000&list=tree")
    browser.click("#fold")
    in_order = ["Root", "lookup", "layers.0", "attention"]
    assert names(browser) == in_order
    # FLOPs: layers 13,056, attention 2 * 1,000, lookup 0. Read: attention 2 * 1,000 * 8 * 2 = 32,000, layers 4,992,
    # lookup 768. Written: layers 3,072, lookup 512, attention 0.
    for key, expected in (
        ("flops", ["layers.0", "attention", "lookup"]),
        ("read", ["attention", "layers.0", "lookup"]),
        ("write", ["layers.0", "lookup", "attention"]),
        ("intensity", ["layers.0", "attention", "lookup"]),
        ("repeat", ["layers.0", "lookup", "attention"]),
    ):
        browser.click(f"[data-sort={key}]")
        assert names(browser) == ["Root", *expected], key
        browser.click(f"[data-sort={key}]")
        browser.click(f"[data-sort={key}]")
        assert names(browser) == in_order
    browser.click("[data-sort=flops]")
    browser.click("[data-sort=flops]")
    assert names(browser) == ["Root", "lookup", "attention", "layers.0"]
    assert browser.run("return document.querySelector('[data-sort=flops]').parentElement.ariaSort") == "ascending"
    for key, first in (("path", "attention"), ("class", "layers.0"), ("line", "lookup")):
        browser.click(f"[data-sort={key}]")
        assert names(browser)[1] == first, key
    browser.choose("#metric", "read")
    browser.click("[data-sort=share]")
    assert names(browser)[1] == "attention"


def test_searching(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#list=tree")
    for text, expected in (
        ("matrix", ["Root", "layers.0", "proj", "matrix product"]),
        ("linear", ["Root", "layers.0", "proj", "matrix product"]),
        ("ADD", ["Root", "layers.0", "add"]),
        ("nothing like it", []),
        ("", ["Root", "lookup", "layers.0", "add", "proj"]),
    ):
        browser.run("const i = document.querySelector('#search'); i.value = arguments[0];", text)
        browser.run("document.querySelector('#search').dispatchEvent(new Event('input', {bubbles: true}))")
        assert names(browser) == expected, text
    assert browser.texts("#found")[0].startswith("5 rows")


def test_the_keyboard_is_enough(browser: Browser, small_page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(small_page, "#list=tree")
    browser.click("#fold")
    browser.run("document.querySelector('#table tbody tr[tabindex=\"0\"]').focus()")

    def press(*keys: str) -> str:
        browser.press(*keys)
        found = browser.run("return document.activeElement.querySelector('.kernel, .module').textContent")
        return str(found)

    assert press(Keys.ARROW_DOWN, Keys.ARROW_DOWN) == "layers.0"
    assert press(Keys.ARROW_RIGHT) == "layers.0"
    assert "proj" in names(browser)
    assert press(Keys.ARROW_RIGHT) == "add"
    assert press(Keys.END, Keys.ARROW_LEFT) == "layers.0"
    assert press(Keys.ARROW_LEFT) == "layers.0"
    assert "proj" not in names(browser)
    press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER)
    assert browser.texts("#part dd")[0] == "add"
    assert browser.texts("#source .marked th") == ["21"]
    # 3 runs at batch 1 and 2,048 tokens of 8: 2,048 * 8 = 16,384 a run.
    assert browser.texts("[data-part=flops]") == ["49,152"]


# --- source lines ----------------------------------------------------------------------------------------------------


def test_source_lines_have_their_costs(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=2&seq_len=16")
    browser.choose("#source-class", "1")
    lines = browser.run(
        "return [...document.querySelectorAll('#source tr[data-line]')].map("
        "(r) => [r.dataset.line, r.querySelector('pre').textContent, r.querySelector('[data-cost=flops]').textContent])"
    )
    # add: 3 * 256; the call of proj, with what is in it: 3 * 4,096
    assert lines == [
        ["19", "def forward(self, x):", ""],
        ["20", '    """One layer."""', ""],
        ["21", "    x = x + x", "768 FLOP"],
        ["22", "    return self.proj(x)", "12.29 kFLOP"],
    ]
    assert browser.texts("#source .chip")[0].startswith("add 768 FLOP")


def test_markup_in_code_does_nothing(browser: Browser, small_page: Path) -> None:
    browser.open(small_page)
    assert f"    # {small_facts.HOSTILE}" in browser.texts("#source pre")
    assert browser.run("return window.intruder === undefined && document.querySelectorAll('main img').length === 0")


# --- charts ----------------------------------------------------------------------------------------------------------


def icicle(browser: Browser) -> list[dict[str, Any]]:
    """The boxes that are drawn, in the order of the analysis; edges are shares of the width."""
    found: list[dict[str, Any]] = browser.run(
        "const box = document.getElementById('icicle').getBoundingClientRect();"
        "return [...document.querySelectorAll('#icicle .cell')].map((c) => {"
        "const at = c.getBoundingClientRect();"
        "return {id: c.dataset.part, name: c.title.split('\\n')[0], all: c.dataset.all, leaf: 'leaf' in c.dataset,"
        "level: Number(c.ariaLevel), left: (at.left - box.left) / box.width, width: at.width / box.width}})"
    )
    return found


def test_the_icicle_has_every_cost_once(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=2&seq_len=16&cache_len=1000")
    totals = {"flops": 13_056 + 2_000, "matmul_flops": 12_288 + 2_000, "read": 5_760 + 32_000, "write": 3_584}
    totals["bytes"] = totals["read"] + totals["write"]
    for metric, whole in totals.items():
        browser.choose("#metric", metric)
        found = icicle(browser)
        assert int(found[0]["all"]) == whole, metric
        assert sum(int(cell["all"]) for cell in found if cell["leaf"]) == whole, metric
        for cell in found:
            assert cell["width"] == pytest.approx(int(cell["all"]) / whole, abs=1e-4), (metric, cell["name"])
    named = {cell["name"]: int(cell["all"]) for cell in found}
    # lookup 768 + 512, attention 32,000, layers 3 * (1,024 + 512 + 640 + 512).
    assert named == {
        "Root": 41_344, "lookup": 1_280, "layers.0 ×3": 8_064, "add": 4_608, "proj": 3_456, "matrix product": 3_456,
        "attention": 32_000,
    }  # fmt: skip


def test_a_metric_that_is_zero_says_so(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    totals = {"flops": "0", "matmul_flops": "0", "read": "{batch_size}", "write": "0"}
    kernels = [small.basic(12, "0", "{batch_size}", "0")]
    made = page(small_facts.facts(tmp_path_factory.mktemp("sources"), kernels=kernels, totals=totals))
    browser.open(small_facts.written(made, tmp_path_factory.mktemp("page")))
    assert "FLOPs are 0" in browser.texts("#icicle-note")[0]
    assert icicle(browser) == []
    browser.choose("#metric", "bytes")
    assert icicle(browser)[0]["all"] == "1"
    browser.listen()
    assert browser.logged == []


SIZED = "#batch_size=2&seq_len=16&cache_len=1000"


def test_the_heaviest_left(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, SIZED + "&by=bytes")

    def level(number: int) -> list[str]:
        cells = sorted(icicle(browser), key=lambda cell: cell["left"])
        return [cell["name"] for cell in cells if cell["level"] == number]

    assert level(2) == ["lookup", "layers.0 ×3", "attention"]
    browser.choose("#order", "heavy")
    # 32,000, 8,064 and 1,280 bytes
    assert level(2) == ["attention", "layers.0 ×3", "lookup"]
    assert level(3) == ["add", "proj"]
    assert "order=heavy" in browser.run("return location.hash")


def wheel(browser: Browser, share: float, turned: int) -> bool:
    """Turns the wheel over the icicle at this share of its width. True if the page may scroll."""
    return bool(
        browser.run(
            "const box = document.getElementById('icicle'); const at = box.getBoundingClientRect();"
            "return box.dispatchEvent(new WheelEvent('wheel', {bubbles: true, cancelable: true,"
            "deltaY: arguments[1], clientX: at.left + arguments[0] * at.width, clientY: at.top + 5}))",
            share,
            turned,
        )
    )


def test_the_wheel_zooms_at_the_pointer(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, SIZED + "&by=bytes")
    browser.run("window.scrollTo(0, 300)")
    assert wheel(browser, 0.9, 100), "the whole is seen: the page scrolls"
    browser.driver.execute_async_script("setTimeout(arguments[0], 500)")
    # attention is from 9,344 / 41,344 = 22.6 % to the end. Its width grows as the view gets narrower.
    before = next(cell for cell in icicle(browser) if cell["name"] == "lookup")["width"]
    assert not wheel(browser, 0, -100)
    after = next(cell for cell in icicle(browser) if cell["name"] == "lookup")["width"]
    assert after == pytest.approx(before * 2.718281828**0.25, rel=0.01)
    for _ in range(30):
        wheel(browser, 0.02, -200)
    assert {cell["name"] for cell in icicle(browser)} == {"Root", "lookup"}
    assert browser.texts("#icicle-path button") == ["Root", "lookup"]
    for _ in range(60):
        wheel(browser, 0.5, 200)
    assert icicle(browser)[0]["width"] == pytest.approx(1)
    assert len(icicle(browser)) == 7


def test_a_wheel_that_scrolls_the_page_goes_on(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, SIZED)
    browser.run("document.body.dispatchEvent(new WheelEvent('wheel', {bubbles: true, deltaY: -50}))")
    assert wheel(browser, 0.5, -100)
    assert len(browser.texts("#icicle-path button")) == 1


def test_the_icicle_by_keyboard(browser: Browser, small_page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(small_page, SIZED + "&by=bytes")
    browser.run("document.querySelector('#icicle [tabindex=\"0\"]').focus()")

    def press(*keys: str) -> str:
        browser.press(*keys)
        return str(browser.run("return document.activeElement.title.split('\\n')[0]"))

    assert press(Keys.ARROW_DOWN) == "lookup"
    outline = "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]"
    assert browser.run(outline) == ["solid", "3px"]
    assert press(Keys.ARROW_RIGHT) == "layers.0 ×3"
    assert press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT) == "proj"
    assert "3,456" in browser.texts("#icicle-part")[0] or "3.456 kB" in browser.texts("#icicle-part")[0]
    assert press(Keys.ENTER) == "proj"
    assert browser.texts("#icicle-path button") == ["Root", "layers.0 ×3", "proj"]
    assert {cell["name"] for cell in icicle(browser)} == {"Root", "layers.0 ×3", "proj", "matrix product"}
    assert all(cell["width"] == pytest.approx(1) for cell in icicle(browser))
    assert browser.texts("#part dd")[0] == "proj"
    press(Keys.ESCAPE)
    assert browser.texts("#icicle-path button") == ["Root", "layers.0 ×3"]
    press(Keys.ESCAPE)
    assert len(icicle(browser)) == 7
    assert press(Keys.HOME) == "Root"
    assert press(Keys.ARROW_UP, Keys.ARROW_LEFT) == "Root"
    # Into a part that is out of sight: the view follows.
    press(Keys.ARROW_DOWN, Keys.ENTER)
    assert press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT) == "attention"
    assert "attention" in {cell["name"] for cell in icicle(browser)}


_PLACES = """
const of = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.width, r.height].map(Math.round); };
const cells = [...document.querySelectorAll('#icicle .cell')].map((c) => [c.title, ...of(c)]);
return {icicle: of(document.getElementById('icicle')), cells, roofline: of(document.getElementById('roofline')),
  drawing: of(document.querySelector('#roofline svg.main-svg'))};
"""


def resized(browser: Browser, width: int) -> dict[str, Any]:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.rest()
    found: dict[str, Any] = browser.run(_PLACES)
    return found


def test_charts_survive_any_resize(browser: Browser, small_page: Path) -> None:
    fresh = {}
    for width in (400, 1280):
        browser.open(small_page, width=width)
        fresh[width] = browser.run(_PLACES)
    # The drawings are as wide as the column they are in, and a chart of 60 pixels would be none.
    assert fresh[400]["roofline"][1] < 400 < 900 < fresh[1280]["roofline"][1] < 1280
    assert min(fresh[400]["drawing"][2], fresh[1280]["drawing"][2]) > 300
    for width in (400, 1280, 401, 1280, 400):
        found = resized(browser, width)
        if width in fresh:
            assert found == fresh[width], width


def test_the_flat_list_has_the_dearest_first(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, SIZED)
    # FLOPs: 3 * 4,096, attention 2 * 1,000, 3 * 256, nothing for the lookup.
    assert names(browser) == ["matrix product", "attention", "add", "lookup"]
    assert browser.texts("#table tbody td:nth-child(7)") == ["3", "1", "3", "1"]
    browser.choose("#metric", "bytes")
    # 32,000, 3 * 1,536 = 4,608, 3 * 1,152 = 3,456, 1,280
    assert names(browser) == ["attention", "add", "matrix product", "lookup"]
    assert browser.texts("#table tbody .cut:not([hidden])") == ["layers.0", "layers.0.proj"]
    assert "dearest first" in browser.texts("#found")[0]
    # attention's bar: 32,000 of 41,344 bytes are 77.40 % of the cell.
    bar = browser.run("return getComputedStyle(document.querySelector('#table td.share')).backgroundImage")
    assert bar.startswith("linear-gradient(to right, ")
    assert " 77.39" in bar or " 77.4" in bar
    assert "1 that cost nothing" in browser.texts("#found")[0]
    browser.click("[data-sort=flops]")
    assert names(browser)[0] == "matrix product"
    browser.click("#list-tree")
    browser.rest()
    assert names(browser)[0] == "Root"
    assert browser.run("return location.hash").endswith("list=tree")


def test_a_path_loses_its_middle(browser: Browser, tmp_path: Path) -> None:
    path = "model.decoder.the_layers_of_the_first_of_all_stages.0.self_attention_of_the_layer.q_proj"
    product = small.basic(31, "{batch_size}", "1", "0", operation="matrix product", category="matmul")
    kernels = [small.module(11, path, small.LINEAR, [product])]
    totals = {"flops": "{batch_size}", "matmul_flops": "{batch_size}", "read": "1", "write": "0"}
    browser.open(small_facts.written(page(small_facts.facts(tmp_path, kernels=kernels, totals=totals)), tmp_path))
    start, end = ("document.querySelector('.cut-start')", "document.querySelector('.cut-end')")
    assert browser.texts("#table .cut") == [path]
    assert browser.run("return document.querySelector('#table .cut').title") == path
    assert browser.run(f"return {start}.scrollWidth > {start}.clientWidth"), "the start is cut"
    assert browser.run(f"return {end}.textContent") == "self_attention_of_the_layer.q_proj"


def test_the_roofline_has_both_phases(browser: Browser, small_page: Path) -> None:
    browser.open(small_page, "#batch_size=2&seq_len=16")
    traces = {
        trace[0]: trace[1:]
        for trace in browser.run(
            "return document.getElementById('roofline').data.map((t) => [t.name, Array.from(t.x), Array.from(t.y)])"
        )
    }
    # Prefill as in the table: 13,056 FLOPs on 9,344 bytes, all at the 3.35 TB/s of an H100.
    (x,), (y,) = traces["prefill of 16"]
    assert x == pytest.approx(13_056 / 9_344)
    assert y == pytest.approx(13_056 / 9_344 * 3.35e12)
    assert "decode on 2,048" in traces
    # The roof bends at 989.4e12 / 3.35e12 FLOPs a byte.
    assert traces["matmul peak 989.4 TFLOP/s"][0][1] == pytest.approx(989.4 / 3.35)
    browser.choose("#device", "A100-80GB")
    peak = "return document.getElementById('roofline').data[0].y"
    assert browser.run(peak)[1] == pytest.approx(312e12)


# --- the page as a whole ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_nothing_is_asked_for_and_nothing_complained_of(
    browser: Browser, small_page: Path, width: int, dark: bool
) -> None:
    browser.open(small_page, width=width, dark=dark)
    browser.click("#unfold")
    browser.choose("#metric", "bytes")
    browser.type("#set-batch_size", "7")
    browser.click("#exact")
    browser.rest()
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    browser.listen()
    assert browser.logged == []
    assert browser.asked == [small_page.as_uri()]


def test_the_policy_refuses_what_is_not_in_the_page(browser: Browser, small_page: Path) -> None:
    """The test of the test: a request is seen, and is refused."""
    browser.open(small_page)
    browser.run("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.intruder = 3'; document.body.append(s)"
    )
    browser.listen()
    assert any("Content Security Policy" in message for message in browser.logged)
    assert browser.run("return window.intruder === undefined")


def test_light_and_dark(browser: Browser, small_page: Path) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    browser.open(small_page)
    assert browser.run(paper) == "rgb(255, 255, 255)"
    browser.choose("#theme", "dark")
    dark = browser.run(paper)
    assert dark != "rgb(255, 255, 255)"
    browser.open(small_page, dark=True)
    assert browser.run(paper) == dark
    browser.choose("#theme", "light")
    assert browser.run(paper) == "rgb(255, 255, 255)"


def luminance(colour: tuple[int, ...]) -> float:
    """Relative luminance of WCAG 2.2."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_contrast_is_that_of_wcag() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)  # (1 + 0.05) / (0 + 0.05)
    # 0x77 is 119 / 255 = 0.46667, of luminance ((0.46667 + 0.055) / 1.055) ** 2.4 = 0.18448: 1.05 / 0.23448 = 4.478
    assert contrast((0x77, 0x77, 0x77), (255, 255, 255)) == pytest.approx(4.478, abs=0.001)


_TEXTS_ON_GROUNDS = """
const found = new Map();
const put = (text, colour, ground) => found.set(`${text} ${colour} ${ground}`, [text.trim(), colour, ground]);
const grounds = (e) => {
  const bars = [];
  for (; e; e = e.parentElement) {
    const { backgroundColor, backgroundImage } = getComputedStyle(e);
    if (backgroundImage !== "none") bars.push(...backgroundImage.match(/rgb\\([^)]*\\)/g));
    if (backgroundColor !== "rgba(0, 0, 0, 0)") return [...bars, backgroundColor];
  }
};
for (const e of document.querySelectorAll("body *")) {
  if (!e.checkVisibility() || e.disabled || e.closest("script")) continue;
  const texts = [...e.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim());
  const own = texts.length ? texts[0].textContent : "value" in e ? String(e.value) : "";
  if (e.placeholder) put(e.placeholder, getComputedStyle(e, "::placeholder").color, grounds(e)[0]);
  if (!own) continue;
  const style = getComputedStyle(e);
  const colour = e instanceof SVGElement ? style.fill : style.color;
  for (const ground of grounds(e)) put(own, colour, ground);
}
return [...found.values()];
"""


def rgb(text: str) -> tuple[int, ...]:
    assert text.startswith("rgb("), f"not an opaque colour: {text}"
    return tuple(map(int, text[4:-1].split(",")))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_contrast(browser: Browser, tmp_path: Path, theme: str) -> None:
    """At least 4.5 to 1 for whatever is to be read, WCAG AA of text of any size."""
    held = ["{hidden_size} % 4 == 0", "{hidden_size} > 0"]
    kinds = ["matmul", "attention", "grouped_matmul", "normalization", "elementwise", "copy", "strange"]
    kernels = [small.basic(10 + i % 4, "{batch_size}", "5", "5", category=kind) for i, kind in enumerate(kinds)]
    wrong = Verification(status="failed", reason="a test")
    found = small_facts.facts(
        tmp_path, assumptions=held, kernels=kernels, verification=wrong, pinned={"window": 7}, parts={}
    )
    browser.open(small_facts.written(page(found), tmp_path), "#hidden_size=10&nonsense=1")
    browser.choose("#theme", theme)
    browser.type("#set-seq_len", "8q")
    browser.click("#table tbody tr")
    seen = browser.run(_TEXTS_ON_GROUNDS)
    browser.click("#list-tree")
    browser.rest()
    seen += browser.run(_TEXTS_ON_GROUNDS)
    words = " ".join(text for text, *_ in seen)
    said = ("matmul FLOPs", "“8q”", "“nonsense=1”", "does not hold", "failed", "window = 7", "name, class, operation")
    assert [word for word in said if word not in words] == []
    assert len({ground for *_, ground in seen}) >= 11  # seven kinds of kernels, the page, cards, a bar, warnings
    low = [(text, one, ground) for text, one, ground in seen if contrast(rgb(one), rgb(ground)) < 4.5]
    assert low == []


def test_everything_has_a_name(browser: Browser, small_page: Path) -> None:
    """What one can work with has a name for those who do not see it, and ids are unique."""
    browser.open(small_page)
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = (
        "button",
        "slider",
        "spinbutton",
        "combobox",
        "checkbox",
        "searchbox",
        "treegrid",
        "image",
        "treeitem",
        "tree",
    )
    nameless = [
        node
        for node in tree
        if node.get("role", {}).get("value") in roles
        and not node.get("ignored")
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    ids = browser.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


# --- the scripts alone -----------------------------------------------------------------------------------------------


def script(*names_of: str) -> str:
    return "\n".join(Path(writing.__file__).parent.joinpath("static", f"{name}.js").read_text() for name in names_of)


_RUN = """
const [record, slots, values] = arguments;
const whole = Object.fromEntries(Object.entries(values).map(([name, text]) => [name, BigInt(text)]));
const found = new Program(record).run(whole);
const text = (v) => v === NONE ? null : typeof v === "boolean" ? v : isWhole(v) ? `${v}` : `${v.above}/${v.below}`;
return slots.map((slot) => text(found[slot]));
"""


def worked(browser: Browser, found: list[Expr | Condition], at: Mapping[str, int]) -> list[Any]:
    steps = Steps(found)
    record = json.loads(json.dumps(steps.record()))
    values = {name: str(at[name]) for name in steps.names}
    answer: list[Any] = browser.run(script("exact") + _RUN, record, [steps.slot(f) for f in found], values)
    return answer


def expected(formula: Expr | Condition, at: Mapping[str, int]) -> str | bool | None:
    try:
        return holds(formula, at) if isinstance(formula, Condition) else str(exact(formula, at))
    except EvaluationError:
        return None


_MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@_MANY
@given(st.lists(st.one_of(formulas, conditions(formulas)), min_size=1, max_size=5), points)
def test_random_formulas(browser: Browser, found: list[Expr | Condition], at: dict[str, int]) -> None:
    assert worked(browser, found, at) == [expected(formula, at) for formula in found]


@_MANY
@given(st.lists(formulas, min_size=1, max_size=5), st.fixed_dictionaries(dict.fromkeys(NAMES, huge)))
def test_random_formulas_at_values_of_any_size(
    browser: Browser, found: list[Expr | Condition], at: dict[str, int]
) -> None:
    assert worked(browser, found, at) == [expected(formula, at) for formula in found]


@_MANY
@given(st.lists(st.integers(0, 10**40) | st.integers(0, 2000) | st.integers(0, 10**7), min_size=2, max_size=8))
def test_figures_are_written_as_lmp_writes_them(browser: Browser, found: list[int]) -> None:
    from fractions import Fraction

    texts = browser.run(
        script("exact", "figures") + "const v = arguments[0].map(BigInt);"
        "return v.map((a, i) => [figure(a, 'B'), grouped(a), ratio(a, v[0]), v[0] ? percent(a, v[0]) : '-'])",
        [str(value) for value in found],
    )
    first = found[0]
    for value, text in zip(found, texts, strict=True):
        share = percent(Fraction(value, first) if first else None)
        assert text[:3] == [figure(value, "B"), f"{value:,}", ratio(value, first)]
        assert text[3].replace(",", "") == share


# --- a real model ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def llama(default_family: None, shared_options: Options) -> ModelFacts:
    from lmp.report.devices import device_named
    from lmp.report.gathering import gather

    name = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
    return gather(name, shared_options, lambda *_: None, device_named("H100"))


@pytest.fixture(scope="session")
def llama_page(llama: ModelFacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_facts.written(page(llama), tmp_path_factory.mktemp("page"))


def test_a_whole_model(browser: Browser, llama: ModelFacts, llama_page: Path) -> None:
    browser.open(llama_page)
    browser.click("#free")
    for values in (
        {"batch_size": 1, "seq_len": 2048, "cache_len": 0},
        {"batch_size": 32, "seq_len": 1, "cache_len": 32768},
        {"batch_size": 2, "seq_len": 9, "cache_len": 70_001, "num_key_value_heads": 8, "vocab_size": 128_256},
        {"batch_size": 123_457, "seq_len": 1_000_003, "cache_len": 10**9 + 7, "hidden_size": 999_936},
    ):
        browser.click("#reset")
        browser.rest()
        put(browser, values)
        check_totals(browser, llama.model, values)
        check_rows(browser, llama.model, values)
    browser.choose("#set-precision", "float8")
    check_totals(browser, llama.model, {**values, "w_bytes": 1, "a_bytes": 1})


def test_assumptions_of_a_whole_model(browser: Browser, llama: ModelFacts, llama_page: Path) -> None:
    browser.open(llama_page)
    given_values = {"batch_size": 1, "seq_len": 2048, "cache_len": 0, "head_dim": 127, "num_key_value_heads": 5}
    put(browser, given_values)
    violated = [v.assumption for v in llama.numbers.violated(values_for(llama.model, given_values))]
    assert violated
    assert browser.texts("#broken code") == violated


def test_parameters_of_a_whole_model(browser: Browser, llama: ModelFacts, llama_page: Path) -> None:
    browser.open(llama_page)
    browser.choose("#metric", "parameters")
    assert llama.inspection is not None
    assert int(icicle(browser)[0]["all"]) == llama.inspection.totals.parameters_count
    assert "NOT of the values" not in browser.texts("#icicle-note")[0]
    browser.type("#set-hidden_size", "8192")
    assert "NOT of the values" in browser.texts("#icicle-note")[0]


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_a_whole_model_at_every_width(browser: Browser, llama_page: Path, width: int, dark: bool) -> None:
    browser.open(llama_page, width=width, dark=dark)
    browser.click("#unfold")
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    if width >= 1280:
        scroll = "const t = document.getElementById('table-scroll'); return t.scrollWidth - t.clientWidth"
        assert browser.run(scroll) <= 0
    browser.listen()
    assert browser.logged == []
    assert browser.asked == [llama_page.as_uri()]
    pictures = os.environ.get("LMP_PICTURES")
    if pictures:
        browser.picture(Path(pictures) / f"llama-{width}-{'dark' if dark else 'light'}.png")
