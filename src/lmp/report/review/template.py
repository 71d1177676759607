"""The users' templates: a report that follows one has all of its sections, and the rows that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lmp.records import ReviewFinding
from lmp.report.review.reading import CLOSE, OPEN, Text


@dataclass(frozen=True)
class Template:
    """What reports of one kind have."""

    title: str
    """How their title begins."""
    sections: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Section -> how rows of its tables, or its bullets, begin."""


IMPLEMENTATION = Template(
    "Analysis:",
    (
        "1. Executive Summary", "2. Architecture Overview", "2.1 System Diagram", "2.2 Module Hierarchy",
        "2.3 Execution Model", "3. Configuration & Parameters", "3.1 Model Configuration", "3.2 Kernel Configuration",
        "3.3 Constraints & Requirements", "4. Component Analysis", "5. Task/Operator Catalog",
        "6. Data Flow & Dependencies", "6.1 Full Forward Pass", "6.2 Dependency Graph", "6.3 Memory Lifecycle",
        "7. Parallelism & Distribution", "7.1 Parallelism Strategy", "7.2 Communication Patterns",
        "7.3 Compute-Communication Overlap", "8. Memory & Performance", "8.1 Memory Access Pattern",
        "8.2 Execution Timeline", "8.3 Bottleneck Analysis", "9. Technical FAQ",
        "Q: How are variable sequence lengths handled?", "Q: What is the maximum supported sequence length?",
        "Q: What operations are fused?", "Q: What hardware is required?", "Q: How does the KV cache work?",
        "10. Key Files Reference", "11. Appendix", "A. Glossary", "B. References",
    ),
    {
        "3.1 Model Configuration": (
            "hidden_size", "num_layers", "num_heads", "head_dim", "intermediate_size", "vocab_size", "max_seq_len",
        ),
        "3.2 Kernel Configuration": ("BLOCK_M", "BLOCK_N", "BLOCK_K", "NUM_STAGES", "NUM_WARPS"),
        "3.3 Constraints & Requirements": ("Alignment", "Hardware", "Precision"),
        "7.1 Parallelism Strategy": (
            "Data Parallelism", "Tensor Parallelism", "Pipeline Parallelism", "Sequence Parallelism",
        ),
        "8.3 Bottleneck Analysis": ("Compute Bound", "Memory Bound", "Synchronization"),
    },
)  # fmt: skip

REPOSITORY = Template(
    "Repo analysis:",
    (
        "TL;DR (5–8 lines)", "What problem it solves", "Architecture map (one diagram)", "Module map (table)",
        "Primary workflows", "Install / build", "Entrypoints (how to run)",
        "Configuration surface (how to control it)", "Key components (with code locations)",
        "Extension points (safe places to modify)", "Pitfalls / time sinks", "Open questions",
        "Self-review checklist (before calling it “done”)",
    ),
    {
        "Configuration surface (how to control it)": ("env vars", "config files", "CLI flags"),
        "Entrypoints (how to run)": ("CLI", "Server", "Benchmarks/examples"),
    },
)  # fmt: skip

IF_LLM = (
    "LLM deep dive (only if LLM-related)", "Prefill vs decode loop (real nesting)", "KV cache",
    "Scheduler / batching", "Sampling / decoding", "Kernel hotspots / backends",
)  # fmt: skip
"""Sections of a repository's report, where it is LLM-related."""
NAMED_COMPONENTS = (
    "runtime loop", "scheduler", "KV cache", "sampling", "attention backend", "config parser",
)  # fmt: skip
"""Rows of its key components, each of them only where the report says in another place that there is one."""

_FIRST = 30
"""Lines of a report's head."""


def template_of(text: Text) -> Template | None:
    """The template of a whole report; None for any other markdown, and for what lmp's formats print."""
    title = text.headings[0][2] if text.headings and text.headings[0][1] == 1 else ""
    return next((one for one in (IMPLEMENTATION, REPOSITORY) if title.startswith(one.title)), None)


def is_llm(text: Text) -> bool:
    """What the head of a repository's report says."""
    return any(re.match(r"LLM-related: yes\b", piece.text) for piece in text.pieces if piece.line <= _FIRST)


def check_template(text: Text) -> Iterator[ReviewFinding]:
    template = template_of(text)
    if template is None:
        return
    there = {_words(title) for _, _, title in text.headings}
    sections = template.sections + (IF_LLM if template is REPOSITORY and is_llm(text) else ())
    last = max((line for line, _, _ in text.headings), default=1)
    for title in sections:
        if _words(title) not in there:
            yield _missing(last, f'the section "{title}" of the template is not there')
    for section, rows in template.rows.items():
        line = next((line for line, _, title in text.headings if _words(title) == _words(section)), None)
        beginnings = [_words(content) for content in _contents(text, section)]
        for row in rows if line is not None else ():
            if not any(re.search(rf"(?<!\w){re.escape(_words(row))}(?!\w)", one) for one in beginnings):
                yield _missing(line or 1, f"{section} says nothing of {row}")


def check_named_rows(text: Text, written: Sequence[str]) -> Iterator[ReviewFinding]:
    """Rows of the key components that the template names, and that ``written``, the lines as lmp wrote them, have."""
    section = REPOSITORY.sections[8]
    there = {_words(content) for content in _contents(text, section)}
    line = next((line for line, _, title in text.headings if title == section), None)
    for name in NAMED_COMPONENTS if line is not None else ():
        if name not in there and any(re.match(rf"\|\w+ {name} \S+:\d", one) for one in written):
            yield _missing(line or 1, f"{section} says nothing of {name}")


def _contents(text: Text, section: str) -> Iterator[str]:
    """The first cells of the rows, and the beginnings of the sentences of a section."""
    for table in text.tables:
        if _words(table.section) == _words(section):
            yield from (cells[0] for _, cells in table.rows)
    in_tables = {line for table in text.tables for line, _ in table.rows}
    for piece in text.pieces:
        if _words(piece.section) == _words(section) and piece.line not in in_tables:
            yield piece.text.partition(":")[0]


def _words(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.replace(OPEN, "").replace(CLOSE, "")))


def _missing(line: int, message: str) -> ReviewFinding:
    return ReviewFinding(rule="section", line=line, message=message)
