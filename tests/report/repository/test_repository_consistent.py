"""A report on a code base as a whole: nothing is "none found" that stands elsewhere, and both templates pass review."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import Reported, implementation, line_of, reported, written

from lmp.report.code_base import returned
from lmp.report.document.ledger import Ledger, entries
from lmp.report.review import Roots, review_text

KERNEL = """import torch
import triton
import triton.language as tl

WIDE = torch.cuda.get_device_capability(0)[0] >= 9


@triton.jit
def fused_add_kernel(x, y, out, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    at = tl.arange(0, BLOCK_M)
    a = tl.load(x + at)
    b = tl.load(y + at)  # tl.load( in a comment is none
    tl.store(out + at, a + b)


def fused_add(x, y, out):
    block = 64 if x.shape[0] < 1024 else 128
    fused_add_kernel[(4,)](x, y, out, x.shape[0], BLOCK_M=block, BLOCK_N=32, num_warps=4)
"""
MODEL = '''"""A small model."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from serve.kernel import fused_add


class Attention(nn.Module):
    """Softmax of the scores."""

    def __init__(self, head_dim: int, heads: int = 4):
        super().__init__()
        assert head_dim % 2 == 0, "pairs are rotated"
        self.cos = torch.zeros(8, head_dim)

    def forward(self, q, k, v):
        dist.all_reduce(q, async_op=False)
        return F.scaled_dot_product_attention(q, k, v) * self.cos


class Model(nn.Module):
    """Attention, and nothing else."""

    def __init__(self, config):
        super().__init__()
        self.width = config.hidden_size
        self.model = None
        self.attention = Attention(8)

    def forward(self, x):
        assert self.width is not None
        fused_add(x, x, x)
        return self.attention(x, x, x)

    def generate_step(self, x, steps):
        for _ in range(steps):
            logits = self(x)
            x = torch.multinomial(logits, 1)
        return x


def paged_attention_page_table(tables):
    return [sum(table) for table in tables]
'''
FILES = {
    "serve/__init__.py": "from serve.model import Model\n",
    "serve/model.py": MODEL,
    "serve/kernel.py": KERNEL,
    "README.md": "# Serve\n\n```\npip install -r gone.txt\npip install serve\n```\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("r") / "serve", FILES)


@pytest.fixture(scope="module")
def report(root: Path) -> Reported:
    return reported(root)


@pytest.fixture(scope="module")
def filled(root: Path) -> Reported:
    return implementation(root)


def test_both_templates_pass_their_review(report: Reported, filled: Reported) -> None:
    assert report.review.findings == []
    assert filled.review.findings == []


def test_none_found_gives_way_to_candidates(report: Reported, root: Path) -> None:
    cache = report.section("KV cache")
    place = f"serve/model.py:{line_of(root, 'serve/model.py', 'def paged_attention_page_table')}"
    assert f"not determined, candidates: `{place}` (`paged_attention_page_table`)" in cache
    # Nothing of the code is named like this.
    assert "Memory accounting**: none found (searched:" in cache


def test_the_loop_shows_the_operators_that_it_comes_down_to(report: Reported) -> None:
    loop = report.section("Prefill vs decode loop (real nesting)")
    assert "x = torch.multinomial(logits, 1)" in loop
    assert "F.scaled_dot_product_attention(q, k, v)" in loop


def test_a_command_that_names_a_missing_file_is_left_out(report: Reported) -> None:
    install = report.section("Install / build")
    assert "pip install serve" in install
    assert "gone.txt" not in install


def test_a_pitfall_has_its_message_and_no_assert_for_type_checkers(report: Reported) -> None:
    pitfalls = report.section("Pitfalls / time sinks")
    assert "`head_dim % 2 == 0` must hold" in pitfalls
    assert "it stops with `AssertionError: pairs are rotated`" in pitfalls
    assert "fix: give `head_dim` a value that meets it" in pitfalls
    assert "is not None" not in pitfalls


def test_sizes_of_kernels_with_what_a_local_name_was_set_to(filled: Reported) -> None:
    table = filled.section("3.2 Kernel Configuration")
    assert "| `BLOCK_M` | `block = 64 if x.shape[0] < 1024 else 128` |" in table
    assert "| `BLOCK_N` | `32` |" in table
    assert "| `NUM_WARPS: num_warps` | `4` |" in table
    assert "| `BLOCK_K, NUM_STAGES` | none found (searched:" in table


def test_constraints_by_asserts_and_guards(filled: Reported) -> None:
    told = filled.section("3.3 Constraints & Requirements")
    assert "**Alignment:** `head_dim % 2 == 0` must hold in `serve/model.py:" in told
    assert "or tests it: `torch.cuda.get_device_capability(0)[0] >= 9` at `serve/kernel.py:5`" in told


def test_a_size_that_the_code_reads_of_a_config(filled: Reported) -> None:
    row = next(line for line in filled.section("3.1 Model Configuration").split("\n") if "`hidden_size`" in line)
    assert "set by the model's config | read as `config.hidden_size` at `serve/model.py:" in row


def test_memory_by_loads_and_stores_of_the_kernels_lines(filled: Reported) -> None:
    # Two loads and one store in one kernel; the one in a comment is none.
    memory = filled.section("8.1 Memory Access Pattern")
    assert "2 loads from global memory in 1 of 1 kernels" in memory
    assert "1 stores to global memory in 1 of 1 kernels" in memory


def test_the_timeline_has_each_launch(filled: Reported) -> None:
    timeline = filled.section("8.2 Execution Timeline")
    assert "launches from fused_add  # serve/kernel.py:" in timeline
    assert "runs fused_add_kernel" in timeline


def test_a_collective_that_waits_is_no_overlap(filled: Reported) -> None:
    assert "all_reduce" in filled.section("7.2 Communication Patterns")
    assert "Overlap: none found" in filled.section("7.3 Compute-Communication Overlap")


def test_a_question_has_places_or_says_where_was_looked(filled: Reported) -> None:
    assert "(`fused_add_kernel`)" in filled.section("Q: What operations are fused?")
    # The sum over GPUs that section 7.1 shows.
    assert "A: **Tensor Parallelism:** Yes, at `serve/model.py:" in filled.section("Q: How is parallelism configured?")


def planted(report: Reported, root: Path, old: str, new: str) -> list[str]:
    """What the review says of the report with one change, with its list of numbers and without."""
    assert old in report.text
    changed = report.text.replace(old, new, 1)
    roots = Roots(folders=(root,))
    ledger = Ledger(kind="repository", subject="serve", numbers=list(entries(report.document)))
    told = [review_text("r.md", changed, roots, of).findings for of in (None, ledger)]
    assert [one.message for one in told[0] if one.rule in ("section", "checklist")] == [
        one.message for one in told[1] if one.rule in ("section", "checklist")
    ]
    return [one.message for one in told[1]]


def test_none_found_beside_the_thing_is_a_finding_with_a_ledger_too(report: Reported, root: Path) -> None:
    line = next(
        line
        for line in report.text.split("\n")
        if line.startswith("- **Attention backend(s)** (module): `serve/model.py:1")
    )
    found = planted(report, root, line, "- **Attention backend(s)**: none found (searched: the call graph)")
    assert any(one.startswith('Attention backend(s): "none found", and ') for one in found), found


@pytest.mark.parametrize(
    ("section", "until", "message"),
    [
        ("```text\n[ serve/", "\n```", "Architecture and data flow diagrams: 2.1 System Diagram draws nothing"),
        ("| 1 | triton kernel", "\n", "Task/operator table: 5. Task/Operator Catalog lacks rows or columns"),
    ],
)
def test_the_protocols_list_fails_where_the_contents_fail(
    filled: Reported, root: Path, section: str, until: str, message: str
) -> None:
    start = filled.text.index(section)
    end = filled.text.index(until, start + len(section)) + len(until)
    found = planted(filled, root, filled.text[start:end], "")
    assert message in found, found


def test_the_summary_that_is_printed_links_to_the_sections(root: Path, filled: Reported) -> None:
    lines = returned(filled.facts, root, Path("out/serve.md"), implementation=True)
    titles = [line for line in lines if line.endswith(":")]
    assert titles == ["key insights:", "notable optimizations:", "limitations:", "details:"]
    assert "  out/serve.md#9-technical-faq" in lines
    assert "\n## 9. Technical FAQ\n" in filled.text
