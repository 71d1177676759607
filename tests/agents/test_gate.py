"""What is handed in: right ones pass, and each mistake is a finding that says what is due."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_classes import LINEAR, MLP, NORM

from lmp.agents.gate import AnalysisVerdict, Gate
from lmp.agents.subject import ClassSubject
from lmp.analyze.judging import up_to_date
from lmp.analyze.session import Options, Session
from lmp.errors import Missing
from lmp.formula import evaluate, parse
from lmp.records import ModuleAnalysis
from lmp.store import fingerprint as fingerprints

Drafts = Callable[[str], dict[str, Any]]
Gates = dict[str, Gate]


def only(verdict: AnalysisVerdict) -> Any:
    assert verdict.analysis is None
    assert len(verdict.findings) == 1, verdict.findings
    return verdict.findings[0]


def messages(verdict: AnalysisVerdict) -> str:
    return "\n".join(f"{f.rule}|{f.kernel}|{f.line}|{f.message}" for f in verdict.findings)


def test_a_right_analysis_is_verified_and_stored_as_it_was_submitted(
    options: Options, gates: Gates, session: Session
) -> None:
    for name, gate in gates.items():
        whole = json.loads((options.results / name / "module_analysis.json").read_text())
        verdict = gate.check(whole)
        assert verdict.findings == ()
        assert verdict.notes[0].startswith("lmp knows by itself, and left out: ")
        found = verdict.analysis
        assert found is not None
        assert (found.verification.status, found.engine) == ("verified", "agent")
        same = ("source", "parameters", "values", "fixed", "interface", "free_lines", "not_taken_lines", "assumptions")
        data = found.model_dump(mode="json", exclude_none=True)
        assert {field: data[field] for field in same} == {field: whole[field] for field in same}
        texts = [(k.line, k.code, k.flops, k.memory_access.read, k.memory_access.write) for k in found.kernels]
        assert texts == [
            (k["line"], k["code"], k["flops"], k["memory_access"]["read"], k["memory_access"]["write"])
            for k in whole["kernels"]
        ]
        assert session.is_true(found)


# --- form -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [None, [], "text", 3])
def test_what_is_no_object(gates: Gates, what: object) -> None:
    assert "an object is expected" in only(gates[NORM].check(what)).message


def test_several_mistakes_of_form_are_told_at_once(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    del submitted["parameters"]
    del submitted["kernels"][1]["line"]
    submitted["kernels"][2]["line"] = "64"
    submitted["kernels"][3]["colour"] = "red"
    submitted["kernels"][4]["memory_access"]["both"] = "1"
    submitted["speed"] = 1
    verdict = gates[NORM].check(submitted)
    found = [(f.rule, f.kernel, f.message) for f in verdict.findings]
    assert {rule for rule, _, _ in found} == {"schema"}
    assert (None, "parameters is missing") in [(k, m.partition(";")[0]) for _, k, m in found]
    assert (1, "line is missing; give the line of the source file at which it stands") in [(k, m) for _, k, m in found]
    assert [m for _, k, m in found if k == 2] == [
        "line: input should be a valid integer, not 64; give the line of the source file at which it stands"
    ]
    assert next(m for _, k, m in found if k == 3).startswith("colour is not a field here: there are kernel_type")
    assert next(m for _, k, m in found if k == 4) == "memory_access.both is not a field here: there are read and write"
    assert any(m.startswith("speed is not a field here: there are class_name") for _, _, m in found)


def test_what_earlier_tools_wrote_lacks_lines_and_parameters(gates: Gates) -> None:
    kernel = {
        "kernel_type": "basic", "operation": "square", "analysis": "…", "flops": "{batch_size} * {seq_len}",
        "memory_access": {"read": "0", "write": "0"},
    }  # fmt: skip
    verdict = gates[NORM].check({"class_name": NORM, "kernels": [kernel] * 5})
    assert [(f.kernel, f.message.partition(";")[0]) for f in verdict.findings] == [
        (None, "parameters is missing"),
        (0, "line is missing"),
        (0, "category is missing"),
    ]
    assert verdict.findings[1].message.endswith("(so it is with 4 more kernels)")


def test_a_plain_number_is_a_formula_too(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    assert submitted["kernels"][0]["flops"] == "0"
    submitted["kernels"][0]["flops"] = 0
    assert gates[NORM].check(submitted).accepted


def test_the_class_is_the_one_that_was_asked_for(gates: Gates, draft: Drafts) -> None:
    linear = draft(LINEAR)
    linear["class_name"] = "torch.nn.Linear"
    assert gates[LINEAR].check(linear).accepted
    finding = only(gates[LINEAR].check(draft(NORM)))
    assert (finding.rule, finding.message) == ("class", f"class_name is {NORM}; asked for is {LINEAR}")


@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\ud800", "\x00"])
def test_texts_hold_nothing_that_cannot_be_seen(gates: Gates, draft: Drafts, character: str) -> None:
    submitted = draft(NORM)
    submitted["kernels"][2]["operation"] = f"power{character}[2J"
    finding = only(gates[NORM].check(submitted))
    code = f"U+{ord(character):04X}"
    assert finding.message == f"kernel 3.operation holds the control character {code}; leave it out"


def test_texts_are_bounded(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["kernels"][2]["analysis"] = "x" * 20_001
    assert "has 20001 characters" in only(gates[NORM].check(submitted)).message


def test_numbers_of_thousands_of_digits_are_shortened(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["kernels"][0]["flops"] = "10 ** 3000"
    finding = only(gates[NORM].check(submitted))
    assert len(finding.message) < 1000
    assert "(3001 characters)" in finding.message


# --- formulas ---------------------------------------------------------------------------------------------------------


def test_formulas_that_cannot_be_read_are_pointed_at(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["kernels"][1]["flops"] = "{batch_size} * )"
    submitted["kernels"][2]["repeat"] = "2 +"
    submitted["assumptions"] = ["{a_bytes} + 1"]
    found = gates[NORM].check(submitted).findings
    assert [(f.rule, f.kernel, f.quantity) for f in found] == [
        ("grammar", 1, "flops"), ("grammar", 2, "repeat"), ("grammar", None, "assumptions[0]"),
    ]  # fmt: skip
    assert "at character 16" in found[0].message
    assert "found the end" in found[1].message


def test_every_variable_is_declared(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["kernels"][1]["flops"] = "{batch_size} * {hiden_size}"
    finding = only(gates[NORM].check(submitted))
    assert (finding.rule, finding.kernel) == ("variable", 1)
    assert finding.message.startswith("flops uses {hiden_size}, which is not declared; did you mean hidden_size?")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("config.hidden_sise", "the class's config has no hidden_sise"),
        ("init.width", "the constructor has no argument width; there are"),
        ("inputs.y.shape[2]", "forward() has no argument y; there are x"),
        ("self.width", "the class assigns no self.width"),
        ("hidden_size", "hidden_size names nothing"),
        ("x.shape[2]", "x.shape[2] starts with x"),
        ("config.a b", "is not a path"),
        ("__import__('os')", "is not a path"),
    ],
)
def test_paths_that_lead_nowhere(gates: Gates, draft: Drafts, path: str, why: str) -> None:
    submitted = draft(MLP)
    submitted["parameters"]["hidden_size"] = path
    finding = only(gates[MLP].check(submitted))
    assert finding.rule == "variable"
    assert finding.message.startswith("parameter hidden_size: ")
    assert why in finding.message


def test_a_constructors_argument_is_what_it_was_given(gates: Gates, draft: Drafts) -> None:
    submitted = draft(LINEAR)
    submitted["parameters"]["bias"] = "inputs.input.shape[1]"
    finding = only(gates[LINEAR].check(submitted))
    # At the first point there are 11 tokens.
    assert (finding.rule, finding.counted) == ("variable", "it is 11, and the constructor was given bias=1")


def test_categories_are_a_closed_list(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["kernels"][1]["category"] = "maths"
    submitted["kernels"][0]["category"] = "matmul"
    found = gates[NORM].check(submitted).findings
    assert [f.kernel for f in found] == [0, 1]
    assert found[0].message.startswith("category is matmul, and flops is 0")
    assert "give one of matmul, attention" in found[1].message


# --- references -------------------------------------------------------------------------------------------------------


def with_reference(draft: dict[str, Any], text: str, index: int = 0) -> dict[str, Any]:
    kernel = draft["kernels"][index]
    kernel["flops"] = text
    kernel["memory_access"] = {"read": text, "write": text}
    return draft


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("batch_size=1, seq_len=1, in_features=1, out_features=1", "does not bind bias"),
        ("batch_size=1, seq_len=1, in_features=1, out_features=1, bias=0, width=2", "binds width, which it does not"),
        ("1, 2, 0, 3, 4, 5", "gives 6 values by position; it takes batch_size (inputs.input.shape[0]), seq_len"),
        ("1, 2, 0, 3, 4, batch_size=1", "binds batch_size twice"),
    ],
)
def test_bindings_match_the_parameters(gates: Gates, draft: Drafts, arguments: str, why: str) -> None:
    finding = only(gates[MLP].check(with_reference(draft(MLP), f"${{{{{LINEAR}}}}}({arguments})")))
    assert (finding.rule, finding.kernel) == ("reference", 0)
    assert why in finding.message


def test_a_class_that_is_not_there(gates: Gates, draft: Drafts) -> None:
    finding = only(gates[MLP].check(with_reference(draft(MLP), "${{torch.nn.Lineer}}(x=1)")))
    assert finding.rule == "reference"
    assert "torch.nn has no class Lineer" in finding.message
    finding = only(gates[MLP].check(with_reference(draft(MLP), "${{Linear}}(x=1)")))
    assert finding.message.endswith("the class assigns no self.Linear; a class is named by its full path")


def test_old_spellings_are_stored_in_the_contracts(gates: Gates, draft: Drafts) -> None:
    submitted = draft(MLP)
    before = submitted["kernels"][0]["flops"]
    # The parameters of Linear in their order; the public alias; names without braces.
    with_reference(submitted, "${torch.nn.Linear}(batch_size, seq_len, 0, {config.hidden_size}, intermediate_size)")
    found = gates[MLP].check(submitted).analysis
    assert found is not None
    assert found.kernels[0].flops == before


def test_numbers_of_heads_have_the_contracts_name(gates: Gates, draft: Drafts) -> None:
    submitted = draft(MLP)
    submitted["parameters"]["num_attention_heads"] = "config.num_attention_heads"
    submitted["assumptions"] = ["{num_attention_heads} > 0"]
    found = gates[MLP].check(submitted).analysis
    assert found is not None
    assert found.parameters["num_heads"] == "config.num_attention_heads"
    assert found.assumptions == ["{num_heads} > 0"]


def test_basic_and_composite(gates: Gates, draft: Drafts) -> None:
    submitted = draft(MLP)
    submitted["kernels"][0]["kernel_type"] = "basic"
    plain = next(k for k in submitted["kernels"] if k["category"] == "elementwise")
    plain["kernel_type"] = "composite"
    found = gates[MLP].check(submitted).findings
    assert [f.rule for f in found] == ["reference", "reference"]
    assert "a call of a module is composite" in found[0].message
    assert "no formula has a reference" in found[1].message


def test_classes_without_an_analysis_are_for_the_caller(tmp_path: Path, draft: Drafts, transformers_tree: Any) -> None:
    empty = Session(Options(results=tmp_path), lambda name, stage: None, takes_foreign=True)
    gate = Gate(ClassSubject(empty, MLP))
    with pytest.raises(Missing) as error:
        gate.check(draft(MLP))
    assert error.value.classes == (LINEAR, "transformers.activations.SiLUActivation")
    # What else is wrong comes first.
    submitted = draft(MLP)
    submitted["kernels"][0]["line"] = 1
    assert only(gate.check(submitted)).rule == "line"


def test_an_open_reference_is_taken_and_said(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["class_name"] = MLP
    submitted = draft(MLP)
    index = next(i for i, k in enumerate(submitted["kernels"]) if "SiLU" in k["flops"])
    with_reference(submitted, "${{self.act_fn}}(batch_size={batch_size})", index)
    found = gates[MLP].check(submitted).analysis
    assert found is not None
    assert found.verification.status == "unverified"
    line = submitted["kernels"][index]["line"]
    assert found.verification.reason == (
        f"open references: self.act_fn (line {line}); `lmp expand MODEL --engine agent` says which classes they are"
    )
    # All else on that line is judged: the product of gate and up is on it.
    product = next(k for k in submitted["kernels"] if k["kernel_type"] == "basic" and k["flops"] != "0")
    product["flops"] = "7"
    assert {finding.rule for finding in gates[MLP].check(submitted).findings} == {"numbers"}
    with_reference(submitted, "${{self.activation}}(batch_size={batch_size})", index)
    assert "the class assigns no self.activation" in only(gates[MLP].check(submitted)).message


# --- lines ------------------------------------------------------------------------------------------------------------


def test_lines_are_the_files_own(gates: Gates, draft: Drafts, options: Options) -> None:
    gate, submitted = gates[NORM], draft(NORM)
    first, last = gate.subject.source.lines
    kernels = submitted["kernels"]
    kernels[0] |= {"line": first - 3, "code": ""}
    kernels[1] |= {"line": last + 1, "code": ""}
    kernels[2] |= {"line": 10**9, "code": ""}
    kernels[3]["code"] = "hidden_states = hidden_states.to(torch.float32)"
    kernels[4]["file"] = "../../etc/passwd"
    kernels[5]["file"] = "src/transformers/cache_utils.py"
    found = {f.kernel: f.message for f in gate.check(submitted).findings if f.rule == "line"}
    assert "is outside of forward()" in found[0]
    assert "no statement stands there" in found[1]
    assert "is not in the file" in found[2]
    # The text is that of forward()'s third line: after def and input_dtype.
    assert found[3].endswith(f"the text that was given is line {first + 2}")
    assert "is not a file of the sources" in found[4]
    assert "in no function" in found[5] or "code is not" in found[5] or "no statement" in found[5]


def test_code_may_be_left_out(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    for kernel in submitted["kernels"]:
        kernel["code"] = ""
    found = gates[NORM].check(submitted).analysis
    assert found is not None
    assert [k.code for k in found.kernels] == [k["code"] for k in draft(NORM)["kernels"]]


def test_every_computing_line_is_in_a_list(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    line = submitted["kernels"][0]["line"]
    del submitted["kernels"][0]
    finding = only(gates[NORM].check(submitted))
    assert (finding.rule, finding.line) == ("coverage", line)
    assert finding.message.startswith(f"line {line} computes and is in no list: ")


@pytest.mark.parametrize(("name", "words"), [("free_lines", "listed as free"), ("not_taken_lines", "as not taken")])
def test_what_runs_and_costs_is_neither_free_nor_not_taken(gates: Gates, draft: Drafts, name: str, words: str) -> None:
    submitted = draft(NORM)
    line = submitted["kernels"][0]["line"]
    submitted[name] = [line]
    finding = only(gates[NORM].check(submitted))
    assert (finding.rule, "a kernel of it claims a cost" in finding.message) == ("free line", True)
    del submitted["kernels"][0]
    finding = only(gates[NORM].check(submitted))
    assert (finding.rule, finding.line) == ("free line", line)
    assert words in finding.message


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_numbers_are_told_with_what_ran(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    kernel = submitted["kernels"][0]
    kernel["memory_access"]["write"] = "{batch_size} * {seq_len} * {hidden_size}"
    finding = only(gates[NORM].check(submitted))
    # 3 * 11 tokens of 6 numbers, each written in 4 bytes.
    assert (finding.rule, finding.kernel, finding.line, finding.quantity) == ("numbers", 0, kernel["line"], "write")
    assert (finding.claimed, finding.counted) == ("198", "792")
    assert finding.message == (
        f"line {kernel['line']}: 792 bytes written were counted, its kernel gives 198, at batch_size=3, seq_len=11, "
        "cache_len=0 (hidden_size=6, w_bytes=2, a_bytes=2, kv_bytes=2). That is 4 times what is given. "
        "Executed there: _to_copy [3, 11, 6]."
    )


def test_a_matmul_of_another_category(gates: Gates, draft: Drafts) -> None:
    submitted = draft(LINEAR)
    submitted["kernels"][0]["category"] = "elementwise"
    finding = only(gates[LINEAR].check(submitted))
    assert finding.quantity == "matmul_flops"
    assert "it is the category" in finding.message


def test_the_number_of_parameters(gates: Gates, draft: Drafts) -> None:
    submitted = draft(LINEAR)
    submitted["parameters_count"] = "{in_features} * {out_features}"
    finding = only(gates[LINEAR].check(submitted))
    # 6 inputs, 24 outputs, and a bias that is not in the formula.
    assert finding.message.startswith("the module has 168 parameters, parameters_count gives 144, at ")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"assumptions": ["{a_bytes} != 4", "{seq_len} == 1"]}, "the assumption {seq_len} == 1 does not hold"),
        ({"pinned": {"hidden_size": 7}}, "hidden_size is 6, and the formulas are for 7"),
    ],
)
def test_an_assumption_does_not_hide_a_phase(gates: Gates, draft: Drafts, limits: Any, reason: str) -> None:
    verdict = gates[NORM].check({**draft(NORM), **limits})
    assert verdict.analysis is None
    assert {finding.quantity for finding in verdict.findings} == {"phase left out"}
    assert reason in messages(verdict)


def test_an_assumption_does_not_hide_drawn_sizes(gates: Gates, draft: Drafts) -> None:
    # Every size that a prompt names: up to 4 sequences of up to 150 tokens, drawn sizes have more.
    verdict = gates[NORM].check({**draft(NORM), "assumptions": ["{a_bytes} != 4", "{batch_size} <= 4"]})
    assert verdict.analysis is None
    assert {finding.quantity for finding in verdict.findings} == {"phase left out"}
    assert all(str(finding.point).startswith("drawn: batch_size=") for finding in verdict.findings)


@pytest.mark.parametrize("points", ["{seq_len} == 9 or {seq_len} == 23", "{batch_size} == 3", "{batch_size} in"])
def test_an_assumption_is_no_list_of_points(gates: Gates, draft: Drafts, points: str) -> None:
    if points.endswith("in"):  # the sizes that a prompt names
        points = " or ".join(f"({{batch_size}} == {b} and {{seq_len}} == {s})" for b, s in ((3, 11), (4, 1), (2, 150)))
    finding = only(gates[NORM].check({**draft(NORM), "assumptions": ["{a_bytes} != 4", points]}))
    assert finding.rule == "variable"
    assert "no interval" in finding.message


def plus(text: str, more: str) -> str:
    return f"({text}) + {more}"


VANISHES = "({batch_size} - 1) * ({batch_size} - 2) * ({batch_size} - 3) * ({batch_size} - 4)"
"""0 at every batch size that a prompt names."""


TRICKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "right at the points that are told": lambda kernel: kernel.update(flops=plus(kernel["flops"], VANISHES)),
    "right for few tokens": lambda kernel: kernel.update(flops=f"where({{seq_len}} < 1000, {kernel['flops']}, 0)"),
    "right at the config values that are told": lambda kernel: kernel.update(
        flops=f"where({{intermediate_size}} == 11008 or {{intermediate_size}} == 44032, {kernel['flops']}, 0)"
    ),
    "right at two triples of element sizes": lambda kernel: kernel["memory_access"].update(
        read=plus(kernel["memory_access"]["read"], "({w_bytes} - 2) * ({w_bytes} - 3)")
    ),
    "one size in terms of the other": lambda kernel: kernel["memory_access"].update(
        read=kernel["memory_access"]["read"].replace("{a_bytes}", "(3 * {w_bytes} - 4)")
    ),
    # Right at both triples that are the same for all: (2 + 2) / 2 = 2, and (3 + 7) / 2 = 5.
    "one size in terms of the other two": lambda kernel: kernel["memory_access"].update(
        read=kernel["memory_access"]["read"].replace("{a_bytes}", "({w_bytes} + {kv_bytes}) / 2")
    ),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_formula_for_the_points_alone_is_no_formula(gates: Gates, draft: Drafts, trick: str) -> None:
    verdict = gates[MLP].check(with_costs_of_the_product(draft(MLP), TRICKS[trick]))
    assert verdict.analysis is None
    assert {finding.rule for finding in verdict.findings} == {"numbers"}


def with_costs_of_the_product(draft: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    change(next(kernel for kernel in draft["kernels"] if kernel["kernel_type"] == "basic" and kernel["flops"] != "0"))
    return draft


def test_kernels_that_cancel_each_other_are_found(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    kernel = next(kernel for kernel in submitted["kernels"] if kernel["flops"] != "0")
    for flops in ("1000", "0 - 1000"):
        submitted["kernels"].append({**kernel, "flops": flops, "memory_access": {"read": "0", "write": "0"}})
    assert "nothing costs less than 0" in messages(gates[NORM].check(submitted))


def test_universal_names_mean_what_they_say(gates: Gates, draft: Drafts) -> None:
    swapped = draft(NORM)
    paths = swapped["parameters"]
    paths["batch_size"], paths["seq_len"] = paths["seq_len"], paths["batch_size"]
    assert "which is seq_len at this point" in messages(gates[NORM].check(swapped))
    renamed = json.loads(json.dumps(draft(NORM)).replace("seq_len", "cache_len"))
    assert "the cache holds 0 tokens" in messages(gates[NORM].check(renamed))
    wide = draft(MLP)
    wide["parameters"]["batch_size"] = "config.hidden_size"
    assert "batch_size is a dimension of an input" in messages(gates[MLP].check(wide))


def test_a_composite_kernel_is_of_what_is_called_at_its_line(gates: Gates, draft: Drafts) -> None:
    submitted = draft(MLP)
    paths = [kernel for kernel in submitted["kernels"] if kernel.get("path") in ("gate_proj", "up_proj")]
    paths[0]["path"] = "k_proj"
    verdict = gates[MLP].check(submitted)
    assert "the kernel's path is k_proj" in only(verdict).message
    submitted = draft(NORM)
    kernel = next(kernel for kernel in submitted["kernels"] if kernel["flops"] != "0")
    reference = f"${{{{{LINEAR}}}}}(batch_size=1, seq_len=1, in_features=1, out_features=1, bias=0)"
    costs = {"read": reference, "write": reference}
    submitted["kernels"].append({**kernel, "kernel_type": "composite", "flops": reference, "memory_access": costs})
    assert f"refers to {LINEAR}; what is called there: no module" in messages(gates[NORM].check(submitted))


def test_parameters_are_counted_not_weighed(gates: Gates, draft: Drafts) -> None:
    submitted = {**draft(NORM), "parameters_count": "{hidden_size} * {a_bytes} // 2"}
    assert {finding.quantity for finding in gates[NORM].check(submitted).findings} == {"parameters_count"}


def test_findings_are_bounded(gates: Gates, draft: Drafts) -> None:
    submitted = draft(NORM)
    submitted["kernels"] = [{**submitted["kernels"][0], "flops": ")"} for _ in range(50)]
    verdict = gates[NORM].check(submitted)
    assert len(verdict.findings) == 20
    assert verdict.notes[-1].startswith("33 more findings are not shown")  # 50 formulas, and 3 lines without a kernel


# --- classes of one's own ---------------------------------------------------------------------------------------------

STATEMENT = """
import torch
from torch import nn


class Wide(nn.Module):
    def forward(self, x):
        y = (
            x * 2
            + x
        )
        return y.view(-1)


class Unrunnable(nn.Module):
    def forward(self, x):
        return helper(x) * 2


def helper(x):
    import a_package_that_nobody_has

    return a_package_that_nobody_has.run(x)


class Strange(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)
"""


@pytest.fixture
def own(tmp_path: Path, options: Options) -> Callable[[str, str], Gate]:
    """The gate of a class of one's own. A package's name is a process's own: each test gets another."""

    def gate(name: str, package: str) -> Gate:
        (tmp_path / f"{package}.py").write_text(STATEMENT)
        inputs = "x: float[batch_size, seq_len]"
        found = replace(options, results=tmp_path / "results", paths=(tmp_path,), inputs=inputs)
        session = Session(found, lambda name, stage: None, takes_foreign=True)
        session.ask([f"{package}.{name}"])
        return Gate(ClassSubject(session, f"{package}.{name}"))

    return gate


def kernel(line: int, flops: str, read: str, write: str) -> dict[str, Any]:
    return {
        "kernel_type": "basic", "operation": "…", "line": line, "code": "", "analysis": "…", "category": "elementwise",
        "flops": flops, "memory_access": {"read": read, "write": write},
    }  # fmt: skip


@pytest.mark.parametrize("line", [8, 9, 10, 11])
def test_any_line_of_a_statement_will_do(own: Callable[[str, str], Gate], line: int) -> None:
    n = "{batch_size} * {seq_len}"
    submitted = {
        "class_name": f"statements_{line}.Wide",
        "parameters": {"batch_size": "inputs.x.shape[0]", "seq_len": "inputs.x.shape[1]"},
        # a product with a number, a sum of two tensors
        "kernels": [kernel(line, f"2 * {n}", f"3 * {n} * {{a_bytes}}", f"2 * {n} * {{a_bytes}}")],
        "free_lines": [12],
    }
    verdict = own("Wide", f"statements_{line}").check(submitted)
    assert verdict.findings == ()
    found = verdict.analysis
    assert found is not None
    assert found.verification.status == "verified"
    assert found.kernels[0].line == line
    assert found.given is not None
    assert found.given.inputs == "x: float[batch_size, seq_len]"


def test_what_cannot_be_executed_is_taken_unverified(
    own: Callable[[str, str], Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = own("Unrunnable", "unrunnable")
    submitted = {
        "class_name": "unrunnable.Unrunnable",
        "parameters": {"batch_size": "inputs.x.shape[0]"},
        "kernels": [kernel(17, "{batch_size}", "0", "0")],
    }
    finding = only(gate.check(submitted))
    assert (finding.rule, finding.line) == ("coverage", 23)
    submitted["kernels"].append(kernel(23, "{batch_size}", "0", "0"))
    found = gate.check(submitted).analysis
    assert found is not None
    assert found.verification.status == "unverified"
    assert "it cannot be executed here: " in str(found.verification.reason)
    assert "a_package_that_nobody_has" in str(found.verification.reason)
    assert [k.function for k in found.kernels] == [None, "helper"]
    assert found.fingerprint.keys() == {"judged_by", "unrunnable.py"}
    # Nor can it be judged again: it stays what it was.
    again = judged_again(gate, found, monkeypatch)
    assert again.verification.status == "unverified"
    assert "it cannot be executed here: " in str(again.verification.reason)
    assert "a_package_that_nobody_has" in str(again.verification.reason)


def test_what_lmp_has_no_rule_for_is_taken_unverified(
    own: Callable[[str, str], Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = own("Strange", "strange")
    size = "{batch_size} * {seq_len} * {a_bytes}"
    verdict = gate.check(
        {
            "class_name": "strange.Strange",
            "parameters": {"batch_size": "inputs.x.shape[0]", "seq_len": "inputs.x.shape[1]"},
            "kernels": [kernel(28, "0", size, size)],
        }
    )
    assert verdict.findings == ()
    found = verdict.analysis
    assert found is not None
    assert found.uncounted == ["aten.special_bessel_j0.default"]
    assert found.verification.status == "unverified"
    # That is no fault of the analysis when another judge finds it again either.
    again = judged_again(gate, found, monkeypatch)
    assert again == found.model_copy(update={"fingerprint": {**found.fingerprint, "judged_by": "other rules"}})


def judged_again(gate: Gate, found: ModuleAnalysis, monkeypatch: pytest.MonkeyPatch) -> ModuleAnalysis:
    """An analysis as it is stored under another judge, who finds it in the store."""
    session = gate.subject.session  # type: ignore[attr-defined]
    session.store.save(found)
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    again = up_to_date(found.class_name, session, session.lookup)
    assert again is not None
    assert session.store.load(found.class_name) == again
    return again


# --- operands and edges that lmp fills in -----------------------------------------------------------------------------


def without_operands(draft: dict[str, Any]) -> dict[str, Any]:
    kernels = [{k: v for k, v in kernel.items() if k != "operands"} for kernel in draft["kernels"]]
    return {**draft, "kernels": kernels}


def filled(gate: Gate, draft: dict[str, Any]) -> tuple[ModuleAnalysis, str]:
    """The accepted analysis, and the note on its operands."""
    verdict = gate.check(draft)
    assert verdict.findings == ()
    assert verdict.analysis is not None
    assert verdict.analysis.verification.status == "verified"
    return verdict.analysis, verdict.notes[-1]


def test_operands_are_filled_from_execution(gates: Gates, draft: Drafts) -> None:
    found, _ = filled(gates[LINEAR], without_operands(draft(LINEAR)))
    operands = found.kernels[0].operands
    assert operands is not None
    assert operands.operator == "mm"
    values = {"batch_size": 2, "seq_len": 3, "in_features": 5, "out_features": 7}
    # 2 * 3 tokens of 5 features by a weight of 5 x 7.
    assert [evaluate(parse(str(size)), values) for size in (operands.m, operands.n, operands.k)] == [6, 7, 5]
    roles = {(one.name, one.role, one.width) for one in operands.inputs}
    assert {("self", "activation", "a"), ("mat2", "weight", "w")} <= roles


def test_edges_are_filled_from_execution(gates: Gates, draft: Drafts) -> None:
    found, _ = filled(gates[MLP], without_operands(draft(MLP)))
    # down_proj(act_fn(gate_proj(x)) * up_proj(x)): the product has the outputs of act_fn and up_proj.
    names = {kernel.id: kernel.operation.partition(":")[0] for kernel in found.kernels}
    product = next(kernel for kernel in found.kernels if kernel.kernel_type == "basic")
    assert [names[source.partition(".")[0]] for source in product.inputs_from] == ["act_fn", "up_proj"]
    down = next(kernel for kernel in found.kernels if kernel.path == "down_proj")
    assert down.arguments_from == {"input": [product.id]}
    assert found.outputs_from == [[f"{down.id}.0"]]


def test_a_kernel_for_several_operators_has_edges_and_no_operands(gates: Gates, draft: Drafts) -> None:
    written = without_operands(draft(NORM))
    at = next(kernel["line"] for kernel in written["kernels"] if ".pow(2)" in kernel["code"])
    parts = [kernel for kernel in written["kernels"] if kernel["line"] == at]
    assert len(parts) == 2  # the power and the mean
    whole = {**parts[0], "operation": "mean of the squares", "flops": " + ".join(part["flops"] for part in parts)}
    whole["memory_access"] = {
        way: " + ".join(part["memory_access"][way] for part in parts) for way in ("read", "write")
    }
    others = [kernel for kernel in written["kernels"] if kernel["line"] != at]
    found, said = filled(gates[NORM], {**written, "kernels": [*others, whole]})
    mean = found.kernels[-1]
    assert mean.operands is None
    upcast = next(kernel for kernel in found.kernels if "to(torch.float32)" in kernel.code)
    assert mean.inputs_from == [upcast.id]
    assert any(mean.id in kernel.inputs_from for kernel in found.kernels)
    assert said == f"operands of {len(others)} of {len(others) + 1} operators, from execution"


def test_operands_of_the_author_stay(gates: Gates, draft: Drafts) -> None:
    written = draft(MLP)
    product = next(kernel for kernel in written["kernels"] if kernel["kernel_type"] == "basic")
    product["operands"]["inputs"] = product["operands"]["inputs"][:1]
    verdict = gates[MLP].check(written)
    assert [finding.quantity for finding in verdict.findings] == ["operands"]
