"""Models with the weights of a quantised checkpoint. The expected bytes are worked out in the comments."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import small_models as small
from small_models import LINEAR, basic, module

from lmp.formula import Number
from lmp.link.numbers import ModelNumbers
from lmp.link.quantised import _moved, with_own_bytes
from lmp.link.sweep import plan
from lmp.link.values import values_for
from lmp.records import MemoryAccess, ModelAnalysis, Quantization, Totals

FP8 = {"quant_method": "fp8", "weight_block_size": [4, 8]}


def model(config: Any, whole: bool = True, **more: Any) -> ModelAnalysis:
    """The small model: its only linear layer, of 8 * 8 weights, is layers.0.proj, three times."""
    return with_own_bytes(small.model(quantization=Quantization(config=config, whole=whole), **more))


def read(found: ModelAnalysis, **given: Number) -> Number:
    numbers = ModelNumbers(found)
    values = values_for(found, {**small.POINT, **given})
    totals, tree = numbers.totals(values), numbers.tree(values)
    assert tree.total.read == totals.read
    assert (totals.flops, totals.write) == (small.FLOPS, small.WRITE)
    return totals.read


def warnings(found: ModelAnalysis) -> list[str]:
    assert found.quantization is not None
    return found.quantization.warnings


def test_each_module_has_its_own_bytes() -> None:
    found = model(FP8)
    # Of 5,760 bytes, 3 * 64 weights of 2 bytes are now 64 bytes and 2 blocks of 4 * 8 with a float32 each.
    assert read(found) == small.READ - 3 * 128 + 3 * (64 + 2 * 4)
    # The table of the lookup is no linear layer: 256 elements at w_bytes.
    assert read(found, w_bytes=4) == read(found) + 256 * 2
    assert ModelNumbers(found).totals(values_for(found, small.POINT)).compulsory == small.COMPULSORY - 384 + 216
    assert warnings(found) == []


def test_bytes_that_are_fractions() -> None:
    config = {"quant_method": "gptq", "bits": 3, "group_size": 8}
    # 64 * 3/8 bytes; 8 rows with one group each, of a float16 and 3 bits; 8 inputs with an int32
    assert read(model(config)) == small.READ - 384 + 3 * (24 + 16 + 3 + 32)
    # 10 * 10 weights of 3 bits are 37.5 bytes; 10 rows with 2 groups, 20 * 2.375; 10 * 4
    product = basic(7, "2 * {batch_size} * {n} * {n}", "{batch_size} * {n} * {a_bytes} + {n} * {n} * {w_bytes}",
                    "{batch_size} * {n} * {a_bytes}", category="matmul")  # fmt: skip
    found = with_own_bytes(one_layer(product, config))
    numbers = ModelNumbers(found)
    values = values_for(found, {"batch_size": 1, "n": 10})
    assert numbers.totals(values).read == 20 + Fraction("37.5") + Fraction("47.5") + 40
    rows = [row for chunk in plan(found, {"batch_size": (1, 2), "n": (10, 11)}).chunks(numbers)
            for row in chunk.costs["read"].tolist()]  # fmt: skip
    expected = [numbers.totals({**values, "batch_size": b, "n": n}).read for b in (1, 2) for n in (10, 11)]
    assert rows == expected
    assert any(isinstance(row, Fraction) for row in rows)


def one_layer(product: Any, config: Any, name: str = "body.proj", class_name: str = LINEAR) -> ModelAnalysis:
    access = product.memory_access
    return small.model(
        parameters={"batch_size": "inputs.x.shape[0]", "n": "init.n"},
        values={},
        kernels=[module(3, name, class_name, [product])],
        totals=Totals(flops=product.flops, matmul_flops=product.flops, read=access.read, write=access.write),
        compulsory=None,
        quantization=Quantization(config=config, whole=True),
    )


def test_a_bias_stays_as_it_is() -> None:
    product = basic(7, "2 * {batch_size} * {n} * 8", "{batch_size} * 8 * {a_bytes} + {n} * 9 * {w_bytes}",
                    "{batch_size} * {n} * {a_bytes}", category="matmul")  # fmt: skip
    found = with_own_bytes(one_layer(product, FP8))
    totals = ModelNumbers(found).totals(values_for(found, {"batch_size": 5, "n": 16}))
    # 5 * 8 activations of 2; 16 * 8 weights of 1, in 4 blocks of 4 * 8; a bias of 16 elements of 2
    assert totals.read == 80 + 128 + 4 * 4 + 32


def test_experts_are_read_as_often_as_they_are_used() -> None:
    used = "min(4, {batch_size} * 2)"
    product = basic(7, "2 * {batch_size} * 2 * {n} * 64", f"{used} * {{n}} * 64 * {{w_bytes}} + "
                    "{batch_size} * 2 * 64 * {a_bytes} + 16", "{batch_size} * 2 * {n} * {a_bytes}",
                    category="grouped_matmul")  # fmt: skip
    biases = basic(8, "0", "{batch_size} * {n} * {w_bytes}", "0", category="gather")
    plain = one_layer(product, {"quant_method": "mxfp4"}, "body.experts", "a.Experts")
    kernels = [module(3, "body.experts", "a.Experts", [product, biases])]
    totals = plain.totals.model_copy(update={"read": f"{product.memory_access.read} + {biases.memory_access.read}"})
    found = with_own_bytes(plain.model_copy(update={"kernels": kernels, "totals": totals}))
    for batch, experts in ((1, 2), (9, 4)):
        totals = ModelNumbers(found).totals(values_for(found, {"batch_size": batch, "n": 32}))
        # an expert has 32 * 64 weights of 17/32 bytes; two rows of 64 activations, and biases of 2 bytes
        assert totals.read == experts * 1_088 + batch * 2 * 64 * 2 + 16 + batch * 32 * 2


def test_one_layer_that_stays() -> None:
    found = model({**FP8, "modules_to_not_convert": ["layers.1"]})
    assert read(found) == small.READ - 2 * 128 + 2 * (64 + 8)
    layers = [kernel for kernel in found.kernels if kernel.path]
    assert [(kernel.path, kernel.repeat) for kernel in layers] == [
        ("layers.0", "{num_hidden_layers} - 1"),
        ("layers.1", 1),
    ]
    assert layers[1].kernels[1].path == "layers.1.proj"
    assert warnings(found) == []


def test_one_layer_among_alternating_ones_is_said() -> None:
    base = small.model()
    first = next(kernel for kernel in base.kernels if kernel.path)
    inner = [
        kernel if kernel.path is None else kernel.model_copy(update={"path": "layers.1.proj"})
        for kernel in first.kernels
    ]
    second = first.model_copy(update={"path": "layers.1", "repeat": 2, "kernels": inner})
    kernels = [kernel if kernel.path is None else first.model_copy(update={"repeat": 2}) for kernel in base.kernels]
    found = model({**FP8, "modules_to_not_convert": ["layers.2"]}, kernels=[*kernels, second])
    (warning,) = warnings(found)
    assert (
        warning
        == "layers are quantized differently, and it is not known which they are: layers.0, layers.1 stand for all"
    )


def test_a_file_with_a_trillion_layers_takes_no_time() -> None:
    found = model(FP8, values={"hidden_size": 8, "num_hidden_layers": 10**12})
    assert "layers.0 stand for all" in warnings(found)[0]


def test_what_is_not_known_is_said_and_every_weight_has_w_bytes() -> None:
    for config, problem in (
        ({"quant_method": "qqq"}, "the quantization method 'qqq' is not known"),
        ("fp8", "quantization_config is no JSON object"),
        ({"quant_method": "gptq"}, "bits is None"),
        ({"quant_method": "mxfp4"}, "converts no module of the model"),
    ):
        found = model(config)
        assert read(found) == small.READ
        (warning,) = warnings(found)
        assert problem in warning
        assert warning.endswith("its weights are evaluated at w_bytes")
    (warning,) = warnings(model(FP8, whole=False))
    assert warning.startswith("Root is not the model that the config is of")


def test_a_product_in_another_class_is_said() -> None:
    base = small.model()
    own = basic(14, "0", "{hidden_size} * {w_bytes}", "0", category="matmul")
    found = model(FP8, kernels=[*base.kernels, own])
    (warning,) = warnings(found)
    assert "has them quantized: Root line 14" in warning


def test_a_checkpoint_that_is_not_quantised_is_as_it_was() -> None:
    plain = small.model()
    assert with_own_bytes(plain) is plain
    once = model(FP8)
    assert with_own_bytes(once) is once
    assert model({**FP8, "dequantize": True}).kernels == plain.kernels


def test_evaluations_carry_the_warnings() -> None:
    found = model({"quant_method": "qqq"})
    evaluation = ModelNumbers(found).evaluation(values_for(found, small.POINT))
    assert evaluation.warnings == warnings(found)
    assert MemoryAccess.model_validate(found.compulsory) == small.model().compulsory


def test_a_layer_that_is_split_off_has_ids_of_its_own() -> None:
    first = basic(1, "0", "0", "0", id="4.1", inputs_from=["3", "4.2"])
    second = basic(2, "0", "0", "0", id="4.2", inputs_from=["4.1", "cache"])
    moved = _moved(module(9, "layers.0", LINEAR, [first, second], id="4"), "layers", 7)
    assert (moved.id, moved.path) == ("4/7", "layers.7")
    # Its own kernels are sources in it. What is outside, as 3, stays.
    assert [(k.id, k.inputs_from) for k in moved.kernels] == [
        ("4/7.1", ["3", "4/7.2"]),
        ("4/7.2", ["4/7.1", "cache"]),
    ]
