"""The help page of a command: its options in groups, and long lists of words as sentences.

The groups are a table of names, so that a new option needs no more than a name in it. All others stand under Options.
"""

from __future__ import annotations

import re
from typing import Any

GROUPS = {
    "Sizes": (
        "phase", "batch_size", "seq_len", "cache_len", "element_type", "kv_type", "settings", "max_points",
    ),
    "Served": (
        "serve", "in_flight", "isl", "osl", "stream", "prefix", "chunk", "speculative_tokens", "acceptance", "draft_us",
    ),
    "Output": (
        "form", "output", "depth", "kernels", "each", "sort", "top", "by", "weight", "exact", "formulas", "values",
        "columns", "reports", "device", "as_json", "quiet", "debug", "help",
    ),
    "Source": (
        "module", "model", "config", "model_id", "attn", "dtype", "as_dtype", "engine", "results", "results_b",
        "module_analysis", "transformers", "pytorch", "fresh", "no_atlas",
    ),
    "Own classes": ("inputs", "init", "path"),
    "Code bases": ("include", "exclude", "update", "template"),
    "Agents": (
        "narrate", "agent_model", "agent_effort", "fallback_model", "max_budget_usd", "max_turns", "concurrency",
        "timeout", "dry_run",
    ),
}  # fmt: skip
"""Group -> the parameters of commands in it. The groups stand on the page in this order."""

OPTIONS = "Options"

LONGEST = 28
"""Longest text of an option that typer puts beside its help. Above it the words of the option stand in the help."""

_WORDS = re.compile(r"<(?:list\[)?([\w|.-]+)\]?>")


def write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the arguments and the options of a command, group by group."""
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", OPTIONS, *GROUPS)}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            found[_group(parameter)].append(_shortened(*record))
    for name, records in found.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)


def _group(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return next((name for name, names in GROUPS.items() if parameter.name in names), OPTIONS)


def _shortened(option: str, text: str) -> tuple[str, str]:
    """The option with a word in place of a long list of words, which then stands in its help."""
    words = _WORDS.search(option)
    if words is None or "|" not in words[1] or len(option) <= LONGEST:
        return option, text
    told, gap, extra = text.partition("  [")
    listed = ", ".join(words[1].split("|"))
    metavar = option[: words.start()].split()[-1].lstrip("-").replace("-", "_").upper()
    return f"{option[: words.start()]}{metavar}", f"{told} One of {listed}.{gap}{extra}"
