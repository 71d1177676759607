"""The step model against the exact lists of one call after the other; and which modules stay in 16 bits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from lmp.errors import UsageError
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import profiles
from lmp.predict.rewrite.timing import OfEngine, time_of_step
from lmp.predict.serve.regimes import Sizes
from lmp.predict.serve.served_model import ServedModel
from lmp.predict.serve.stepper import ATTENTION, Stepper
from lmp.records import ModelAnalysis

RESULTS = Path(__file__).parents[3] / "analysis_results"
CALLS: list[Sizes] = [
    (16, 1, 2048), (1, 1, 100), (200, 1, 7777), (1, 1024, 0), (1, 777, 2000), (3, 515, 1027), (2, 64, 0), (8, 4, 900),
]  # fmt: skip


@cache
def model(name: str) -> ModelAnalysis:
    (folder,) = RESULTS.glob(f"*{name}*")
    return ModelAnalysis.model_validate_json((folder / "model_analysis.json").read_text())


def stepper(name: str, dtype: str | None, kv_dtype: str | None, engine: str = "vllm") -> Stepper:
    predictor = Predictor()
    served = ServedModel(model(name), dtype, kv_dtype)
    # A single call's rows are balanced.
    return Stepper(served, profiles()[engine], predictor.device("h100-sxm"), predictor, "balanced")


@pytest.mark.parametrize(
    ("name", "dtype", "kv_dtype", "engine"),
    [
        ("LlamaForCausalLM", "fp8", "fp8", "trtllm"),
        ("LlamaForCausalLM", "bfloat16", None, "sglang"),
        ("Qwen3MoeForCausalLM", "fp8", None, "vllm"),
        ("GptOssForCausalLM", None, None, "vllm"),
    ],
)
def test_steps_are_those_of_the_exact_lists(name: str, dtype: str | None, kv_dtype: str | None, engine: str) -> None:
    steps = stepper(name, dtype, kv_dtype, engine)
    own = OfEngine(steps.predictor, steps.profile.kernels)
    for call, found in zip(CALLS, steps.steps(CALLS), strict=True):
        exact = time_of_step(steps.served.step(call), steps.profile, own, steps.device).us
        # Bytes of a fused kernel may be attributed otherwise where two tensors happen to have one size.
        assert found == pytest.approx(exact, rel=1e-3), call


def test_a_step_is_the_same_among_others_and_alone() -> None:
    steps = stepper("LlamaForCausalLM", "fp8", None)
    together = steps.steps([*CALLS, *CALLS[:2]])
    assert together[0] == together[len(CALLS)]
    assert [pytest.approx(steps.steps([call])[0]) for call in CALLS] == together[: len(CALLS)]
    assert steps.steps([]) == []


def test_parts_of_a_step_add_up() -> None:
    steps = stepper("Qwen3MoeForCausalLM", "bfloat16", None)
    whole, attention = steps.times(CALLS), steps.times(CALLS, ATTENTION)
    rest = steps.times(CALLS, without=ATTENTION)
    assert (attention + rest).us.tolist() == pytest.approx(whole.us.tolist())
    assert sum(part for part in whole.parts.values()).tolist() == pytest.approx(whole.us.tolist())  # type: ignore[union-attr]
    assert all(name.partition("/")[0] in ATTENTION for name in attention.parts)


def test_logits_and_routers_stay_in_16_bits() -> None:
    scheme = ServedModel(model("Qwen3MoeForCausalLM"), "fp8").scheme
    assert scheme is not None
    kept = {path for path in ("lm_head", "model.layers.0.mlp.gate", "model.layers.0.self_attn.q_proj",
                              "model.layers.0.self_attn.v_proj", "model.layers.0.mlp.experts")
            if scheme.storage(path, "torch.nn.modules.linear.Linear") is not None}  # fmt: skip
    assert kept == {"lm_head", "model.layers.0.mlp.gate"}
    assert ServedModel(model("Qwen3MoeForCausalLM"), "bfloat16").scheme is None


def test_a_quantised_checkpoint_is_served_as_it_is() -> None:
    served = ServedModel(model("GptOssForCausalLM"))
    # mxfp4: experts of 4 bits with a scale of 8 bits for 32 of them.
    assert served.scheme is not None
    assert served.scheme.method == "mxfp4"


def test_unknown_dtypes_are_refused() -> None:
    with pytest.raises(UsageError, match="dtype 'int4' is not served\nknown are bfloat16, fp8"):
        ServedModel(model("LlamaForCausalLM"), "int4")


def test_a_device_without_fp8_is_refused() -> None:
    predictor = Predictor()
    served = ServedModel(model("LlamaForCausalLM"), "fp8")
    steps = Stepper(served, profiles()["vllm"], predictor.device("a100-sxm"), predictor)
    with pytest.raises(UsageError, match="a100-sxm has no fp8"):
        steps.steps([(1, 1, 100)])
