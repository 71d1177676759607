"""A model's page on devices, in a real browser: its times and bytes are those of the answer card."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import small_facts
import small_models as small
from headless import Browser

from lmp.formula import Number
from lmp.predict.devices import device_named
from lmp.predict.engines import GIB
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Subject, asked_for
from lmp.predict.screen.card import card
from lmp.predict.screen.grid import Axes
from lmp.predict.screen.records import Card, CardRun
from lmp.predict.shard.parallel import Parallel
from lmp.records import ModelAnalysis
from lmp.report.deployment import Deployment
from lmp.report.facts import ModelFacts
from lmp.report.on_device import Screen
from lmp.report.page import page
from lmp.source.catalogue import catalogued

pytestmark = pytest.mark.xdist_group("browser")

MODEL = "meta-llama/Meta-Llama-3.1-8B"
RESULTS = Path(__file__).parents[3] / "analysis_results"
SCREEN = Screen(
    engines=("vllm", "sglang"),
    tps=(1, 4),
    axes=(Axes("decode", (1, 4, 16, 64), (2048, 8192, 32768)), Axes("prefill", (1, 4), (512, 2048, 8192))),
)


@pytest.fixture(scope="session")
def model() -> ModelAnalysis:
    (file,) = RESULTS.glob("*.LlamaForCausalLM@*/model_analysis.json")
    return ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def config() -> dict[str, Any]:
    known = catalogued(MODEL)
    assert known is not None
    return dict(known.config)


def facts_of(
    model: ModelAnalysis, config: dict[str, Any], folder: Path, deployment: Deployment | None = None
) -> ModelFacts:
    """Facts of the stored model. Every class has the source of one small class: no test here reads it."""
    own = small_facts.facts(folder)
    source = own.sources[small.LINEAR]
    return ModelFacts(
        name=MODEL, model=model, expanded=model, analyses={}, sources=defaultdict(lambda: source), trees=own.trees,
        config=config,
        config_class=None, settings={}, inspection=None, device=own.device, screen=SCREEN,
        deployment=deployment or Deployment(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def device_page(model: ModelAnalysis, config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = facts_of(model, config, tmp_path_factory.mktemp("sources"))
    return small_facts.written(page(facts), tmp_path_factory.mktemp("page"))


def asked(
    model: ModelAnalysis, config: dict[str, Any], given: dict[str, Number], device: str = "h100-sxm", tp: int = 1,
    word: str | None = None, engine: str | None = None,
) -> Card:  # fmt: skip
    """The answer card: eager, and serving."""
    return card(
        Subject(model, config), asked_for(device_named(device), given, engine, (word, None), Parallel(tp)), Predictor()
    )


def open_at(browser: Browser, file: Path, given: dict[str, Number], **more: str) -> None:
    fragment = "&".join(f"{name}={value}" for name, value in {**given, **more}.items())
    browser.open(file, f"#{fragment}")


def texts(browser: Browser, name: str) -> list[str]:
    """Of one card: its figure, then what is below it."""
    return browser.texts(f"#on-device [data-total={name}] dd")


def says(run: CardRun) -> list[str]:
    """The first three lines of a card of a time."""
    us, rate = run.step_us, run.tokens_per_s
    assert us is not None
    assert rate is not None
    return [
        f"{us.value / 1e3:,.3f} ms",
        f"{rate.value:,.0f} tokens/s",
        f"80%: {us.low / 1e3:,.3f} to {us.high / 1e3:,.3f} ms",
    ]


CALLS: tuple[tuple[dict[str, Number], dict[str, str], dict[str, Any]], ...] = (
    ({"batch_size": 16, "seq_len": 1, "cache_len": 8192}, {}, {}),
    (
        {"batch_size": 4, "seq_len": 1, "cache_len": 2048},
        {"tp": "4", "engine": "sglang"},
        {"tp": 4, "engine": "sglang"},
    ),
    ({"batch_size": 1, "seq_len": 2048, "cache_len": 0}, {"device": "A100-80GB"}, {"device": "a100-sxm"}),
    (
        {"batch_size": 64, "seq_len": 1, "cache_len": 2048},
        {"w_bytes": "1", "a_bytes": "1", "kv_bytes": "1"},
        {"word": "fp8"},
    ),
)


@pytest.mark.parametrize(("given", "chosen", "on"), CALLS)
def test_a_point_of_the_grid_is_what_the_card_says(
    browser: Browser, device_page: Path, model: ModelAnalysis, config: dict[str, Any],
    given: dict[str, Number], chosen: dict[str, str], on: dict[str, Any],
) -> None:  # fmt: skip
    open_at(browser, device_page, given, **chosen)
    eager, serving = asked(model, config, given, **on).runs
    assert texts(browser, "eager")[:3] == says(eager)
    assert texts(browser, "serving")[:3] == says(serving)
    assert serving.memory is not None
    assert eager.memory is not None
    memory = texts(browser, "memory")
    assert memory[:2] == [f"{serving.memory.held / GIB:,.2f} GiB", "fits"]
    for text, own in zip(memory[2:], (serving.memory, eager.memory), strict=True):
        held = f"{own.held / GIB:,.2f} of {own.total / GIB:,.2f} GiB"
        assert text.endswith(f"{held}, fits, up to batch {own.largest_batch:,}")
    assert texts(browser, "token")[0] == f"{serving.memory.kv_a_token:,} B"


def test_between_two_points_the_interval_is_wider(
    browser: Browser, device_page: Path, model: ModelAnalysis, config: dict[str, Any]
) -> None:
    given: dict[str, Number] = {"batch_size": 10, "seq_len": 1, "cache_len": 5000}
    open_at(browser, device_page, given)
    for name, run in zip(("eager", "serving"), asked(model, config, given).runs, strict=True):
        assert run.step_us is not None
        found = texts(browser, name)
        assert found[-1].startswith("interpolated (batch 4–16; 2,048–8,192 tokens): ")
        low, high = (float(text) for text in found[2].removeprefix("80%: ").removesuffix(" ms").split(" to "))
        assert low <= run.step_us.value / 1e3 <= high


UNKNOWN = {
    "batch_size=512&seq_len=1&cache_len=2048": "batches are 1 to 64",
    "batch_size=1&seq_len=1&cache_len=100": "caches are of 2,048 to 32,768 tokens",
    "batch_size=1&seq_len=100&cache_len=0": "prompts are of 512 to 8,192 tokens",
    "batch_size=1&seq_len=512&cache_len=2048": "not predicted here: chunked prefill",
    "batch_size=1&seq_len=1&cache_len=2048&w_bytes=0.5": "not predicted here: these bytes of elements",
    "batch_size=1&seq_len=1&cache_len=2048&hidden_size=8192": "predicted for the config as it is: hidden_size changed",
}


@pytest.mark.parametrize("fragment", UNKNOWN)
def test_what_is_not_predicted_is_said_with_the_command(browser: Browser, device_page: Path, fragment: str) -> None:
    browser.open(device_page, f"#{fragment}")
    figure, why = texts(browser, "serving")[:2]
    assert figure == "no time"
    assert UNKNOWN[fragment] in why
    assert browser.texts("#command")[0].startswith(f"lmp predict {MODEL} --device h100-sxm --engine vllm -b ")


def test_the_command_is_what_was_asked(browser: Browser, device_page: Path) -> None:
    browser.open(device_page, "#batch_size=8&seq_len=1&cache_len=2048&tp=4&engine=sglang&hidden_size=8192")
    browser.choose("#set-precision", "fp8")
    assert browser.texts("#command") == [
        f"lmp predict {MODEL} --device h100-sxm --engine sglang --tp 4 -b 8 -s 1 -c 2048 --dtype fp8 "
        "--set hidden_size=8192"
    ]


def test_products_decide_the_time_and_not_the_bytes_alone(browser: Browser, device_page: Path) -> None:
    browser.open(device_page, "#batch_size=4&seq_len=1&cache_len=2048")
    browser.choose("#set-precision", "fp8")
    assert texts(browser, "serving")[0].endswith(" ms")
    browser.choose("#set-precision", "int8")
    # As many bytes as fp8 has, of other matrix units: no time was predicted for them.
    assert texts(browser, "serving")[0] == "no time"
    assert "dtype=int8" in browser.run("return location.hash")
    assert "--dtype int8" in browser.texts("#command")[0]


def test_what_does_not_fit_has_no_time(
    browser: Browser, device_page: Path, model: ModelAnalysis, config: dict[str, Any]
) -> None:
    given: dict[str, Number] = {"batch_size": 64, "seq_len": 1, "cache_len": 32768}
    open_at(browser, device_page, given)
    run = asked(model, config, given).runs[1]
    assert run.memory is not None
    assert not run.memory.fits
    figure, why = texts(browser, "serving")[:2]
    assert figure == "no time"
    assert why == f"does not fit; tp {run.memory.smallest_tp} or batch {run.memory.largest_batch} does"
    assert texts(browser, "memory")[1] == "does not fit"


def test_the_address_has_device_tp_and_engine(browser: Browser, device_page: Path) -> None:
    browser.open(device_page, "#batch_size=4&seq_len=1&cache_len=2048&tp=3&engine=<b>none</b>&dtype=__proto__")
    assert "“tp=3”, “engine=<b>none</b>”, “dtype=__proto__”" in browser.texts("#ignored")[0]
    browser.choose("#tp", "4")
    browser.choose("#engine", "sglang")
    link = str(browser.run("return location.hash"))
    before = browser.texts("#on-device dd")
    browser.open(device_page, link)
    assert browser.texts("#on-device dd") == before
    assert not browser.displayed("#ignored")


def test_the_page_opens_as_the_report_is_deployed(
    browser: Browser, model: ModelAnalysis, config: dict[str, Any], tmp_path: Path
) -> None:
    deployed = Deployment(Parallel(4), "fp8", "sglang")
    facts = facts_of(model, config, tmp_path, deployed)
    given: dict[str, Number] = {"batch_size": 4, "seq_len": 1, "cache_len": 2048}
    open_at(browser, small_facts.written(page(facts), tmp_path), given)
    ask = asked_for(device_named("h100-sxm"), given, "sglang", (None, "fp8"), Parallel(4))
    run = card(Subject(model, config), ask, Predictor()).runs[1]
    assert texts(browser, "serving")[:3] == says(run)
    assert browser.texts("#on-device [data-total=serving] dt") == ["time, serving (sglang)"]
    assert run.memory is not None
    assert texts(browser, "token")[0] == f"{run.memory.kv_a_token:,} B"


@pytest.mark.parametrize("width", [1280, 400])
def test_the_device_is_on_the_first_screen(browser: Browser, device_page: Path, width: int) -> None:
    browser.open(device_page, "#batch_size=10&seq_len=1&cache_len=5000&tp=4", width=width, height=900)
    places = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('#on-device > div, #answers > div')]"
        ".map((d) => [d.dataset.total, d.querySelector('dd').getBoundingClientRect().bottom]))"
    )
    shown = {"eager", "serving", "memory", "token", "flops", "bytes", "compulsory", "weights", "cache"}
    assert set(places) == shown
    assert max(places.values()) < 900
    chosen = browser.run("return ['device', 'tp', 'engine'].map((id) => document.getElementById(id)"
                         ".getBoundingClientRect().bottom)")  # fmt: skip
    assert max(chosen) < 900
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_the_keyboard_chooses_the_gpus(browser: Browser, device_page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(device_page, "#batch_size=4&seq_len=1&cache_len=2048")
    before = texts(browser, "serving")[0]
    browser.run("document.getElementById('tp').focus()")
    browser.press(Keys.ARROW_DOWN)
    assert browser.run("return document.getElementById('tp').value") == "4"
    assert texts(browser, "serving")[0] != before


def test_a_class_without_batches_says_so(browser: Browser, tmp_path: Path) -> None:
    kernels = [small.basic(12, "{batch_size}", "0", "0")]
    totals = {"flops": "{batch_size}", "matmul_flops": "0", "read": "0", "write": "0"}
    named = {"batch_size": "inputs.x.shape[0]"}
    facts = small_facts.facts(tmp_path, kernels=kernels, totals=totals, parameters=named, values={}, compulsory=None)
    made = page(facts)
    browser.open(small_facts.written(made, tmp_path))
    assert browser.displayed("#no-device")
    assert not browser.displayed("#on-device")
