"""Places of a matter: definitions that its words name, the most used first, with what each does."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from lmp.recon.facts import Definition, Place
from lmp.report.document.parts import Bold, Inline, Line
from lmp.report.repository.pieces import code, joined, pointer, sentence
from lmp.report.repository.roles import ASIDE, DIFFUSION
from lmp.report.repository.study import Study

SHOWN = 5


@dataclass(frozen=True)
class Facet:
    title: str
    name: str
    """Of the definition, dotted."""
    path: str = ""
    """Files where it counts for more."""
    never: str = ""
    kinds: tuple[str, ...] = ("function", "method", "class")
    control: str = ""
    """Flags and environment variables that control it."""


def lines(study: Study, facet: Facet) -> list[Line]:
    """The facet's own bullet, and one for each place."""
    found = places(study, facet)
    controls = _controls(study, facet)
    if not found and not controls:
        searched = f"definitions named by {facet.name}".replace("|", ", ").replace("\\w*", "").replace("\\", "")
        return [
            sentence(
                f"{facet.title}: none found (searched: ", code(searched, 200), " in all of the repository's own code)"
            )
        ]
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
    best: dict[str, tuple[float, Definition]] = {}
    for each in study.base.definitions:
        if (
            each.kind not in facet.kinds
            or not named.search(each.name)
            or never.search(f"{each.place.file} {each.qualname}")
        ):
            continue
        if each.name.startswith("__") or ASIDE.search(f"{each.place.file} "):
            continue
        score = math.log2(1 + study.base.imported_by(each)) + min(math.log2(1 + each.end - each.place.line), 6) / 3
        score += 2 if facet.path and re.search(facet.path, each.place.file) else 0
        score += 4 if each.qualname in nested else 0
        score += 0.5 if each.doc else 0
        # Of overrides the one of the class with most subclasses and importers stands for all.
        if each.name not in best or score > best[each.name][0]:
            best[each.name] = score, each
    ranked = sorted(best.values(), key=lambda item: (-item[0], item[1].place.file, item[1].place.line))
    return [each for _, each in ranked[:most]]


def _controls(study: Study, facet: Facet) -> list[list[Inline]]:
    if not facet.control:
        return []
    wanted = re.compile(facet.control, re.IGNORECASE)
    found: dict[str, tuple[str, Place]] = {}
    for flag in study.base.facts.flags:
        if study.base.is_own(flag.place.file) and any(wanted.search(name) for name in flag.names):
            found.setdefault(
                flag.names[0],
                (f"{flag.names[0]}={flag.default}" if flag.default is not None else flag.names[0], flag.place),
            )
    for read in study.base.facts.env:
        if read.resolved and wanted.search(read.name) and study.base.is_own(read.place.file):
            found.setdefault(
                read.name, (f"{read.name}={read.default}" if read.default is not None else read.name, read.place)
            )
    return [[code(text, 60), " at ", pointer(place)] for text, place in list(found.values())[:6]]


KV_CACHE = (
    Facet("Update path (append, swap, evict)",
          r"^(set_kv\w*|update_and_fetch|append\w*|store_kv\w*|store_cache|evict\w*|swap_\w+|free|free_\w*|trim\w*|insert|cache_finished_req"
          r"|cache_unfinished_req|update|rewind\w*|extend|merge)$|kv_cache\w*(update|append|write|store)|(update|append|write|store)\w*kv_?cache|reshape_and_cache",
          path=r"cache|mem|pool|kv", never=r"log|metric|config|args|optim|tokenizer|/models/|lora"),
    Facet("Paging / block tables (if any)",
          r"(?i)page_?table|block_?table|req_to_token|slot_mapping|page_indices|kv_indices|block_manager|page_size|paged|allocate_slots|alloc_(extend|decode|token)",
          path=r"cache|mem|pool|attention|block", never=r"test|metric"),
    Facet("Memory accounting",
          r"available_size|evictable_size|nbytes|mem(ory)?_(usage|fraction|pool_size|budget)|profile_max_num_token|max_(total_)?num_tokens"
          r"|gpu_memory|get_num_free|num_free_\w+|free_memory|cell_size|kv_cache_(size|bytes|memory)|estimate\w*mem|allocatable|malloc_and_point|fill_in_\w+_sizes",
          path=r"cache|mem|pool|sched|runner", control=r"mem[-_]fraction|kv[-_](cache[-_])?(dtype|bits|size)|page[-_]size|gpu[-_]mem|max[-_](total[-_])?(tokens|kv)"),
)  # fmt: skip
SCHEDULER = (
    Facet("Queueing + priorities",
          r"waiting_?queue|add_(request|req|seq)\w*|_add_request\w*|calc_priority|priorit|schedule_policy|SchedulePolicy|^insert$|enqueue|process_input_requests|policy",
          path=r"sched|engine|queue|generate|server|batch", never=r"log|metric|quant|hook|memory_policy|remat",
          control=r"schedul\w*[-_]policy|priority|schedule[-_]cons"),
    Facet("Chunking / preemption",
          r"chunk(ed)?_?(prefill|req|size)|prefill_(chunk|step|adder)|PrefillAdder|preempt|retract|split_prefill|_prefill$|next_batch|new_batch_prefill|^_?next$",
          path=r"sched|engine|generate|batch", never=r"log|metric|ops/|kernels?/|attention",
          control=r"chunked[-_]prefill|prefill[-_]step|max[-_]prefill"),
    Facet("Backpressure / admission control",
          r"max_(running|num)_(req|seq)|queue(d)?_limit|can_(allocate|append|schedule|run)\w*|budget|abort_on_queue\w*|allocatable_req|admission|backpressure|is_full|batch_is_full|completion_batch_size|get_num_allocatable",
          path=r"sched|engine|batch|generate", never=r"cuda_graph|metric|lora",
          control=r"max[-_](running|queued|num)[-_](req|seq)|concurren|batch[-_]size"),
)  # fmt: skip
SAMPLING = (
    Facet("Logits processing",
          r"(?i)logits?_?process|^process_logits|LogitsProcessor|penalt|logit_bias|repetition|apply_\w*mask\w*logits|temperature", path=r"sampl|logit",
          never=r"metric|log_|/models/"),
    Facet("Parameters: temperature/top_p/top_k/repetition",
          r"SamplingParams|SamplingArg|make_sampler|GenerationConfig|top_?[pk]|min_?p\b|apply_min_p|apply_xtc|SamplingBatchInfo|sample_(mult|argmax|topp|top_p)",
          path=r"sampl", never=r"moe|expert|router|topk_(ids|weights|gating)|router|logprob|/ops/|kernels?/",
          control=r"^-*(temp|temperature|top[-_][pk]|min[-_]p|repetition|frequency)"),
    Facet("Determinism / seeds",
          r"(?i)seed|determinis|batch_invariant|manual_seed|random_f32|random_u32",
          path=r"sampl|determin|random|util", never=r"metric|train|dropout", control=r"seed|determinis"),
)  # fmt: skip
