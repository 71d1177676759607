"""The formulas of an entry at other configs: which are taken, which are refused, and with which words."""

from __future__ import annotations

from typing import Any

import made
import pytest

from lmp.atlas.families import Unlike, at_config
from lmp.records import ModelAnalysis

TINY = {"width": 16, "layers": 4, "act": "silu"}


def values(content: dict[str, Any], model: ModelAnalysis | None = None) -> dict[str, int]:
    return at_config(model or made.model(), made.FACTS, content)


def why(content: dict[str, Any], model: ModelAnalysis | None = None) -> str:
    with pytest.raises(Unlike) as error:
        values(content, model)
    return str(error.value)


def test_integers_of_the_formulas_are_put_in() -> None:
    assert values(TINY) == {"hidden_size": 16, "num_hidden_layers": 4}


def test_other_names_of_a_field() -> None:
    assert values({"hidden_size": 16, "layers": 4, "act": "silu"}) == {"hidden_size": 16, "num_hidden_layers": 4}


def test_a_field_that_is_not_stated_has_the_default_of_its_class() -> None:
    # `width` is 64 where it is not stated, 8 in the entry's own config.
    assert values({"layers": 4, "act": "silu"}) == {"hidden_size": 64, "num_hidden_layers": 4}


def test_a_field_without_a_default_must_be_stated() -> None:
    assert why({"width": 16}) == "act is not stated"


def test_a_list_with_one_element_in_each_layer() -> None:
    assert values({**TINY, "kinds": ["full"] * 4})["num_hidden_layers"] == 4


@pytest.mark.parametrize("kinds", [["full"] * 3, ["full"] * 2, ["full", "full", "full", "slide"], ["slide"] * 4, []])
def test_a_list_that_says_other_layers(kinds: list[str]) -> None:
    assert why({**TINY, "kinds": kinds}).startswith("kinds is ")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("act", "gelu", "act is 'gelu', and 'silu' in the atlas"),
        ("scale", 2.0, "scale is 2.0, and 1.0 in the atlas"),
        ("tied", False, "tied is False, and True in the atlas"),
        ("tied", 1, "tied is 1, and True in the atlas"),
        ("width", 16.0, "width is 16.0, and 8 in the atlas"),
        ("width", "16", "width is '16', and 8 in the atlas"),
        ("width", True, "width is True, and 8 in the atlas"),
        ("width", None, "width is None, and 8 in the atlas"),
        ("width", 0, "width is 0, and 8 in the atlas"),
        ("width", -8, "width is -8, and 8 in the atlas"),
        ("heads", None, "heads is None, and 2 in the atlas"),
        ("window", 7, "window is 7, and None in the atlas"),
        ("rope", {"theta": 1}, "rope is {'theta': 1}, and None in the atlas"),
    ],
)
def test_what_is_no_integer_of_the_formulas_must_be_equal(field: str, value: object, text: str) -> None:
    assert why({**TINY, field: value}) == text


def test_what_nothing_reads_and_what_is_of_the_checkpoint_may_differ() -> None:
    more = {"model_type": "other", "made_by": 3, "torch_dtype": "float16", "quantization_config": {"bits": 4}}
    assert values({**TINY, **more}) == values(TINY)


def test_an_equal_number_may_be_written_otherwise() -> None:
    assert values({**TINY, "scale": 1}) == values(TINY)


def test_an_assumption_on_sizes_of_the_config() -> None:
    assert why({**TINY, "width": 10}) == "the assumption {hidden_size} % 4 == 0 does not hold"


def test_a_pinned_value() -> None:
    pinned = made.model(pinned={"num_hidden_layers": 2})
    assert why(TINY, pinned) == "the formulas are for num_hidden_layers = 2 alone, and it is 4"
    assert values({**TINY, "layers": 2}, pinned)["num_hidden_layers"] == 2


def test_a_value_that_no_field_has() -> None:
    assert why(TINY, made.model(values={"experts": 3})) == "experts comes from no field, which no config states"


def test_a_field_that_follows_in_an_unknown_way() -> None:
    facts = made.FACTS.model_copy(
        update={"follows": {"kinds": made.Follow(kind="unknown", of=["layers"])}, "stated": {"width": 8, "layers": 2}}
    )
    assert at_config(made.model(), facts, {"width": 16, "layers": 2}) == {"hidden_size": 16, "num_hidden_layers": 2}
    with pytest.raises(Unlike, match="kinds is not stated; it follows from layers"):
        at_config(made.model(), facts, {"width": 16, "layers": 3})


def test_a_field_that_the_class_turns_into_others_must_be_stated_alike() -> None:
    facts = made.FACTS.model_copy(update={"stated": {**made.FACTS.stated, "rope_theta": 500}})
    assert at_config(made.model(), facts, {**TINY, "rope_theta": 500.0})["hidden_size"] == 16
    with pytest.raises(Unlike, match="rope_theta is None, and 500 in the atlas"):
        at_config(made.model(), facts, TINY)
