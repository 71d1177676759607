"""What makes one instance of a class cost other than another one: its own sizes, and switches that are on in some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lmp.errors import TraceFailed
from lmp.formula import Expr, free_variables, var
from lmp.trace.observe import attribute
from lmp.trace.recording import number_of
from lmp.trace.rules import Size
from lmp.trace.runs import Run
from lmp.workload.calls import Call


class ClassVariables:
    """Which attributes of a module make one instance cost other than another one of the same class.

    ``paths`` are variables that an instance may have its own value of (a shared expert's intermediate size);
    ``switches`` are attributes that are there, or on, in some instances only (a sliding window, experts).
    """

    def __init__(self, class_path: str, base: Run) -> None:
        calls = base.calls_of(class_path)
        if not calls:
            raise TraceFailed(f"{class_path} is not executed by {type(base.model).__name__}.forward()")
        primary = calls[0].module
        self.paths: dict[str, str] = {}
        self.switches: dict[str, str] = {}
        others = [c.module for c in calls[1:]]
        if not others:
            return
        for name, value in vars(primary).items():
            if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
                continue
            expressions = {str(_plain(getattr(m, name, None), base.size)) for m in (primary, *others)}
            if len(expressions) > 1:
                own = base.size(value)
                if (
                    isinstance(own, Expr)
                    and len(free_variables(own)) == 1
                    and own == var(next(iter(free_variables(own))))
                ):
                    self.paths[next(iter(free_variables(own)))] = f"self.{name}"
        self._find_switches(primary, others)

    def _find_switches(self, primary: torch.nn.Module, others: Sequence[torch.nn.Module]) -> None:
        """Attributes that are true or present in some instances and false or absent in others, nearest first."""
        instances = (primary, *others)
        for prefix in ("", *(f"{n}." for n, _ in primary.named_children())):
            names: dict[str, None] = {}
            for instance in instances:
                holder = attribute(instance, prefix[:-1]) if prefix else instance
                names.update(
                    dict.fromkeys([*vars(holder or object), *getattr(holder, "_modules", {})]) if holder else {}
                )
            for name in names:
                if name.startswith("_") or name in ("training", "layer_idx"):
                    continue
                found = [_attribute_or_missing(i, prefix + name) for i in instances]
                if not all(
                    isinstance(v, (bool, int, type(None), torch.nn.Module, torch.SymInt, _Missing)) for v in found
                ):
                    continue
                present = [not (v is None or v is False or isinstance(v, _Missing)) for v in found]
                if all(present) or not any(present):
                    continue
                missing = any(isinstance(v, _Missing) for v in found)
                if any(isinstance(v, torch.nn.Module) for v in found):
                    self.switches.setdefault(f"has_{name}", f"self.{prefix}{name}")
                elif not missing:
                    self.switches.setdefault(name, f"self.{prefix}{name}")
        # What the first instance lacks says best what is special about the others.
        first = {n: attribute(primary, p.removeprefix("self.")) for n, p in self.switches.items()}
        self.switches = dict(sorted(self.switches.items(), key=lambda kv: bool(first[kv[0]])))

    def numbers(self, run: Run, call: Call) -> dict[str, int]:
        """Values of all variables at this call."""
        found = dict(run.numbers)
        for name, path in (*self.paths.items(), *self.switches.items()):
            found[name] = _number(attribute(call.module, path.removeprefix("self.")))
        return found


class _Missing:
    """Stands for an attribute that is not there."""


def _attribute_or_missing(instance: Any, path: str) -> Any:
    for part in path.split("."):
        if instance is None or not hasattr(instance, part):
            return _Missing()
        instance = getattr(instance, part)
    return instance


def _plain(value: Any, size: Callable[[Any], Size]) -> Any:
    return size(value) if isinstance(value, torch.SymInt) else value


def _number(value: Any) -> int:
    """A switch as a number: what is not there is 0, what is there 1, a size itself."""
    if value is None:
        return 0
    if isinstance(value, torch.nn.Module):
        return 1
    return number_of(value) if isinstance(value, torch.SymInt) else int(value)
