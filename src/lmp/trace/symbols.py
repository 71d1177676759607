"""Symbolic sizes for execution: each carries an expression and its value in the run.

PyTorch's SymInts carry an expression through its operators. Its own ShapeEnv solves each condition of the code, merges
symbols with equal hints and pins some to numbers. This one evaluates conditions at the values of the run and solves
nothing (concolic execution). So no symbols are merged, and a pinned size is one that the code itself turned into a
plain integer. Comparisons in the analysed source are kept as the conditions of the path.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import numbers
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

# nn.LayerNorm and others test for an Integral to distinguish a size from a sequence of sizes.
numbers.Integral.register(torch.SymInt)


@dataclass(frozen=True)
class Condition:
    """A comparison of sizes that the analysed source branched on, and its result."""

    expression: sympy.Basic
    holds: bool
    file: str
    line: int
    within: frozenset[str] = frozenset()
    """Classes whose forward() was running."""


@dataclass(frozen=True)
class Noted:
    """What was asked of sizes and done to them during one operator."""

    asked: dict[Any, Any] = field(default_factory=dict)
    """Expression -> its value, where the operator depends on it."""
    turned: dict[Any, int] = field(default_factory=dict)
    """Size turned into a number -> the number."""
    divided: list[tuple[Any, Any, bool]] = field(default_factory=list)
    """Arguments of `ConcolicShapeEnv.divided`."""


class SizeNode(SymNode):
    """SymNode with cached arithmetic: PyTorch computes equal strides and comparisons many times.

    A ConcolicShapeEnv never replaces or pins a symbol, so equal expressions stay equal for the whole run.
    """

    @property
    def hint(self) -> Any:
        """The value in this run. What reads it depends on it; arithmetic only gives its result a value."""
        if not sys._getframe(1).f_code.co_filename.endswith("sym_node.py"):
            self.shape_env.depends_on(self._expr, self._hint)
        return self._hint

    def wrap_int(self, num: int) -> SymNode:
        return self._constant(num, sympy.Integer, int)

    def wrap_float(self, num: float) -> SymNode:
        return self._constant(num, sympy.Float, float)

    def wrap_bool(self, num: bool) -> SymNode:
        return self._constant(num, lambda told: sympy.true if told else sympy.false, bool)

    def sym_sum(self, args: Sequence[SymNode]) -> SymNode:
        key = ("sym_sum", *[a._expr for a in args])
        known = self.shape_env.results
        if key not in known:
            known[key] = functools.reduce(lambda total, size: total.add(size), args)
        return known[key]

    def _constant(self, value: Any, written: Callable[[Any], Any], kind: type) -> SymNode:
        known = self.shape_env.results
        key = (kind, repr(value))  # 0.0 and -0.0 have different keys
        if key not in known:
            known[key] = SizeNode(written(value), self.shape_env, kind, value, constant=value, fx_node=value)
        return known[key]


def _once(name: str) -> Callable[..., SymNode]:
    operation = getattr(SymNode, name)

    def method(self: SymNode, *others: SymNode) -> SymNode:
        key = (name, self._expr, self.pytype, *[o._expr for o in others], *[o.pytype for o in others])
        known = self.shape_env.results
        if name in _DIVIDING:
            self.shape_env.divided(self._expr, others[0]._expr)
        if key not in known:
            quotient = _exact_quotient(self._expr, others[0]._expr) if name in _FLOORED else None
            if quotient is not None and self._hint is not None and others[0]._hint is not None:
                known[key] = SizeNode(quotient, self.shape_env, int, self._hint // others[0]._hint)
                return known[key]
            result = operation(self, *others)
            if type(result) is SymNode:
                result.__class__ = SizeNode
            known[key] = result
        return known[key]

    return method


_FLOORED = ("floordiv", "int_floordiv")
_DIVIDING = (*_FLOORED, "mod")


def _exact_quotient(size: sympy.Basic, divisor: sympy.Basic) -> sympy.Basic | None:
    """The quotient of two products of symbols and integers, if it is one too: `FloorDiv` takes long to find it."""
    if not (_is_product(size) and _is_product(divisor)) or divisor.is_zero:
        return None
    quotient = size / divisor
    return quotient if _is_product(quotient) else None


def _is_product(size: sympy.Basic) -> bool:
    return all(part.is_Symbol or part.is_Integer for part in (size.args if size.is_Mul else (size,)))


for _name in (
    "add",
    "sub",
    "mul",
    "int_floordiv",
    "floordiv",
    "mod",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and_",
    "or_",
    "sym_not",
    "sym_max",
    "sym_min",
    "neg",
    "ceil",
    "floor",
    "trunc",
    "sym_float",
    "truediv",
    "int_truediv",
    "float_truediv",
    "pow",
    "float_pow",
    "pow_by_natural",
):
    if hasattr(SymNode, _name):
        setattr(SizeNode, _name, _once(_name))


class ConcolicShapeEnv(ShapeEnv):
    """A ShapeEnv that evaluates every condition on sizes at the values of this run."""

    def __init__(self) -> None:
        super().__init__(specialize_zero_one=False, duck_shape=False)
        self.values: dict[sympy.Symbol, int] = {}
        self.conditions: dict[sympy.Basic, Condition] = {}
        self.pinned: dict[sympy.Basic, int] = {}
        """Sizes that code turned into plain numbers."""
        self.pinned_in: dict[sympy.Basic, set[str]] = {}
        """Size -> classes whose forward() was running then; "" for constructors."""
        self.turned_now: set[sympy.Basic] = set()
        """Sizes that the observed call turned into plain numbers."""
        self.divisions: dict[tuple[sympy.Basic, sympy.Basic], bool] = {}
        """Size and divisor of each ``//``, ``%`` and stepped range -> true for a range: code runs once per piece."""
        self.cuts: dict[tuple[tuple[str, int], sympy.Basic], tuple[int, sympy.Basic]] = {}
        """Line of the source that cuts a tensor, and the size that it cuts -> the smallest bound there: value, size."""
        self.results: dict[Any, SymNode] = {}
        """Cached results of SizeNode operations."""
        self._noted: Noted | None = None
        self._decided: dict[Any, Any] = {}
        """Cached values of expressions in this run."""
        self._sizes: dict[Any, Any] = {}
        """Cached symbolic integers of expressions."""
        self.source_root = ""
        self.where: Callable[[], frozenset[str]] = frozenset
        """Returns the classes whose forward() is running."""
        self.calls: Callable[[], int] = int
        """Returns the index of the module call that is running."""
        self.asked_at: dict[tuple[str, int, int], dict[int, sympy.Basic]] = {}
        """Line, and index of the module call -> its comparisons by how many times their sizes were divided."""

    def size(self, name: str, value: int) -> Any:
        """A symbolic integer called ``name`` with the value ``value`` in this run."""
        symbol = sympy.Symbol(name, integer=True, positive=True)
        self.values[symbol] = value
        return torch.SymInt(SizeNode(symbol, self, int, value))

    def _value(self, expression: Any) -> Any:
        found = expression.xreplace(self.values) if isinstance(expression, sympy.Basic) else expression
        if isinstance(found, sympy.Basic) and not (found.is_number or found in (sympy.true, sympy.false)):
            found = found.doit()
        return found

    def evaluate_sym_node(self, sym_node: SymNode, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
        return self.evaluate_expr(sym_node.expr, sym_node._hint)

    def evaluate_expr(self, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
        found = self._value(orig_expr) if hint is None else hint
        self.depends_on(orig_expr, found)
        if orig_expr.free_symbols:
            if type(found) is int or isinstance(found, sympy.Integer):
                self.pinned[orig_expr] = int(found)
                self.turned(orig_expr)
            frame = _asking_frame()
            inside = frame is not None and self.source_root and frame.f_code.co_filename.startswith(self.source_root)
            if inside and (isinstance(found, bool) or found in (sympy.true, sympy.false)):
                before = self.conditions.get(orig_expr)
                within = self.where() | (before.within if before else frozenset())
                place = (frame.f_code.co_filename, frame.f_lineno)
                self.asked_at.setdefault((*place, self.calls()), {})[_times_divided(orig_expr)] = orig_expr
                self.conditions[orig_expr] = Condition(orig_expr, bool(found), *place, within)
        return sympy.sympify(found) if isinstance(found, (bool, int, float)) else found

    def begin(self) -> None:
        """Forget what was done to sizes before the observed call: filling a cache may loop over the cached tokens."""
        for noted in (self.turned_now, self.divisions, self.cuts, self.asked_at):
            noted.clear()

    def divided(self, size: Any, divisor: Any, looped: bool = False) -> None:
        """Record that the code divides a size, or with ``looped`` that it iterates over it in steps."""
        if isinstance(size, sympy.Basic) and size.free_symbols:
            if self._noted is not None:
                self._noted.divided.append((size, divisor, looped))
            key = size, sympy.sympify(divisor)
            self.divisions[key] = looped or self.divisions.get(key, False)

    def shrinking(self) -> tuple[str, int] | None:
        """A line that compares a size, the size divided, and that divided again. Its loop's rounds have no formula."""
        return next(((file, line) for (file, line, _), asked in self.asked_at.items() if len(asked) > 2), None)

    def cut_at(self, place: tuple[str, int], size: Any, bound: Any, value: int) -> None:
        """Record that a line cuts a tensor of this size at a bound, which counts from the end if it is negative."""
        found = abs(value), sympy.sympify(bound if value > 0 else -bound)
        self.cuts[place, size] = min(found, self.cuts.get((place, size), found), key=lambda cut: cut[0])

    def turned(self, expression: Any) -> None:
        """Record that the classes running now turned an already pinned size into a number."""
        self.turned_now.add(expression)
        self.pinned_in.setdefault(expression, set()).update(self.where() or {""})
        if self._noted is not None:
            self._noted.turned[expression] = self.pinned.get(expression, 0)

    def depends_on(self, expression: Any, value: Any) -> None:
        """Record that the operator that runs depends on the value of an expression."""
        if self._noted is not None and isinstance(expression, sympy.Basic) and expression.free_symbols:
            self._noted.asked[expression] = value

    @contextlib.contextmanager
    def noting(self) -> Iterator[Noted]:
        """Collects what is asked of sizes and done to them while this is active."""
        before, self._noted = self._noted, Noted()
        try:
            yield self._noted
        finally:
            self._noted = before

    def agrees(self, noted: Noted) -> bool:
        """True if everything that an operator of another run depended on has the same value in this run."""
        met = (*noted.asked.items(), *noted.turned.items())
        return all(self.value_of(expression) == value for expression, value in met)

    def value_of(self, expression: Any) -> Any:
        """The value of an expression in this run; a plain number is returned unchanged."""
        if not isinstance(expression, sympy.Basic):
            return expression
        if expression not in self._decided:
            self._decided[expression] = self._value(expression)
        return self._decided[expression]

    def repeat(self, noted: Noted) -> None:
        """Do to the sizes of this run what an operator did to those of another one."""
        for size, divisor, looped in noted.divided:
            self.divided(size, divisor, looped)
        for expression, number in noted.turned.items():
            self.pinned[expression] = number
            self.turned(expression)

    def size_of(self, expression: Any) -> Any:
        """The symbolic integer of an expression; a plain integer is returned unchanged."""
        if not isinstance(expression, sympy.Basic):
            return expression
        if expression not in self._sizes:
            node = SizeNode(expression, self, int, int(self.value_of(expression)))
            self._sizes[expression] = torch.SymInt(node)
        return self._sizes[expression]

    def _maybe_evaluate_static(self, expr: Any, **kwargs: Any) -> Any:
        found = self._value(expr)
        self.depends_on(expr, found)
        return found

    def guard_or_defer_runtime_assert(self, orig_expr: Any, msg: str, fx_node: Any = None) -> bool:
        found = bool(self._value(orig_expr))
        self.depends_on(orig_expr, found)
        return found

    def bound_sympy(self, expr: Any, size_oblivious: bool = False) -> Any:
        """Sizes are at least 0; there is no other bound. A negated size, as in ``-tokens % block``, has none."""
        # The sign of a negated quotient is not known from its form: there the value in this run tells.
        negative = expr.is_negative or (not expr.is_nonnegative and self._value(expr) < 0)
        return ValueRanges(-int_oo if negative else sympy.Integer(0), int_oo)

    def replace(self, expr: Any) -> Any:
        return expr

    def simplify(self, expr: Any, size_oblivious: bool = False) -> Any:
        return expr

    def is_unbacked_symint(self, symbol: Any) -> bool:
        return False


def _times_divided(expression: sympy.Basic) -> int:
    """Depth of nested ``//``."""
    return max((_times_divided(a) for a in expression.args), default=0) + isinstance(expression, FloorDiv)


def _asking_frame() -> Any:
    """The frame of Python code that requested a plain value by ``if``, ``int()`` or ``range()``; else None.

    PyTorch's kernels also compare sizes (is this dimension 1, is that tensor contiguous), without Python's protocol
    methods. Such comparisons are not the source's; their effect shows in the operators' costs.
    """
    frame: Any = sys._getframe(2)
    asked = False
    while frame is not None and frame.f_code.co_filename.endswith(_MACHINERY):
        asked |= frame.f_code.co_name in ("__bool__", "__int__", "__index__")
        frame = frame.f_back
    return frame if asked else None


_MACHINERY = ("sym_node.py", "symbolic_shapes.py", "torch/__init__.py", "trace/symbols.py", "trace/recording.py")


def fake_mode(env: ConcolicShapeEnv) -> FakeTensorMode:
    """A mode in which tensors have shapes and no data. Shapes may be symbolic."""
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True, static_shapes=False)
    mode.cache_enabled = False
    return mode


def expression(size: Any) -> Any:
    """The sympy expression of a size; a plain integer is returned unchanged."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


class _IntegerType(type):
    """Metaclass: isinstance(x, int) also holds for symbolic integers, in sources where it replaces ``int``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (int, torch.SymInt))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, int)


class SymbolicInteger(int, metaclass=_IntegerType):
    """``int`` for symbolic runs: ``int(hidden_size / num_heads)`` stays an expression."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.SymInt):
            return args[0]
        if args and isinstance(args[0], torch.SymFloat):
            return torch.sym_int(args[0])
        return int(*args, **kwargs)


@contextlib.contextmanager
def symbolic_int(module_names: Iterable[str]) -> Iterator[None]:
    """While active, ``int`` is SymbolicInteger in these modules. They are restored afterwards."""
    modules = [m for m in (sys.modules.get(n) for n in module_names) if m is not None and "int" not in vars(m)]
    for module in modules:
        vars(module)["int"] = SymbolicInteger
    try:
        with _in_configs(), _in_json(), _as_dtype(), _not_tracing():
            yield
    finally:
        for module in modules:
            vars(module).pop("int", None)


_range = range


class _RangeType(type):
    """Metaclass: isinstance(x, range) holds for ranges where SymbolicRange replaces ``range``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _range)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _range)


class SymbolicRange(metaclass=_RangeType):
    """``range`` for symbolic runs: its number of rounds is a number, its steps are recorded and stay expressions."""

    def __new__(cls, *bounds: Any) -> Any:
        sizes = [b for b in bounds if isinstance(b, torch.SymInt)]
        if not sizes or len(bounds) < 3:
            return _range(*bounds)
        env = sizes[0].node.shape_env
        start, stop, step = bounds
        width = env._value(expression(step))  # a step that stays symbolic is not turned into a number
        if width > 1:
            env.divided(expression(stop - start), expression(step), looped=True)
        elif width < -1:
            env.divided(expression(start - stop), expression(-step), looped=True)
        rounds = _range(operator.index(start), operator.index(stop), int(width))
        if isinstance(step, torch.SymInt) or isinstance(start, torch.SymInt):
            # Downwards the first entry is a size of the call, so each of them is one less a number.
            return [start + k * step if k else start for k in _range(len(rounds))]
        return rounds


@contextlib.contextmanager
def symbolic_range() -> Iterator[None]:
    """While active, ``range`` is SymbolicRange in all code."""
    vars(builtins)["range"] = SymbolicRange
    try:
        yield
    finally:
        vars(builtins)["range"] = _range


class _Unneeded:
    """Context object of an autograd function where no gradient is needed: each method does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


@contextlib.contextmanager
def plain_functions() -> Iterator[None]:
    """While active, autograd functions run their forward() directly: apply() rejects symbolic sizes."""
    functions: Any = torch.autograd.Function
    original = functions.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.setup_context is not functions.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(_Unneeded(), *args, **kwargs)

    functions.apply = classmethod(apply)
    try:
        yield
    finally:
        functions.apply = original


@contextlib.contextmanager
def _in_configs() -> Iterator[None]:
    """While active, the type checks of transformers' configs accept symbolic integers as integers."""
    checks = sys.modules.get("huggingface_hub.dataclasses")
    original = getattr(checks, "_validate_simple_type", None)
    if original is None:
        yield
        return

    def check(name: str, value: Any, expected: type) -> None:
        original(name, 0 if isinstance(value, torch.SymInt) else value, expected)

    vars(checks)["_validate_simple_type"] = check
    try:
        yield
    finally:
        vars(checks)["_validate_simple_type"] = original


@contextlib.contextmanager
def _in_json() -> Iterator[None]:
    """While active, JSON encodes a symbolic size as its expression, because configs are logged as JSON."""
    original = json.JSONEncoder.default

    def default(self: json.JSONEncoder, value: Any) -> Any:
        return str(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else original(self, value)

    json.JSONEncoder.default = default  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        json.JSONEncoder.default = original  # type: ignore[method-assign]


_FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")


@contextlib.contextmanager
def _as_dtype() -> Iterator[None]:
    """While active, tensor factories accept the replacement of ``int`` as a dtype, as they accept ``int``."""
    originals = {name: getattr(torch, name) for name in _FACTORIES}

    def made(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is SymbolicInteger:
            kwargs["dtype"] = torch.int64
        return make(*args, **kwargs)

    for name, make in originals.items():
        # functools.partial, because a Python function would shift the instruction offsets that identify calls.
        setattr(torch, name, functools.partial(made, make))
    try:
        yield
    finally:
        for name, make in originals.items():
            setattr(torch, name, make)


@contextlib.contextmanager
def _not_tracing() -> Iterator[None]:
    """While active, transformers' sources take the path for tensors with data, not the path for a tracer."""
    checks = sys.modules.get("transformers.utils.import_utils")
    original = getattr(checks, "is_fake_tensor", None)
    if original is None:
        yield
        return
    vars(checks)["is_fake_tensor"] = lambda tensor: False
    try:
        yield
    finally:
        vars(checks)["is_fake_tensor"] = original


# NumPy calls a method named like its function on objects of unknown type.
torch.SymInt.sqrt = torch.sym_sqrt
