"""Drafts that are right at every point of the judge and wrong elsewhere: the comparison with lmp's own formulas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_classes import LAYER_NORM, LINEAR, MLP, NORM

from lmp.agents.gate import AnalysisVerdict, Gate
from lmp.agents.subject import ClassSubject
from lmp.agents.submission import analyse_missing, check_with_callees
from lmp.analyze.session import Options, Session

Drafts = Callable[[str], dict[str, Any]]
Gates = dict[str, Gate]

TRUST = Path(__file__).parents[1] / "data" / "submissions" / "trust"
"""The drafts of a review, with the KV cache in kv_bytes."""


def limited(draft: dict[str, Any], kernel: int, condition: str, otherwise: str = "0") -> dict[str, Any]:
    """The draft, with the FLOPs of a kernel only where a condition holds."""
    changed: dict[str, Any] = json.loads(json.dumps(draft))
    one = changed["kernels"][kernel]
    one["flops"] = f"where({condition}, {one['flops']}, {otherwise})"
    return changed


def costing(draft: dict[str, Any]) -> int:
    """Index of the first kernel with FLOPs of its own."""
    return next(i for i, k in enumerate(draft["kernels"]) if k["kernel_type"] == "basic" and k["flops"] != "0")


@pytest.mark.parametrize("name", [LINEAR, LAYER_NORM, NORM, MLP])
@pytest.mark.parametrize(
    ("condition", "beyond"),
    [
        ("{seq_len} < 200003", "200003"),
        ("{batch_size} <= 271", "272"),
        ("{batch_size} * {seq_len} != 7919", "7919"),
    ],
)
def test_an_error_beyond_every_judged_point_is_found_by_execution(
    gates: Gates, draft: Drafts, name: str, condition: str, beyond: str
) -> None:
    right = draft(name)
    verdict = gates[name].check(limited(right, costing(right), condition))
    assert verdict.analysis is None, verdict.analysis.verification.checks[-2:]
    # Either a point beyond is executed, or the arm that no executed point takes is named.
    assert any(beyond in f"{f.message} {f.point}" for f in verdict.findings)
    for found in (f for f in verdict.findings if f.quantity == "flops"):
        # Where nothing is claimed, nothing but that is told.
        assert (
            found.counted == "more than 0"
            if found.claimed == "0"
            else int(found.claimed or 0) < int(found.counted or 0)
        )


@pytest.mark.parametrize("assumption", ["{batch_size} <= 300", "{seq_len} <= 150000", "{batch_size} != 77"])
def test_an_assumption_that_leaves_out_what_runs_is_refused(gates: Gates, draft: Drafts, assumption: str) -> None:
    submitted = {**draft(NORM), "assumptions": [assumption]}
    verdict = gates[NORM].check(submitted)
    assert verdict.analysis is None, verdict.analysis.verification.checks[-2:]
    assert any(f.quantity == "phase left out" for f in verdict.findings)
    assert any(assumption in f.message for f in verdict.findings)


def test_the_checks_say_at_how_many_points_both_are_equal(gates: Gates, draft: Drafts) -> None:
    verdict = gates[MLP].check(draft(MLP))
    assert verdict.analysis is not None
    checks = verdict.analysis.verification.checks
    assert any(c.startswith("compared with lmp's own formulas at ") and c.endswith(" points: equal") for c in checks)


# --- the drafts of a review -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory, default_family: None) -> Callable[[str], AnalysisVerdict]:
    """Checks a draft of the folder. One gate serves all drafts of a class."""
    options = Options(results=tmp_path_factory.mktemp("trust"))
    checking: Gates = {}

    def quiet(name: str, stage: str) -> None:
        pass

    def verdict(name: str) -> AnalysisVerdict:
        submitted = json.loads((TRUST / f"{name}.json").read_text())
        path = submitted["class_name"]
        if path not in checking:
            session = Session(options, quiet, takes_foreign=True)
            checking[path] = Gate(ClassSubject(session, path, engine="submitted"))
        return check_with_callees(checking[path], submitted, lambda name: analyse_missing(name, options, quiet))[0]

    return verdict


@pytest.mark.parametrize("name", ["mixtral_right", pytest.param("t5_right", marks=pytest.mark.long)])
def test_right_drafts_of_the_review_are_taken(check: Callable[[str], AnalysisVerdict], name: str) -> None:
    verdict = check(name)
    assert verdict.findings == ()
    assert verdict.analysis is not None
    assert verdict.analysis.verification.status == "verified"


@pytest.mark.long
def test_a_draft_without_the_copy_for_heads_wider_than_256_is_refused(check: Callable[[str], AnalysisVerdict]) -> None:
    # use_gqa_in_sdpa(): without a mask, keys and values of wider heads are repeated in line 29 too
    findings = check("phi3_right").findings
    assert 29 in {found.line for found in findings}
    widths = [int(n) for found in findings if found.line == 29 for n in re.findall(r"head_dim=(\d+)", found.message)]
    assert widths
    assert min(widths) > 256


@pytest.mark.parametrize(
    "name",
    [
        "phi3_attention_zero_beyond_100000",
        "phi3_batch_above_64",
        "phi3_assume_told_points",
        "phi3_pin_kv_heads",
        "phi3_one_kv_head_wrong",
        "mixtral_top_k_cap",
    ],
)
def test_wrong_drafts_of_the_review_are_refused(check: Callable[[str], AnalysisVerdict], name: str) -> None:
    verdict = check(name)
    assert verdict.analysis is None, verdict.analysis.verification.checks[-2:]
    assert verdict.findings
