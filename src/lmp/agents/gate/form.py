"""The form of a submission: parsed to a `Draft`, or every mistake of form at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from lmp.records import CATEGORIES, SCHEMA_VERSION, Draft, DraftKernel, GateFinding, ModuleAnalysis
from lmp.store.schemas import problem

MAX_KERNELS = 1000
MAX_TEXT = 20_000
"""Characters of one text."""

KNOWN_BY_LMP = frozenset(ModuleAnalysis.model_fields) - frozenset(Draft.model_fields)
"""Fields of a whole module_analysis.json that lmp fills in by itself."""

DUE = {
    "class_name": "give the class's full path",
    "parameters": 'say where each variable\'s value comes from, as in {"hidden_size": "config.hidden_size"}',
    "kernels": "give one or more for each line that computes",
    "line": "give the line of the source file at which it stands",
    "category": f"give one of {', '.join(CATEGORIES)}",
    "kernel_type": "it is basic, or composite where a module is called",
    "operation": "say in a few words what it does",
    "analysis": "say how the formulas come about",
    "flops": "give a formula; 0 where there are none",
    "memory_access": 'give {"read": formula, "write": formula}, in bytes',
    "read": "give a formula of bytes; 0 where there are none",
    "write": "give a formula of bytes; 0 where there are none",
}

UNSEEN = ("Cc", "Cf", "Cs")
"""Unicode categories of invisible characters: controls, direction marks, surrogates."""

ALIKE = 3
"""Up to so many kernels with the same mistake are findings of their own; more of them are one finding."""


def read_draft(submitted: object) -> tuple[Draft | None, list[GateFinding], list[str]]:
    """The draft if its form is right, the findings if it is not, and notes on what was left out."""
    if not isinstance(submitted, Mapping):
        return None, [_finding(f"an object is expected, with {', '.join(Draft.model_fields)}")], []
    data = {str(name): value for name, value in submitted.items()}
    if "totals" in data:
        return None, [_finding("this is the analysis of a whole model; submit that of the class alone")], []
    version = data.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        return None, [_finding(f"schema_version is {_short(version)}, lmp reads {SCHEMA_VERSION}")], []
    dropped = sorted(KNOWN_BY_LMP.intersection(data))
    notes = [f"lmp knows by itself, and left out: {', '.join(dropped)}"] if dropped else []
    data = {name: value for name, value in data.items() if name not in dropped}
    kernels = data.get("kernels")
    if isinstance(kernels, list):
        if len(kernels) > MAX_KERNELS:
            return None, [_finding(f"kernels: {len(kernels)} are given, at most {MAX_KERNELS} are taken")], notes
        data["kernels"] = [_formulas_as_text(kernel) for kernel in kernels]
    if "parameters_count" in data:
        data["parameters_count"] = _as_text(data["parameters_count"])
    try:
        draft = Draft.model_validate(data, strict=True)
    except ValidationError as error:
        return None, _collected(error.errors(include_url=False)), notes
    wrong = problem(Draft, draft.model_dump(mode="json"))
    findings = ([_finding(wrong)] if wrong else []) + list(_unfit(data))
    return (None if findings else draft), findings, notes


def _formulas_as_text(kernel: object) -> object:
    """A formula that is a plain number may be written as one."""
    if not isinstance(kernel, Mapping):
        return kernel
    found = {str(name): value for name, value in kernel.items()}
    if "flops" in found:
        found["flops"] = _as_text(found["flops"])
    access = found.get("memory_access")
    if isinstance(access, Mapping):
        found["memory_access"] = {str(name): _as_text(value) for name, value in access.items()}
    return found


def _as_text(value: object) -> object:
    return str(value) if type(value) is int and abs(value) < 10**100 else value


def _unfit(value: object, place: str = "") -> Iterator[GateFinding]:
    """Findings for texts that are too long, or hold terminal controls or what no file can store."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            yield _finding(f"{place} has {len(value)} characters; at most {MAX_TEXT} are taken")
        bad = next((c for c in value if unicodedata.category(c) in UNSEEN and c not in "\n\t"), None)
        if bad is not None:
            yield _finding(f"{place} holds the control character U+{ord(bad):04X}; leave it out")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _unfit(name, f"a name in {place or 'the whole'}")
            yield from _unfit(inner, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            # A kernel counts from 1, as in every finding.
            yield from _unfit(inner, f"kernel {index + 1}" if place == "kernels" else f"{place}[{index}]")


def _collected(errors: Iterable[Any]) -> list[GateFinding]:
    """One finding each; what is the same with more than a few kernels stands once."""
    by_kind: dict[tuple[Any, ...], list[tuple[int | None, str]]] = {}
    for error in errors:
        # Of a field that may be a number or a formula, both alternatives are reported: one is enough.
        steps = [s for s in error["loc"] if s not in ("int", "constrained-str")]
        in_kernel = len(steps) > 1 and steps[0] == "kernels" and isinstance(steps[1], int)
        kernel = steps[1] if in_kernel else None
        path = ".".join(str(step) for step in (steps[2:] if in_kernel else steps)) or "the whole"
        found = by_kind.setdefault((in_kernel, path), [])
        if not found or found[-1][0] != kernel:
            found.append((kernel, _message(error, path)))
    findings = []
    for found in by_kind.values():
        if len(found) <= ALIKE:
            findings += [_finding(message, kernel) for kernel, message in found]
            continue
        kernel, message = found[0]
        findings.append(_finding(f"{message} (so it is with {len(found) - 1} more kernels)", kernel))
    return findings


def _message(error: Any, path: str) -> str:
    field = path.rpartition(".")[2]
    due = f"; {DUE[field]}" if field in DUE else ""
    match error["type"]:
        case "missing":
            return f"{path} is missing{due}"
        case "extra_forbidden":
            return f"{_short(path)} is not a field here: {_fields(error['loc'])}"
    given = "" if isinstance(error["input"], Mapping | list) else f", not {_short(error['input'])}"
    return f"{_short(path)}: {error['msg'][:1].lower()}{error['msg'][1:]}{given}{due}"


def _fields(loc: tuple[Any, ...]) -> str:
    if "memory_access" in loc:
        return "there are read and write"
    record = DraftKernel if loc[:1] == ("kernels",) else Draft
    return f"there are {', '.join(record.model_fields)}"


def _short(value: object, most: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _finding(message: str, kernel: int | None = None) -> GateFinding:
    return GateFinding(rule="schema", message=message, kernel=kernel)
