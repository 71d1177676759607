"""What `lmp expand` prints: what a model costs, its modules as a tree, and on request its totals as formulas.

Sources and formulas are foreign text: cells hold them as `Text`, never as rich's markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lmp.cli.tables import LABEL, STYLES, indented, joined, labelled, short
from lmp.cli.tree import Branch, print_tree
from lmp.link.verdict import conditions, verdict
from lmp.report.formats.figures import figure, in_full

if TYPE_CHECKING:
    from lmp.analyze.models import ModelOutcome
    from lmp.analyze.session import Options
    from lmp.link.overview import CacheBytes, CallCosts, Overview
    from lmp.link.parameter_counts import Counts
    from lmp.records import ModelAnalysis, ModelKernel

_ROOT = "(the model)"
MAX_FORMULA = 160
"""Characters of the longest formula that stands among the figures."""

MAX_LINES = 4
"""Lines of one formula; the rest is in --json."""


def print_model(out: Console, outcome: ModelOutcome, options: Options, depth: int = 0, formulas: bool = False) -> None:
    """Print the model: what it costs, its modules, and the next command.

    ``depth`` levels of modules show their lines: 1 is the model's own forward(). With ``formulas`` the totals stand
    below as formulas, with their variables and assumptions.
    """
    from lmp.link.overview import overview

    model, figures = outcome.model, overview(outcome.model, outcome.lookup)
    _print_heading(out, model)
    for label, texts in _figures(figures):
        out.print(labelled(label, texts))
    out.print()
    print_tree(out, "parameters", list(_branches(model, figures.counts, formulas)))
    for text in _legend(model, figures):
        out.print(Text(text, style="dim"))
    if depth:
        for path, name, kernels in _modules(model, depth):
            out.print(_lines(path, name, kernels, out.width))
    out.print()
    if formulas:
        for label, texts in _facts(model, out.width):
            out.print(labelled(label, texts))
    for label, texts in _remarks(model, formulas):
        out.print(labelled(label, texts))
    for label, texts in _origin(outcome, options.why_engine, formulas):
        out.print(labelled(label, texts))
    out.print(Text(f"stored in {outcome.file}", style="dim"), soft_wrap=True)
    out.print(Text.assemble("next: ", (_next_command(model, options, figures), "bold")), soft_wrap=True)


def _print_heading(out: Console, model: ModelAnalysis) -> None:
    source, verification = model.source, model.verification
    said, count = verdict(verification), len(model.parts)
    if verification.status == "verified":
        where = conditions(model.assumptions, model.pinned)
        said += f", as are its {count - 1} parts" if count > 1 else ""
        said += f", where {where}" if where else ""
    name = model.class_name if len(model.class_name) <= out.width else short(model.class_name)
    out.print(Text(name, style="bold"), soft_wrap=True)
    facts = [f"{source.distribution} {source.version}", f"config: {model.config.name}", model.dtype]
    out.print(indented(joined(facts)))
    out.print(indented(said, STYLES[verification.status]))
    out.print()


# --- figures ---------------------------------------------------------------------------------------------------------


def _figures(found: Overview) -> Iterator[tuple[str, list[str]]]:
    """The answers: parameters, bytes of the cache, FLOPs a token in each phase."""
    unknown = dict(found.unknown)
    if found.parameters is not None:
        yield "parameters", [f"{found.parameters:,}"]
    else:
        yield "parameters", [f"unknown: {unknown.pop('parameters')}"]
    yield "KV cache", [_cache(found.cache, unknown.pop("cache", None))]
    for call in found.calls:
        yield call.phase, list(_call(call))
    for name, reason in unknown.items():
        yield name, [f"unknown: {reason}"]


def _cache(cache: CacheBytes | None, reason: str | None) -> str:
    if reason is not None:
        return f"unknown: {reason}"
    if cache is None:
        return "none: no formula depends on cache_len"
    if not cache.a_token and not cache.held:
        return "0 bytes a token: what the model keeps does not grow with cache_len"
    element = f"at {in_full(cache.element)} bytes an element"
    held = f"{figure(cache.held, 'B')} held for one sequence at cache_len {cache.cache_len:,}"
    grows = "a token" if cache.held == cache.a_token * cache.cache_len else "for each further token"
    return f"{in_full(cache.a_token)} bytes {grows}, {held}, {element}"


def _call(call: CallCosts) -> Iterator[str]:
    """The FLOPs of a call with the call that they are of, and their formula."""
    of = "a token" if call.tokens is not None else "in all"
    exact = f" (exactly {in_full(call.flops)})" if isinstance(call.flops, int) and call.flops > 9999 else ""
    sizes = ", ".join(f"{name} {value:,}" for name, value in call.values.items())
    yield f"{figure(call.flops, 'FLOP')} {of}{exact} at {sizes}"
    formula = call.formula
    if len(formula.text) > MAX_FORMULA:
        yield f"their formula has {len(formula.text):,} characters: --formulas shows it"
    elif not formula.text.replace(",", "").isdecimal():
        per = "" if formula.a_token else ", in the whole call"
        fixed = f" (at {formula.fixed}{per})"
        yield f"= {formula.text}{fixed}"
    for broken in call.violated:
        yield f"the assumption {broken.assumption} does not hold there"


# --- modules ---------------------------------------------------------------------------------------------------------


def _branches(model: ModelAnalysis, counts: Counts, formulas: bool) -> Iterator[Branch]:
    """A line for each module. ``formulas``: also the formula of its repeat, and how many kernels it has."""
    statuses = {name: part.status for name, part in model.parts.items()}
    own = [_own(model.kernels)] if formulas else []
    yield Branch(
        0, _count(counts, "", model.class_name), [Text(_ROOT, style="cyan"), _class(model.class_name, statuses), *own]
    )
    for level, step, kernel in _called(model.kernels, "", 1):
        repeat = _repeat(kernel, model.values, formulas)
        name = Text.assemble((repeat, "bold"), _class(kernel.class_name or "", statuses))
        own = [_own(kernel.kernels)] if formulas else []
        yield Branch(
            level, _count(counts, kernel.path or "", kernel.class_name or ""), [Text(step, style="cyan"), name, *own]
        )


def _count(counts: Counts, path: str, class_path: str) -> str:
    found = counts.get((path, class_path))
    return "unknown" if found is None else f"{found:,}"


def _legend(model: ModelAnalysis, figures: Overview) -> Iterator[str]:
    repeats = [_repeat(kernel, model.values, formulas=False) for _, _, kernel in _called(model.kernels, "", 1)]
    if any(repeats):
        yield "N x: N such modules; parameters there and below are those of one"
    if "n x " in repeats:
        yield "n x: the call decides how often it runs; --formulas shows the formula"
    if figures.shares_weights:
        yield "modules share weights: each counts them, the whole counts them once"


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
    return Text(f"{count} kernel{'' if count == 1 else 's'}", style="dim")


def _repeat(kernel: ModelKernel, values: Mapping[str, int], formulas: bool) -> str:
    """``36 x `` before a class; ``n x `` if the number depends on the call. With ``formulas`` also the formula."""
    if kernel.repeat == 1:
        return ""
    if isinstance(kernel.repeat, int):
        return f"{kernel.repeat:,} x "
    value = _value(kernel.repeat, values)
    if value is None:
        return f"({kernel.repeat}) x " if formulas else "n x "
    return f"{value:,} x (= {kernel.repeat}) " if formulas else "" if value == 1 else f"{value:,} x "


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
    yield "variables", given


def _remarks(model: ModelAnalysis, formulas: bool) -> Iterator[tuple[str, list[str]]]:
    """The conditions of the figures, and what is not proven. Without ``formulas`` conditions are counted."""
    unverified = [f"{name}: {part.status}" for name, part in model.parts.items() if part.status != "verified"]
    pinned = [f"{name} = {value}" for name, value in model.pinned.items()]
    for label, texts in (
        ("assumptions", model.assumptions if formulas else _counted(model.assumptions)),
        ("pinned", pinned if formulas else _counted(pinned)),
        ("NOT VERIFIED", unverified),
        ("UNCOUNTED", [f"{name}: {', '.join(p.uncounted)}" for name, p in model.parts.items() if p.uncounted]),
    ):
        if texts:
            yield label, texts


def _counted(texts: Sequence[str]) -> list[str]:
    return [f"{len(texts)}: --formulas lists them"] if texts else []


def _origin(outcome: ModelOutcome, why_engine: str, formulas: bool) -> Iterator[tuple[str, list[str]]]:
    """Where the figures are from."""
    model = outcome.model
    yield "config", [f"{model.config.name} ({model.config.origin})"]
    chosen = why_engine and outcome.made  # what others made was not chosen
    facts = [f"{model.engine} ({why_engine})" if chosen else model.engine]
    facts += [f"attention: {model.attn_implementation}"] if model.attn_implementation else []
    yield "engine", [joined(facts)]
    if outcome.made:
        yield "analysed now", list(outcome.made) if formulas else _counted(outcome.made)
    elif outcome.reused:
        yield "from the store", ["nothing was analysed now"]


def _next_command(model: ModelAnalysis, options: Options, figures: Overview) -> str:
    """The command that evaluates the model, in the words that people type."""
    import shlex

    from lmp.analyze.session import class_of_config
    from lmp.errors import NotFound, UsageError

    given, is_its_class = options.model_id or options.config_file, False
    if given is not None:
        with suppress(UsageError, NotFound):  # a config need not name a class
            is_its_class = class_of_config(options) == model.class_name
    words = ["lmp", "evaluate", str(given) if is_its_class else model.class_name]
    for option, value in (
        ("--model-id", None if is_its_class else options.model_id),
        ("--config", None if is_its_class else options.config_file),
        ("--attn", options.attention),
    ):
        words += [option, str(value)] if value is not None else []
    decode = next((call for call in figures.calls if call.phase == "decode"), None)
    if decode is not None:
        length = decode.values["cache_len"]
        words += ["--phase", "decode", "-b", "16", "-c", str(length) if length % 1024 else f"{length // 1024}k"]
    else:
        known = {"batch_size": ("-b", "16"), "seq_len": ("-s", "512")}
        words += [word for name, said in known.items() if name in model.parameters for word in said]
    for name in model.parameters:
        if name not in model.values and name not in ("batch_size", "seq_len", "cache_len"):
            words += ["--set", f"{name}=512"]
    return shlex.join(words)


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
