"""What a model holds by its formulas, against the runs that the atlas has of 40 models; and what they cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from lmp.atlas.archive import PACKAGED, Atlas
from lmp.atlas.holding import read
from lmp.observe.held import Held
from lmp.predict.cache_blocks import kv_kinds
from lmp.predict.holding import held_by_formulas
from lmp.predict.screen.asking import Subject

TOLD = 24
"""Entries of the atlas that formulas have to tell at least, so that this is a test."""


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, Held | str, Held]]:
    """Name, by formulas, and as it was built and run."""
    atlas = Atlas(PACKAGED)

    def every() -> Iterator[tuple[str, Held | str, Held]]:
        for listed in atlas.entries():
            entry = atlas.load(listed)
            if entry.held is not None:
                yield listed.name, held_by_formulas(Subject(entry.model), {}), read(entry.held)

    return list(every())


def test_what_formulas_tell_is_what_the_model_holds(pairs: list[tuple[str, Held | str, Held]]) -> None:
    told = [(name, own, run) for name, own, run in pairs if not isinstance(own, str)]
    assert len(told) >= TOLD
    for name, own, run in told:
        ours, theirs = (sum((weight.stored for weight in held.weights), Fraction(0)) for held in (own, run))
        # Equal, but for scales of a weight that is read outside of its layer's own call: 0.16 % of DeepSeek-V3.
        assert theirs <= ours <= theirs * Fraction(1002, 1000), name
        for tp in (1, 8):
            for tokens in (64, 8192):
                kept = [sum(kind.bytes(tokens) for kind in kv_kinds(held, tp, Fraction(2))) for held in (own, run)]
                assert kept[0] == kept[1], (name, tp, tokens)


def test_activations_are_within_half_of_those_of_a_run(pairs: list[tuple[str, Held | str, Held]]) -> None:
    """Locals of a function live to its end, which operands do not tell: at most 1 GiB of 80 at 8k tokens."""
    for name, own, run in pairs:
        if isinstance(own, str):
            continue
        live = [held.live(1024, {}) for held in (own, run)]
        ours, theirs = (None if isinstance(one, str) else one.bytes for one in live)
        if ours is not None and theirs is not None:
            assert 0.5 <= ours / theirs <= 1.35, (name, ours, theirs)


def test_a_state_or_an_index_beside_keys_and_values_is_never_left_out(
    pairs: list[tuple[str, Held | str, Held]],
) -> None:
    more = [(name, own) for name, own, run in pairs if any(one.state_bytes or one.other_bytes for one in run.kept)]
    assert more
    for name, own in more:
        assert isinstance(own, str), name
