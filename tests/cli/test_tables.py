"""Tables that people read: every character of the source is shown as it is, and nothing is cut off."""

from __future__ import annotations

import io
import re
from pathlib import Path

import analyses
import pytest
from analyses import kernel
from rich.console import Console

from lmp.analyze.session import Outcome
from lmp.cli import tables
from lmp.records import ModuleAnalysis

WIDTHS = (80, 100, 120, 200)


def printed(analysis: ModuleAnalysis, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    tables.print_outcomes(out, [Outcome(analysis, Path("r.json"), False, True)], "trace")
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    return text


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_code_that_looks_like_markup_is_shown(width: int) -> None:
    code = 'x = y[..., :n][/red] + self["bold"](z)[link=http://x]'
    text = printed(analyses.mlp(kernels=[kernel(7, "1", "2", "3", code=code, operation="[red]add[/red]")]), width)
    assert squeezed(code) in squeezed(text)
    assert "[red]add[/red]" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_long_formulas_are_folded_not_cut(width: int) -> None:
    long = " + ".join(f"{{batch_size}} * {{seq_len}} * {{name_number_{n}}}" for n in range(40))
    text = printed(analyses.mlp(kernels=[kernel(7, long, "1", "1", code="y = " + "f(" * 60)]), width)
    for n in range(40):
        assert f"{{name_number_{n}}}" in text
    assert text.count("f(") >= 60 - text.count("\n")
    assert "…" not in text


def test_the_width_decides_how_formulas_stand() -> None:
    analysis = analyses.mlp(kernels=[kernel(7, "10", "20", "30")])
    assert re.search(r"10 +20 +30", printed(analysis, 120))
    assert re.search(r"flops 10\s+read  20\s+write 30", printed(analysis, 80))


def test_references_are_shortened() -> None:
    assert tables.shown("2 * ${{a.b.Linear}}(n={m} + 1)") == "2 * Linear(n={m} + 1)"
    assert tables.shown("${{broken") == "${{broken"
    assert tables.shown("{m} * 2") == "{m} * 2"


def test_helper_functions_stand_under_their_name() -> None:
    kernels = [
        kernel(9, "1", "1", "1", function="repeat_kv", code="helper line"),
        kernel(201, "1", "1", "1", function="attention", file="src/transformers/other.py", code="other line"),
        kernel(300, "1", "1", "1", code="own line"),
    ]
    text = printed(analyses.mlp(kernels=kernels), 120)
    order = [
        "own line",
        "in repeat_kv(), src/transformers/models/llama/modeling_llama.py",
        "helper line",
        "in attention(), src/transformers/other.py",
        "other line",
    ]
    positions = [text.index(part) for part in order]
    assert positions == sorted(positions)


def test_what_stands_below_the_table() -> None:
    analysis = analyses.mlp(
        assumptions=["{seq_len} <= 8"],
        pinned={"experts": 4},
        inlined={"a.b.Gate": "it holds modules that it is given", "a.b.Mixer": "it does not run by itself"},
        free_lines=[3, 4, 5, 9],
        not_taken_lines=[11],
        uncounted=["aten::frob"],
    )
    text = printed(analysis, 100)
    for line in (
        "assumptions       {seq_len} <= 8",
        "pinned            experts = 4",
        "inlined           Gate (it holds modules that it is given)",
        "                  Mixer (it does not run by itself)",
        "free lines        3-5, 9",
        "lines not taken   11",
        "UNCOUNTED         aten::frob",
        "variables         batch_size = inputs.x.shape[0]",
        "hidden_size = config.hidden_size = 8",
    ):
        assert line in text


def test_repeats_and_causal_attention_are_marked() -> None:
    kernels = [kernel(7, "1", "1", "1", operation="attention", causal=True, repeat="{n}")]
    text = printed(analyses.mlp(kernels=kernels), 200)
    assert "attention (x {n})" in text
    assert "(causal," in text
    assert "in full)" in text


def test_a_reader_that_has_gone_is_no_failure() -> None:
    with pytest.raises(BrokenPipeError):
        tables.console().on_broken_pipe()
