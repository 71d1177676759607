"""A model of a config, built on the meta device, as what it holds: `lmp.observe.held`. Imports torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch

from lmp.errors import UsageError
from lmp.link.quantisation import LINEAR, Scheme, config_of, is_experts, scheme_of
from lmp.observe.checkpoint import stored_bytes
from lmp.observe.held import Held, KeptLayer, Live, Weight
from lmp.observe.inspecting import built_model, class_to_build
from lmp.observe.measuring import CannotMeasure, Measured
from lmp.source.runtime import path_of
from lmp.workload.configs import text_part
from lmp.workload.load import quiet_warnings
from lmp.workload.parent_models import config_from

if TYPE_CHECKING:
    from lmp.analyze.session import Options


def hold(class_path: str | None, options: Options, dtype: str | None = None) -> Held:
    """Build the class's model at the options' config, and say what it holds. Raises as `inspect_model`."""
    source, cls = class_to_build(class_path, options, "so it cannot be deployed\ngive a model of transformers")
    found = options.found_config
    content = None if found is None else found.content
    with quiet_warnings():
        config = None if content is None else config_from(cls, content)
        built = built_model(cls, config, dtype)
        if built.module is not built.model:
            raise UsageError(f"{source.class_path} is a part of a model\ngive the whole model")
        model, torch_dtype = built.model, getattr(torch, built.dtype)
        scheme, warnings = _scheme(model, content)
        measured = Measured(model, built.config, torch_dtype)
        part, reason = "", None
        kept: list[KeptLayer] = []
        try:
            part, kept = measured.kept()
        except CannotMeasure as error:
            kept = _whole(measured)
            reason = None if kept else str(error)
            if kept:
                warnings.append(f"the cache is that of the model's own run, whole on every GPU: {error}")
    text, _ = text_part(built.config)
    return Held(
        class_name=source.class_path,
        dtype=built.dtype,
        element_size=torch_dtype.itemsize,
        quantised=None if scheme is None else scheme.method,
        weights=tuple(_weights(model, scheme)),
        kept=tuple(kept),
        reason=reason,
        part=part,
        plan=dict(getattr(model, "_tp_plan", None) or {}),
        config=_plain(text),
        vision=_vision(built.config),
        warnings=tuple(warnings),
        live=functools.partial(_live, measured),
    )


def _scheme(model: torch.nn.Module, content: Mapping[str, Any] | None) -> tuple[Scheme | None, list[str]]:
    """The scheme by which the checkpoint stores weights; a warning where it cannot be used."""
    scheme = scheme_of(config_of(content))
    if scheme is None or scheme.problem is None:
        return scheme, []
    return None, [f"{scheme.problem}: weights are counted in the model's dtype"]


def _weights(model: torch.nn.Module, scheme: Scheme | None) -> list[Weight]:
    found, seen = [], set()
    for path, module in model.named_modules():
        class_name = path_of(type(module))
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            whole = Fraction(parameter.numel() * parameter.element_size())
            stored = whole if scheme is None else stored_bytes(scheme, path, module, name, parameter)
            matrix = (class_name in LINEAR and name == "weight") or (is_experts(path) and parameter.ndim > 2)
            size = parameter.element_size()
            found.append(Weight(path, name, class_name, tuple(parameter.shape), size, stored, matrix))
    return found


def _whole(measured: Measured) -> list[KeptLayer]:
    """The cache of all layers together, beyond their windows; none where it cannot be measured either."""
    segments = measured.cache().segments
    if not segments:
        return []
    last = segments[-1]
    return [KeptLayer((0,), 0, 0, None, math.ceil(last.bytes_per_token), math.ceil(last.constant_bytes))]


def _plain(config: Any) -> dict[str, Any]:
    """The values of a config, also under the names that all configs have."""
    usual = {name: getattr(config, name, None) for name in getattr(config, "attribute_map", None) or {}}
    return {**config.to_dict(), **usual}


WHOLE_OF_IMAGES = ("mm_tokens_per_image", "spatial_merge_size")


def _vision(config: Any) -> dict[str, Any] | None:
    vision = getattr(config, "vision_config", None)
    if vision is None:
        return None
    own = {name: getattr(config, name) for name in WHOLE_OF_IMAGES if getattr(config, name, None) is not None}
    return {**_plain(vision), **own}


def _live(measured: Measured, tokens: int, sizes: Mapping[str, int]) -> Live | str:
    try:
        with quiet_warnings():
            peak = measured.live(tokens, sizes)
    except CannotMeasure as error:
        return str(error)
    largest = [
        (f"{storage.dtype} [{', '.join(map(str, storage.shape))}]", storage.bytes)
        for storage in peak.alive
        if storage.kind != "cache"
    ]
    return Live(peak.activations, peak.name, tuple(largest[:8]))
