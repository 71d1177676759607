"""Section 9: the five questions, answered for this model with the places that answer them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.observe.flow import Op
from lmp.records import short
from lmp.report.document.parts import Block, Bullets, Code, Line, Paragraph, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts
from lmp.report.implementation.caching import cache_blocks
from lmp.report.implementation.declared import kernels_line
from lmp.report.implementation.hardware import hardware_blocks
from lmp.report.implementation.lengths import length_blocks, maximum_blocks
from lmp.report.implementation.operators import (
    Catalogue,
    further,
    joined,
    row_pointer,
)
from lmp.source.parsed import parse

ONE_KERNEL = {
    "scaled_dot_product_attention": "attention with its softmax", "_grouped_mm": "the products of all experts",
    "addmm": "a product with its bias", "baddbmm": "batched products with their bias",
    "_fused_rms_norm": "RMS normalization", "native_layer_norm": "layer normalization",
    "_softmax": "softmax", "silu": "SiLU", "gelu": "GELU",
}  # fmt: skip
"""ATen operators that do in one what would be several."""

SUPPORTS = re.compile(r"^_(?:supports_\w+|can_compile_fullgraph)\s*=\s*True")
HOOKS = re.compile(r"@(use_\w+)")


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """Each answer is of the code that ran, of the config, and of the numbers at the stated points."""
    return Section(
        "9. Technical FAQ",
        sections=[
            _titled("Q: How are variable sequence lengths handled?", length_blocks(facts), told),
            _titled("Q: What is the maximum supported sequence length?", maximum_blocks(facts), told),
            _titled("Q: What operations are fused?", _fused(facts), told),
            _titled("Q: What hardware is required?", hardware_blocks(facts), told),
            _titled("Q: How does the KV cache work?", cache_blocks(facts), told),
        ],
    )


def _titled(question: str, answer: list[Block], told: Told | None) -> Section:
    return Section(question, [Paragraph("A:"), *answer, *further(told, question)])


# --- fusion ----------------------------------------------------------------------------------------------------------


def _fused(facts: ModelFacts) -> list[Block]:
    catalogue = Catalogue(facts)
    items: list[Line] = []
    for name, what in ONE_KERNEL.items():
        rows = [row for row in catalogue.rows.values() if row.first.name == name]
        if rows:
            tasks = ", ".join(row.key for row in rows)
            items.append([Code(f"aten.{name}"), f" is one operator for {what}: {tasks}, ", row_pointer(facts, rows[0])])
    items += list(_apart(facts, catalogue))
    items += list(_replaceable(facts))
    return [Bullets(items, searched="executed operators of the model")]


def _apart(facts: ModelFacts, catalogue: Catalogue) -> Iterator[Line]:
    """Modules and functions whose work in one call is many operators."""
    for (class_name, helper), calls in _calls(facts).items():
        phase, ops = max(calls.values(), key=lambda call: len(call[1]))
        if len(ops) < LEAST:
            continue
        row = catalogue.row_of(phase, ops[0].index)
        what = f"{short(class_name)}, {helper}()" if helper else short(class_name)
        listed = ", ".join(_spans([catalogue.row_of(phase, op.index).key for op in ops]))
        yield [
            Code(what),
            f" is not fused: {len(ops)} operators a call, each through memory ({listed}), from ",
            row_pointer(facts, row),
        ]


LEAST = 3
"""Operators that are worth being one."""


def _calls(facts: ModelFacts) -> dict[tuple[str, str], dict[str, tuple[str, list[Op]]]]:
    """Class and function -> of each of its modules the operators that it runs in the first phase that it has, products
    left out."""
    groups: dict[tuple[str, str], dict[str, tuple[str, list[Op]]]] = {}
    for phase, flow in facts.flows.phases.items():
        for op in flow.ops:
            frame = op.frames[0]
            if op.product is not None or frame.class_name.startswith("torch."):
                continue
            helper = frame.lines[-2].function if len(frame.lines) > 1 else ""
            first, ops = groups.setdefault((frame.class_name, helper), {}).setdefault(frame.path, (phase, []))
            if first == phase:
                ops.append(op)
    return groups


def _spans(keys: list[str]) -> Iterator[str]:
    """``T4 to T13`` where keys follow one another."""
    numbers = sorted({int(key[1:]) for key in keys})
    start = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == last + 1:
            last = number
            continue
        yield f"T{start}" if start == last else f"T{start} to T{last}"
        start = last = number


def _replaceable(facts: ModelFacts) -> Iterator[Line]:
    """Decorators by which code of the model's file is replaced by kernels, and what its classes say they support."""
    source = facts.sources[facts.model.class_name]
    file, lines = source.file, parse(source.path).lines
    hooks = [(number, found[1]) for number, text in enumerate(lines, 1) if (found := HOOKS.match(text.strip()))]
    if hooks:
        pointers = joined([facts.place(file, number, name) for number, name in hooks])
        yield [
            "code that may be replaced as a whole, where kernels or another implementation of experts are asked for: ",
            *pointers,
        ]
    flags = [(number, text.strip().split()[0]) for number, text in enumerate(lines, 1) if SUPPORTS.match(text.strip())]
    if flags:
        yield [
            "what the classes of the file say they support: ",
            *joined([facts.place(file, n, name) for n, name in flags]),
        ]
    kernels = kernels_line(facts)
    if kernels is not None:
        yield kernels
    yield ["the calls here ran with ", Code(f"attn_implementation={facts.model.attn_implementation or 'none'}")]
