"""Replies of replicas from the step model, of a stored model."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from lmp.predict.plan.layouts import Layout
from lmp.predict.plan.options import Serve
from lmp.predict.plan.planning import Requests
from lmp.predict.plan.serving import cache_width, server
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import profile_named
from lmp.predict.serve.compose import served
from lmp.predict.serve.served_model import ServedModel
from lmp.predict.serve.setup import Servers, Setup, Sources
from lmp.predict.serve.stepper import Stepper
from lmp.predict.serve.workload import Workload
from lmp.records import ModelAnalysis

sys.path.append(str(Path(__file__).parents[1]))
from holdings import held

RESULTS = Path(__file__).parents[3] / "analysis_results"
REQUESTS = Requests(1024, 256)
PREDICTOR = Predictor()


@pytest.fixture(scope="module")
def llama() -> ModelAnalysis:
    (file,) = RESULTS.glob("*.LlamaForCausalLM@*/model_analysis.json")
    return ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def serve(llama: ModelAnalysis) -> Serve:
    servers = Servers(Sources(lambda _: llama, lambda _: held()), PREDICTOR)
    return server(servers, Setup(model="llama", device="h100-sxm"), REQUESTS)


def test_the_cache_has_the_width_that_is_asked_for_or_that_the_engine_chooses() -> None:
    servers = Servers(Sources(no_model, lambda _: held()), PREDICTOR)
    widths = [
        cache_width(servers, Setup(model="llama", device="h100-sxm", engine=engine, dtype=dtype, kv_dtype=kv))
        for engine, dtype, kv in (("vllm", None, None), ("vllm", None, "fp8"), ("trtllm", "fp8", None))
    ]
    # TRT-LLM's profile has an fp8 cache beside fp8 weights.
    assert widths == [None, 1, 1]


def no_model(name: str) -> ModelAnalysis:
    raise AssertionError(name)


def test_one_gpu_is_the_step_model(llama: ModelAnalysis, serve: Serve) -> None:
    stepper = Stepper(ServedModel(llama), profile_named("vllm"), PREDICTOR.device("h100-sxm"), PREDICTOR)
    work = [Workload(isl=1024, osl=256, concurrency=batch) for batch in (1, 16)]
    alone, many = served(stepper, work)
    one, sixteen = serve(Layout(), [1, 16])
    assert (one.tpot, one.ttft, one.tokens_per_s) == (alone.tpot, alone.prefill, alone.tokens_per_s)
    # The time to the first token is that of a request alone, also beside a larger batch.
    assert (sixteen.tpot, sixteen.ttft) == (many.tpot, alone.prefill)


def test_more_gpus_are_faster_for_a_user_and_never_twice_as_fast(serve: Serve) -> None:
    times = [serve(Layout(tp), [16])[0].tpot[0] for tp in (1, 2, 4)]
    for few, many in pairwise(times):
        assert few / 2 < many < few


def test_stages_share_the_work_and_no_token_is_faster(serve: Serve) -> None:
    one, two = serve(Layout(), [16])[0], serve(Layout(pp=2), [32])[0]
    # Each stage has half of the layers and 16 of the 32 requests: about the same time of a token, twice the tokens/s.
    assert two.tpot[0] > 0.95 * one.tpot[0]
    assert one.tokens_per_s[0] < two.tokens_per_s[0] < 2.1 * one.tokens_per_s[0]
