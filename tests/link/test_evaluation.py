"""Numbers put into analyses, references followed. The expected numbers are worked out in the comments."""

from __future__ import annotations

from collections.abc import Callable

import analyses
import pytest
from analyses import LAYER, LINEAR, MLP, TOKENS, analysis, call, kernel, layer, linear, mlp
from jsonschema import Draft202012Validator

from evaluation import evaluate_analysis
from lmp.errors import EvaluationError, InvalidAnalysis, LmpError, NotFound, Search
from lmp.link.records import Evaluation
from lmp.records import ModuleAnalysis, Verification
from lmp.store.schemas import schema

POINT = {"batch_size": 2, "seq_len": 16}


def known(*found: ModuleAnalysis) -> Callable[[str], ModuleAnalysis]:
    return {a.class_name: a for a in found}.__getitem__


def evaluated(root: ModuleAnalysis, *others: ModuleAnalysis, **given: int) -> Evaluation:
    return evaluate_analysis(root, known(*others), {**POINT, **given})


def small(*kernels: object, parameters: tuple[str, ...] = ("batch_size",), name: str = "a.Small", **more: object):
    return analysis(name, list(kernels), {p: f"init.{p}" for p in parameters}, **more)  # type: ignore[arg-type]


def refused(root: ModuleAnalysis, *others: ModuleAnalysis, kind: type[LmpError] = InvalidAnalysis) -> str:
    with pytest.raises(kind) as caught:
        evaluated(root, *others)
    message = str(caught.value)
    assert len(message.splitlines()) <= 2
    return message


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_class_without_references() -> None:
    found = evaluated(linear(), in_features=8, out_features=32)
    (only,) = found.kernels
    # 2 * 2 * 16 * 8 * 32; (2 * 16 * 8 + 8 * 32) * 2 bytes; 2 * 16 * 32 * 2 bytes
    assert (only.flops, only.read, only.write, only.repeat) == (16_384, 1_024, 2_048, 1)
    assert (only.path, only.class_name, only.line) == ("", LINEAR, 134)
    assert found.totals.parameters_count == 256  # 8 * 32
    assert found.totals.compulsory is None


def test_references_are_followed() -> None:
    found = evaluated(mlp(), linear())
    rows = [(k.path, k.flops, k.read, k.write) for k in found.kernels]
    assert rows == [
        ("gate_proj", 16_384, 1_024, 2_048),  # as above
        ("", 4_096, 2_048, 2_048),  # 4 * 2*16*32; 2*16*32 elements of 2 bytes, in and out
        ("up_proj", 16_384, 1_024, 2_048),
        ("", 1_024, 4_096, 2_048),  # two operands
        ("down_proj", 16_384, 2_560, 512),  # (2*16*32 + 32*8) * 2; 2*16*8*2
    ]
    totals = found.totals
    assert totals.matmul_flops == 49_152  # 3 * 16,384
    assert totals.flops == 54_272  # + 4,096 + 1,024
    assert (totals.read, totals.write) == (10_752, 8_704)
    assert totals.compulsory == 2_560  # 2*16*8*2 + 3*8*32*2 read, 2*16*8*2 written
    assert totals.parameters_count == 768  # 3 * 8 * 32


def test_paths_and_repeats_multiply_down_the_tree() -> None:
    found = evaluated(layer(), mlp(), linear())
    assert [(k.path, k.repeat) for k in found.kernels] == [
        ("", 1),
        ("mlp.gate_proj", 3),
        ("mlp", 3),
        ("mlp.up_proj", 3),
        ("mlp", 3),
        ("mlp.down_proj", 3),
    ]
    assert found.totals.flops == 2 * 16 * 8 + 3 * 54_272
    assert found.totals.flops == sum(k.repeat * k.flops for k in found.kernels)
    assert found.totals.read == sum(k.repeat * k.read for k in found.kernels)


def test_the_json_is_of_its_schema() -> None:
    found = evaluated(layer(assumptions=["{seq_len} < 16"]), mlp(), linear())
    Draft202012Validator(schema("evaluation")).validate(found.model_dump(mode="json"))


def test_integers_are_exact_beyond_64_bits() -> None:
    found = evaluated(linear(), in_features=10**20, out_features=10**20 + 1)
    assert found.totals.flops == 2 * 2 * 16 * 10**20 * (10**20 + 1)


def test_element_sizes_pass_through_references() -> None:
    found = evaluated(mlp(), linear(), w_bytes=1, a_bytes=4)
    assert found.kernels[0].read == 2 * 16 * 8 * 4 + 8 * 32 * 1


def test_an_element_size_that_is_bound() -> None:
    root = small(call(1, "${{a.Inner}}(batch_size={batch_size}, w_bytes=1)"))
    inner = small(kernel(9, "{batch_size}", "{w_bytes}", "{a_bytes}"), name="a.Inner")
    (only,) = evaluated(root, inner).kernels
    assert (only.read, only.write) == (1, 2)


def test_variables_are_lexical() -> None:
    # seq_len of the root never reaches the inner class, which has one of its own.
    root = small(call(1, "${{a.Inner}}(seq_len={batch_size})"), parameters=("batch_size", "seq_len"))
    inner = small(kernel(9, "{seq_len}", "0", "0"), parameters=("seq_len",), name="a.Inner")
    assert evaluated(root, inner).totals.flops == 2


def test_positional_arguments_bind_in_the_order_of_the_parameters() -> None:
    root = small(call(1, "${a.Inner}({batch_size}, 5)"))
    inner = small(kernel(9, "{n} * 10 + {m}", "0", "0"), parameters=("n", "m"), name="a.Inner")
    assert evaluated(root, inner).totals.flops == 25


def test_a_factor_before_a_reference_is_a_repeat() -> None:
    inner = small(kernel(9, "{n}", "{n}", "0", category="matmul"), parameters=("n",), name="a.Inner")
    root = small(call(1, "{batch_size} * ${{a.Inner}}(n=7)"))
    found = evaluated(root, inner)
    assert [(k.repeat, k.flops) for k in found.kernels] == [(2, 7)]
    assert (found.totals.flops, found.totals.matmul_flops) == (14, 14)


def test_work_beside_a_reference_is_a_kernel_of_its_own() -> None:
    inner = small(kernel(9, "{n}", "{n}", "0", category="matmul"), parameters=("n",), name="a.Inner")
    root = small(kernel(1, "${{a.Inner}}(n=7) + 3", "${{a.Inner}}(n=7)", "${{a.Inner}}(n=7)"))
    found = evaluated(root, inner)
    assert [(k.class_name, k.flops) for k in found.kernels] == [("a.Inner", 7), ("a.Small", 3)]
    assert (found.totals.flops, found.totals.matmul_flops) == (10, 7)


@pytest.mark.parametrize(
    ("flops", "total", "matmul"),
    [
        ("max(${{a.Inner}}(n=7), 3)", 7, 4),  # of matmuls only what the reference adds: 3 stand without it
        ("${{a.Inner}}(n=8) / 2", 4, 4),
        ("${{a.Inner}}(n=7)", 7, 7),  # but read does not refer to it
    ],
)
def test_what_cannot_be_broken_down_stays_with_the_class_that_says_it(flops: str, total: int, matmul: int) -> None:
    inner = small(kernel(9, "{n}", "{n}", "0", category="matmul"), parameters=("n",), name="a.Inner")
    found = evaluated(small(kernel(1, flops, "100", "0", kernel_type="composite")), inner)
    assert {k.class_name for k in found.kernels} == {"a.Small"}
    assert sum(k.flops for k in found.kernels if k.category == "matmul") == matmul
    assert sum(k.read for k in found.kernels) == 100
    assert (found.totals.flops, found.totals.matmul_flops) == (total, matmul)


def test_what_does_not_run_is_left_out() -> None:
    inner = small(kernel(9, "{n}", "{n}", "0"), parameters=("n",), name="a.Inner")
    root = small(call(1, "${{a.Inner}}(n=7)", repeat="{batch_size} - 2"), kernel(2, "1", "0", "0"))
    assert [k.line for k in evaluated(root, inner).kernels] == [2]
    assert [k.repeat for k in evaluated(root, inner, batch_size=5).kernels] == [3, 1]


def test_parameters_are_counted_through_references() -> None:
    root = small(parameters_count="3 + ${{a.Inner}}(n=4)")
    inner = small(parameters=("n",), name="a.Inner", parameters_count="10 * {n}")
    assert evaluated(root, inner).totals.parameters_count == 43
    assert evaluated(root, inner.model_copy(update={"parameters_count": None})).totals.parameters_count is None


# --- what has to be said about the numbers ----------------------------------------------------------------------------


def test_assumptions_that_do_not_hold_anywhere_below() -> None:
    inner = mlp(assumptions=["{intermediate_size} % 2 == 0", "{seq_len} <= 8"])
    found = evaluated(layer(assumptions=["{batch_size} == 1"]), inner, linear())
    assert [(v.path, v.class_name, v.assumption, v.values) for v in found.violated_assumptions] == [
        ("", LAYER, "{batch_size} == 1", {"batch_size": 2}),
        ("", LAYER, "{seq_len} <= 8", {"seq_len": 16}),  # the MLP's, in the variables of the layer
    ]
    assert found.verification == "unverified"
    inside = evaluated(layer(), inner, linear(), seq_len=8)
    assert (inside.violated_assumptions, inside.verification) == ([], "verified")


def test_the_worst_verification_counts() -> None:
    assert evaluated(layer(), mlp(), linear()).verification == "verified"
    failed = linear(verification=Verification(status="failed"))
    unverified = mlp(verification=Verification(status="unverified", reason="-"))
    found = evaluated(layer(), unverified, failed)
    assert found.verification == "failed"
    assert found.not_verified == {MLP: "unverified", LINEAR: "failed"}


def test_uncounted_operators_are_named() -> None:
    assert evaluated(mlp(), linear(uncounted=["aten::x"])).uncounted == {LINEAR: ["aten::x"]}


# --- analyses that do not fit together --------------------------------------------------------------------------------


def test_a_binding_that_is_missing() -> None:
    root = small(call(12, f"${{{{{LINEAR}}}}}(batch_size=1, in_features=1)"))
    assert refused(root, linear()) == (
        "a.Small line 12: the reference to Linear does not bind seq_len, out_features\n"
        "run `lmp analyze-module a.Small --fresh` to make the analysis again"
    )


def test_a_binding_of_a_name_that_is_not_there() -> None:
    root = small(call(12, "${{a.Inner}}(n=1, m=1)"))
    inner = small(parameters=("n",), name="a.Inner")
    assert "a.Small line 12: the reference to Inner binds m, which it does not have (it has n)" in refused(root, inner)


def test_too_many_positional_arguments() -> None:
    root = small(call(12, "${{a.Inner}}(1, 2)"))
    inner = small(parameters=("n",), name="a.Inner")
    assert "a.Small line 12: the reference to Inner gives 2 values, it takes 1 (n)" in refused(root, inner)


def test_a_name_bound_twice() -> None:
    root = small(call(12, "${{a.Inner}}(1, n=2)"))
    assert "binds n twice" in refused(root, small(parameters=("n",), name="a.Inner"))


def test_references_in_a_circle() -> None:
    root = small(call(1, "${{a.Inner}}()", path="inner"))
    inner = small(call(2, "${{a.Small}}(batch_size=1)", path="back"), parameters=(), name="a.Inner")
    assert "a.Small > inner > back: the references run in a circle: Small > Inner > Small" in refused(root, inner)


def test_a_class_that_is_not_found_keeps_its_search() -> None:
    def lookup(class_path: str) -> ModuleAnalysis:
        raise NotFound(f"no class {class_path}\ncheck it", [Search("class", "here", "nothing")])

    with pytest.raises(NotFound) as caught:
        evaluate_analysis(mlp(), lookup, POINT)
    assert str(caught.value) == f"{MLP} > gate_proj: no class {LINEAR}\ncheck it"
    assert caught.value.searched == [Search("class", "here", "nothing")]


def test_a_class_without_an_analysis() -> None:
    assert refused(mlp()) == (f"{MLP} > gate_proj: there is no analysis of {LINEAR}\nrun `lmp analyze-module {LINEAR}`")


@pytest.mark.parametrize(
    ("flops", "message"),
    [
        ("{unknown} + 1", "a.Small line 3: unknown has no value"),
        ("2 * ({batch_size}", "a.Small line 3: a formula cannot be read: expected ')'"),
        ("{batch_size", "a.Small line 3: a formula cannot be read: "),
        ("__import__('os')", "a.Small line 3: a formula cannot be read: "),
        ("{batch_size}.real", "a.Small line 3: a formula cannot be read: "),
        ("eval({batch_size})", "a.Small line 3: a formula cannot be read: unknown function 'eval'"),
    ],
)
def test_a_formula_that_is_none(flops: str, message: str) -> None:
    assert refused(small(kernel(3, flops, "0", "0"))).startswith(message)


def test_a_formula_without_a_value_at_this_point_is_the_points_fault() -> None:
    root = small(kernel(3, "{batch_size} // ({batch_size} - 2)", "0", "0"))
    assert refused(root, kind=EvaluationError).startswith("a.Small line 3: division by zero in ")
    root = small(kernel(3, "{batch_size} / 4", "0", "0"))
    assert "is 1/2, not an integer" in refused(root, kind=EvaluationError)


def test_an_assumption_that_is_no_condition() -> None:
    assert "a formula cannot be read" in refused(small(assumptions=["only on Sundays"]))


def test_a_repeat_below_zero() -> None:
    assert "a kernel is repeated -1 times" in refused(small(kernel(3, "1", "0", "0", repeat="{batch_size} - 3")))


def test_tokens_of_the_samples_are_what_the_comments_say() -> None:
    assert TOKENS == "{batch_size} * {seq_len}"
    assert analyses.mlp().values == {"hidden_size": 8, "intermediate_size": 32}
