"""What quantising leaves in 16 bits, by data flow and by modules; products and bytes of narrower weights."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from kernel_lists import stored_model
from lmp.link.sweep import plan
from lmp.observe.held import Held, Weight
from lmp.predict.devices import device_named
from lmp.predict.experts import OF_MANY_CALLS, experts_read, of_many_calls, words
from lmp.predict.holding import held_by_formulas
from lmp.predict.one_gpu import holds
from lmp.predict.prediction import Prediction, Predictor
from lmp.predict.quantising import kept_wide, narrowed, narrows, stored_bytes
from lmp.predict.rows import row_of
from lmp.predict.screen.asking import Answer, Subject, answer, asked_for
from lmp.predict.shard.parallel import Parallel
from lmp.records import Operand, Operands

RESULTS = Path(__file__).parents[2] / "analysis_results"
H100 = device_named("h100-sxm")
PREDICTOR = Predictor()
DECODE = {"batch_size": 16, "seq_len": 1, "cache_len": 8192}

# Qwen3-30B-A3B: 48 layers of hidden 2,048, 32 heads and 4 KV heads of 128, 128 experts of 768, 151,936 words.
ATTENTION = 2 * 2048 * 4096 + 2 * 2048 * 512
EXPERTS = 128 * 3 * 2048 * 768
ROUTER = 128 * 2048
NORMS = 48 * (2 * 2048 + 2 * 128) + 2048
TABLES = 2 * 151936 * 2048


def subject(name: str) -> Subject:
    return Subject(stored_model(name))


@pytest.fixture(scope="module")
def qwen() -> Subject:
    return subject("Qwen3MoeForCausalLM")


def predicted(model: Subject, word: str | None, engine: str | None = "vllm") -> Answer:
    return answer(model, asked_for(H100, DECODE, engine, (word, None)), PREDICTOR)


# --- what stays ------------------------------------------------------------------------------------------------------


def stored(width: Fraction) -> Fraction:
    """Of the blocks' linear layers and experts so many bytes an element; of all else 2."""
    return 48 * (ATTENTION + EXPERTS) * width + 2 * (48 * ROUTER + NORMS + TABLES)


@pytest.mark.parametrize("width", [Fraction(1), Fraction(1, 2), Fraction(17, 32)])
def test_stored_bytes_by_hand(qwen: Subject, width: Fraction) -> None:
    held = held_by_formulas(qwen, {})
    assert stored_bytes(held, width) == stored(width)
    # At 2 bytes and above nothing is quantised: every weight is as wide.
    everything = 48 * (ATTENTION + EXPERTS + ROUTER) + NORMS + TABLES
    assert [stored_bytes(held, wide) for wide in (2, 4)] == [2 * everything, 4 * everything]


def test_one_gpu_and_eight_hold_the_same_weights(qwen: Subject) -> None:
    given = {**DECODE, "w_bytes": 1}
    one, eight = (holds(qwen, given, Parallel(tp)).weights for tp in (1, 8))
    assert one == stored(Fraction(1))
    # Norms and routers are whole on each GPU, and each has one of the 4 KV heads, so that 8 hold them twice.
    whole = 2 * (48 * ROUTER + NORMS)
    kv = 48 * 2 * 2048 * 512
    assert eight == (one - whole - kv) / 8 + whole + Fraction(kv, 4)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM"])
def test_data_flow_and_modules_tell_the_same(name: str) -> None:
    model = subject(name)
    values = plan(model.plain.model, {n: (v,) for n, v in DECODE.items()}, 1).fixed
    kept = kept_wide(model.plain.evaluation(values, model.plain.tree(values)).kernels)
    assert "lm_head" in kept
    held = held_by_formulas(model, {})
    assert isinstance(held, Held)
    changed = {weight.path for weight, one in zip(held.weights, narrows(held.weights), strict=True) if one}
    assert changed
    assert not changed & kept
    for path in kept - {"lm_head"}:
        assert path.endswith("gate"), path  # the routers; nothing else


def test_a_router_that_is_a_linear_layer_stays_and_a_projection_of_its_size_does_not() -> None:
    linear = "torch.nn.modules.linear.Linear"

    def weight(path: str, *shape: int) -> Weight:
        return Weight(path, "weight", linear, shape, 2, Fraction(2), True)

    weights = [
        weight("layers.0.mlp.gate", 64, 32), weight("layers.0.mlp.shared_expert_gate", 1, 32),
        weight("layers.0.mlp.experts", 64, 16, 32), weight("layers.0.self_attn.k_proj", 64, 32),
        weight("layers.1.mlp.gate_proj", 64, 32), weight("vision.blocks.0.fc1", 64, 32), weight("lm_head", 64, 32),
    ]  # fmt: skip
    assert narrows(weights) == [False, False, True, True, True, False, False]


def test_a_width_of_16_bits_widens_a_quantised_checkpoint() -> None:
    held = held_by_formulas(subject("DeepseekV3ForCausalLM"), {})
    assert isinstance(held, Held)
    assert held.quantised == "fp8"
    wide, own = stored_bytes(held, 2), stored_bytes(narrowed(held, None), 1)
    assert wide is not None
    assert own is not None
    # 671 billion parameters of 2 bytes.
    assert wide == pytest.approx(2 * 671.03e9, rel=0.002)
    assert own < 0.52 * wide


# --- times -----------------------------------------------------------------------------------------------------------


def mixture(**changed: object) -> Prediction:
    """Of a layer of Mixtral's sizes: 8 experts of 3 matrices of 4,096 x 14,336."""
    row = {"op": "moe", "device": "h100-sxm", "tokens": 64, "hidden": 4096, "inter": 14336, "topk": 2, "experts": 8}
    (found,) = PREDICTOR.predict([row_of({**row, **changed})])
    assert isinstance(found, Prediction)
    return found


def test_a_mixture_is_faster_by_the_bytes_that_its_experts_have_fewer() -> None:
    wide, half = mixture(), mixture(weight_bytes=1)
    # All 8 experts are read: 8 * 3 * 4,096 * 14,336 elements. H100 reads 3.35 TB in a second; its cache has 50 MB.
    elements = 8 * 3 * 4096 * 14336
    assert half.floor_us == pytest.approx((elements - H100.l2) / 3352e9 * 1e6, rel=0.01)  # type: ignore[operator]
    saved = elements / 3352e9 * 1e6
    # The kernel reaches 60 % of the bandwidth at least, and not more than all of it.
    assert saved <= wide.us - half.us <= saved / 0.6
    assert half.us > wide.us / 2  # sorting, starting and combining are as before
    assert (wide.provenance, half.provenance) == ("calibrated", "scaled:bfloat16")
    assert half.error is None
    # exp(1.2816 * 0.45) = 1.78: as wide as where no measurement stands for a figure.
    assert half.high_us / half.us >= 1.78


def test_bytes_of_a_weight_above_those_of_the_product_are_refused() -> None:
    for dtype, width in (("bfloat16", 3), ("fp8", 1.5), ("bfloat16", 0)):
        with pytest.raises(Exception, match="weight_bytes"):
            mixture(dtype=dtype, weight_bytes=width)
    assert mixture(weight_bytes=2) == mixture()


@pytest.mark.parametrize(("word", "width"), [("w8a16", Fraction(1)), ("w4a16", Fraction(1, 2))])
def test_experts_of_narrow_weights_take_less_time(qwen: Subject, word: str, width: Fraction) -> None:
    wide, narrow = predicted(qwen, None), predicted(qwen, word)

    def us(found: Answer, what: str) -> float:
        return sum(one.us for one in found.call.operators if one.time.family == what)

    saved = 48 * EXPERTS * float(2 - width) / 3352e9 * 1e6
    # Reading overlaps with computing, which takes as long as before: a tenth of what is saved may be hidden behind it.
    assert 0.9 * saved <= us(wide, "moe") - us(narrow, "moe") <= saved / 0.6
    # Routers and the product that makes the logits stay: as fast as they were.
    for path in ("lm_head", "model.layers.0.mlp.gate"):
        before, after = (
            [one.time for one in found.call.operators if one.kernel.path == path] for found in (wide, narrow)
        )
        assert before[-1].us == after[-1].us
        assert after[-1].provenance == "calibrated"
    assert narrow.call.shares("provenance")["scaled:bfloat16"] > 0.5


# --- how many experts ------------------------------------------------------------------------------------------------


def product_of_experts(tokens: int, experts: int, chosen: int) -> Operands:
    one = Operand(name="self", shape=[tokens, 8], width="a", role="activation", present=1)
    return Operands(
        operator="_grouped_mm", inputs=[one], outputs=[], tokens=tokens, experts=experts, top_k=chosen, n=8, k=8
    )


def test_experts_are_counted_as_the_most_that_tokens_reach() -> None:
    found = experts_read([product_of_experts(16, 128, 8), product_of_experts(3, 128, 8), None])
    # 3 * 8 = 24; 16 * 8 = 128.
    assert [(one.read, one.experts, one.tokens) for one in found] == [(24, 128, 3), (128, 128, 16)]
    assert words(found[0]) == "24 of 128 experts read, the most that 3 tokens reach; fewer where they share experts"
    assert experts_read([product_of_experts(1, 128, 8)]) == []  # one token reads the 8 that it chooses


def test_a_prediction_says_how_many_experts_it_reads(qwen: Subject) -> None:
    (found,) = predicted(qwen, None).experts
    assert (found.read, found.experts, found.tokens) == (128, 128, 16)
    assert of_many_calls(qwen.model) == [OF_MANY_CALLS]
    llama = subject("LlamaForCausalLM")
    assert predicted(llama, None).experts == []
    assert of_many_calls(llama.model) == []
