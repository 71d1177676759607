"""Standalone workload: PyTorch's modules, and those of transformers that are constructed from plain numbers.

The arguments of the constructor and of ``forward()`` come from signatures, shapes in the class's docstring, and trying.
The first sizes and shapes with which the module runs are used. The constructor's integers become variables with the
same names. Its booleans become variables that are 0 or 1.
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

from lmp.errors import TraceFailed, first_line
from lmp.workload.arguments import recording
from lmp.workload.base import Variable, Workload
from lmp.workload.cache_clearing import caches_cleared
from lmp.workload.failures import hand_on

NOT_SIZES = frozenset({"device", "dtype", "args", "kwargs"})

REQUIRED_HINTS: dict[int, list[tuple[int, ...]]] = {
    0: [()],
    1: [(6,), (3,)],
    2: [(6, 24), (24, 6), (12, 12)],
    3: [(6, 24, 3), (24, 6, 3), (6, 3, 24)],
    4: [(6, 24, 3, 12)],
}
"""Values to try for the required integers of a constructor: distinct, divisible in one direction, and small."""

OPTIONAL_HINTS = (2, 3, 1)
"""Values to try for an integer with a default, those that are recognisable in the result first."""

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
"""Shapes to try if none in the docstring runs; ``?`` is the number of features or channels."""


@dataclass(frozen=True)
class InputShape:
    """Shape of one input tensor of ``forward()``. A tensor with ``integer`` holds indices."""

    dimensions: tuple[str, ...]
    integer: bool = False


class StandaloneWorkload(Workload):
    """A single module that is constructed from numbers and runs on inputs of its own."""

    def __init__(self, cls: type[Any], dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(dtype=dtype, standalone=True)
        self.cls = cls
        self._fixed: dict[str, Any] = {}
        self._integers: dict[str, int] = {}
        self._defaults: dict[str, int] = {}
        self._flags: dict[str, bool] = {}
        self.inputs: dict[str, InputShape] = {}
        self._find_arguments()
        self.flags = frozenset(self._flags)
        self._all_flags = tuple(sorted(self._flags))
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
        return {name: repr(value) for name, value in self._fixed.items()}

    @property
    def fixable(self) -> tuple[str, ...]:
        return self._all_flags

    def fix(self, name: str) -> None:
        """Remove a flag from the variables: it keeps its default."""
        self._fixed[name] = self._flags.pop(name)
        self.flags -= {name}
        self.variables.pop(name)
        self.hints.pop(name)

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        arguments = dict(self._fixed)
        for name in self._integers:
            arguments[name] = values.get(name, self._integers[name])
        for name, default in self._flags.items():
            arguments[name] = bool(values.get(name, default))
        return self._construct(arguments)

    def _construct(self, arguments: Mapping[str, Any]) -> torch.nn.Module:
        # Arguments with their default are left out: not every constructor accepts every default by name.
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device("meta"), recording(), no_initialisation():
                return hand_on(self.cls, **arguments).eval()
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
        with torch.no_grad(), caches_cleared(module), observer:
            hand_on(module, *tensors.values())

    # -- search for arguments ----------------------------------------------------------------------------------------

    def _find_arguments(self) -> None:
        """Try constructor values and input shapes until the module runs. Raises TraceFailed if none works."""
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
        # If the defaults do not run (Upsample needs a size), one of the absent arguments gets a value.
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
        name = f"{self.cls.__module__}.{self.cls.__qualname__}"
        then = "It is analysed inside a model where one of its file contains it."
        if name.startswith("torch."):
            then = 'say how it is called, as in --init "input_size=64" --inputs "input: float[batch_size, input_size]"'
        raise TraceFailed(f"{name} does not run on its own: {failure}\n{then}")

    def _attempt(self) -> str | None:
        try:
            self.run(self.build({}), {}, contextlib.nullcontext())
        except Exception as error:
            return first_line(error)
        return None

    def _widen(self, whole: dict[str, int]) -> None:
        """Set optional integers to values that are recognisable in the shapes, one by one, if the module still runs."""
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
        # A size with channels or features in its name is the docstring's C or features. If any number is accepted, it
        # is a variable. Otherwise it is another of the constructor's sizes.
        named = [n for n in sizes if "channels" in n or "features" in n]
        features = [*named, "hidden_size", *(n for n in sizes if n not in named)]
        text = f"{self.cls.forward.__doc__ or ''}\n{self.cls.__doc__ or ''}"
        told = [_docstring_shapes(text, name) for name in names]
        templates: list[tuple[tuple[str, ...], ...]] = []
        if told and all(told):
            templates += [tuple(shapes[i] for shapes in told) for i in range(min(map(len, told)))]
        templates += [(shape,) * len(names) for shape in COMMON_SHAPES]
        # Arguments with these names are looked up in a table, even if other inputs run too.
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
    """The name of a free size: hidden_size as a last dimension, channels elsewhere."""
    return feature if feature != "hidden_size" or template[-1] == "?" else "channels"


def _docstring_shapes(text: str, argument: str) -> list[tuple[str, ...]]:
    """Shapes of an argument in the docstring, batched ones first: ``(N, C, H_{in}, W_{in})``."""
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
    # Batched before unbatched, images before signals and volumes, then most dimensions first.
    return sorted(found, key=lambda shape: ("batch_size" not in shape, len(shape) != 4, -len(shape)))


def _dimensions(letters: list[str]) -> tuple[str, ...]:
    if "*" in letters and letters[:2] != ["N", "C"]:
        return ("batch_size", "seq_len", "?")
    shape = [DOCSTRING_LETTERS.get(letter, "?") for letter in letters]
    if "channels" in shape:
        shape[shape.index("channels")] = "?"
        # After channels, L is a length in samples and no number of tokens. A final * is any one dimension.
        return tuple("length" if d in ("seq_len",) or letters[i] == "*" else d for i, d in enumerate(shape))
    return tuple(shape)


@contextlib.contextmanager
def no_initialisation() -> Iterator[None]:
    """Skip weight initialisation: the meta device has no weights, and a symbolic fan-in is no number."""
    names = [n for n in vars(torch.nn.init) if n.endswith("_") and callable(getattr(torch.nn.init, n))]
    originals = {name: getattr(torch.nn.init, name) for name in names}
    try:
        for name in names:
            setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.nn.init, name, original)
