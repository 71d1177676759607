"""Formulas of loops over pieces: equal to execution below one piece, at one, with and without a rest, and at many."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evaluation import evaluate_analysis
from lmp.analyze.modules import analyze_modules, execution_of, load_for_evaluation, make_references
from lmp.analyze.session import Options, Session
from lmp.errors import TraceFailed
from lmp.verify.counter import Counter

MODULE = "own_pieces_of_a_user"
X = "x: float[batch_size, seq_len, dim]"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Iterator[Options]:
    folder = tmp_path_factory.mktemp("home")
    shutil.copy(Path(__file__).with_name("own_pieces.py"), folder / f"{MODULE}.py")
    before = list(sys.path)
    yield Options(results=tmp_path_factory.mktemp("results"), paths=(folder,), inputs=X)
    sys.path[:] = before
    sys.modules.pop(MODULE, None)


def executed(name: str, batch: int, *tokens: int, **arguments: int) -> tuple[int, int, int, int]:
    """FLOPs, those of matrix products, bytes read and written of one call, counted by operator on the meta device.

    ``tokens``: one length per input.
    """
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), torch.no_grad():
            module = getattr(sys.modules[MODULE], name)(**arguments).eval()
            with Counter(module) as counter:
                module(*(torch.empty(batch, length, arguments.get("dim", 32)) for length in tokens))
    finally:
        torch.set_default_dtype(torch.float32)
    return counter.flops, counter.matmul_flops, counter.read.bytes(2, 2, 2), counter.write.bytes(2, 2, 2)


SIZES = {
    # Below one piece of 40, one, one with a rest of 1 and of more, several, several with a rest, many.
    "Ranged": [(2, 7), (2, 40), (1, 41), (3, 41), (2, 77), (1, 80), (2, 120), (2, 161), (3, 359), (2, 1600), (1, 2003)],
    "SplitByArgument": [(2, 7), (2, 24), (1, 25), (3, 25), (2, 48), (1, 72), (2, 73), (3, 499), (2, 960)],
    "RangedByArgument": [(2, 7), (2, 24), (1, 25), (3, 25), (2, 48), (1, 72), (2, 73), (3, 499), (2, 960)],
    "OverTheBatch": [(1, 6), (2, 6), (3, 6), (4, 1), (6, 9), (7, 9), (8, 3), (27, 5), (31, 5)],
    "Beyond": [(2, 31), (2, 32), (2, 90), (3, 91), (1, 96), (2, 97), (2, 98), (1, 128), (3, 129), (2, 999), (2, 3200)],
    "While": [(2, 7), (2, 56), (1, 57), (3, 57), (2, 111), (1, 112), (2, 113), (3, 600), (2, 1120)],
    "AnotherClassBeyond": [(2, 7), (2, 64), (1, 64), (1, 65), (2, 65), (3, 999)],
    "WholeBlocks": [(2, 7), (2, 47), (1, 48), (2, 49), (2, 96), (3, 97), (1, 500), (5, 960)],
    "LastTokens": [(2, 7), (2, 23), (1, 24), (2, 24), (2, 25), (1, 25), (3, 600)],
    "LastSixty": [(2, 7), (2, 59), (1, 60), (2, 60), (2, 61), (1, 61), (3, 600)],
    # Rounds of 50: one, one with a rest of 1 and of more, whole ones, and rests of 1 after many.
    "FewerEachRound": [(2, 7), (2, 50), (3, 51), (2, 53), (2, 100), (3, 101), (2, 151), (1, 251), (3, 401), (2, 650)],
    # Below two groups of 6, two of them, with a rest and without one.
    "SixToOne": [(2, 6), (2, 11), (1, 12), (2, 12), (2, 13), (1, 17), (3, 601), (2, 606)],
    # At the edges 25 | 26 and 59 | 60, and at 3 * 60 = 180 | 181 rows of all sequences; a batch of 5 on both sides.
    "InnerBranches": [
        (5, 25),
        (5, 26),
        (4, 25),
        (2, 26),
        (2, 59),
        (2, 60),
        (3, 60),
        (4, 60),
        (1, 181),
        (5, 37),
        (4, 45),
    ],
    # A row of one, of whole fives, rests of 1 and of more, for one and for several sequences.
    "Rest": [(1, 5), (2, 5), (1, 4), (1, 6), (2, 6), (2, 9), (1, 50), (3, 51), (2, 903)],
    # 2 * 56 = 112 rows are one piece; 113 = 112 + 1; 3 * 75 = 2 * 112 + 1; 7 * 33 = 2 * 112 + 7; 5 * 224 = 10 * 112.
    "AllRows": [(2, 7), (2, 56), (1, 112), (1, 113), (2, 57), (3, 75), (7, 33), (5, 224), (4, 601)],
    "OnAllBefore": [(2, 7), (2, 48), (1, 49), (2, 50), (2, 96), (3, 97), (1, 200), (2, 480), (3, 1001)],
}

TAKE_A_PIECE = ("SplitByArgument", "RangedByArgument", "LastTokens")
"""The classes whose piece is an argument: 24 by default."""


@pytest.mark.parametrize("name", SIZES)
def test_a_loop_over_pieces(name: str, options: Options) -> None:
    full = f"{MODULE}.{name}"
    outcome = next(o for o in analyze_modules([full], options, lambda c, s: None) if o.requested)
    assert outcome.analysis.verification.status == "verified"
    analysis, lookup = load_for_evaluation(full, options, lambda c, s: None)
    others = [{}, {"dim": 48}, *([{"piece": 10}, {"piece": 30, "dim": 20}] if name in TAKE_A_PIECE else [])]
    for changed in others:
        for batch, tokens in SIZES[name]:
            found = evaluate_analysis(analysis, lookup, {"batch_size": batch, "seq_len": tokens, **changed}).totals
            got = (found.flops, found.matmul_flops, found.read, found.write)
            assert got == executed(name, batch, tokens, **changed), (batch, tokens, changed)


@pytest.mark.parametrize("sizes", [("batch_size", "seq_len", "past_len"), ("rows", "new", "old")])
@pytest.mark.parametrize(
    ("name", "points"),
    [
        # Both together: below the last 44, at them, beyond, and far beyond; either input of one token; one sequence.
        (
            "LastOfBoth",
            [(2, 9, 8), (1, 20, 24), (2, 20, 25), (1, 21, 24), (2, 1, 43), (3, 1, 90), (1, 1, 91), (2, 77, 1)],
        ),
        # Pieces of 36: below one, one, one with a rest of 1 and of more, several with and without a rest.
        (
            "PiecesOfBoth",
            [(2, 9, 8), (1, 20, 16), (2, 20, 17), (1, 21, 16), (2, 1, 71), (3, 1, 72), (1, 2, 400), (5, 315, 1)],
        ),
    ],
)  # fmt: skip
def test_the_sum_of_two_inputs_lengths(
    name: str, points: list[tuple[int, int, int]], sizes: tuple[str, str, str], options: Options, tmp_path: Path
) -> None:
    batch, new, old = sizes
    inputs = f"x: float[{batch}, {new}, dim], past: float[{batch}, {old}, dim]"
    options = replace(options, inputs=inputs, results=tmp_path)
    outcome = next(o for o in analyze_modules([f"{MODULE}.{name}"], options, lambda c, s: None) if o.requested)
    assert (outcome.analysis.verification.status, outcome.analysis.pinned) == ("verified", {})
    analysis, lookup = load_for_evaluation(f"{MODULE}.{name}", options, lambda c, s: None)
    for dim, point in itertools.product((32, 20), points):
        found = evaluate_analysis(analysis, lookup, {**dict(zip(sizes, point, strict=True)), "dim": dim}).totals
        got = (found.flops, found.matmul_flops, found.read, found.write)
        assert got == executed(name, *point, dim=dim), (point, dim)


def test_a_loop_that_halves_the_tokens_is_refused_with_its_line(options: Options) -> None:
    with pytest.raises(TraceFailed, match=r"the loop at own_pieces_of_a_user\.py:\d+ divides a size of the call"):
        analyze_modules([f"{MODULE}.Halving"], options, lambda c, s: None)


MODELS = "transformers.models"


@pytest.mark.parametrize(
    ("name", "points"),
    [
        # Blocks of 256: below one, one, one with a rest, several with and without a rest; each token alone on a cache.
        pytest.param(
            "minimax.modeling_minimax.MiniMaxLightningAttention",
            [(2, 255, 0), (1, 256, 0), (2, 257, 0), (1, 400, 0), (2, 512, 0), (1, 514, 0), (3, 1281, 0), (2, 3, 270)],
            marks=pytest.mark.long,
        ),
        # Chunks of 256, several of them full; one sequence on a cache.
        pytest.param(
            "mamba2.modeling_mamba2.Mamba2Mixer",
            [(2, 601, 0), (2, 512, 0), (1, 512, 0), (1, 768, 33), (1, 513, 90), (3, 1300, 5), (1, 1, 300)],
            marks=pytest.mark.slow,
        ),
        # Chunks of 64 in prefill; a step after more cached tokens than one chunk runs no chunk.
        pytest.param(
            "qwen3_next.modeling_qwen3_next.Qwen3NextGatedDeltaNet",
            [(2, 63, 0), (1, 64, 0), (2, 66, 0), (1, 320, 0), (2, 449, 5), (1, 1, 64), (2, 1, 66), (1, 1, 700)],
            marks=pytest.mark.long,
        ),
    ],
)
def test_models_that_work_in_chunks(
    name: str, points: list[tuple[int, int, int]], transformers_tree: Path, tmp_path: Path
) -> None:
    class_path = f"{MODELS}.{name}"
    options = Options(results=tmp_path)
    analysis, _ = load_for_evaluation(class_path, options, lambda c, s: None)
    assert analysis.verification.status == "verified"
    session = Session(options, lambda c, s: None)
    session.ask([class_path])
    make_references(analysis, session)
    execution = execution_of(class_path, session, analysis)
    for batch, new, cached in points:
        values = {**execution.workload.hints, "batch_size": batch, "seq_len": new, "cache_len": cached}
        assert execution.holds_at(analysis, values) is True, (batch, new, cached)


@pytest.mark.long
def test_a_length_at_which_an_encoder_takes_another_path_is_an_assumption(
    transformers_tree: Path, tmp_path: Path
) -> None:
    name = f"{MODELS}.bigbird_pegasus.modeling_bigbird_pegasus.BigBirdPegasusEncoder"
    analysis, _ = load_for_evaluation(name, Options(results=tmp_path), lambda c, s: None)
    # (5 + 2 * num_random_blocks) * block_size, at the default config (5 + 2 * 3) * 64.
    assert "{seq_len} <= {block_size} * (2 * {num_random_blocks} + 5)" in analysis.assumptions
