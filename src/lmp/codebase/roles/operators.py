"""Operators of public libraries, by what they do: where the code of a code base ends."""

from __future__ import annotations

import re

ATTENTION = re.compile(
    r"(?:^|\.)(?:scaled_dot_product\w*|flash_attn\w*|flash_attention\w*|flash_mla\w*|_flash_attention_forward|flex_attention|varlen_attn"
    r"|memory_efficient_attention\w*|\w*splash_attention\w*|\w*paged_attention\w*|dot_product_attention|sparse_attn\w*"
    r"|make_splash_mha\w*|mha_\w+|\w*(?:prefill|decode|context)_with_\w*kv_?cache\w*)(?:\(\))?$"
    r"|\.(?!\w*(?:mask|config|support|avail|backend|kernel$|impl$|make_|create_|set_|get_|is_|has_|can_|use_|enable))"
    r"[a-z_]\w*(?:attention|attn|mla)(?:_|$)\w*$"
    r"|\.\w*(?:Attention|MLA|(?:Prefill|Decode)\w*KVCache)\w*\(\)(?:\.(?:run|forward|apply)\w*)?$"
)
"""Calls that compute attention in another package (torch, flash-attn, flashinfer, xformers, MLX, JAX): its functions,
any function of another package that is named after it, and objects of such a class that are called or run."""
DRAWS = frozenset(["multinomial", "categorical", "Categorical", "exponential_", "gumbel"])
"""Operators that nothing but drawing a token needs."""
SAMPLES = DRAWS | {"argmax", "topk", "top_k", "random_categorical"}
"""Operators that draw a token, or cut its distribution."""
SEEDS = frozenset(["manual_seed", "manual_seed_all", "set_seed", "set_random_seed", "seed_everything", "set_rng_state"])
"""Calls that set the state of random numbers for a process or a request."""
KEYS = re.compile(r"\brandom\.(?:PRNGKey|key|seed)$")
"""Calls of array libraries that make such a state from a seed, or set it."""
TRAINS = frozenset(["backward", "value_and_grad", "grad", "filter_value_and_grad", "filter_grad", "apply_gradients"])
SOFTMAX = frozenset(["softmax", "log_softmax"])
MATMULS = frozenset(["matmul", "bmm", "einsum", "baddbmm", "dot_general", "dot", "tensordot"])
JOINS = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack"])
"""What takes queries, keys and values, and only puts them together."""
KEEPS = frozenset(["update", "append", "extend", "setdefault", "print"])
"""What takes them, and only keeps or shows them."""
