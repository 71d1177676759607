"""Which functions are the loops that run a model: where reading of prefill and decode begins."""

from __future__ import annotations

import re

from lmp.codebase.facts import Definition
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.roles import ASIDE
from lmp.report.repository.signs import Looping

_CLASSES = {
    "schedule": r"schedul(?!er$)|next_batch|new_batch|form_batch",
    "prefill": r"prefill|extend",
    "decode": r"decode|decoding",
    "forward": r"forward|^_?model(_call)?$|run_batch|execute_model|run_model|_step$|^step$|model_step",
    "sample": r"sampl",
    "result": r"process_batch|detoken|postprocess|logits",
    "generate": r"generat",
}
_NOT_A_LOOP_OF_A_MODEL = re.compile(
    r"(?:make|get|set|create|init|add|parse|num|is|has|log|record)_|decode_\w*[A-Z]|sampling_mask"
)
_NAMED = re.compile(
    r"event_loop|generate_step|^generate$|generation_loop|main_loop|run_loop|run_engine|_engine_loop|run_forever|^_?step$|^_generate"
    r"|^_?next$|stream_generate|run_busy_loop|^_?run$"
)
_PLAINEST = re.compile(r"normal|^generate_step$|^generate$|(?<!_)step$")
_OTHER_LOOPS = re.compile(
    r"disagg|_pp_|_pp$|pipeline|diffusion|denois|multimodal|speculat|draft|train|eval|benchmark|bench|chat|example|test|profil"
    r"|tuner|quant|convert|perplexity|cache_prompt|lora|share|webcam|debug|scripts|warm|npu|dllm|eagle",
    re.IGNORECASE,
)
_RUNS = frozenset({"schedule", "prefill", "forward", "sample", "generate"})
LEAST = 4.0


def roots(base: CodeBase) -> list[Definition]:
    """Best first: functions with a loop that schedules, runs a model and samples."""
    scored = []
    for file, loop in base.loops:
        score = _score(base, file, loop)
        definition = base.methods.get((file, loop.qualname))
        if score >= LEAST and definition is not None:
            scored.append((score, definition))
    scored.sort(key=lambda item: (-item[0], item[1].place.file, item[1].place.line))
    return [definition for _, definition in scored]


def _score(base: CodeBase, file: str, loop: Looping) -> float:
    inside, outside = _kinds(loop.inside), _kinds(loop.outside)
    name = loop.qualname.rpartition(".")[2]
    score = 1.5 * len(inside) + 0.5 * len(outside - inside)
    score += 2 if loop.endless else 0
    score += 2.5 if _NAMED.search(name) else 0
    score += 1.6 if _PLAINEST.search(name) else 0
    score -= 3 if ASIDE.search(file) else 0
    score -= 4 if _OTHER_LOOPS.search(file) or _OTHER_LOOPS.search(loop.qualname) else 0
    score -= 1 if re.search(r"/models?/|/layers/|/ops/|/kernels?/", f"/{file}") else 0
    # What one call deeper does: a loop may be no more than `while not self.is_finished(): self.step()`.
    deeper = _deeper(base, file, loop)
    score += 0.7 * len(deeper - inside)
    # To decode and to process a batch is said of messages, too.
    return score if inside and (inside | deeper) & _RUNS else 0


def _kinds(names: tuple[str, ...]) -> set[str]:
    kept = [name for name in names if not _NOT_A_LOOP_OF_A_MODEL.match(name.lstrip("_"))]
    return {kind for kind, pattern in _CLASSES.items() if any(re.search(pattern, name) for name in kept)}


def _deeper(base: CodeBase, file: str, loop: Looping) -> set[str]:
    found: set[str] = set()
    for name in loop.inside:
        for each in base.by_name.get(name, ()):
            if each.place.file == file:
                body = "\n".join(base.lines(file)[each.place.line : each.end])
                found |= _kinds(tuple(re.findall(r"\b(\w+)\s*\(", body)))
    return found


_LOOP = re.compile(r"\b(?:while|for)\s*\(")
_CALL = re.compile(r"\b(\w+)\s*(?:<[^<>;()]*>\s*)?\(")


def native_roots(base: CodeBase) -> list[Definition]:
    """The same for C, C++ and CUDA, by the text of the functions."""
    scored = []
    for each in base.definitions:
        if base.files[each.place.file].language == "python" or each.kind == "class":
            continue
        body = "\n".join(base.lines(each.place.file)[each.place.line - 1 : each.end])
        if not _LOOP.search(body):
            continue
        kinds = _kinds(tuple(dict.fromkeys(_CALL.findall(body.partition("{")[2]))))
        score = 1.5 * len(kinds) + (2.5 if _NAMED.search(each.name) or each.name == "main" else 0)
        score -= 3 if ASIDE.search(each.place.file) or re.search(r"/kernels?/", each.place.file) else 0
        if kinds and score >= LEAST:
            scored.append((score, each))
    scored.sort(key=lambda item: (-item[0], item[1].place.file, item[1].place.line))
    return [definition for _, definition in scored]
