"""Workload of a live module: a copy without data is analysed, and the instance stays unchanged."""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lmp.errors import UsageError
from lmp.workload.arguments import constructor_arguments, remember
from lmp.workload.inputs import InputsWorkload
from lmp.workload.kinds import SAME_INSTANCE, kind_of
from lmp.workload.questions import Decisions
from lmp.workload.spec import Spec

Twin = Callable[[torch.Tensor], torch.Tensor]
"""Function from a tensor to its replacement in a copy."""


class LiveWorkload(InputsWorkload):
    """An instance with the inputs of a ``Spec``. Its own sizes are plain numbers; the inputs' sizes are variables.

    Raises UsageError if the module cannot be copied, or the inputs do not fit it.
    """

    def __init__(self, module: torch.nn.Module, spec: Spec, decisions: Decisions | None = None) -> None:
        self._instance = meta_copy(module)
        super().__init__(type(module), spec, dtype_of(module), decisions)

    @property
    def module(self) -> torch.nn.Module:
        return self._instance

    def _all_arguments(self) -> dict[str, Any]:
        return {}

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        return meta_copy(self.module).eval()

    def _real(self, point: Mapping[str, int]) -> torch.nn.Module:
        return copied(self.module, _random).eval()


def dtype_of(module: torch.nn.Module) -> torch.dtype:
    """The dtype of the module's first floating parameter or buffer; float32 if there is none."""
    tensors = (*module.parameters(), *module.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)


def meta_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy with every tensor on the meta device, with tied weights and without hooks. Does not run the original."""
    return copied(module, _without_data)


def copied(module: torch.nn.Module, twin: Twin) -> torch.nn.Module:
    """A deep copy in which ``twin`` replaces each tensor. Raises UsageError if copying fails."""
    memo: dict[int, Any] = {}
    for inner in module.modules():
        for name, value in vars(inner).items():
            if name.endswith("_hooks") or "_hooks_" in name:
                # Hooks are the user's code and may have side effects: a copy has none.
                memo[id(value)] = type(value)() if isinstance(value, dict) else OrderedDict()
    try:
        for tensor in (*module.parameters(), *module.buffers()):
            if id(tensor) not in memo:
                memo[id(tensor)] = _like(tensor, twin)
        with _Twins(twin):
            found: torch.nn.Module = copy.deepcopy(module, memo)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:160]
        raise UsageError(
            f"{type(module).__qualname__} cannot be copied: {type(error).__name__}: {reason}\n"
            "give its class instead, with init=..., or take out of it what copy.deepcopy() refuses"
        ) from error
    for inner, original in zip(found.modules(), module.modules(), strict=True):
        remember(inner, constructor_arguments(original) or attributes_as_arguments(inner))
    return found


class _Twins(TorchFunctionMode):
    """Replaces tensors that are neither parameters nor buffers, wherever they are stored."""

    def __init__(self, twin: Twin) -> None:
        super().__init__()
        self._twin = twin

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = _like(tensor, self._twin)
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


def _like(tensor: torch.Tensor, twin: Twin) -> torch.Tensor:
    with torch.no_grad():
        made = twin(tensor)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def _random(tensor: torch.Tensor) -> torch.Tensor:
    """Values for a rehearsal: small floats, and zeros for integers, which are valid indices."""
    if tensor.is_floating_point():
        return (torch.randn(tensor.shape, dtype=torch.float32) / 8).to(tensor.dtype)
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def attributes_as_arguments(module: torch.nn.Module) -> dict[str, Any]:
    """Constructor arguments of PyTorch's modules, which store them under the arguments' names."""
    if not type(module).__module__.startswith("torch.nn."):
        return {}
    names = list(inspect.signature(type(module).__init__).parameters)[1:]
    return {n: getattr(module, n) for n in names if hasattr(module, n)}


def kind(module: torch.nn.Module) -> Any:
    """The key of an instance: classes, plain attributes and tensor shapes. Equal keys mean equal costs."""
    return kind_of(module, SAME_INSTANCE)
