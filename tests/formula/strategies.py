"""Random formulas and random points, for the properties that every formula must have."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from lmp.formula import (
    RELATIONS,
    And,
    Call,
    Compare,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Not,
    Num,
    Or,
    Pow,
    Var,
    Where,
    add,
    mul,
    neg,
    ref,
)

NAMES = ("batch_size", "seq_len", "cache_len", "head_dim", "x", "w_bytes", "a_bytes")

variables = st.sampled_from(NAMES).map(Var)
small = st.integers(-9, 9).map(Num)
decimals = st.decimals(0, 9, places=2).map(lambda d: Num(Fraction(d)))
leaves = st.one_of(variables, variables, small)


def conditions(operands: st.SearchStrategy[Expr]) -> st.SearchStrategy[Condition]:
    compared = st.builds(Compare, st.sampled_from(RELATIONS), operands, operands)
    parts = st.lists(compared, min_size=2, max_size=3).map(tuple)
    return st.one_of(compared, compared, st.builds(And, parts), st.builds(Or, parts), st.builds(Not, compared))


def extend(operands: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    several = st.lists(operands, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(lambda terms: add(*terms), several),
        st.builds(lambda factors: mul(*factors), several),
        st.builds(neg, operands),
        st.builds(Div, operands, operands),
        st.builds(FloorDiv, operands, operands),
        st.builds(Mod, operands, operands),
        st.builds(Pow, operands, st.integers(-1, 3).map(Num)),
        st.builds(Call, st.sampled_from(["min", "max"]), several),
        st.builds(Call, st.sampled_from(["ceil", "floor"]), operands.map(lambda operand: (operand,))),
        st.builds(Where, conditions(operands), operands, operands),
    )


polynomials = st.recursive(
    leaves,
    lambda o: st.lists(o, min_size=2, max_size=3).flatmap(lambda t: st.sampled_from([add(*t), mul(*t)])),
    max_leaves=12,
)
formulas = st.recursive(leaves, extend, max_leaves=10)
with_references = st.recursive(
    st.one_of(leaves, decimals),
    lambda o: st.one_of(extend(o), st.builds(lambda a, b: ref("torch.nn.Linear", a, bias=b), o, o)),
    max_leaves=10,
)
points = st.fixed_dictionaries({name: st.integers(-4, 12) for name in NAMES})
sizes = st.sampled_from([Fraction(1, 2), Fraction(17, 32), Fraction(9, 16), Fraction(17, 4), Fraction(1, 3), 1, 2, 4])
"""Bytes of an element, which may be a fraction."""

points_with_fractions = st.fixed_dictionaries(
    {name: sizes if name.endswith("_bytes") else st.integers(-4, 12) for name in NAMES}
)
huge = st.one_of(st.integers(-3, 3), st.integers(-(2**70), 2**70), st.sampled_from([2**31, 2**62, 2**63 - 1, -(2**63)]))
