"""One GPU of several: small layers with the arithmetic beside, random ones, and models of the stored results."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmp.errors import UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.records import EvaluatedKernel
from lmp.link.values import values_for
from lmp.predict.shard.formulas import rank_model
from lmp.predict.shard.models import plan_of, rank_of
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.planning import planned
from lmp.predict.shard.ranked import Ranked, ranked
from lmp.records import MATMUL_CATEGORIES, ModelAnalysis
from predict.shard.layers import TOKENS, VALUES, attention, embedding, kernel, mixture, mlp, product

RESULTS = Path(__file__).parents[3] / "analysis_results"
MODELS = ("Meta-Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-20b")


def rank(kernels: list[EvaluatedKernel], **parallel: int) -> Ranked:
    return ranked(kernels, VALUES, Parallel(**parallel))  # type: ignore[arg-type]


def by_id(found: Ranked) -> dict[str, EvaluatedKernel]:
    return {kernel.id or "": kernel for kernel in found.every}


def moved(found: Ranked) -> list[tuple[str, int, int]]:
    """Place, GPUs and bytes of each collective."""
    made = [one.collective for one in found.collectives]
    return [(one.id or "", c.gpus, c.bytes) for one, c in zip(found.collectives, made, strict=True) if c is not None]


def adds_up(found: Ranked, kernels: list[EvaluatedKernel]) -> bool:
    """Whether the GPUs do what the whole model does, and what is repeated, to the last FLOP."""
    whole = sum(k.flops * k.repeat for k in kernels if k.category in MATMUL_CATEGORIES)
    return found.matmul_flops * found.parallel.tp - found.repeated_flops == whole


# --- small layers ----------------------------------------------------------------------------------------------------


def test_gate_and_up_are_divided_by_columns_and_down_by_rows() -> None:
    found = rank(mlp("x", 64, 96), tp=4)
    kernels = by_id(found)
    # 96 / 4 = 24 inner places: 2 * 101 * 24 * 64 FLOPs each.
    assert [kernels[f"f.{n}"].flops for n in (0, 1, 4)] == [2 * 101 * 24 * 64] * 3
    # Gate reads its input whole and 64 x 24 of the weight, and writes 24 columns, 2 bytes each.
    assert (kernels["f.0"].read, kernels["f.0"].write) == (2 * (101 * 64 + 64 * 24), 2 * 101 * 24)
    # Down reads 24 columns of its input, 24 x 64 of the weight, and writes a whole sum.
    assert (kernels["f.4"].read, kernels["f.4"].write) == (2 * (101 * 24 + 24 * 64), 2 * 101 * 64)
    assert (kernels["f.3"].read, kernels["f.3"].flops) == (2 * 2 * 101 * 24, 101 * 24)
    assert kernels["f.5"].read == 2 * 2 * 101 * 64  # the sum with the input is whole
    assert moved(found) == [("f.4.all_reduce", 4, 2 * 101 * 64)]
    assert found.repeated_flops == 0


def test_what_follows_reads_the_sum_of_all_gpus() -> None:
    found = by_id(rank(mlp("x", 64, 96), tp=2))
    assert found["f.5"].inputs_from == ["x", "f.4.all_reduce"]


def test_heads_are_divided_and_kv_heads_are_repeated() -> None:
    found = rank(attention("x", 64, heads=8, kv_heads=2), tp=4)
    kernels = by_id(found)
    # 8 heads of 16 over 4 GPUs: 2 heads, 32 columns. 2 KV heads over 4 GPUs: one each, 16 columns of 32.
    assert kernels["t.0"].flops == 2 * 101 * 32 * 64
    assert kernels["t.1"].flops == kernels["t.2"].flops == 2 * 101 * 16 * 64
    assert kernels["t.5"].operands is not None
    assert (kernels["t.5"].operands.heads, kernels["t.5"].flops) == (2, 4 * 101 * 2 * 16)
    # Each KV head is copied for the 2 queries of this GPU, not for the 4 of the model.
    assert (kernels["t.3"].read, kernels["t.3"].write) == (2 * 101 * 16, 2 * 101 * 2 * 16)
    assert moved(found) == [("t.6.all_reduce", 4, 2 * 101 * 64)]
    # Each of the 2 KV heads is on 2 GPUs: keys and values are done twice.
    assert found.repeated_flops == 2 * (2 * 101 * 32 * 64)
    assert adds_up(found, attention("x", 64, heads=8, kv_heads=2))


def test_the_vocabulary_is_divided() -> None:
    kernels = [embedding("e", 64, 1000), *mlp("e", 64, 96), product("h", "f.5", 1000, 64, path="head")]
    found = rank(kernels, tp=4)
    # 1000 / 4 = 250 columns; each GPU gets all logits, and the rows of all tokens.
    assert by_id(found)["h"].flops == 2 * 101 * 250 * 64
    assert moved(found) == [
        ("e.all_reduce", 4, 2 * 101 * 64), ("f.4.all_reduce", 4, 2 * 101 * 64), ("h.all_gather", 4, 2 * 101 * 1000),
    ]  # fmt: skip


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    kernels = [embedding("e", 64, 1001), *mlp("e", 64, 96), product("h", "f.5", 1001, 64, path="head")]
    # 1001 = 3 * 251 + 248: this GPU has 251 columns.
    assert by_id(rank(kernels, tp=4))["h"].flops == 2 * 101 * 251 * 64


def test_two_branches_are_added_once() -> None:
    """Attention and MLP of one input: their parts are summed before the GPUs add them."""
    narrow = "a 101 64"
    kernels = [k for k in (*attention("x", 64, 8, 8), *mlp("x", 64, 96)) if k.id not in ("t.7", "f.5")]
    kernels.append(kernel("both", "add", "elementwise", "t.6 f.4", f"{narrow}, {narrow} -> {narrow}"))
    kernels.append(kernel("sum", "add", "elementwise", "x both", f"{narrow}, {narrow} -> {narrow}"))
    assert moved(rank(kernels, tp=2)) == [("both.all_reduce", 2, 2 * 101 * 64)]


def test_a_norm_over_divided_columns_keeps_the_product_whole() -> None:
    """A latent projection: down, norm, up, as latent attention has it."""
    down = product("d", "x", 24, 64, path="layer.down")
    norm = [
        kernel("n0", "pow", "elementwise", "d", "a 101 24 -> a 101 24"),
        kernel("n1", "mean", "reduction", "n0", "a 101 24 -> a 101 1"),
        kernel("n2", "rsqrt", "elementwise", "n1", "a 101 1 -> a 101 1"),
        kernel("n3", "mul", "elementwise", "d n2", "a 101 24, a 101 1 -> a 101 24"),
    ]
    found = rank([down, *norm, *mlp("n3", 24, 96)], tp=4)
    assert [(one.path, one.id) for one in found.whole] == [("layer.down", "d")]
    assert "norm" in found.whole[0].reason
    assert by_id(found)["d"].flops == 2 * 101 * 24 * 64
    # Three of the four GPUs repeat it.
    assert found.repeated_flops == 3 * 2 * 101 * 24 * 64


def test_experts_share_their_inner_size() -> None:
    kernels = mixture("x", 64, 48, experts=8, top_k=2)
    found = rank(kernels, tp=4)
    # 2 * 202 rows * 12 inner * 64 each; the router is whole, so three GPUs repeat 2 * 101 * 8 * 64.
    assert [by_id(found)[f"m.{n}"].flops for n in (3, 5)] == [2 * 202 * 12 * 64] * 2
    assert found.repeated_flops == 3 * 2 * 101 * 8 * 64
    assert moved(found) == [("m.7.all_reduce", 4, 2 * 101 * 64)]
    assert adds_up(found, kernels)


def test_experts_in_groups_have_other_rows() -> None:
    kernels = mixture("x", 64, 48, experts=8, top_k=2)
    found = rank(kernels, tp=4, ep=2)
    # 2 groups have half of the rows each; 2 GPUs of a group share 48 inner places: 24.
    assert by_id(found)["m.3"].flops == 2 * 202 * 24 * 64 // 2
    one = found.kernels[[k.id for k in found.kernels].index("m.3")]
    assert (one.ep, one.expert_tp, one.parts) == (2, 2, 4)
    assert adds_up(found, kernels)


def test_one_gpu_is_the_whole_model() -> None:
    kernels = [*attention("x", 64, 8, 2), *mlp("t.7", 64, 96)]
    found = rank(kernels)
    assert [(k.id, k.flops, k.read, k.write, k.operands) for k in found.kernels] == [
        (k.id, k.flops, k.read, k.write, k.operands) for k in kernels
    ]
    assert not found.collectives


# --- attention by sequences, stages ----------------------------------------------------------------------------------


def test_data_parallel_attention_gathers_tokens_for_the_experts() -> None:
    kernels = [*attention("x", 64, 8, 2), *mixture("t.7", 64, 48, experts=8, top_k=2)]
    # A call with the sequences of one GPU: as if it had one of the 101.
    own = [k.model_copy(update={"flops": k.flops // TOKENS, "read": 1, "write": 1}) for k in kernels]
    found = ranked(kernels, VALUES, Parallel(tp=4, dp_attention=True), planned(kernels, VALUES), own)
    assert moved(found) == [("m.3.all_gather", 4, 2 * 101 * 64), ("m.7.reduce_scatter", 4, 2 * 101 * 64)]
    kernels_of_one = by_id(found)
    assert kernels_of_one["t.0"].flops == 2 * 128 * 64  # whole weights, one sequence
    assert kernels_of_one["m.3"].flops == 2 * 202 * 12 * 64  # all tokens, a quarter of the inner size


def layers(count: int) -> list[EvaluatedKernel]:
    """An embedding, layers that are alike, and a head."""
    layer = [k.model_copy(update={"path": "layers.0", "repeat": count}) for k in mlp("e", 64, 96)]
    return [embedding("e", 64, 1000), *layer, product("h", "f.5", 1000, 64, path="head")]


def test_stages_share_the_layers() -> None:
    found = rank(layers(7), pp=2)
    first, last = ({k.id: k.repeat for k in stage} for stage in found.stages)
    # Three and four layers would be even: the last stage has the head, so the first has more.
    assert (first["f.0"], last["f.0"]) == (4, 3) or (first["f.0"], last["f.0"]) == (3, 4)
    assert "h" not in first
    assert "e" not in last
    assert moved(found) == [("f.5.send", 2, 2 * 101 * 64)]
    assert adds_up(found, layers(7))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "parallel", "said"),
    [
        (attention("x", 64, 6, 6), {"tp": 4}, "--tp 4 does not divide the 6 parts of layer\nallowed are 1, 2, 3, 6"),
        (attention("x", 64, 8, 8), {"tp": 16}, "--tp 16 does not divide the 8 parts of layer\nallowed are 1, 2, 4, 8"),
        (mlp("x", 64, 96), {"tp": 5}, "--tp 5 does not divide the 96 parts of layer\nallowed are 1, 2, 3, 4, 6, 8"),
        (mlp("x", 64, 96), {"tp": 2, "ep": 2}, "--ep 2: the model has no experts\nleave it out"),
        (mixture("x", 64, 48, 6, 2), {"tp": 4, "ep": 4}, "--ep 4 does not divide 6 experts\nallowed are 1, 2, 3, 6"),
        (layers(4), {"pp": 5}, "--pp 5 is more than the 4 layers\nallowed are 1 to 4"),
    ],
)
def test_numbers_that_do_not_divide(kernels: list[EvaluatedKernel], parallel: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError) as error:
        rank(kernels, **parallel)
    assert str(error.value).startswith(said)


def test_groups_of_experts_divide_the_gpus() -> None:
    with pytest.raises(UsageError, match=r"--ep 3 does not divide --tp 4\nallowed are 1, 2, 4"):
        Parallel(4, 3)


# --- conservation ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gpus_add_up_to_the_whole(data: st.DataObject) -> None:
    tp = data.draw(st.sampled_from([1, 2, 4, 8]))
    hidden = data.draw(st.sampled_from([24, 64, 120]))
    source, kernels = "x", list[EvaluatedKernel]()
    for number in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["attention", "mlp", "mixture"]))
        if kind == "attention":
            heads = tp * data.draw(st.integers(1, 4))
            fewer = [kv for kv in range(1, heads + 1) if heads % kv == 0 and (kv % tp == 0 or tp % kv == 0)]
            made = attention(source, hidden, heads, data.draw(st.sampled_from(fewer)), name=f"t{number}")
        elif kind == "mlp":
            made = mlp(source, hidden, tp * data.draw(st.integers(2, 9)), name=f"f{number}")
        else:
            made = mixture(source, hidden, 8 * data.draw(st.integers(1, 5)), 16, 3, name=f"m{number}")
        source = made[-1].id or ""
        kernels += made
    experts = any(k.category == "grouped_matmul" for k in kernels)
    ep = data.draw(st.sampled_from([e for e in (1, 2, 4, 8) if tp % e == 0])) if experts else 1
    assert adds_up(rank(kernels, tp=tp, ep=ep), kernels)


def stored(name: str) -> ModelNumbers:
    (file,) = RESULTS.glob(f"*ForCausalLM@*{name}/model_analysis.json")
    return ModelNumbers(ModelAnalysis.model_validate_json(file.read_text()))


POINTS = ({"batch_size": 16, "seq_len": 1, "cache_len": 8192}, {"batch_size": 3, "seq_len": 5, "cache_len": 7})


@pytest.mark.parametrize("name", MODELS)
def test_gpus_of_a_model_add_up_to_the_whole(name: str) -> None:
    numbers = stored(name)
    for point in POINTS:
        values = values_for(numbers.model, point)
        plan = plan_of(numbers, values)
        for parallel in (Parallel(2), Parallel(8), Parallel(8, pp=3), *([Parallel(8, 4)] if plan.experts else [])):
            found = rank_of(numbers, values, parallel, plan)
            assert found.matmul_flops * parallel.tp - found.repeated_flops == numbers.totals(values).matmul_flops


# Modules of products that serving engines keep whole: routers, and the down-projections of latent attention.
WHOLE = {
    "Meta-Llama-3.1-8B": set(),
    "Qwen3-30B-A3B": {"gate"},
    "DeepSeek-V3": {"q_a_proj", "kv_a_proj_with_mqa"},
    "gpt-oss-20b": {"router"},
}


@pytest.mark.parametrize("name", MODELS)
def test_what_engines_divide_is_divided(name: str) -> None:
    numbers = stored(name)
    for point in POINTS:
        plan = plan_of(numbers, values_for(numbers.model, point))
        assert {one.path.rpartition(".")[2] for one in plan.whole} == WHOLE[name]
        # Two sums a layer, after attention and after the MLP, and one after the embedding.
        behind = {key.rpartition(".")[0] for key in plan.reduced}
        kinds = {"Meta-Llama-3.1-8B": 1, "Qwen3-30B-A3B": 1, "DeepSeek-V3": 2, "gpt-oss-20b": 2}[name]
        assert len(plan.reduced) == 1 + 2 * kinds, behind


def test_llama_on_eight_gpus_by_hand() -> None:
    numbers = stored("Meta-Llama-3.1-8B")
    values = values_for(numbers.model, {"batch_size": 16, "seq_len": 1, "cache_len": 8192})
    found = rank_of(numbers, values, Parallel(8))
    # 32 layers of 16 rows: QKV and output (4096 x (4096 + 1024 + 1024) + 4096 x 4096) and three 4096 x 14336, over 8;
    # attention of 4 heads over 8193 keys; the head of 128256 / 8 columns.
    layer = 2 * 16 * 4096 * (4096 + 2048 + 4096 + 3 * 14336) // 8 + 4 * 16 * 4 * 128 * 8193
    assert found.matmul_flops == 32 * layer + 2 * 16 * 4096 * (128256 // 8)
    assert found.repeated_flops == 0
    # A sum of 16 x 4096 two-byte elements behind the embedding, and two behind each layer's parts.
    sums = [(one.repeat, one.collective.bytes) for one in found.collectives if one.collective is not None]
    assert sums == [(1, 131072), (32, 131072), (32, 131072), (1, 16 * 128256 * 2)]


@pytest.mark.parametrize("name", MODELS)
def test_formulas_of_one_gpu_have_its_numbers(name: str) -> None:
    numbers = stored(name)
    at, other = ({"batch_size": b, "seq_len": s, "cache_len": c} for b, s, c in ((3, 5, 7), (4, 6, 1000)))
    values, elsewhere = values_for(numbers.model, at), values_for(numbers.model, other)
    plan = plan_of(numbers, values)
    parallel = Parallel(8, 4) if plan.experts else Parallel(8)
    formulas = ModelNumbers(rank_model(numbers, values, plan, parallel))
    for point in (values, elsewhere):
        found = rank_of(numbers, point, parallel, plan)
        evaluation = formulas.evaluation(point, formulas.tree(point))
        costs = {k.id: (k.flops, k.read, k.write) for k in evaluation.kernels}
        assert costs == {k.id: (k.flops, k.read, k.write) for k in found.every}
        assert evaluation.totals.matmul_flops == found.matmul_flops
        sizes = {k.id: k.operands for k in evaluation.kernels if k.category != "collective"}
        own = {k.id: k.operands for k in found.every if k.collective is None}
        assert sizes == own
