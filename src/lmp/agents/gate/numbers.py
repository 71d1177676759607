"""What execution says of a draft, as findings that say what has to be corrected: one of each line.

What a finding reveals is limited, as an answer must come from reading the source: docs/gate.md has the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmp.agents.changed import Changed, changed_at
from lmp.records import MATMUL_CATEGORIES, Finding, FindingKind, GateFinding, Kernel, ModuleAnalysis, Rule

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

BIAS = (
    "An addition such as a bias is a kernel of its own, category elementwise, with 0 bytes: take it out of the product "
    "and leave the product its category."
)


def gate_findings(
    findings: Sequence[Finding],
    analysis: ModuleAnalysis,
    kernels: Mapping[Statement, Sequence[int]],
    changed: Sequence[Changed] = (),
) -> Iterator[GateFinding]:
    """The judge's findings as the gate's. ``kernels`` are the indices of the kernels of each statement.

    ``changed``: the judged points at which a value is not the class's own.
    """
    amounts: dict[tuple[str | None, int | None], list[Finding]] = {}
    for finding in findings:
        if finding.kind is FindingKind.amount:
            amounts.setdefault((finding.file, finding.line), []).append(finding)
    for finding in findings:
        at = kernels.get((finding.file or analysis.source.file, finding.line or 0), ())
        here = [analysis.kernels[index] for index in at]
        kernel = at[0] if len(at) == 1 else None
        if finding.kind is not FindingKind.amount:
            yield _one(finding, here, kernel, changed)
            continue
        together = amounts.pop((finding.file, finding.line), None)
        if together is not None:  # at the place of the line's first one
            yield _of_a_line(together, here, kernel, changed)


def _one(finding: Finding, kernels: Sequence[Kernel], kernel: int | None, changed: Sequence[Changed]) -> GateFinding:
    return GateFinding(
        rule="numbers" if finding.kind is None else RULES.get(finding.kind, "numbers"),
        message=_message(finding) + changed_at(finding.point, changed),
        kernel=kernel,
        line=finding.line,
        file=finding.file,
        quantity=finding.quantity,
        point=_short(finding.point, 400),
        claimed=_short(finding.claimed, 200),
        counted=_short(_revealed(finding), 200),
    )


# --- amounts: all quantities of a line together ----------------------------------------------------------------------


def _of_a_line(
    findings: Sequence[Finding], kernels: Sequence[Kernel], kernel: int | None, changed: Sequence[Changed]
) -> GateFinding:
    """One finding about all quantities of a line. ``kernels`` are those of the line."""
    findings = sorted(findings, key=lambda finding: list(QUANTITIES).index(finding.quantity))
    first, products = findings[0], any(f.quantity == "matmul_flops" for f in findings)
    if any(f.quantity == "flops" for f in findings):  # what they are matters once there are as many as there should be
        findings = [f for f in findings if f.quantity != "matmul_flops"]
    alone = len(findings) == 1
    return GateFinding(
        rule="numbers",
        message=_amounts(findings, kernels, products) + changed_at(first.point, changed),
        kernel=kernel,
        line=first.line,
        file=first.file,
        quantity=", ".join(f.quantity for f in findings),
        point=_short(first.point, 400),
        claimed=_short(findings[0].claimed if alone else _listed(findings, [f.claimed for f in findings]), 200),
        counted=_short(_revealed(findings[0]) if alone else _listed(findings, list(map(_revealed, findings))), 200),
    )


def _listed(findings: Sequence[Finding], values: Sequence[str]) -> str:
    return ", ".join(f"{f.quantity} {_short(value)}" for f, value in zip(findings, values, strict=True))


def _amounts(findings: Sequence[Finding], kernels: Sequence[Kernel], products: bool) -> str:
    """``products``: whether the FLOPs of matrix multiplications differ too."""
    first = findings[0]
    who = "its kernel gives" if len(kernels) == 1 else f"its {len(kernels)} kernels give"
    same = all(f.point == first.point for f in findings)
    parts = []
    for finding in findings:
        counted = "some" if _is_nothing(finding) else finding.counted
        at = "" if same else f", at {_short(finding.point, 400)}"
        parts.append(f"{counted} {QUANTITIES[finding.quantity]} were counted, {who} {_short(finding.claimed)}{at}")
    text = f"{_place(first)}: {'; '.join(parts)}{f', at {_short(first.point, 400)}' if same else ''}."
    hints = dict.fromkeys(hint for finding in findings if (hint := _hint(finding, kernels, products)))
    return " ".join([text, *hints]) + _executed(first.operators, only_names=all(map(_is_nothing, findings)))


def _hint(finding: Finding, kernels: Sequence[Kernel], products: bool) -> str:
    claimed, counted = int(finding.claimed), int(finding.counted)
    if finding.quantity == "matmul_flops":
        return _hint_of_category(claimed, counted)
    if not counted and claimed and not finding.operators:
        return (
            "Nothing that costs anything ran there at this point: where it runs at others only, the formula is "
            "where(condition, ..., 0); else the kernel belongs to another line."
        )
    if _is_nothing(finding):
        return ""
    for large, small, words in ((counted, claimed, "times what is given"), (claimed, counted, "times too much given")):
        if small > 0 and large % small == 0 and 2 <= large // small <= LARGEST_HINT:
            return f"That is {large // small} {words}."
    multiplies = any(kernel.category in MATMUL_CATEGORIES for kernel in kernels)
    if finding.quantity == "flops" and multiplies and not products:
        return f"The FLOPs of its matrix multiplications are right, those of its other work are not. {BIAS}"
    return ""


def _hint_of_category(claimed: int, counted: int) -> str:
    """The FLOPs of the line are right, and too many or too few of them are said to be a matrix multiplication's."""
    if not counted:
        return "The FLOPs are right, and none of them are a matrix multiplication's: give another category."
    if claimed > counted:
        return f"The FLOPs are right: it is the category that says which of them are a matrix multiplication's. {BIAS}"
    return (
        "The FLOPs are right: it is the category that says which of them are a matrix multiplication's. Give each "
        "matrix multiplication a kernel with such a category."
    )


# --- what is revealed ------------------------------------------------------------------------------------------------


def _is_nothing(finding: Finding) -> bool:
    """Whether the draft gives no cost where there is one: what it is has to be found by reading."""
    return finding.kind is FindingKind.amount and finding.claimed == "0" and finding.counted != "0"


def _revealed(finding: Finding) -> str:
    """What was counted, as far as it may be told."""
    if _is_nothing(finding):
        return "more than 0"
    if finding.kind in (FindingKind.uncovered, FindingKind.listed_free, FindingKind.listed_not_taken):
        return without_costs(finding.counted)
    if finding.kind is FindingKind.parameters_count and finding.claimed == "0":
        return "more than 0"
    return finding.counted


def without_costs(operator: str) -> str:
    """A described operator without its costs: ``pow [3, 11, 6]: flops 198`` -> ``pow [3, 11, 6]``."""
    return operator.partition(": ")[0]


def _executed(operators: Sequence[str] | None, only_names: bool = False) -> str:
    """The operators of a line, with their shapes or without, never with their costs."""
    shown = [without_costs(operator) for operator in operators or ()]
    if only_names:
        shown = list(dict.fromkeys(name.partition(" [")[0] for name in shown))
    return f" Executed there: {'; '.join(shown)}." if shown else ""


# --- words -----------------------------------------------------------------------------------------------------------


def _message(finding: Finding) -> str:
    here = _place(finding)
    match finding.kind:
        case FindingKind.uncovered:
            ran = _executed(finding.operators or [finding.counted], only_names=True)
            return f"{here} costs something, and no kernel stands there.{ran}"
        case FindingKind.listed_free:
            ran = _executed(finding.operators or [finding.counted], only_names=True)
            return f"{here} is listed as free, and costs something.{ran}"
        case FindingKind.listed_not_taken:
            return f"{here} is listed as not taken, and runs: {_revealed(finding)}."
        case FindingKind.other_class:
            return f"{here} refers to {finding.claimed}; what is called there: {finding.counted}"
        case FindingKind.other_path:
            return f"{here} calls {finding.counted or 'no module'}; the kernel's path is {finding.claimed}"
        case FindingKind.left_out:
            return (
                f"{finding.point} is executed and nothing of it is judged: {finding.claimed}. Formulas must hold "
                "there too: narrow the assumption to what does not run, or leave the assumption or pin out"
            )
        case FindingKind.parameter:
            return f"{finding.quantity}, {finding.claimed}, at {finding.point}: {finding.counted}"
        case FindingKind.assumption:
            return f"assumption {finding.claimed}: {finding.counted}"
        case FindingKind.arm:
            return f"{finding.claimed}: {finding.counted}"
        case FindingKind.parameters_count:
            return (
                f"the module has {_revealed(finding)} parameters, parameters_count gives {finding.claimed}"
                f", at {finding.point}"
            )
        case FindingKind.operands:
            return f"{here} has the operands {finding.counted}; its kernel says {finding.claimed}, at {finding.point}"
        case FindingKind.formula:
            return f"a formula of {here} has no value at {finding.point}: {finding.counted}"
    return f"{finding.quantity}: {finding.claimed} by the formulas, {finding.counted} executed, at {finding.point}"


def _place(finding: Finding) -> str:
    return f"line {finding.line}" + (f" of {finding.file}" if finding.file else "")


def _short(text: str, most: int = 60) -> str:
    """A formula may give a number of thousands of digits."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
