"""A module that is called on a tensor of the KV cache: what its reference must say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmp.agents.gate import Gate
from lmp.agents.subject import ClassSubject
from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options, Session
from lmp.records import Draft, ModuleAnalysis

ATTENTION = "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Attention"
LINEAR = "${{torch.nn.modules.linear.Linear}}"
SIZES = (
    "batch_size={batch_size}, seq_len={seq_len} + {cache_len}, in_features={kv_lora_rank}, "
    "out_features={num_heads} * ({qk_nope_head_dim} + {v_head_dim}), bias=0"
)


@pytest.fixture(scope="module")
def latent(small: Callable[[str], Options], transformers_tree: Path) -> tuple[Gate, ModuleAnalysis]:
    options = small("small-latent")
    analysis, _ = load_for_evaluation(ATTENTION, options, lambda name, stage: None)
    return Gate(ClassSubject(Session(options, lambda name, stage: None), ATTENTION)), analysis


def with_reference(analysis: ModuleAnalysis, read: str) -> dict[str, Any]:
    """The analysis with kv_b_proj as a reference, in place of the operators that run inside."""
    data = copy.deepcopy(analysis.model_dump(mode="json"))
    place = next(k for k in data["kernels"] if k["code"].startswith("kv_nope = self.kv_b_proj(kv_nope)"))
    call = {
        **{name: place[name] for name in ("line", "function")},
        **{"kernel_type": "composite", "operation": "kv_b_proj", "category": "module", "path": "kv_b_proj"},
        **{"analysis": "on the cached latents", "flops": f"{LINEAR}({SIZES})"},
        "memory_access": {"read": f"{LINEAR}({SIZES}{read})", "write": f"{LINEAR}({SIZES})"},
    }
    others = [k for k in data["kernels"] if (k["file"], k["line"]) != (place["file"], place["line"])]
    return {**{name: data[name] for name in Draft.model_fields}, "kernels": [*others, call]}


def test_its_read_binds_the_size_of_the_cache(latent: tuple[Gate, ModuleAnalysis]) -> None:
    gate, analysis = latent
    verdict = gate.check(with_reference(analysis, ", a_bytes={kv_bytes}"))
    assert verdict.findings == ()
    assert verdict.analysis is not None
    assert verdict.analysis.verification.status == "verified"


def test_as_a_call_on_activations_it_is_refused(latent: tuple[Gate, ModuleAnalysis]) -> None:
    gate, analysis = latent
    (finding,) = gate.check(with_reference(analysis, "")).findings
    assert (finding.rule, finding.quantity) == ("numbers", "read")
    # 3 * 11 tokens of 20 numbers in the cache, at 7 bytes and not at 5.
    assert "seq_len=11, cache_len=0" in finding.point
    assert int(finding.counted) - int(finding.claimed) == 3 * 11 * 20 * (7 - 5)
