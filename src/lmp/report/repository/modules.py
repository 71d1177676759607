"""The module map: every folder with code, what it is for, and what is in it."""

from __future__ import annotations

import re
from collections import Counter

from lmp.codebase.facts import Definition
from lmp.report.document.parts import Code, Inline, Line, Paragraph, Section, Table
from lmp.report.repository.code_base import C_LIKE, CODE
from lmp.report.repository.pieces import code, joined, plural, pointer, said, sentence
from lmp.report.repository.study import Study
from lmp.report.repository.units import Unit, units

MOST = 56
OF_KERNELS = "GPU kernels and their launchers"
ROLES = (
    (r"attention|attn", "attention"),
    (r"models?$|modeling|model_arch\w*", "model definitions"),
    (r"layers?|modules?|nn", "layers"),
    (r"kernels?|csrc|cuda|triton\w*|cutlass|cutedsl|cute|cutile|metal", OF_KERNELS),
    (r"ops|operators?|functional", "operators"),
    (r"mem_cache|kv_?cache\w*|cache|memory", "caches and memory pools"),
    (r"managers?|engine|core|runtime|executor|scheduler\w*|sched", "runtime"),
    (r"sampling|sample\w*|sampler\w*", "sampling"),
    (r"model_executor|worker|model_runner\w*", "model execution"),
    (r"model_loader|loader\w*|checkpoint\w*|weight_\w+", "loading of weights"),
    (r"quant\w*|awq|gptq|gguf|fp8", "quantization"),
    (r"speculative|spec_\w*|draft", "speculative decoding"),
    (r"distributed|parallel\w*|communicat\w*|cp|tp|dist|elastic_ep|eplb", "parallelism and communication"),
    (r"disaggregation|disagg\w*", "prefill and decode on separate machines"),
    (r"entrypoints?|server\w*|api|http|serve|openai|grpc|rust_server", "servers and interfaces"),
    (r"cli|commands?|bin|scripts?", "command line"),
    (r"config\w*|args?|arg_groups|settings?|server_args|environ", "configuration"),
    (r"tokeniz\w*|detokeniz\w*|processors?", "tokenizers and processors"),
    (r"chat_templates?|templates?|prompts?", "templates of prompts"),
    (r"lora|adapters?|tuner|peft", "adapters and fine-tuning"),
    (r"constrained|grammar\w*|function_call|tool_parsers?|parser\w*|reasoning", "structured output and parsing"),
    (r"multimodal\w*|vision|audio", "multimodal"),
    (r"loss\w*|chunked_loss|cross_entropy|fused_\w*cross_entropy|grpo", "losses"),
    (r"norm\w*|layernorm|rms_norm", "normalization"),
    (r"rotary\w*|rope\w*", "rotary embedding"),
    (r"activations?|mlp|swiglu", "activations and feed-forward"),
    (r"moe|experts?|switch_layers", "mixture of experts"),
    (r"conv\d?d?|conv\dd\w*|\w*convolution\w*|causal_conv1d", "convolution"),
    (r"utils?|common|helpers?|misc|lib", "helpers"),
    (r"backends?|platforms?|hardware_backend|device\w*", "backends"),
    (r"observability|metrics|tracing|profil\w*|debug_utils|logging", "observability"),
    (r"train\w*|optim\w*|data|datasets?", "training and data"),
    (r"lang|frontend|dsl", "language and frontend"),
    (r"compil\w*|graph\w*|inductor", "compilation"),
    (r"storage|connector|io|transfer|weight_sync", "storage and transfer"),
    (r"eval\w*|perplexity", "evaluation"),
    (r"formula|expand|trace|verify|records", "analysis"),
)
MARKED = {
    "test": "tests",
    "vendored": "vendored code",
    "legacy": "legacy code",
    "example": "examples",
    "benchmark": "benchmarks",
    "docs": "documentation",
    "build": "build files",
}


def modules(study: Study) -> Section:
    files = [file for file in study.base.facts.files if file.language in CODE and file.lines]
    parts = units(files, MOST, alone=24)
    rows = [[_path(unit), _role(study, unit), _notes(study, unit)] for unit in parts]
    other = len(study.base.facts.files) - len(files)
    words: list[Inline] = ["Every file of code is in one row. "]
    if other:
        words += [
            *plural(other, "file"),
            " that were read are no code: settings, texts, empty files." if other > 1 else " that was read is no code.",
        ]
    table = Table(("Path", "Role", "Notes"), rows, "all folders of the repository")
    return Section("Module map (table)", [Paragraph(words), table])


def _path(unit: Unit) -> Line:
    if unit.rest == "smaller parts":
        return sentence(Code(unit.title), " (the smaller parts together)")
    return Code(unit.title)


def _role(study: Study, unit: Unit) -> Line:
    """By what all its files are, else by its own docstring, else by its name, else by what it defines."""
    kinds = {file.role for file in unit.files}
    if len(kinds) == 1 and (kind := next(iter(kinds))) in MARKED:
        return MARKED[kind]
    if unit.rest == "smaller parts":
        return "several"
    if unit.rest == "files":
        return _largest(unit)
    init = next((f for f in unit.files if f.file in (f"{unit.path}/__init__.py", unit.path)), None)
    named = _by_name(unit)
    if named == OF_KERNELS and not _has_kernels(study, unit):
        named = ""
    if init is not None and len(init.doc.split()) >= 3 and not _NO_ROLE.match(init.doc):
        return said(init.doc, 90)
    if named:
        return named
    return _by_content(study, unit)


_NO_ROLE = re.compile(
    r"(?i)copyright|spdx|coding|licen|adapted|copied|based on|modified|ported|usage|example|run with|this file|http"
)
"""Beginnings of docstrings that say where a file comes from, and not what it does."""
WEAK = ("helpers", "templates of prompts")
"""Roles that one word of a name is not enough for."""


def _has_kernels(study: Study, unit: Unit) -> bool:
    inside = {file.file for file in unit.files}
    facts = study.base.facts
    native = any(file.language in C_LIKE for file in unit.files)
    places = [*(each.place for each in facts.kernels), *(each.place for each in facts.launches)]
    return native or any(place.file in inside for place in places)


def _largest(unit: Unit) -> Line:
    """Files that lie directly in a folder, by name: a name of the folder would say nothing of them."""
    ranked = sorted(unit.files, key=lambda file: (-file.lines, file.file))
    shown = joined([code(file.file.rpartition("/")[2]) for file in ranked[:3]])
    return sentence("files of the folder itself, as ", shown)


def _by_name(unit: Unit) -> str:
    name = unit.path.rpartition("/")[2].removesuffix(".py")
    for pattern, role in ROLES:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return role
    # The last word says what it is: layer_norm is a norm.
    parts = [part for part in reversed(name.split("_")) if len(part) > 3] if "_" in name else []
    found = [role for part in parts for pattern, role in ROLES if re.fullmatch(pattern, part, re.IGNORECASE)]
    return next((role for role in found if role not in WEAK), next(iter(found), ""))


def _by_content(study: Study, unit: Unit) -> Line:
    inside = {file.file for file in unit.files}
    kernels = sum(kernel.place.file in inside for kernel in study.base.facts.kernels)
    if kernels >= 2:
        return "operators with kernels of their own"
    if all(file.file.endswith(("__main__.py", "main.py")) for file in unit.files):
        return "entry point"
    best = _main_definitions(study, inside)[:2]
    many = _family(study, inside)
    if many:
        return many
    told = next((each for each in best if len(each.doc.split()) >= 3 and study.base.imported_by(each)), None)
    if told is not None:
        return said(told.doc, 90)
    started = [each for each in study.entries if each.place.file in inside and each.kind in ("script", "benchmark")]
    if len(inside) == 1 and started:
        return sentence("a command of its own: ", code(started[0].name))
    if best:
        return sentence("defines ", joined([code(each.name) for each in best]))
    given = [
        name
        for file in inside & set(study.base.signs)
        for each in study.base.signs[file].imports
        for name in each.names
        if study.base.resolve(each.module, name, file) is not None
    ]
    if len(inside) == 1 and unit.path.endswith("__init__.py") and given:
        return sentence("gives out ", *plural(len(given), "name"), ", as ", code(given[0], 50))
    return "code without definitions"


def _family(study: Study, inside: set[str]) -> list[Inline]:
    """``35 functions apply_kernel_to_*``: most functions of the files begin with the same two words."""
    every = (each for file in inside for each in study.base.by_file.get(file, ()))
    names = [each.name for each in every if each.qualname == each.name and not each.name.startswith("_")]
    starts = Counter("_".join(name.split("_")[:2]) for name in names if name.count("_") >= 2)
    if not starts:
        return []
    start, number = min(starts.items(), key=lambda item: (-item[1], item[0]))
    if number < 5 or 2 * number < len(names):
        return []
    alike = [name.split("_") for name in names if name.startswith(f"{start}_")]
    shared = [words[0] for words in zip(*alike, strict=False) if len(set(words)) == 1]
    return [*plural(number, "function"), " ", Code("_".join([*shared, "*"]))]


def _main_definitions(study: Study, inside: set[str]) -> list[Definition]:
    top = [
        each
        for file in sorted(inside)
        for each in study.base.by_file.get(file, ())
        if "." not in each.qualname and not each.name.startswith("_") and each.kind != "method"
    ]
    return sorted(
        top, key=lambda d: (-study.base.imported_by(d), d.kind != "class", -(d.end - d.place.line), d.place.file)
    )


def _notes(study: Study, unit: Unit) -> Line:
    inside = {file.file for file in unit.files}
    notes: list[list[Inline]] = [[*plural(len(unit.files), "file"), ", ", *plural(unit.lines, "line")]]
    kernels = sum(kernel.place.file in inside for kernel in study.base.facts.kernels)
    if kernels:
        notes.append(plural(kernels, "kernel"))
    importing = {f for file in inside for f in study.base.importers.get(file, ())} - inside
    if importing:
        notes.append(["imported by ", *plural(len(importing), "file"), " outside of it"])
    best = [each for each in _main_definitions(study, inside)[:2] if study.base.is_own(each.place.file)]
    if best:
        notes.append(["mainly ", *joined([pointer(each.place, each.name) for each in best])])
    marked = {file.role for file in unit.files} & set(MARKED)
    if marked and len({file.role for file in unit.files}) > 1:
        held = [
            sentence(f"{MARKED[m]} ", *plural(sum(f.role == m for f in unit.files), "file")) for m in sorted(marked)
        ]
        notes.append(["of them ", *joined(held)])
    return joined(notes, "; ")
