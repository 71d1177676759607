"""The values an analysis is evaluated at, and what `--set` takes."""

from __future__ import annotations

from fractions import Fraction

import analyses
import pytest

from lmp.errors import UsageError
from lmp.link.values import parse_axes, parse_settings, values_for, whole_values


def message(*settings: str) -> str:
    with pytest.raises(UsageError) as caught:
        values_for(analyses.mlp(), {"batch_size": 1, "seq_len": 1, **parse_settings(settings)})
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) <= 2
    return str(caught.value)


def test_settings_one_by_one_and_with_commas() -> None:
    assert parse_settings(["batch_size=2", "seq_len=16,cache_len=0"]) == {
        "batch_size": 2,
        "seq_len": 16,
        "cache_len": 0,
    }
    assert parse_settings([" batch_size = 1_000 "]) == {"batch_size": 1000}


def test_what_stands_where_nothing_is_given() -> None:
    assert values_for(analyses.mlp(), {"batch_size": 2, "seq_len": 16}) == {
        "batch_size": 2,
        "seq_len": 16,
        "cache_len": 0,
        "w_bytes": 2,
        "a_bytes": 2,
        "kv_bytes": 2,
        "hidden_size": 8,
        "intermediate_size": 32,
    }


def test_given_values_win() -> None:
    found = values_for(
        analyses.mlp(), {"batch_size": 2, "seq_len": 16, "hidden_size": 4096, "w_bytes": 1, "cache_len": 7}
    )
    assert (found["hidden_size"], found["w_bytes"], found["cache_len"]) == (4096, 1, 7)


def test_other_spellings_of_a_name() -> None:
    analysis = analyses.analysis("a.B", [], {"num_heads": "config.num_attention_heads", "n_embd": "config.n_embd"})
    given = parse_settings(["config.num_attention_heads=32", "self.config.n_embd=768"])
    found = values_for(analysis, given)
    assert (found["num_heads"], found["n_embd"]) == (32, 768)


def test_a_name_under_two_spellings() -> None:
    analysis = analyses.analysis("a.B", [], {"num_heads": "config.num_attention_heads"})
    with pytest.raises(UsageError, match="num_heads is set twice: to 8 and, as num_attention_heads, to 9"):
        values_for(analysis, {"num_heads": 8, "num_attention_heads": 9})


def test_batch_and_sequence_must_be_given_whatever_the_analysis_holds() -> None:
    values = {"batch_size": 1, "seq_len": 1, "hidden_size": 8, "intermediate_size": 32}
    with pytest.raises(UsageError) as caught:
        values_for(analyses.mlp(values=values), {})
    assert str(caught.value) == (
        f"batch_size and seq_len have no value: {analyses.MLP} depends on them\ngive --batch-size 2 --seq-len 16"
    )


def test_a_class_that_has_no_sequence_needs_none() -> None:
    analysis = analyses.analysis("a.B", [], {"batch_size": "inputs.x.shape[0]"})
    assert "seq_len" not in values_for(analysis, {"batch_size": 1})
    assert values_for(analysis, {"batch_size": 1, "seq_len": 3})["seq_len"] == 3


def test_a_name_that_is_not_there() -> None:
    assert message("hiden_size=1") == (
        f"{analyses.MLP} has no parameter 'hiden_size': did you mean hidden_size?\n"
        "the names are batch_size, seq_len, cache_len, w_bytes, a_bytes, kv_bytes, hidden_size, intermediate_size"
    )


def test_a_name_that_is_pinned() -> None:
    with pytest.raises(UsageError, match=r"has no parameter 'layers' \(it is fixed at 2 in these formulas\)"):
        values_for(analyses.mlp(pinned={"layers": 2}), {"layers": 3})


@pytest.mark.parametrize(
    "text",
    [
        "sixteen",
        "",
        "1.5",
        "k",
        "8q",
        "1kk",
        "1.k",
        ".5k",
        "8 k",
        "-k",
        "1e3k",
        "1e3",
        "0x10",
        "٣",
        "2*8",
        "{seq_len}",
        "nan",
        "1 2",
    ],
)
def test_text_in_place_of_a_number(text: str) -> None:
    assert message(f"seq_len={text}") == (
        f"seq_len is set to {text!r}, which is not a whole number\n"
        "give one, as in --set seq_len=2 or --set seq_len=8k (k is 1,024, M is 1,048,576)"
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("hidden_size=-1", "hidden_size is set to -1\ngive a whole number of at least 1"),
        ("intermediate_size=0", "intermediate_size is set to 0\ngive a whole number of at least 1"),
        ("cache_len=-1", "cache_len is set to -1\ngive a whole number of at least 0"),
        (
            "a_bytes=0",
            "a_bytes is set to 0, but an element takes more than 0 bytes\n"
            "give a positive number of bytes, as 2, 0.5 or 17/32",
        ),
        ("batch_size=0", "batch_size is set to 0\ngive a whole number of at least 1"),
        ("seq_len=-5", "seq_len is set to -5\ngive a whole number of at least 1"),
    ],
)
def test_numbers_that_are_too_small(setting: str, expected: str) -> None:
    assert message(setting) == expected


def test_what_may_be_off_may_be_0() -> None:
    """A switch is 0 or 1 in the config itself; an input that is None is 0. A size has no formula at 0."""
    paths = {"bias": "init.bias", "experts": "config.experts", "gate": "inputs.gate", "dim": "inputs.gate.shape[2]"}
    analysis = analyses.analysis("a.B", [], paths).model_copy(update={"values": {"bias": 1, "experts": 0}})
    off = {"batch_size": 1, "seq_len": 1, "bias": 0, "experts": 0, "gate": 0}
    assert values_for(analysis, {**off, "dim": 8})["gate"] == 0
    with pytest.raises(UsageError, match="dim is set to 0"):
        values_for(analysis, {**off, "dim": 0})


@pytest.mark.parametrize("setting", ["seq_len", "=3", "", "seq_len=1,,hidden_size=2"])
def test_what_is_no_setting(setting: str) -> None:
    assert "is not name=value\nwrite it as in --set batch_size=2" in message(setting)


def test_a_name_given_twice() -> None:
    assert message("hidden_size=1,hidden_size=2") == "hidden_size is set twice: to 1 and to 2\ngive it once"
    assert parse_settings(["a=1", "a=1"]) == {"a": 1}


def test_a_number_of_too_many_digits() -> None:
    assert message("seq_len=" + "9" * 5000) == ("seq_len is set to a number of 5000 digits\ngive one of at most 4000")


def test_a_cache_has_the_width_of_activations_unless_it_is_set() -> None:
    point = {"batch_size": 2, "seq_len": 16}
    assert values_for(analyses.mlp(), {**point, "a_bytes": 4})["kv_bytes"] == 4
    found = values_for(analyses.mlp(), {**point, "a_bytes": 4, "kv_bytes": 1})
    assert (found["a_bytes"], found["kv_bytes"]) == (4, 1)


def test_sizes_that_a_report_does_not_take() -> None:
    assert whole_values({"batch_size": 2, "w_bytes": 1}) == {"batch_size": 2, "w_bytes": 1}
    with pytest.raises(UsageError, match=r"w_bytes is set to 0\.5, but a report takes whole numbers alone"):
        whole_values(parse_settings(["w_bytes=0.5"]))


def test_fractions_of_an_element_alone() -> None:
    assert parse_axes(["w_bytes=0.5,17/32,2", "seq_len=1:3"]) == {
        "w_bytes": (Fraction(1, 2), Fraction(17, 32), 2),
        "seq_len": range(1, 4),
    }
    assert parse_settings(["config.kv_bytes=4.0"]) == {"kv_bytes": 4}
    with pytest.raises(UsageError, match="hidden_size is set to '1/2', which is not a whole number"):
        parse_settings(["hidden_size=1/2"])
    with pytest.raises(UsageError, match=r"hidden_size is set to 0\.5\ngive a whole number of at least 1"):
        values_for(analyses.mlp(), {"batch_size": 1, "seq_len": 1, "hidden_size": Fraction(1, 2)})
    with pytest.raises(UsageError, match=r"w_bytes is set twice: to 0\.5 and to 1"):
        parse_settings(["w_bytes=1/2,w_bytes=1"])
