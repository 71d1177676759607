"""Formulas of loops over pieces: equal to execution below one piece, at one, with and without a rest, and at many."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from evaluation import evaluate_analysis
from lmp.analyze.modules import analyze_modules, load_for_evaluation
from lmp.analyze.session import Options
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


def executed(name: str, batch: int, tokens: int, **arguments: int) -> tuple[int, int, int, int]:
    """FLOPs, those of matrix products, bytes read and written of one call, counted by operator on the meta device."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), torch.no_grad():
            module = getattr(sys.modules[MODULE], name)(**arguments).eval()
            with Counter(module) as counter:
                module(torch.empty(batch, tokens, arguments.get("dim", 32)))
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
    "OnAllBefore": [(2, 7), (2, 48), (1, 49), (2, 50), (2, 96), (3, 97), (1, 200), (2, 480), (3, 1001)],
}


@pytest.mark.parametrize("name", SIZES)
def test_a_loop_over_pieces(name: str, options: Options) -> None:
    full = f"{MODULE}.{name}"
    outcome = next(o for o in analyze_modules([full], options, lambda c, s: None) if o.requested)
    assert outcome.analysis.verification.status == "verified"
    analysis, lookup = load_for_evaluation(full, options, lambda c, s: None)
    others = [{}, {"dim": 48}, *([{"piece": 10}, {"piece": 30, "dim": 20}] if "Argument" in name else [])]
    for changed in others:
        for batch, tokens in SIZES[name]:
            found = evaluate_analysis(analysis, lookup, {"batch_size": batch, "seq_len": tokens, **changed}).totals
            got = (found.flops, found.matmul_flops, found.read, found.write)
            assert got == executed(name, batch, tokens, **changed), (batch, tokens, changed)
