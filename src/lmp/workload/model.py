"""A module of transformers in its real context: the smallest model of its file that contains it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from lmp.errors import LmpError, TraceFailed, UsageError
from lmp.workload.arguments import recording
from lmp.workload.base import RUNTIME, Variable

STANDARD_NAMES = {"num_attention_heads": "num_heads"}
"""The contract's names where they differ from transformers' standard ones."""


def takes_config(cls: type[Any]) -> bool:
    """Whether the constructor's signature asks for a config: then the class is run inside a model."""
    from transformers import PreTrainedConfig

    for parameter in inspect.signature(cls.__init__).parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, type) and issubclass(annotation, PreTrainedConfig):
            return True
        if parameter.name == "config" or "Config" in str(annotation):
            return True
    return False


class ModelWorkload:
    """A whole model of transformers, run as ``from_config`` builds it, cut to the layers that differ."""

    def __init__(
        self, model_class: type[Any], config: Any, dtype: torch.dtype = torch.bfloat16, attention: str = "sdpa"
    ) -> None:
        self.model_class, self.config, self.dtype, self.attention = model_class, config, dtype, attention
        if attention == "sdpa" and not getattr(model_class, "_supports_sdpa", True):
            self.attention = "eager"  # as transformers itself chooses; the analysis says so
        self.full_layers = getattr(config, "num_hidden_layers", None)
        self.variables = config_variables(config)
        self.flags: frozenset[str] = frozenset()
        self.required: frozenset[str] = frozenset()
        self.has_cache = True
        cut = self._layers_of_each_kind()
        if cut is not None:
            self.variables["num_hidden_layers"] = Variable("num_hidden_layers", "config.num_hidden_layers", cut)
        self.defaults = {name: variable.default for name, variable in self.variables.items()}
        self.hints = self.defaults
        self._probe_cache()

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        from transformers import initialization

        config = copy.deepcopy(self.config)
        layers = values.get("num_hidden_layers", self.defaults.get("num_hidden_layers"))
        if isinstance(layers, int) and self.full_layers:
            _cut_lists(config, self.full_layers, layers)
        aliases = dict(getattr(config, "attribute_map", {}) or {})
        for name in self.variables:
            attribute = self.variables[name].path.removeprefix("config.")
            if name in values or name in self.defaults:
                # Configs are strict dataclasses that validate on assignment; a symbolic size is no int to them.
                object.__setattr__(config, aliases.get(attribute, attribute), values.get(name, self.defaults[name]))
        with torch.device("meta"), initialization.no_init_weights(), recording():
            model = self.model_class._from_config(config, dtype=self.dtype, attn_implementation=self.attention)
            # Skipping the initialisation skips the tying of weights, which decides what counts as a parameter.
            model.tie_weights()
        return model.eval()

    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        batch, new, cached = (values[name] for name in RUNTIME)
        with torch.no_grad():
            past: dict[str, Any] = {}
            if not (isinstance(cached, int) and cached == 0):
                with before or contextlib.nullcontext():
                    filled = module(input_ids=_token_ids(batch, cached), use_cache=True)
                past = {"past_key_values": filled.past_key_values}
            ids = _token_ids(batch, new)
            extra = {"use_cache": True} if self.has_cache else {}
            with observer:
                module(input_ids=ids, **past, **extra)

    def _probe_cache(self) -> None:
        """Find out by running it whether the model returns a KV cache."""
        parameters = inspect.signature(self.model_class.forward).parameters
        self.has_cache = "past_key_values" in parameters and "use_cache" in parameters
        if self.has_cache:
            with torch.no_grad():
                output = self.build(self.defaults)(input_ids=_token_ids(1, 2), use_cache=True)
            self.has_cache = getattr(output, "past_key_values", None) is not None

    def _layers_of_each_kind(self) -> int | None:
        """Smallest number of layers that has a layer of every kind the full model has.

        The full model is built once (without weights); layers are alike when their classes and their plain
        attributes are, the layer's own index aside.
        """
        if not isinstance(self.full_layers, int):
            return None
        self.defaults = {name: variable.default for name, variable in self.variables.items()}
        model = self.build(self.defaults)
        needed = 1
        for child in model.modules():
            if isinstance(child, torch.nn.ModuleList) and len(child) == self.full_layers:
                seen: dict[Any, int] = {}
                for index, layer in enumerate(child):
                    seen.setdefault(_kind(layer), index)
                needed = max(needed, *(index + 1 for index in seen.values()))
        return needed


def _token_ids(batch: Any, length: Any) -> torch.Tensor:
    return torch.empty((batch, length), dtype=torch.int64, device="meta")


def _kind(layer: torch.nn.Module) -> Any:
    """What makes a layer the kind it is: classes and plain attributes of it and its descendants, without its index."""
    description = []
    for name, module in layer.named_modules():
        plain = {
            key: value
            for key, value in vars(module).items()
            if isinstance(value, (bool, int, str, float, type(None))) and key not in ("layer_idx", "training")
        }
        description.append((name, type(module).__qualname__, tuple(sorted(plain.items(), key=lambda kv: kv[0]))))
    return tuple(description)


def _cut_lists(config: Any, full: int, layers: int) -> None:
    """Make the per-layer lists of a config as long as its new number of layers (repeating them where it grew)."""
    for name, value in list(vars(config).items()):
        if isinstance(value, (list, tuple)) and len(value) == full:
            grown = [value[i % full] for i in range(layers)] if layers > full else list(value[:layers])
            object.__setattr__(config, name, grown)


def config_variables(config: Any) -> dict[str, Variable]:
    """The config's integers under their canonical names (attribute_map, then the contract's own)."""
    canonical = {own: standard for standard, own in (getattr(config, "attribute_map", {}) or {}).items()}
    found = {}
    for attribute, value in vars(config).items():
        # Token ids, booleans and switches that are off (0) are no sizes; private attributes belong to transformers.
        if (
            type(value) is not int
            or value <= 0
            or attribute.startswith("_")
            or attribute.endswith(("token_id", "token_ids"))
        ):
            continue
        standard = canonical.get(attribute, attribute)
        name = STANDARD_NAMES.get(standard, standard)
        found[name] = Variable(name, f"config.{standard}", value)
    return found


def host_models(cls: type[Any]) -> Iterator[type[Any]]:
    """Models defined in the class's own file, in the order of the file (smaller ones come first in transformers)."""
    from transformers import PreTrainedModel

    if issubclass(cls, PreTrainedModel):
        yield cls
        return
    defined: list[Any] = list(vars(sys.modules[cls.__module__]).values())
    for candidate in defined:
        if (
            isinstance(candidate, type)
            and issubclass(candidate, PreTrainedModel)
            and candidate.__module__ == cls.__module__
            and getattr(candidate, "config_class", None) is not None
        ):
            yield candidate


def config_from(cls: type[Any], content: dict[str, Any]) -> Any:
    """The config that a config.json holds, for the models of the class's file.

    That is the whole of it where its ``model_type`` is that of a model there; else the part of it that is, as a
    ``text_config``; else the whole again where one of its ``architectures`` is defined there. Raises UsageError when
    it is another model's, cannot be used, or contradicts itself.
    """
    hosts = list(host_models(cls))
    wholes = [h for h in hosts if h.config_class.model_type == content.get("model_type")]
    if wholes:
        return _config_of_class(wholes[0].config_class, content)
    parts = [part for part in content.values() if isinstance(part, dict) and "model_type" in part]
    for host in hosts:
        for part in parts:
            if host.config_class.model_type == part["model_type"]:
                return _config_of_class(host.config_class, part)
    architectures = content.get("architectures") or []
    for host in hosts:
        if any(getattr(sys.modules[cls.__module__], str(name), None) is host for name in architectures):
            return _config_of_class(host.config_class, content)
    types = ", ".join(sorted({str(h.config_class.model_type) for h in hosts})) or "no model"
    raise UsageError(
        f"the config is of model_type {content.get('model_type')!r}, but {cls.__name__} belongs to {types}.\n"
        "Give the config of a model of that type."
    )


def _config_of_class(config_class: Any, content: dict[str, Any]) -> Any:
    from lmp.workload.contradictions import contradiction

    try:
        config = config_class.from_dict(content)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # Validators say first who they are, and then what they found.
        why = " ".join(lines[:2]) or type(error).__name__
        raise UsageError(f"the config cannot be used for {config_class.__name__}: {why}") from error
    wrong = contradiction(config, content)
    if wrong is not None:
        raise UsageError(f"the config contradicts itself: {wrong}\ncorrect it, and run again")
    return config


def find_host(cls: type[Any], config: Any = None, **options: Any) -> ModelWorkload:
    """The smallest model of the class's file that contains an instance of it.

    Raises TraceFailed when no model of that file does, with what was tried.
    """
    tried = []
    for model_class in host_models(cls):
        try:
            own = copy.deepcopy(config) if config is not None else model_class.config_class()
            workload = ModelWorkload(model_class, own, **options)
            model = workload.build(workload.defaults)
        except LmpError:
            raise
        except Exception as error:
            tried.append(
                f"{model_class.__name__}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            )
            continue
        if any(type(module) is cls for module in model.modules()):
            return workload
        tried.append(f"{model_class.__name__}: has no {cls.__name__} in it with this config")
    raise TraceFailed(
        f"no model of {cls.__module__} can be run with a {cls.__name__} in it.\n" + "; ".join(tried or ["none defined"])
    )
