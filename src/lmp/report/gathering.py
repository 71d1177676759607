"""From a class and a config to the facts of a report: expanded, inspected, with its sources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from lmp.analyze.models import ModelOutcome, expand_model
from lmp.analyze.modules import analysis_of, execution_of
from lmp.analyze.session import Options, Progress, Session, class_of_config
from lmp.atlas.models import take_over
from lmp.errors import LmpError, UsageError
from lmp.link.quantised import with_own_bytes
from lmp.link.values import values_for, whole_values
from lmp.observe.calls import Observed, observe_calls
from lmp.observe.flow import Flows
from lmp.observe.flow_runs import flows_of
from lmp.observe.inspection import Inspection
from lmp.records import DEFAULT_CONFIG, ModelAnalysis
from lmp.report.deployment import DEFAULT, Deployment
from lmp.report.devices import Device
from lmp.report.facts import STATED, At, ModelFacts, stated_points


def gather(
    class_path: str,
    options: Options,
    progress: Progress,
    device: Device,
    sizes: Mapping[str, int] = MappingProxyType({}),
    deployment: Deployment = DEFAULT,
    at: tuple[At, ...] = STATED,
) -> ModelFacts:
    """What there is to say of a class at the options' config. What is missing in the store is analysed first.

    ``sizes`` are values of variables that the config does not have, ``at`` the points of the report. Raises what
    `expand_model` raises, and UsageError for a variable without a value.
    """
    take_over(class_path, options, progress)
    outcome = expand_model(class_path, options, progress)
    for _, given in stated_points(outcome.model, at).values():
        whole_values(values_for(outcome.model, {**sizes, **given}))  # before what takes longer
    return replace(facts_of(outcome, options, progress, device, sizes, at), deployment=deployment)


def facts_of(
    outcome: ModelOutcome,
    options: Options,
    progress: Progress,
    device: Device,
    sizes: Mapping[str, int],
    at: tuple[At, ...] = STATED,
) -> ModelFacts:
    """The same of a model that is expanded already."""
    model = outcome.model if "w_bytes" in sizes else with_own_bytes(outcome.model)
    session = Session(options, progress, takes_foreign=True)
    if options.inputs is not None:
        session.ask([model.class_name])
    progress(model.class_name, "reading")
    built = _built(model, options)
    flows, observed = _shown(session, model, sizes, at)
    return ModelFacts(
        name=report_name(model, options),
        model=model,
        expanded=outcome.model,
        analyses={name: analysis_of(name, session) for name in model.parts},
        sources={name: session.locate(name) for name in model.parts},
        trees=session.trees,
        config=session.config,
        config_class=built.config_class,
        settings=built.settings,
        inspection=built.inspection,
        device=device,
        sizes=sizes,
        at=at,
        flows=flows,
        observed=observed,
    )


PHASES = {
    "prefill": {"batch_size": 1, "seq_len": 2048, "cache_len": 0},
    "decode": {"batch_size": 1, "seq_len": 1, "cache_len": 2048},
}
"""Where data flow is looked at in detail."""


def _shown(
    session: Session, model: ModelAnalysis, sizes: Mapping[str, int], at: tuple[At, ...]
) -> tuple[Flows, Observed]:
    """What running the class shows; or why it is not run."""
    try:
        execution = execution_of(model.class_name, session)
    except (LmpError, ImportError) as error:
        reason = str(error).splitlines()[0]
        return Flows(reason=reason), Observed(reason=reason)
    there = stated_points(model, at)
    sizes = {**_arguments(model), **sizes}
    peaks = {key: {**sizes, **given} for key, (_, given) in there.items()}
    names = {phase for phase, _ in stated_points(model).values()}
    phases = {name: {**sizes, **given} for name, given in PHASES.items() if name in names}
    return flows_of(execution, phases, peaks), observe_calls(execution)


def _arguments(model: ModelAnalysis) -> dict[str, int]:
    """The values of constructor arguments that the numbers are worked out with: what runs has the same."""
    known = model.parameters.items()
    return {name: model.values[name] for name, path in known if path.startswith("init.") and name in model.values}


def report_name(model: ModelAnalysis, options: Options) -> str:
    """The config's name where the class is the config's own; else as the class's results folder is called."""
    if model.config.name == DEFAULT_CONFIG.name:
        return model.class_name
    if options.found_config is not None and class_of_config(options) == model.class_name:
        return model.config.name
    return f"{model.class_name}@{model.config.name}"


@dataclass(frozen=True)
class _Built:
    config_class: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    inspection: Inspection | None = None


def _built(model: ModelAnalysis, options: Options) -> _Built:
    """What the class's config says, and what the model at it is made of; nothing of a class without a config."""
    from lmp.observe.inspecting import inspect_model
    from lmp.workload.load import load_class, quiet_warnings
    from lmp.workload.parent_models import config_from, parent_models_of, takes_config

    if model.source.distribution != "transformers":
        return _Built()
    inspection = _inspected(model, options, inspect_model)
    cls = load_class(model.class_name)
    if not takes_config(cls):
        return _Built(inspection=inspection)
    found = options.found_config
    with quiet_warnings():
        config = next(parent_models_of(cls)).config_class() if found is None else config_from(cls, found.content)
    kind = type(config)
    settings = dict(_flat(json.loads(config.to_json_string(use_diff=False)), ""))
    return _Built(f"{kind.__module__}.{kind.__qualname__}", settings, inspection)


def _inspected(model: ModelAnalysis, options: Options, inspect_model: Any) -> Inspection | None:
    try:
        inspection: Inspection = inspect_model(model.class_name, options, model.dtype)
    except UsageError:
        return None  # of a class that no config builds there is nothing to inspect
    return inspection


def _flat(content: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
