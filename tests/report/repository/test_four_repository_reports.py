"""Reports on the four code bases that `make repositories` fetches: every pointer resolves, and the parts are theirs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from small_repository import Reported, of_facts

from fetched_repositories import REPOSITORIES, facts_of, of_each

# What an engineer who knows the code base would name: part, symbol.
PARTS = {
    "fla": {"attention": "ParallelAttentionFunction"},
    # The way that its README names first of its "Getting Started", and most often.
    "liger": {"library entry": "AutoLigerKernelForCausalLM"},
    # ``while True`` around ``BatchGenerator._next``, which steps a batch; a server's loop lies above it.
    "mlx": {"runtime loop": "next_generated", "KV cache": "KVCache", "attention": "Attention"},
    # Its many event loops are equals to reading: which of them is named first is not held here.
    "sglang": {},
}


each = of_each("fetched", indirect=True)


@pytest.fixture
def fetched(request: pytest.FixtureRequest, code_bases: Path) -> tuple[str, Reported]:
    name = str(request.param)
    return name.partition("-")[0], _reported(name)


@cache
def _reported(name: str) -> Reported:
    """Made once by the process that has read it."""
    return of_facts(facts_of(name), REPOSITORIES / name)


@each
def test_every_pointer_resolves(fetched: tuple[str, Reported]) -> None:
    _, report = fetched
    assert report.review.findings == []
    assert report.review.pointers > 400


@each
def test_parts_are_played_by_what_plays_them(fetched: tuple[str, Reported]) -> None:
    name, report = fetched
    rows = report.section("Key components (with code locations)").split("\n")
    for part, symbol in PARTS[name].items():
        row = next(row for row in rows if row.startswith(f"| {part} |"))
        assert f"(`{symbol}`) |" in row, row
    # At least as many rows as the table is filled up to, less what has no importers.
    assert sum(row.startswith("| ") for row in rows) - 2 >= 8


@each
def test_every_kernel_flag_and_read_has_its_row(fetched: tuple[str, Reported]) -> None:
    _, report = fetched
    counts = report.facts.counts
    for title, name in (
        ("Appendix A: environment variables", "env_reads"),
        ("Appendix B: command line flags", "flags"),
        ("Appendix D: kernels", "kernels"),
    ):
        rows = [line for line in report.section(title).split("\n") if line.startswith("| ")][2:]
        assert len([row for row in rows if not row.startswith("| none found")]) == counts[name], title
