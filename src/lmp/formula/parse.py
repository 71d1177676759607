"""Text to formula: a tokenizer of one regular expression and a precedence-climbing parser. No text is executed.

Older spellings are read into the same nodes: ``a if condition else b`` is ``where(condition, a, b)``, a name may stand
without braces, ``${Class}(...)`` is ``${{Class}}(...)``, ``{config.x}`` is ``{x}``.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from lmp.errors import FormulaSyntaxError
from lmp.formula.nodes import (
    AND,
    COMPARE,
    FUNCTIONS,
    OR,
    PRODUCT,
    RELATIONS,
    SUM,
    And,
    Call,
    Compare,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Node,
    Not,
    Or,
    Pow,
    Ref,
    Where,
    add,
    mul,
    ne,
    neg,
    num,
    var,
)

MAX_LENGTH = 1_000_000
"""Characters of one formula."""
MAX_DEPTH = 100
"""Levels of operators, parentheses and calls inside one another: every walk over a formula is a recursion."""
MAX_DIGITS = 1000
"""Digits of one number."""

_DOTTED = r"[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<ref>  \$\{{\{{ \s* {_DOTTED} \s* \}}\}} | \$\{{ \s* {_DOTTED} \s* \}} )
    | (?P<var>  \{{ \s* {_DOTTED} \s* \}} )
    | (?P<num>  \d+ (?:\.\d*)? | \.\d+ )
    | (?P<word> [A-Za-z_]\w* )
    | (?P<op>   \*\* | // | <= | >= | == | != | [-+*/%<>(),=] )
    )""",
    re.VERBOSE | re.ASCII,
)
_SPACE = re.compile(r"\s*")

_BINDING = {"or": OR, "and": AND, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT}
_BINDING |= dict.fromkeys(RELATIONS, COMPARE)
_QUOTIENTS = {"/": Div, "//": FloorDiv, "%": Mod}
_WORDS = frozenset({"if", "else", "and", "or", "not", "where", *FUNCTIONS})
"""Words that are no names unless in braces."""

_PREFIX = re.compile(r"^(?:self\.config|config|self)\.")


class _Token(NamedTuple):
    kind: str  # ref, var, num, word, op, bad, end
    text: str
    position: int


def parse(text: str) -> Expr:
    """The formula that the text spells, or a FormulaSyntaxError that points at the first wrong character."""
    reader = _FormulaReader(text)
    return reader.number(reader.whole(), 0)


def parse_condition(text: str) -> Condition:
    """The condition that the text spells, such as ``{seq_len} <= {sliding_window}``."""
    node = _FormulaReader(text).whole()
    if isinstance(node, Condition):
        return node
    raise FormulaSyntaxError("expected a condition such as {a} <= {b}, found a number", text, 0)


def _tokens(text: str) -> list[_Token]:
    if len(text) > MAX_LENGTH:
        raise FormulaSyntaxError(f"a formula has at most {MAX_LENGTH} characters", text, MAX_LENGTH)
    found, position = [], 0
    while match := _TOKEN.match(text, position):
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind], match.start(kind)))
        position = match.end()
    position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
    # What cannot be read is a token too, so that the first mistake is the one reported.
    return [*found, _Token("end" if position == len(text) else "bad", "", position)]


def _what_is_wrong(text: str, position: int) -> str:
    rest = text[position:]
    match rest[0]:
        case "$":
            return "expected a reference such as ${{package.module.Class}}(name=formula)"
        case "{" if "}" not in rest:
            return "'{' is never closed"
        case "{":
            return "expected one name between the braces"
        case "}":
            return "'}' closes nothing"
        case "." | "[":
            return "attributes and items cannot be read here: write {name} and say in parameters where it comes from"
        case "^":
            return "unknown operator '^': a power is written **"
        case "'" | '"':
            return "a formula holds no text in quotes"
    return f"unexpected {rest[0]!r}"


class _FormulaReader:
    """``height`` is that of the node read last, ``depth`` the number of readers inside one another right now."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens = text, _tokens(text)
        self.index = self.depth = self.height = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        self.index += 1
        return self.tokens[self.index - 1]

    def accept(self, text: str) -> bool:
        # Names in braces carry their braces, so `{min}` is never taken for `min`.
        found = self.next.text == text
        self.index += found
        return found

    def expect(self, text: str, why: str = "") -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}{why}{_found(self.next)}")

    def fail(self, message: str, position: int | None = None) -> None:
        if position is None:
            position = self.next.position
            message = _what_is_wrong(self.text, position) if self.next.kind == "bad" else message
        raise FormulaSyntaxError(message, self.text, position)

    def limit(self, levels: int, position: int) -> None:
        if levels > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep", position)

    def number(self, node: Node, position: int) -> Expr:
        if not isinstance(node, Expr):
            self.fail("expected a number, found a condition: write where(condition, a, b)", position)
        return node  # type: ignore[return-value]

    def condition(self, node: Node) -> Condition:
        """A number is taken for a condition as Python does: it holds where the number is not 0."""
        return node if isinstance(node, Condition) else ne(node, 0)  # type: ignore[arg-type]

    def whole(self) -> Node:
        node = self.expression()
        if self.next.kind != "end":
            unclosed = self.next.text == ")"
            self.fail("')' closes nothing" if unclosed else f"expected an operator{_found(self.next)}")
        return node

    def expression(self) -> Node:
        start = self.next.position
        node = self.binary(OR)
        if not self.accept("if"):
            return node
        height = self.height
        condition = self.condition(self.binary(OR))
        height = max(height, self.height)
        self.expect("else", " after the condition")
        self.depth += 1
        self.limit(self.depth, self.next.position)
        other_start = self.next.position
        otherwise = self.expression()
        self.depth -= 1
        self.height = max(height, self.height) + 1
        self.limit(self.height, start)
        return Where(condition, self.number(node, start), self.number(otherwise, other_start))

    def binary(self, loosest: int) -> Node:
        """Operands and operators, as far as they bind at least as tightly as ``loosest``."""
        self.depth += 1
        start = self.next.position
        self.limit(self.depth, start)
        node = self.unary()
        while (binding := _BINDING.get(self.next.text, -1)) >= loosest:
            operands, operators, positions, height = [node], [], [start], self.height
            while _BINDING.get(self.next.text) == binding:
                operators.append(self.take())
                positions.append(self.next.position)
                operands.append(self.binary(binding + 1))
                height = max(height, self.height)
            node = self.combine(binding, operands, operators, positions, height)
        self.depth -= 1
        return node

    def combine(
        self, binding: int, operands: list[Node], operators: list[_Token], positions: list[int], height: int
    ) -> Node:
        self.height = height + 1
        self.limit(self.height, operators[0].position)
        if binding in (OR, AND):
            parts = tuple(map(self.condition, operands))
            return Or(parts) if binding == OR else And(parts)
        numbers = [self.number(operand, position) for operand, position in zip(operands, positions, strict=True)]
        if binding == COMPARE:
            pairs = zip(operators, numbers, numbers[1:], strict=False)
            chain = tuple(Compare(operator.text, left, right) for operator, left, right in pairs)
            self.height += len(chain) > 1
            return And(chain) if len(chain) > 1 else chain[0]
        if binding == SUM:
            signed = [neg(n) if op.text == "-" else n for op, n in zip(operators, numbers[1:], strict=True)]
            return add(numbers[0], *signed)
        return self.product(numbers, operators)

    def product(self, numbers: list[Expr], operators: list[_Token]) -> Expr:
        """``a * b / c * d`` is ``((a * b) / c) * d``: every quotient closes the product on its left."""
        factors = [numbers[0]]
        for operator, right in zip(operators, numbers[1:], strict=True):
            if operator.text == "*":
                factors.append(right)
                continue
            self.height += 1 + (len(factors) > 1)
            self.limit(self.height, operator.position)
            factors = [_QUOTIENTS[operator.text](mul(*factors), right)]
        return mul(*factors)

    def unary(self) -> Node:
        token = self.next
        if token.text not in ("-", "+", "not"):
            return self.power()
        self.take()
        self.depth += 1
        self.limit(self.depth, token.position)
        if token.text == "not":
            node: Node = Not(self.condition(self.binary(COMPARE)))
        else:
            start = self.next.position
            operand = self.number(self.unary(), start)
            node = neg(operand) if token.text == "-" else operand
        self.depth -= 1
        self.height += 1
        return node

    def power(self) -> Node:
        start = self.next.position
        base = self.atom()
        if not self.accept("**"):
            return base
        height = self.height
        self.depth += 1
        self.limit(self.depth, self.next.position)
        exponent_start = self.next.position
        exponent = self.number(self.unary(), exponent_start)
        self.depth -= 1
        self.height = max(height, self.height) + 1
        return Pow(self.number(base, start), exponent)

    def atom(self) -> Node:
        self.height = 1
        token = self.next
        match token.kind:
            case "num":
                return num(self.literal(self.take()))
            case "var":
                return var(_bare_name(self.take().text))
            case "ref":
                return self.reference(self.take())
            case "word":
                return self.word(self.take())
            case "op" if self.accept("("):
                node = self.expression()
                self.expect(")", f" for the '(' at character {token.position + 1}")
                return node
        self.fail(f"expected a number, a {{name}} or '('{_found(token)}")
        raise AssertionError

    def literal(self, token: _Token) -> int | Fraction:
        if len(token.text) > MAX_DIGITS:
            self.fail(f"a number has at most {MAX_DIGITS} digits", token.position)
        return Fraction(token.text) if "." in token.text else int(token.text)

    def word(self, token: _Token) -> Node:
        if token.text == "where" and self.next.text == "(":
            return self.where(token)
        if token.text in FUNCTIONS and self.next.text == "(":
            start = self.next.position
            arguments, _ = self.arguments(keywords=False)
            arity = FUNCTIONS[token.text]
            if len(arguments) != arity and (arity or not arguments):
                expected = "1 argument" if arity else "one or more arguments"
                self.fail(f"{token.text} takes {expected}, not {len(arguments)}", start)
            return Call(token.text, tuple(arguments))
        if self.next.text == "(":
            known = "min, max, ceil, floor, where"
            self.fail(f"unknown function {token.text!r}: the functions are {known}", token.position)
        if token.text in _WORDS:
            self.fail(f"{token.text!r} is a word of the language: expected a number or a {{name}}", token.position)
        return var(token.text)

    def where(self, token: _Token) -> Expr:
        self.expect("(")
        condition = self.condition(self.expression())
        height = self.height
        branches = []
        for _ in range(2):
            self.expect(",", ": where takes a condition and two numbers")
            start = self.next.position
            branches.append(self.number(self.expression(), start))
            height = max(height, self.height)
        self.expect(")", f" for the '(' of where at character {token.position + 1}")
        self.height = height + 1
        self.limit(self.height, token.position)
        return Where(condition, *branches)

    def reference(self, token: _Token) -> Expr:
        if self.next.text != "(":
            self.fail(f"expected '(' with the arguments of the reference{_found(self.next)}")
        arguments, bindings = self.arguments(keywords=True)
        return Ref(_dotted(token.text), tuple(arguments), tuple(bindings.items()))

    def arguments(self, keywords: bool) -> tuple[list[Expr], dict[str, Expr]]:
        opening = self.take()
        arguments: list[Expr] = []
        bindings: dict[str, Expr] = {}
        height = 0
        while self.next.text != ")":
            token = self.next
            name = self.keyword() if keywords else None
            start = self.next.position
            value = self.number(self.expression(), start)
            height = max(height, self.height)
            if name is None and bindings:
                self.fail("a positional argument cannot follow a named one", token.position)
            elif name is None:
                arguments.append(value)
            elif name in bindings:
                self.fail(f"{name} is bound twice", token.position)
            else:
                bindings[name] = value
            if not self.accept(","):
                break
        self.expect(")", f" for the '(' at character {opening.position + 1}")
        self.height = height + 1
        self.limit(self.height, opening.position)
        return arguments, bindings

    def keyword(self) -> str | None:
        """``name=`` (or ``{name}=``) where one stands next."""
        if self.next.kind not in ("word", "var") or self.tokens[self.index + 1].text != "=":
            return None
        token = self.take()
        self.take()
        return _bare_name(token.text)


def _found(token: _Token) -> str:
    return ", found the end" if token.kind == "end" else f", found {token.text!r}"


def _dotted(text: str) -> str:
    return re.sub(r"[\s${}]", "", text)


def _bare_name(text: str) -> str:
    """A name without braces, and without ``config.``, ``self.config.`` or ``self.`` in front of it."""
    return _PREFIX.sub("", _dotted(text))
