"""What a report on a model is made from: the expanded model, its numbers at stated points, and its sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from lmp.errors import UsageError
from lmp.link.numbers import KernelNumbers, ModelNumbers, ModuleNumbers
from lmp.link.values import parse_settings, values_for, whole_values
from lmp.observe.calls import Observed
from lmp.observe.flow import Flows
from lmp.observe.inspection import Inspection, Module, Totals
from lmp.predict.devices import device_named
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.report.bounds import Bounds
from lmp.report.deployment import DEFAULT, Deployment
from lmp.report.devices import DEVICES, Device
from lmp.report.document.amounts import Claim, Number, Quantity, Term
from lmp.report.document.parts import Pointer
from lmp.report.evaluating import Worth
from lmp.report.on_device import OnDevice, Screen, on_device
from lmp.report.predictions import Predictions, predictions_of
from lmp.source.locate import ClassSource
from lmp.source.trees import Tree, Trees


@dataclass(frozen=True)
class Point:
    """Sizes at which the report states numbers. ``values`` has a value for every variable of the model."""

    key: str
    """``prefill-b1-s2048``: names the point in claims."""
    title: str
    """``prefill, batch 1, 2,048 tokens``."""
    phase: str
    values: Mapping[str, int]


At = tuple[str, int, int, int]
"""Phase, batch size, new tokens, tokens in the cache."""

STATED: tuple[At, ...] = (
    ("prefill", 1, 2048, 0),
    ("prefill", 32, 2048, 0),
    ("decode", 1, 1, 2048),
    ("decode", 32, 1, 2048),
    ("decode", 1, 1, 32768),
    ("decode", 32, 1, 32768),
)
"""The points of a report that none are asked of."""


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """Everything that the sections of a report are made from. Nothing in it depends on the machine or the date."""

    name: str
    """The report's name, as in ``<name>-analysis.md``."""
    model: ModelAnalysis
    """With the bytes of the checkpoint, where it is quantised."""
    expanded: ModelAnalysis
    """As it was expanded: each weight has ``w_bytes``."""
    analyses: Mapping[str, ModuleAnalysis]
    """The analysis of every class in the model, the root's included."""
    sources: Mapping[str, ClassSource]
    """Where every one of these classes stands."""
    trees: Trees
    config: Mapping[str, Any] | None
    """The content of config.json; None at the class's defaults."""
    config_class: str | None
    """Class path of the config class; None where the class is not built from one."""
    settings: Mapping[str, Any]
    """Every value of the config object, nested ones under dotted names (``text_config.hidden_size``): JSON values."""
    inspection: Inspection | None
    """Weights with their shapes, buffers, the KV cache a token; None where the class is no model of transformers."""
    device: Device
    deployment: Deployment = DEFAULT
    """How the model runs on the device."""
    observed: Observed = field(default_factory=Observed)
    """What went into every module and came out of it, with shapes as formulas."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Values that were given for variables that no config has, at every point."""
    at: tuple[At, ...] = STATED
    """The points that the report is about."""
    flows: Flows = field(default_factory=lambda: Flows(reason="the class was not run"))
    """What running the class shows: operators with their dependencies, lifetimes of tensors, peaks."""
    screen: Screen = field(default_factory=Screen)
    """What its page predicts."""
    numbers: ModelNumbers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", ModelNumbers(self.model))

    # -- points ----------------------------------------------------------------------------------------------------

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The stated points that this class has: decode only where there is a cache."""
        found = []
        for key, (phase, given) in stated_points(self.model, self.at).items():
            batch, seq, cache = given.values()
            given = {**self.sizes, **given}
            size = f"{seq:,} tokens" if phase == "prefill" else f"{cache:,} tokens in the cache"
            title = f"{phase}, batch {batch}, {size}"
            if "seq_len" not in self.model.parameters:  # a module that no tokens go through
                title = f"one call, batch {batch}" if "batch_size" in self.model.parameters else "one call"
            found.append(Point(key, title, phase, whole_values(values_for(self.model, given))))
        return tuple(found)

    def called(self, phase: str) -> str:
        """A phase in words: of a module that no tokens go through, the one call there is."""
        return phase if "seq_len" in self.model.parameters else "one call"

    def point(self, key: str) -> Point:
        return next(point for point in self.points if point.key == key)

    @cached_property
    def worth(self) -> Worth:
        """What terms are worth: the same for the report that is written and for its review."""
        return Worth(self.numbers, {point.key: point.values for point in self.points}, self.named)

    def tree(self, point: Point) -> ModuleNumbers:
        """The whole model with the costs of everything in it, at a point."""
        return self.worth.tree(point.key)

    def kernels(self, point: Point) -> Sequence[KernelNumbers]:
        return self.worth.kernels(point.key)

    # -- numbers ---------------------------------------------------------------------------------------------------

    def value(self, term: Term) -> Fraction:
        """What a term is worth here."""
        return self.worth.value(term)

    @cached_property
    def named(self) -> Mapping[str, int]:
        """Whole numbers of the config (``config.hidden_size``), of the inspected model (``weight_bytes``) and of the
        modules in it (``parameters.model.norm``)."""
        whole = {name: value for name, value in self.settings.items() if type(value) is int}
        inner = {self.without_part(name): value for name, value in whole.items()}
        found = {f"config.{name}": value for name, value in {**inner, **whole}.items()}
        if self.inspection is not None:
            totals = self.inspection.totals
            found["parameters_count"], found["weight_bytes"] = totals.parameters_count, self.weight_bytes(totals)
            if totals.active_parameters_count is not None:
                found["active_parameters_count"] = totals.active_parameters_count
            found |= _of_modules(self.inspection.tree, 1)
            for number, segment in enumerate(self.inspection.cache.segments if self.inspection.cache else ()):
                sizes = {"bytes_per_token": segment.bytes_per_token, "constant_bytes": segment.constant_bytes}
                found |= {f"cache.{number}.{name}": int(size) for name, size in sizes.items() if size == int(size)}
        return {**found, **self.flows.measured, **self.bounds.named}

    @property
    def quantised(self) -> str | None:
        """The method of the checkpoint whose bytes the figures have; None: every weight has w_bytes."""
        return None if self.model.quantization is None else self.model.quantization.applied

    @property
    def stored_in(self) -> str:
        """How the weights are stored: the dtype of the run, or the method of the checkpoint."""
        method = self.quantised
        return f"in {self.model.dtype}" if method is None else f"as the checkpoint stores them ({method})"

    def weight_bytes(self, totals: Totals) -> int:
        """Bytes that the weights take: as the checkpoint stores them, where the figures are of that."""
        if self.quantised is None or totals.checkpoint_bytes is None:
            return totals.weight_bytes
        return math.ceil(totals.checkpoint_bytes)

    @cached_property
    def part(self) -> str:
        """The part of the config that the model's sizes come from, as ``text_config.``; empty: the config itself."""
        paths = (path.removeprefix("config.") for path in self.model.parameters.values() if path.startswith("config."))
        parts = {path.rpartition(".")[0] for path in paths}
        return f"{parts.pop()}." if len(parts) == 1 and parts != {""} else ""

    def without_part(self, name: str) -> str:
        """A setting as the model's own code calls it: ``hidden_size`` of ``text_config.hidden_size``."""
        return name.removeprefix(self.part)

    @cached_property
    def bounds(self) -> Bounds:
        """The least time that each operator takes on the device at each point."""
        return Bounds(self.numbers, {point.key: point.values for point in self.points}, self.device)

    @cached_property
    def predictions(self) -> Predictions:
        """Predicted times at each point, at the values that the report gives; the config's for all others."""
        return predictions_of(self.expanded, self.device.name, self._given, self.deployment, self.config)

    @property
    def _given(self) -> dict[str, dict[str, int]]:
        return {key: {**self.sizes, **sizes} for key, (_, sizes) in stated_points(self.model, self.at).items()}

    @cached_property
    def on_device(self) -> OnDevice:
        """What its page knows of it on devices: the report's first, with all engines."""
        names = dict.fromkeys(device_named(name).name for name in (self.device.name, *DEVICES))
        found = [device_named(name) for name in names]
        screen, quantised = self.screen.of(self.deployment), self.quantised is not None
        return on_device(self.expanded, self.config, found, self.sizes, screen, quantised=quantised)

    def number(self, expression: str, unit: str, **terms: Term) -> Number:
        """A number with its claim: ``expression`` in the formula language over the terms, as ``100 * {a} / {b}``."""
        claim = Claim(expression=expression, terms=terms)
        return Number(self.worth.claimed(claim), unit, claim)

    def amount(self, quantity: Quantity, point: Point, unit: str = "", **choice: Any) -> Number:
        """One quantity of the model, or of a part (``path=``, ``class_name=``, ``category=``, ``line=``)."""
        unit = unit or _UNITS.get(quantity, "B")
        return self.number("{a}", unit, a=Term(point=point.key, quantity=quantity, **choice))

    def share(self, quantity: Quantity, point: Point, **choice: Any) -> Number | None:
        """The part's share of the whole in per cent; None where the whole is 0."""
        part = Term(point=point.key, quantity=quantity, **choice)
        whole = Term(point=point.key, quantity=quantity)
        if not self.value(whole):
            return None
        return self.number("100 * {a} / {b}", "%", a=part, b=whole)

    def intensity(self, point: Point, **choice: Any) -> Number | None:
        """FLOPs a byte of eager traffic; None where no byte moves."""
        flops = Term(point=point.key, quantity="flops", **choice)
        moved = Term(point=point.key, quantity="bytes", **choice)
        return self.number("{a} / {b}", "FLOPs/B", a=flops, b=moved) if self.value(moved) else None

    def of_formula(self, formula: str, point: Point, unit: str) -> Number:
        """A formula in the model's variables, with the point's values put in."""
        return self.number("{a}", unit, a=Term(point=point.key, formula=formula))

    def setting(self, name: str) -> Number:
        """A whole number of the config."""
        return self.number("{a}", "", a=Term(name=f"config.{name}"))

    # -- places ----------------------------------------------------------------------------------------------------

    @cached_property
    def roots(self) -> dict[str, Path]:
        """First part of a pointer's file -> the folder that the rest is relative to."""
        return dict(tree.labelled for tree in self.trees)

    def pointer(self, class_name: str, line: int, symbol: str | None = None, file: str | None = None) -> Pointer:
        """A line of the file of a class's forward(), or of ``file`` (relative to its tree, as kernels name it)."""
        source = self.sources[class_name]
        if file is None or file == source.forward_file:
            return Pointer(f"{tree_label(source.forward_tree)}/{source.forward_file}", line, symbol=symbol)
        return self.place(file, line, symbol)

    def place(self, file: str, line: int, symbol: str | None = None, end: int | None = None) -> Pointer:
        """A line of a file that is named relative to its tree."""
        path = self.trees.path_of(file)
        # Packages of one's own may lie side by side in one folder: the tree is the one whose package the file is of.
        above = [tree for tree in self.trees if path is not None and path.is_relative_to(tree.labelled[1])]
        own = (tree for tree in above if path is not None and path.is_relative_to(tree.package_dir))
        tree = next(own, above[0] if above else None)
        label = "" if tree is None else f"{tree_label(tree)}/"
        return Pointer(f"{label}{file}", line, end, symbol)


_UNITS = {"flops": "FLOP", "matmul_flops": "FLOP", "parameters_count": "params"}


def _of_modules(module: Module, runs: int) -> dict[str, int]:
    """Of the module and all in it: parameters of one (``parameters.lm_head``), and how many there are (``count.``)."""
    count = runs * module.repeat
    found = {f"parameters.{module.path}": module.parameters_count, f"count.{module.path}": count}
    for inner in module.modules:
        found |= _of_modules(inner, count)
    return found


def parse_point(text: str) -> At:
    """``decode:16:8k``: phase, batch size, and tokens of the prompt or in the cache. Raises UsageError."""
    phase, _, rest = text.partition(":")
    batch, _, tokens = rest.partition(":")
    if phase not in ("prefill", "decode") or not batch or not tokens:
        raise UsageError(f"--at {text[:60]}: not a point\ngive a phase, a batch size and tokens, as in decode:16:8k")
    found = whole_values(parse_settings((f"batch_size={batch}", f"cache_len={tokens}")))
    count, size = found["batch_size"], found["cache_len"]
    if count < 1 or size < 1:
        raise UsageError(f"--at {text[:60]}: batch size and tokens are at least 1\nas in decode:16:8k")
    return (phase, count, size, 0) if phase == "prefill" else (phase, count, 1, size)


def point_text(at: At) -> str:
    """A point as `parse_point` reads it."""
    phase, batch, seq, cache = at
    return f"{phase}:{batch}:{seq if phase == 'prefill' else cache}"


def stated_points(model: ModelAnalysis, at: tuple[At, ...] = STATED) -> dict[str, tuple[str, dict[str, int]]]:
    """Key of each point that a class has -> phase and the runtime's variables: decode only with a cache.

    Raises UsageError where the class has none of them.
    """
    found = {}
    for phase, batch, seq, cache in at:
        if phase == "prefill" or "cache_len" in model.parameters:
            key = f"{phase}-b{batch}-" + (f"s{seq}" if phase == "prefill" else f"c{cache}")
            found[key] = (phase, {"batch_size": batch, "seq_len": seq, "cache_len": cache})
    if not found:
        raise UsageError(
            f"{model.class_name} has no KV cache to decode with\ngive --at a point of prefill, as prefill:1:2k"
        )
    return found


def tree_label(tree: Tree) -> str:
    """The folder of a tree in the project, which pointers begin with: ``transformers``, ``pytorch``."""
    return tree.name
