"""What execution says of a draft, as findings that say what has to be corrected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmp.records import Finding, FindingKind, GateFinding, Kernel, ModuleAnalysis, Rule

Statement = tuple[str, int]

QUANTITIES = {"flops": "FLOPs", "matmul_flops": "matmul FLOPs", "read": "bytes read", "write": "bytes written"}

RULES: Mapping[FindingKind, Rule] = {
    FindingKind.uncovered: "coverage",
    FindingKind.listed_free: "free line",
    FindingKind.listed_not_taken: "free line",
    FindingKind.other_class: "reference",
    FindingKind.other_path: "reference",
    FindingKind.parameter: "variable",
    FindingKind.assumption: "variable",
}
"""Rule of the gate per kind of finding; "numbers" for every other kind."""

LARGEST_HINT = 64
"""Largest ratio of two numbers that a message states."""


def gate_findings(
    findings: Sequence[Finding], analysis: ModuleAnalysis, kernels: Mapping[Statement, Sequence[int]]
) -> Iterator[GateFinding]:
    """The judge's findings as the gate's. ``kernels`` are the indices of the kernels of each statement."""
    differing = {(f.file, f.line) for f in findings if _is_amount(f, "flops")}
    for finding in findings:
        if _is_amount(finding, "matmul_flops") and (finding.file, finding.line) in differing:
            continue  # the FLOPs of the line are a finding already
        at = kernels.get((finding.file or analysis.source.file, finding.line or 0), ())
        yield GateFinding(
            rule="numbers" if finding.kind is None else RULES.get(finding.kind, "numbers"),
            message=_message(finding, [analysis.kernels[index] for index in at]),
            kernel=at[0] if len(at) == 1 else None,
            line=finding.line,
            file=finding.file,
            quantity=finding.quantity,
            point=_short(finding.point, 400),
            claimed=_short(finding.claimed, 200),
            counted=_short(finding.counted, 200),
        )


def _is_amount(finding: Finding, quantity: str) -> bool:
    return finding.kind is FindingKind.amount and finding.quantity == quantity


def _message(finding: Finding, kernels: Sequence[Kernel]) -> str:
    """``kernels`` are those of the finding's statement."""
    here = f"line {finding.line}" + (f" of {finding.file}" if finding.file else "")
    match finding.kind:
        case FindingKind.amount:
            return f"{_amounts(finding, here, len(kernels))}{_executed(finding.operators)}"
        case FindingKind.uncovered:
            ran = _executed(finding.operators or [finding.counted])
            return f"{here} costs something, and no kernel stands there.{ran}"
        case FindingKind.listed_free:
            ran = _executed(finding.operators or [finding.counted])
            return f"{here} is listed as free, and costs something.{ran}"
        case FindingKind.listed_not_taken:
            return f"{here} is listed as not taken, and runs: {finding.counted}."
        case FindingKind.other_class:
            return f"{here} refers to {finding.claimed}; what is called there: {finding.counted}"
        case FindingKind.other_path:
            return f"{here} calls {finding.counted or 'no module'}; the kernel's path is {finding.claimed}"
        case FindingKind.left_out:
            return (
                f"{finding.point} is executed and nothing of it is judged: {finding.claimed}. Formulas must hold "
                "there too, as with where(condition, a, b); leave the assumption or pin out"
            )
        case FindingKind.parameter:
            return f"{finding.quantity}, {finding.claimed}, at {finding.point}: {finding.counted}"
        case FindingKind.assumption:
            return f"assumption {finding.claimed}: {finding.counted}"
        case FindingKind.arm:
            return f"{finding.claimed}: {finding.counted}"
        case FindingKind.parameters_count:
            return (
                f"the module has {finding.counted} parameters, parameters_count gives {finding.claimed}"
                f", at {finding.point}"
            )
        case FindingKind.operands:
            return f"{here} has the operands {finding.counted}; its kernel says {finding.claimed}, at {finding.point}"
        case FindingKind.formula:
            return f"a formula of {here} has no value at {finding.point}: {finding.counted}"
    return f"{finding.quantity}: {finding.claimed} by the formulas, {finding.counted} executed, at {finding.point}"


def _executed(operators: Sequence[str] | None) -> str:
    return f" Executed there: {'; '.join(operators)}." if operators else ""


def _amounts(finding: Finding, here: str, kernels: int) -> str:
    what = QUANTITIES[finding.quantity]
    who = "its kernel gives" if kernels == 1 else f"its {kernels} kernels give"
    given = _short(finding.claimed)
    text = f"{here}: {finding.counted} {what} were counted, {who} {given}, at {_short(finding.point, 400)}."
    hint = _hint(finding)
    return f"{text} {hint}" if hint else text


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
