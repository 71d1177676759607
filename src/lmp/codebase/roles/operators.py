"""Operators of public libraries, by what they do: where the code of a code base ends."""

from __future__ import annotations

import re

ATTENTION = re.compile(
    r"(?:^|\.)(?:scaled_dot_product_attention|flash_attn\w*|flash_attention\w*|flex_attention|varlen_attn"
    r"|memory_efficient_attention\w*|splash_attention\w*|paged_attention\w*|dot_product_attention|sparse_attn\w*"
    r"|make_splash_mha\w*|mha_\w+|ragged_paged_attention\w*|flashinfer\.(?:\w+\.)*[a-z]\w*(?:attention|prefill|decode|mla)\w*"
    r"|_flash_attention_forward"
    r"|scaled_dot_product\w*)(?:\(\))?$"
)
"""Calls that compute attention in another package (torch, flash-attn, flashinfer, xformers, MLX, JAX)."""
SAMPLES = frozenset(
    ["multinomial", "categorical", "argmax", "exponential_", "topk", "top_k", "gumbel", "random_categorical"]
)
"""Operators that draw a token, or cut its distribution."""
DRAWS = frozenset(["multinomial", "categorical", "exponential_", "gumbel"])
"""Those that nothing but drawing needs."""
SEEDS = frozenset(
    [
        "manual_seed",
        "manual_seed_all",
        "set_seed",
        "set_random_seed",
        "seed_everything",
        "set_rng_state",
    ]
)
"""Calls that set the state of random numbers for a process or a request."""
TRAINS = frozenset(["backward", "value_and_grad", "grad", "apply_gradients"])
SOFTMAX = frozenset(["softmax", "log_softmax"])
MATMULS = frozenset(["matmul", "bmm", "einsum", "baddbmm", "dot_general"])
JOINS = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack"])
"""What takes queries, keys and values, and only puts them together."""
