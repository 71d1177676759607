"""The comparing page in a real browser: its numbers are those of `lmp evaluate` and of the answer card."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from headless import Browser

from lmp.atlas.archive import Atlas
from lmp.dtypes import sizes
from lmp.formula import Number, read_number
from lmp.link.numbers import ModelNumbers
from lmp.link.quantised import with_own_bytes
from lmp.link.values import values_for
from lmp.predict.devices import device_named
from lmp.predict.engines import GIB
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Subject, asked_for
from lmp.predict.screen.card import card
from lmp.predict.screen.records import CardRun
from lmp.predict.shard.parallel import Parallel
from lmp.source.catalogue import catalogued

pytestmark = pytest.mark.xdist_group("browser")

QWEN, OSS, BERT = "Qwen--Qwen3-8B", "openai--gpt-oss-20b", "google-bert--bert-base-uncased"
TOTALS = ("flops", "compulsory", "parameters_count")


def shown(browser: Browser) -> dict[str, dict[str, str]]:
    """Model -> figure -> its text, and under ``=figure`` the exact value."""
    cells = browser.run(
        "return [...document.querySelectorAll('#table td[data-of]')]"
        ".map((c) => [c.dataset.of, c.dataset.figure, c.textContent, c.dataset.exact])"
    )
    found: dict[str, dict[str, str]] = {}
    for model, key, text, value in cells:
        found.setdefault(model, {})[key] = text
        if value is not None:
            found[model][f"={key}"] = value
    return found


def put(browser: Browser, **values: object) -> None:
    for name, value in values.items():
        browser.type(f"#set-{name}", str(value))


def expected(atlas: Atlas, name: str, word: str | None, given: dict[str, Number]) -> dict[str, Number | None]:
    """The totals that `lmp evaluate` prints: the checkpoint's own bytes, unless a dtype is given."""
    model = atlas.load(atlas.named(name)).model
    model = with_own_bytes(model) if word is None else model
    given = {**given, **(sizes(word) if word is not None else {})}
    totals: dict[str, Number | None] = dict(ModelNumbers(model).totals(values_for(model, given)))
    return totals


POINTS: tuple[tuple[str | None, dict[str, Number]], ...] = (
    (None, {"batch_size": 16, "seq_len": 1, "cache_len": 8192}),
    ("fp8", {"batch_size": 3, "seq_len": 1, "cache_len": 77_777}),
    ("w4a16", {"batch_size": 5, "seq_len": 700, "cache_len": 11}),
    (None, {"batch_size": 94_906_267, "seq_len": 94_906_267, "cache_len": 10**15 + 1}),
)


@pytest.mark.parametrize(("word", "given"), POINTS)
def test_numbers_are_those_of_evaluate(
    browser: Browser, compare_page: Path, atlas: Atlas, word: str | None, given: dict[str, Number]
) -> None:
    browser.open(compare_page)
    put(browser, **given)
    browser.choose("#dtype", word or "")
    found = shown(browser)
    assert set(found) == {QWEN, OSS, BERT}
    for model in (QWEN, OSS):
        totals = expected(atlas, model, word, given)
        assert {name: read_number(found[model][f"={name}"]) for name in TOTALS} == {n: totals[n] for n in TOTALS}
        read, write = totals["read"], totals["write"]
        assert read is not None
        assert write is not None
        assert read_number(found[model]["=bytes"]) == read + write
    # An encoder has no cache: its figures are of the new tokens alone.
    own = {name: value for name, value in given.items() if name != "cache_len"}
    assert read_number(found[BERT]["=flops"]) == expected(atlas, BERT, word, own)["flops"]


def run_on(atlas: Atlas, name: str, device: str, tp: int, word: str | None, given: dict[str, Number]) -> CardRun:
    """The answer card's serving run."""
    listed = atlas.named(name)
    assert listed.model_id is not None
    known = catalogued(listed.model_id)
    assert known is not None
    ask = asked_for(device_named(device), given, None, (word, None), Parallel(tp))
    return card(Subject(atlas.load(listed).model, known.config), ask, Predictor()).runs[1]


@pytest.mark.parametrize(
    ("name", "device", "tp", "word", "given"),
    [
        (QWEN, "h100-sxm", 1, None, {"batch_size": 16, "seq_len": 1, "cache_len": 8192}),
        (QWEN, "a100-sxm", 4, None, {"batch_size": 4, "seq_len": 1, "cache_len": 2048}),
        (QWEN, "h100-sxm", 1, "fp8", {"batch_size": 1, "seq_len": 2048, "cache_len": 0}),
        (OSS, "h100-sxm", 4, None, {"batch_size": 4, "seq_len": 512, "cache_len": 0}),
    ],
)
def test_a_device_is_asked_as_the_card_asks_it(
    browser: Browser,
    compare_page: Path,
    atlas: Atlas,
    name: str,
    device: str,
    tp: int,
    word: str | None,
    given: dict[str, Any],
) -> None:
    browser.open(compare_page)
    put(browser, **given)
    browser.choose("#device", device)
    browser.choose("#tp", str(tp))
    browser.choose("#dtype", word or "")
    found, run = shown(browser)[name], run_on(atlas, name, device, tp, word, given)
    assert run.step_us is not None
    assert run.tokens_per_s is not None
    assert run.memory is not None
    assert found["us"] == f"{run.step_us.value / 1e3:,.3f} ms"
    assert found["rate"] == f"{run.tokens_per_s.value:,.0f}"
    assert found["interval"] == f"{run.tokens_per_s.low:,.0f} to {run.tokens_per_s.high:,.0f}"
    assert found["bound"] == run.bound
    held = Fraction(read_number(found["=held"]))
    assert run.memory.held - 1 < held <= run.memory.held  # the card rounds up
    assert found["held"] == f"{run.memory.held / GIB:,.2f} of {run.memory.total / GIB:,.2f} GiB"
    assert found["fits"] == f"yes, to batch {run.memory.largest_batch:,}"
    assert int(found["=token"]) == run.memory.kv_a_token


def test_what_does_not_fit_has_no_time(browser: Browser, compare_page: Path, atlas: Atlas) -> None:
    browser.open(compare_page)
    put(browser, batch_size=1000, cache_len=8192)
    found = shown(browser)[QWEN]
    run = run_on(atlas, QWEN, "h100-sxm", 1, None, {"batch_size": 1000, "seq_len": 1, "cache_len": 8192})
    assert run.memory is not None
    assert not run.memory.fits
    assert found["rate"] == found["us"] == "–"
    assert found["fits"].startswith("no")
    assert any(text.startswith("Qwen/Qwen3-8B: no time: does not fit") for text in browser.texts("#notes li"))


def test_between_two_points_it_says_so(browser: Browser, compare_page: Path, atlas: Atlas) -> None:
    browser.open(compare_page)
    given: dict[str, Number] = {"batch_size": 10, "seq_len": 1, "cache_len": 5000}
    put(browser, **given)
    found, run = shown(browser)[QWEN], run_on(atlas, QWEN, "h100-sxm", 1, None, given)
    assert run.tokens_per_s is not None
    assert found["interval"].endswith(", interpolated")
    low, _, high = found["interval"].removesuffix(", interpolated").replace(",", "").partition(" to ")
    assert float(low) <= run.tokens_per_s.value <= float(high)
    put(browser, cache_len=100)
    assert shown(browser)[QWEN]["rate"] == "–"
    assert any("caches are of 2,048 to 8,192 tokens" in text for text in browser.texts("#notes li"))


def test_a_link_leads_to_the_same_figures(browser: Browser, compare_page: Path) -> None:
    browser.open(compare_page)
    put(browser, batch_size=4, cache_len="2k")
    browser.choose("#device", "a100-sxm")
    browser.choose("#tp", "4")
    browser.choose("#dtype", "bf16")
    browser.choose("#y", "held")
    browser.choose("#x", "length")
    browser.run(f"document.querySelector('#models input[value=\"{BERT}\"]').click()")
    browser.rest()
    before = (shown(browser), browser.texts("#point"), browser.run("return document.querySelector('#plot').innerHTML"))
    link = str(browser.run("return document.querySelector('#link').value"))
    assert set(before[0]) == {QWEN, OSS}
    browser.open(compare_page, "#" + link.partition("#")[2])
    after = (shown(browser), browser.texts("#point"), browser.run("return document.querySelector('#plot').innerHTML"))
    assert after == before
    assert not browser.displayed("#ignored")


def test_nonsense_in_a_link_is_said(browser: Browser, compare_page: Path) -> None:
    nonsense = f"#models={QWEN},nobody/nothing&batch_size=abc&tp=3&dtype=constructor&y=<b>x</b>&device=tpu&colour=red"
    browser.open(compare_page, nonsense)
    assert set(shown(browser)) == {QWEN}
    said = browser.texts("#ignored")[0]
    for text in ("model nobody/nothing", "tp=3", "dtype=constructor", "y=<b>x</b>", "device=tpu", "colour=red"):
        assert f"“{text}”" in said
    assert "not a whole number" in browser.texts("#set-batch_size-wrong")[0]
    assert browser.run("return document.querySelectorAll('main b').length") == 0


def test_models_are_chosen_found_and_sorted(browser: Browser, compare_page: Path) -> None:
    browser.open(compare_page)
    browser.type("#search", "qwen3")
    assert browser.run("return [...document.querySelectorAll('#models label')].filter((l) => !l.hidden).length") == 1
    browser.click("#none")
    browser.rest()
    assert shown(browser) == {}
    assert browser.displayed("#empty")
    browser.click("#shown")
    browser.rest()
    assert set(shown(browser)) == {QWEN}
    browser.open(compare_page)
    names = "#table thead th"
    assert [text.strip() for text in browser.texts(names)] == [
        "Qwen/Qwen3-8B",
        "openai/gpt-oss-20b",
        "google-bert/bert-base-uncased",
    ]
    browser.click("[data-sort=parameters_count]")
    browser.rest()
    # 20.9 G, 8.2 G and 0.1 G parameters.
    assert [text.strip().partition("/")[0] for text in browser.texts(names)] == ["openai", "Qwen", "google-bert"]
    browser.click("[data-sort=parameters_count]")
    browser.rest()
    assert [text.strip().partition("/")[0] for text in browser.texts(names)] == ["google-bert", "Qwen", "openai"]


def test_the_plot_has_a_line_for_each_model(browser: Browser, compare_page: Path) -> None:
    browser.open(compare_page)
    # Of BERT there is no time at a cache: it has none.
    assert browser.run("return [...document.querySelectorAll('[data-line]')].map((l) => l.dataset.line)") == [
        "Qwen/Qwen3-8B",
        "openai/gpt-oss-20b",
    ]
    browser.choose("#y", "flops_token")
    assert browser.run("return document.querySelectorAll('[data-line]').length") == 3
    # Batches 1, 2, 4, 8 and 16, of three models.
    assert browser.run("return document.querySelectorAll('#plot circle').length") == 15


def test_the_keyboard_is_enough(browser: Browser, compare_page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(compare_page)
    browser.run("document.querySelector('[data-sort=flops]').focus()")
    browser.press(Keys.ENTER, Keys.ENTER)
    assert browser.run("return document.activeElement.dataset.sort") == "flops"
    assert browser.run("return document.activeElement.parentElement.getAttribute('aria-sort')") == "ascending"
    browser.run("document.querySelector('#models input').focus()")
    browser.press(Keys.SPACE)
    assert QWEN not in shown(browser)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_nothing_is_asked_for_and_nothing_complained_of(
    browser: Browser, compare_page: Path, width: int, dark: bool
) -> None:
    browser.open(compare_page, width=width, dark=dark)
    browser.choose("#y", "held")
    browser.click("#exact")
    browser.click("[data-phase=prefill]")
    browser.rest()
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert browser.run("const p = document.querySelector('#plot'); return p.scrollWidth - p.clientWidth") <= 0
    browser.listen()
    assert browser.logged == []
    assert browser.asked == [compare_page.as_uri()]
    pictures = os.environ.get("LMP_PICTURES")
    if pictures:
        browser.picture(Path(pictures) / f"compare-{width}-{'dark' if dark else 'light'}.png")


def test_every_control_has_a_name(browser: Browser, compare_page: Path) -> None:
    browser.open(compare_page)
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "slider", "textbox", "spinbutton", "combobox", "checkbox", "searchbox", "image")
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
