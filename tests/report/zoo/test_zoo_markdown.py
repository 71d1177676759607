"""The summary as markdown, read by markdown-it-py."""

from __future__ import annotations

import small_zoo
from markdown_it import MarkdownIt

from lmp.report.zoo import told
from lmp.report.zoo.markdown import markdown


def tables(text: str) -> list[list[list[str]]]:
    """Tables as rows of the texts of their cells; the first row is the head."""
    found: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level >= 4:
            inside = token.children or []
            found[-1][-1].append("".join(child.content for child in inside if child.type in ("text", "code_inline")))
    return found


def test_the_head_and_the_counts() -> None:
    text = markdown(small_zoo.summary())
    assert "**Verified:** 2 of 8 (25.0 %)" in text
    assert "lmp 0.1.0, torch 2.13.0, transformers 5.23.0" in text
    # 6 entries in 2 minutes
    assert "6 entries in 120.0 s by 2 processes, 3.0 a minute" in text
    rows = {row[0]: row[2:] for row in tables(text)[0][1:]}
    assert rows == {
        "verified": ["2", "", "", ""],
        "unverified": ["1", "", "", "1"],
        "failed": ["1", "", "", "1"],
        "error": ["1", "", "1", ""],
        "stopped": ["1", "1", "", ""],
        "not run": ["2", "", "", ""],
    }


def test_families_with_their_figures() -> None:
    rows = {row[0]: row[1:] for row in tables(markdown(small_zoo.summary()))[1][1:]}
    assert list(rows) == ["gpt2", "llama", "mamba", "rwkv", "xlstm", "zamba"]
    # bytes: 500,000,000 read and 100,000,000 written
    assert rows["gpt2"] == [
        "Gpt2ForCausalLM", "verified", "", "prefill, decode, chunked prefill", "124.4 M", "22.00 G", "600.0 MB", "12.2",
        "1.500 GB",
    ]  # fmt: skip
    assert rows["xlstm"] == ["", "error", "dependency", "", "", "", "", "", ""]


def test_each_that_is_not_verified_has_its_reason() -> None:
    text = markdown(small_zoo.summary())
    rows = {row[0]: row[1:] for row in tables(text)[2][1:]}
    assert set(rows) == {"mamba", "rwkv", "xlstm", "zamba"}
    assert rows["mamba"] == ["failed", "lmp", "read is 7 by formula and 9 executed", small_zoo.PLACE]
    assert rows["rwkv"][2] == small_zoo.HOSTILE
    assert "n_layer = 12" in text.partition("## Pinned values")[2]
    assert "`rwkv`: 2" in text.partition("## Decisions")[2]
    assert "`arcee`, `bloom`" in text.partition("## Not run")[2]


def test_no_text_becomes_markup() -> None:
    kinds = {
        child.type
        for token in MarkdownIt("commonmark").enable("table").parse(markdown(small_zoo.summary()))
        for child in token.children or []
    }
    assert kinds <= {"text", "code_inline", "softbreak", "hardbreak", "strong_open", "strong_close"}


def test_the_same_in_whichever_order_entries_come() -> None:
    turned = small_zoo.summary(entries=small_zoo.entries()[::-1], not_run=["arcee", "bloom"])
    assert markdown(turned) == markdown(small_zoo.summary())


def test_a_summary_without_entries() -> None:
    text = markdown(small_zoo.summary(entries=[], families=0, verified=0, not_run=[], run=None))
    assert "**Verified:** 0 of 0" in text
    assert text.count("none found (searched:") == 2


def test_what_a_family_takes() -> None:
    found = told.cost(small_zoo.entries())
    assert found is not None
    # cpu: 10, 10 and 30 s: 50 in all, 16.67 on average; nine tenths of 3 is 2.7, so the third of them
    assert (found.families, found.cpu_seconds, found.cpu_median, found.cpu_most) == (3, 50.0, 10.0, 30.0)
    assert found.cpu_nine_tenths == 30.0
    assert abs(found.cpu_mean - 50 / 3) < 1e-9
    # stored: 100,000 twice and 300,000
    assert (found.stored_bytes, found.stored_mean) == (500_000, 166_666)
    assert (found.memory_median, found.memory_most) == (1_500_000_000, 1_500_000_000)
    assert told.cost([small_zoo.entry("gpt2")]) is None


def test_the_command_says_what_is_not_the_default() -> None:
    summary = small_zoo.summary(dtype="float32", attention="eager")
    assert told.command("gpt2", "base", small_zoo.summary()) == "lmp zoo gpt2 --task base --fresh"
    assert told.command("x y", "base", summary) == "lmp zoo 'x y' --task base --dtype float32 --attn eager --fresh"


def test_no_share_is_rounded_up() -> None:
    # 9,999 of 10,000 are 99.99 %
    assert told.share(small_zoo.summary(families=10_000, verified=9_999)) == "9,999 of 10,000 (99.9 %)"
