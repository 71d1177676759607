"""The figures of a model: against sums by hand of analyses that are written here."""

from __future__ import annotations

from typing import Any

import pytest
from analyses import LAYER, LINEAR, MLP, analysis, call, kernel, layer, linear, mlp

from lmp.link.link import link
from lmp.link.overview import Overview, overview
from lmp.link.parameter_counts import parameter_counts
from lmp.records import MemoryAccess, ModuleAnalysis

DECODER = "transformers.models.tiny.modeling_tiny.TinyForCausalLM"


def decoder(flops: str, read: str = "0", **more: Any) -> ModuleAnalysis:
    parameters = {"batch_size": "inputs.x.shape[0]", "seq_len": "inputs.x.shape[1]", "cache_len": "inputs.c.shape[1]"}
    fields = {"compulsory": MemoryAccess(read=read, write="0"), "parameters_count": "{width} * {width}", **more}
    return analysis(
        DECODER, [kernel(3, flops, "0", "0")], {**parameters, "width": "config.width"}, values={"width": 10}, **fields
    )


def figures(found: ModuleAnalysis, *others: ModuleAnalysis) -> Overview:
    lookup = {one.class_name: one for one in (found, *others)}.__getitem__
    return overview(link(found, lookup), lookup)


def test_a_decoder() -> None:
    tokens = "{batch_size} * {seq_len}"
    attention = f"{tokens} * 3 * ({{seq_len}} + {{cache_len}})"
    # Per token, width 10: 100 FLOPs and 3 for each token before and with it. The cache has 20 elements a token.
    found = figures(
        decoder(
            f"{tokens} * {{width}} * {{width}} + {attention}",
            "{width} * {width} * {w_bytes} + 20 * {batch_size} * {cache_len} * {kv_bytes}",
        )
    )
    decode, prefill = found.calls
    assert (decode.phase, prefill.phase) == ("decode", "prefill")
    assert decode.values == {"batch_size": 1, "seq_len": 1, "cache_len": 8192}
    assert decode.flops == 100 + 3 * (1 + 8192)
    assert decode.formula.text == "103 + 3 * cache_len"
    assert prefill.values == {"batch_size": 1, "seq_len": 8192, "cache_len": 0}
    assert prefill.flops == 100 + 3 * 8192
    assert prefill.formula.text == "100 + 3 * seq_len"
    assert found.cache is not None
    assert (found.cache.a_token, found.cache.held) == (20 * 2, 20 * 2 * 8192)
    assert found.parameters == 100
    assert found.unknown == {}


def test_a_window_has_two_numbers_for_its_cache() -> None:
    held = "({cache_len} + 4 * min({cache_len}, 100)) * {kv_bytes}"
    found = figures(decoder("{seq_len} * 5 + where({cache_len} > 0, 7, 900)", held)).cache
    assert found is not None
    # Beyond 100 tokens one more adds 1 element of 2 bytes; 8,192 + 4 * 100 elements are held.
    assert (found.a_token, found.held) == (2, (8192 + 400) * 2)


def test_branches_of_the_other_phase_are_not_in_the_formula() -> None:
    flops = "{seq_len} * where({cache_len} > 0, 7, 900) + where({seq_len} == 1, 1, 2 * {seq_len})"
    decode, prefill = figures(decoder(flops)).calls
    assert (decode.formula.text, prefill.formula.text) == ("8", "902")
    assert (decode.flops, prefill.flops) == (8, 902)


def test_a_formula_that_is_of_the_whole_call() -> None:
    prefill = figures(decoder("{seq_len} * 5 + 8192")).calls[1]
    assert not prefill.formula.a_token
    assert prefill.formula.text == "8,192 + 5 * seq_len"
    assert prefill.flops == 6  # 5 + 8192 / 8192


def test_a_product_with_a_quotient_keeps_its_meaning() -> None:
    text = figures(decoder("3 * ({cache_len} // 64)")).calls[0].formula.text
    assert text == "3 * (cache_len // 64)"


def test_lengths_that_the_model_does_not_take_are_not_shown() -> None:
    short = decoder("{seq_len} + {cache_len}", assumptions=["{seq_len} + {cache_len} <= 100"])
    assert [dict(call.values) for call in figures(short).calls] == [
        {"batch_size": 1, "seq_len": 1, "cache_len": 64},
        {"batch_size": 1, "seq_len": 64, "cache_len": 0},
    ]
    never = decoder("{seq_len} + {cache_len}", assumptions=["{width} == 11"])
    call = figures(never).calls[0]
    assert call.values["cache_len"] == 2
    assert [broken.assumption for broken in call.violated] == ["{width} == 11"]


def test_formulas_that_give_a_negative_number_are_no_figure() -> None:
    found = figures(decoder("100 * {seq_len} - {cache_len}", "{cache_len} * {kv_bytes}"))
    assert found.unknown["decode"] == (
        "the formulas are WRONG: they give -8,092 FLOPs at batch_size 1, seq_len 1, cache_len 8,192"
    )
    assert [call.phase for call in found.calls] == ["prefill"]
    assert "cache" in found.unknown


def test_what_an_analysis_does_not_say_has_a_reason() -> None:
    found = figures(decoder("{seq_len}", compulsory=None, parameters_count=None))
    assert found.unknown == {
        "cache": "the analysis has no compulsory traffic",
        "parameters": "the analysis does not say them at this config",
    }
    sizes = figures(linear())
    assert sizes.unknown["FLOPs"] == "in_features, out_features have no values in the config"
    assert (sizes.calls, sizes.cache) == ((), None)


def test_parameters_of_each_module() -> None:
    parts = {one.class_name: one for one in (layer(), mlp(), linear())}
    model = link(layer(), parts.__getitem__)
    # Matrices of 8 * 32; the analysis of the layer does not say its parameters.
    assert parameter_counts(model, parts.__getitem__) == {
        ("", LAYER): None,
        ("mlp", MLP): 3 * 8 * 32,
        ("mlp.gate_proj", LINEAR): 8 * 32,
        ("mlp.up_proj", LINEAR): 8 * 32,
        ("mlp.down_proj", LINEAR): 8 * 32,
    }


def test_one_path_of_two_classes_has_two_counts() -> None:
    """As the last layer of a block, which is another class in an encoder than in a decoder."""
    sizes = "batch_size={batch_size}, seq_len={seq_len}"
    calls = [
        call(3, f"${{{{{MLP}}}}}({sizes}, hidden_size=8, intermediate_size=32)", path="last"),
        call(4, f"${{{{{LINEAR}}}}}({sizes}, in_features=8, out_features=5)", path="last"),
    ]
    names = {"batch_size": "inputs.x.shape[0]", "seq_len": "inputs.x.shape[1]"}
    root = analysis(DECODER, calls, names)
    parts = {one.class_name: one for one in (root, mlp(), linear())}
    counts = parameter_counts(link(root, parts.__getitem__), parts.__getitem__)
    assert (counts["last", MLP], counts["last", LINEAR]) == (3 * 8 * 32, 8 * 5)


def test_a_count_that_refers_to_a_called_class() -> None:
    reference = f"2 * ${{{{{LINEAR}}}}}(batch_size=1, seq_len=1, in_features={{hidden_size}}, out_features=3) + 5"
    found = mlp(parameters_count=reference)
    counts = parameter_counts(
        link(found, lambda name: linear()), {LINEAR: linear(), found.class_name: found}.__getitem__
    )
    assert counts["", MLP] == 2 * 8 * 3 + 5


@pytest.mark.parametrize(("whole", "shared"), [(3 * 768, False), (3 * 768 - 1, True)])
def test_weights_that_modules_share(whole: int, shared: bool) -> None:
    """Three MLPs of 768 parameters each."""
    assert figures(layer(parameters_count=str(whole)), mlp(), linear()).shares_weights is shared
