"""Isolation of the engine inside a user's process: restores the state of PyTorch and Python that it changes."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules import module as nn_module


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Restore, also after an error: random states, default dtype, global module hooks, ``sys.path``, environment.

    Libraries that are imported meanwhile keep nothing of lmp's environment. The user's global module hooks are disabled
    meanwhile: they do not run on lmp's copies.
    """
    randomness = random.getstate(), torch.get_rng_state(), _numpy_state()
    dtype, attention = torch.get_default_dtype(), torch.nn.functional.scaled_dot_product_attention
    path, environment = list(sys.path), dict(os.environ)
    hooks = {name: dict(value) for name, value in _global_hooks().items()}
    trace = sys.gettrace()
    imported = {name for name in (_HUB, _LOGGING) if name in sys.modules}
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
        _forget_the_environment(imported, environment)
        torch.nn.functional.scaled_dot_product_attention = attention
        torch.set_default_dtype(dtype)
        random.setstate(randomness[0])
        torch.set_rng_state(randomness[1])
        _set_numpy_state(randomness[2])


_HUB, _LOGGING = "huggingface_hub.constants", "transformers.utils.logging"
"""Modules that read the environment when they are imported, and keep it."""


def _forget_the_environment(imported: Collection[str], environment: Mapping[str, str]) -> None:
    """lmp runs offline and silent: libraries that it imported first are not to stay so in the user's process."""
    hub, logging = sys.modules.get(_HUB), sys.modules.get(_LOGGING)
    if hub is not None and _HUB not in imported and not {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & environment.keys():
        hub.HF_HUB_OFFLINE = False  # type: ignore[attr-defined]
    if logging is not None and _LOGGING not in imported and "TRANSFORMERS_VERBOSITY" not in environment:
        logging.set_verbosity_warning()


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
