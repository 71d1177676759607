"""The table of a model: its modules as a tree, and its totals.

Sources and formulas are foreign text: cells hold them as `Text`, never as rich's markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lmp.cli.tables import LABEL, STYLES, labelled, short

if TYPE_CHECKING:
    from lmp.analyze.models import ModelOutcome
    from lmp.records import ModelAnalysis, ModelKernel

_ROOT = "(the model)"
_INDENT = 2
MAX_LINES = 4
"""Lines of one formula; the rest is in --json."""


def print_model(out: Console, outcome: ModelOutcome, depth: int = 0, why_engine: str = "") -> None:
    """Print the model. ``depth`` levels of modules show their lines: 1 is the model's own forward().

    ``why_engine`` says why the engine was chosen; it is empty for an engine that was named.
    """
    model = outcome.model
    _print_heading(out, outcome, why_engine)
    out.print(_tree(model, out.width))
    if depth:
        for path, name, kernels in _modules(model, depth):
            out.print(_lines(path, name, kernels, out.width))
    out.print()
    for label, texts in _facts(model, out.width):
        out.print(labelled(label, texts))
    if outcome.made:
        out.print(labelled("analysed now", list(outcome.made)))


def _print_heading(out: Console, outcome: ModelOutcome, why_engine: str) -> None:
    model = outcome.model
    source, config, verification = model.source, model.config, model.verification
    facts = [f"{source.distribution} {source.version}", f"config: {config.name} ({config.origin})"]
    chosen = why_engine and outcome.made  # what others made was not chosen
    facts += [f"engine: {model.engine} ({why_engine})" if chosen else f"engine: {model.engine}"]
    facts += [f"attention: {model.attn_implementation}"] if model.attn_implementation else []
    verdict = f"{verification.status.upper()}: {verification.reason}"
    if verification.status == "verified":
        count = len(model.parts)
        verdict = f"verified at {verification.points} points" + (f", as are its {count - 1} parts" if count > 1 else "")
    out.print(Text(model.class_name, style="bold"), soft_wrap=True)
    out.print(Text(f"  {' · '.join([*facts, model.dtype])}"))
    out.print(Text(f"  {verdict}", style=STYLES[verification.status]))
    out.print(Text(f"  {outcome.file}{', from the store' if outcome.reused else ''}", style="dim"), soft_wrap=True)
    out.print()


# --- modules ---------------------------------------------------------------------------------------------------------


def _tree(model: ModelAnalysis, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("module", overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("repeat", overflow="fold", max_width=max(16, width // 3))
    table.add_column("kernels", justify="right")
    statuses = {name: part.status for name, part in model.parts.items()}
    table.add_row(Text(_ROOT, style="cyan"), _class(model.class_name, statuses), Text("1"), _own(model.kernels))
    for level, step, kernel in _called(model.kernels, "", 1):
        module = Text(" " * _INDENT * level + step, style="cyan")
        repeat = Text(_repeat(kernel, model.values))
        table.add_row(module, _class(kernel.class_name or "", statuses), repeat, _own(kernel.kernels))
    return table


def _called(kernels: Sequence[ModelKernel], path: str, level: int) -> Iterator[tuple[int, str, ModelKernel]]:
    """Every called module, with its level and its path from its caller."""
    for kernel in kernels:
        if kernel.class_name is not None and kernel.path is not None:
            yield level, kernel.path.removeprefix(f"{path}."), kernel
            yield from _called(kernel.kernels, kernel.path, level + 1)


def _class(class_path: str, statuses: Mapping[str, str]) -> Text:
    status = statuses.get(class_path, "verified")
    mark = "" if status == "verified" else f" ({status})"
    return Text.assemble(short(class_path), (mark, STYLES[status]))


def _own(kernels: Sequence[ModelKernel]) -> Text:
    count = sum(kernel.class_name is None for kernel in kernels)
    return Text(str(count) if count else "-")


def _repeat(kernel: ModelKernel, values: Mapping[str, int]) -> str:
    """The formula of the repeat, and its value at the model's config if it has one there."""
    if isinstance(kernel.repeat, int):
        return str(kernel.repeat)
    value = _value(kernel.repeat, values)
    return kernel.repeat if value is None else f"{value} = {kernel.repeat}"


def _value(formula: str, values: Mapping[str, int]) -> int | None:
    from lmp.errors import FormulaError
    from lmp.formula import evaluate

    try:
        return evaluate(formula, values)
    except FormulaError:
        return None


# --- lines -----------------------------------------------------------------------------------------------------------


def _modules(model: ModelAnalysis, depth: int) -> Iterator[tuple[str, str, Sequence[ModelKernel]]]:
    yield _ROOT, model.class_name, model.kernels
    for level, _, kernel in _called(model.kernels, "", 1):
        if level < depth:
            yield kernel.path or "", kernel.class_name or "", kernel.kernels


def _lines(path: str, class_path: str, kernels: Sequence[ModelKernel], width: int) -> RenderableType:
    """The module's own kernels, each with its three formulas, in the order in which they run."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for kernel in kernels:
        times = "" if kernel.repeat == 1 else f" (x {kernel.repeat})"
        name = Text.assemble((kernel.operation, "cyan"), (times, "dim"))
        table.add_row(Text(str(kernel.line), style="dim"), name)
        if kernel.memory_access is not None:
            costs = (kernel.flops or "0", kernel.memory_access.read, kernel.memory_access.write)
            for label, formula in zip(("flops", "read", "write"), costs, strict=True):
                if formula != "0":
                    table.add_row(Text(), Text.assemble((f"{label:<6}", "dim"), _cut(formula, width - 14)))
    return Group(Text(), Text.assemble((path, "cyan"), "  ", (short(class_path), "bold")), table)


# --- the whole -------------------------------------------------------------------------------------------------------


def _facts(model: ModelAnalysis, width: int) -> Iterator[tuple[str, list[str]]]:
    totals = model.totals
    for label, formula in (
        ("FLOPs", totals.flops),
        ("  matmul FLOPs", totals.matmul_flops),
        ("bytes read", totals.read),
        ("bytes written", totals.write),
    ):
        yield label, _general_and_here(formula, model.values, width - LABEL - 1)
    if model.compulsory is not None:
        for label, formula in (("compulsory read", model.compulsory.read), ("  and write", model.compulsory.write)):
            yield label, _general_and_here(formula, model.values, width - LABEL - 1)
    if totals.parameters_count is not None:
        yield "parameters", _general_and_here(totals.parameters_count, model.values, width - LABEL - 1)
    values = model.values
    given = [f"{n} = {p}" + (f" = {values[n]}" if n in values else "") for n, p in model.parameters.items()]
    unverified = [f"{name}: {part.status}" for name, part in model.parts.items() if part.status != "verified"]
    for label, texts in (
        ("variables", given),
        ("assumptions", model.assumptions),
        ("pinned", [f"{name} = {value}" for name, value in model.pinned.items()]),
        ("NOT VERIFIED", unverified),
        ("UNCOUNTED", [f"{name}: {', '.join(p.uncounted)}" for name, p in model.parts.items() if p.uncounted]),
    ):
        if texts:
            yield label, texts


def _general_and_here(formula: str, values: Mapping[str, int], width: int) -> list[str]:
    """The formula, and its form with the values of the model's config put in."""
    from lmp.errors import FormulaError
    from lmp.formula import Num, parse, simplify, substitute, to_text

    general = parse(formula)
    try:
        here = simplify(substitute(general, values))
    except FormulaError:
        return [_cut(formula, width)]
    if here == general:
        return [_cut(formula, width)]
    shown = f"{here.value:,}" if isinstance(here, Num) else to_text(here)
    return [_cut(formula, width), f"= {_cut(shown, width, 'cut here')}"]


def _cut(formula: str, width: int, where: str = "complete with --json") -> str:
    """The beginning of the formula, and the length of the whole if it is cut."""
    room = max(40, width) * MAX_LINES
    if len(formula) <= room:
        return formula
    return f"{formula[:room]} ... ({len(formula):,} characters, {where})"
