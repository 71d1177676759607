"""The table of dtype words: each value by the arithmetic of its format."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lmp.dtypes import CACHE_WORDS, WORDS, cache_size, sizes
from lmp.formula import read_number

PAGE = Path(__file__).parents[1] / "docs" / "bytes.md"


@pytest.mark.parametrize(
    ("word", "elements", "of_elements"),
    [
        ("mxfp4", 32, 16 + 1),  # 32 elements of 4 bits are 16 bytes; a scale of 8 bits is 1
        ("nvfp4", 16, 8 + 1),  # 16 of 4 bits are 8 bytes; a scale of 8 bits
        ("nf4", 64, 32 + 4),  # 64 of 4 bits are 32 bytes; a float32
        ("int4", 2, 1),
        ("w4a8", 2, 1),
        ("fp8", 1, 1),
        ("fp16", 1, 2),
        ("fp32", 1, 4),
    ],
)
def test_bytes_of_weights(word: str, elements: int, of_elements: int) -> None:
    assert WORDS[word].weights * elements == of_elements


def test_two_spellings_are_one_type() -> None:
    for long, short in (("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16"), ("float8", "fp8")):
        assert WORDS[long] is WORDS[short]


def test_where_weights_alone_are_small_products_are_in_16_bits() -> None:
    for word, found in WORDS.items():
        if word.endswith("a16"):
            assert (found.activations, found.cache, found.products) == (2, 2, "bfloat16")
        assert sizes(word)["w_bytes"] == found.weights


def test_the_cache_has_one_format() -> None:
    assert not {"w8a16", "w8a8", "w4a16", "w4a8"} & set(CACHE_WORDS)
    assert (cache_size("fp8"), cache_size("int4")) == (1, Fraction(1, 2))


def test_the_page_of_the_docs_has_the_table() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    found = {}
    for cells in rows:
        words, *sizes_of, products = (cell.strip() for cell in cells)
        if len(sizes_of) == 3:
            for word in words.replace("`", "").split():
                found[word] = (*map(read_number, sizes_of), products)
    assert found == {
        word: (entry.weights, entry.activations, entry.cache, entry.products) for word, entry in WORDS.items()
    }
