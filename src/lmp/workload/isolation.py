"""Isolation of the engine inside a user's process: restores the state of PyTorch and Python that it changes."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import module as nn_module


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Restore, also after an error: random states, default dtype, global module hooks, ``sys.path``, environment.

    The user's global module hooks are disabled meanwhile: they do not run on lmp's copies.
    """
    randomness = random.getstate(), torch.get_rng_state(), _numpy_state()
    dtype, attention = torch.get_default_dtype(), torch.nn.functional.scaled_dot_product_attention
    path, environment = list(sys.path), dict(os.environ)
    hooks = {name: dict(value) for name, value in _global_hooks().items()}
    trace = sys.gettrace()
    try:
        for value in _global_hooks().values():
            value.clear()
        with torch.inference_mode(False), _on_the_cpu():
            yield
    finally:
        for name, value in _global_hooks().items():
            value.clear()
            value.update(hooks[name])
        sys.settrace(trace)
        sys.path[:] = path
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        torch.nn.functional.scaled_dot_product_attention = attention
        torch.set_default_dtype(dtype)
        random.setstate(randomness[0])
        torch.set_rng_state(randomness[1])
        _set_numpy_state(randomness[2])


def _global_hooks() -> dict[str, Any]:
    """PyTorch's registries of hooks on all modules."""
    return {n: v for n, v in vars(nn_module).items() if n.startswith("_global_") and isinstance(v, dict)}


@contextlib.contextmanager
def _on_the_cpu() -> Iterator[None]:
    """Use the CPU without autocast, whatever device and precision the user's program has set."""
    with torch.device("cpu"), torch.autocast("cpu", enabled=False):
        yield


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return numpy.random.get_state() if numpy is not None else None


def _set_numpy_state(state: Any) -> None:
    if state is not None:
        sys.modules["numpy"].random.set_state(state)
