"""Hand-ins that were written from the printed prompt and the sources alone: the gate takes them as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmp.agents.submission import Submitted, submit
from lmp.analyze.session import Options

DATA = Path(__file__).parents[1] / "data" / "submissions"
PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Path:
    return tmp_path_factory.mktemp("results")


def read_draft(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def submitted(draft: dict[str, Any], results: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Submitted:
    monkeypatch.chdir(PROJECT)
    return submit(draft["class_name"], draft, Options(results=results, **options), lambda name, stage: None)


@pytest.mark.parametrize(
    "name", ["LlamaRMSNorm", "LlamaAttention", "Qwen2MoeTopKRouter", "fresh/LlamaRMSNorm", "fresh/LlamaAttention"]
)
def test_whoever_has_the_prompt_and_the_sources_can_submit(
    name: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = submitted(read_draft(name), results, monkeypatch)
    assert done.hand_in.findings == []
    assert (done.hand_in.accepted, done.hand_in.status) == (True, "verified")
    assert done.analysis is not None
    assert [entry.stage for entry in done.analysis.provenance] == ["submitted"]


def test_another_attention_is_another_answer(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = read_draft("LlamaAttention-eager")
    assert submitted(draft, results, monkeypatch, attention="eager").hand_in.status == "verified"
    assert not submitted(draft, results, monkeypatch).hand_in.accepted


def test_without_the_copy_that_is_not_evident_it_is_refused(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = read_draft("LlamaAttention")
    last = next(kernel for kernel in draft["kernels"] if kernel["operation"] == "copy to contiguous memory")
    last["memory_access"] = {"read": "0", "write": "0"}
    done = submitted(draft, results, monkeypatch)
    assert not done.hand_in.accepted
    assert [(f.rule, f.line, f.quantity) for f in done.hand_in.findings] == [("numbers", 206, "read, write")]


def test_the_cache_at_the_width_of_activations_is_refused(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = read_draft("LlamaAttention")
    keys = next(kernel for kernel in draft["kernels"] if kernel["operation"] == "keys appended to the cache")
    keys["memory_access"] = {name: f.replace("kv_bytes", "a_bytes") for name, f in keys["memory_access"].items()}
    found = submitted(draft, results, monkeypatch).hand_in.findings
    # In prefill nothing cached is read, but what is written is in the cache from then on.
    assert [(f.line, f.quantity) for f in found] == [(136, "read, write")]
    read, write = found[0].message.partition(". ")[0].split("; ")
    assert "at prefill" not in read
    assert "at prefill: " in write
