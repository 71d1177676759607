"""Attention: modules that compute it, the backends that they may use, and its kernels."""

from __future__ import annotations

import re

from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles.reach import Reading, Row, place
from lmp.codebase.roles.words import says

BACKEND = re.compile(
    r"(?i)backend|get_\w*(module|impl|config|attn|attention)|determine|select|choose|best|dispatch|plan|gen_|impl$"
)
SIDE = re.compile(
    r"(?i)test|bench|config$|args$|metadata$|error$|profil|flops|tflop|load|weight|convert|estimate|log|mapping"
    r"|bwd|backward|preprocess"
)

CALLED = ("forward", "__call__", "apply", "run")
"""Methods that run a module."""


def attention_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}
    kernels = {(each.place.file, each.place.line) for each in reading.facts.kernels}
    for function, why in reading.attends.items():
        if not SIDE.search(function.qualname):
            role = "backend" if function.owner is None else "module"
            found.setdefault(
                (function.file, function.line),
                Row("attention", role, function.qualname, place(function), why, int(role == "module")),
            )
            if function.owner is not None and reading.is_own(function.owner.file):
                of = function.owner
                found.setdefault((of.file, of.line), Row("attention", "module", of.qualname, place(of), why))
    for function in reading.functions:
        beside = function.owner is not None and any(each in reading.attends for each in function.owner.methods.values())
        works = function in reading.attending or beside if not function.native else bool(function.calls)
        if works and _named(function) and (function.file, function.line) not in kernels:
            role = "backend" if BACKEND.search(function.name) else "module"
            found.setdefault(
                (function.file, function.line),
                Row("attention", role, function.qualname, place(function), "by its name", 1),
            )
    for function in reading.starts_attention:
        if (function.file, function.line) not in kernels and not SIDE.search(function.name):
            row = Row("attention", "kernel", function.qualname, place(function), "starts a kernel")
            found.setdefault((function.file, function.line), row)
    for of in reading.classes:
        if SIDE.search(of.name):
            continue
        if not of.native and not any(
            method in reading.attending or name in CALLED for name, method in of.methods.items()
        ):
            # A config or a kind that is named after it computes nothing.
            continue
        if says(of.name, "kv_cache"):
            continue
        inside = any(method in reading.attending and says(method.name, "attention") for method in of.methods.values())
        if says(of.name, "attention") or (inside and not of.native):
            role = "backend" if BACKEND.search(of.name) else "module"
            found.setdefault((of.file, of.line), Row("attention", role, of.qualname, place(of), "by its name", 1))
    for kernel in reading.facts.kernels:
        if reading.is_own(kernel.place.file) and (
            says(kernel.name, "attention") or says(kernel.place.file.rpartition("/")[2], "attention")
        ):
            key = (kernel.place.file, kernel.place.line)
            found[key] = Row("attention", "kernel", kernel.name, kernel.place, kernel.language)
    return list(found.values())


def role_of(name: str, thing: object) -> str:
    if not isinstance(thing, Class | Function):
        return "kernel"
    return "backend" if BACKEND.search(name) else "module"


def _named(function: Function) -> bool:
    if SIDE.search(function.name) or function.name.startswith("__") or function.end - function.line < 2:
        return False
    return says(function.name, "attention")
