"""The repository template, filled from a small engine: headings, columns, and places that stand in its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_files import FILES
from small_repository import Reported, line_of, reported, written

from lmp.report.document.parts import Section, Table

# The headings and columns of the users' template, word for word.
HEADINGS = """
## TL;DR (5–8 lines)
## What problem it solves
## Architecture map (one diagram)
## Module map (table)
## Primary workflows
### Install / build
### Entrypoints (how to run)
### Configuration surface (how to control it)
## Key components (with code locations)
## LLM deep dive (only if LLM-related)
### Prefill vs decode loop (real nesting)
### KV cache
### Scheduler / batching
### Sampling / decoding
### Kernel hotspots / backends
## Extension points (safe places to modify)
## Pitfalls / time sinks
## Open questions
## Self-review checklist (before calling it “done”)
""".strip().split("\n")
COLUMNS = {
    "Module map (table)": ("Path", "Role", "Notes"),
    "Configuration surface (how to control it)": ("Mechanism", "Where", "Examples"),
    "Key components (with code locations)": ("Component", "Location", "Responsibility"),
    "Extension points (safe places to modify)": ("Goal", "Recommended place", "Why"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("repositories") / "nanoserve", FILES)


@pytest.fixture(scope="module")
def report(root: Path) -> Reported:
    return reported(root)


def test_the_review_finds_nothing(report: Reported) -> None:
    assert [finding.message for finding in report.review.findings] == []
    assert report.review.pointers > 50


def test_headings_are_the_templates(report: Reported) -> None:
    found = [line for line in report.text.split("\n") if re.match(r"##+ ", line)]
    assert found[: len(HEADINGS)] == HEADINGS
    assert all(line.startswith("## Appendix ") for line in found[len(HEADINGS) :])
    assert report.text.startswith("# Repo analysis: nanoserve\n")
    head = report.text.split("\n")[2:6]
    assert [line.partition(":**")[0] for line in head] == ["**Repo", "**Local clone", "**Commit", "**LLM-related"]


def test_columns_are_the_templates(report: Reported) -> None:
    tables = {
        section.title: table.columns for section in _every(report.document.sections) for table in _tables(section)
    }
    assert {title: tuple(tables[title]) for title in COLUMNS} == COLUMNS


def _every(sections: object) -> list[Section]:
    return [found for section in sections for found in (section, *_every(section.sections))]  # type: ignore[attr-defined]


def _tables(section: Section) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def test_it_says_what_the_repository_says_of_itself(report: Reported, root: Path) -> None:
    problem = report.section("What problem it solves")
    assert "A small serving engine for language models" in problem
    features = line_of(root, "README.md", "- Continuous batching")
    assert f"Continuous batching with a paged KV cache (`README.md:{features}`)" in problem


def test_two_runs_agree(report: Reported, root: Path) -> None:
    assert reported(root).text == report.text


@pytest.mark.parametrize(
    ("part", "file", "symbol", "written_as"),
    [
        ("scheduler", "nanoserve/scheduler.py", "Scheduler", "class Scheduler:"),
        ("KV cache", "nanoserve/block_manager.py", "BlockManager", "class BlockManager:"),
        ("sampling", "nanoserve/sampler.py", "forward", "def forward("),
        ("attention", "nanoserve/model.py", "Attention", "class Attention("),
        ("runtime loop", "nanoserve/engine.py", "LLMEngine.generate", "def generate(self):"),
        ("library entry", "nanoserve/engine.py", "LLMEngine", "class LLMEngine:"),
    ],
)
def test_components(report: Reported, root: Path, part: str, file: str, symbol: str, written_as: str) -> None:
    rows = report.section("Key components (with code locations)").split("\n")
    row = next(row for row in rows if row.startswith(f"| {part} |"))
    last = symbol.rpartition(".")[2]
    assert f"`{file}:{line_of(root, file, written_as)}` (`{last}`)" in row


def test_tests_play_no_part(report: Reported) -> None:
    assert "tests/test_engine.py" not in report.section("Key components (with code locations)")
    assert re.search(r"\| `tests/[^|]*` \| tests \|", report.section("Module map (table)"))


def test_the_loop_is_nested_as_in_the_code(report: Reported, root: Path) -> None:
    """generate > while > step > schedule > while > allocate, each deeper than what it stands in."""
    fence = report.section("Prefill vs decode loop (real nesting)").split("```")[1].split("\n")
    expected = [
        ("while not self.scheduler.is_finished():", "nanoserve/engine.py", "while not self.scheduler"),
        ("self.step()", "nanoserve/engine.py", "self.step()"),
        ("seqs, is_prefill = self.scheduler.schedule()", "nanoserve/engine.py", "self.scheduler.schedule()"),
        ("while self.waiting:", "nanoserve/scheduler.py", "while self.waiting:"),
        ("self.block_manager.allocate(seq)", "nanoserve/scheduler.py", "self.block_manager.allocate(seq)"),
    ]
    indents = []
    for text, file, in_source in expected:
        line = next(line for line in fence if line.strip().startswith(text))
        assert f"{file}:{line_of(root, file, in_source)}" in line
        indents.append(len(line) - len(line.lstrip()))
    assert indents == sorted(set(indents))


def test_layers_and_dispatch_by_name_are_followed(report: Reported, root: Path) -> None:
    nesting = report.section("Prefill vs decode loop (real nesting)")
    attention = line_of(root, "nanoserve/model.py", "return self.self_attn(x)")
    assert f"nanoserve/model.py:{attention}" in nesting
    # ``getattr(self, "forward_" + self.mode)`` is either of two methods, each of which calls the model.
    for called in ("def forward_eager", "def forward_graph"):
        at = line_of(root, "nanoserve/runner.py", called)
        assert f"nanoserve/runner.py:{at + (3 if called.endswith('eager') else 1)}" in nesting


def test_one_call_is_one_line_with_what_it_may_mean_below(report: Reported, root: Path) -> None:
    fence = report.section("Prefill vs decode loop (real nesting)").split("```")[1].split("\n")
    called = [at for at, line in enumerate(fence) if line.strip().startswith('forward = getattr(self, "forward_"')]
    assert len(called) == 1
    assert fence[called[0] + 1].strip() == "# (one of 2)"
    for word, name in (("either", "forward_eager"), ("or", "forward_graph")):
        line = next(line for line in fence if line.strip().startswith(f"{word} ModelRunner.{name}(…)"))
        place = line_of(root, "nanoserve/runner.py", f"def {name}")
        assert line.endswith(f"nanoserve/runner.py:{place} ({name})")


def test_fences_fit_on_100_columns(report: Reported) -> None:
    inside = False
    for line in report.text.split("\n"):
        inside ^= line.startswith("```")
        assert not inside or len(line) <= 100 or line.startswith("  n"), line


def test_configuration_has_defaults(report: Reported, root: Path) -> None:
    flags = report.section("Appendix B: command line flags")
    place = line_of(root, "nanoserve/cli.py", '"--max-num-seqs"')
    assert f"| `--max-num-seqs` | `256` | `Sequences in one batch` | `nanoserve/cli.py:{place}` |" in flags
    variables = report.section("Appendix A: environment variables")
    assert re.search(r'\| `NANO_DEBUG` \| `"0"` \| `nanoserve/cli.py:\d+` \|', variables)
    assert re.search(r"\| `NANO_PORT` \| none: must be set \|", variables)


def test_pitfalls_have_their_own_words(report: Reported, root: Path) -> None:
    pitfalls = report.section("Pitfalls / time sinks")
    port = line_of(root, "nanoserve/cli.py", 'os.environ["NANO_PORT"]')
    assert f"`NANO_PORT` is read without a default at `nanoserve/cli.py:{port}`" in pitfalls
    assert "nanoserve needs compute capability 8.0 or newer" in pitfalls
    assert "`torch.cuda.get_device_capability()[0] < 8` raises an error" in pitfalls
    # A comment that something is left to do is no pitfall.
    assert "swap to the host instead of computing it again" not in pitfalls


def test_counts_are_those_of_the_facts(report: Reported) -> None:
    # 2 flags and 2 variables, each read once, stand in cli.py; nothing else reads any.
    assert "Controlled by 2 environment variables, 2 command line flags" in report.section("TL;DR (5–8 lines)")


def test_what_is_not_there_says_where_was_looked(report: Reported) -> None:
    server = next(line for line in report.text.split("\n") if line.startswith("- Server:"))
    assert server.startswith("- Server: none found (searched: servers that a main block starts")


def test_not_llm_related(tmp_path: Path) -> None:
    root = written(
        tmp_path / "calendar", {"dates.py": 'def easter(year):\n    """The day of Easter."""\n    return year\n'}
    )
    report = reported(root)
    assert report.review.findings == []
    assert "**LLM-related:** no (signals: none found (searched:" in report.text
    deep = report.section("LLM deep dive (only if LLM-related)")
    assert "not LLM-related" in deep
    assert "### KV cache" not in report.text
