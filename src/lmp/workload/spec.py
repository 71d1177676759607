"""Grammar of ``--inputs`` and ``--init``: the input tensors of ``forward()``, and the constructor's arguments.

    inputs   x: float[batch_size, seq_len, hidden_size], mask: bool[batch_size, 1, seq_len, seq_len], causal=true
    init     hidden_size=256, bias=true, eps=1e-5, act='silu', sizes=(2, 3), config=Config(n_embd=64, n_head=4)

A dimension is an integer, a name, or a sum, difference, product or floor quotient of these. Nothing here is evaluated
as Python, and nothing imports torch.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmp.errors import UsageError

DTYPES = ("float", "float32", "float16", "bfloat16", "int", "int64", "long", "int32", "bool")
"""``float`` is the module's own dtype; ``int`` and ``long`` are int64."""

_INPUTS_EXAMPLE = 'write it as in --inputs "x: float[batch_size, seq_len, 256], mask: bool[seq_len, seq_len]"'
_INIT_EXAMPLE = "write it as in --init \"hidden_size=256, bias=true, eps=1e-5, act='silu'\""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>//|[-+*:=,()\[\]]))"
)


@dataclass(frozen=True)
class Dim:
    """One dimension: a number, a name, or an operation on these. ``operation`` is empty for the first two."""

    value: int | str = 0
    operation: str = ""
    parts: tuple[Dim, ...] = ()

    def names(self) -> Iterator[str]:
        """Its names, in source order."""
        if isinstance(self.value, str):
            yield self.value
        for part in self.parts:
            yield from part.names()

    def size(self, values: Mapping[str, Any]) -> Any:
        """Its value, with a plain or symbolic integer for each name."""
        if self.operation:
            left, right = (part.size(values) for part in self.parts)
            return _OPERATIONS[self.operation](left, right)
        return values[self.value] if isinstance(self.value, str) else self.value

    def __str__(self) -> str:
        if not self.operation:
            return str(self.value)
        shown = [f"({p})" if p.operation and self.operation not in "+-" else str(p) for p in self.parts]
        if self.operation == "-" and self.parts[1].operation in ("+", "-"):
            shown[1] = f"({shown[1]})"
        return f" {self.operation} ".join(shown)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
}  # fmt: skip


@dataclass(frozen=True)
class TensorInput:
    """A tensor, with its dtype as written and its dimensions."""

    dtype: str
    dims: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class TupleInput:
    """Several tensors in one argument."""

    parts: tuple[TensorInput | TupleInput, ...]

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.parts))
        return f"({inside},)" if len(self.parts) == 1 else f"({inside})"


@dataclass(frozen=True)
class Construct:
    """An object to construct first: a class, by its name in the analysed module or its full path, with arguments."""

    name: str
    arguments: Mapping[str, Any]


Input = TensorInput | TupleInput
Inputs = Mapping[str, Any]
"""Argument of ``forward()`` -> an Input, or a plain value that is passed as it is."""


@dataclass(frozen=True)
class Spec:
    """How a class is constructed and called."""

    inputs: Inputs
    init: Mapping[str, Any] = field(default_factory=dict)

    def inputs_text(self) -> str:
        return ", ".join(
            f"{name}: {value}" if isinstance(value, Input) else f"{name}={literal_text(value)}"
            for name, value in self.inputs.items()
        )

    def init_text(self) -> str:
        return ", ".join(f"{name}={literal_text(value)}" for name, value in self.init.items())


def tensors(inputs: Inputs) -> Iterator[tuple[str, TensorInput]]:
    """The tensors with their names in paths: ``x``, and ``rope[0]`` in a tuple."""
    for name, value in inputs.items():
        yield from _tensors(name, value)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, TensorInput]]:
    if isinstance(value, TensorInput):
        yield name, value
    elif isinstance(value, TupleInput):
        for index, part in enumerate(value.parts):
            yield from _tensors(f"{name}[{index}]", part)


def literal_text(value: Any) -> str:
    """A constructor argument in the grammar's notation."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, Construct):
        return f"{value.name}({', '.join(f'{n}={literal_text(v)}' for n, v in value.arguments.items())})"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def is_plain(value: Any) -> bool:
    """True if the grammar can express the value."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    if isinstance(value, Construct):
        return all(map(is_plain, value.arguments.values()))
    return value is None or type(value) in (bool, int, float, str)


def parse_inputs(text: str) -> dict[str, Any]:
    """Parse ``--inputs``. Raises UsageError with the position of the first invalid character."""
    return _Reader(text, "--inputs", _INPUTS_EXAMPLE).inputs()


def parse_init(text: str) -> dict[str, Any]:
    """Parse ``--init``. Raises UsageError with the position of the first invalid character."""
    return _Reader(text, "--init", _INIT_EXAMPLE).arguments("")


def parse_tensor(text: str) -> TensorInput | TupleInput:
    """Parse one input without its name: ``float[batch_size, 16]``. Raises UsageError."""
    reader = _Reader(text, "the input", _INPUTS_EXAMPLE)
    found = reader.kind()
    reader.end()
    return found


class _Reader:
    """Parser with one token of look-ahead and no backtracking."""

    def __init__(self, text: str, option: str, example: str) -> None:
        self.text, self.option, self.example = text, option, example
        self.position = 0
        self._next()

    def _next(self) -> None:
        rest = self.text[self.position :]
        self.start = self.position + len(rest) - len(rest.lstrip())
        if self.start == len(self.text):
            self.kind_of, self.token = "end", ""
            return
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            raise self._error(f"{self.text[self.start]!r} cannot be read")
        self.kind_of, self.token = str(match.lastgroup), match[str(match.lastgroup)]
        self.position = match.end()

    def _error(self, what: str) -> UsageError:
        return UsageError(f"{self.option}, character {self.start + 1}: {what}\n{self.example}")

    def _expected(self, what: str) -> UsageError:
        return self._error(f"expected {what}, found {repr(self.token) if self.token else 'the end'}")

    def _take(self, mark: str) -> bool:
        if self.token == mark and self.kind_of == "mark":
            self._next()
            return True
        return False

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise self._expected(repr(mark))

    def _name(self, what: str, dotted: bool = False) -> str:
        if self.kind_of != "name" or ("." in self.token and not dotted):
            raise self._expected(what)
        name = self.token
        self._next()
        return name

    def end(self) -> None:
        if self.kind_of != "end":
            raise self._expected("',' or the end")

    # -- inputs ------------------------------------------------------------------------------------------------------

    def inputs(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.kind_of != "end":
            here = self.start
            name = self._name("the name of an argument of forward()")
            if name in found:
                self.start = here
                raise self._error(f"{name} is given twice")
            if self._take("="):
                found[name] = self.value()
            else:
                self._need(":")
                found[name] = self.kind()
            if not self._take(","):
                break
        self.end()
        return found

    def kind(self) -> TensorInput | TupleInput:
        """A dtype with dimensions, or several of them in parentheses."""
        if self._take("("):
            parts = []
            while not self._take(")"):
                parts.append(self.kind())
                if not self._take(","):
                    self._need(")")
                    break
            return TupleInput(tuple(parts))
        if self.token not in DTYPES:
            raise self._expected(f"a dtype ({', '.join(DTYPES)})")
        dtype = self.token
        self._next()
        self._need("[")
        dims: list[Dim] = []
        while not self._take("]"):
            dims.append(self.dim())
            if not self._take(","):
                self._need("]")
                break
        return TensorInput(dtype, tuple(dims))

    def dim(self) -> Dim:
        found = self._product()
        while self.token in ("+", "-") and self.kind_of == "mark":
            operation = self.token
            self._next()
            found = Dim(operation=operation, parts=(found, self._product()))
        return found

    def _product(self) -> Dim:
        found = self._atom()
        while self.token in ("*", "//") and self.kind_of == "mark":
            operation = self.token
            self._next()
            found = Dim(operation=operation, parts=(found, self._atom()))
        return found

    def _atom(self) -> Dim:
        if self._take("("):
            inside = self.dim()
            self._need(")")
            return inside
        if self.kind_of == "number":
            if not self.token.replace("_", "").isdigit() or int(self.token) < 1:
                raise self._expected("a dimension of at least 1")
            size = int(self.token)
            self._next()
            return Dim(size)
        return Dim(self._name("a dimension: a name or a number"))

    # -- init --------------------------------------------------------------------------------------------------------

    def arguments(self, closing: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.token != closing or (closing and self.kind_of != "mark"):
            here = self.start
            name = self._name("the name of a constructor's argument")
            if name in found:
                self.start = here
                raise self._error(f"{name} is given twice")
            self._need("=")
            found[name] = self.value()
            if not self._take(","):
                break
        if closing:
            self._need(closing)
        else:
            self.end()
        return found

    def value(self) -> Any:
        """A number, true, false or none, a quoted text, a tuple, or an object to construct."""
        if self._take("-"):
            if self.kind_of != "number":
                raise self._expected("a number")
            return -self.value()
        if self.kind_of == "number":
            token = self.token.replace("_", "")
            self._next()
            return int(token) if token.isdigit() else float(token)
        if self.kind_of == "text":
            text: str = ast.literal_eval(self.token)
            self._next()
            return text
        if self.token in ("(", "[") and self.kind_of == "mark":
            closing = {"(": ")", "[": "]"}[self.token]
            self._next()
            parts: list[Any] = []
            while not self._take(closing):
                parts.append(self.value())
                if not self._take(","):
                    self._need(closing)
                    break
            return tuple(parts)
        if self.kind_of == "name":
            if self.token.lower() in _WORDS:
                word = _WORDS[self.token.lower()]
                self._next()
                return word
            here, name = self.start, self._name("a value", dotted=True)
            if self._take("("):
                return Construct(name, self.arguments(")"))
            self.start = here
            raise self._error(f"{name} is not a value: text needs quotes, as '{name}'")
        raise self._expected("a value")


_WORDS = {"true": True, "false": False, "none": None}
