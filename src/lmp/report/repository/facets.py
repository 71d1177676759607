"""Places of a matter: definitions that its words name, the most used first, with what each does."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from lmp.codebase.facts import Definition, Place
from lmp.report.document.parts import Bold, Inline, Line
from lmp.report.repository.pieces import code, joined, pointer, sentence, with_default
from lmp.report.repository.roles import ASIDE, DIFFUSION
from lmp.report.repository.study import Study

SHOWN = 5
TRAINING = r"(?:^|[/_])(?:train\w*|tuner|lora|dora|finetun\w*|quant\w*|awq|gptq|dwq|perplexity|convert)(?:[/_.]|$)"
"""Files of what is done to a model before it runs: a batch size there is no limit of a server."""


@dataclass(frozen=True)
class Facet:
    title: str
    name: str
    """Of the definition."""
    searched: str
    """The same in words."""
    path: str = ""
    """Files where it counts for more."""
    within: str = ""
    """Files where it counts only, if not of a class that plays one of the parts."""
    never: str = ""
    owners: tuple[str, ...] = ()
    """Parts of components whose methods come first."""
    functions: bool = False
    """Whether only functions and methods count."""
    control: str = ""
    """Flags and environment variables that control it."""


def lines(study: Study, facet: Facet) -> list[Line]:
    """The facet's own bullet, and one for each place."""
    found = places(study, facet)
    controls = _controls(study, facet)
    if not found and not controls:
        return [f"{facet.title}: none found (searched: definitions named by {facet.searched})"]
    bullets: list[Line] = []
    for each in found:
        bullets.append(sentence(Bold(facet.title), ": ", pointer(each.place, each.qualname), " ", what(study, each)))
    if controls:
        bullets.append(sentence(Bold(facet.title), ", controlled by: ", joined(controls)))
    return bullets


def what(study: Study, definition: Definition) -> list[Inline]:
    told = study.what(definition, 100)
    return list(told) if isinstance(told, list) else [told]


def places(study: Study, facet: Facet, most: int = SHOWN) -> list[Definition]:
    named = re.compile(facet.name)
    never = re.compile(f"{facet.never}|{DIFFUSION}" if facet.never else DIFFUSION, re.IGNORECASE)
    nested = {name for _, nest in study.nests for name in nest.names}
    owners = _owners(study, facet)
    best: dict[str, tuple[float, Definition]] = {}
    for each in study.base.definitions:
        path = each.place.file
        if not named.search(each.name) or never.search(f"/{path} {each.qualname}"):
            continue
        if each.name.startswith("__") or ASIDE.search(f"{path} ") or (facet.functions and each.kind == "class"):
            continue
        owned = owners.get((path, each.qualname.rpartition(".")[0]), 0)
        if facet.within and not owned and not re.search(facet.within, path.lower()):
            continue
        score = math.log2(1 + study.base.imported_by(each)) + min(math.log2(1 + each.end - each.place.line), 6) / 3
        score += 2 if facet.path and re.search(facet.path, each.place.file) else 0
        score += owned + (4 if each.qualname in nested else 0)
        # A property or a stub of a base class, which only passes something on.
        score -= 3 if each.kind != "class" and each.end - each.place.line <= 2 else 0
        score += 0.5 if each.doc else 0
        # Of overrides the one of the class with most subclasses and importers stands for all.
        if each.name not in best or score > best[each.name][0]:
            best[each.name] = score, each
    ranked = sorted(best.values(), key=lambda item: (-item[0], item[1].place.file, item[1].place.line))
    return [each for _, each in ranked[:most]]


def _owners(study: Study, facet: Facet) -> dict[tuple[str, str], float]:
    """Classes that play the facet's parts, the best of each first."""
    found: dict[tuple[str, str], float] = {}
    for title in facet.owners:
        component = study.component(title)
        if component is not None:
            for at, each in enumerate((component.definition, *component.also)):
                found.setdefault((each.place.file, each.qualname), 6 - at)
    return found


def _counts(study: Study, place: Place) -> bool:
    """Whether a setting is of what runs a language model, and not of a tool beside it."""
    aside = ASIDE.search(place.file) or re.search(rf"{DIFFUSION}|/tools?/|expert_pack|{TRAINING}", place.file, re.I)
    return study.base.is_own(place.file) and not aside


_SERVING = re.compile(r"serv|engine|arg|generat", re.IGNORECASE)


def _controls(study: Study, facet: Facet) -> list[list[Inline]]:
    if not facet.control:
        return []
    wanted = re.compile(facet.control, re.IGNORECASE)
    found: dict[str, tuple[str, Place]] = {}
    # Of flags of one name that of the server or of the generation, where there is one.
    for flag in sorted(study.base.facts.flags, key=lambda flag: _SERVING.search(flag.place.file) is None):
        if _counts(study, flag.place) and any(wanted.search(name) for name in flag.names):
            found.setdefault(flag.names[0], (with_default(flag.names[0], flag), flag.place))
    for read in study.base.facts.env:
        if read.resolved and wanted.search(read.name) and _counts(study, read.place):
            found.setdefault(read.name, (with_default(read.name, read), read.place))
    return [[code(text, 60), " at ", pointer(place)] for text, place in list(found.values())[:6]]


CACHES = ("KV cache", "prefix cache", "block or page allocator")
KV_CACHE = (
    Facet(
        "Update path (append, swap, evict)",
        r"^(set_kv\w*|set_mla_kv\w*|update_and_fetch|append\w*|store_kv\w*|store_cache|evict\w*|swap_\w+|free|free_\w*|trim\w*"
        r"|insert|cache_finished_req|cache_unfinished_req|update|rewind\w*|extend|merge|crop)$"
        r"|kv_cache\w*(update|append|write|store)|(update|append|write|store)\w*kv_?cache|reshape_and_cache",
        "append, update, store, insert, evict, swap, free, trim of a cache",
        within=r"cache|mem_|memory|pool|kv|block",
        never=r"log|metric|config|args|optim|tokenizer|lora|hash|session",
        owners=CACHES,
    ),
    Facet(
        "Paging / block tables (if any)",
        r"(?i)page_?table|block_?table|req_to_token|slot_mapping|page_ind|kv_indices|block_?manager|paged"
        r"|allocate_slots|alloc_(extend|decode|token)",
        "page table, block table, request to token, slot mapping, paged",
        path=r"cache|mem|pool|block",
        never=r"test|metric|template",
        owners=CACHES,
    ),
    Facet(
        "Memory accounting",
        r"available_size|evictable_size|nbytes|mem(ory)?_(usage|fraction|pool_size|budget)|profile_max_num_token"
        r"|max_(total_)?num_tokens|gpu_memory|get_num_free|num_free_\w+|free_memory|cell_size|kv_cache_(size|bytes|memory)"
        r"|estimate\w*mem|allocatable|fill_in_\w+_sizes|malloc_and_point|kv_size_bytes",
        "available size, memory fraction, number of tokens that fit, bytes of the cache",
        path=r"cache|mem|pool|sched|runner",
        never=r"dtype_nbytes|/ops/|kernels?/",
        owners=CACHES,
        control=r"mem[-_]fraction|kv[-_](cache[-_])?(dtype|bits|size)|page[-_]size|gpu[-_]mem|max[-_]total[-_]tokens|max[-_]kv",
    ),
)
SCHEDULER = (
    Facet(
        "Queueing + priorities",
        r"waiting_?queue|^_?add_(request|req|seq)\w*|calc_priority|priorit|[Ss]chedule_?[Pp]olicy|^insert$|enqueue"
        r"|process_input_requests",
        "waiting queue, add request, priority, schedule policy, enqueue",
        within=r"sched|engine|queue|generate|server|batch|manager",
        never=r"log|metric|quant|hook|cache|mem_",
        owners=("scheduler", "engine"),
        control=r"schedul\w*[-_]policy|priority|schedule[-_]cons",
    ),
    Facet(
        "Chunking / preemption",
        r"chunk(ed)?_?(prefill|req|size)|prefill_(chunk|step|adder)|PrefillAdder|preempt|retract|split_prefill|_prefill$"
        r"|next_batch|new_batch_prefill|^_?next$",
        "chunked prefill, prefill step, preempt, retract, next batch",
        within=r"sched|engine|generate|batch|manager|runner",
        never=r"log|metric|ops/|kernels?/|attention|_is_|should",
        owners=("scheduler",),
        control=r"chunked[-_]prefill|prefill[-_]step|(?<![a-z])max[-_]prefill",
    ),
    Facet(
        "Backpressure / admission control",
        r"max_(running|num)_(req|seq)|queued?_limit|^can_(allocate|append|schedule)\w*|budget|allocatable_req|admission"
        r"|backpressure|batch_is_full|completion_batch_size|get_num_allocatable",
        "running or queued limit, can allocate, budget, allocatable requests, admission, batch is full",
        within=r"sched|engine|batch|generate|manager|block",
        never=r"cuda_graph|metric|lora|attention|/ops/|kernels?/",
        owners=("scheduler", "block or page allocator"),
        control=r"max[-_](running|queued|num)[-_](req|seq)|(decode|prompt|prefill|request)\w*[-_]concurren|^-*batch[-_]size",
    ),
)
SAMPLING = (
    Facet(
        "Logits processing",
        r"(?i)logits?_?process|^process_logits|penalt|logit_bias|repetition|apply_\w*mask\w*logits|^apply_temperature",
        "logits processor, penalty, logit bias, repetition, temperature",
        path=r"sampl|logit",
        never=r"metric|log_|/models/",
        owners=("sampling",),
    ),
    Facet(
        "Parameters: temperature/top_p/top_k/repetition",
        r"SamplingParams|SamplingArg|make_sampler|GenerationConfig|top_?[pk]|min_?p\b|apply_min_p|apply_xtc"
        r"|SamplingBatchInfo|sample_(mult|argmax|topp|top_p)",
        "sampling parameters, top p, top k, min p, sampler",
        within=r"sampl|generat|logit|param|main",
        never=r"moe|expert|router|topk_(ids|weights|gating)|logprob|/ops/|kernels?/|attention|index",
        owners=("sampling", "sampling parameters"),
        control=r"^-*(temp|temperature|top[-_][pk]|min[-_]p|repetition|frequency)",
    ),
    Facet(
        "Determinism / seeds",
        r"(?i)^(?:(?:set|get|init|fix)_)?(?:(?:random|sampling|manual|rng)_)?seeds?$|(?:with|random|sampling|manual|set)_seed"
        r"|seed_everything|determinis|batch_invariant|random_f32|random_u32",
        "seed, deterministic, batch invariant",
        path=r"sampl|determin|random|util",
        never=r"metric|train|dropout|/models?/|lora|reduce_|collectiv",
        functions=True,
        control=r"^-*(?:\w*[-_])?seed$|determinis",
    ),
)
