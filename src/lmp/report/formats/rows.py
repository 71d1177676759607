"""The tree of numbers as rows, folded and sorted: what tables, csv and parquet show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Literal

from lmp.formula import Number
from lmp.link.numbers import CostNumbers, KernelNumbers, ModuleNumbers
from lmp.records import ModelAnalysis, short
from lmp.report.formats.base import Show, weighed

DEPTH = 3
FEW = 40
"""Operators are shown one by one where all of the tree takes no more rows than that."""

_ALL = 10**6

Part = ModuleNumbers | KernelNumbers


@dataclass(frozen=True)
class Row:
    """``cost`` is that of all ``runs`` in one call of the model."""

    kind: Literal["module", "kernel", "rest"]
    depth: int
    name: str
    path: str
    class_name: str
    place: str
    """``file:line`` of an operator, or of the call of a module."""
    operation: str
    category: str
    repeat: int | None
    runs: int | None
    cost: CostNumbers
    share: Fraction | None
    """Of the whole model; None where the whole is 0."""


def rows(model: ModelAnalysis, tree: ModuleNumbers, show: Show) -> list[Row]:
    """The root first, then what is in it. The parts of a module that are shown add up to it."""
    depth = DEPTH if show.depth is None else show.depth
    kernels = show.kernels
    if kernels is None:
        kernels = sum(1 for _ in _Rows(model, tree, show, _ALL, True, False).all()) <= FEW
    return list(_Rows(model, tree, show, depth, kernels, False).all())


def everything(model: ModelAnalysis, tree: ModuleNumbers, show: Show) -> list[Row]:
    """All levels and all operators, those that cost nothing as well, unless ``show`` says otherwise."""
    depth = _ALL if show.depth is None else show.depth
    return list(_Rows(model, tree, show, depth, show.kernels is not False, True).all())


@dataclass(frozen=True)
class _Rows:
    model: ModelAnalysis
    tree: ModuleNumbers
    show: Show
    depth: int
    kernels: bool
    free: bool
    """Whether what costs nothing is shown."""

    def all(self) -> Iterator[Row]:
        tree = self.tree
        yield self._row("module", 0, short(tree.class_name), tree)
        yield from self._inside(tree, 1)

    def _inside(self, module: ModuleNumbers, depth: int) -> Iterator[Row]:
        if depth > self.depth:
            return
        modules = [child for child in module.children if isinstance(child, ModuleNumbers)]
        operators = [child for child in module.children if isinstance(child, KernelNumbers) and self._seen(child)]
        if not self.kernels and not modules:
            return  # its row says it all
        parts: Sequence[Part] = module.children if self.kernels else modules
        parts = self._sorted([part for part in parts if self._seen(part)])
        shown = parts if self.show.top is None else parts[: self.show.top]
        for part in shown:
            if isinstance(part, ModuleNumbers):
                yield self._row("module", depth, _step(part, module), part)
                yield from self._inside(part, depth + 1)
            else:
                yield self._row("kernel", depth, part.kernel.operation, part)
        rest = parts[len(shown) :]
        if rest:
            yield self._rest(depth, f"{len(rest)} more", module, rest)
        if not self.kernels and operators:
            of_own = f"{len(operators)} operator{'' if len(operators) == 1 else 's'} of its own"
            yield self._rest(depth, of_own, module, operators)

    def _seen(self, part: Part) -> bool:
        return self.free or any(part.total)

    def _sorted(self, parts: Sequence[Part]) -> list[Part]:
        key = self.show.sort
        if key == "order" and self.show.top is not None:
            key = self.show.by  # the top ones are the dearest
        if key == "order":
            return list(parts)
        keys: dict[str, Callable[[Part], Number]] = {
            "intensity": lambda part: Fraction(part.total.flops, part.total.bytes or 1)
        }
        return sorted(parts, key=keys.get(key, lambda part: getattr(part.total, key)), reverse=True)

    def _row(self, kind: Literal["module", "kernel"], depth: int, name: str, part: Part) -> Row:
        if isinstance(part, KernelNumbers):
            step, category, place = part.kernel.operation, part.kernel.category, place_of(self.model, part)
        else:
            step, category, place = "" if part.call is None else part.call.operation, "module", ""
        return Row(
            kind=kind,
            depth=depth,
            name=name,
            path=part.path,
            class_name=part.class_name,
            place=place,
            operation=step,
            category=category,
            repeat=part.repeat,
            runs=part.runs,
            cost=part.total,
            share=self._share(part.total),
        )

    def _rest(self, depth: int, name: str, module: ModuleNumbers, parts: Sequence[Part]) -> Row:
        cost = reduce(CostNumbers.plus, (part.total for part in parts), CostNumbers())
        return Row(
            kind="rest",
            depth=depth,
            name=name,
            path=module.path,
            class_name=module.class_name,
            place="",
            operation="",
            category="",
            repeat=None,
            runs=None,
            cost=cost,
            share=self._share(cost),
        )

    def _share(self, cost: CostNumbers) -> Fraction | None:
        whole = weighed(self.tree.total, self.show.by)
        return Fraction(weighed(cost, self.show.by), whole) if whole else None


def _step(part: ModuleNumbers, around: ModuleNumbers) -> str:
    """``self_attn LlamaAttention``."""
    path = part.path.removeprefix(f"{around.path}.") if around.path else part.path
    return f"{path} {short(part.class_name)}"


def place_of(model: ModelAnalysis, found: KernelNumbers) -> str:
    """``modeling_llama.py:175``; the class's name in place of the file where that is not known."""
    file = found.kernel.file or _file_of(model, found.class_name)
    return f"{file.rpartition('/')[2] if file else short(found.class_name)}:{found.kernel.line}"


def _file_of(model: ModelAnalysis, class_name: str) -> str | None:
    if class_name == model.class_name:
        return model.source.file
    part = model.parts.get(class_name)
    return None if part is None else part.file
