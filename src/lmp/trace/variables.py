"""Finds the variables in which instances of a class differ: their own sizes, and switches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lmp.errors import TraceFailed
from lmp.formula import Expr, evaluate, free_variables, num, simplify, substitute, var
from lmp.trace.observe import DIMS, ITEM, Observation, attribute, forward_arguments, input_tensors, sizes_given
from lmp.trace.recording import number_of
from lmp.trace.rules import Size
from lmp.trace.runs import ALL_SIZES, Run, length_of
from lmp.workload.base import OWN_PLACE
from lmp.workload.calls import Call


class ClassVariables:
    """The attributes of a module that make instances of one class differ in cost.

    ``paths``: variables with a value per instance (a shared expert's intermediate size). ``switches``: attributes that
    only some instances have, or have on (a sliding window, experts).
    """

    def __init__(self, class_path: str, base: Run, lengths: Sequence[str] = (), runs: Sequence[Run] = ()) -> None:
        """``runs``: all runs with calls of the class. ``base``: the run that formulas come from.

        Raises TraceFailed if ``base`` has no call of the class.
        """
        calls = base.calls_of(class_path)
        if not calls:
            raise TraceFailed(f"{class_path} is not executed by {type(base.model).__name__}.forward()")
        first = base.primary(class_path)
        primary = first.module
        self.paths: dict[str, str] = {}
        self.kinds: list[str] = []
        """The ``paths`` that are plain numbers in a symbolic run: each value is a separate case."""
        self.switches: dict[str, str] = {}
        self.lengths: dict[str, str] = {}
        self._own_length: str | None = None
        self._flat: str | None = None
        """The tensor that some calls pass flat, without a batch dimension."""
        self._find_flat(first, calls)
        self._find_lengths(base, first, calls, lengths)
        self._find_dtypes([c for run in (base, *runs) for c in run.calls_of(class_path)])
        others = [c.module for c in calls if c is not first]
        if not others:
            return
        for holder, prefix in ((primary, "self"), (getattr(primary, "config", None), "config")):
            for name, value in vars(holder or object).items():
                if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool) or name.startswith("_"):
                    continue
                path = f"config.{name}" if prefix == "config" else name
                expressions = {str(_plain(attribute(m, path), base.size)) for m in (primary, *others)}
                own = base.size(value)
                if len(expressions) > 1 and isinstance(own, Expr) and _is_variable(own):
                    self.paths.setdefault(str(next(iter(free_variables(own)))), f"{prefix}.{name}")
                elif (
                    len(expressions) > 1
                    and base.specialisation != ALL_SIZES
                    and prefix == "self"
                    and name not in OWN_PLACE
                ):
                    self.paths.setdefault(name, f"self.{name}")
                    self.kinds.append(name)
        self._find_switches(primary, others)
        self._find_given(calls)

    def _find_dtypes(self, calls: Sequence[Call]) -> None:
        """Find tensors whose bytes per element differ between calls, such as a residual in float32."""
        sizes: dict[str, set[int]] = {}
        for call in calls:
            for name, tensor in input_tensors(call):
                if tensor.dtype.is_floating_point and "[" not in name:
                    sizes.setdefault(name, set()).add(tensor.dtype.itemsize)
        for name in (n for n, met in sizes.items() if len(met) > 1):
            self.paths[f"{name}_bytes"] = f"inputs.{name}{ITEM}"
            self.kinds.append(f"{name}_bytes")

    def _find_flat(self, first: Call, calls: Sequence[Call]) -> None:
        """Find a tensor passed as ``[batch, tokens, ...]`` in some calls and flat in others: two kinds of calls.

        In a flat call, ``batch_size`` and ``seq_len`` are both the number of rows. No formula of such a call has
        ``seq_len``.
        """
        for name, tensor in input_tensors(first)[:1]:
            dims = {dict(input_tensors(call))[name].dim() for call in calls if name in dict(input_tensors(call))}
            if tensor.dim() == 3 and dims == {2, 3} and "[" not in name:
                self._flat = name
                self.paths[f"{name}_dims"] = f"inputs.{name}{DIMS}"
                self.kinds.append(f"{name}_dims")
                self.lengths["seq_len"] = f"inputs.{name}.shape[-2]"

    def _is_flat(self, call: Call) -> bool:
        return self._flat is not None and dict(input_tensors(call))[self._flat].dim() == 2

    def _find_lengths(self, base: Run, first: Call, calls: Sequence[Call], known: Sequence[str]) -> None:
        """Find the path of a call's number of tokens, if not all calls of the class have the new tokens.

        For a class that runs in encoder and decoder, ``seq_len`` is the number of tokens of the call.
        """
        for length in () if self._flat else ("seq_len", *known):
            self._own_length = length_of(first, base.size, var(length))
            if self._own_length is not None:
                break
        own = [self._length(base, call) for call in calls]
        if self._own_length is None or all(o == var("seq_len") for o in own):
            self._own_length = None
        else:
            self.lengths["seq_len"] = self._own_length
        for name in known:
            found = [length_of(c, base.size, var(name)) for c, o in zip(calls, own, strict=True) if o != var(name)]
            place = next((f for f in found if f is not None), None)
            if place is not None:
                self.lengths[name] = place

    def _length(self, run: Run, call: Call) -> Size | None:
        """The number of tokens of this call."""
        if self._own_length is None:
            return None
        found = sizes_given(call).get(self._own_length)
        return None if found is None else run.size(found)

    def renaming(self, run: Run, call: Call) -> dict[str, Expr]:
        """Variable of the run -> ``seq_len``, if the run has another name for this call's tokens."""
        if self._is_flat(call):
            return {"seq_len": num(1)}
        own = self._length(run, call)
        if isinstance(own, Expr) and _is_variable(own) and own != var("seq_len"):
            return {next(iter(free_variables(own))): var("seq_len")}
        return {}

    def in_own_length(self, run: Run, observation: Observation) -> Observation:
        """The observation with its sizes in the variables of the class."""
        rename = self.renaming(run, observation.call)
        if not rename:
            return observation
        items = {
            key: dataclasses.replace(item, fields={n: renamed(f, rename) for n, f in item.fields.items()})
            for key, item in observation.items.items()
        }
        return dataclasses.replace(observation, items=items, rename=rename)

    def _find_given(self, calls: Sequence[Call]) -> None:
        """Find tensors that only some calls pass to forward()."""
        given = [dict(forward_arguments(call)) for call in calls]
        for name in {n: None for arguments in given for n in arguments}:
            there = [isinstance(arguments.get(name), torch.Tensor) for arguments in given]
            missing = [arguments.get(name) is None for arguments in given]
            if any(there) and any(missing) and all(t or m for t, m in zip(there, missing, strict=True)):
                self.switches.setdefault(f"has_{name}", f"inputs.{name}")

    def _find_switches(self, primary: torch.nn.Module, others: Sequence[torch.nn.Module]) -> None:
        """Find attributes that are on or present in some instances and off or absent in others, nearest first."""
        instances = (primary, *others)
        children = dict.fromkeys(name for instance in instances for name, _ in instance.named_children())
        for prefix in ("", *(f"{name}." for name in children)):
            # Only instances that have the child are compared: whether it exists is a separate switch.
            holders = {i: attribute(i, prefix[:-1]) if prefix else i for i in instances}
            having = [i for i in instances if holders[i] is not None]
            names = dict.fromkeys(n for i in having for n in (*vars(holders[i]), *getattr(holders[i], "_modules", {})))
            for name in names:
                if name.startswith("_") or name in ("training", *OWN_PLACE):
                    continue
                found = [_attribute_or_missing(i, prefix + name) for i in having]
                if not all(
                    isinstance(v, (bool, int, type(None), torch.nn.Module, torch.SymInt, _Missing)) for v in found
                ):
                    continue
                off = [v is None or v is False or isinstance(v, _Missing) or (type(v) is int and v == 0) for v in found]
                present = [not o for o in off]
                if all(present) or not any(present):
                    continue
                missing = any(isinstance(v, _Missing) for v in found)
                if any(isinstance(v, torch.nn.Module) for v in found):
                    self.switches.setdefault(f"has_{name}", f"self.{prefix}{name}")
                elif not missing:
                    self.switches.setdefault(name, f"self.{prefix}{name}")
        # Attributes that the first instance lacks come first: they describe the others best.
        first = {n: attribute(primary, p.removeprefix("self.")) for n, p in self.switches.items()}
        self.switches = dict(sorted(self.switches.items(), key=lambda kv: bool(first[kv[0]])))

    def numbers(self, run: Run, call: Call) -> dict[str, int]:
        """Values of all variables at this call."""
        found = dict(run.numbers)
        for name, path in (*self.paths.items(), *self.switches.items()):
            if path.endswith(DIMS):
                found[name] = dict(input_tensors(call))[path.removeprefix("inputs.").removesuffix(DIMS)].dim()
                continue
            if path.endswith(ITEM):
                tensor = forward_arguments(call).get(path.removeprefix("inputs.").removesuffix(ITEM))
                found[name] = tensor.dtype.itemsize if isinstance(tensor, torch.Tensor) else 0
            elif path.startswith("inputs."):
                found[name] = int(forward_arguments(call).get(path.removeprefix("inputs.")) is not None)
            else:
                found[name] = _number(attribute(call.module, path.removeprefix("self.")))
        if self._flat is not None and self._is_flat(call):
            found["batch_size"] = found["seq_len"] = int(dict(input_tensors(call))[self._flat].shape[0])
        own = self._length(run, call)
        if own is not None:
            found["seq_len"] = own if isinstance(own, int) else evaluate(own, run.numbers)
        for name in self.lengths.keys() - {"seq_len"}:
            tensor = self.lengths[name].split(".")[1].partition("[")[0]
            if call.parent is not None and forward_arguments(call).get(tensor) is None:
                found[name] = 0
        return found


def _is_variable(formula: Expr) -> bool:
    names = free_variables(formula)
    return len(names) == 1 and formula == var(next(iter(names)))


def renamed(size: Any, rename: dict[str, Expr]) -> Any:
    """A size with some of its variables renamed."""
    return simplify(substitute(size, rename)) if rename and isinstance(size, Expr) else size


class _Missing:
    """Marks a missing attribute."""


def _attribute_or_missing(instance: Any, path: str) -> Any:
    for part in path.split("."):
        if instance is None or not hasattr(instance, part):
            return _Missing()
        instance = getattr(instance, part)
    return instance


def _plain(value: Any, size: Callable[[Any], Size]) -> Any:
    return size(value) if isinstance(value, torch.SymInt) else value


def _number(value: Any) -> int:
    """A switch as a number: 0 if absent, 1 if present, a size as it is."""
    if value is None:
        return 0
    if isinstance(value, torch.nn.Module):
        return 1
    return number_of(value) if isinstance(value, torch.SymInt) else int(value)
