"""Section 11: the words that this report uses, and where its techniques and definitions are described."""

from __future__ import annotations

from collections.abc import Callable

from lmp.report.document.parts import Link
from lmp.report.facts import ModelFacts
from lmp.report.implementation import classes
from lmp.report.implementation.classes import roles_of
from lmp.report.implementation.naming import settings_of

Used = Callable[[ModelFacts, frozenset[str]], bool]
"""Whether a model's report uses a word, by the facts and the roles of its classes."""


def glossary(facts: ModelFacts) -> list[tuple[str, str]]:
    """The words that a model's report uses, each with what it means."""
    roles = frozenset(roles_of(facts).values())
    return [(term, meaning) for term, meaning, used in GLOSSARY if used(facts, roles)]


def papers(facts: ModelFacts) -> list[Link]:
    """What describes the techniques of the model."""
    roles = frozenset(roles_of(facts).values())
    return [Link(text, address) for text, address, used in PAPERS if used(facts, roles)]


def _always(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return True


def _decodes(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return "cache_len" in facts.model.parameters


def _has(role: str) -> Used:
    return lambda facts, roles: role in roles


def _category(name: str) -> Used:
    return lambda facts, roles: any(k.category == name for a in facts.analyses.values() for k in a.kernels)


def _shares_heads(facts: ModelFacts, roles: frozenset[str]) -> bool:
    named = facts.named
    keys, queries = named.get("config.num_key_value_heads"), named.get("config.num_attention_heads")
    return bool(keys and queries and keys < queries) and not _is_latent(facts, roles)


def _prefills(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return facts.called("prefill") == "prefill"


def _is_latent(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return bool(facts.named.get("config.kv_lora_rank"))


def _slides(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return bool(facts.named.get("config.sliding_window")) and any(
        "sliding_window" in text for a in facts.analyses.values() for text in (*a.parameters, *a.assumptions)
    )


def _is_gated_by_silu(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return classes.FEED_FORWARD in roles and settings_of(facts).get("hidden_act") in ("silu", "swish")


def _is_yarn(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return settings_of(facts).get("rope_parameters.rope_type") == "yarn"


def _is_quantised(facts: ModelFacts, roles: frozenset[str]) -> bool:
    return facts.inspection is not None and facts.inspection.quantised is not None


GLOSSARY: tuple[tuple[str, str, Used], ...] = (
    ("a_bytes, kv_bytes, w_bytes", "bytes of an element of activations, KV cache and weights: 2 in bfloat16", _always),
    ("ATen operator", "what PyTorch dispatches for a line of Python: one kernel launch, or a few", _always),
    ("batch_size, seq_len", "sequences of a call, and new tokens of each", _always),
    ("bound", "the least time that a device's peak rates allow; nothing was measured", _always),
    ("cache_len", "tokens that are in the KV cache before the call", _decodes),
    ("compulsory bytes", "inputs, weights and cache read once, outputs and new cache entries written once", _always),
    ("decode", "a call with one new token for each sequence, after cached ones", _decodes),
    ("eager", "each operator runs by itself: it reads its inputs from memory and writes its result there", _always),
    (
        "expert",
        "one of several feed-forward networks, of which a token uses those that the router chose",
        _has(classes.ROUTER),
    ),
    ("FLOP", "one scalar operation; a multiply-add of a matrix product is 2", _always),
    (
        "grouped matmul",
        "one product for all experts: the rows of each expert with its own weights",
        _category("grouped_matmul"),
    ),
    ("grouped-query attention", "several query heads read the same key and value head", _shares_heads),
    ("intensity", "FLOPs for each byte that is moved", _always),
    ("KV cache", "what attention keeps of earlier tokens", _decodes),
    (
        "latent attention",
        "keys and values are cached as one short vector a token, and projected up when used",
        _is_latent,
    ),
    ("launch", "one operator that moves bytes", _always),
    ("prefill", "a call on all tokens of a prompt, with an empty cache", _prefills),
    ("quantised", "weights stored in fewer bits than they are computed in", _is_quantised),
    ("ridge", "the intensity at which a device's arithmetic and its memory take the same time", _always),
    ("RMS normalization", "division by the root of the mean square, without a mean taken off", _has(classes.NORM)),
    (
        "rotary position",
        "queries and keys are rotated in pairs of dimensions, by angles that grow with the position",
        _has(classes.POSITION),
    ),
    ("router", "the projection that scores the experts for each token", _has(classes.ROUTER)),
    ("sdpa", "torch.nn.functional.scaled_dot_product_attention, counted whole", _category("attention")),
    ("sliding window", "attention to the latest tokens only", _slides),
    ("verified", "formulas that were equal to what execution counted at every point that was judged", _always),
)

PAPERS: tuple[tuple[str, str, Used], ...] = (
    ("Vaswani et al. 2017, Attention Is All You Need", "https://arxiv.org/abs/1706.03762", _has(classes.ATTENTION)),
    ("Ainslie et al. 2023, GQA", "https://arxiv.org/abs/2305.13245", _shares_heads),
    ("DeepSeek-AI 2024, DeepSeek-V2 (multi-head latent attention)", "https://arxiv.org/abs/2405.04434", _is_latent),
    ("Su et al. 2021, RoFormer (rotary positions)", "https://arxiv.org/abs/2104.09864", _has(classes.POSITION)),
    ("Peng et al. 2023, YaRN", "https://arxiv.org/abs/2309.00071", _is_yarn),
    (
        "Zhang and Sennrich 2019, Root Mean Square Layer Normalization",
        "https://arxiv.org/abs/1910.07467",
        _has(classes.NORM),
    ),
    ("Shazeer 2020, GLU Variants Improve Transformer", "https://arxiv.org/abs/2002.05202", _is_gated_by_silu),
    (
        "Shazeer et al. 2017, Outrageously Large Neural Networks (mixture of experts)",
        "https://arxiv.org/abs/1701.06538",
        _has(classes.ROUTER),
    ),
    ("Beltagy et al. 2020, Longformer (sliding windows)", "https://arxiv.org/abs/2004.05150", _slides),
    ("Dao 2023, FlashAttention-2: what sdpa may run as", "https://arxiv.org/abs/2307.08691", _category("attention")),
    ("Williams et al. 2009, Roofline", "https://doi.org/10.1145/1498765.1498785", _always),
)
