"""What decides is a typed kind: with every text reworded, the same is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import analyses
import pytest
from gate_classes import LINEAR, MLP, NORM
from scripted import ScriptedAgent

from lmp.agents.commands import carry_out, start
from lmp.agents.gate import Gate
from lmp.agents.gate.bindings import BindingGate
from lmp.agents.gate.numbers import gate_findings
from lmp.agents.run import Limits
from lmp.agents.subject import ClassSubject
from lmp.analyze.session import Options, Session
from lmp.errors import AgentUnavailable, TraceFailed, UnsupportedDtype, UsageError
from lmp.records import Finding, FindingKind, ModuleAnalysis, Verification
from lmp.verify import judge as judging
from lmp.verify.claims import About, separate_not_correctable, uncounted_operators

Drafts = Callable[[str], dict[str, Any]]

# The rules are those of the table in docs/gate.md.
RULES = {
    FindingKind.amount: "numbers",
    FindingKind.total: "numbers",
    FindingKind.negative: "numbers",
    FindingKind.formula: "numbers",
    FindingKind.parameters_count: "numbers",
    FindingKind.left_out: "numbers",
    FindingKind.arm: "numbers",
    FindingKind.operands: "numbers",
    FindingKind.parameter: "variable",
    FindingKind.assumption: "variable",
    FindingKind.uncovered: "coverage",
    FindingKind.listed_free: "free line",
    FindingKind.listed_not_taken: "free line",
    FindingKind.other_class: "reference",
    FindingKind.other_path: "reference",
}


def finding(kind: FindingKind, quantity: str = "reworded", **more: Any) -> Finding:
    fields = {"line": 134, "quantity": quantity, "point": "p", "claimed": "1", "counted": "2", **more}
    return Finding(kind=kind, **fields)


# --- findings of the judge -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FindingKind)
def test_the_rule_of_a_finding_follows_from_its_kind(kind: FindingKind) -> None:
    failed = Verification(status="failed", findings=[finding(kind, "flops" if kind is FindingKind.amount else "xyz")])
    own, rest = separate_not_correctable(failed)
    if kind not in RULES:  # no analysis can correct it
        assert (own, rest.status, rest.findings) == ([], "unverified", [])
        return
    assert own == failed.findings
    assert [f.rule for f in gate_findings(own, analyses.linear(), {})] == [RULES[kind]]


def test_the_name_of_an_operator_is_not_read_from_a_text() -> None:
    found = finding(FindingKind.uncounted, operator="aten.frob.default", counted="aten.other.default: no cost known")
    failed = Verification(status="failed", findings=[found])
    assert uncounted_operators(failed) == ["aten.frob.default"]
    _, rest = separate_not_correctable(failed)
    assert rest.reason == "operators without a rule: aten.frob.default; their FLOPs are not in the formulas"


def test_matmul_flops_are_left_out_only_beside_flops_of_the_same_line() -> None:
    flops, matmul = (finding(FindingKind.amount, quantity) for quantity in ("flops", "matmul_flops"))
    # of another kind, whatever it is called
    other = finding(FindingKind.negative, "flops")
    assert [f.quantity for f in gate_findings([flops, matmul], analyses.linear(), {})] == ["flops"]
    assert [f.quantity for f in gate_findings([other, matmul], analyses.linear(), {})] == ["flops", "matmul_flops"]


def test_kinds_are_in_no_file_and_in_no_schema() -> None:
    found = finding(FindingKind.uncounted, operator="aten.frob.default")
    assert found.model_dump(exclude_none=True).keys() == {"line", "quantity", "point", "claimed", "counted"}
    assert not {"kind", "operator"} & Finding.model_json_schema()["properties"].keys()


def listed_free(draft: dict[str, Any]) -> None:
    draft["free_lines"].append(draft["kernels"].pop(0)["line"])


def listed_not_taken(draft: dict[str, Any]) -> None:
    draft["not_taken_lines"].append(draft["kernels"].pop(0)["line"])


def other_class(draft: dict[str, Any]) -> None:
    kernel = next(kernel for kernel in draft["kernels"] if kernel["flops"] != "0")
    reference = f"${{{{{LINEAR}}}}}(batch_size=1, seq_len=1, in_features=1, out_features=1, bias=0)"
    costs = {"flops": reference, "memory_access": {"read": reference, "write": reference}}
    draft["kernels"].append({**kernel, "kernel_type": "composite", **costs})


def other_path(draft: dict[str, Any]) -> None:
    next(kernel for kernel in draft["kernels"] if kernel.get("path") == "gate_proj")["path"] = "k_proj"


def other_count(draft: dict[str, Any]) -> None:
    draft["parameters_count"] = "7"


def left_out(draft: dict[str, Any]) -> None:
    draft["assumptions"].append("{seq_len} == 1")


def unknown_assumption(draft: dict[str, Any]) -> None:
    draft["assumptions"].append("1 // ({batch_size} - {batch_size}) == 1")


@pytest.mark.parametrize(
    ("class_path", "name", "mistake", "rule"),
    [
        (NORM, "LISTED_FREE", listed_free, "free line"),
        (NORM, "LISTED_NOT_TAKEN", listed_not_taken, "free line"),
        (NORM, "OTHER_CLASS", other_class, "reference"),
        (MLP, "OTHER_PATH", other_path, "reference"),
        (LINEAR, "PARAMETERS_COUNT", other_count, "numbers"),
        (NORM, "LEFT_OUT", left_out, "numbers"),
        (NORM, "ASSUMPTION", unknown_assumption, "variable"),
    ],
)
def test_the_gate_finds_the_same_when_the_judge_says_it_otherwise(
    gates: dict[str, Gate],
    draft: Drafts,
    monkeypatch: pytest.MonkeyPatch,
    class_path: str,
    name: str,
    mistake: Callable[[dict[str, Any]], None],
    rule: str,
) -> None:
    wrong = draft(class_path)
    mistake(wrong)
    before = gates[class_path].check(wrong).findings
    about: About = getattr(judging, name)
    monkeypatch.setattr(judging, name, replace(about, name="reworded"))
    after = gates[class_path].check(wrong).findings
    assert rule in {found.rule for found in after}
    assert "reworded" in {found.quantity for found in after}
    assert [(f.rule, f.line, f.message) for f in after] == [(f.rule, f.line, f.message) for f in before]


# --- references that were open ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verification", "judged"),
    [
        (Verification(status="unverified", reason="reworded", open=["self.act_fn"]), True),
        (Verification(status="unverified", reason="it says open references, and none was open"), False),
        (Verification(status="verified", points=3), False),
    ],
)
def test_an_analysis_is_judged_again_if_a_reference_was_open(verification: Verification, judged: bool) -> None:
    root = analyses.linear(verification=verification)
    calls: list[str] = []

    def judge(analysis: ModuleAnalysis, others: Mapping[str, ModuleAnalysis]) -> Verification:
        calls.append(analysis.class_name)
        return Verification(status="verified", points=3)

    gate = BindingGate(root, {root.class_name: root}.__getitem__, judge, lambda name: name)
    verdict = gate.judge_again()
    assert calls == ([root.class_name] if judged else [])
    assert [found.verification.status for found in verdict.analyses] == (["verified"] if judged else [])


def test_the_judge_records_open_references_beside_its_reason(
    gates: dict[str, Gate], draft: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = draft(MLP)
    kernel = next(kernel for kernel in opened["kernels"] if "SiLU" in kernel["flops"])
    reference = "${{self.act_fn}}(batch_size={batch_size})"
    kernel.update(flops=reference, memory_access={"read": reference, "write": reference})
    monkeypatch.setattr(judging.Judging, "_why_unsettled", lambda self: "reworded")
    found = gates[MLP].check(opened).analysis
    assert found is not None
    assert (found.verification.reason, found.verification.open) == ("reworded", ["self.act_fn"])
    # It is in the file, as another command reads it there.
    stored = ModuleAnalysis.model_validate_json(found.model_dump_json(exclude_none=True))
    assert stored.verification.open == ["self.act_fn"]


def test_open_references_are_recorded_without_execution_too(
    session: Session, draft: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: ClassSubject, analysis: ModuleAnalysis) -> Verification:
        raise TraceFailed("reworded")

    opened = draft(MLP)
    kernel = next(kernel for kernel in opened["kernels"] if "SiLU" in kernel["flops"])
    reference = "${{self.act_fn}}(batch_size={batch_size})"
    kernel.update(flops=reference, memory_access={"read": reference, "write": reference})
    gate = Gate(ClassSubject(session, MLP))
    monkeypatch.setattr(ClassSubject, "judge", fails)
    found = gate.check(opened).analysis
    assert found is not None
    assert found.verification.open == ["self.act_fn"]
    right = gate.check(draft(MLP)).analysis
    assert right is not None
    assert right.verification.open is None


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_dtype_that_does_not_exist_is_the_users_mistake(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: Exception) -> Callable[[str, Session], None]:
        def execution_of(class_path: str, session: Session) -> None:
            raise error

        return execution_of

    analysis = analyses.linear()
    monkeypatch.setattr("lmp.agents.subject.execution_of", fails(UnsupportedDtype("reworded")))
    with pytest.raises(UnsupportedDtype, match="reworded"):
        ClassSubject(session, LINEAR).judge(analysis)
    # Another mistake is one of this class alone, whatever its text mentions.
    monkeypatch.setattr("lmp.agents.subject.execution_of", fails(UsageError("--dtype is mentioned")))
    with pytest.raises(TraceFailed, match="--dtype is mentioned"):
        ClassSubject(session, LINEAR).judge(analysis)


def test_the_real_message_of_an_unknown_dtype(session: Session) -> None:
    other = Session(replace(session.options, dtype="int8"), lambda name, stage: None, takes_foreign=True)
    with pytest.raises(UnsupportedDtype, match="--dtype int8 is not a floating dtype of torch"):
        ClassSubject(other, LINEAR).judge(analyses.linear())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            AgentUnavailable("reworded\nafter a coffee:", resume="lmp resume"),
            "reworded\nafter a coffee: `lmp resume {}`",
        ),
        (AgentUnavailable("reworded\n`lmp resume` is of no use"), "reworded\n`lmp resume` is of no use"),
    ],
)
def test_an_error_names_the_command_that_resumes(error: AgentUnavailable, says: str, options: Options) -> None:
    own = replace(options, engine="agent", fresh=True)
    run = start("analyze-module", [LINEAR], own, Limits())
    agent = ScriptedAgent({"module-analyzer Linear": [error]})
    with pytest.raises(AgentUnavailable) as raised:
        carry_out(run, own, lambda name, stage: None, lambda run: agent)
    assert str(raised.value) == says.format(f"{run.id} --results {own.results}")
