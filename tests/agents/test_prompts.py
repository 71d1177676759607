"""Prompts: filled strictly, verbatim, and with the rules that lmp counts by."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from lmp.agents import prompts
from lmp.agents.prompts import ANALYZE, EXPAND, PromptError, expander_prompt, fill, fill_text, load, prompt_sha256
from lmp.errors import UsageError
from lmp.records import CATEGORIES, MATMUL_CATEGORIES
from lmp.source.trees import Trees

FILES = sorted((Path(__file__).parents[2] / "prompts").glob("*.md"))


def test_values_are_put_in_as_they_are() -> None:
    quoted = r"${{torch.nn.Linear}}(in={x}) <<other>> \1 \g<name> @/etc/passwd"
    assert fill_text("a <<source>> b <<other>>", {"source": quoted, "other": "2"}) == f"a {quoted} b 2"


def test_a_variable_may_stand_twice() -> None:
    assert fill_text("<<a>>, <<a>>", {"a": "x"}) == "x, x"


@pytest.mark.parametrize(
    ("template", "values", "says"),
    [
        ("<<a>> <<b>>", {"a": "1"}, "asks for b, which nothing is given for"),
        ("<<a>>", {"a": "1", "b": "2"}, "does not ask for b"),
        ("<<a>> <<A>>", {"a": "1"}, "has a << that is not a variable"),
        ("<<a>> >>", {"a": "1"}, "has a >> that is not a variable"),
        ("<< a >>", {}, "has a << that is not a variable"),
    ],
)
def test_anything_else_is_an_error(template: str, values: dict[str, str], says: str) -> None:
    with pytest.raises(PromptError, match=re.escape(says)) as error:
        fill_text(template, values, "page.md")
    assert "page.md" in str(error.value)
    assert isinstance(error.value, UsageError)


def test_a_prompt_that_is_not_there() -> None:
    with pytest.raises(PromptError, match=r"no prompt nothing\.md"):
        load("nothing")


def test_a_file_is_filled_by_its_name() -> None:
    assert fill(f"{EXPAND}.system", {}) == load(f"{EXPAND}.system")
    with pytest.raises(PromptError, match=f"{EXPAND}.md asks for"):
        fill(EXPAND, {})


def test_every_file_is_packaged_and_has_no_half_variable() -> None:
    assert {path.stem for path in FILES} >= {ANALYZE, EXPAND, f"{ANALYZE}.system", f"{EXPAND}.system"}
    for path in FILES:
        text = load(path.stem)
        assert text == path.read_text(encoding="utf-8")
        assert "<<" not in re.sub(r"<<[a-z_]+>>", "", text), path.name


def test_the_users_variables_are_named() -> None:
    assert prompts.variables(load(ANALYZE)) >= {"class_name", "source", "constructor", "statements", "execution"}


def test_the_hash_tells_system_and_message_apart() -> None:
    assert prompt_sha256("a", "b") == hashlib.sha256(b"a\0b").hexdigest()
    assert prompt_sha256("ab", "") != prompt_sha256("a", "b")


def test_the_flop_table_is_the_one_that_is_counted_by() -> None:
    table = prompts.flop_table()
    # From docs/flops.md: silu is negate, exp, add, divide; softmax max, subtract, exp, sum, divide.
    rows = dict(line.removeprefix("- ").split(": ", 1) for line in table.splitlines())
    assert "silu (x / (1 + exp(-x)): negate, exp, add, divide)" in rows["4 an output"]
    assert rows["5 an input"].startswith("_softmax, _safe_softmax (max, subtract, exp, sum, divide)")
    assert rows["1 an input, 1 an output"].startswith("mean")
    assert rows["5 an input, 4 a row"].startswith("native_layer_norm")
    assert "mul, div, neg, abs" in rows["1 an output"]
    assert " cat," not in table
    # What needs a definition and did not run is left out; a name that tells all stays.
    some = prompts.flop_table({"silu", "max_pool2d_with_indices"})
    assert "silu (" in some
    assert "max_pool (" in some
    assert "gelu" not in some
    assert "mul, div, neg, abs" in some
    assert "cat" in prompts.free_operators().split(", ")
    # x * x is one product, x * x * x two; exp(e * log(x)) is three operations.
    assert prompts.powers().startswith("1 for e = 2, 2 for e = 3, 3 for e = 4")
    assert prompts.powers().endswith("3 for any other exponent")
    assert prompts.gelu() == "5, in its tanh form 9"


def test_all_categories_are_told() -> None:
    assert prompts.categories().split(", ") == list(CATEGORIES)
    assert set(prompts.matmul_categories().split(", ")) == MATMUL_CATEGORIES


def test_the_expander_without_places() -> None:
    prompt = expander_prompt("a.B", [], {"hidden_act": "silu\x1b[2J"}, [], Trees(None, None))
    assert "There is no open place." in prompt.message
    assert r"config.hidden_act = 'silu\x1b[2J'" in prompt.message
    assert prompt.sha256 == prompt_sha256(prompt.system, prompt.message)
