"""What execution says of a draft, in findings that say what is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmp.records import Finding, GateFinding, Kernel, ModuleAnalysis, Verification
from lmp.verify.claims import (
    LEFT_OUT,
    LISTED_FREE,
    LISTED_NOT_TAKEN,
    OTHER_CLASS,
    OTHER_PATH,
    PARAMETERS_COUNT,
    UNCOUNTED,
    UNCOVERED,
    WHOLE_RUN,
)

Statement = tuple[str, int]

QUANTITIES = {"flops": "FLOPs", "matmul_flops": "matmul FLOPs", "read": "bytes read", "write": "bytes written"}

LARGEST_HINT = 64
"""Ratios up to this are worth saying."""


def without_unknown(verification: Verification) -> tuple[list[Finding], Verification]:
    """Findings against the analysis, and what is to be said of it without those that no analysis can mend: operators
    for which lmp has no rule."""
    own = [f for f in verification.findings if f.quantity not in (UNCOUNTED, WHOLE_RUN)]
    foreign = [f for f in verification.findings if f.quantity in (UNCOUNTED, WHOLE_RUN)]
    if own or not foreign:
        return own, verification
    reason = "lmp and torch.utils.flop_counter do not count the same on this model"
    if foreign[0].quantity == UNCOUNTED:
        operators = ", ".join(uncounted(verification))
        reason = f"operators without a rule: {operators}; their FLOPs are not in the formulas"
    reasons = [verification.reason] if verification.reason and verification.status == "unverified" else []
    said = {"status": "unverified", "reason": "; ".join([*reasons, reason]), "findings": []}
    return [], verification.model_copy(update=said)


def uncounted(verification: Verification) -> list[str]:
    """Operators without a rule that ran."""
    return sorted({f.counted.partition(":")[0] for f in verification.findings if f.quantity == UNCOUNTED})


def told(
    findings: Sequence[Finding], analysis: ModuleAnalysis, kernels: Mapping[Statement, Sequence[int]]
) -> Iterator[GateFinding]:
    """The judge's findings as the gate's. ``kernels`` are the indices of the kernels of each statement."""
    differing = {(f.file, f.line) for f in findings if f.quantity == "flops"}
    for finding in findings:
        if finding.quantity == "matmul_flops" and (finding.file, finding.line) in differing:
            continue  # the FLOPs of the line are a finding already
        at = kernels.get((finding.file or analysis.source.file, finding.line or 0), ())
        yield _told(finding, analysis, at)


def _told(finding: Finding, analysis: ModuleAnalysis, at: Sequence[int]) -> GateFinding:
    quantity = finding.quantity
    here = f"line {finding.line}" + (f" of {finding.file}" if finding.file else "")
    ran = f" Executed there: {'; '.join(finding.operators or [finding.counted])}."
    ran = ran if finding.operators or not finding.counted.isdecimal() else ""
    rule, line = "numbers", finding.line
    if quantity in QUANTITIES:
        message = f"{_numbers(finding, here, [analysis.kernels[i] for i in at])}{ran}"
    elif quantity == UNCOVERED:
        rule, message = "coverage", f"{here} costs something, and no kernel stands there.{ran}"
    elif quantity == LISTED_FREE:
        rule, message = "free line", f"{here} is listed as free, and costs something.{ran}"
    elif quantity == LISTED_NOT_TAKEN:
        rule, message = "free line", f"{here} is listed as not taken, and runs: {finding.counted}."
    elif quantity == OTHER_CLASS:
        rule, message = "reference", f"{here} refers to {finding.claimed}; what is called there: {finding.counted}"
    elif quantity == OTHER_PATH:
        rule = "reference"
        message = f"{here} calls {finding.counted or 'no module'}; the kernel's path is {finding.claimed}"
    elif quantity == LEFT_OUT:
        message = f"{finding.point} is executed and nothing of it is judged: {finding.claimed}. Formulas must hold "
        message += "there too, as with where(condition, a, b); leave the assumption or pin out"
    elif quantity.startswith("parameter "):
        rule, message = "variable", f"{quantity}, {finding.claimed}, at {finding.point}: {finding.counted}"
    elif quantity == "assumption":
        rule, message = "variable", f"assumption {finding.claimed}: {finding.counted}"
    elif quantity == PARAMETERS_COUNT:
        message = f"the module has {finding.counted} parameters, parameters_count gives {finding.claimed}"
        message += f", at {finding.point}"
    elif quantity.startswith("formula of "):
        message = f"a formula of {here} has no value at {finding.point}: {finding.counted}"
    else:
        message = f"{quantity}: {finding.claimed} by the formulas, {finding.counted} executed, at {finding.point}"
    return GateFinding.model_validate(
        {
            "rule": rule,
            "message": message,
            "kernel": at[0] if len(at) == 1 else None,
            "line": line,
            "file": finding.file,
            "quantity": quantity,
            "point": _short(finding.point, 400),
            "claimed": _short(finding.claimed, 200),
            "counted": _short(finding.counted, 200),
        }
    )


def _numbers(finding: Finding, here: str, kernels: Sequence[Kernel]) -> str:
    what = QUANTITIES[finding.quantity]
    who = "its kernel gives" if len(kernels) == 1 else f"its {len(kernels)} kernels give"
    given = _short(finding.claimed)
    said = f"{here}: {finding.counted} {what} were counted, {who} {given}, at {_short(finding.point, 400)}."
    hint = _hint(finding)
    return f"{said} {hint}" if hint else said


def _short(text: str, most: int = 60) -> str:
    """A formula may give a number of thousands of digits."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _hint(finding: Finding) -> str:
    claimed, counted = int(finding.claimed), int(finding.counted)
    if finding.quantity == "matmul_flops":
        return "The FLOPs are right: it is the category that says which of them are a matrix multiplication's."
    if not counted and claimed and not finding.operators:
        return (
            "Nothing that costs anything ran there at this point: where it runs at others only, the formula is "
            "where(condition, ..., 0); else the kernel belongs to another line."
        )
    for large, small, words in ((counted, claimed, "times what is given"), (claimed, counted, "times too much given")):
        if small > 0 and large % small == 0 and 2 <= large // small <= LARGEST_HINT:
            return f"That is {large // small} {words}."
    return ""
