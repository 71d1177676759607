"""Mistakes of meaning that a report's own lines, its template and the code show, without any list of numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.report.review import Roots, review_text
from lmp.report.review.computed import check_computed
from lmp.report.review.consistency import CHECKLIST, checklist
from lmp.report.review.reading import read_markdown
from lmp.report.review.template import IF_LLM, IMPLEMENTATION, REPOSITORY, check_template

CODE = """class Mlp:
    def forward(self, x):
        gate = self.gate(x)
        y = self.act(gate) * self.up(
            x,
        )  # both
        return self.down(y)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/mlp.py").write_text(CODE)
    return tmp_path


def rules(text: str, root: Path, rule: str) -> list[tuple[int, str]]:
    found = review_text("r.md", text, Roots(folders=(root,))).findings
    return [(one.line, one.message) for one in found if one.rule == rule]


# --- quoted code -----------------------------------------------------------------------------------------------------


def pseudocode(*lines: str) -> str:
    return "\n".join(("```python", *lines, "```"))


@pytest.mark.parametrize(
    "lines",
    [
        ("# 1. pkg/mlp.py:3 (gate)", "gate = self.gate(x)"),
        ("# 2. pkg/mlp.py:4 (act)", "y = self.act(gate) * self.up(x)", "#    a remark"),  # of three lines there
        ("# 2. pkg/mlp.py:4 (act)", "y = self.act(gate) *", "    self.up(x)"),  # broken in another place
        ("gate = self.gate(x)    # pkg/mlp.py:3",),
        ("else:      # pkg/mlp.py:3",),
        ("x = anything  # 3 of them",),
        ("# 1. pkg/gone.py:3 (gate)", "gate = self.other(x)"),  # is said of the place
    ],
)
def test_code_that_is_the_sources(lines: tuple[str, ...], repo: Path) -> None:
    assert rules(pseudocode(*lines), repo, "code") == []


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("# 1. pkg/mlp.py:3 (gate)", "gate = self.up(x)"), 3),
        (("# 2. pkg/mlp.py:4 (act)", "y = self.act(gate) + self.up(x)"), 3),
        (("gate = self.gate(y)    # pkg/mlp.py:3",), 2),
    ],
)
def test_code_that_is_not_the_sources(lines: tuple[str, ...], line: int, repo: Path) -> None:
    ((at, message),) = rules(pseudocode(*lines), repo, "code")
    assert at == line
    assert "has another line than the one that is quoted" in message


# --- figures and shapes ----------------------------------------------------------------------------------------------

MODEL = """# Analysis: Small

## 3. Configuration & Parameters

### 3.1 Model Configuration

| Parameter | Value | Description |
| --- | --- | --- |
| `hidden_size` | 1,024 | x |

### 2.2 Module Hierarchy

```
└── q_proj: Linear  weight [8, 4]        32 params
```

## 6.3

The tensor has {figure} = `{formula}`.

### 7.2 Communication Patterns

| Operation | Primitive | When | Data Size |
| --- | --- | --- | --- |
| output | {primitive} | after: `pkg/mlp.py:1` (`all_reduce`) | x |
"""


def computed(
    figure: str = "4.194 MB",
    formula: str = "batch_size * seq_len * hidden_size * a_bytes",
    primitive: str = "all_reduce",
    **replaced: str,
) -> list[tuple[str, str]]:
    """4.194 MB: 1 * 2,048 * 1,024 * 2 bytes = 4,194,304, at a stated call and with two bytes an element."""
    text = MODEL.format(figure=figure, formula=formula, primitive=primitive)
    for old, new in replaced.items():
        text = text.replace(old, new)
    return [(one.rule, one.message) for one in check_computed(read_markdown(text))]


def test_what_a_reports_own_lines_give() -> None:
    assert computed() == []
    assert computed(formula="batch_size * seq_len * other_size") == []  # of a size that the report does not have
    assert computed(formula="2 ** (9 ** 9)") == []  # nothing is worked out without end


@pytest.mark.parametrize(
    ("changes", "rule", "message"),
    [
        ({"figure": "4.195 MB"}, "number", "4.195 MB is not what batch_size * seq_len"),
        ({"formula": "batch_size * seq_len + hidden_size * a_bytes"}, "number", "4.194 MB is not what"),
        # 8 * 4 = 32 parameters, 8 * 5 = 40
        ({"8, 4": "8, 5"}, "shape", "a weight of [8, 5] has 40 params, not 32 params"),
        ({"primitive": "all_gather"}, "code", "all_gather is called for with all_reduce"),
    ],
)
def test_what_they_do_not_give(changes: dict[str, str], rule: str, message: str) -> None:
    ((found, said),) = computed(**changes)
    assert found == rule
    assert said.startswith(message)


# --- the templates ---------------------------------------------------------------------------------------------------


def missing(text: str) -> list[str]:
    return [one.message for one in check_template(read_markdown(text))]


def of_template(llm: str = "no") -> str:
    """A report on a code base with every section and row of its template, and nothing else."""
    sections = (*REPOSITORY.sections, *(IF_LLM if llm == "yes" else ()))
    lines = ["# Repo analysis: x", "", f"**LLM-related:** {llm} (signals: none)", ""]
    for title in sections:
        lines += [f"## {title}", "", *(f"- {row}: x" for row in REPOSITORY.rows.get(title, ())), ""]
    return "\n".join(lines)


@pytest.mark.parametrize("llm", ["yes", "no"])
def test_all_of_a_template(llm: str) -> None:
    assert missing(of_template(llm)) == []


def test_a_section_and_a_row_that_are_missing() -> None:
    text = of_template("yes").replace("## Open questions\n", "").replace("- env vars: x\n", "")
    assert missing(text) == [
        'the section "Open questions" of the template is not there',
        "Configuration surface (how to control it) says nothing of env vars",
    ]
    no_cache = of_template("yes").replace("## KV cache\n", "")
    assert missing(no_cache) == ['the section "KV cache" of the template is not there']
    assert missing(no_cache.replace("related:** yes", "related:** no")) == []


def test_other_markdown_follows_no_template() -> None:
    assert missing("# Notes\n\n## 1. Executive Summary\n\nx") == []
    assert missing("Analysis: without a title") == []


def test_the_templates_headings_are_the_users() -> None:
    """Of seeds/implementation_analysis_template.md and seeds/repo_analysis_template.md: 33 and 13 + 6 of them."""
    assert (len(IMPLEMENTATION.sections), len(REPOSITORY.sections), len(IF_LLM)) == (33, 13, 6)


# --- the report as a whole -------------------------------------------------------------------------------------------

WHOLE = """# Repo analysis: x

**LLM-related:** yes (signals: `pkg/mlp.py:1`)

## TL;DR (5–8 lines)

- It is a small thing of 7 lines.
- It has one class: `pkg/mlp.py:1` (`Mlp`).
- It has one method.

## Module map (table)

| Path | Role | Notes |
| --- | --- | --- |
| `pkg/` | the code | 1 file |

### Configuration surface (how to control it)

| Mechanism | Where | Examples |
| --- | --- | --- |
| env vars | `pkg/mlp.py:3` | `A` |

## Key components (with code locations)

| Component | Location | Responsibility |
| --- | --- | --- |
| KV cache | `pkg/mlp.py:1` (`Mlp`) | keeps |

### Prefill vs decode loop (real nesting)

- `pkg/mlp.py:2`

### KV cache

- Layout: `pkg/mlp.py:1` (`Mlp`)

### Scheduler / batching

- `pkg/mlp.py:3`

### Sampling / decoding

- `pkg/mlp.py:4`

## Self-review checklist (before calling it “done”)

- TL;DR is specific: yes.
- Module map includes real paths: yes.
- Key components table has places: yes.
- If LLM-related: none of the four is without.
- No placeholder markers remain.

## Appendix A: environment variables

| Variable | Default |
| --- | --- |
| `A` | 1 |
"""


def of_whole(repo: Path, old: str, new: str) -> list[str]:
    assert old in WHOLE
    found = review_text("r.md", WHOLE.replace(old, new), Roots(folders=(repo,))).findings
    told = [one.message for one in found if one.rule in ("section", "checklist")]
    return [message for message in told if "of the template" not in message and "says nothing of" not in message]


def test_a_whole_that_holds(repo: Path) -> None:
    assert of_whole(repo, "# Repo", "# Repo") == []
    assert [item.wrong for item in checklist(read_markdown(WHOLE), Roots(folders=(repo,)))] == [""] * 5


NONE = "none found (searched: all)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "| env vars | `pkg/mlp.py:3` | `A` |",
            f"| env vars | {NONE} | |",
            "the appendix on environment variables has",
        ),
        ("- Layout: `pkg/mlp.py:1` (`Mlp`)", f"- Layout: {NONE}", "the key components have a KV cache"),
        (
            "- It is a small thing of 7 lines.\n- It has one class: `pkg/mlp.py:1` (`Mlp`).\n",
            "",
            "TL;DR is specific: it has no place and no count",
        ),
        ("| `pkg/` | the code |", "| `pkg/` |  |", "Module map includes: pkg/ has no role"),
        (
            "| `pkg/` | the code | 1 file |",
            "| `pkg/` | the code | 1 file |\n| `gone/` | more | x |",
            "Module map includes: gone/ is not there",
        ),
        ("| `pkg/mlp.py:1` (`Mlp`) | keeps |", "| the cache | keeps |", "Key components table: KV cache has no place"),
        ("- `pkg/mlp.py:4`", f"- {NONE}", "If LLM-related: Sampling / decoding has no place"),
        ("- It has one method.", "- It has one {method_name}.", "No placeholder: {method_name} is left"),
        ("- Key components table has places: yes.\n", "", 'the item "Key components table …" is not there'),
    ],
)
def test_a_whole_that_does_not_hold(repo: Path, old: str, new: str, message: str) -> None:
    assert any(message in one for one in of_whole(repo, old, new)), of_whole(repo, old, new)


def test_without_the_code_base_paths_are_not_judged() -> None:
    assert [item.wrong for item in checklist(read_markdown(WHOLE), Roots())][1] == ""
    assert CHECKLIST in REPOSITORY.sections
