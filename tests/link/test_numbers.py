"""Numbers of a model that is worked out by hand in tests/store/small_models.py."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import small_models as small
from small_models import POINT, basic, module

from lmp.errors import EvaluationError, InvalidAnalysis
from lmp.formula import Number
from lmp.link.numbers import CostNumbers, ModelNumbers, ModuleNumbers, intensity
from lmp.link.values import values_for
from lmp.records import Part

DECODE = {"batch_size": 2, "seq_len": 1, "cache_len": 10}


def numbers(**more: Any) -> ModelNumbers:
    return ModelNumbers(small.model(**more))


def at(found: ModelNumbers, **given: Number) -> dict[str, Number]:
    return values_for(found.model, {**POINT, **given})


def with_kernels(*kernels: Any, **more: Any) -> ModelNumbers:
    """The small model with these kernels; its totals are not theirs."""
    return numbers(kernels=list(kernels), **more)


def test_totals() -> None:
    found = numbers()
    totals = found.totals(at(found))
    assert (totals.flops, totals.matmul_flops) == (small.FLOPS, small.MATMUL)
    assert (totals.read, totals.write) == (small.READ, small.WRITE)
    assert (totals.compulsory, totals.parameters_count) == (small.COMPULSORY, small.PARAMETERS)


def test_totals_of_one_token_on_a_cache() -> None:
    found = numbers()
    totals = found.totals(values_for(found.model, DECODE))
    # 3 * (16 + 256) + 2*10; 3 * 256 + 20; 48 + 3 * (64 + 160) + 2*10*8*2; 32 + 3 * (32 + 32)
    assert (totals.flops, totals.matmul_flops, totals.read, totals.write) == (836, 788, 1_040, 224)


def test_the_tree() -> None:
    found = numbers()
    tree = found.tree(at(found))
    assert tree.total == CostNumbers(small.FLOPS, small.MATMUL, small.READ, small.WRITE)
    lookup, layers, attention, view = tree.children
    assert isinstance(layers, ModuleNumbers)
    assert (layers.path, layers.class_name, layers.repeat, layers.runs) == ("layers.0", small.LAYER, 3, 3)
    assert layers.total == CostNumbers(13_056, 12_288, 4_992, 3_072)  # 3 * (1,024 + 640); 3 * (512 + 512)
    add, proj = layers.children
    assert (add.once, add.total) == (CostNumbers(256, 0, 1_024, 512), CostNumbers(768, 0, 3_072, 1_536))  # type: ignore[union-attr]
    assert (proj.repeat, proj.runs) == (1, 3)
    assert [kernel.kernel.line for kernel in tree.kernels()] == [10, 21, 31, 12, 13]
    assert lookup.total == CostNumbers(0, 0, 768, 512)
    assert attention.total == view.total == CostNumbers()


def test_the_parts_of_every_module_add_up_to_it() -> None:
    found = numbers()

    def check(part: ModuleNumbers) -> None:
        total = CostNumbers()
        for child in part.children:
            total = total.plus(child.total)
            if isinstance(child, ModuleNumbers):
                check(child)
        assert total == part.total

    for given in (POINT, DECODE, {**POINT, "hidden_size": 10**30}):
        tree = found.tree(values_for(found.model, given))
        check(tree)
        totals = found.totals(values_for(found.model, given))
        assert tree.total == CostNumbers(totals.flops, totals.matmul_flops, totals.read, totals.write)


def test_what_does_not_run_is_not_in_the_tree() -> None:
    inner = module(2, "part", "a.Part", [basic(3, "1 // ({batch_size} - 2)", "0", "0")], repeat="{batch_size} - 2")
    found = with_kernels(basic(1, "1", "0", "0"), inner)
    tree = found.tree(at(found))
    assert [kernel.kernel.line for kernel in tree.kernels()] == [1]
    assert found.tree(at(found, batch_size=4)).total.flops == 1  # 2 * (1 // 2)
    assert found.tree(at(found, batch_size=3)).total.flops == 2


def test_repeats_multiply_down_the_tree() -> None:
    inner = module(2, "a.b", "a.B", [basic(3, "1", "2", "3", repeat=5)], repeat=7)
    found = with_kernels(module(1, "a", "a.A", [inner], repeat="{batch_size}"))
    (kernel,) = found.tree(at(found)).kernels()
    assert (kernel.repeat, kernel.runs) == (5, 70)  # 2 * 7 * 5
    assert (kernel.once, kernel.total) == (CostNumbers(1, 0, 2, 3), CostNumbers(70, 0, 140, 210))


def test_the_evaluation_is_flat() -> None:
    found = numbers(
        parts={
            small.ROOT: Part(status="unverified", sha256="0" * 64),
            small.LAYER: Part(status="failed", sha256="0" * 64, uncounted=["aten::x"]),
        },
        assumptions=["{seq_len} <= 8", "{batch_size} > 1"],
    )
    evaluation = found.evaluation(at(found))
    rows = [(k.path, k.class_name, k.line, k.repeat, k.flops) for k in evaluation.kernels]
    assert rows == [
        ("", small.ROOT, 10, 1, 0),
        ("layers.0", small.LAYER, 21, 3, 256),
        ("layers.0.proj", small.LINEAR, 31, 3, 4_096),
        ("", small.ROOT, 12, 1, 0),
        ("", small.ROOT, 13, 1, 0),
    ]
    assert sum(k.repeat * k.read for k in evaluation.kernels) == evaluation.totals.read
    assert evaluation.verification == "failed"
    assert evaluation.not_verified == {small.ROOT: "unverified", small.LAYER: "failed"}
    assert evaluation.uncounted == {small.LAYER: ["aten::x"]}
    assert [(v.assumption, v.values) for v in evaluation.violated_assumptions] == [("{seq_len} <= 8", {"seq_len": 16})]


def test_a_kernel_without_a_value_is_named() -> None:
    found = with_kernels(
        module(2, "part", "a.Part", [basic(3, "1 // ({batch_size} - 2)", "0", "0")]),
        totals=small.model().totals.model_copy(update={"flops": "1 // ({batch_size} - 2)"}),
    )
    for compute in (found.totals, found.tree):
        with pytest.raises(EvaluationError, match=r"^part \(Part\) line 3: division by zero in "):
            compute(at(found))


def test_a_total_without_a_value() -> None:
    found = numbers(totals=small.model().totals.model_copy(update={"read": "{batch_size} / 3"}))
    with pytest.raises(EvaluationError, match=r"^a\.models\.Root: \{batch_size\} / 3 is 2/3, not an integer"):
        found.totals(at(found))


def test_a_fraction_where_an_assumption_is_broken() -> None:
    """The user can change the sizes, and not the formula."""
    found = with_kernels(
        basic(3, "{batch_size} / 2", "0", "0"),
        totals=small.model().totals.model_copy(update={"flops": "{batch_size} / 2"}),
        assumptions=["{batch_size} // 2 * 2 == {batch_size}", "{batch_size} % 2 == 0"],
    )
    assert found.totals(at(found, batch_size=6)).flops == 3
    expected = r"has no figures at batch_size=3: its formulas assume \{batch_size\} % 2 == 0\ngive sizes"
    for compute in (found.totals, found.tree):
        with pytest.raises(EvaluationError, match=expected):
            compute(at(found, batch_size=3))


def test_what_runs_less_than_no_times() -> None:
    found = with_kernels(basic(3, "1", "0", "0", repeat="{batch_size} - 3"))
    for compute in (found.totals, found.tree):
        with pytest.raises(InvalidAnalysis, match=r"^a\.models\.Root line 3: a kernel is repeated -1 times\nrun `lmp "):
            compute(at(found))


def test_formulas_that_are_none() -> None:
    for kernel in (basic(3, "2 * (", "0", "0"), basic(3, "1", "0", "0", repeat="{batch_size")):
        with pytest.raises(InvalidAnalysis, match=r"^a\.models\.Root line 3: a formula cannot be read: "):
            with_kernels(kernel)
    found = with_kernels(basic(3, "{unknown}", "0", "0"))
    with pytest.raises(InvalidAnalysis, match=r"^a\.models\.Root line 3: unknown has no value"):
        found.tree(at(found))


def test_intensity() -> None:
    assert intensity(3, 2) == 1.5
    assert intensity(3, 0) is None
    assert intensity(10**400, 1) is None  # no float
    assert intensity(10**400, 10**400) == 1


def test_only_bytes_may_be_fractions() -> None:
    found = numbers()
    # 4,864 + 448 * 1/3, as in tests/report/test_fractions_in_formats.py
    totals = found.totals(at(found, w_bytes=Fraction(1, 3)))
    assert (totals.flops, totals.read) == (small.FLOPS, Fraction(15_040, 3))
    tree = found.tree(at(found, w_bytes=Fraction(1, 3)))
    assert tree.total == CostNumbers(small.FLOPS, small.MATMUL, Fraction(15_040, 3), small.WRITE)
    assert tree.total.bytes == Fraction(15_040, 3) + small.WRITE
    halves = with_kernels(basic(7, "{batch_size} / 3", "{w_bytes}", "0"))
    with pytest.raises(EvaluationError, match=r"line 7: \{batch_size\} / 3 is 2/3, not an integer"):
        halves.tree(at(halves, w_bytes=Fraction(1, 2)))
    thirds = numbers(totals=small.model().totals.model_copy(update={"flops": "{batch_size} / 3"}))
    with pytest.raises(EvaluationError, match=r"\{batch_size\} / 3 is 2/3, not an integer"):
        thirds.totals(at(thirds, w_bytes=Fraction(1, 2)))
    with pytest.raises(EvaluationError, match="is 2/3, not an integer"):
        thirds.totals(at(thirds))


def test_a_size_that_a_whole_sum_hides() -> None:
    # 64 * 17/32 = 34: the figure is an int again
    found = with_kernels(basic(7, "1", "{hidden_size} * 8 * {w_bytes}", "0"))
    (kernel,) = found.tree(at(found, w_bytes=Fraction(17, 32))).kernels()
    assert (type(kernel.once.read), kernel.once.read) == (int, 34)
