"""A config with a `quantization_config`, from its file to the numbers: a small Llama in blocks of fp8.

Its layers have 2 * 64 * 64 + 2 * 64 * 32 weights in attention and 3 * 64 * 96 in the MLP, 30,720 in all; three layers
92,160. The down_proj of layer 1 stays, 6,144: 86,016 weights have 1 byte in place of 2, and a float32 for each 16 * 16.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import lmp
from lmp.analyze.models import expand_model
from lmp.analyze.session import Options
from lmp.link.numbers import ModelNumbers
from lmp.link.quantised import with_own_bytes
from lmp.link.values import values_for
from lmp.observe.inspecting import inspect_model

LLAMA = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
POINT = {"batch_size": 1, "seq_len": 8}
SAVED = 86_016 - 86_016 // 256 * 4


def test_evaluation_and_inspection(transformers_tree: None, small: Callable[[str], Options]) -> None:
    options = small("small-quantised")
    model = expand_model(LLAMA, options, lambda name, stage: None).model
    assert model.quantization is not None
    assert (model.quantization.whole, model.quantization.applied) == (True, None)
    own = with_own_bytes(model)
    assert own.quantization is not None
    assert (own.quantization.applied, own.quantization.warnings) == ("fp8", [])
    plain, quantised = (ModelNumbers(m).totals(values_for(m, POINT)) for m in (model, own))
    assert plain.read - quantised.read == SAVED
    assert (plain.compulsory or 0) - (quantised.compulsory or 0) == SAVED
    assert (plain.flops, plain.write) == (quantised.flops, quantised.write)
    totals = inspect_model(LLAMA, options).totals
    assert totals.weight_bytes - (totals.checkpoint_bytes or 0) == SAVED


def test_a_layer_by_itself_says_that_it_is_not_as_in_the_checkpoint(
    transformers_tree: None, small: Callable[[str], Options]
) -> None:
    name = "transformers.models.llama.modeling_llama.LlamaDecoderLayer"
    model = expand_model(name, small("small-quantised"), lambda name, stage: None).model
    own = with_own_bytes(model)
    assert own.quantization is not None
    assert own.quantization.warnings[0].startswith("LlamaDecoderLayer is not the model that the config is of")
    assert own.totals == model.totals


def test_from_python(transformers_tree: None, small: Callable[[str], Options]) -> None:
    options = small("small-quantised")
    assert options.config_file is not None
    content = json.loads(options.config_file.read_text(encoding="utf-8"))
    found = lmp.expand(LLAMA, config=options.config_file, results=options.results)
    read = found.evaluate(**POINT).totals.read
    assert found.evaluate(**POINT, w_bytes=2).totals.read - read == SAVED
    assert found.evaluate(**POINT).record.quantization == content["quantization_config"]["quant_method"]
