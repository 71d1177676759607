"""Arms of formulas: which exist, which a point takes, sizes that take them, and contradictions."""

from __future__ import annotations

from lmp.formula import evaluate_condition, parse_condition
from lmp.records import Kernel, MemoryAccess, ModuleAnalysis, Source
from lmp.verify.arms import Arm, Arms, without_arms
from lmp.verify.solving import Budget, Domain, contradiction, solution


def analysis(*formulas: str, assumptions: tuple[str, ...] = ()) -> ModuleAnalysis:
    return ModuleAnalysis(
        class_name="own.Block",
        engine="trace",
        source=Source(file="own.py", lines=[1, 2], distribution="own", version="1", sha256="0" * 64),
        parameters={name: f"init.{name}" for name in ("s", "n", "w")},
        assumptions=list(assumptions),
        kernels=[
            Kernel(
                kernel_type="basic",
                operation="add",
                line=1,
                code="x + y",
                analysis="",
                category="elementwise",
                flops=formula,
                memory_access=MemoryAccess(read="0", write="0"),
            )
            for formula in formulas
        ],
    )


def sides(arms: Arms) -> set[tuple[str, str]]:
    return {(arm.of, arm.side) for arm in arms.ways}


def test_a_condition_has_two_sides_that_several_kernels_share() -> None:
    arms = Arms(analysis("where({s} > 7, {s}, 0)", "3 * where({s} <= 7, 1, {n})"))
    assert sides(arms) == {("{s} > 7", "true"), ("{s} > 7", "false")}


def test_a_comparison_of_the_source_is_combined_with_the_arms_of_every_kernel() -> None:
    # The first kernel's formula lacks the source's comparison, which the second one's has: it may be wrong where n = 3
    # and s > 7, and no pair of arms within one kernel is there.
    asked = [parse_condition("{s} > 7"), parse_condition("{n} == 3")]
    arms = Arms(analysis("where({n} == 3, {s}, 0)", "where({s} > 7, 1, 0)"), asked)
    pairs = {frozenset(str(arm) for arm in pair) for pair in arms.pairs}
    assert frozenset({"{n} == 3 is true", "{s} > 7 is true"}) in pairs
    assert len(pairs) == len(arms.pairs) == 4  # both sides of both


def test_a_comparison_alone_is_combined_although_it_is_a_part_of_another_kernels_condition() -> None:
    # s % 8 == 0 implies s > 6, but not s > n: at n = 16 and s = 8 the second kernel's product does not run.
    asked = [parse_condition("{s} > {n}"), parse_condition("{s} % 8 == 0")]
    arms = Arms(analysis("where({s} <= {n} or {s} % 8 == 0, 0, {s})", "where({s} % 8 == 0, {s}, 0)"), asked)
    pairs = {frozenset(str(arm) for arm in pair) for pair in arms.pairs}
    assert frozenset({"{s} % 8 == 0 is true", "{s} > {n} is false"}) in pairs


def test_formulas_without_a_choice_have_no_arms() -> None:
    assert not Arms(analysis("{s} * {n} + 6 * {s} // 3", "{s} / 2"))  # 6s // 3 is 2s at any size


def test_an_inner_condition_is_taken_only_where_it_is_reached() -> None:
    arms = Arms(analysis("where({s} > 7, where({n} > 2, 1, 2), 3)"))
    inner = {(arm.of, arm.side) for arm in arms.taken({"s": 7, "n": 3})}
    assert inner == {("{s} > 7", "false")}
    inner = {(arm.of, arm.side) for arm in arms.taken({"s": 8, "n": 3})}
    assert inner == {("{s} > 7", "true"), ("{n} > 2", "true")}


def test_a_comparison_in_a_junction_is_taken_where_it_decides() -> None:
    arms = Arms(analysis("where({s} > 7 and {n} > 2, 1, 2)"))
    both = arms.taken({"s": 7, "n": 2})
    # both comparisons are false: neither decides alone
    assert {(arm.of, arm.side) for arm in both} == {("{s} > 7 and {n} > 2", "false")}
    assert Arm("{n} > 2", "false") in arms.taken({"s": 8, "n": 2})
    assert Arm("{n} > 2", "true") in arms.taken({"s": 8, "n": 3})


def test_an_argument_wins_only_where_it_is_strictly_less() -> None:
    arms = Arms(analysis("min({s}, {w} - 1)"))
    assert arms.taken({"s": 4, "w": 5}) == set()
    assert arms.taken({"s": 3, "w": 5}) == {Arm("min({s}, {w} - 1)", "{s}")}
    assert arms.taken({"s": 5, "w": 5}) == {Arm("min({s}, {w} - 1)", "{w} - 1")}


def test_a_quotient_is_below_one_exact_or_with_a_rest() -> None:
    arms = Arms(analysis("{s} // {w}", "{s} % {w}"))
    found = {s: [arm.side for arm in arms.taken({"s": s, "w": 4})] for s in (3, 8, 9)}
    assert found == {3: ["quotient 0"], 8: ["exact"], 9: ["with a rest"]}


def test_pairs_combine_the_decisions_of_one_kernel_only() -> None:
    together = Arms(analysis("where({s} > 7, 1, 2) * where({n} > 2, 1, 2)"))
    apart = Arms(analysis("where({s} > 7, 1, 2)", "where({n} > 2, 1, 2)"))
    assert (len(together.pairs), len(apart.pairs)) == (4, 0)


def test_a_point_is_found_for_nested_conditions() -> None:
    arms = Arms(analysis("where({s} > 200, where({n} % 6 == 0, where({n} > {s}, 1, 2), 3), 4)"))
    target = Arm("{n} > {s}", "true")
    domain = Domain({"s", "n"})
    found = [solution(way, {"s": 5, "n": 2}, domain, Budget(600)) for way in arms.ways_of(target)]
    assert found
    assert all(values is not None and target in arms.taken(values) for values in found)


def test_a_contradiction_is_named() -> None:
    def why(*conditions: tuple[str, bool]) -> str | None:
        return contradiction(tuple((parse_condition(c), wanted) for c, wanted in conditions), Domain({"s", "n"}))

    assert why(("{s} > 200", True), ("{s} + 63 < 64", True)) == "{s} > 200 is true, {s} + 63 < 64 is true"
    assert why(("2 * {s} - {n} > 3", True), ("{n} - 2 * {s} > -3", True)) is not None
    assert why(("{s} < 1", True)) == "the smallest size, {s} < 1 is true"
    assert why(("{s} % {n} == 0", True), ("{s} >= {n}", False)) == "{s} % {n} == 0, {s} >= {n} is false"
    # A multiple of n that is not above n is n, and a size that is not above 1 is 1.
    assert why(("{s} % {n} == 0", True), ("{s} > {n}", False), ("{s} == {n}", False)) is not None
    assert why(("{s} > {n}", False), ("{s} == {n}", False), ("{s} % {n} == 0", False)) is None  # s is 1, n is 2
    assert why(("{s} > 1", False), ("{s} == 1", False)) == "the smallest size, {s} == 1 is false, {s} > 1 is false"
    assert why(("{s} > 2", False), ("{s} == 1", False)) is None  # 2
    # s is at least 1, so n > s + 1 is above 2.
    assert why(("{n} > 2", False), ("{s} < {n} - 1", True)) is not None
    assert why(("{n} > 3", False), ("{s} < {n} - 1", True)) is None  # s is 1, n is 3
    assert why(("{s} > 3 and not ({n} == 1 and {s} > 5)", False), ("{s} > 3", True), ("{n} == 1 and {s} > 5", False))
    assert why(("{s} > 3 and {n} > 2", True), ("{n} <= 2 or {s} <= 3", True)) is not None
    assert why(("{s} > 3 and {n} > 2", True), ("{n} > 2 and {s} > 4", False)) is None  # s is 4
    assert why(("{s} > 3", True), ("{s} < 5", True)) is None  # 4
    assert why(("{s} > 3 and {n} > 2", False), ("{s} > 3", True)) is None  # n is 1 or 2


def test_an_untaken_arm_becomes_an_assumption_and_leaves_the_formula() -> None:
    given = analysis("where({s} > 7, where({n} > 2, {w}, 2), 3)")
    arms = Arms(given)
    found = without_arms(given, [Arm("{n} > 2", "false")], arms)
    assert found.kernels[0].flops == "where({s} > 7, {w}, 3)"
    (condition,) = found.assumptions
    # it fails exactly where the arm is reached: s > 7 and n <= 2
    wanted = {(s, n): not (s > 7 and n <= 2) for s in (7, 8) for n in (2, 3)}
    assert {(s, n): evaluate_condition(condition, {"s": s, "n": n}) for s, n in wanted} == wanted


def test_an_untaken_side_of_a_negative_comparison_leaves_the_other() -> None:
    given = analysis("where({s} <= 7, {w}, 3)")
    # {s} <= 7 is shared as {s} > 7: its false side is the first formula
    found = without_arms(given, [Arm("{s} > 7", "true")], Arms(given))
    assert (found.kernels[0].flops, found.assumptions) == ("{w}", ["{s} <= 7"])


def test_a_pair_that_no_point_takes_becomes_an_assumption_and_the_formula_stays() -> None:
    given = analysis("where({n} > 2, 1, 2) * where({s} > 7, 1, 2)")
    arms = Arms(given)
    both = arms.ways_of((Arm("{s} > 7", "true"), Arm("{n} > 2", "true")))
    found = without_arms(given, [], arms, both)
    assert found.kernels[0].flops == given.kernels[0].flops
    (condition,) = found.assumptions
    # it fails exactly where both are true
    held = {(s, n): evaluate_condition(condition, {"s": s, "n": n}) for s in (7, 8) for n in (2, 3)}
    assert held == {(7, 2): True, (7, 3): True, (8, 2): True, (8, 3): False}
