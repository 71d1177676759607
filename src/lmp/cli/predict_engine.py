"""``lmp predict --engine``: the profile that is chosen, and what its rules did, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmp.cli.tables import short

if TYPE_CHECKING:
    from lmp.predict.rewrite.profiles import Profile
    from lmp.predict.rewrite.timing import StepTime


def chosen_profile(
    name: str | None, explain: bool, overhead: float | None, launch: float | None = None
) -> Profile | None:
    """The profile of an engine; None without one. Raises UsageError for options of an engine without one."""
    from lmp.errors import UsageError
    from lmp.predict.rewrite.profiles import profile_named

    if name is None:
        own = {"--explain": explain, "--overhead-us": overhead is not None, "--launch-us": launch is not None}
        given = next((option for option, value in own.items() if value), None)
        if given is not None:
            raise UsageError(f"{given} is of an engine\ngive --engine vllm too, or leave it out")
        return None
    profile = profile_named(name)
    update: dict[str, object] = {} if overhead is None else {"overhead_us": overhead}
    update |= {} if launch is None else {"launch_us": (launch,) * 3}
    return profile.model_copy(update=update) if update else profile


def print_engine(step: StepTime, explain: bool) -> None:
    """The step with its overhead, the rules that held, and the kernels that no rule took."""
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console
    from lmp.predict.rewrite.rewriting import RULES

    screen = console()
    found = step.rewritten
    screen.print(Text(f"matrix FLOPs: {found.matmul_flops:,} of {found.matmul_flops_before:,}, saved {found.saved:,}"))
    held: dict[str, int] = {}
    for firing in found.firings:
        held[firing.rule] = held.get(firing.rule, 0) + 1
    screen.print(Text("rules: " + (", ".join(f"{name} {count}" for name, count in held.items()) or "none held")))
    dearest = step.eager[:3]
    names = (
        f"{short(one.kernel.class_name)}:{one.kernel.line} {one.kernel.operation} {one.us / 1e3:.3f} ms"
        for one in dearest
    )
    screen.print(Text(f"kernels of no rule: {len(step.eager)}; the dearest: {'; '.join(names)}"))
    if not explain:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("rule", "in", "times", "lines", "becomes", "saves FLOPs"):
        table.add_column(column)
    for firing in found.firings:
        first = firing.members[0]
        becomes = " + ".join(kernel.operation for kernel in firing.launches) or "nothing"
        lines = _short_lines(firing.lines)
        cells = (firing.rule, first.path or "the model", f"{first.repeat:,}", lines, becomes, f"{firing.saved:,}")
        table.add_row(*map(Text, cells))
    for one in step.eager:
        kernel = one.kernel
        line = f"{short(kernel.class_name)}:{kernel.line}"
        cells = ("none", kernel.path or "the model", f"{kernel.repeat:,}", line, f"{kernel.operation}, as it is", "0")
        table.add_row(*map(Text, cells))
    screen.print(table)
    for name in held:
        rule = RULES[name]
        screen.print(Text(f"{name}: {rule.pattern} -> {rule.becomes}; saves {rule.saves} matrix FLOPs"))


def _short_lines(lines: Sequence[str]) -> str:
    """``LlamaMLP:163, 164`` of class paths with lines."""
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, number = line.rpartition(":")
        found.setdefault(short(name), []).append(number)
    return "; ".join(f"{name}:{', '.join(numbers)}" for name, numbers in found.items())
