"""What a call says of how a model is run, by its name: which calls are shown, and which come first."""

from __future__ import annotations

import re

_MOST = re.compile(
    r"prefill|decode(?!_token|_req|r)|extend|forward|sampl(?!ing_params)|schedul|next_batch|run_batch|^alloc|_alloc|evict|preempt|retract"
    r"|generate|^model$|_model_call|execute_model|verify|draft|update_and_fetch|set_kv|append_(?:kv|slot|n)|free_(?:kv|slot)"
    r"|logits_process|launch|attention|attn|recurrent|_fwd\b|_fwd_"
)
_CORE = re.compile(
    r"^forward$|^forward_(decode|extend|prefill|batch_generation|raw)$|^_?forward_raw|^_?sample$|^run_batch$|^execute_model$"
    r"|^(get_)?next_batch|^schedule$|^_?model(_call)?$|^layers?$|^self_attn$|^set_kv_buffer$|^update_and_fetch$|^_?step$"
)
_MUCH = re.compile(
    r"step|batch|^_?run$|^_?run_|execute|postprocess|prepare|cache|logits|process_batch|append|output|token|quantize|mlp|moe|expert|layer|embed|norm|lm_head"
    r"|match_prefix|recv|request|merge|filter|replay|capture|matmul|gemm|linear|rope|rotary|softmax|kernel|launch"
)
_NOT = re.compile(
    r"log(?!it)|metric|trace|tracing|profil|timer|time(?:d|out|stamp)?$|debug|stats?\b|warn|assert|^check|_check|health|nvtx"
    r"|print|record|observ|watchdog|monitor|^is_|^has_|^get_(?!next|new|kv|key|value|batch|logits)|^len$|^max$|^min$|^sum$"
    r"|progress|callback|report|dump|deepcopy|^copy$|^to$|^item$|isinstance|getattr|setattr|hasattr|^init_|^_init|^__init__$"
    r"|config|convert|validate|format|tree_map|async_eval|_eval$|^eval$|^cdiv$|empty|zeros|^ones|metadata$|barrier|stream$"
    r"|dtype|device|^set_(?!kv)|lock|event$|notify|hash|sleep|wait|synchron|range|enumerate|zip|maybe_dump|_hook"
    r"|parser|add_argument|environ|^sync|fallback|autotune_|context_fn|contiguous|^view$|reshape|transpose|permute|expand$"
    r"|registry|register|^list$|^dict$|^tuple$|^set$|^str$|^int$|^float$|^bool$|^open$|^sorted$|^any$|^all$|^super$|^type$"
)
_NEVER = re.compile(
    r"^_?(?:is|has|should|can|need|num|log|record|emit|report|check|assert|validate|maybe_log|increment)_|^batch_size$|metric"
    r"|(?:^|_)stats?$|time_stats|^set_\w*time|config$|_args$|_class$|^get_\w*(?:name|size|len|id|dtype|config|device|info|stats)$"
)
PLAIN = frozenset(
    [
        "append",
        "extend",
        "add",
        "pop",
        "get",
        "keys",
        "values",
        "items",
        "join",
        "split",
        "update",
        "clear",
        "remove",
        "insert",
        "copy",
        "index",
        "sort",
        "put",
        "send",
    ]
)
_RUNS = frozenset(["next", "prompt", "generate", "step"])
"""What a batch or a scheduler does once a step: of other things these names say nothing."""
_HOLDER = re.compile(r"cache|block|pool|alloc|schedul|queue|waiting|running|batch|kv")


def may_matter(name: str, receiver: str) -> bool:
    """Whether a call whose name says nothing may be shown where there is room."""
    low = name.lower()
    aside = _NEVER.search(low) or _NOT.search(low) or low in PLAIN or low.startswith("__")
    return not aside and not re.search(r"metric|logger|stats|tracer|profiler|parser$|hook$", receiver.lower())


def weight(name: str, receiver: str) -> float:
    """3 to 1 for a call that says something, 0 for one that does not. ``receiver`` is what stands before the dot."""
    low = name.lower()
    if low in _RUNS and _HOLDER.search(receiver.lower()) and not _NOT.search(receiver.lower()):
        return 4
    if re.fullmatch(r"_?(logits_?)?processor", low):
        return 3
    if _NEVER.search(low) or re.search(r"metric|logger|stats|tracer|profiler|parser$|hook$", receiver.lower()):
        return 0
    if low in PLAIN:
        # Lists and dicts have these methods too: only what is known to hold requests or cache says something.
        return 2 if _HOLDER.search(receiver.lower()) and not _NOT.search(receiver.lower()) else 0
    if _NOT.search(low) and not re.search(r"prefill|decode|forward|sampl|schedul|attn|attention|_kv|alloc", low):
        return 0
    if re.match(r"_?get_(?!next|new_batch|kv|batch|logits)", low):
        return 0.5
    if _CORE.search(low):
        return 4
    if _MOST.search(low):
        return 3
    if _MUCH.search(low):
        return 2
    if name == "__call__" or re.search(r"model|layer|attn|mlp", receiver.lower()):
        return 1
    return 0
