"""Workload of a user's module: constructed from given arguments, called with tensors of given shapes."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from lmp.errors import LmpError, TraceFailed, UsageError
from lmp.records import UNIVERSAL
from lmp.workload.arguments import constructor_parameters, recording
from lmp.workload.base import RUNTIME, Variable, Workload, refusal
from lmp.workload.cache_clearing import caches_cleared
from lmp.workload.failures import hand_on
from lmp.workload.questions import Decisions, Policy, Rehearsed, UndecidedError
from lmp.workload.spec import Construct, Input, Spec, TensorInput, TupleInput, is_plain, tensors
from lmp.workload.standalone import NOT_SIZES, no_initialisation

DIMENSION_HINTS = (
    (24, 20, 28, 36, 44, 52), (64, 96, 160, 224, 288, 352), (224, 224, 224), (64, 64, 64), (16, 8, 4), (1, 1, 1),
)  # fmt: skip
"""Values to try for dimensions of the inputs only: first distinct ones, then sizes of images."""

MOST_REHEARSED = 2**28
"""Limit of weight elements for a run with values on the CPU. Only a source that asks for values needs one."""

_DTYPES = {
    "int": torch.int64, "long": torch.int64, "int64": torch.int64, "int32": torch.int32, "bool": torch.bool,
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
}  # fmt: skip

RUNTIME_HINTS = {"batch_size": 2, "seq_len": 5, "cache_len": 7}

MORE_TOKENS = (11, 37, 150, 603, 2411)
"""Tokens that are tried if a module does not run with those of the hints: it may need a whole window."""

MULTIPLES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
"""Numbers of tokens whose multiples are tried, beside arguments, if a module does not run with any number."""


class InputsWorkload(Workload):
    """A class with a ``Spec``. Its positive integers and its booleans are variables, its other arguments are fixed.

    Raises UsageError if the spec does not fit the class, with the error of its constructor or ``forward()``.
    """

    _defaults: Mapping[str, Any] = {}
    """Plain defaults of constructor arguments that are not given."""

    def __init__(
        self, cls: type[Any], spec: Spec, dtype: torch.dtype = torch.bfloat16, decisions: Decisions | None = None
    ) -> None:
        super().__init__(dtype=dtype, vary=True, source_modules=())
        self.cls, self.spec = cls, spec
        self.decisions = decisions if decisions is not None else Decisions()
        self._rehearsed = Decisions()
        self._check_inputs()
        self.init = self._all_arguments()
        self.leaves = dict(_leaves(self.init, ()))
        """Variable -> its path among the constructor's arguments."""
        self._set_variables()
        self._find_hints()

    def _set_variables(self) -> None:
        values = {name: _at(self.init, where) for name, where in self.leaves.items()}
        self.flags = frozenset(n for n, v in values.items() if isinstance(v, bool))
        self.variables = {n: Variable(n, f"init.{'.'.join(w)}", int(values[n])) for n, w in self.leaves.items()}
        self.has_cache = any("cache_len" in d.names() for _, t in tensors(self.spec.inputs) for d in t.dims)
        own: dict[str, str] = {}
        for path, tensor in tensors(self.spec.inputs):
            for index, dim in enumerate(tensor.dims):
                if isinstance(dim.value, str) and dim.value not in (*RUNTIME, *self.variables):
                    own.setdefault(dim.value, f"inputs.{path}.shape[{index}]")
        self._check_names(own)
        self.required = frozenset(own)
        self._own_paths = own

    @property
    def fixed(self) -> dict[str, str]:
        taken = set(self.leaves.values())
        found = {".".join(w): repr(v) for w, v in _values(self.init, ()) if w not in taken}
        left_out = {n: repr(v) for n, v in self._defaults.items() if n not in self.init}
        return left_out | found | {n: repr(v) for n, v in self.spec.inputs.items() if not isinstance(v, Input)}

    @property
    def fixable(self) -> tuple[str, ...]:
        return tuple(self._all_leaves)

    def fix(self, name: str) -> None:
        """Remove an argument from the variables: it keeps the given value."""
        self.leaves.pop(name)
        self.variables.pop(name)
        self.hints.pop(name)
        self.flags -= {name}
        self._fixed_names[name] = int(_at(self.init, self._all_leaves[name]))

    # -- building and running ----------------------------------------------------------------------------------------

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        arguments = dict(self.init)
        for name, where in self.leaves.items():
            value = values.get(name, self.variables[name].default)
            arguments = _placed(arguments, where, bool(value) if name in self.flags else value)
        return self._construct(arguments, "meta")

    def _construct(self, arguments: Mapping[str, Any], device: str) -> torch.nn.Module:
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        skipped = no_initialisation() if device == "meta" else contextlib.nullcontext()
        try:
            with torch.device(device), recording(), skipped, self._answering(device), _as_known_errors():
                made: torch.nn.Module = hand_on(self.cls, **{n: self._made(v) for n, v in arguments.items()})
                return made.eval()
        finally:
            torch.set_default_dtype(before)

    def _made(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._made(v) for v in value)
        if not isinstance(value, Construct):
            return value
        return hand_on(_named(value.name, self.cls), **{n: self._made(v) for n, v in value.arguments.items()})

    def _answering(self, device: str) -> Policy:
        return Rehearsed(self.decisions if device == "meta" else self._rehearsed, rehearsing=device != "meta")

    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        sizes = {**self._fixed_names, **values}
        made = {n: self._tensor(v, sizes, "meta") if isinstance(v, Input) else v for n, v in self.spec.inputs.items()}
        self._call(module, made, "meta", observer)

    def _call(
        self, module: torch.nn.Module, given: Mapping[str, Any], device: str, observer: AbstractContextManager[Any]
    ) -> None:
        # Tensors that forward() makes without a device go to the device of its inputs.
        answering, known = self._answering(device), _as_known_errors()
        with torch.no_grad(), torch.device(device), answering, caches_cleared(module), observer, known:
            hand_on(module, **given)

    def _tensor(self, value: Any, sizes: Mapping[str, Any], device: str) -> Any:
        if isinstance(value, TupleInput):
            return tuple(self._tensor(part, sizes, device) for part in value.parts)
        shape = tuple(dim.size(sizes) for dim in value.dims)
        dtype = self.dtype_of(value)
        if device == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        if dtype.is_floating_point:
            return torch.randn(shape, dtype=torch.float32).to(dtype)
        return torch.ones(shape, dtype=dtype) if dtype is torch.bool else torch.randint(0, 2, shape, dtype=dtype)

    def dtype_of(self, tensor: TensorInput) -> torch.dtype:
        return _DTYPES.get(tensor.dtype, self.dtype)

    # -- checks of the arguments -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.cls.__qualname__

    def _check_inputs(self) -> None:
        """Check that ``forward()`` takes the inputs, and that no required input is missing. Raises UsageError."""
        parameters = dict(list(inspect.signature(self.cls.forward).parameters.items())[1:])
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        names = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for name in self.spec.inputs:
            if name not in names and not takes_any:
                raise UsageError(
                    f"{self.name}.forward() takes no {name}{_closest(name, names)}\n"
                    f"it takes {', '.join(names) or 'nothing'}: name these in --inputs"
                )
        missing = [n for n in names if parameters[n].default is inspect.Parameter.empty and n not in self.spec.inputs]
        if missing:
            example = f"{missing[0]}: float[batch_size, seq_len, 256]"
            raise UsageError(
                f"{self.name}.forward() needs {' and '.join(missing)}, which --inputs does not name\n"
                f'say its shape, as in --inputs "{example}"'
            )

    def _all_arguments(self) -> dict[str, Any]:
        """The given arguments, and the integer and boolean defaults of the others. Raises UsageError."""
        parameters = constructor_parameters(self.cls)
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            names = [*parameters, *self.spec.init]
        else:
            names = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for name in self.spec.init:
            if name not in names:
                raise UsageError(
                    f"{self.name}() takes no {name}{_closest(name, names)}\n"
                    f"it takes {', '.join(names) or 'nothing'}: name these in --init"
                )
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        wanted = {n: p for n, p in parameters.items() if p.kind not in kinds}
        missing = [n for n, p in wanted.items() if p.default is p.empty and n not in self.spec.init]
        if missing:
            raise UsageError(
                f"{self.name}() needs {' and '.join(missing)}, which --init does not name\n"
                f'give a value, as in --init "{missing[0]}=256"'
            )
        self._defaults = {n: p.default for n, p in wanted.items() if is_plain(p.default) and n not in NOT_SIZES}
        found = dict(self.spec.init)
        for name, parameter in wanted.items():
            default = parameter.default
            if name not in found and type(default) in (int, bool) and name not in NOT_SIZES:
                found[name] = default
        return {n: self._with_defaults(v) for n, v in found.items()}

    def _with_defaults(self, value: Any) -> Any:
        """An object to be constructed, with the integer and boolean defaults of its class's own arguments."""
        if not isinstance(value, Construct):
            return value
        parameters = inspect.signature(_named(value.name, self.cls)).parameters
        defaults = {n: p.default for n, p in parameters.items() if type(p.default) in (int, bool)}
        given = {n: self._with_defaults(v) for n, v in value.arguments.items()}
        return Construct(value.name, {**defaults, **given})

    def _check_names(self, own: Mapping[str, str]) -> None:
        """Check that every name in a dimension has a value from the inputs or the constructor. Raises UsageError."""
        alone = {d.value for _, t in tensors(self.spec.inputs) for d in t.dims if isinstance(d.value, str)}
        for path, tensor in tensors(self.spec.inputs):
            for dim in tensor.dims:
                for name in dim.names():
                    if name in UNIVERSAL:
                        raise UsageError(
                            f"{name} is the size of an element in bytes, not a dimension\n"
                            "give the dimension another name"
                        )
                    if name not in alone and name not in self.variables:
                        raise UsageError(
                            f"--inputs: {name} stands only in {dim} of {path}: its value cannot be determined from the "
                            "inputs\ngive it a dimension of its own, or the constructor's argument that it is"
                        )

    def _find_hints(self) -> None:
        """Set the values for runs: the given ones, and for input dimensions the first ones that run."""
        self._fixed_names: dict[str, int] = {}
        self._tokens = RUNTIME_HINTS["seq_len"]
        self._all_leaves = dict(self.leaves)
        given = {n: v.default for n, v in self.variables.items()}
        first: UsageError | None = None
        for hints in DIMENSION_HINTS if self._own_paths else ((),):
            own = {n: hints[i % len(hints)] for i, n in enumerate(self._own_paths)}
            self.hints = {**given, **own}
            problem = self._problem()
            if problem is not None and self._needs_tokens:
                problem = self._with_more_tokens(problem)
            if problem is None:
                self.variables |= {n: Variable(n, p, own[n]) for n, p in self._own_paths.items()}
                self._spread_apart()
                return
            first = first or problem
        assert first is not None
        raise self._in_multiples(first)

    @property
    def _needs_tokens(self) -> bool:
        """True if an input has the tokens as a dimension, and no cache has them."""
        return not self.has_cache and any("seq_len" in d.names() for _, t in tensors(self.spec.inputs) for d in t.dims)

    def _with_more_tokens(self, problem: UsageError) -> UsageError | None:
        """Take the first larger number of tokens with which the module runs, and with any number beyond it."""
        for tokens in MORE_TOKENS:
            if all(self._takes(tokens + more) for more in (0, 1, 2, 4)):
                self._tokens = tokens
                return self._problem()
        return problem

    def _in_multiples(self, problem: UsageError) -> UsageError:
        """The error, with the number whose multiples the module takes, if there is one."""
        if not self._needs_tokens:
            return problem
        tries = sorted(
            {*MULTIPLES, *(v for n, v in self.hints.items() if 1 < v <= MULTIPLES[-1] and n not in self.flags)}
        )
        step = next((n for n in tries if all(self._takes(n * k) for k in (1, 2, 3, 7))), None)
        if step is None:
            return problem
        first = str(problem).partition("\n")[0]
        return UsageError(
            f"{first}\n{self.name} takes multiples of {step} tokens only: pad them in its forward(), or write a number "
            f"such as {4 * step} in place of seq_len in --inputs"
        )

    def _spread_apart(self) -> None:
        """Run arguments that were given as equal numbers at different ones, if the module takes them."""
        for name in [n for n in self.leaves if n not in self.flags]:
            same = [n for n in self.hints if n not in self.flags and self.hints[n] == self.hints[name] != 1]
            if len(same) > 1 and name != same[0]:
                before = dict(self.hints)
                self.hints = {**before, name: before[name] * 2}
                if self._problem() is not None:
                    self.hints = before

    @functools.cached_property
    def fewest_tokens(self) -> int:
        """The smallest number of tokens with which the module runs, or that of the first runs if none is smaller."""
        most = RUNTIME_HINTS["seq_len"]
        few = next((n for n in range(1, most) if self.has_cache or self._takes(n)), most)
        if few < most or self._tokens == most:
            return few
        low, high = few - 1, self._tokens
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._takes(middle) else (middle, high)
        return high

    def _takes(self, tokens: int) -> bool:
        """True if this number of tokens is not refused. An undecided question about values is no refusal."""
        point = {**RUNTIME_HINTS, **self.hints, "seq_len": tokens, "cache_len": 0}
        error = refusal(self, point)
        return error is None or isinstance(error, UndecidedError)

    def _problem(self) -> UsageError | None:
        """The reason why the module does not run as given, None if it runs. Decisions on values are rehearsed."""
        point = {**RUNTIME_HINTS, **self.hints, "seq_len": self._tokens}
        if not self.has_cache:
            point["cache_len"] = 0
        step = f"{self.name}() cannot be constructed on the meta device"
        try:
            try:
                module = self.build(point)
                step = f"{self.name}.forward() does not run"
                self.run(module, point, contextlib.nullcontext())
            except UndecidedError as asked:
                self._rehearse(point, asked)
                module = self.build(point)
                self.run(module, point, contextlib.nullcontext())
        except LmpError:
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:160] or type(error).__name__
            where = _innermost(error, self.folder)
            if isinstance(error, NotImplementedError) and "data-independent" in str(error):
                raise TraceFailed(
                    f"{self.name}.forward(): the size of a result depends on the values of a tensor{where}\n"
                    "no formula in sizes can say what that costs; select by a mask that keeps the shape, or by topk()"
                ) from error
            if "constructed" in step:
                shown = self.spec.init_text() or "no arguments"
                return UsageError(f"{step} with {shown}: {reason}{where}\ngive other arguments in --init")
            shapes = ", ".join(f"{n}: {self._shape(t, point)}" for n, t in tensors(self.spec.inputs))
            return UsageError(f"{step} with {shapes}: {reason}{where}\ngive other shapes in --inputs")
        return None

    def _shape(self, tensor: TensorInput, point: Mapping[str, int]) -> str:
        dtype = str(self.dtype_of(tensor)).removeprefix("torch.")
        return f"{dtype}[{', '.join(str(d.size({**self._fixed_names, **point})) for d in tensor.dims)}]"

    @property
    def folder(self) -> str:
        """The folder of the class's file, with a final slash; empty if there is none."""
        file = getattr(sys.modules.get(self.cls.__module__), "__file__", None)
        return str(Path(file).parent) + "/" if file else ""

    def _rehearse(self, point: Mapping[str, int], asked: UndecidedError) -> None:
        """Run the module once with values and record the answers. Raises TraceFailed for too many weights."""
        weights = sum(p.numel() for p in self._weights(point))
        file, line = asked.place
        if weights > MOST_REHEARSED:
            raise TraceFailed(
                f"{self.name} decides on the values of a tensor at {Path(file).name}:{line}, and is too large to be "
                f"run with values here ({weights:,} weights)\ngive smaller sizes: the formulas hold for all of them"
            )
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            module = self._real(point)
            given = {
                n: self._tensor(v, {**self._fixed_names, **point}, "cpu") if isinstance(v, Input) else v
                for n, v in self.spec.inputs.items()
            }
            self._call(module, given, "cpu", contextlib.nullcontext())
        self.decisions.answers = {**self._rehearsed.answers, **self.decisions.answers}

    def _weights(self, point: Mapping[str, int]) -> Iterator[torch.Tensor]:
        try:
            yield from self.build(point).parameters()
        except UndecidedError:
            return  # the constructor itself asks, so its weights are unknown

    def _real(self, point: Mapping[str, int]) -> torch.nn.Module:
        """The module with values, on the CPU."""
        arguments = dict(self.init)
        for name, where in self.leaves.items():
            arguments = _placed(arguments, where, bool(point[name]) if name in self.flags else point[name])
        return self._construct(arguments, "cpu")


@contextlib.contextmanager
def _as_known_errors() -> Iterator[None]:
    """Convert the user's own exception types to RuntimeError, so that refusals of sizes are recognised.

    AttributeError stays as it is: it may be lmp's own error.
    """
    try:
        yield
    except (LmpError, ArithmeticError, AssertionError, AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise RuntimeError(f"{type(error).__name__}: {first}").with_traceback(error.__traceback__) from error


def _named(name: str, cls: type[Any]) -> Callable[..., Any]:
    """The class of this name in the analysed class's module, or at this full path. Else raises UsageError."""
    found = vars(sys.modules[cls.__module__]).get(name)
    if found is None and "." in name:
        module, _, last = name.rpartition(".")
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(module), last, None)
    if not isinstance(found, type):
        raise UsageError(
            f"--init: there is no class {name} in {cls.__module__}\ngive its full path, as in pkg.config.{name}(...)"
        )
    return found


def _values(arguments: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every plain value with the path of names to it."""
    for name, value in arguments.items():
        if isinstance(value, Construct):
            yield from _values(value.arguments, (*above, name))
        else:
            yield (*above, name), value


def _leaves(arguments: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Variables with their paths: sizes and booleans. The name is the last of the path, or all of it if that exists."""
    seen: set[str] = {*RUNTIME, *UNIVERSAL}
    for where, value in _values(arguments, above):
        if isinstance(value, bool) or (type(value) is int and value > 0):
            name = where[-1] if where[-1] not in seen else "_".join(("init", *where))
            seen.add(name)
            yield name, where


def _at(arguments: Any, where: tuple[str, ...]) -> Any:
    for step in where:
        arguments = arguments.arguments[step] if isinstance(arguments, Construct) else arguments[step]
    return arguments


def _placed(arguments: Mapping[str, Any], where: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The arguments with another value at one path."""
    first, rest = where[0], where[1:]
    if not rest:
        return {**arguments, first: value}
    inner: Construct = arguments[first]
    return {**arguments, first: Construct(inner.name, _placed(inner.arguments, rest, value))}


def _closest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {close[0]}?" if close else ""


def _innermost(error: Exception, folder: str) -> str:
    """`` (blocks.py:12)``: the innermost line of the traceback in the user's folder; empty if there is none."""
    inside = [f for f in traceback.extract_tb(error.__traceback__) if folder and f.filename.startswith(folder)]
    return f" ({Path(inside[-1].filename).name}:{inside[-1].lineno})" if inside else ""
