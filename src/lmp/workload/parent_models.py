"""Parent models: the models in which a class of transformers can run, and their configs."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator
from types import UnionType
from typing import Any

from lmp.errors import LmpError, MissingDependency, TraceFailed, UsageError, first_line
from lmp.workload.failures import missing_package
from lmp.workload.model import ModelWorkload
from lmp.workload.model_inputs import has_decoder_inputs


def takes_config(cls: type[Any]) -> bool:
    """True if the constructor takes a config: then the class runs inside a model."""
    from transformers import PreTrainedConfig

    for parameter in inspect.signature(cls.__init__).parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, type) and issubclass(annotation, PreTrainedConfig):
            return True
        if parameter.name == "config" or "Config" in str(annotation):
            return True
    return False


def parent_models_of(cls: type[Any]) -> Iterator[type[Any]]:
    """Candidate parent models of a class: those of its file, in file order, where smaller ones come first.

    A class that an encoder and a decoder share runs in a model with both. Any other model runs standalone.
    """
    from transformers import PreTrainedModel

    defined: list[Any] = list(vars(sys.modules[cls.__module__]).values())
    models = [
        candidate
        for candidate in defined
        if isinstance(candidate, type)
        and issubclass(candidate, PreTrainedModel)
        and candidate.__module__ == cls.__module__
        and _has_one_config(candidate)
    ]
    if issubclass(cls, PreTrainedModel):
        both = [] if has_decoder_inputs(cls) else list(filter(has_decoder_inputs, models))
        yield from (*both, *([cls] if _has_one_config(cls) else []))
        return
    yield from sorted(models, key=lambda model: not has_decoder_inputs(model))


def _has_one_config(model: type[Any]) -> bool:
    """False for an abstract base class that stands for models with different configs: it is not built."""
    return not isinstance(getattr(model, "config_class", None), UnionType)


def shared_with_encoder(cls: type[Any]) -> bool:
    """True if a model of the class's file runs an encoder and a decoder."""
    return any(map(has_decoder_inputs, parent_models_of(cls)))


def config_from(cls: type[Any], content: dict[str, Any]) -> Any:
    """The config from the content of a config.json, for the models of the class's file.

    It is the whole content if its ``model_type`` is that of a model there. Else it is a section with such a type, such
    as ``text_config``. Else it is the whole if one of its ``architectures`` is defined there.

    Raises UsageError if it belongs to another model, cannot be used, or contradicts itself.
    """
    hosts = list(parent_models_of(cls))
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
    from lmp.workload.config_validation import contradiction

    try:
        config = config_class.from_dict(content)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # The first line of a validator's message names the validator, and the second states the problem.
        why = " ".join(lines[:2]) or type(error).__name__
        raise UsageError(f"the config cannot be used for {config_class.__name__}: {why}") from error
    wrong = contradiction(config, content)
    if wrong is not None:
        raise UsageError(f"the config contradicts itself: {wrong}\ncorrect it, and run again")
    return config


def find_parent_model(
    cls: type[Any],
    config: Any = None,
    unfit: dict[Any, Exception] | None = None,
    model: type[Any] | None = None,
    **options: Any,
) -> ModelWorkload:
    """The smallest model of the class's file that contains an instance of the class, or ``model`` if that is given.

    ``unfit`` caches the models that do not run with this config, because each test takes long. Raises TraceFailed, with
    the attempts, if no model fits, and MissingDependency if a package is missing.
    """
    tried = []
    first: Exception | None = None
    unfit = unfit if unfit is not None else {}
    for model_class in parent_models_of(cls) if model is None else (model,):
        try:
            if (model_class, type(config)) in unfit:
                raise unfit[model_class, type(config)]
            own = copy.deepcopy(config) if config is not None else model_class.config_class()
            workload = ModelWorkload(model_class, own, **options)
            model = workload.build(workload.defaults)
        except LmpError:
            raise
        except Exception as error:
            first, unfit[model_class, type(config)] = first or error, error
            tried.append(f"{model_class.__name__}: {first_line(error)}")
            continue
        if any(type(module) is cls for module in model.modules()):
            return workload
        tried.append(f"{model_class.__name__}: has no {cls.__name__} in it with this config")
    package = missing_package(first)
    if package is not None:
        raise MissingDependency(
            f"{cls.__name__} needs the package {package}, which is not installed.", package
        ) from first
    raise TraceFailed(
        f"no model of {cls.__module__} can be run with a {cls.__name__} in it.\n" + "; ".join(tried or ["none defined"])
    ) from first
