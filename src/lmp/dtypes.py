"""One table of dtype words: bytes of an element of weights, activations and KV cache, and the dtype of the products.

Bytes are exact, scales included. A scale that many elements share adds its bytes divided by their number:

    word     element    scale                                   bytes of a weight
    mxfp4    4 bits     8 bits (E8M0) for 32 elements           4/8 + 1/32 = 17/32    OCP Microscaling 1.0, section 5.2
    nvfp4    4 bits     8 bits (E4M3) for 16 elements           4/8 + 1/16 = 9/16     and 4 bytes a tensor, not in it
    nf4      4 bits     32 bits for 64 elements                 4/8 + 4/64 = 9/16     bitsandbytes' default
    int4     4 bits     none: the word names no group           4/8 = 1/2
    fp8      8 bits     one a tensor or a channel, not in it    1
    int8     8 bits     one a tensor or a channel, not in it    1

A checkpoint's own `quantization_config` says more than a word: see `lmp.link.quantisation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

Bytes = int | Fraction


@dataclass(frozen=True, slots=True)
class ElementType:
    """What one word says. Where only weights are of it, activations and cache stay in 16 bits."""

    weights: Bytes
    activations: Bytes
    cache: Bytes
    products: str
    """The dtype that matrix products read their operands in: it decides the peak rate of a device."""
    one_format: bool = True
    """True if the word names the format of one tensor, so that it can be the format of the cache too."""


def _scaled(bits: int, scale: int, elements: int) -> Fraction:
    """Bytes of an element of so many bits, with a scale of so many bits for each group of elements."""
    return Fraction(bits, 8) + Fraction(scale, 8 * elements)


_FLOAT32 = ElementType(4, 4, 4, "float32")
_BFLOAT16 = ElementType(2, 2, 2, "bfloat16")
_FLOAT16 = ElementType(2, 2, 2, "float16")
_FLOAT8 = ElementType(1, 1, 1, "float8_e4m3fn")

WORDS: dict[str, ElementType] = {
    "float32": _FLOAT32,
    "fp32": _FLOAT32,
    "bfloat16": _BFLOAT16,
    "bf16": _BFLOAT16,
    "float16": _FLOAT16,
    "fp16": _FLOAT16,
    # Weights and activations: a product of 8-bit operands.
    "float8": _FLOAT8,
    "fp8": _FLOAT8,
    "int8": ElementType(1, 1, 1, "int8"),
    # Weights alone: they are converted to 16 bits before the product.
    "int4": ElementType(Fraction(1, 2), 2, 2, "bfloat16"),
    "nf4": ElementType(_scaled(4, 32, 64), 2, 2, "bfloat16"),
    "mxfp4": ElementType(_scaled(4, 8, 32), 2, 2, "bfloat16"),
    # The product reads 4-bit operands: its kernel converts the activations, which are in memory in 16 bits.
    "nvfp4": ElementType(_scaled(4, 8, 16), 2, 2, "float4_e2m1fn"),
    # wXaY: bits of weights and of activations; the cache is as wide as activations.
    "w8a16": ElementType(1, 2, 2, "bfloat16", one_format=False),
    "w8a8": ElementType(1, 1, 1, "int8", one_format=False),
    "w4a16": ElementType(Fraction(1, 2), 2, 2, "bfloat16", one_format=False),
    "w4a8": ElementType(Fraction(1, 2), 1, 1, "int8", one_format=False),
}
"""Word -> what it says, in the order in which help pages list them."""

CACHE_WORDS = tuple(word for word, found in WORDS.items() if found.one_format)
"""Words that may be the format of the KV cache."""


def sizes(word: str) -> dict[str, Bytes]:
    """The values that a word gives to the variables of formulas."""
    found = WORDS[word]
    return {"w_bytes": found.weights, "a_bytes": found.activations, "kv_bytes": found.cache}


def cache_size(word: str) -> Bytes:
    """Bytes of an element of a KV cache that is stored in this format, its scales included."""
    return WORDS[word].weights
