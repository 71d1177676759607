"""Section 1 and the appendix: what to do first, with what it saves, at the points that were asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import pytest
from written_reports import report, section_text, text_of, whole

from lmp.errors import UsageError
from lmp.report.document.amounts import Number
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import plain, to_markdown
from lmp.report.document.parts import Document
from lmp.report.facts import ModelFacts, parse_point, point_text, stated_points
from lmp.report.implementation import screen
from lmp.report.implementation.actions import Action, Saving, actions
from lmp.report.implementation.drawing import pieces_of
from lmp.report.implementation.figures import held
from lmp.report.implementation.performance import timeline
from lmp.report.implementation.screen import thresholds, used_parameters
from lmp.report.implementation.sections import LONGEST, returned
from lmp.report.review import Roots, review_text

TOKENS, HIDDEN, LAYERS = 2048, 64, 3
PREFILL, DECODE = "prefill-b1-s2048", "decode-b1-c2048"


def action(facts: ModelFacts, word: str) -> Action:
    return next(a for a in actions(facts) if word in "".join(map(plain, pieces_of(a.do))))


def saving(facts: ModelFacts, word: str, point: str) -> Saving:
    return next(s for s in action(facts, word).savings if s.point.key == point)


def amount(found: Saving) -> Fraction:
    return next(Fraction(piece.value) for piece in pieces_of(found.amount) if isinstance(piece, Number))


# --- what to do ------------------------------------------------------------------------------------------------------


def test_fusing_a_norm_saves_what_it_moves_beyond_inputs_and_outputs(small_llama: ModelFacts) -> None:
    # A call on T x H numbers, line by line: to float32 6TH, square 8TH, mean 4TH + 4T, sum 8T, root 8T, product
    # 8TH + 4T, to bfloat16 6TH, product with the weight 4TH + 2H: 36TH + 24T + 2H; at least 4TH + 2H.
    moved = (2 * LAYERS + 1) * (32 * TOKENS * HIDDEN + 24 * TOKENS)
    found = saving(small_llama, "LlamaRMSNorm", PREFILL)
    assert amount(found) == moved
    assert found.time.value == Fraction(moved, small_llama.device.bandwidth)
    assert "fuse the 8 operators of LlamaRMSNorm" in "".join(map(plain, pieces_of(action(small_llama, "fuse").do)))


def test_a_cache_in_place_saves_what_its_copies_move(small_llama: ModelFacts) -> None:
    # Keys and values of 2 heads of 16 in 3 layers: 2,048 tokens and the new one are read, 2,049 are written, 2 bytes.
    assert amount(saving(small_llama, "KV cache", DECODE)) == LAYERS * 2 * 2 * 16 * 2 * (2049 + 2049)


def test_a_cache_that_is_expanded_is_to_be_absorbed(small_latent: ModelFacts) -> None:
    found = saving(small_latent, "absorb self_attn.kv_b_proj", DECODE)
    flops = 3 * 2 * 2049 * 20 * 4 * (16 + 12)  # kv_b_proj over all tokens, in 3 layers
    assert amount(found) == flops
    assert found.time.value >= Fraction(flops, small_latent.device.matmul_flops)


def test_the_dearest_comes_first(small_llama: ModelFacts) -> None:
    shares = [one.best.share.value for one in actions(small_llama)]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) > 2


def test_a_decode_step_of_small_kernels_is_launch_bound(small_llama: ModelFacts) -> None:
    text = section_text(report(small_llama), "1. ")
    assert "| What bounds decode? | eager: **launches (the host)** at " in text
    assert action(small_llama, "CUDA graphs").best.share.value > 50
    launches = {plain(pieces_of(part.name)[0]): part for part in timeline(small_llama, small_llama.point(DECODE))}
    norm = launches["model.norm"]
    cost = norm.least
    assert cost is not None
    # Eight operators, each at least as long as the host takes for a launch: 22.5 µs in the profile.
    assert cost.value == 8 * Fraction(22500, 10**9)
    assert norm.limit == "launches"


def test_the_first_screen_answers_what_a_reader_asks(small_llama: ModelFacts) -> None:
    text = section_text(report(small_llama), "1. ")
    asked = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ") and "? |" in line]
    assert asked == [
        "| What bounds prefill?", "| What bounds decode?", "| What is dearest?", "| What gains most?",
        "| Does it fit?", "| Where does that change?",
    ]  # fmt: skip
    assert text.index("| Where does that change?") < text.index("**What to do first**")
    assert "`lmp report MODEL --device NAME`" in text


def test_what_bounds_a_phase_changes_at_powers_of_two(small_llama: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []

    def bounds(model: object, device: str, calls: list[dict[str, int]], deployment: object) -> dict[str, list[str]]:
        decode = len({call["batch_size"] for call in calls}) > 1
        asked.append([call["batch_size" if decode else "seq_len"] for call in calls])
        return {"eager": ["launch"] * 3 + ["memory"] * 7, "vllm": ["memory"] * 2}

    monkeypatch.setattr(screen, "bounds_over", bounds)
    prefill, _, decode, engine = screen.changes.__wrapped__(small_llama)
    # Ten powers of two from 1 on, and ten from 64 on: three of them are 1, 2, 4, the others 8 to 512.
    assert asked == [[2**n for n in range(6, 16)], [2**n for n in range(10)]]
    assert decode.steps == (("launches (the host)", 1, 4), ("memory", 8, 512))
    assert engine.steps == (("memory", 1, 2),)
    assert prefill.steps == (("launches (the host)", 64, 256), ("memory", 512, 32768))
    assert (prefill.of, decode.of) == ("tokens", "batch")


def test_a_point_fits_where_what_it_holds_does(small_llama: ModelFacts) -> None:
    point = small_llama.point(DECODE)
    size = held(small_llama, point)
    assert size is not None
    for memory, answer in ((int(size.value), True), (int(size.value) - 1, False)):
        device = dataclasses.replace(small_llama.device, memory=memory)
        assert screen.fits(dataclasses.replace(small_llama, device=device), point, "eager") is answer


def test_an_engine_is_compared_with_eager_mode(small_llama: ModelFacts) -> None:
    gain = screen.engine_gain(small_llama)
    assert gain is not None
    eager, serving, times = (gain[name] for name in ("eager", "serving", "times"))
    assert isinstance(eager, Number)
    assert isinstance(serving, Number)
    assert isinstance(times, Number)
    assert float(times.value) == pytest.approx(float(eager.value / serving.value), abs=0.006)  # hundredths
    best = max(row["eager"]["time"].value / row["serving"]["time"].value for row in screen.answers(small_llama))  # type: ignore[index]
    assert float(times.value) == pytest.approx(float(best), abs=0.006)


# --- thresholds ------------------------------------------------------------------------------------------------------


def test_from_which_sizes_on_something_else_decides(small_llama: ModelFacts) -> None:
    dense, cache, room = (next(p for p in pieces_of(line) if isinstance(p, Number)) for line in thresholds(small_llama))
    device = small_llama.device
    # A weight of 2 bytes is read once, and used in 2 FLOPs a token.
    assert dense.value == -(-device.matmul_flops // device.bandwidth)
    token = 2 * 2 * 16 * 2 * LAYERS
    weights = 220_608 * 2  # bytes
    assert cache.value == weights // token
    assert room.value == (device.memory - weights) // token


def test_a_token_uses_no_table_of_which_it_looks_up_a_row(small_llama: ModelFacts) -> None:
    used = used_parameters(small_llama)
    assert used is not None
    assert used.value == 220_608 - 1000 * HIDDEN


# --- points ----------------------------------------------------------------------------------------------------------


def test_points_are_read_as_they_are_written() -> None:
    assert parse_point("decode:16:8k") == ("decode", 16, 1, 8192)
    assert parse_point("prefill:1:2k") == ("prefill", 1, 2048, 0)
    for text in ("decode:16:8192", "prefill:1:2048"):
        assert point_text(parse_point(text)) == text


@pytest.mark.parametrize("text", ["decode", "decode:16", "chunk:1:2k", "decode:0:8k", "decode:x:8k", "decode:1:-1"])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_point(text)


def test_a_class_without_a_cache_has_no_decode(small_llama: ModelFacts) -> None:
    without = {name: path for name, path in small_llama.model.parameters.items() if name != "cache_len"}
    model = small_llama.model.model_copy(update={"parameters": without})
    with pytest.raises(UsageError, match="no KV cache"):
        stated_points(model, (parse_point("decode:1:2k"),))


def test_a_report_is_about_the_points_that_were_asked_for(small_llama: ModelFacts) -> None:
    asked = dataclasses.replace(small_llama, at=(parse_point("decode:16:8k"),))
    text = text_of(asked)
    assert "**Points:** decode:16:8192" in text
    assert "| decode, batch 16, 8,192 tokens in the cache |" in text
    assert "batch 32" not in section_text(report(asked), "1. ")


# --- form ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small_llama", "small_latent", "small_mixture"])
def test_the_report_is_short_and_the_appendix_has_the_rest(name: str, request: pytest.FixtureRequest) -> None:
    facts: ModelFacts = request.getfixturevalue(name)
    assert len(text_of(facts).splitlines()) <= LONGEST
    rows = [line for line in section_text(whole(facts), "5.").splitlines() if line.startswith("| T")]
    shown = [line for line in section_text(report(facts), "5.").splitlines() if line.startswith("| T")]
    assert len(shown) == 15
    assert set(shown) < set(rows)


@pytest.mark.parametrize("at", ["", "decode:16:8k", "prefill:3:512"])
@pytest.mark.parametrize("write", [report, whole])
def test_the_review_finds_nothing(small_llama: ModelFacts, at: str, write: Callable[[ModelFacts], Document]) -> None:
    facts = dataclasses.replace(small_llama, at=(parse_point(at),)) if at else small_llama
    made = write(facts)
    ledger = Ledger(
        kind="model",
        subject=facts.model.class_name,
        points={point.key: dict(point.values) for point in facts.points},
        named=dict(facts.named),
        numbers=list(entries(made)),
    )
    review = review_text("small.md", to_markdown(made), Roots(facts.roots), ledger, facts.worth)
    assert review.findings == []
    assert review.pointers > 100


def test_what_the_command_returns(small_llama: ModelFacts) -> None:
    lines = returned(report(small_llama), "small")
    heads = [line for line in lines if not line.startswith("  ")]
    assert heads == [
        "key insights:", "what to do first:", "notable optimizations:", "limitations:",
        "details: small, sections 1 to 11 and appendix",
    ]  # fmt: skip
    assert all(lines[lines.index(head) + 1].startswith("  ") for head in heads[:-1])
