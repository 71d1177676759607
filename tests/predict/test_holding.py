"""What a model holds by its formulas, against the runs that the atlas has of 40 models; and what they cannot tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from lmp.atlas.archive import PACKAGED, Atlas
from lmp.atlas.holding import read
from lmp.observe.held import Held
from lmp.predict.cache_blocks import kv_kinds
from lmp.predict.holding import MOST_BUFFERS, held_by_formulas
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
        # Equal, but for what is no parameter: scales of a weight that is read outside of its layer's own call, 0.16 %
        # of DeepSeek-V3, and buffers, of which up to MOST_BUFFERS are taken for weights.
        assert theirs <= ours <= theirs * (1 + MOST_BUFFERS), name
        for tp in (1, 8):
            for tokens in (64, 8192):
                kept = [sum(kind.bytes(tokens) for kind in kv_kinds(held, tp, Fraction(2))) for held in (own, run)]
                assert kept[0] == kept[1], (name, tp, tokens)


GATED = {
    "meta-llama--Meta-Llama-3.1-8B": (4096, 14336),
    "meta-llama--Meta-Llama-3.1-70B": (8192, 28672),
    "Qwen--Qwen3-8B": (4096, 12288),
    "Qwen--Qwen3-32B": (5120, 25600),
}
"""Entries of the atlas with gated linear layers -> hidden and inner size, from their configs. Heads have 128."""


def test_activations_of_a_gated_layer_are_those_of_its_widest_line(
    pairs: list[tuple[str, Held | str, Held]],
) -> None:
    found = {name: (own, run) for name, own, run in pairs if name in GATED}
    assert found.keys() == GATED.keys()
    for name, (hidden, inner) in GATED.items():
        own, run = found[name]
        assert not isinstance(own, str)
        for tokens in (1024, 8192):
            ours, theirs = own.live(tokens, {}), run.live(tokens, {})
            assert not isinstance(ours, str)
            assert not isinstance(theirs, str)
            # act(gate), up and their product; the layer's input, the sum behind attention, and its norm; cosines and
            # sines of each position. 2 bytes each. A run has ids and positions beside, of 8 bytes each.
            assert ours.bytes == 2 * tokens * (3 * inner + 3 * hidden + 2 * 128), name
            assert theirs.bytes == ours.bytes + tokens * 2 * 8, name


STATED = re.compile(
    r"Of (\d+) models of the atlas, .*?(\d+) % less to (\d+) % more.*?the most is ([\d.]+) GiB less, of ([\d.]+) ",
    re.DOTALL,
)
GIB = 2**30


def test_the_error_of_activations_is_as_the_docs_state_it(pairs: list[tuple[str, Held | str, Held]]) -> None:
    """Locals of a function live to its end, which operands do not tell: no bound follows, so the error is measured."""
    said = STATED.search((Path(__file__).parents[2] / "docs" / "prediction.md").read_text(encoding="utf-8"))
    assert said is not None
    short, long = (
        [
            (ours.bytes, theirs.bytes)
            for _, own, run in pairs
            if not isinstance(own, str)
            for ours, theirs in [(own.live(tokens, {}), run.live(tokens, {}))]
            if not isinstance(ours, str) and not isinstance(theirs, str)
        ]
        for tokens in (1024, 8192)
    )
    ratios = [ours / theirs for ours, theirs in short]
    missing, of = max((theirs - ours, theirs) for ours, theirs in long)
    measured = (str(len(ratios)), f"{100 - 100 * min(ratios):.0f}", f"{100 * max(ratios) - 100:.0f}")
    assert said.groups() == (*measured, f"{missing / GIB:.1f}", f"{of / GIB:.1f}")


def test_a_state_or_an_index_beside_keys_and_values_is_never_left_out(
    pairs: list[tuple[str, Held | str, Held]],
) -> None:
    more = [(name, own) for name, own, run in pairs if any(one.state_bytes or one.other_bytes for one in run.kept)]
    assert more
    for name, own in more:
        assert isinstance(own, str), name
