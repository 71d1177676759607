"""What a page knows, as JSON: nothing in it is markup, and every number of the model is a formula."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lmp.dtypes import cache_size
from lmp.formula import Condition, Expr, Number, add, free_variables, mul, neg, num, parse, substitute, var
from lmp.observe.inspection import Module
from lmp.predict.devices import device_named
from lmp.records import MATMUL_CATEGORIES, ModelKernel, short
from lmp.report.bounds import is_wide
from lmp.report.devices import DEVICES, Device
from lmp.report.facts import ModelFacts
from lmp.report.page import code, controls
from lmp.report.page.steps import Steps

NO_PARENT = -1

FEW = 4
"""Kernels of a module's own that stand beside the modules in it one by one."""


def content(facts: ModelFacts) -> dict[str, Any]:
    """Deterministic, and the same on every machine."""
    numbers, model = facts.numbers, facts.model
    tree = _Tree(facts)
    tree.enter(model.kernels, "", model.class_name, 0)
    held = _held(facts)
    formulas = [*numbers.quantities.values(), *held.values(), *tree.formulas, *facts.on_device.formulas]
    steps = Steps([*formulas, *numbers.assumptions.values()])
    return {
        "class_name": model.class_name,
        "name": facts.name,
        "variables": controls.variables(model, _started(facts)),
        "phases": controls.phases(model),
        "precisions": controls.precisions(),
        "products": controls.products(),
        "program": steps.record(),
        "totals": {name: steps.slot(formula) for name, formula in numbers.quantities.items()},
        "held": {name: steps.slot(formula) for name, formula in held.items()},
        "stored": _stored(facts),
        "assumptions": [_assumption(text, condition, steps) for text, condition in numbers.assumptions.items()],
        "nodes": [_slotted(node, steps) for node in tree.nodes],
        "classes": [{"path": path, "name": short(path)} for path in tree.classes],
        "code": [code.blocks(facts, path, tree.places[path]) for path in tree.classes],
        "labels": tree.labels,
        "parameters": list(_parameters(facts)),
        "devices": [_device(device) for device in {**DEVICES, facts.device.name: facts.device}.values()],
        "device": facts.device.name,
        "on_device": facts.on_device.record(steps),
        "quantised": facts.quantised,
    }


def _started(facts: ModelFacts) -> dict[str, Number]:
    """The values that the page opens with and no config has."""
    kv = facts.deployment.kv_dtype
    return {**({} if kv is None else {"kv_bytes": cache_size(kv)}), **facts.sizes}


def _held(facts: ModelFacts) -> dict[str, Expr]:
    """Bytes of the weights, of the KV cache before a call, and of what the call adds to it; those that are known.

    A call reads the whole cache at least once, and writes its new entries once. So the cache's bytes are those of the
    compulsory traffic that vanish where an element of the cache takes none.
    """
    found = {}
    count, compulsory = facts.numbers.quantities.get("parameters_count"), facts.model.compulsory
    if count is not None and facts.quantised is None:
        found["weights"] = mul(count, var("w_bytes"))
    if compulsory is not None and "cache_len" in facts.model.parameters:
        sides = {"cache": parse(compulsory.read), "cache_new": parse(compulsory.write)}
        if any("kv_bytes" in free_variables(side) for side in sides.values()):
            found |= {name: add(side, neg(substitute(side, {"kv_bytes": num(0)}))) for name, side in sides.items()}
    return found


def _stored(facts: ModelFacts) -> str | None:
    """Bytes of a quantised checkpoint's weights at the config as it is; None where they are not known."""
    if facts.quantised is None or facts.inspection is None or facts.inspection.totals.checkpoint_bytes is None:
        return None
    return str(facts.weight_bytes(facts.inspection.totals))


def _assumption(text: str, condition: Condition, steps: Steps) -> dict[str, Any]:
    return {"text": text, "slot": steps.slot(condition)}


def _slotted(node: dict[str, Any], steps: Steps) -> dict[str, Any]:
    """The node with its formulas as indices."""
    costs = node.pop("costs")
    node["repeat"] = steps.slot(node["repeat"])
    if costs:
        node["costs"] = [steps.slot(cost) for cost in costs]
    return node


@dataclass
class _Tree:
    """Modules and kernels, each after the module that it is in; the root is node 0."""

    facts: ModelFacts
    nodes: list[dict[str, Any]] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[code.Place]] = field(default_factory=dict)
    """Class -> where its kernels stand."""
    labels: dict[str, str] = field(default_factory=dict)
    """File as analyses name it -> as the reader finds it."""
    _known: dict[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        root = self.facts.model.class_name
        self.nodes.append(
            {
                "up": NO_PARENT,
                "name": short(root),
                "path": "",
                "class": self._class(root),
                "repeat": num(1),
                "costs": (),
            }
        )

    @property
    def formulas(self) -> Iterator[Expr]:
        for node in self.nodes:
            yield node["repeat"]
            yield from node["costs"]

    def enter(self, kernels: list[ModelKernel], path: str, class_name: str, up: int) -> None:
        """``path`` and ``class_name`` are those of the module that runs the kernels, node ``up``."""
        own = None if _crowded(kernels) else up
        for kernel in kernels:
            if _is_module(kernel):
                self._module(kernel, path, class_name, up)
            else:
                own = self._group(kernels, path, class_name, up) if own is None else own
                self._kernel(kernel, path, class_name, own)

    def _module(self, kernel: ModelKernel, path: str, class_name: str, up: int) -> None:
        below, called = kernel.path or "", kernel.class_name or class_name
        name = below.removeprefix(f"{path}.") if path else below
        node = {**self._called(kernel, class_name, up), "path": below, "class": self._class(called), "costs": ()}
        self.nodes.append({**node, "name": name or short(called)})
        self.enter(kernel.kernels, below, called, len(self.nodes) - 1)

    def _kernel(self, kernel: ModelKernel, path: str, class_name: str, up: int) -> None:
        assert kernel.flops is not None
        assert kernel.memory_access is not None
        texts = [kernel.flops, kernel.memory_access.read, kernel.memory_access.write]
        node = {
            **self._called(kernel, class_name, up),
            "name": kernel.operation,
            "path": path,
            "category": kernel.category,
            "matmul": kernel.category in MATMUL_CATEGORIES,
            "formulas": texts,
            "costs": tuple(map(self._parsed, texts)),
        }
        node |= {"causal": True} if kernel.causal else {}
        self.nodes.append({**node, "wide": True} if is_wide(kernel) else node)

    def _group(self, kernels: list[ModelKernel], path: str, class_name: str, up: int) -> int:
        """A node for a container's own kernels, which would hide the modules in it."""
        count = sum(not _is_module(kernel) for kernel in kernels)
        node = {"up": up, "own": True, "name": f"{count} own operators", "path": path, "repeat": num(1)}
        self.nodes.append({**node, "class": self._class(class_name), "costs": ()})
        return len(self.nodes) - 1

    def _called(self, kernel: ModelKernel, class_name: str, up: int) -> dict[str, Any]:
        """What is said of every line: ``in`` is the class whose forward() it belongs to."""
        return {
            "up": up,
            "in": self._class(class_name),
            "file": self._file(class_name, kernel),
            "line": kernel.line,
            "code": kernel.code,
            "words": kernel.analysis,
            "repeat": self._parsed(kernel.repeat),
        }

    def _class(self, path: str) -> int:
        self.places.setdefault(path, [])
        return self.classes.setdefault(path, len(self.classes))

    def _file(self, class_name: str, kernel: ModelKernel) -> str:
        file = kernel.file or self.facts.sources[class_name].forward_file
        self.places[class_name].append((file, kernel.line))
        if file not in self.labels:
            self.labels[file] = self.facts.pointer(class_name, kernel.line, file=file).file
        return file

    def _parsed(self, text: str | int) -> Expr:
        if isinstance(text, int):
            return num(text)
        if text not in self._known:
            self._known[text] = parse(text)
        return self._known[text]


def _is_module(kernel: ModelKernel) -> bool:
    return kernel.flops is None or kernel.memory_access is None


def _crowded(kernels: list[ModelKernel]) -> bool:
    """Whether many kernels stand beside modules that have modules in them."""
    containing = any(_is_module(inner) for kernel in kernels for inner in kernel.kernels)
    return containing and sum(not _is_module(kernel) for kernel in kernels) > FEW


def _parameters(facts: ModelFacts) -> Iterator[dict[str, Any]]:
    """The modules with the parameters that they hold themselves, all repeats counted: of the config as it is."""
    if facts.inspection is None:
        return
    pending: deque[tuple[Module, int, int]] = deque([(facts.inspection.tree, NO_PARENT, 1)])
    for index in itertools.count():
        if not pending:
            return
        module, up, runs = pending.popleft()
        runs *= module.repeat
        own = sum(math.prod(weight.shape) for weight in module.weights if weight.tied_to is None)
        yield {"up": up, "name": module.name or short(module.class_name), "path": module.path, "own": str(own * runs)}
        pending.extend((child, index, runs) for child in module.modules)


def _device(device: Device) -> dict[str, str]:
    return {
        "name": device.name,
        "id": device_named(device.name).name,
        "matmul_flops": str(device.matmul_flops),
        "other_flops": str(device.other_flops),
        "bandwidth": str(device.bandwidth),
        "source": device.source,
    }
