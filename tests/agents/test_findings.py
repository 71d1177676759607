"""What a finding says and what it keeps to itself: one of a line, the hint, what changed, form and numbers together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import analyses
import pytest
from gate_classes import LINEAR, MLP, NORM

from lmp.agents.attempts import finding_text, findings_text
from lmp.agents.changed import Changed, changed_at
from lmp.agents.gate import Gate
from lmp.agents.gate.numbers import gate_findings, without_costs
from lmp.records import Finding, FindingKind, GateFinding

Drafts = Callable[[str], dict[str, Any]]


def amount(quantity: str, claimed: int, counted: int, **more: Any) -> Finding:
    fields = {"line": 9, "point": "prefill", "operators": ["mm [2, 3] x [3, 4]: flops 48, read 72, write 16"], **more}
    return Finding(kind=FindingKind.amount, quantity=quantity, claimed=str(claimed), counted=str(counted), **fields)


def told(*findings: Finding, changed: Any = ()) -> list[GateFinding]:
    return list(gate_findings(findings, analyses.linear(), {}, changed))


def costs_nothing(draft: dict[str, Any]) -> dict[str, Any]:
    for kernel in draft["kernels"]:
        kernel |= {"flops": "0", "memory_access": {"read": "0", "write": "0"}, "kernel_type": "basic"}
        kernel |= {"category": "elementwise", "path": None}
    return draft


# --- one of a line ---------------------------------------------------------------------------------------------------


def test_a_line_is_one_finding() -> None:
    [found] = told(amount("flops", 5, 48), amount("matmul_flops", 5, 48), amount("read", 7, 72), amount("write", 3, 17))
    assert (found.quantity, found.line) == ("flops, read, write", 9)
    assert (found.claimed, found.counted) == ("flops 5, read 7, write 3", "flops 48, read 72, write 17")
    assert found.message.startswith(
        "line 9: 48 FLOPs were counted, its 0 kernels give 5; 72 bytes read were counted, its 0 kernels give 7; "
        "17 bytes written were counted, its 0 kernels give 3, at prefill."
    )
    assert found.message.count("Executed there:") == 1


def test_points_that_differ_are_said_each() -> None:
    [found] = told(amount("flops", 5, 48), amount("read", 7, 72, point="decode"))
    assert "give 5, at prefill; 72 bytes read were counted, its 0 kernels give 7, at decode." in found.message


def test_lines_are_findings_of_their_own_in_their_order() -> None:
    found = told(
        amount("read", 1, 2), amount("flops", 1, 2, line=10), amount("write", 1, 2), amount("read", 1, 2, line=10)
    )
    assert [(f.line, f.quantity) for f in found] == [(9, "read, write"), (10, "flops, read")]


def test_all_of_a_line_in_one_finding_by_the_gate(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(NORM)
    kernel = wrong["kernels"][1]
    kernel |= {"flops": "3 + {hidden_size}", "memory_access": {"read": "5 * {a_bytes}", "write": "7 * {a_bytes}"}}
    [found] = [f for f in gates[NORM].check(wrong).findings if f.line == kernel["line"]]
    assert found.quantity == "flops, read, write"


# --- hints -----------------------------------------------------------------------------------------------------------


def test_a_bias_inside_a_product_is_a_kernel_of_its_own(gates: dict[str, Gate], draft: Drafts) -> None:
    """The product and its bias in one kernel: the category is right, and must not be changed."""
    wrong = draft(LINEAR)
    product, bias = wrong["kernels"]
    product["flops"] = f"({product['flops']}) + ({bias['flops']})"
    wrong["kernels"] = [product]
    [found] = gates[LINEAR].check(wrong).findings
    assert found.quantity == "matmul_flops"
    assert "a bias is a kernel of its own, category elementwise, with 0 bytes" in found.message
    assert "leave the product its category" in found.message


def test_a_missing_bias_is_hinted_at(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(LINEAR)
    wrong["kernels"] = wrong["kernels"][:1]
    [found] = gates[LINEAR].check(wrong).findings
    assert "The FLOPs of its matrix multiplications are right" in found.message
    assert "a bias is a kernel of its own" in found.message


def test_a_product_that_is_wrong_is_not_called_right(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(LINEAR)
    wrong["kernels"][0]["flops"] = "{batch_size} * {seq_len} * {in_features} * {out_features}"
    [found] = gates[LINEAR].check(wrong).findings
    assert found.quantity == "flops"
    assert "matrix multiplications are right" not in found.message


def test_a_category_that_is_none_of_a_product() -> None:
    [none] = told(amount("matmul_flops", 48, 0))
    assert none.message.partition("prefill. ")[2].startswith("The FLOPs are right, and none of them are a matrix")
    [few] = told(amount("matmul_flops", 0, 48))
    assert "Give each matrix multiplication a kernel with such a category." in few.message


def test_the_switch_that_changed_is_named(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(LINEAR)
    for kernel in wrong["kernels"]:
        kernel["flops"] = kernel["flops"].replace("{bias}", "1")
        for which in ("read", "write"):
            kernel["memory_access"][which] = kernel["memory_access"][which].replace("{bias}", "1")
    found = gates[LINEAR].check(wrong).findings
    assert found[0].message.endswith(" What changed there: bias is 0, and 1 at the points before.")


def test_what_changed_is_what_all_points_of_the_label_have() -> None:
    one = Changed("flags changed: seq_len=9", {"bias": (0, 1)}, {"in_features": (12, 6)})
    other = Changed("flags changed: seq_len=9", {"bias": (0, 1)}, {})
    assert changed_at("flags changed: seq_len=9 (bias=0)", [one, other]).startswith(
        " What changed there: bias is 0, and 1 "
    )
    sizes = Changed("other sizes", {}, {"in_features": (12, 6)})
    assert changed_at("other sizes", [sizes]) == " What changed there: in_features is 12, and 6 at the points before."
    assert changed_at("other sizes", [sizes, Changed("other sizes", {}, {})]) == ""
    assert changed_at("prefill", [one, sizes]) == ""
    many = Changed("other config", {}, dict.fromkeys(("a", "b", "c"), (2, 1)))
    assert changed_at("other config", [many]) == ""


# --- what is revealed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [LINEAR, NORM, MLP])
def test_a_draft_of_zeros_returns_no_cost_and_no_shape(gates: dict[str, Gate], draft: Drafts, name: str) -> None:
    found = gates[name].check(costs_nothing(draft(name))).findings
    assert found
    for each in found:
        if each.rule == "numbers" and each.line is not None:
            assert "some " in each.message
            assert set(str(each.counted).replace(",", "").split()) <= {"flops", "read", "write", "more", "than", "0"}
        assert "flops " not in each.message.replace("FLOPs ", "")
        assert "[" not in each.message.partition("Executed there:")[2]
    text = findings_text(found)
    # The points' own sizes are told; what was counted there is not.
    assert re.search(r"were counted, its (kernel gives|\d kernels give) 0", text)
    assert "executed" not in text.partition("Executed")[0]


def test_a_draft_of_one_line_returns_no_cost_of_the_others(gates: dict[str, Gate], draft: Drafts) -> None:
    name, submitted = NORM, draft(NORM)
    submitted["free_lines"] += sorted({k["line"] for k in submitted["kernels"][1:]} - {submitted["kernels"][0]["line"]})
    submitted["kernels"] = submitted["kernels"][:1]
    found = gates[name].check(submitted).findings
    assert found
    assert all(f.counted is None or ":" not in f.counted for f in found)
    assert "flops " not in findings_text(found).replace("FLOPs ", "")


def test_no_finding_has_the_cost_of_an_operator() -> None:
    [found] = told(amount("flops", 5, 48))
    assert found.message.endswith("Executed there: mm [2, 3] x [3, 4].")
    [zero] = told(amount("flops", 0, 48))
    assert (zero.counted, "48" in zero.message) == ("more than 0", False)
    assert zero.message.endswith("Executed there: mm.")
    uncovered = Finding(
        kind=FindingKind.uncovered, line=9, quantity="line without a kernel", point="prefill", claimed="nothing",
        counted="aten.mm.default: flops 48", operators=["mm [2, 3] x [3, 4]: flops 48"],
    )  # fmt: skip
    [found] = told(uncovered)
    assert (found.counted, found.message.partition("Executed ")[2]) == ("aten.mm.default", "there: mm.")


def test_descriptions_of_operators_have_their_costs_after_a_colon(gates: dict[str, Gate], draft: Drafts) -> None:
    """`without_costs` reads the judge's texts: they must keep this form."""
    wrong = draft(NORM)
    wrong["kernels"][1]["flops"] = "3"
    gate = gates[NORM]
    verification = gate.subject.numbers(gate.subject.complete({**wrong}))
    shown = [operator for finding in verification.findings for operator in finding.operators or ()]
    assert shown
    for operator in shown:
        assert any(word in operator for word in ("flops ", "read ", "write "))
        assert not any(word in without_costs(operator) for word in ("flops ", "read ", "write "))


# --- form and numbers ------------------------------------------------------------------------------------------------


def test_form_and_numbers_come_in_one_round(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(NORM)
    by_line = {k["line"]: index for index, k in enumerate(wrong["kernels"])}
    assert len(by_line) >= 3
    first, second, third = list(by_line.values())[:3]
    wrong["kernels"][first]["flops"] = "{batch_size} * {width}"
    wrong["kernels"][second]["memory_access"]["read"] = "7 * {a_bytes}"
    wrong["kernels"][third]["category"] = "maths"
    found = gates[NORM].check(wrong).findings
    assert {(f.rule, f.kernel) for f in found} >= {("variable", first), ("schema", third)}
    numbers = [f for f in found if f.rule == "numbers"]
    assert {f.line for f in numbers} == {wrong["kernels"][second]["line"]}
    # Nothing is said of the numbers of what has a mistake of form.
    assert not {wrong["kernels"][first]["line"]} & {f.line for f in numbers}


def test_a_wrong_path_hides_only_what_uses_it(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(LINEAR)
    wrong["parameters"]["bias"] = "init.biass"
    wrong["kernels"].append({**wrong["kernels"][0], "flops": "0", "memory_access": {"read": "{a_bytes}", "write": "0"}})
    wrong["kernels"][-1]["category"] = "copy"
    found = gates[LINEAR].check(wrong).findings
    assert [f.rule for f in found] == ["variable"]  # all is on one line, of which the bias is a part


@pytest.mark.parametrize("text", ["{batch_size} <", "{nothing} > 1"])
def test_no_number_is_compared_where_an_assumption_cannot_be_read(
    gates: dict[str, Gate], draft: Drafts, text: str
) -> None:
    wrong = draft(NORM)
    wrong["assumptions"] = [text]
    wrong["kernels"][1]["flops"] = "3"
    assert {f.rule for f in gates[NORM].check(wrong).findings} <= {"grammar", "variable"}


# --- numbers of kernels ----------------------------------------------------------------------------------------------


def test_kernels_count_from_one_in_every_text(gates: dict[str, Gate], draft: Drafts) -> None:
    wrong = draft(NORM)
    wrong["kernels"][0]["category"] = "maths"
    [found] = gates[NORM].check(wrong).findings
    assert finding_text(found).startswith("[schema] kernel 1, line ")


def test_an_arm_that_nothing_takes_is_said_with_what_excludes_it(gates: dict[str, Gate], draft: Drafts) -> None:
    """Only both conditions together may be excluded: {seq_len} > 1 alone is met at most points."""
    unusual = draft(LINEAR)
    for kernel in unusual["kernels"]:
        flops = kernel["flops"]
        if flops != "0" and "${{" not in flops:
            together = "{batch_size} > 1000000 and {seq_len} > 1"
            kernel["flops"] = f"where({together}, {flops}, {flops} * 1)"
            break
    found = [
        one.message for one in gates[LINEAR].check(unusual).findings if "no executed point takes it" in one.message
    ]
    assert found
    # The opposite of both together; the opposite of {seq_len} > 1 alone would exclude every prefill.
    assert "leave this arm out, and assume not ({batch_size} > 1000000 and {seq_len} > 1)" in found[0]
