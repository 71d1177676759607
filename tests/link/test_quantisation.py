"""What a `quantization_config` says, in the forms that published configs and transformers' config classes have."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from lmp.formula import Var, evaluate_exact
from lmp.link.quantisation import Scheme, Storage, config_of, scheme_of

LINEAR = "torch.nn.modules.linear.Linear"
Q = "model.layers.3.self_attn.q_proj"
EXPERTS = "model.layers.3.mlp.experts"


def scheme(method: str | None, **more: Any) -> Scheme:
    found = scheme_of({**({} if method is None else {"quant_method": method}), **more})
    assert found is not None
    return found


def size(found: Scheme, rows: int, columns: int, path: str = Q, class_name: str = LINEAR) -> Any:
    assert found.problem is None
    storage = found.storage(path, class_name)
    return None if storage is None else storage.size(rows, columns)


# --- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # 256 * 512 weights of a byte, and 2 * 4 blocks of 128 * 128 with a float32
        (scheme("fp8", weight_block_size=[128, 128]), 131_072 + 8 * 4),
        (scheme("fp8", weight_block_size=[128, 128], scale_fmt="ue8m0"), 131_072 + 8),
        (scheme("fp8", weight_block_size=None), 131_072 + 4),
        (scheme("fp8", activation_scheme="static", weight_block_size=None), 131_072 + 4 + 4),
        # a float32 for each of 256 rows
        (scheme("fbgemm_fp8"), 131_072 + 256 * 4),
        (scheme("bitsandbytes", load_in_8bit=True), 131_072 + 256 * 4),
        # half a byte; 131,072 / 64 = 2,048 float32
        (scheme("bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4"), 65_536 + 2_048 * 4),
        # 2,048 bytes, 2,048 / 256 = 8 float32, and one for the mean
        (scheme(None, load_in_4bit=True, bnb_4bit_use_double_quant=True), 65_536 + 2_048 + 8 * 4 + 4),
        # 256 * 512 / 128 = 1,024 groups of a float16 and 4 bits; 512 inputs with an int32
        (scheme("gptq", bits=4, group_size=128), 65_536 + 1_024 * 2 + 512 + 512 * 4),
        (scheme("gptq", bits=8, group_size=-1), 131_072 + 256 * 2 + 256 + 512 * 4),
        (scheme("awq", bits=4, group_size=128, zero_point=True), 65_536 + 1_024 * 2 + 512),
        (scheme("awq", bits=4, group_size=64, zero_point=False), 65_536 + 2_048 * 2),
        # 4 bits, and a float16 for each 128
        (scheme("compressed-tensors", config_groups={"g": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}}}),
         65_536 + 1_024 * 2),
        (scheme("compressed-tensors", config_groups={"g": {"targets": ["Linear"], "weights": {
            "num_bits": 8, "type": "float", "strategy": "channel"}}}), 131_072 + 256 * 2),
        # nvfp4: 131,072 / 16 = 8,192 scales of a byte, and a float32
        (scheme("compressed-tensors", config_groups={"g": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}), 65_536 + 8_192 + 4),
    ],
)  # fmt: skip
def test_bytes_of_a_matrix(found: Scheme, expected: int) -> None:
    assert size(found, 256, 512) == expected


def test_blocks_that_a_matrix_does_not_fill_have_a_scale_too() -> None:
    # 576 / 128 = 4.5: 5 rows of blocks, 7,168 / 128 = 56
    assert size(scheme("fp8", weight_block_size=[128, 128]), 576, 7_168) == 576 * 7_168 + 5 * 56 * 4


def test_a_formula_is_the_number() -> None:
    for found in (
        scheme("fp8", weight_block_size=[128, 64]),
        scheme("gptq", bits=3, group_size=32),
        scheme(None, load_in_4bit=True, bnb_4bit_use_double_quant=True),
    ):
        storage = found.storage(Q, LINEAR)
        assert isinstance(storage, Storage)
        for rows, columns in ((256, 512), (100, 70), (1, 1)):
            formula = storage.formula(Var("n"), Var("k"))
            assert evaluate_exact(formula, {"n": rows, "k": columns}) == storage.size(rows, columns)


def test_mxfp4_converts_experts_alone() -> None:
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    found = scheme("mxfp4", modules_to_not_convert=names)
    # 32 weights are 16 bytes and one scale: 17/32 of a byte each
    assert size(found, 64, 64, EXPERTS, "a.Experts") == Fraction(17, 32) * 4_096
    assert size(found, 64, 64, Q) is None
    assert size(found, 64, 64, "model.layers.3.mlp.router", "a.Router") is None


# --- modules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["lm_head"], {"lm_head"}),
        (["gate"], {"model.layers.0.mlp.gate"}),  # the end of a path, and not gate_proj
        (["model.layers.0"], {"model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj"}),  # not layers.10
        (["model.layers.*.gate_proj"], {"model.layers.0.mlp.gate_proj", "model.layers.10.mlp.gate_proj"}),
    ],
)
def test_names_that_stay(names: list[str], kept: set[str]) -> None:
    paths = ["lm_head", "model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", "model.layers.10.mlp.gate_proj"]
    found = scheme("fp8", modules_to_not_convert=names)
    assert {path for path in paths if found.storage(path, LINEAR) is None} == kept


def test_the_output_stays_unless_the_config_names_what_does() -> None:
    for method, more in (("fp8", {}), ("gptq", {"bits": 4}), ("awq", {"bits": 4})):
        assert scheme(method, **more).storage("lm_head", LINEAR) is None
        assert scheme(method, **more).storage(Q, LINEAR) is not None
    assert scheme("gptq", bits=4, lm_head=True).storage("lm_head", LINEAR) is not None
    assert scheme("fp8", modules_to_not_convert=["gate"]).storage("lm_head", LINEAR) is not None
    assert scheme("awq", bits=4, modules_to_not_convert=["gate"]).storage("lm_head", LINEAR) is None


def test_kinds_that_no_method_converts() -> None:
    for name in ("torch.nn.modules.sparse.Embedding", "torch.nn.modules.normalization.RMSNorm", "a.TopKRouter"):
        assert scheme("fp8").storage("model.layers.0.x", name) is None
    assert scheme("bitsandbytes", load_in_4bit=True).storage(EXPERTS, "a.Experts") is None
    assert scheme("fp8", dequantize=True).storage(Q, LINEAR) is None


def test_groups_and_ignored_names_of_compressed_tensors() -> None:
    def weights(bits: int) -> dict[str, Any]:
        return {"num_bits": bits, "type": "int", "strategy": "tensor"}

    groups = {
        "a": {"targets": ["re:.*self_attn.*"], "weights": weights(8)},
        "b": {"targets": ["Linear"], "weights": weights(4)},
    }
    found = scheme("compressed-tensors", config_groups=groups, ignore=["lm_head", r"re:.*mlp\.gate$"])
    assert size(found, 8, 8) == 64 + 2
    assert size(found, 8, 8, "model.layers.0.mlp.up_proj") == 32 + 2
    assert size(found, 8, 8, EXPERTS, "a.Experts") == 32 + 2
    assert size(found, 8, 8, "model.layers.0.mlp.gate") is None
    assert size(found, 8, 8, "lm_head") is None


# --- what cannot be used ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"quant_method": "qqq"}, "the quantization method 'qqq' is not known"),
        ({}, "the quantization method 'none' is not known"),
        ("fp8", "quantization_config is no JSON object"),
        (["fp8"], "quantization_config is no JSON object"),
        ({"quant_method": "fp8", "bits": 4}, "fp8 with bits 4"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size is [128], not two whole numbers"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size is 0"),
        ({"quant_method": "fp8", "modules_to_convert": ["embed"]}, "modules_to_convert"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert is 'lm_head'"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["("]}, "the pattern '(' cannot be read"),
        ({"quant_method": "gptq"}, "bits is None, not 2, 3, 4 or 8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:x": {}}}, "single modules"),
        ({"quant_method": "awq", "bits": "4"}, "bits is '4'"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit and load_in_8bit are both false"),
        ({"load_in_4bit": True, "load_in_8bit": True}, "load_in_4bit and load_in_8bit are both true"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "int4"}, "bnb_4bit_quant_type is 'int4'"),
        ({"quant_method": "compressed-tensors"}, "there are no config_groups"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 3}}}},
            "weights have 3 bits",
        ),
    ],
)
def test_what_cannot_be_used_is_said(config: Any, problem: str) -> None:
    found = scheme_of(config)
    assert found is not None
    assert problem in (found.problem or "")
    assert "\n" not in (found.problem or "")
    assert found.storage(Q, LINEAR) is None


def test_a_pattern_of_a_file_cannot_take_long() -> None:
    for pattern in ("(a+)+$", "a*a*a*a*a*$", "(a|a)*$", "x" * 500):
        found = scheme("fp8", modules_to_not_convert=[pattern])
        assert "longer or repeats more than lmp tries" in (found.problem or "")
    assert scheme("fp8", modules_to_not_convert=[".*.*.*b"]).storage("a." * 50 + "c", LINEAR) is not None


def test_where_a_config_has_it() -> None:
    inner = {"quant_method": "fp8"}
    assert config_of({"text_config": {"quantization_config": inner}}) == inner
    assert config_of({"compression_config": inner}) == inner
    assert config_of({"hidden_size": 8}) is None
    assert config_of(None) is None
    assert scheme_of(None) is None
