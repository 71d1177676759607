"""Reading: what text means, and which character a mistake is blamed on."""

from __future__ import annotations

import time

import pytest

from lmp.errors import FormulaSyntaxError
from lmp.formula import Compare, Ref, evaluate, num, parse, parse_condition, to_text, var
from lmp.formula.parse import MAX_DEPTH, MAX_DIGITS, MAX_LENGTH


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2*{a}+1", "2 * {a} + 1"),
        ("  {a}\n  + {b} ", "{a} + {b}"),
        ("{ a }", "{a}"),
        ("a + b", "{a} + {b}"),
        ("{config.hidden_size}", "{hidden_size}"),
        ("{self.config.hidden_size}", "{hidden_size}"),
        ("{self.hidden_size}", "{hidden_size}"),
        ("{text_config.hidden_size}", "{text_config.hidden_size}"),
        ("{min} + {where}", "{min} + {where}"),  # in braces every name is a name
        ("a if b < c else d", "where({b} < {c}, {a}, {d})"),
        ("1 if a else 2 if b else 3", "where({a} != 0, 1, where({b} != 0, 2, 3))"),
        ("where({bias}, {out}, 0)", "where({bias} != 0, {out}, 0)"),
        ("where(1 < {a} <= 3, 1, 2)", "where(1 < {a} and {a} <= 3, 1, 2)"),
        ("where(not a == 1 or b > 2 and c >= 3, 1, 2)", "where(not {a} == 1 or {b} > 2 and {c} >= 3, 1, 2)"),
        ("where((a == 1 or b > 2) and c != 3, 1, 2)", "where(({a} == 1 or {b} > 2) and {c} != 3, 1, 2)"),
        ("(a + b) * c - (d - e)", "({a} + {b}) * {c} - ({d} - {e})"),
        ("a * (b * c) + (d + e)", "{a} * {b} * {c} + {d} + {e}"),
        ("a / b * c", "{a} / {b} * {c}"),
        ("a * (b / c)", "{a} * ({b} / {c})"),
        ("a // (b // c) % d", "{a} // ({b} // {c}) % {d}"),
        ("-a ** 2", "-{a} ** 2"),
        ("(-a) ** 2", "(-{a}) ** 2"),
        ("2 ** -1", "2 ** -1"),
        ("(a ** b) ** c ** d", "({a} ** {b}) ** {c} ** {d}"),
        ("- - a", "{a}"),
        ("+a - +b", "{a} - {b}"),
        ("1.50 + .5 + 2.", "1.5 + 0.5 + 2"),
        ("max(a, min(b, 2), ceil(c / 2), floor(d))", "max({a}, min({b}, 2), ceil({c} / 2), floor({d}))"),
        ("${Linear}(a, b)", "${{Linear}}({a}, {b})"),
        ("${{ torch.nn.Linear }}(x, bias = 0, {n} = 2 * y,)", "${{torch.nn.Linear}}({x}, bias=0, n=2 * {y})"),
        ("3 * ${{A.B}}() + 1", "3 * ${{A.B}}() + 1"),
    ],
)
def test_older_and_looser_spellings_have_one_canonical_text(text, canonical):
    assert to_text(parse(text)) == canonical
    assert parse(canonical) == parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("2 * 3 ** 2", 18),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),  # 2 ** 9
        ("7 - 2 - 1", 4),
        ("100 // 7 // 2", 7),  # 14 // 2
        ("100 / 5 / 2", 10),
        ("100 / 8 * 2", 25),
        ("17 % 10 * 3", 21),  # (17 % 10) * 3
        ("-7 // 2", -4),
        ("1 + 2 if 1 < 2 else 9", 3),
    ],
)
def test_operators_bind_as_in_python(text, value):
    assert evaluate(text, {}) == value


def test_a_reference_keeps_its_arguments_as_they_were_written():
    assert parse("${A}(1, b)") == Ref("A", (num(1), var("b")))
    assert parse("${{A.B}}(x=1, y={b})") == Ref("A.B", (), (("x", num(1)), ("y", var("b"))))


def test_a_condition_is_read_by_itself():
    assert parse_condition("{seq_len} <= {window}") == Compare("<=", var("seq_len"), var("window"))
    with pytest.raises(FormulaSyntaxError, match="expected a condition"):
        parse_condition("{seq_len}")


@pytest.mark.parametrize(
    ("text", "message", "character"),
    [
        ("", "expected a number, a {name} or '(', found the end", 1),
        ("{a} +", "expected a number, a {name} or '(', found the end", 6),
        ("{a} * / {b}", "expected a number, a {name} or '(', found '/'", 7),
        ("{a} {b}", "expected an operator, found '{b}'", 5),
        ("2x", "expected an operator, found 'x'", 2),
        ("1e9", "expected an operator, found 'e9'", 2),
        ("({a} + 1", "expected ')' for the '(' at character 1, found the end", 9),
        ("{a} + 1)", "')' closes nothing", 8),
        ("{a", "'{' is never closed", 1),
        ("1 + {a} + {b", "'{' is never closed", 11),
        ("{a}}", "'}' closes nothing", 4),
        ("{}", "expected one name between the braces", 1),
        ("{a + b}", "expected one name between the braces", 1),
        ("{inputs.x.shape[0]}", "expected one name between the braces", 1),
        (
            "config.hidden_size",
            "attributes and items cannot be read here: write {name} and say in parameters where it comes from",
            7,
        ),
        ("${A", "expected a reference such as ${{package.module.Class}}(name=formula)", 1),
        ("${{A}(1)", "expected a reference such as ${{package.module.Class}}(name=formula)", 1),
        ("${{A}}", "expected '(' with the arguments of the reference, found the end", 7),
        ("${{A}}(x=1, 2)", "a positional argument cannot follow a named one", 13),
        ("${{A}}(x=1, x=2)", "x is bound twice", 13),
        ("__import__('os')", "unknown function '__import__': the functions are min, max, ceil, floor, where", 1),
        ("sqrt({a})", "unknown function 'sqrt': the functions are min, max, ceil, floor, where", 1),
        ("lambda: 1", "unexpected ':'", 7),
        ("'text'", "a formula holds no text in quotes", 1),
        ("{a} ^ 2", "unknown operator '^': a power is written **", 5),
        ("{a} = 2", "expected an operator, found '='", 5),
        ("min + 1", "'min' is a word of the language: expected a number or a {name}", 1),
        ("min()", "min takes one or more arguments, not 0", 4),
        ("ceil(1, 2)", "ceil takes 1 argument, not 2", 5),
        ("where(1 < 2, 3)", "expected ',': where takes a condition and two numbers, found ')'", 15),
        ("1 if 2", "expected 'else' after the condition, found the end", 7),
        ("{a} < {b}", "expected a number, found a condition: write where(condition, a, b)", 1),
        ("1 + ({a} < {b})", "expected a number, found a condition: write where(condition, a, b)", 5),
        ("{é}", "expected one name between the braces", 1),
        ("1 + " + "9" * 1001, f"a number has at most {MAX_DIGITS} digits", 5),
    ],
)
def test_a_mistake_is_blamed_on_its_character(text, message, character):
    with pytest.raises(FormulaSyntaxError) as caught:
        parse(text)
    assert str(caught.value).splitlines()[0] == f"{message} at character {character}"
    assert caught.value.position == character - 1


def test_the_message_shows_the_character():
    with pytest.raises(FormulaSyntaxError) as caught:
        parse("{seq_len} * {head_dim} ^ 2")
    assert str(caught.value) == (
        "unknown operator '^': a power is written ** at character 24\n  {seq_len} * {head_dim} ^ 2\n" + " " * 25 + "^"
    )


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 100_000 + "1",
        "where(" + "not " * 50_000 + "1 < 2, 1, 2)",
        "1 / " * 50_000 + "1",
        "2 ** " * 50_000 + "2",
        "min(" * 50_000,
        "${A}(" * 50_000,
        "1 if 1 else " * 50_000 + "1",
        "{a} if " * 50_000,
        "1" * (MAX_LENGTH + 1),
    ],
)
def test_a_hostile_text_is_refused_at_once(text):
    start = time.process_time()
    with pytest.raises(FormulaSyntaxError):
        parse(text)
    assert time.process_time() - start < 5


def test_what_is_just_within_the_limits_is_read():
    deep = "(" * (MAX_DEPTH - 1) + "{a}" + ")" * (MAX_DEPTH - 1)
    assert parse(deep) == var("a")
    assert evaluate("+".join(["{a}"] * 20_000), {"a": 2}) == 40_000
