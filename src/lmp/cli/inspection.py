"""The tables of an inspected model and of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmp.cli.tables import STACKED, indented, joined, labelled, short, short_names
from lmp.cli.tree import Branch, print_tree
from lmp.report.formats.figures import in_full

if TYPE_CHECKING:
    from lmp.observe.inspection import Cache, CacheSegment, Inspection, Module, Tensor
    from lmp.source.catalogue import Entry


def print_inspection(out: Console, found: Inspection, full_names: bool = False) -> None:
    """Print the totals, then the tree. Classes have short names, with their paths below it, or ``full_names``."""
    name = found.class_name if len(found.class_name) <= out.width else short(found.class_name)
    facts = [f"{found.distribution} {found.version}", f"config: {found.config.name}", found.dtype]
    if found.dtype_from == "assumed":
        facts[-1] += " (assumed: the config states none)"
    out.print(Text(name, style="bold"), soft_wrap=True)
    out.print(indented(joined(facts)))
    if found.quantised:
        out.print(indented(f"the config is quantised ({found.quantised}); shapes and bytes are those in {found.dtype}"))
    for label, texts in _totals(found):
        out.print(labelled(label, texts))
    out.print()
    names = {} if full_names else short_names(_classes(found.tree))
    print_tree(out, "parameters", list(_branches(found.tree, 0, found.dtype, names)))
    if _folded(found.tree):
        out.print(Text("N x: N such modules; parameters there and below are those of one", style="dim"))
    out.print()
    out.print(labelled("config", [f"{found.config.name} ({found.config.origin})"]))
    for package, classes in _legend(names):
        out.print(labelled(package, classes))


def _branches(module: Module, level: int, dtype: str, names: Mapping[str, str]) -> Iterator[Branch]:
    """A line for each module: parameters of one such module, its name, its class, and its own tensors."""
    times = f"{module.repeat:,} x " if module.repeat != 1 else ""
    own = [_tensor(t, dtype) for t in module.weights] + [f"buffer {_tensor(t, dtype)}" for t in module.buffers]
    texts = [Text(module.name, style="cyan")] if module.name else []
    texts.append(Text.assemble((times, "bold"), names.get(module.class_name, module.class_name)))
    texts += [Text(text, style="dim") for text in own]
    yield Branch(level, f"{module.parameters_count:,}", texts)
    for inner in module.modules:
        yield from _branches(inner, level + 1, dtype, names)


def _classes(module: Module) -> Iterator[str]:
    yield module.class_name
    for inner in module.modules:
        yield from _classes(inner)


def _legend(names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """The files of the short names, with the classes of each: both together are the class's path."""
    files: dict[str, list[str]] = {}
    for path, name in names.items():
        files.setdefault(path.rpartition(".")[0], []).append(name)
    for index, (file, classes) in enumerate(files.items()):
        yield "classes" if index == 0 else "", [f"{file}: {', '.join(classes)}"]


def _tensor(tensor: Tensor, dtype: str) -> str:
    kind = "" if tensor.dtype == dtype else f" {tensor.dtype}"
    tied = f" = {tensor.tied_to}" if tensor.tied_to else ""
    return f"{tensor.name} {tensor.shape}{kind}{tied}"


def _totals(found: Inspection) -> Iterator[tuple[str, list[str]]]:
    totals = found.totals
    yield "parameters", [f"{totals.parameters_count:,}"]
    if found.cache is not None:
        yield "KV cache", list(_cache(found.cache))
        active, count = totals.active_parameters_count, totals.parameters_count
        share = "" if active in (None, count) else f" ({(active or 0) / count:.1%})"
        yield "active per token", [f"unknown: {totals.active_reason}" if active is None else f"{active:,}{share}"]
    yield "weight bytes", [f"{totals.weight_bytes:,} ({_binary(totals.weight_bytes)}) in {found.dtype}"]
    if totals.checkpoint_bytes is not None:
        size = totals.checkpoint_bytes
        yield "  as quantised", [f"{in_full(size)} ({_binary(round(size))}) with scales"]
    elif totals.checkpoint_reason is not None:
        yield "  as quantised", [f"unknown: {totals.checkpoint_reason}"]
    if totals.buffer_bytes:
        yield "buffer bytes", [f"{totals.buffer_bytes:,}"]


def _cache(cache: Cache) -> Iterator[str]:
    if not cache.segments:
        yield f"unknown: {cache.reason}"
        return
    of = f" (of {cache.of})" if cache.of else ""
    for index, segment in enumerate(cache.segments):
        yield _segment(segment) + (of if index == 0 else "")
    if cache.encoder_bytes_per_token is not None:
        yield f"{cache.encoder_bytes_per_token:,} bytes per token of the encoder"


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
    if out.width < STACKED:
        for entry in entries:
            out.print(Text(entry.id, style="bold"), soft_wrap=True)
            names = [f"also {', '.join(entry.aliases)}"] if entry.aliases else []
            for text in (*names, entry.architecture, entry.stated_by):
                out.print(indented(text))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("model", "architecture", "source"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        also = f" ({', '.join(entry.aliases)})" if entry.aliases else ""
        table.add_row(Text(f"{entry.id}{also}"), Text(entry.architecture), Text(entry.stated_by))
    out.print(table)
