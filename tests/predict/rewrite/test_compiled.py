"""The compiled profile against inductor's own code, which the benchmark generates on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from project_scripts import program

compiled = program("benchmarks/compiled_kernels.py")
WORDS = frozenset({"_to_copy", "add", "mul", "native_layer_norm", "view", "rsqrt", "to", "copy"})


def test_a_name_is_split_into_its_operators() -> None:
    # Views are no work. The words stand in the alphabet's order: `to` and `copy` in `_to_copy` do not.
    assert compiled.split_name("_to_copy_add_mul_view", WORDS) == {"_to_copy", "add", "mul"}
    assert compiled.split_name("add_native_layer_norm", WORDS) == {"add", "native_layer_norm"}
    with pytest.raises(ValueError, match="add_softsign is of no known operators"):
        compiled.split_name("add_softsign", WORDS)


def test_kernels_are_paired_with_the_nearest() -> None:
    add, norm, act = frozenset({"add"}), frozenset({"add", "mul", "rsqrt"}), frozenset({"mul", "silu"})
    found = compiled.Compared("made", (norm, act), (act, add, frozenset({"add", "rsqrt"})))
    # The activation is the same, the norm has 2 of 3 operators in common, one chain has no pair: (1 + 2 / 3 + 0) / 3.
    assert [alike for _, _, alike in found.pairs] == [1.0, pytest.approx(2 / 3)]
    assert found.agreement == pytest.approx(5 / 9)


# One with norms of layers, and one with gates and with norms of heads: the benchmark compares all of its models.
@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2", "qwen3"])
def test_chains_are_near_what_inductor_fuses(model: str, tmp_path: Path, transformers_tree: Path) -> None:
    found = compiled.compared(model, tmp_path)
    # Measured on torch 2.13: 13, 13, 13, 7, 13 kernels for 13, 13, 16, 9, 11 chains; agreement 61 to 84 %.
    assert abs(len(found.inductor) - len(found.chains)) <= 3
    assert found.agreement >= 0.6
