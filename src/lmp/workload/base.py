"""Base class of workloads: variables, a method that builds the module with values for them, and one that runs it."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from lmp.workload.dispatch_hook import DispatchHook
from lmp.workload.questions import Asked, Decisions
from lmp.workload.results import Results, tensors_in

RUNTIME = ("batch_size", "seq_len", "cache_len")
"""Variables of a call, as opposed to variables of the module."""


OWN_PLACE = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "layer_num"})
"""Attributes that hold a layer's position in its list. They do not distinguish kinds of layers."""


CHUNKED = "chunked prefill"
"""Name of the phase with several new tokens after cached ones."""


@dataclass(frozen=True)
class Refusal:
    """A line at which a model itself raises an error for a phase."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Variable:
    """A free variable of formulas, with the path of its value and its default."""

    name: str
    path: str
    default: int


@dataclass(frozen=True)
class LayerPattern:
    """Periodic kinds of layers: from layer ``start`` on, they repeat with ``period``."""

    start: int
    period: int


@dataclass(kw_only=True, eq=False, repr=False)
class Workload(ABC):
    """A module with the setting of its analysis. Sizes in ``values`` are plain or symbolic integers.

    Every attribute has a default here, so that no caller depends on the type of workload.
    """

    dtype: torch.dtype
    variables: dict[str, Variable] = field(default_factory=dict)
    """The module's own integers, without the runtime variables."""
    hints: dict[str, int] = field(default_factory=dict)
    """Values of the variables for runs: sizes that are recognisable in the result."""
    required: frozenset[str] = frozenset()
    """Variables without a default: an evaluation of a formula must give them."""
    flags: frozenset[str] = frozenset()
    """The variables whose value is 0 or 1."""
    aliases: dict[str, str] = field(default_factory=dict)
    """The config's own name of a variable -> the variable, if they differ. Default: none."""
    has_cache: bool = False
    """True if the module keeps a KV cache, so that decode and chunked prefill exist."""
    has_tokens: bool = True
    """True if ``seq_len`` is the length of an input; a model for images has no tokens."""
    has_encoder: bool = False
    """True if an encoder runs before the first decoder call. Calls with a cache do not run it."""
    standalone: bool = False
    """True if the module runs standalone, at sizes and on inputs that lmp found by trying."""
    vary: bool = False
    """True if every size is also run doubled, because nothing else shows the effect of a size."""

    model_class: type[Any] | None = None
    """The class of transformers that is run. None: the module runs standalone, not inside a model."""
    config: Any | None = None
    """The model's config. None: the module is constructed from arguments."""
    attention: str | None = None
    """The attention implementation that the model is built with. None: no model is built."""
    called_with: dict[str, str] = field(default_factory=dict)
    """Tensor -> its shape, if the model takes other inputs than token ids. Default: token ids only."""
    source_modules: Sequence[str] | None = None
    """Loaded Python modules in which ``int()`` keeps symbolic sizes. None: the tree's modules that define models."""

    asked: Asked = field(default_factory=dict)
    """Questions about tensor values that runs answered with yes -> the classes that asked."""
    chosen: Asked | None = None
    """Index choices that were set for the model -> the classes that asked. None: it runs without them."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """Phases in which the model itself raises an error. Only models with a cache can have any."""

    decisions: Decisions = field(default_factory=Decisions)
    """Answers of a rehearsal with values, by line of the user's code. Empty: nothing was rehearsed."""

    full_layers: dict[str, int] = field(default_factory=dict)
    """Layer count variable -> the number of layers in the full stack; the hints have fewer."""
    in_order: dict[str, int] = field(default_factory=dict)
    """Layer count variable with one layer of each kind in the hints -> smallest count of the model's first layers."""
    layer_patterns: dict[str, LayerPattern] = field(default_factory=dict)
    """Layer count variable -> the pattern of its layers, if they repeat."""
    stacks: set[str] = field(default_factory=set)
    """Paths of the stacks that these variables count."""
    by_place: bool = False
    """True if factors of similar layers depend on their positions: then one layer may not represent all."""

    @functools.cached_property
    def results(self) -> Results:
        """Operator results of the runs that only show whether the module runs."""
        return Results()

    @functools.cached_property
    def fewest_tokens(self) -> int:
        """The smallest sequence length that the module takes. It is more than 1 for a model that pools its tokens."""
        return 1

    @property
    def input_sizes(self) -> tuple[str, ...]:
        """The variables that are dimensions of the inputs, beside those of every call: an encoder's length, a width."""
        inputs = (name for name, variable in self.variables.items() if variable.path.startswith("inputs."))
        return tuple(name for name in inputs if name not in RUNTIME)

    @property
    def fixed(self) -> dict[str, str]:
        """Constructor argument that is no variable -> the value for which the formulas hold. Default: none."""
        return {}

    @property
    def fixable(self) -> tuple[str, ...]:
        """Constructor arguments that ``fix`` accepts, those already fixed included. Default: none."""
        return ()

    def fix(self, name: str) -> None:
        """Remove an argument from the variables: it keeps its value. Raises LookupError if it is not fixable."""
        raise LookupError(f"{name} is no argument that can be fixed")

    @property
    def module(self) -> torch.nn.Module | None:
        """The live module that is run, as a copy without data. None: each run constructs one from the class."""
        return None

    @abstractmethod
    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        """Construct the module on the meta device, in eval mode, with its integers set to ``values``."""

    @abstractmethod
    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Execute one call of ``batch_size`` x ``seq_len`` new tokens after ``cache_len`` cached ones, observed.

        ``before`` is entered around the call that fills the cache.
        """


def refusal(workload: Workload, point: Mapping[str, int]) -> Exception | None:
    """The exception from building or executing the module at a point; None if it runs."""
    return _tried(workload, point, workload.results.run)


def executed(workload: Workload, point: Mapping[str, int]) -> Counter[Any] | None:
    """Each operator with the shapes of its tensors, and how often it runs at a point; None if the module does not."""
    found: Counter[Any] = Counter()

    def run(func: Any, args: Any, kwargs: Any) -> Any:
        found[func, tuple(tuple(tensor.shape) for tensor in tensors_in((args, kwargs)))] += 1
        return workload.results.run(func, args, kwargs)

    return found if _tried(workload, point, run) is None else None


def _tried(workload: Workload, point: Mapping[str, int], run: Callable[[Any, Any, Any], Any]) -> Exception | None:
    try:
        workload.run(workload.build(point), point, DispatchHook(run), DispatchHook(run))
    except Exception as error:
        return error
    return None


def fewest_layers(workload: Workload, name: str) -> int:
    """The smallest number of layers that includes each kind at its place in the model."""
    return workload.in_order.get(name, workload.hints[name])
