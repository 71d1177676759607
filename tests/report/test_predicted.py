"""Predictions of a report: collectives with the arithmetic beside, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.predict.prediction import Predictor
from lmp.predict.rows import Collective
from lmp.predict.screen.card import EAGER_NAME as EAGER
from lmp.records import ModelAnalysis
from lmp.report.predictions import SERVING, collective_time, predictions_of

RESULTS = Path(__file__).parents[2] / "analysis_results"
POINT = {"batch_size": 1, "seq_len": 1, "cache_len": 2048}


@pytest.fixture(scope="module")
def llama() -> ModelAnalysis:
    (file,) = RESULTS.glob("*.LlamaForCausalLM@*/model_analysis.json")
    return ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))


def test_both_profiles_are_predicted_at_each_point(llama: ModelAnalysis) -> None:
    found = predictions_of(llama, "H100", {"decode": POINT})
    eager, serving = found.at("decode", EAGER), found.at("decode", SERVING)
    assert eager is not None
    assert serving is not None
    # Weights of 15.01 GB at 3.35 TB/s are 4.48 ms: neither is faster, and the engine launches fewer kernels.
    assert eager.us[0] > serving.us[0] > 4480
    assert serving.call.launches < eager.call.launches
    assert found.reason is None
    assert found.at("prefill", EAGER) is None


def test_an_unknown_device_is_a_reason(llama: ModelAnalysis) -> None:
    found = predictions_of(llama, "H1000", {"decode": POINT})
    assert not found.found
    assert found.reason is not None
    assert "H1000" in found.reason


def test_an_all_reduce_is_the_faster_of_two_libraries_and_times_add_up() -> None:
    rows = [
        Collective(op="collective", device="h100-sxm", kind="all_reduce", gpus=8, bytes=8192, library=library)
        for library in ("nccl", "custom")
    ]
    alone = min(one.us for one in Predictor().predict(rows))  # type: ignore[union-attr]
    found = collective_time("H100", {("all_reduce", 8192): 64}, 8)
    assert not isinstance(found, str)
    (us, low, high), calibration = found
    assert us == pytest.approx(64 * alone)
    assert low <= us <= high
    assert calibration.startswith("collective-")


def test_collectives_of_a_device_without_a_link_are_refused_in_words() -> None:
    assert isinstance(collective_time("H1000", {("all_reduce", 8192): 1}, 8), str)
