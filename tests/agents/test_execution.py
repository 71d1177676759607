"""What a prompt says of a class that is executed: how it is called, which lines ran, and nothing that was counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.agents.facts import Facts, constructor_text, execution_text, source_text, statements_text
from lmp.agents.prompts import analyzer_prompt, facts_of
from lmp.analyze.session import Options, Session
from lmp.errors import Missing
from lmp.records import ModuleAnalysis

PROJECT = Path(__file__).parents[2]
LLAMA = "transformers.models.llama.modeling_llama"
MODELING = "src/transformers/models/llama/modeling_llama.py"


def nothing_stored(class_path: str) -> ModuleAnalysis:
    raise Missing(f"there is no analysis of {class_path} yet\nmake one")


def facts(class_path: str, folder: Path) -> Facts:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        session = Session(Options(results=folder), lambda name, stage: None)
        return facts_of(session, session.locate(class_path), nothing_stored)


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Facts:
    return facts(f"{LLAMA}.LlamaAttention", tmp_path_factory.mktemp("results"))


def test_the_functions_that_ran_are_quoted(attention: Facts) -> None:
    text = source_text(attention)
    for name in ("LlamaAttention.forward", "apply_rotary_pos_emb", "rotate_half", "sdpa_attention_forward"):
        assert f"`{name}`: " in text
    assert "`DynamicLayer.update`: src/transformers/cache_utils.py" in text
    assert "self.keys = torch.cat([self.keys, key_states], dim=-2)" in text
    assert "`eager_attention_forward`" not in text
    assert "- eager_attention_forward: " in text.partition("run at no verification point")[2]


def test_the_functions_that_decide_are_named(attention: Facts) -> None:
    asked = source_text(attention).partition("what they return may decide")[2].partition("Named in the source")[0]
    assert "- use_gqa_in_sdpa: src/transformers/integrations/sdpa_attention.py" in asked


def test_what_each_point_is_called_with(attention: Facts) -> None:
    text = execution_text(attention)
    assert "1. prefill: batch_size=3, seq_len=11, cache_len=0\n  - hidden_states: bfloat16 [3, 11, 4096]" in text
    # cos and sin are made once for all sequences
    assert "position_embeddings[0]: bfloat16 [1, 11, 128]" in text
    assert "attention_mask: None" in text
    # a mask that is expanded over the batch: 6 new tokens, 9 cached
    assert "attention_mask: bool [2, 1, 6, 15], strides [0, 90, 15, 1]" in text
    assert "past_key_values: a KV cache (DynamicCache) that holds cache_len tokens" in text
    assert "self.q_proj: torch.nn.modules.linear.Linear(in_features=4096, out_features=4096, bias=False)" in text


def test_only_what_the_class_reads_of_the_config(attention: Facts) -> None:
    assert "config.num_key_value_heads=8" in execution_text(attention)
    assert "vocab_size" not in execution_text(attention)
    assert "- config.attention_bias = False" in constructor_text(attention)


def test_lines_that_ran_at_some_points_only(attention: Facts) -> None:
    text = statements_text(attention)
    cached = [call.number for call in attention.executed.calls if "cache_len=0" not in call.point]  # type: ignore[union-attr]
    grouped = next(line for line in text.splitlines() if "key = repeat_kv(" in line)
    # heads are repeated with a mask and fewer key heads only: the chunked prefills with other ratios, and with one head
    points = grouped.partition("only at points ")[2].partition(":")[0].split(", ")
    assert len(points) == 2
    assert {int(point) for point in points} <= set(cached)
    assert "- 164: not run: `is_causal = is_causal.item()`" in text
    assert "- 243: `query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)`" in text


def test_nothing_that_was_counted_is_told(attention: Facts) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        trees = Session(Options(results=PROJECT), lambda name, stage: None).trees
    prompt = analyzer_prompt(attention, trees)
    # of the first point, 3 x 11 tokens: FLOPs of q's product, and of attention (32 heads of 128)
    for number in (2 * 33 * 4096 * 4096, 4 * 3 * 32 * 121 * 128):
        assert str(number) not in prompt.message
    assert "no analysis of it: there is no analysis of torch.nn.modules.linear.Linear yet" in prompt.message


def test_a_class_that_takes_numbers(tmp_path: Path, transformers_tree: Path) -> None:
    norm = facts(f"{LLAMA}.LlamaRMSNorm", tmp_path)
    text = execution_text(norm)
    assert "self.weight: parameter, bfloat16 [6]" in text
    assert "5. other sizes: batch_size=3, seq_len=11, cache_len=0; with init.hidden_size=48" in text
    assert norm.callees == ()


def test_a_class_that_cannot_be_executed(
    tmp_path: Path, transformers_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmp.errors import TraceFailed

    def fails(class_path: str, session: Session) -> None:
        raise TraceFailed("it needs a device that is not here\nuse another machine")

    monkeypatch.setattr("lmp.agents.prompts.execution_of", fails)
    norm = facts(f"{LLAMA}.LlamaRMSNorm", tmp_path)
    assert execution_text(norm).startswith("It cannot be executed here: it needs a device that is not here\n")
    assert "- 63: `hidden_states = hidden_states.to(torch.float32)`" in statements_text(norm)
    assert "`LlamaRMSNorm.forward`: " + MODELING in source_text(norm)
