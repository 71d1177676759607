"""Analyses put together to a model. Expected formulas and numbers are worked out in the comments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from analyses import LAYER, LINEAR, MLP, analysis, call, kernel, layer, linear, mlp
from direct_walk import evaluate_analysis

from lmp.errors import InvalidAnalysis, LmpError, NotFound, Search
from lmp.formula import evaluate, evaluate_condition, parse, references
from lmp.link import link as module
from lmp.link.link import link
from lmp.link.references import MAX_LEVELS
from lmp.records import (
    MATMUL_CATEGORIES,
    ConfigOrigin,
    Finding,
    MemoryAccess,
    ModelAnalysis,
    ModelKernel,
    ModuleAnalysis,
    Verification,
)
from lmp.store.results import to_text

POINT = {"batch_size": 2, "seq_len": 16}
SIZES = {"w_bytes": 2, "a_bytes": 2}


def known(*found: ModuleAnalysis) -> Callable[[str], ModuleAnalysis]:
    return {a.class_name: a for a in found}.__getitem__


def linked(root: ModuleAnalysis, *others: ModuleAnalysis) -> ModelAnalysis:
    model = link(root, known(*others))
    _check_tree(model.kernels, "", set(root.parameters) | set(SIZES))
    return model


def _check_tree(kernels: list[ModelKernel], path: str, names: set[str]) -> None:
    """What holds of every model: paths go down, no reference is left, all names are the root's."""
    for k in kernels:
        if k.kernel_type == "composite":
            assert k.class_name
            assert k.path
            assert k.path.startswith(path)
            assert k.flops is None
            assert k.memory_access is None
            _check_tree(k.kernels, k.path, names)
            continue
        assert k.kernels == []
        assert k.class_name is k.path is None
        assert k.flops is not None
        assert k.memory_access is not None
        for text in (k.flops, k.memory_access.read, k.memory_access.write, str(k.repeat)):
            formula = parse(text)
            assert references(formula) == ()


def small(*kernels: object, parameters: tuple[str, ...] = ("batch_size",), name: str = "a.Small", **more: object):
    return analysis(name, list(kernels), {p: f"init.{p}" for p in parameters}, **more)  # type: ignore[arg-type]


def inner(formula: str = "{n}", *, parameters: tuple[str, ...] = ("n",), **more: Any) -> ModuleAnalysis:
    return small(kernel(9, formula, formula, "0", category="matmul"), parameters=parameters, name="a.Inner", **more)


def rows(kernels: list[ModelKernel]) -> list[tuple[Any, ...]]:
    """Composite: path, repeat, rows below. Basic: line, repeat, the three formulas."""
    return [
        (k.path, k.repeat, rows(k.kernels))
        if k.memory_access is None
        else (k.line, k.repeat, k.flops, k.memory_access.read, k.memory_access.write)
        for k in kernels
    ]


def summed(kernels: list[ModelKernel], values: dict[str, int]) -> list[int]:
    """FLOPs, matmul FLOPs, read and write by adding up the tree, apart from the totals' own formulas."""
    found = [0, 0, 0, 0]
    for k in kernels:
        repeat = evaluate(str(k.repeat), values)
        if repeat == 0:
            continue
        if k.memory_access is None:
            costs = summed(k.kernels, values)
        else:
            flops = evaluate(k.flops or "", values)
            bytes_ = [evaluate(text, values) for text in (k.memory_access.read, k.memory_access.write)]
            costs = [flops, flops if k.category in MATMUL_CATEGORIES else 0, *bytes_]
        found = [a + repeat * b for a, b in zip(found, costs, strict=True)]
    return found


def totals(model: ModelAnalysis, values: dict[str, int]) -> list[int]:
    return [evaluate(getattr(model.totals, name), values) for name in ("flops", "matmul_flops", "read", "write")]


def agrees(root: ModuleAnalysis, *others: ModuleAnalysis, **given: int) -> list[int]:
    """The totals at a point: of the formulas, of the tree, and of the walk with numbers, which are all the same."""
    model = linked(root, *others)
    numbers = evaluate_analysis(root, known(*others), given)
    expected = [getattr(numbers.totals, name) for name in ("flops", "matmul_flops", "read", "write")]
    assert totals(model, numbers.values) == expected
    assert summed(model.kernels, numbers.values) == expected
    return expected


def refused(root: ModuleAnalysis, *others: ModuleAnalysis, kind: type[LmpError] = InvalidAnalysis) -> str:
    with pytest.raises(kind) as caught:
        link(root, known(*others))
    message = str(caught.value)
    assert len(message.splitlines()) <= 2
    return message


# --- formulas --------------------------------------------------------------------------------------------------------


def test_a_class_without_references() -> None:
    model = linked(linear())
    product = "{batch_size} * {seq_len} * {in_features} * {out_features}"
    read = "{in_features} * {out_features} * {w_bytes} + {batch_size} * {seq_len} * {in_features} * {a_bytes}"
    write = "{batch_size} * {seq_len} * {out_features} * {a_bytes}"
    assert rows(model.kernels) == [(134, 1, f"2 * {product}", read, write)]
    assert model.totals.flops == model.totals.matmul_flops == f"2 * {product}"
    assert (model.totals.read, model.totals.write) == (read, write)
    assert model.totals.parameters_count == model.parameters_count == "{in_features} * {out_features}"


def test_references_are_replaced_in_the_roots_variables() -> None:
    model = linked(mlp(), linear())
    gate, activation, up, product, down = model.kernels
    assert [k.path for k in (gate, up, down)] == ["gate_proj", "up_proj", "down_proj"]
    assert {k.class_name for k in (gate, up, down)} == {LINEAR}
    # A Linear from hidden to intermediate: 2 FLOPs a multiply-add, both matrices read, one written.
    assert rows(gate.kernels) == [
        (
            134,
            1,
            "2 * {batch_size} * {seq_len} * {hidden_size} * {intermediate_size}",
            "{hidden_size} * {intermediate_size} * {w_bytes} + {batch_size} * {seq_len} * {hidden_size} * {a_bytes}",
            "{batch_size} * {seq_len} * {intermediate_size} * {a_bytes}",
        )
    ]
    assert rows(down.kernels)[0][4] == "{batch_size} * {seq_len} * {hidden_size} * {a_bytes}"
    assert (activation.operation, activation.kernel_type) == ("kernel of line 175", "basic")
    # 3 Linears of 2 * hidden * intermediate a token; 4 FLOPs of the activation and 1 of the product an element
    assert model.totals.matmul_flops == "6 * {batch_size} * {seq_len} * {hidden_size} * {intermediate_size}"
    assert model.totals.flops == "{batch_size} * {seq_len} * {intermediate_size} * (6 * {hidden_size} + 5)"
    assert model.totals.parameters_count == "3 * {hidden_size} * {intermediate_size}"
    assert product.flops == "{batch_size} * {seq_len} * {intermediate_size}"


def test_the_totals_of_an_mlp_at_a_point() -> None:
    # As in test_evaluation.py: 3 * 16,384 + 4,096 + 1,024 FLOPs, 10,752 bytes read and 8,704 written.
    assert agrees(mlp(), linear(), **POINT) == [54_272, 49_152, 10_752, 8_704]


def test_paths_count_from_the_root_and_repeats_stay_where_they_are() -> None:
    model = linked(layer(), mlp(), linear())
    (_, called) = model.kernels
    assert (called.path, called.repeat, called.class_name) == ("mlp", 3, MLP)
    assert [k.path for k in called.kernels] == ["mlp.gate_proj", None, "mlp.up_proj", None, "mlp.down_proj"]
    # 2*16*8 for the add and 3 MLPs of 54,272; matmuls 3 * 49,152
    assert agrees(layer(), mlp(), linear(), **POINT)[:2] == [256 + 162_816, 147_456]


def test_a_repeat_may_be_a_formula() -> None:
    root = small(
        call(1, "${{a.Inner}}(n=7)", repeat="{layers} - {dense} - 1 + 1", path="layers.0"),
        parameters=("layers", "dense"),
    )
    model = linked(root, inner())
    assert rows(model.kernels) == [("layers.0", "{layers} - {dense}", [(9, 1, "7", "7", "0")])]
    assert model.totals.flops == "7 * ({layers} - {dense})"
    assert model.assumptions == ["{layers} >= {dense}"]  # else it would run a negative number of times
    assert agrees(root, inner(), layers=5, dense=2) == [21, 21, 21, 0]


def test_what_runs_0_times_is_not_there() -> None:
    gone = [
        call(1, "${{not.There}}()", repeat=0),
        call(2, "0 * ${{not.There}}()"),
        kernel(3, "1", "1", "1", repeat="3 - 3"),
    ]
    root = small(*gone, kernel(4, "{batch_size}", "0", "0"))
    model = linked(root)
    assert [k.line for k in model.kernels] == [4]
    assert set(model.parts) == {"a.Small"}


def test_a_repeat_of_0_hides_what_has_no_value_there() -> None:
    # The experts' kernel divides by their number; without experts it does not run.
    experts = "where({experts} > 0, {layers}, 0)"
    root = small(call(1, "${{a.Inner}}(n={experts})", repeat=experts), parameters=("experts", "layers"))
    root = root.model_copy(update={"values": {"experts": 0}})  # off in the config itself, so it can be set to 0
    target = inner("64 // {n}")
    assert agrees(root, target, experts=0, layers=5) == [0, 0, 0, 0]
    assert agrees(root, target, experts=16, layers=5) == [20, 20, 20, 0]


def test_variables_are_lexical() -> None:
    root = small(call(1, "${{a.Inner}}(seq_len={batch_size})"), parameters=("batch_size", "seq_len"))
    assert linked(root, inner("{seq_len}", parameters=("seq_len",))).totals.flops == "{batch_size}"
    swapped = small(call(1, "${{a.Inner}}(a={b}, b={a})"), parameters=("a", "b"))
    assert linked(swapped, inner("{a} * {a} + {b}", parameters=("a", "b"))).totals.flops == "{b} ** 2 + {a}"


def test_element_sizes_pass_through_and_can_be_bound() -> None:
    root = small(call(1, "${{a.Inner}}(n=1, w_bytes=1)"), call(2, "${{a.Inner}}(n=1)"))
    deep = small(call(9, "${{a.Deep}}()"), parameters=("n",), name="a.Inner")
    target = small(kernel(9, "0", "{w_bytes}", "{a_bytes}"), parameters=(), name="a.Deep")
    model = linked(root, deep, target)
    assert (model.totals.read, model.totals.write) == ("{w_bytes} + 1", "2 * {a_bytes}")


def test_a_factor_before_a_reference_is_a_repeat() -> None:
    root = small(call(1, "2 * {batch_size} * ${{a.Inner}}(n=7)", path="inner", repeat=3))
    model = linked(root, inner())
    assert rows(model.kernels) == [("inner", "6 * {batch_size}", [(9, 1, "7", "7", "0")])]
    assert agrees(root, inner(), batch_size=2) == [84, 84, 84, 0]  # 6 * 2 * 7


def test_a_sum_of_references_is_several_kernels_and_what_remains_another() -> None:
    both = "${{a.Inner}}(n=7) + 2 * ${{a.Other}}(n={batch_size})"
    root = small(kernel(1, f"{both} + 3", both, both, kernel_type="composite", category="module"))
    other = inner("{n} * {n}").model_copy(update={"class_name": "a.Other"})
    model = linked(root, inner(), other)
    assert rows(model.kernels) == [
        ("Inner", 1, [(9, 1, "7", "7", "0")]),
        ("Other", 2, [(9, 1, "{batch_size} ** 2", "{batch_size} ** 2", "0")]),
        (1, 1, "3", "0", "0"),
    ]
    # 7 + 2 * 25 + 3; the 3 are of no matmul
    assert agrees(root, inner(), other, batch_size=5) == [60, 57, 57, 0]


def test_a_choice_between_references_is_two_kernels() -> None:
    root = small(call(1, "where({batch_size} > 1, ${{a.Inner}}(n=7), ${{a.Inner}}(n=8))"))
    model = linked(root, inner())
    assert [(k.path, k.repeat) for k in model.kernels] == [
        ("Inner", "where({batch_size} > 1, 1, 0)"),
        ("Inner", "where({batch_size} > 1, 0, 1)"),
    ]
    assert agrees(root, inner(), batch_size=1)[0] == 8
    assert agrees(root, inner(), batch_size=2)[0] == 7


@pytest.mark.parametrize(
    ("flops", "kernels"),
    [
        # 7 in all, of which the reference adds 4 to the 3 that are there without it
        ("max(${{a.Inner}}(n=7), 3)", [("matmul", "4", "100"), ("module", "3", "0")]),
        ("${{a.Inner}}(n=8) / 2", [("matmul", "4", "100")]),
        ("${{a.Inner}}(n=7)", [("matmul", "7", "100")]),  # but read does not refer to it
        ("3 * ${{a.Half}}(n=7) + 1", [("matmul", "21", "100"), ("module", "22", "0")]),
        ("5 - ${{a.Half}}(n=1)", [("matmul", "-1", "100"), ("module", "4", "0")]),
    ],
)
def test_what_cannot_be_broken_down_is_matmul_and_rest(flops: str, kernels: list[tuple[str, str, str]]) -> None:
    half = [kernel(9, "{n}", "{n}", "0", category="matmul"), kernel(9, "{n}", "0", "0")]
    others = (inner(), small(*half, parameters=("n",), name="a.Half"))
    root = small(kernel(1, flops, "100", "0", kernel_type="composite", category="module"))
    model = linked(root, *others)
    assert [(k.category, k.flops, k.memory_access.read) for k in model.kernels if k.memory_access] == kernels
    agrees(root, *others, batch_size=2)


def test_own_work_of_a_matmul_kernel_is_matmul() -> None:
    for flops, expected in (("${{a.Inner}}(n=7) + 3", 10), ("max(${{a.Inner}}(n=7), 3)", 7)):
        root = small(kernel(1, flops, "${{a.Inner}}(n=7)", "${{a.Inner}}(n=7)", category="matmul"))
        assert agrees(root, inner(), batch_size=2)[:2] == [expected, expected]


def test_the_bytes_of_half_a_module() -> None:
    whole = "${{a.Inner}}(n={batch_size})"
    root = small(kernel(1, f"{whole} // 2", f"{whole} + 1", whole, kernel_type="composite", category="module"))
    # 5 // 2 = 2 FLOPs; 5 + 1 bytes read
    assert agrees(root, inner(), batch_size=5) == [2, 2, 6, 0]


def test_references_that_say_the_same_are_the_same() -> None:
    root = small(
        kernel(1, "${{a.Two}}(n=1, m=1 + 1)", "${{a.Two}}(m=2, n=1)", "${a.Two}(1, 2)", category="module"),
        kernel(2, "${{a.Two}}(n=1, m=1 + 1)", "${{a.Two}}(m=2, n=1)", "${{a.Two}}(n=1, m=4 / 2)", category="module"),
    )
    target = inner("{n} + {m}", parameters=("n", "m")).model_copy(update={"class_name": "a.Two"})
    first, second = linked(root, target).kernels
    assert first.kernel_type == "basic"  # positional values are not compared with named ones
    assert (second.kernel_type, second.repeat) == ("composite", 1)
    assert agrees(root, target, batch_size=1) == [6, 6, 6, 0]


def test_alike_siblings_stand_apart() -> None:
    model = linked(small(call(1, "${{a.Inner}}(n=7)", path="x"), call(2, "${{a.Inner}}(n=7)", path="y")), inner())
    assert [k.path for k in model.kernels] == ["x", "y"]


def test_integers_are_exact_beyond_64_bits() -> None:
    huge = 10**20
    root = small(call(1, f"${{{{a.Inner}}}}(n={huge})", repeat=huge))
    assert agrees(root, inner(), batch_size=1)[0] == 10**40


# --- older tools -----------------------------------------------------------------------------------------------------


def test_what_an_older_tool_wrote() -> None:
    bias = small(
        kernel(5, "2 * rows * in_features * out_features if {config.bias} == 0 else 0", "rows", "0", category="matmul"),
        parameters=("rows", "in_features", "out_features", "bias"),
        name="old.Linear",
        engine="older",
    )
    reference = "${old.Linear}(batch_size * seq_len, {config.hidden_size}, {self.config.intermediate_size}, 0)"
    root = small(
        call(3, reference, path="up"),
        kernel(4, "2 * {config.hidden_size} if seq_len > 1 else {hidden_size}", "0", "0"),
        parameters=("batch_size", "seq_len", "hidden_size", "intermediate_size"),
        engine="older",
    )
    model = linked(root, bias)
    product = "{batch_size} * {seq_len} * {hidden_size} * {intermediate_size}"
    assert rows(model.kernels) == [
        ("up", 1, [(5, 1, f"2 * {product}", "{batch_size} * {seq_len}", "0")]),
        (4, 1, "where({seq_len} > 1, 2 * {hidden_size}, {hidden_size})", "0", "0"),
    ]
    agrees(root, bias, batch_size=2, seq_len=1, hidden_size=4, intermediate_size=3)


def test_an_alias_of_a_class_is_that_class() -> None:
    root = small(call(1, "${torch.nn.Linear}(1, 2, 3, 4)", path="a"), call(1, f"${{{LINEAR}}}(1, 2, 3, 4)", path="b"))
    model = link(root, {"torch.nn.Linear": linear(), LINEAR: linear()}.__getitem__)
    assert [k.class_name for k in model.kernels] == [LINEAR, LINEAR]
    assert set(model.parts) == {"a.Small", LINEAR}


# --- what is said about the whole ------------------------------------------------------------------------------------


def test_assumptions_are_the_roots_and_stand_once() -> None:
    target = inner(assumptions=["{n} % 2 == 0", "{n} > 1", "{a_bytes} != 4"])
    root = small(
        call(1, "${{a.Inner}}(n={batch_size})"),
        call(2, "${{a.Inner}}(n=4)"),
        assumptions=["{batch_size} > 1"],
    )
    assert linked(root, target).assumptions == ["{batch_size} > 1", "{batch_size} % 2 == 0", "{a_bytes} != 4"]


def test_a_condition_that_never_holds_is_seen() -> None:
    target = inner(assumptions=["{n} <= 1"])
    assert linked(small(call(1, "${{a.Inner}}(n=3)")), target).assumptions == ["3 <= 1"]


def test_a_condition_of_what_may_not_run() -> None:
    target = inner(assumptions=["{n} > 1", "{n} < 0 or {n} > 2"])
    root = small(call(1, "${{a.Inner}}(n={batch_size})", repeat="{layers}"), parameters=("batch_size", "layers"))
    assert linked(root, target).assumptions == [
        "{layers} == 0 or {batch_size} > 1",
        "{layers} == 0 or {batch_size} < 0 or {batch_size} > 2",
    ]
    plain = root.model_copy(update={"assumptions": ["{batch_size} > 1"]})
    assert linked(plain, target).assumptions[0] == "{batch_size} > 1"
    assert len(linked(plain, target).assumptions) == 2


def test_what_is_bound_has_to_be_an_integer() -> None:
    root = small(
        call(1, "${{a.Inner}}(n={batch_size} / 2)"),
        call(2, "${{a.Inner}}(n={heads} / {batch_size})"),
        parameters=("batch_size", "heads"),
    )
    assert linked(root, inner()).assumptions == ["{batch_size} % 2 == 0", "{heads} % {batch_size} == 0"]


def test_the_worst_verification_counts() -> None:
    model = linked(layer(), mlp(), linear())
    assert (model.verification.status, model.verification.points, model.verification.reason) == ("verified", 5, None)
    assert model.verification.checks == ["matmul_flops equal FlopCounterMode"]
    finding = Finding(line=1, quantity="read", point="seq_len=1", claimed="1", counted="2")
    failed = linear(verification=Verification(status="failed", findings=[finding]))
    unverified = mlp(verification=Verification(status="unverified", reason="by hand"))
    model = linked(layer(), unverified, failed)
    assert model.verification.status == "failed"
    assert model.verification.reason == f"not every part is verified: {MLP} (unverified), {LINEAR} (failed)"
    assert linked(layer(), unverified, linear()).verification.status == "unverified"


def test_parts_are_every_class_with_the_hash_of_its_file() -> None:
    uncounted = linear(uncounted=["aten::x", "aten::y"])
    model = linked(layer(), mlp(uncounted=["aten::x"]), uncounted)
    assert list(model.parts) == [LAYER, MLP, LINEAR]
    assert model.parts[LINEAR].sha256 == hashlib.sha256(to_text(uncounted).encode()).hexdigest()
    assert model.parts[LINEAR].uncounted == ["aten::x", "aten::y"]
    assert model.uncounted == ["aten::x", "aten::y"]


def test_what_is_carried_over_from_the_root() -> None:
    root = mlp(
        config=ConfigOrigin(name="big", origin="big.json"),
        attn_implementation="eager",
        dtype="float32",
        fingerprint={"derived_by": "1", "a.py": "2"},
        interface={"x": ["{batch_size}", "{seq_len}", "{hidden_size}"]},
    )
    model = linked(root, linear(fingerprint={"derived_by": "1", "b.py": "3"}))
    for name in ("class_name", "source", "config", "attn_implementation", "dtype", "parameters", "values", "interface"):
        assert getattr(model, name) == getattr(root, name)
    assert model.fingerprint == {"derived_by": "1", "a.py": "2", "b.py": "3"}
    assert model.compulsory is not None
    assert model.compulsory.write == "{batch_size} * {seq_len} * {hidden_size} * {a_bytes}"


def test_parameters_are_counted_through_references() -> None:
    root = small(parameters_count="3 + ${{a.Inner}}(n=4) + ${{a.Inner}}(n={batch_size})")
    target = inner(parameters_count="10 * {n}")
    assert linked(root, target).parameters_count == "10 * {batch_size} + 43"
    assert linked(root, target.model_copy(update={"parameters_count": None})).parameters_count is None
    assert linked(small()).totals.parameters_count is None


def test_numbers_that_stand_for_config_values() -> None:
    moe = small(parameters=(), name="a.Moe", pinned={"num_experts": 8, "top_k": 2}).model_copy(
        update={"parameters": {"n": "config.n"}}
    )
    plain = inner(pinned={"stride": 2})
    root = small(call(1, "${{a.Moe}}(n=1)"), call(2, "${{a.Inner}}(n=1)"), parameters=("top_k",), pinned={"x": 1})
    model = linked(root, moe, plain)
    assert model.pinned == {"x": 1, "num_experts": 8, "Inner.stride": 2}
    assert model.assumptions == ["{top_k} == 2"]


# --- analyses that do not fit together -------------------------------------------------------------------------------

REDO = "run `lmp analyze-module a.Small --fresh` to make the analysis again"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${{a.Inner}}()", "a.Small line 12: the reference to Inner does not bind n"),
        (
            "${{a.Inner}}(n=1, m=1)",
            "a.Small line 12: the reference to Inner binds m, which it does not have (it has n)",
        ),
        ("${a.Inner}(1, 2)", "a.Small line 12: the reference to Inner gives 2 values, it takes 1 (n)"),
        ("${a.Inner}(1, n=2)", "a.Small line 12: the reference to Inner binds n twice"),
        (
            "${{a.Inner}}(n={cache_len})",
            "a.Small line 12: cache_len has no value: the names are a_bytes, batch_size, kv_bytes, w_bytes",
        ),
        ("${{a.Inner}}(n={batchsize})", "a.Small line 12: batchsize has no value: did you mean batch_size?"),
        (
            "${{a.Inner}}(n=${{a.Inner}}(n=1))",
            "a.Small line 12: the reference to Inner binds n to a reference, which is not a number",
        ),
        ("max(${{a.Inner}}(), 1)", "a.Small line 12: the reference to Inner does not bind n"),
        ("2 * (${{a.Inner}}(n=1)", "a.Small line 12: a formula cannot be read: expected ')'"),
    ],
)
def test_references_that_do_not_fit(reference: str, message: str) -> None:
    found = refused(small(call(12, reference)), inner())
    assert found.startswith(message)
    if "cannot be read" not in message:
        assert found.splitlines()[1] == REDO


def test_an_error_deep_in_the_tree_names_the_way() -> None:
    wrong = mlp(kernels=[call(175, f"${{{LINEAR}}}(1)", path="gate_proj")])
    assert refused(layer(), wrong, linear()).startswith(
        f"{LAYER} > mlp line 175: the reference to Linear does not bind seq_len, in_features, out_features\n"
        f"run `lmp analyze-module {MLP} --fresh`"
    )
    unbound = linear(kernels=[kernel(134, "{rows}", "0", "0")])
    assert refused(layer(), mlp(), unbound).startswith(
        f"{LAYER} > mlp > gate_proj line 134: rows has no value: the names are"
    )


def test_an_analysis_of_another_engine_is_corrected_by_who_wrote_it() -> None:
    assert refused(small(call(1, "${{a.Inner}}()"), engine="by hand"), inner()) == (
        "a.Small line 1: the reference to Inner does not bind n\n"
        "correct the analysis of a.Small, or run `lmp analyze-module a.Small --fresh` to replace it"
    )


def test_references_in_a_circle() -> None:
    root = small(call(1, "${{a.Inner}}()", path="inner"))
    back = small(call(2, "${{a.Small}}(batch_size=1)", path="back"), parameters=(), name="a.Inner")
    assert refused(root, back, root) == (
        f"a.Small > inner > back: the references run in a circle: Small > Inner > Small\n{REDO}"
    )
    itself = small(call(1, "${{a.Small}}(batch_size={batch_size} - 1)", path="again", repeat="{batch_size}"))
    assert "a.Small > again: the references run in a circle: Small > Small" in refused(itself, itself)


def test_a_class_that_is_not_found_keeps_its_search() -> None:
    def lookup(class_path: str) -> ModuleAnalysis:
        raise NotFound(f"no class {class_path}\ncheck it", [Search("class", "here", "nothing")])

    with pytest.raises(NotFound) as caught:
        link(mlp(), lookup)
    assert str(caught.value) == f"{MLP} > gate_proj: no class {LINEAR}\ncheck it"
    assert caught.value.searched == [Search("class", "here", "nothing")]


def test_a_class_without_an_analysis() -> None:
    assert refused(layer(), mlp()) == (
        f"{LAYER} > mlp > gate_proj: there is no analysis of {LINEAR}\nrun `lmp analyze-module {LINEAR}`"
    )


def test_a_file_that_is_not_valid_is_said_with_its_place() -> None:
    def lookup(class_path: str) -> ModuleAnalysis:
        raise InvalidAnalysis("x.json is not valid JSON: no\nrun it again")

    with pytest.raises(InvalidAnalysis) as caught:
        link(mlp(), lookup)
    assert str(caught.value) == f"{MLP} > gate_proj: x.json is not valid JSON: no\nrun it again"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"repeat": -1}, "a.Small line 3: a kernel is repeated -1 times"),
        ({"repeat": "1 - 3"}, "a.Small line 3: a kernel is repeated -2 times"),
        ({"repeat": "1 / 2"}, "a.Small line 3: a kernel is repeated 0.5 times"),
        ({"repeat": "{layers}"}, "a.Small line 3: layers has no value: "),
        ({"repeat": "${a.Inner}(1)"}, "a.Small line 3: a reference to Inner stands in a repeat, a condition or"),
    ],
)
def test_repeats_that_are_none(more: dict[str, Any], message: str) -> None:
    assert refused(small(kernel(3, "1", "0", "0", **more)), inner()).startswith(message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"assumptions": ["only on Sundays"]}, "a.Small: a formula cannot be read: "),
        ({"assumptions": ["{x} > 1"]}, "a.Small: x has no value: the names are"),
        ({"assumptions": ["${a.Inner}(1) > 1"]}, "a.Small: a reference to Inner stands in a repeat, a condition or"),
        ({"compulsory": MemoryAccess(read="${a.Inner}(1)", write="0")}, "a.Small: a reference to Inner stands in"),
        ({"compulsory": MemoryAccess(read="{x}", write="0")}, "a.Small: x has no value"),
        ({"parameters_count": "{x}"}, "a.Small: x has no value"),
        ({"parameters_count": "${{a.Inner}}()"}, "a.Small: the reference to Inner does not bind n"),
    ],
)
def test_other_formulas_that_do_not_fit(more: dict[str, Any], message: str) -> None:
    assert refused(small(**more), inner()).startswith(message)


# --- sizes -----------------------------------------------------------------------------------------------------------


def doubling(levels: int) -> list[ModuleAnalysis]:
    """Each class calls the next one twice, so a tree of 2 ** levels modules."""
    found = [
        small(
            call(1, f"${{a.C{i + 1}}}(n={{n}})", path="left"),
            call(1, f"${{a.C{i + 1}}}(n={{n}})", path="right"),
            parameters=("n",),
            name=f"a.C{i}",
        )
        for i in range(levels)
    ]
    return [*found, inner().model_copy(update={"class_name": f"a.C{levels}"})]


def test_equal_calls_are_linked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []
    real = module._Linker._link
    monkeypatch.setattr(
        module._Linker, "_link", lambda self, a, *rest: entered.append(a.class_name) or real(self, a, *rest)
    )
    root, *others = doubling(6)
    model = linked(root, *others)
    assert entered == [f"a.C{i}" for i in range(7)]
    assert model.totals.flops == "64 * {n}"  # 2 ** 6 leaves


def test_a_model_too_large_to_write_is_refused_at_once() -> None:
    root, *others = doubling(30)
    message = refused(root, *others)
    # 2 + 4 + ... + 2 ** 30 calls and 2 ** 30 leaves: 3 * 2 ** 30 - 2
    assert message.startswith("a.C0: the model has 3,221,225,470 kernels, more than 100,000\n")


def chain(levels: int, formula: str = "{n}") -> list[ModuleAnalysis]:
    found = [
        small(call(1, f"${{a.C{i + 1}}}(n={formula})", path="next"), parameters=("n",), name=f"a.C{i}")
        for i in range(levels)
    ]
    return [*found, inner().model_copy(update={"class_name": f"a.C{levels}"})]


def test_modules_inside_one_another() -> None:
    root, *others = chain(MAX_LEVELS - 1)
    assert linked(root, *others).totals.flops == "{n}"
    root, *others = chain(MAX_LEVELS)
    assert f"modules are nested more than {MAX_LEVELS} levels deep" in refused(root, *others)


@pytest.mark.parametrize(
    "formula",
    [
        "(({n} + 1) // 2 * 3 + 1) // 2",  # four levels deeper with each class
        "({n} // 2 + {n} // 3) // 5",  # twice as long with each class
        "where({n} > 1, {n} * {n}, {n} // 7)",  # four times
    ],
)
def test_formulas_that_grow_too_large_are_refused(formula: str) -> None:
    root, *others = chain(30, formula)
    assert "with references replaced, a formula has more than 100 levels or 20,000" in refused(root, *others)


# --- against the walk with numbers -----------------------------------------------------------------------------------


def test_random_trees_cost_what_the_walk_with_numbers_says() -> None:
    from hypothesis import assume, given, settings
    from hypothesis import strategies as st

    names = ("a", "b")

    def formulas(*leaves: str) -> st.SearchStrategy[str]:
        plain = st.sampled_from(["{a}", "{b}", "1", "3", "{a_bytes}", *leaves])
        two = st.tuples(plain, plain)
        forms = ["{} + {}", "{} * {}", "2 * {} + {}", "({} + {}) // 2", "{} // {}", "max({}, {})", "{} % ({} + 1)"]
        forms += ["where({{a}} > 1, {}, {})", "where({{b}} > 0, {} // {{b}}, {})", "({} - {}) * ({{a}} - 1)"]
        return st.one_of(plain, st.builds(lambda form, pair: form.format(*pair), st.sampled_from(forms), two))

    @st.composite
    def trees(draw: Any) -> list[ModuleAnalysis]:
        count = draw(st.integers(1, 4))
        found = []
        for index in range(count):
            kernels = []
            for line in range(draw(st.integers(1, 3))):
                below = [f"${{a.C{i}}}(({draw(formulas())}), b={draw(formulas())})" for i in range(index + 1, count)]
                one = draw(formulas(*below))
                costs = [one] * 3 if draw(st.booleans()) else [one, draw(formulas(*below)), draw(formulas())]
                more = {
                    "repeat": draw(st.sampled_from([1, 1, 2, 0, "{a}", "where({b} > 0, {a}, 0)", "{b} - 1"])),
                    "category": draw(st.sampled_from(["matmul", "elementwise"])),
                    "path": draw(st.sampled_from([None, "child"])),
                }
                kernels.append(kernel(line + 1, *costs, **more))
            conditions = draw(st.lists(st.sampled_from(["{a} > 0", "{b} != 2", "{a} == 1 or {b} == 1"]), max_size=2))
            found.append(small(*kernels, parameters=names, name=f"a.C{index}", assumptions=conditions))
        return found

    numbers = st.integers(0, 4)
    compared = 0

    @settings(max_examples=100)
    @given(trees(), st.lists(st.tuples(numbers, numbers), min_size=3, max_size=3))
    def check(tree: list[ModuleAnalysis], points: list[tuple[int, int]]) -> None:
        nonlocal compared
        root, *others = tree
        try:
            model = link(root, known(*others))
        except InvalidAnalysis:  # repeated -1 times
            assume(False)
        for a, b in points:
            try:
                found = evaluate_analysis(root, known(*others), {"a": a, "b": b})
            except LmpError:
                continue  # divides by zero, or repeats a negative number of times
            compared += 1
            expected = [getattr(found.totals, name) for name in ("flops", "matmul_flops", "read", "write")]
            assert totals(model, found.values) == expected
            assert summed(model.kernels, found.values) == expected
            holds = all(evaluate_condition(condition, found.values) for condition in model.assumptions)
            assert holds == (not found.violated_assumptions)

    check()
    assert compared > 50
