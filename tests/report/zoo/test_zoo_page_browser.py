"""The zoo's page in a real browser: filters, order, rows that open; it asks nobody for anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import small_zoo
from headless import Browser

from lmp.report.zoo.page import page

pytestmark = pytest.mark.xdist_group("browser")

SIZES = ((1280, False), (1280, True), (400, False), (400, True))
BY_NAME = ["gpt2", "llama", "mamba", "rwkv", "xlstm", "zamba", "arcee", "bloom"]


def shown(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('tr.family')].filter((r) => r.offsetParent)"
        ".map((r) => r.dataset.key.split('/')[1])"
    )
    return found


def opened(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('tr.more')].filter((r) => r.offsetParent)"
        ".map((r) => r.previousElementSibling.dataset.key.split('/')[1])"
    )
    return found


def press(browser: Browser, key: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.press(getattr(Keys, key))


def test_filters(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    assert shown(browser) == BY_NAME
    assert browser.texts("#found") == ["8 of 8 families"]
    browser.type("#text", "executed READ")  # both words, in a reason, in any case
    assert shown(browser) == ["mamba"]
    browser.type("#text", "")
    browser.choose("#cause", "lmp")
    assert shown(browser) == ["mamba", "rwkv"]
    browser.choose("#status", "failed")
    assert shown(browser) == ["mamba"]
    assert browser.texts("#found") == ["1 of 8 families"]
    browser.click("#reset")
    browser.choose("#task", "base")
    assert shown(browser) == ["zamba"]
    browser.choose("#task", "")
    browser.choose("#status", "not run")
    assert shown(browser) == ["arcee", "bloom"]


def test_order_by_each_column(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    keys = browser.run("return [...document.querySelectorAll('#table thead th')].map((h) => h.dataset.key)")
    for key in keys:
        browser.click(f"[data-sort={key}]")
        assert sorted(shown(browser)) == sorted(BY_NAME)
        browser.click(f"[data-sort={key}]")
        browser.click(f"[data-sort={key}]")
        assert shown(browser) == BY_NAME, key
    browser.click("[data-sort=flops]")
    # 22,000,000,001 before 22,000,000,000, and what has none at the end
    assert shown(browser)[:2] == ["llama", "gpt2"]
    assert browser.run("return document.querySelector('[data-key=flops]').getAttribute('aria-sort')") == "descending"
    browser.click("[data-sort=flops]")
    assert shown(browser)[:2] == ["gpt2", "llama"]
    browser.click("[data-sort=status]")
    assert shown(browser) == ["gpt2", "llama", "rwkv", "mamba", "xlstm", "zamba", "arcee", "bloom"]


def test_a_row_opens_and_says_why_not(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    assert opened(browser) == []
    browser.point_and_click("tr.family[data-key='causal-lm/rwkv'] td")
    assert opened(browser) == ["rwkv"]
    assert browser.run("return window.intruder === undefined && document.images.length === 0")
    browser.choose("#status", "verified")
    assert opened(browser) == []
    browser.choose("#status", "")
    assert opened(browser) == ["rwkv"]
    browser.click("#unfold")
    assert opened(browser) == BY_NAME
    browser.click("#fold")
    assert opened(browser) == []


def test_by_keys_alone(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    browser.run("document.querySelector('.opener').focus()")
    press(browser, "ARROW_DOWN")
    press(browser, "ARROW_DOWN")
    press(browser, "ENTER")
    assert opened(browser) == ["mamba"]
    press(browser, "ARROW_LEFT")
    assert opened(browser) == []
    press(browser, "END")
    press(browser, "ARROW_RIGHT")
    assert opened(browser) == ["bloom"]
    assert browser.run("return document.querySelectorAll('.opener[tabindex=\"0\"]').length") == 1


def test_a_link_leads_to_the_same_rows(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    browser.choose("#cause", "lmp")
    browser.click("[data-sort=family]")
    browser.click("[data-sort=family]")
    browser.click("tr.family[data-key='causal-lm/mamba'] .opener")
    fragment = browser.run("return location.hash")
    assert (shown(browser), opened(browser)) == (["rwkv", "mamba"], ["mamba"])
    browser.open(zoo_page, fragment)
    assert (shown(browser), opened(browser)) == (["rwkv", "mamba"], ["mamba"])


def test_a_count_leads_to_its_families(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    browser.click("#counts a[href='#status=error&cause=dependency']")
    browser.rest()
    assert shown(browser) == ["xlstm"]
    browser.click("#counts a[href='#status=not%20run']")
    browser.rest()
    assert shown(browser) == ["arcee", "bloom"]


def test_a_count_of_none_leads_to_none(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "one.html"
    file.write_text(page(small_zoo.summary(entries=[small_zoo.entry("gpt2")], not_run=[])), encoding="utf-8")
    browser.open(file, "#status=failed")
    assert (shown(browser), browser.texts("#found")) == ([], ["0 of 1 families"])


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_at_every_width_nothing_is_asked_for(browser: Browser, zoo_page: Path, width: int, dark: bool) -> None:
    browser.open(zoo_page, width=width, dark=dark)
    browser.click("#unfold")
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    # What a row says when it is open can be read without scrolling sideways.
    wide = (
        "return Math.max(...[...document.querySelectorAll('.more .part')].map((e) => e.getBoundingClientRect().right))"
    )
    assert browser.run(wide) <= width
    browser.listen()
    assert browser.logged == []
    assert browser.asked == [zoo_page.as_uri()]
    pictures = os.environ.get("LMP_PICTURES")
    if pictures:
        browser.picture(Path(pictures) / f"zoo-{width}-{'dark' if dark else 'light'}.png")


def test_names_for_those_who_do_not_see(browser: Browser, zoo_page: Path) -> None:
    browser.open(zoo_page)
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "combobox", "searchbox", "link", "table")
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
