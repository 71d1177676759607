"""Paths at larger sizes than the judge's usual ones: formulas are right there, or they are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from evaluation import evaluate_analysis
from lmp.analyze.modules import analyze_modules, load_for_evaluation
from lmp.analyze.session import Options
from lmp.errors import TraceFailed, VerificationFailed
from lmp.formula import evaluate_condition
from lmp.records import ModuleAnalysis
from lmp.verify.judge import observe
from lmp.workload.inputs import InputsWorkload
from lmp.workload.spec import Spec, parse_init, parse_inputs

MODULE = "chunked_blocks"
X = "x: float[batch_size, seq_len, 32]"
QUIET = lambda c, s: None  # noqa: E731


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Iterator[Options]:
    before = list(sys.path)
    yield Options(results=tmp_path_factory.mktemp("results"), paths=(Path(__file__).parent,), inputs=X)
    sys.path[:] = before
    sys.modules.pop(MODULE, None)


Analyse = Callable[[str, str], ModuleAnalysis]


@pytest.fixture(scope="module")
def analyse(options: Options) -> Analyse:
    def run(name: str, init: str) -> ModuleAnalysis:
        found = analyze_modules([f"{MODULE}.{name}"], replace(options, init=init), QUIET)
        return next(one.analysis for one in found if one.requested)

    return run


# None of these sizes is beside a number of the source or at a multiple: 384, 170, 48, 7, 90.
@pytest.mark.parametrize(
    ("name", "init", "sizes"),
    [
        ("ChunkedFFN", "dim=32", [(2, 500), (3, 1000), (1, 5000)]),
        ("SplitBeyond", "dim=32", [(3, 180), (2, 250), (1, 1001)]),
        ("BatchPieces", "dim=32", [(10, 9), (27, 3), (40, 11)]),
        ("Pieces", "dim=32, piece=90", [(2, 130), (1, 700), (5, 1111)]),
    ],
)
def test_pieces_are_right_or_refused(
    analyse: Analyse, options: Options, name: str, init: str, sizes: list[tuple[int, int]]
) -> None:
    try:
        analyse(name, init)
    except (TraceFailed, VerificationFailed):
        return  # no numbers are better than wrong ones
    given = replace(options, init=init)
    analysis, lookup = load_for_evaluation(f"{MODULE}.{name}", given, QUIET)
    cls = getattr(sys.modules[MODULE], name)
    workload = InputsWorkload(cls, Spec(parse_inputs(X), parse_init(init)))
    for batch, tokens in sizes:
        values = {"batch_size": batch, "seq_len": tokens}
        evaluated = evaluate_analysis(analysis, lookup, values)
        counts = observe(workload, {**workload.hints, **values, "cache_len": 0}).counts
        assert evaluated.totals.flops == sum(c.flops for c in counts), (batch, tokens)
        assert evaluated.totals.read == sum(c.read.bytes(2, 2, 2) for c in counts), (batch, tokens)
        assert evaluated.totals.write == sum(c.write.bytes(2, 2, 2) for c in counts), (batch, tokens)


def test_a_threshold_is_taken_on_both_sides(analyse: Analyse, options: Options) -> None:
    found = analyse("Cheaper", "dim=32")
    arms = {(arm.of, arm.side): arm.point for arm in found.verification.arms}
    assert arms
    assert all(arms.values())
    count = len(arms)
    assert f"arms: {count} of {count}" in found.verification.checks
    analysis, lookup = load_for_evaluation(f"{MODULE}.Cheaper", replace(options, init="dim=32"), QUIET)
    for tokens in (200, 230, 231, 5000):
        with FlopCounterMode(display=False) as mode, torch.no_grad(), torch.device("meta"):
            sys.modules[MODULE].Cheaper()(torch.empty(3, tokens, 32))
        evaluated = evaluate_analysis(analysis, lookup, {"batch_size": 3, "seq_len": tokens})
        assert evaluated.totals.matmul_flops == mode.get_total_flops(), tokens


def test_every_number_of_the_source_is_judged_on_both_sides(analyse: Analyse) -> None:
    found = analyse("Cheaper", "dim=32")
    text = "\n".join(found.verification.checks)
    assert all(f"seq_len={tokens}, " in text for tokens in (229, 230, 231, 460, 463, 691))


def test_sizes_that_a_constructor_compares_are_an_assumption(options: Options) -> None:
    given = replace(options, init="dim=24, width=40", inputs="x: float[batch_size, seq_len, dim]", fresh=True)
    found = next(one.analysis for one in analyze_modules([f"{MODULE}.Projected"], given, QUIET) if one.requested)
    assert found.verification.status == "verified"
    assert found.assumptions == ["{width} != {dim}"]


def test_a_part_that_a_constructor_makes_for_unequal_sizes_only_is_counted_there_only(options: Options) -> None:
    given = replace(options, init="dim=24, width=24", inputs="x: float[batch_size, seq_len, dim]", fresh=True)
    analysis, lookup = load_for_evaluation(f"{MODULE}.Projected", given, QUIET)
    # 3 * 7 = 21 rows. Linear(8, 10): 21 * (2 * 80 + 10) = 3,570; Linear(10, 10): 21 * (2 * 100 + 10) = 4,410
    values = {"batch_size": 3, "seq_len": 7, "width": 10}
    assert evaluate_analysis(analysis, lookup, values | {"dim": 8}).totals.flops == 3_570 + 4_410
    assert evaluate_analysis(analysis, lookup, values | {"dim": 10}).totals.flops == 4_410


def test_a_quotient_of_config_values_is_taken_on_both_sides_of_a_number(
    tmp_path: Path, transformers_tree: Path
) -> None:
    """Of Cohere's config, only a hidden size beyond 256 times the heads gives heads that are wider than 256."""
    name = "transformers.models.cohere.modeling_cohere.CohereAttention"
    options = Options(results=tmp_path)
    analysis, lookup = load_for_evaluation(name, options, QUIET)
    repeats = {kernel.line for kernel in analysis.kernels if kernel.function == "repeat_kv"}
    sizes = {"batch_size": 3, "seq_len": 10, "cache_len": 0, "num_heads": 6, "num_key_value_heads": 2}
    for head_dim in (254, 256, 258, 1030):
        values = {**sizes, "hidden_size": 6 * head_dim, "w_bytes": 2, "a_bytes": 2, "kv_bytes": 2}
        found = evaluate_analysis(analysis, lookup, values)
        written = sum(kernel.write for kernel in found.kernels if kernel.line in repeats)
        # use_gqa_in_sdpa(): without a mask, keys and values are repeated for 6 heads if these are wider than 256.
        assert written == (2 * 3 * 10 * 6 * head_dim * 2 if head_dim > 256 else 0), head_dim


def test_pairs_of_arms_that_no_call_combines_are_assumptions(tmp_path: Path, transformers_tree: Path) -> None:
    """T5 has no attention over the encoder's states that is causal: those pairs are claimed by nothing."""
    name = "transformers.models.t5.modeling_t5.T5Attention"
    analysis, _ = load_for_evaluation(name, Options(results=tmp_path), QUIET)
    taken, _, all_pairs = next(c for c in analysis.verification.checks if c.startswith("pairs of")).split()[-3:]
    assert taken == all_pairs
    values = {"num_heads": 4, "batch_size": 2, "seq_len": 6, "cache_len": 5}
    switches = {"has_position_bias": 0, "has_relative_attention_bias": 0, "is_decoder": 1}

    def allowed(cross: int, causal: int) -> bool:
        given = {**values, **switches, "has_key_value_states": cross, "is_causal": causal}
        return all(evaluate_condition(text, given) for text in analysis.assumptions)

    assert [allowed(0, 1), allowed(1, 0), allowed(1, 1)] == [True, True, False]
