"""What every workload is: variables, a way to build the module with values for them, and a way to run it once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

RUNTIME = ("batch_size", "seq_len", "cache_len")
"""Variables that belong to a call, not to the module."""


OWN_PLACE = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "layer_num"})
"""Attributes that say where in its list a layer stands; they make no other kind of layer."""


CHUNKED = "chunked prefill"
"""Several new tokens after cached ones."""


@dataclass(frozen=True)
class Refusal:
    """A line at which a model says itself that it does not run in a phase."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Variable:
    """A free variable of formulas: where its value comes from, and the value it has by default."""

    name: str
    path: str
    default: int


@dataclass(frozen=True)
class Turn:
    """From the layer ``start`` on, kinds of layers come again after every ``period`` layers."""

    start: int
    period: int


class Workload(Protocol):
    """A module in the setting in which it is analysed. Sizes in ``values`` may be plain or symbolic integers."""

    dtype: torch.dtype
    variables: dict[str, Variable]
    """The module's own integers; the runtime variables are not in it."""
    hints: dict[str, int]
    """Values of the variables to run at: sizes that show in the result."""
    required: frozenset[str]
    """Variables that have no default: whoever evaluates a formula must give them."""
    flags: frozenset[str]
    """Those of the variables that are 0 or 1."""
    has_cache: bool
    """Whether the module keeps a KV cache, so that decode and chunked prefill exist."""
    has_tokens: bool
    """Whether ``seq_len`` is the length of something; a model that sees pictures has no tokens."""
    has_encoder: bool
    """Whether an encoder runs first, and only where there is no cache yet."""
    full_layers: dict[str, int]
    """Variables that say how many layers a stack has -> how many it has in full; the hints have fewer."""
    in_order: dict[str, int]
    """Those of them for which the hints' layers are one of each kind -> from how many on they are the model's first."""
    turns: dict[str, Turn]
    """Those of them whose kinds of layers come again in turn -> how."""
    stacks: set[str]
    """Paths of these stacks."""

    @property
    def fewest_tokens(self) -> int:
        """The shortest sequence that the module takes: a model that pools its tokens may not take a single one."""
        ...

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        """Construct the module on the meta device, in eval mode, with its integers set to ``values``."""
        ...

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
        ...


def refusal(workload: Workload, point: Mapping[str, int]) -> Exception | None:
    """What building or executing the module at a point ends with; None where it runs."""
    try:
        workload.run(workload.build(point), point, contextlib.nullcontext())
    except Exception as error:
        return error
    return None


def fewest_layers(workload: Workload, name: str) -> int:
    """So few layers that there is one of each kind, where they stand as in the model."""
    return workload.in_order.get(name, workload.hints[name])


def refused_by(workload: Workload) -> Mapping[str, Refusal]:
    """The phases in which a workload's model says that it does not run; only models with a cache can have any."""
    found: Mapping[str, Refusal] = getattr(workload, "refused", {})
    return found
