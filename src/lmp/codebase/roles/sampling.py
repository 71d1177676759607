"""Sampling: what leads from logits to a token, its parameters, and its seeds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import Reading, Row, place
from lmp.codebase.roles.words import says, split

PARAMETERS = frozenset(
    [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "max_new_tokens",
        "max_tokens",
        "seed",
        "typical_p",
        "logit_bias",
        "repeat_penalty",
        "do_sample",
    ]
)
"""Names that every API of sampling gives its parameters."""
LOGITS = re.compile(r"logit|penalt|softmax|renorm|mask|bias|temp|top_?[pkn]|min_?p|typical|xtc|dry|grammar")


def sampling_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}

    def add(role: str, symbol: str, where: Place, why: str) -> None:
        found.setdefault((where.file, where.line), Row("sampling", role, symbol, where, why))

    for function, why in reading.samples.items():
        if not _inside(function):
            add("sample", function.qualname, place(function), why)
    for function in reading.runs_model:
        if any(edge.callee in reading.samples for edge in reading.graph.edges[function]):
            add("sample", function.qualname, place(function), "gets logits and hands them to a sampler")
    for function in reading.functions:
        if any("logits" in split(str(chain[0])) for chain in function.returns) and function in reading.running:
            add("logits", function.qualname, place(function), "returns logits")
    for of in _parameter_classes(reading):
        if says(of.name, "sampling"):
            for method in of.methods.values():
                if re.search(r"verif|valid|check|normal|post_init", method.name):
                    add("parameters", method.qualname, place(method), "checks the parameters")
        add("parameters", of.qualname, place(of), "fields of sampling")
        if not says(of.name, "sampling") and not re.search(r"Generat|Request|Response|Completion|Chat", of.name):
            # A class that is there for them stands for its fields.
            for each in of.fields:
                if each.name in PARAMETERS:
                    add(
                        "parameters", f"{of.qualname}.{each.name}", Place(of.file, each.line), f"default {each.default}"
                    )
    for function in reading.functions:
        seeds = {call.name for call in function.calls} & operators.SEEDS
        if seeds and not function.native:
            add("seed", function.qualname, place(function), ", ".join(sorted(seeds)))
        elif says(function.name, "seed") and not says(function.qualname, "not_sampling"):
            add("seed", function.qualname, place(function), "by its name")
        elif _named(function):
            add(role_of(function.name, function), function.qualname, place(function), "by its name")
    for of in reading.classes:
        if says(of.name, "sampling") and not says(of.qualname, "not_sampling"):
            add(role_of(of.name, of), of.qualname, place(of), "by its name")
    for kernel in reading.facts.kernels:
        if (
            reading.is_own(kernel.place.file)
            and says(kernel.name, "sampling")
            and not says(kernel.name, "not_sampling")
        ):
            add(role_of(kernel.name, kernel), kernel.name, kernel.place, "kernel")
    return list(found.values())


def role_of(name: str, thing: object) -> str:
    lower = name.lower()
    if isinstance(thing, Class):
        return "parameters" if re.search(r"param|config|args", lower) else "sample"
    if "seed" in split(name):
        return "seed"
    return "logits" if LOGITS.search(lower) and "sampl" not in lower else "sample"


def _inside(function: Function) -> bool:
    return function.outer is not None and not function.outer.qualname


def _named(function: Function) -> bool:
    if function.name.startswith("__") or says(function.qualname, "not_sampling"):
        return False
    return says(function.name, "sampling") and function.end - function.line >= 2


def _parameter_classes(reading: Reading) -> Iterator[Class]:
    for of in reading.classes:
        if says(of.qualname, "not_sampling"):
            continue
        names = {each.name for each in of.fields} | set(of.attributes)
        if len(names & PARAMETERS) >= 2 and not any(method in reading.attends for method in of.methods.values()):
            yield of
