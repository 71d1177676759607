"""Bytes that the weights of a quantised checkpoint take: each parameter as its `quantization_config` stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch

from lmp.formula import Number, plain
from lmp.link.quantisation import LINEAR, Scheme, config_of, scheme_of
from lmp.source.runtime import path_of


def checkpoint_bytes(
    model: torch.nn.Module, module: torch.nn.Module, content: Mapping[str, Any] | None
) -> tuple[Number | None, str | None]:
    """Bytes of the parameters of a module in a model, scales included; and why they are not known.

    Both are None if the config says nothing of a quantisation.
    """
    scheme = scheme_of(config_of(content))
    if scheme is None or content is None:
        return None, None
    named = content.get("architectures")
    if scheme.problem is None and not (isinstance(named, list) and type(model).__name__ in named):
        return None, f"{type(model).__name__} is not the model that the config is of"
    if scheme.problem is not None:
        return None, scheme.problem
    paths = {id(inner): path for path, inner in model.named_modules()}
    owned: dict[int, Fraction] = {}
    for inner in module.modules():
        for name, parameter in inner.named_parameters(recurse=False):
            # A tied parameter is the one of its first module.
            if id(parameter) not in owned:
                owned[id(parameter)] = stored_bytes(scheme, paths[id(inner)], inner, name, parameter)
    return plain(Fraction(sum(owned.values()))), None


def stored_bytes(
    scheme: Scheme, path: str, module: torch.nn.Module, name: str, parameter: torch.nn.Parameter
) -> Fraction:
    """Bytes of one parameter as the checkpoint stores it, scales included."""
    class_name = path_of(type(module))
    storage = scheme.storage(path, class_name)
    converted = name == "weight" if class_name in LINEAR else parameter.ndim > 2
    if storage is None or not converted:
        return Fraction(parameter.numel() * parameter.element_size())
    *matrices, rows, columns = parameter.shape
    return Fraction(math.prod(matrices) * storage.size(rows, columns))
