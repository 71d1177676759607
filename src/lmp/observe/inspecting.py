"""A model on the meta device, looked at: its tree, its parameters, and what it keeps for each token.

Nothing is loaded, and nothing computed: what is executed on the meta device has shapes and no data. Imports torch.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch

from lmp.analyze.session import class_of_config, origin_of
from lmp.errors import LmpError, TraceFailed, UsageError, first_line
from lmp.observe.checkpoint import checkpoint_bytes
from lmp.observe.inspection import Inspection, Module, Tensor, Totals
from lmp.observe.measuring import Measured, Shares
from lmp.source.locate import locate
from lmp.source.trees import find_trees, say_releases, version_of
from lmp.workload.failures import blame
from lmp.workload.kinds import SHOWN_ALIKE, kind_of
from lmp.workload.load import load_class, quiet_warnings, use_transformers_tree
from lmp.workload.model import build_model
from lmp.workload.parent_models import config_from, parent_models_of, takes_config

if TYPE_CHECKING:
    from lmp.analyze.session import Options
    from lmp.source.locate import ClassSource

ASSUMED_DTYPE = "bfloat16"


def class_to_build(class_path: str | None, options: Options, otherwise: str) -> tuple[ClassSource, type]:
    """The class, or the one that the options' config names, from the trees of the options; and where it stands.

    Raises UsageError, which ends with ``otherwise``, if the class is not built from a config; NotFound if not there.
    """
    trees = find_trees(None, options.transformers, options.pytorch)
    say_releases(trees)
    source = locate(class_path or class_of_config(options), trees)
    use_transformers_tree(trees.need("transformers").package_dir.parent)
    cls = load_class(source.class_path)
    if not takes_config(cls):
        raise UsageError(f"{source.class_path} is not built from a config, {otherwise}")
    return source, cls


def inspect_model(class_path: str | None, options: Options, dtype: str | None = None) -> Inspection:
    """Build the class's model at the options' config and say what is in it; without a class, the config's own.

    Raises UsageError when the config cannot be used or the class is no part of a model, NotFound when the class is not
    there, TraceFailed when the model cannot be built.
    """
    source, cls = class_to_build(
        class_path,
        options,
        "so there is no model to inspect\ngive a model, or a module that models of transformers are made of",
    )
    found = options.found_config
    content = None if found is None else found.content
    with quiet_warnings():
        config = None if content is None else config_from(cls, content)
        built = built_model(cls, config, dtype)
        tree = _Tree(built.model)
        # Of a part of a model only the tree and the parameters are told.
        dtype_found = getattr(torch, built.dtype)
        measured = Measured(built.model, built.config, dtype_found) if built.module is built.model else None
        shares, no_shares = measured.expert_shares() if measured else ({}, None)
        cache = measured.cache() if measured else None
        root = tree.node("", built.module, built.path, shares if no_shares is None else None)
    held, why_not = checkpoint_bytes(built.model, built.module, content)
    element_sizes = {id(p): p.numel() * p.element_size() for p in built.module.parameters()}
    buffers = {id(b): b.numel() * b.element_size() for b in built.module.buffers()}
    return Inspection(
        class_name=source.class_path,
        config=origin_of(found),
        distribution=source.tree.distribution,
        version=version_of(source.tree, source.path),
        dtype=built.dtype,
        dtype_from=built.dtype_from,
        quantised=_quantisation(built.model.config),
        totals=Totals(
            parameters_count=root.parameters_count,
            active_parameters_count=root.active_parameters_count,
            active_reason=no_shares,
            weight_bytes=sum(element_sizes.values()),
            buffer_bytes=sum(buffers.values()),
            checkpoint_bytes=held,
            checkpoint_reason=why_not,
        ),
        cache=cache,
        tree=root,
    )


# --- building --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """A model on the meta device, with the module in it that was asked for."""

    model: Any
    module: torch.nn.Module
    """The model itself, or the first module in it of the class that was asked for."""
    path: str
    config: Any
    dtype: str
    dtype_from: str


def built_model(cls: type[Any], config: Any, dtype: str | None) -> Built:
    """The smallest model that has the class in it. Raises TraceFailed if none can be built."""
    tried = []
    for model_class in parent_models_of(cls):
        own = config if config is not None else model_class.config_class()
        name, origin = (dtype, "option") if dtype else _dtype_of(own)
        try:
            model = build_model(model_class, copy.deepcopy(own), getattr(torch, name))
        except LmpError:
            raise
        except Exception as error:
            if blame(error) == "lmp":
                raise
            tried.append(f"{model_class.__name__}: {first_line(error)}")
            continue
        for path, module in model.named_modules():
            if type(module) is cls:
                return Built(model, module, path, own, name, origin)
        tried.append(f"{model_class.__name__}: has no {cls.__name__} in it with this config")
    raise TraceFailed(f"{cls.__name__} cannot be built at this config.\n" + ("; ".join(tried) or "no model has it"))


def _dtype_of(config: Any) -> tuple[str, str]:
    """The dtype that the config states, itself or its text part; models are assumed to be in bfloat16 otherwise."""
    for part in (config, config.get_text_config()):
        name = str(getattr(part, "dtype", None)).removeprefix("torch.")
        found = getattr(torch, name, None)
        if isinstance(found, torch.dtype) and found.is_floating_point and found.itemsize > 1:
            return name, "config"
    return ASSUMED_DTYPE, "assumed"


def _quantisation(config: Any) -> str | None:
    found = getattr(config, "quantization_config", None)
    if found is None:
        return None
    method = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
    return str(getattr(method, "value", method) or "unnamed")


# --- the tree --------------------------------------------------------------------------------------------------------


class _Tree:
    """The modules of a model, with the layers of a list that are alike folded into one."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.owners: dict[int, str] = {}
        for path, parameter in model.named_parameters(remove_duplicate=False):
            self.owners.setdefault(id(parameter), path)
        self._groups: dict[str, list[list[int]]] = {}

    def groups(self, path: str, layers: torch.nn.ModuleList) -> list[list[int]]:
        """Indices of the layers that are alike, in the order of their first ones."""
        if path not in self._groups:
            found: dict[Any, list[int]] = {}
            for index, layer in enumerate(layers):
                found.setdefault(self._kind(layer, _join(path, str(index))), []).append(index)
            self._groups[path] = list(found.values())
        return self._groups[path]

    def _kind(self, layer: torch.nn.Module, path: str) -> Any:
        """Equal for layers that are alike, also in the weights that they share with other modules."""
        return kind_of(layer, SHOWN_ALIKE, owner=lambda parameter: self._owner(parameter, path))

    def _owner(self, parameter: torch.nn.Parameter, path: str) -> str:
        owner = self.owners[id(parameter)]
        return owner.removeprefix(path) if owner.startswith(f"{path}.") else f"/{owner}"

    def node(self, name: str, module: torch.nn.Module, path: str, shares: Shares | None) -> Module:
        weights, count, active = [], 0, 0
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            here = _join(path, own)
            owner = self.owners[id(parameter)]
            tied = owner if owner != here else None
            shape, dtype = list(parameter.shape), str(parameter.dtype).removeprefix("torch.")
            weights.append(Tensor(name=own, shape=shape, dtype=dtype, tied_to=tied))
            if tied is None:
                count += parameter.numel()
                active += int(parameter.numel() * (shares or {}).get(here, Fraction(1)))
        modules = [self.node(n, m, p, shares) for n, m, p in self._single(module, path)]
        for key, layers in _lists_of(module):
            for indices in self.groups(_join(path, key), layers):
                first = _join(path, f"{key}.{indices[0]}")
                folded = self.node(f"{key}.{_spans(indices)}", layers[indices[0]], first, shares)
                modules.append(folded.model_copy(update={"repeat": len(indices), "indices": indices}))
        order = {key: place for place, (key, _) in enumerate(module.named_children())}
        modules.sort(key=lambda m: order[m.name.partition(".")[0]])
        held = module.named_buffers(recurse=False)
        rest = sum(m.repeat * (m.active_parameters_count or 0) for m in modules)
        return Module(
            name=name,
            path=path,
            class_name=f"{type(module).__module__}.{type(module).__name__}",
            parameters_count=count + sum(m.repeat * m.parameters_count for m in modules),
            active_parameters_count=None if shares is None else active + rest,
            weights=weights,
            buffers=[Tensor(name=n, shape=list(b.shape), dtype=str(b.dtype).removeprefix("torch.")) for n, b in held],
            modules=modules,
        )

    def _single(self, module: torch.nn.Module, path: str) -> Iterator[tuple[str, torch.nn.Module, str]]:
        for key, child in module.named_children():
            if type(child) is not torch.nn.ModuleList:
                yield key, child, _join(path, key)


def _lists_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.ModuleList]]:
    for key, child in module.named_children():
        if type(child) is torch.nn.ModuleList:
            yield key, child


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _spans(indices: list[int]) -> str:
    """``0-31``, ``0-2,4-6``, ``0,2,...,22``, or ``0-2,4-6,...,44-46``."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    told = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    steps = {(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(spans)}
    if len(told) > 3 and len(steps) == 1:
        told = [*told[:2], "...", told[-1]]
    return ",".join(told)
