"""A model in a notebook: the tree of its modules with their shares, as HTML without a script.

Colours are those of the page around it, so that it can be read on a dark one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from lmp.api.results import shown
from lmp.errors import LmpError
from lmp.link.overview import LENGTHS
from lmp.link.values import values_for
from lmp.records import ModelKernel, short

if TYPE_CHECKING:
    from lmp.formula import Number
    from lmp.link.numbers import ModelNumbers, ModuleNumbers

OPEN_LEVELS = 3
"""Levels of modules that are shown unfolded."""

_ROW = "display:inline-grid;grid-template-columns:minmax(18em,1fr) 9em 9em;column-gap:1em;width:calc(100% - 2em)"
_BAR = "display:inline-block;height:.6em;background:currentColor;opacity:.35;vertical-align:baseline;margin-right:.4em"


def html(title: str, numbers: ModelNumbers) -> str:
    """The tree. At no call that can be evaluated it has no shares."""
    found = _first_call(numbers)
    if found is None:
        said = "no shares: sizes of the model have no value"
        body = _list(_names(numbers.model.kernels))
    else:
        call, root = found
        totals = _Totals(root.total.flops, root.total.bytes)
        said = f"shares of FLOPs and bytes, {call}"
        head = f'<div><span style="{_ROW}"><span></span><span>FLOPs</span><span>bytes</span></span></div>'
        body = head + _module(short(root.class_name), root, totals, 0)
    style = "font-family:monospace;font-size:90%;line-height:1.5;color:inherit;background:transparent;max-width:60em"
    return f'<div style="{style}"><div>{escape(title)}</div><div>{escape(said)}</div>{body}</div>'


def parameters(numbers: ModelNumbers) -> int | None:
    """Parameters of the model at its config; None if the analysis does not say them."""
    from lmp.formula import evaluate_exact

    count = numbers.quantities.get("parameters_count")
    if count is None:
        return None
    try:
        value = evaluate_exact(count, dict(numbers.model.values))
    except LmpError:
        return None
    return value if isinstance(value, int) else None


# --- the call that is shown ------------------------------------------------------------------------------------------


def _first_call(numbers: ModelNumbers) -> tuple[str, ModuleNumbers] | None:
    """A decode step of one sequence, or one call of a class without a cache, where the assumptions hold."""
    model = numbers.model
    for length in LENGTHS:
        cached = "cache_len" in model.parameters
        sizes: dict[str, Number] = {"batch_size": 1, "seq_len": 1 if cached else length, "cache_len": length * cached}
        try:
            values = values_for(model, sizes)
            if numbers.violated(values):
                continue
            tree = numbers.tree(values)
        except LmpError:
            continue
        call = f"one new token on {length:,} cached ones" if cached else f"{length:,} new tokens"
        return f"batch 1, {call}: {shown(tree.total.flops, 'FLOP')}, {shown(tree.total.bytes, 'B')}", tree
    return None


# --- HTML ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Totals:
    flops: int
    bytes: Number


def _module(label: str, module: ModuleNumbers, totals: _Totals, level: int) -> str:
    from lmp.link.numbers import ModuleNumbers

    times = f" × {module.repeat}" if module.repeat != 1 else ""
    named = f"{label}{times}" if module.path == "" else f"{label} {short(module.class_name)}{times}"
    row = _row(named, _share(module.total.flops, totals.flops), _share(module.total.bytes, totals.bytes))
    inner = [child for child in module.children if isinstance(child, ModuleNumbers)]
    operators = [child for child in module.children if not isinstance(child, ModuleNumbers)]
    if not inner:
        return f'<div style="padding-left:1em">{row}</div>'
    parts = [_module(_step(child.path, module.path), child, totals, level + 1) for child in inner]
    if operators:
        flops = sum(child.total.flops for child in operators)
        moved = sum(child.total.bytes for child in operators)
        own = _row("its own operators", _share(flops, totals.flops), _share(moved, totals.bytes))
        parts.append(f'<div style="padding-left:1em">{own}</div>')
    opened = " open" if level < OPEN_LEVELS else ""
    inside = f'<div style="padding-left:1em">{"".join(parts)}</div>'
    return f'<details{opened}><summary style="cursor:pointer">{row}</summary>{inside}</details>'


def _step(path: str, above: str) -> str:
    return path.removeprefix(f"{above}.") if above else path


def _row(name: str, *shares: float) -> str:
    cells = "".join(f"<span>{_bar(share)}</span>" for share in shares)
    return f'<span style="{_ROW}"><span>{escape(name)}</span>{cells}</span>'


def _bar(share: float) -> str:
    width = max(0.0, min(share, 1.0)) * 4
    return f'<span style="{_BAR};width:{width:.2f}em"></span>{share:.1%}'


def _share(part: Number, whole: Number) -> float:
    return float(part / whole) if whole else 0.0


def _names(kernels: Iterable[ModelKernel]) -> Iterator[str]:
    for kernel in kernels:
        if kernel.class_name is not None and kernel.kernels:
            yield f"{kernel.path or ''} {short(kernel.class_name)} × {kernel.repeat}"


def _list(names: Iterable[str]) -> str:
    return "".join(f'<div style="padding-left:1em">{escape(name)}</div>' for name in dict.fromkeys(names))
