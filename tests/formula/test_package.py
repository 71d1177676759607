"""The nodes as values, the walks over them, and what importing the package costs."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import lmp
import lmp.formula as formula
from lmp.formula import Num, Var, free_variables, map_references, num, parse, ref, references, substitute, to_text, var

EXAMPLE = "where({a} < 1 and {b} != 2, ${{A.B}}(1, x={a}) * 2, min({a}, {b} // 3)) - 0.5"


def test_the_public_names_are_the_imported_ones():
    public = {name for name, value in vars(formula).items() if not name.startswith("_") and name != "annotations"}
    assert sorted(formula.__all__) == sorted(n for n in public if type(getattr(formula, n)).__name__ != "module")


def heavy_modules_after(imports: str) -> list[str]:
    heavy = "numpy sympy torch transformers pydantic difflib"
    code = f"import sys, {imports}; print(*[m for m in '{heavy}'.split() if m in sys.modules])"
    source = str(Path(lmp.__file__).parents[1])
    run = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_is_cheap():
    assert heavy_modules_after("lmp.formula") == []


def test_the_cost_test_would_notice():
    assert "numpy" in heavy_modules_after("numpy, lmp.formula")


def test_nodes_are_values():
    one, two = parse(EXAMPLE), parse(EXAMPLE)
    assert one == two
    assert hash(one) == hash(two)
    assert one != parse(EXAMPLE + " + 1")
    assert Num(2) == Num(Fraction(2))
    assert Var("x") is var("x")
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one
    with pytest.raises(AttributeError):
        one.terms = ()


def test_python_operators_build_formulas():
    x = var("x")
    assert to_text(1 - x * 2 + -x) == "1 - {x} * 2 - {x}"
    assert to_text((x + 1) * 2 / 3 // x % 5) == "({x} + 1) * 2 / 3 // {x} % 5"
    assert to_text(2**x + 1 // x + 1 % x + 1 / x) == "2 ** {x} + 1 // {x} + 1 % {x} + 1 / {x}"
    assert to_text(formula.where(formula.lt(x, 3), x, 0)) == "where({x} < 3, {x}, 0)"
    assert str(sum([x, x], num(0))) == "0 + {x} + {x}"
    with pytest.raises(TypeError, match="not from float"):
        x + 0.5


def test_walks():
    example = parse(EXAMPLE)
    assert free_variables(example) == {"a", "b"}
    assert references(example) == (parse("${{A.B}}(1, x={a})"),)
    assert references(parse("${A}(${B}(1)) + ${C}()")) == tuple(map(parse, ("${A}(${B}(1))", "${B}(1)", "${C}()")))


def test_substitution_is_simultaneous_and_leaves_names_of_references_alone():
    swapped = substitute(parse("{a} - {b} + ${{A}}(a={a})"), {"a": var("b"), "b": var("a")})
    assert swapped == parse("{b} - {a} + ${{A}}(a={b})")
    assert substitute(parse("{a}"), {"a": 3}) == num(3)
    unchanged = parse("{a} + 1")
    assert substitute(unchanged, {"z": 1}) is unchanged


def test_references_are_replaced_from_the_inside():
    replaced = map_references(parse("2 * ${A}(${B}(1) + x)"), lambda found: found.arguments[0])
    assert replaced == parse("2 * (1 + x)")
    assert ref("A", 1, x=2) == parse("${A}(1, x=2)")
