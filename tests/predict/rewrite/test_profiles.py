"""Profiles of engines, and the time of a step with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_lists import evaluated
from lmp.errors import UsageError
from lmp.predict.devices import device_named
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import profile_named, profiles
from lmp.predict.rewrite.rewriting import RULES
from lmp.predict.rewrite.timing import OfEngine, Step, time_of_step
from lmp.predict.rows import row_of

H100 = device_named("h100-sxm")


def test_a_step_has_the_profiles_overhead_and_is_shorter_than_eager() -> None:
    kernels, values = evaluated("LlamaForCausalLM", batch_size=16, seq_len=1, cache_len=8192)
    step = Step(kernels, values)
    predictor = Predictor()
    times = {
        name: time_of_step(step, profile, OfEngine(predictor, profile.kernels), H100)
        for name, profile in profiles().items()
    }
    # 32 layers of 10 kernels, and the lookup, the last norm and the logits.
    assert times["vllm"].call.launches == 32 * 10 + 3
    assert times["vllm"].us[0] < times["transformers-compiled"].us[0] < times["transformers-eager"].us[0]
    more = profiles()["vllm"].model_copy(update={"overhead_us": 250.0})
    with_overhead = time_of_step(step, more, OfEngine(predictor, more.kernels), H100)
    assert with_overhead.us[0] == pytest.approx(times["vllm"].us[0] + 250)


def test_a_mixture_is_what_predict_op_says_of_it() -> None:
    kernels, values = evaluated("Qwen3MoeForCausalLM", batch_size=16, seq_len=1, cache_len=64)
    found = time_of_step(Step(kernels, values), profile_named("vllm"), OfEngine(Predictor(), "vllm"), H100)
    row = {"op": "moe", "device": "h100-sxm", "engine": "vllm", "tokens": 16, "hidden": 2048, "inter": 768, "topk": 8,
           "experts": 128, "gated": True}  # fmt: skip
    (alone,) = Predictor().predict([row_of(row)])
    assert alone in [one.time for one in found.call.operators]


def test_a_slow_path_of_the_measurements_stands_for_no_engine() -> None:
    row = {"op": "moe", "device": "h100-sxm", "dtype": "fp8", "tokens": 16, "hidden": 2048, "inter": 768, "topk": 8,
           "experts": 128}  # fmt: skip
    assert OfEngine(Predictor(), "vllm").predict([row_of(row)]) == Predictor().predict([row_of(row)])


def test_a_profile_with_an_unknown_rule_names_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[mine]\nrules = ["norm", "ropes"]\n')
    with pytest.raises(UsageError, match="mine names the unknown rule 'ropes'\nknown are bias, wide_product, norm,"):
        profile_named(str(file))
    file.write_text('[mine]\nrules = ["norm"]\ncache_bytes = 1\noverhead_us = 300\n')
    assert profile_named(str(file)).overhead_us == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nrules = []\n[b]\nrules = []\n", "has 2 profiles"),
        ("[a]\n", "a.rules: Field required"),
        ("[a]\nrules = []\noverhead_us = -1\n", "a.overhead_us"),
        ("rules = ", "is no TOML"),
    ],
)
def test_a_profile_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        profile_named(str(tmp_path / "mine.toml"))


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(UsageError, match="no profile of the engine 'vlm'\ndid you mean vllm"):
        profile_named("vlm")
    with pytest.raises(UsageError, match="cannot be read"):
        profile_named("nowhere.toml")


def test_every_rule_is_in_a_profile() -> None:
    assert {rule for profile in profiles().values() for rule in profile.rules} == set(RULES)
