"""What stands in the file of the comparing page, without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.atlas.archive import Atlas
from lmp.predict.devices import device_named
from lmp.predict.holding import held_by_formulas
from lmp.predict.screen.asking import Subject
from lmp.predict.screen.grid import Axes
from lmp.report.compare import page, writing
from lmp.report.compare.models import record
from lmp.report.on_device import Screen

STATIC = Path(writing.__file__).parent / "static"
LARGEST = 8 * 2**20
"""Bytes of a page of all models."""


def test_nothing_is_fetched_and_one_script_runs(compare_text: str) -> None:
    assert not re.search(r"<[a-z]+[^>]*\s(src|action)=", compare_text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', compare_text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert policy[1].count("sha256-") == 1
    assert compare_text.count("<script") == 2  # the data and the page's own


def test_scripts_put_no_markup_together() -> None:
    scripts = "".join(file.read_text() for file in STATIC.glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", scripts)
    assert {file.stem for file in STATIC.glob("*.js")} == set(writing.SCRIPTS)


def test_a_page_of_hundred_models_is_small_enough(compare_text: str, atlas: Atlas) -> None:
    empty = len(page(atlas, [], ["h100-sxm"]))
    each = (len(compare_text) - empty) / 3
    # A whole grid has 36 + 12 points of 28 ways, three figures of about 10 characters: 48 * 28 * 30 = 40 kB more.
    assert empty + 100 * (each + 48 * 28 * 30) < LARGEST


def test_names_are_escaped(compare_text: str) -> None:
    data = compare_text.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in data
    assert ">" not in data


def test_an_unknown_device_is_refused(atlas: Atlas) -> None:
    from lmp.errors import UsageError

    with pytest.raises(UsageError, match="there is no device"):
        page(atlas, [], ["h1000"])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("openai/whisper-tiny", 37_760_640),  # as published: 37.8 M; the output is the embedding
        ("google-t5/t5-small", 60_506_624),  # as published: 60.5 M
        # The encoder's 108,891,648, a transform of 768 * 768 + 768, a norm of 1,536, and 30,522 biases of words.
        ("google-bert/bert-base-uncased", 109_514_298),
    ],
)
def test_memory_of_a_model_whose_formulas_do_not_tell_it(atlas: Atlas, name: str, parameters: int) -> None:
    """A cache of an encoder, or none: the entry of the atlas has what the model holds."""
    screen = Screen(engines=("vllm",), tps=(1,), axes=(Axes("prefill", (1,), (128,)),), eager=False, alike=True)
    entry = atlas.load(atlas.named(name))
    assert isinstance(held_by_formulas(Subject(entry.model), {}, 1), str)
    room = record(entry, [device_named("h100-sxm")], screen)["on_device"]["room"]
    assert "reason" not in room
    alone, two, *_ = room["gpus"]
    assert [alone["tp"], two["tp"]] == [1, 2]
    # Two bytes each, without an engine.
    assert int(alone["weights"][""][0]) == 2 * parameters
    assert int(two["weights"][""][0]) < int(alone["weights"][""][0])


def test_progress_names_each_model_with_its_count(atlas: Atlas) -> None:
    said: list[tuple[int, int, str]] = []
    screen = Screen(engines=("vllm",), tps=(1,), axes=(Axes("prefill", (1,), (128,)),), eager=False, alike=True)
    names = ("google-bert/bert-base-uncased", "openai-community/gpt2")
    page(atlas, [atlas.named(name) for name in names], ["h100-sxm"], 1, lambda *one: said.append(one), screen)
    assert said == [(0, 2, names[0]), (1, 2, names[1]), (2, 2, "")]
