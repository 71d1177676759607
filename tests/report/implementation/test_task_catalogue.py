"""Section 5: tasks told apart by what calls them, with the sizes that they have in every layer and phase."""

from __future__ import annotations

from pathlib import Path

from written_reports import report, section_text, whole

from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import Catalogue, Row


def text_of(facts: ModelFacts) -> str:
    return section_text(whole(facts), "5.")


def rows(facts: ModelFacts, words: str, attribute: str = "") -> list[Row]:
    found = Catalogue(facts).rows.values()
    return [row for row in found if row.words == words and row.place.attribute.endswith(attribute)]


def cells(facts: ModelFacts, row: Row) -> list[str]:
    lines = text_of(facts).splitlines()
    return next(line for line in lines if line.startswith(f"| {row.key} |")).split(" | ")


def test_products_of_experts_are_two_tasks(small_latent: ModelFacts, transformers_tree: Path) -> None:
    up, down = rows(small_latent, "grouped matrix multiplication over experts")
    # integrations/moe.py: proj_out of gate_up_proj goes through the gate to the product with down_proj.
    assert up.place.line == down.place.line
    assert up.key not in down.depends
    assert down.key not in up.depends
    text = (transformers_tree / "integrations/moe.py").read_text(encoding="utf-8").splitlines()
    calls = [n for n, line in enumerate(text, 1) if "proj_out = _grouped_linear(" in line]
    for row, line in zip((up, down), calls, strict=True):
        assert f"moe.py:{line + 1}" in cells(small_latent, row)[2] or f"moe.py:{line}" in cells(small_latent, row)[2]
    assert "× `(2 * moe_intermediate_size)` × `hidden_size`" in cells(small_latent, up)[3]
    assert "× `hidden_size` × `moe_intermediate_size`" in cells(small_latent, down)[3]


def test_sizes_of_both_kinds_of_layers(small_latent: ModelFacts) -> None:
    (gate,) = rows(small_latent, "matrix multiplication", "gate_proj")
    tiling = cells(small_latent, gate)[3]
    # DeepseekV3MLP is the first layer's, and the shared expert of the others.
    assert "`(batch_size * seq_len)` × `intermediate_size` × `hidden_size` or " in tiling
    assert "× `(moe_intermediate_size * n_shared_experts)` ×" in tiling


def test_sizes_that_only_decode_has(small_latent: ModelFacts) -> None:
    (expand,) = rows(small_latent, "matrix multiplication", "kv_b_proj")
    # expand_kv() runs over the latent vectors that update() returns: all cached ones and the new one.
    assert "in decode `(batch_size * (cache_len + 1))` × " in cells(small_latent, expand)[3]
    (queries,) = rows(small_latent, "matrix multiplication", "q_a_proj")
    assert "in decode" not in cells(small_latent, queries)[3]


def test_layers_that_a_task_is_of(small_latent: ModelFacts, small_llama: ModelFacts) -> None:
    (router,) = rows(small_latent, "sigmoid")
    assert "(layers.1-2 only)" in cells(small_latent, router)[2]
    assert "layers." not in "".join(cells(small_llama, row)[2] for row in Catalogue(small_llama).rows.values())


def test_lines_with_one_more_are_one_line(small_llama: ModelFacts, transformers_tree: Path) -> None:
    lines = (transformers_tree / "models/llama/modeling_llama.py").read_text(encoding="utf-8").splitlines()
    line = max(n for n, line in enumerate(lines, 1) if "return CausalLMOutputWithPast(" in line)
    assert f" and line {line}\n" in text_of(small_llama)


def test_operators_of_one_call_are_counted(small_llama: ModelFacts) -> None:
    text = section_text(report(small_llama), "9.")
    # modeling_llama.py: x * cos + rotate_half(x) * sin, of queries and keys; rotate_half() negates and concatenates.
    assert f"not fused: `LlamaAttention, apply_rotary_pos_emb()`, {2 * 5} operators a call" in text
    # To float32, a square, its mean, a sum, a root, two products, back: no more and no less.
    assert "not fused: `LlamaRMSNorm`, 8 operators a call" in text


def test_lines_are_named_by_what_they_call(small_llama: ModelFacts) -> None:
    # activations.py: return nn.functional.silu(input)
    assert " (`silu`) | none: whole tensors |" in text_of(small_llama)
