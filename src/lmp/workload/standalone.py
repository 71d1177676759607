"""A module on its own: PyTorch's modules, and those of transformers that are constructed from plain numbers.

What the constructor and ``forward()`` take is found out from their signatures, the shapes that the class's own
docstring names, and by trying: the first sizes and shapes with which the module runs are the ones used. The
constructor's integers become variables under their own names, its booleans variables that are 0 or 1.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from lmp.errors import TraceFailed
from lmp.workload.arguments import recording
from lmp.workload.base import Turn, Variable
from lmp.workload.forgetting import forgetting

NOT_SIZES = frozenset({"device", "dtype", "args", "kwargs"})

REQUIRED_HINTS: dict[int, list[tuple[int, ...]]] = {
    0: [()],
    1: [(6,), (3,)],
    2: [(6, 24), (24, 6), (12, 12)],
    3: [(6, 24, 3), (24, 6, 3), (6, 3, 24)],
    4: [(6, 24, 3, 12)],
}
"""Values to try for the integers a constructor requires: apart, divisible one way or the other, small enough."""

OPTIONAL_HINTS = (2, 3, 1)
"""Values to try for an integer that has a default: one that shows in the result, where the module takes one."""

DIMENSION_HINTS = {
    "batch_size": 2, "seq_len": 5, "hidden_size": 48, "channels": 8,
    "length": 29, "source_len": 7, "height": 31, "width": 37, "depth": 23,
}  # fmt: skip

DOCSTRING_LETTERS = {
    "N": "batch_size", "C": "channels", "L": "seq_len", "S": "source_len", "H": "height", "W": "width", "D": "depth",
}  # fmt: skip

COMMON_SHAPES = [
    ("batch_size", "seq_len", "?"),
    ("batch_size", "?", "height", "width"),
    ("batch_size", "?", "length"),
    ("batch_size", "?", "depth", "height", "width"),
]
"""Shapes to try where the docstring names none that runs; ``?`` is the number of features or channels."""


@dataclass(frozen=True)
class InputShape:
    """Shape of one tensor that ``forward()`` takes; ``integer`` ones hold indices."""

    dimensions: tuple[str, ...]
    integer: bool = False


class StandaloneWorkload:
    """One module that is constructed from numbers, run on inputs of its own."""

    has_cache = False
    has_encoder = False
    has_tokens = True
    fewest_tokens = 1

    def __init__(self, cls: type[Any], dtype: torch.dtype = torch.bfloat16) -> None:
        self.cls, self.dtype = cls, dtype
        self.full_layers: dict[str, int] = {}
        self.in_order: dict[str, int] = {}
        self.turns: dict[str, Turn] = {}
        self.stacks: set[str] = set()
        self._fixed: dict[str, Any] = {}
        self._integers: dict[str, int] = {}
        self._defaults: dict[str, int] = {}
        self._flags: dict[str, bool] = {}
        self.inputs: dict[str, InputShape] = {}
        self._find_arguments()
        self.flags = frozenset(self._flags)
        self.variables = {
            **{n: Variable(n, f"init.{n}", self._defaults.get(n, h)) for n, h in self._integers.items()},
            **{n: Variable(n, f"init.{n}", int(v)) for n, v in self._flags.items()},
        }
        for name, shape in self.inputs.items():
            for index, dimension in enumerate(shape.dimensions):
                if dimension not in self.variables and dimension not in ("batch_size", "seq_len"):
                    path = f"inputs.{name}.shape[{index}]"
                    self.variables[dimension] = Variable(dimension, path, DIMENSION_HINTS[dimension])
        self.hints = {**{n: v.default for n, v in self.variables.items()}, **self._integers}
        self.required = frozenset(self.variables) - set(self._defaults) - self.flags

    @property
    def fixed(self) -> dict[str, str]:
        """Constructor arguments that are no variables: the formulas hold for these values of them."""
        return {name: repr(value) for name, value in self._fixed.items()}

    def fix(self, flag: str) -> None:
        """Take a flag out of the variables: it stays at its default."""
        self._fixed[flag] = self._flags.pop(flag)
        self.flags -= {flag}
        self.variables.pop(flag)
        self.hints.pop(flag)

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        arguments = dict(self._fixed)
        for name in self._integers:
            arguments[name] = values.get(name, self._integers[name])
        for name, default in self._flags.items():
            arguments[name] = bool(values.get(name, default))
        return self._construct(arguments)

    def _construct(self, arguments: Mapping[str, Any]) -> torch.nn.Module:
        # An argument that stands at its default is left out: not every constructor takes every default by name.
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device("meta"), recording(), no_initialisation():
                return self.cls(**arguments).eval().requires_grad_(False)
        finally:
            torch.set_default_dtype(before)

    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        tensors = {
            name: torch.empty(
                tuple(values.get(d, self._integers.get(d, DIMENSION_HINTS.get(d))) for d in shape.dimensions),
                dtype=torch.int64 if shape.integer else self.dtype,
                device="meta",
            )
            for name, shape in self.inputs.items()
        }
        with torch.no_grad(), forgetting(module), observer:
            module(*tensors.values())

    # -- finding out what it takes -----------------------------------------------------------------------------------

    def _find_arguments(self) -> None:
        """Try constructor values and input shapes until the module runs. Raises TraceFailed when nothing does."""
        parameters = [
            p
            for n, p in list(inspect.signature(self.cls.__init__).parameters.items())[1:]
            if n not in NOT_SIZES and not n.startswith("_") and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        required = [p.name for p in parameters if p.default is p.empty]
        optional = {p.name: p.default for p in parameters if p.default is not p.empty}
        self._flags = {n: v for n, v in optional.items() if isinstance(v, bool)}
        whole = {n: v for n, v in optional.items() if type(v) is int}
        absent = [n for n, v in optional.items() if v is None]
        self._fixed = {n: v for n, v in optional.items() if n not in self._flags and n not in whole}
        failure = "it was never constructed"
        # Where the defaults alone do not run (Upsample wants a size), one of the absent arguments is given a value.
        extras: list[list[str]] = [[], *([name] for name in absent)]
        for extra in extras:
            for hints in REQUIRED_HINTS.get(len(required), []):
                self._integers = {**dict(zip(required, hints, strict=False)), **whole, **dict.fromkeys(extra, 6)}
                self._fixed = {n: v for n, v in optional.items() if n not in self._flags and n not in self._integers}
                for shapes in self._input_candidates(required + extra):
                    self.inputs = shapes
                    problem = self._attempt()
                    if problem is None:
                        self._defaults = dict(whole)
                        self._widen(whole)
                        return
                    failure = problem
        raise TraceFailed(
            f"{self.cls.__module__}.{self.cls.__qualname__} does not run on its own: {failure}\n"
            "It is analysed inside a model where one of its file contains it."
        )

    def _attempt(self) -> str | None:
        try:
            self.run(self.build({}), {}, contextlib.nullcontext())
        except Exception as error:
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        return None

    def _widen(self, whole: dict[str, int]) -> None:
        """Give optional integers values that show in the shapes, one after the other, where the module still runs."""
        for name, default in whole.items():
            for hint in OPTIONAL_HINTS:
                self._integers[name] = hint
                if hint != default and self._attempt() is None:
                    break
            else:
                self._integers.pop(name)
                self._fixed[name] = default

    def _input_candidates(self, sizes: list[str]) -> Iterator[dict[str, InputShape]]:
        names = [
            n
            for n, p in list(inspect.signature(self.cls.forward).parameters.items())[1:]
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        # A size that is called channels or features is what the docstring calls C or features; where any number
        # will do, it is a variable of its own; else it is another of the constructor's sizes.
        named = [n for n in sizes if "channels" in n or "features" in n]
        features = [*named, "hidden_size", *(n for n in sizes if n not in named)]
        text = f"{self.cls.forward.__doc__ or ''}\n{self.cls.__doc__ or ''}"
        told = [_docstring_shapes(text, name) for name in names]
        templates: list[tuple[tuple[str, ...], ...]] = []
        if told and all(told):
            templates += [tuple(shapes[i] for shapes in told) for i in range(min(map(len, told)))]
        templates += [(shape,) * len(names) for shape in COMMON_SHAPES]
        # What is called so is looked up, whatever else would run.
        ids = bool(names) and all(name.endswith("_ids") for name in names)
        indices = ids or re.search(r"(IntTensor|LongTensor)", text) is not None
        if indices:
            yield {name: InputShape(("batch_size", "seq_len"), integer=True) for name in names}
        for template in dict.fromkeys(templates):
            for chosen in itertools.product(features, repeat=len(names)):
                yield {
                    name: InputShape(tuple(_channel(f, shape) if d == "?" else d for d in shape))
                    for name, shape, f in zip(names, template, chosen, strict=True)
                }
        if not indices:
            yield {name: InputShape(("batch_size", "seq_len"), integer=True) for name in names}


def _channel(feature: str, template: tuple[str, ...]) -> str:
    """A free size is called hidden_size as a last dimension, channels elsewhere."""
    return feature if feature != "hidden_size" or template[-1] == "?" else "channels"


def _docstring_shapes(text: str, argument: str) -> list[tuple[str, ...]]:
    """Shapes of an argument that the docstring states, batched ones first: ``(N, C, H_{in}, W_{in})``."""
    match = re.search(rf"(?:^|\n)[^\n]*\b{argument}\b[^\n]*:math:`\(", text, re.IGNORECASE)
    if match is None:
        return []
    section = text[match.start() : match.start() + 400]
    found: list[tuple[str, ...]] = []
    for body in re.findall(r":math:`\(([^`]*?)\)`", section):
        letters = [
            re.sub(r"[^A-Za-z*]", "", part.replace("\\text", ""))[:1] for part in body.split(",") if part.strip()
        ]
        if not letters or (len(letters) < 3 and "*" not in letters):
            continue
        found.append(_dimensions(letters))
    # Batched before unbatched; images before signals and volumes; then the one with most dimensions.
    return sorted(found, key=lambda shape: ("batch_size" not in shape, len(shape) != 4, -len(shape)))


def _dimensions(letters: list[str]) -> tuple[str, ...]:
    if "*" in letters and letters[:2] != ["N", "C"]:
        return ("batch_size", "seq_len", "?")
    shape = [DOCSTRING_LETTERS.get(letter, "?") for letter in letters]
    if "channels" in shape:
        shape[shape.index("channels")] = "?"
        # Along channels, L is a length in samples, not a number of tokens; a trailing * is any one dimension.
        return tuple("length" if d in ("seq_len",) or letters[i] == "*" else d for i, d in enumerate(shape))
    return tuple(shape)


@contextlib.contextmanager
def no_initialisation() -> Iterator[None]:
    """Skip the filling of weights: there are none on the meta device, and a symbolic fan-in is no number."""
    names = [n for n in vars(torch.nn.init) if n.endswith("_") and callable(getattr(torch.nn.init, n))]
    originals = {name: getattr(torch.nn.init, name) for name in names}
    try:
        for name in names:
            setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.nn.init, name, original)
