"""What a prompt says of a class that is executed: how it is called, which lines ran, and nothing that was counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.agents.facts import Facts, constructor_text, execution_text, source_text, statements_text
from lmp.agents.prompts import analyzer_prompt, facts_of, prompt_of_class
from lmp.agents.unwritten import unwritten
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


def test_the_functions_that_decide_are_quoted_if_they_are_short(attention: Facts) -> None:
    asked = source_text(attention).partition("what they return may decide")[2].partition("Named in the source")[0]
    assert "`use_gqa_in_sdpa`: src/transformers/integrations/sdpa_attention.py" in asked
    assert "- AttentionInterface.get_interface: src/transformers/modeling_utils.py, lines " in asked


def test_what_decides_nothing_is_left_out_and_said(attention: Facts) -> None:
    text = source_text(attention)
    assert text.startswith(
        "Blank lines, docstrings and lines that are comments are left out: their numbers are missing."
    )
    assert "Applies Rotary Position Embedding" not in text  # a docstring
    assert "SDPA's Flash Attention (and cuDNN) kernels rely on" not in text  # a comment
    # Statements of another file that ran at no point.
    assert "is_causal = is_causal.item()" not in text
    assert re.search(r"\(without lines [\d, -]+, which ran at no point\)", text)
    # Of the class's own file they stay: they are to be listed.
    assert "240 " in text


def test_what_each_point_is_called_with(attention: Facts) -> None:
    text = execution_text(attention, attention.sets)
    assert "\n1. prefill (3, 11, 0)\n" in text
    assert "hidden_states bfloat16 [batch_size, seq_len, hidden_size]" in text
    # cos and sin are made once for all sequences
    assert "position_embeddings[0] bfloat16 [1, seq_len, 128]" in text or "[1, seq_len, head_dim]" in text
    # a mask that is expanded over the batch
    assert "attention_mask bool [batch_size, 1, seq_len, seq_len + cache_len] (broadcast along [0])" in text
    assert "past_key_values a KV cache (DynamicCache) of cache_len tokens" in text
    alike = "self.q_proj, self.k_proj, self.v_proj, self.o_proj: torch.nn.modules.linear.Linear"
    assert f"{alike}(in_features=4096, out_features=4096, bias=False)" in text


def test_only_what_the_class_reads_of_the_config(attention: Facts) -> None:
    text = execution_text(attention, attention.sets)
    assert "config.num_key_value_heads=8" in text
    assert "vocab_size" not in text
    assert "- config.attention_bias = False" in constructor_text(attention)


def test_a_set_of_points_has_one_name_everywhere(attention: Facts) -> None:
    sets = attention.sets
    statements, execution = statements_text(attention, sets), execution_text(attention, sets)
    executed = attention.executed
    assert executed is not None
    named = dict(re.findall(r"([A-Z]\d*) = ([\d, -]+)", execution.rpartition("Sets of points: ")[2]))
    # heads are repeated with a mask and fewer key heads only: the chunked prefills with other ratios, and with one head
    line = next(line for line in statements.splitlines() if "`sdpa_attention_forward`" in line)
    [name] = re.findall(r"only at ([A-Z]\d*): [\d, ]*137", line)
    points = [int(point) for point in named[name].split(", ")]
    assert len(points) == 2
    assert set(points) <= {call.number for call in executed.calls if call.runtime["cache_len"]}
    assert re.search(r"not run: [\d, -]*164", line)
    own = next(line for line in statements.splitlines() if "`LlamaAttention.forward`" in line)
    assert f"in {MODELING}: 240, 241, 243, 244, 245, " in own or "243, 244, 245" in own
    assert set(re.findall(r"only at ([A-Z]\d*):", statements)) <= named.keys()


@pytest.mark.parametrize(
    "name",
    ["llama.modeling_llama.LlamaAttention", "gpt2.modeling_gpt2.GPT2Attention", "bert.modeling_bert.BertSelfAttention"],
)
def test_the_prompt_of_an_attention_class_has_at_most_12000_tokens(
    name: str, tmp_path: Path, transformers_tree: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        session = unwritten(Session(Options(results=tmp_path / "results"), lambda name, stage: None))
        prompt = prompt_of_class(session, f"transformers.models.{name}")
    assert prompt.tokens <= 12_000
    assert not (tmp_path / "results").exists()


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
    text = execution_text(norm, norm.sets)
    assert "self.weight: parameter, bfloat16 [6]" in text
    assert "5. other sizes (3, 11, 0); init.hidden_size=48" in text
    assert norm.callees == ()


def test_a_class_that_cannot_be_executed(
    tmp_path: Path, transformers_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmp.errors import TraceFailed

    def fails(class_path: str, session: Session) -> None:
        raise TraceFailed("it needs a device that is not here\nuse another machine")

    monkeypatch.setattr("lmp.agents.prompts.execution_of", fails)
    norm = facts(f"{LLAMA}.LlamaRMSNorm", tmp_path)
    assert execution_text(norm, norm.sets).startswith(
        "It cannot be executed here: it needs a device that is not here\n"
    )
    assert f"- `LlamaRMSNorm.forward` in {MODELING}: 63, 64, " in statements_text(norm, norm.sets)
    assert "`LlamaRMSNorm.forward`: " + MODELING in source_text(norm)


def test_a_point_that_another_part_of_the_model_refuses_is_left_out(tmp_path: Path, transformers_tree: Path) -> None:
    """SigLIP's text model has 64 positions, so the whole model does not run at 150 tokens; its attention would."""
    found = facts("transformers.models.siglip.modeling_siglip.SiglipAttention", tmp_path)
    assert found.executed is not None
    assert found.executed.calls
    assert all(call.runtime["seq_len"] <= 64 for call in found.executed.calls)
