"""The tables of an inspected model and of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmp.report.formats.figures import in_full

if TYPE_CHECKING:
    from lmp.observe.inspection import Cache, CacheSegment, Inspection, Module, Tensor
    from lmp.source.catalogue import Entry

COUNT_WIDTH = 17
"""Characters of a number of parameters: up to 9,999,999,999,999."""


def print_inspection(out: Console, found: Inspection) -> None:
    config = found.config
    facts = [f"{found.distribution} {found.version}", f"config: {config.name} ({config.origin})", found.dtype]
    if found.dtype_from == "assumed":
        facts[-1] += " (assumed: the config states none)"
    out.print(Text(found.class_name, style="bold"), Text(f"  {' · '.join(facts)}"), sep="\n")
    if found.quantised:
        out.print(Text(f"  the config is quantised ({found.quantised}); shapes and bytes are those in {found.dtype}"))
    out.print(Text(f"{'parameters':>{COUNT_WIDTH}}  module", style="dim"))
    for line in _lines(found.tree, 0, found.dtype):
        out.print(line, soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _totals(found):
        table.add_row(Text(name, style="bold"), Text(value))
    out.print(table)


def _lines(module: Module, depth: int, dtype: str) -> Iterator[Text]:
    """A line for each module: parameters of one such module, its name, its class, and its own tensors."""
    name = f"{module.name}: " if module.name else ""
    times = f"  x{module.repeat}" if module.repeat != 1 else ""
    own = [_tensor(t, dtype) for t in module.weights] + [f"buffer {_tensor(t, dtype)}" for t in module.buffers]
    yield Text.assemble(
        f"{module.parameters_count:>{COUNT_WIDTH},}  {'  ' * depth}",
        (name, "bold"),
        (module.class_name, "cyan"),
        (times, "bold"),
        (f"  {', '.join(own)}" if own else "", "dim"),
    )
    for inner in module.modules:
        yield from _lines(inner, depth + 1, dtype)


def _tensor(tensor: Tensor, dtype: str) -> str:
    kind = "" if tensor.dtype == dtype else f" {tensor.dtype}"
    tied = f" = {tensor.tied_to}" if tensor.tied_to else ""
    return f"{tensor.name} {tensor.shape}{kind}{tied}"


def _totals(found: Inspection) -> Iterator[tuple[str, str]]:
    totals = found.totals
    if _folded(found.tree):
        yield "", "xN: N such modules; parameters at this line and below are those of one"
    yield "parameters", f"{totals.parameters_count:,}"
    if found.cache is not None:
        active, count = totals.active_parameters_count, totals.parameters_count
        share = "" if active in (None, count) else f" ({(active or 0) / count:.1%})"
        yield "  active per token", f"unknown: {totals.active_reason}" if active is None else f"{active:,}{share}"
    yield "weight bytes", f"{totals.weight_bytes:,} ({_binary(totals.weight_bytes)}) in {found.dtype}"
    if totals.checkpoint_bytes is not None:
        size = totals.checkpoint_bytes
        yield "  as quantised", f"{in_full(size)} ({_binary(round(size))}) with scales"
    elif totals.checkpoint_reason is not None:
        yield "  as quantised", f"unknown: {totals.checkpoint_reason}"
    if totals.buffer_bytes:
        yield "buffer bytes", f"{totals.buffer_bytes:,}"
    if found.cache is not None:
        yield from _cache(found.cache)


def _cache(cache: Cache) -> Iterator[tuple[str, str]]:
    if not cache.segments:
        yield "KV cache", f"unknown: {cache.reason}"
        return
    for index, segment in enumerate(cache.segments):
        name = f"KV cache of {cache.of}" if cache.of else "KV cache"
        yield (name if index == 0 else "", _segment(segment))
    if cache.encoder_bytes_per_token is not None:
        yield "", f"{cache.encoder_bytes_per_token:,} bytes per token of the encoder"


def _segment(segment: CacheSegment) -> str:
    parts = []
    if segment.bytes_per_token:
        average = f", averaged over {segment.steps_of}" if segment.steps_of else ""
        parts.append(f"{segment.bytes_per_token:,} bytes per token{average}")
    if segment.constant_bytes:
        parts.append(f"{segment.constant_bytes:,} bytes at any length")
    where = "" if segment.from_tokens == 1 else f"from {segment.from_tokens:,} tokens on: "
    where = where if segment.to_tokens is None else f"{segment.from_tokens:,} to {segment.to_tokens:,} tokens: "
    return where + (" and ".join(parts) or "0 bytes")


def _folded(module: Module) -> bool:
    return module.repeat != 1 or any(map(_folded, module.modules))


def _binary(count: int) -> str:
    """The count of bytes in the largest binary unit that is not above it."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}"


def print_catalogue(out: Console, entries: Iterable[Entry]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("model", "architecture", "source"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        also = f" ({', '.join(entry.aliases)})" if entry.aliases else ""
        table.add_row(Text(f"{entry.id}{also}"), Text(entry.architecture), Text(entry.stated_by))
    out.print(table)
