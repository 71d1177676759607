"""The review, on small files and small repositories written here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.report.document.amounts import Claim, Term
from lmp.report.document.ledger import Entry, Ledger
from lmp.report.evaluating import Worth
from lmp.report.review import Roots, review_text
from lmp.report.review.reading import read_markdown
from lmp.report.review.written import check_written, lines_of_facts

CODE = "import os\n\n\nclass Cache:\n    def append(self, token):\n        return token\n\n\ndef last():\n    pass\n"
"""Cache is at line 4, append at 5, last at 9; ten lines."""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/cache.py").write_text(CODE)
    (tmp_path / "pkg/odd name.py").write_text(CODE)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/twice.py").write_text(CODE)
    (tmp_path / "pkg/twice.py").write_text(CODE)
    (tmp_path / "pkg/data.bin").write_bytes(b"\x00\x01" * 100)
    (tmp_path / "pkg/data.h").write_bytes(b"\x00\x01" * 100)
    return tmp_path


def found(text: str, root: Path, **labelled: Path) -> list[tuple[str, int, str]]:
    review = review_text("r.md", text, Roots(labelled, (root,)))
    return [(finding.rule, finding.line, finding.message) for finding in review.findings]


@pytest.mark.parametrize(
    "text",
    [
        "see `pkg/cache.py:4`",
        "see `pkg/cache.py:4` (`Cache`)",
        "`Cache` (`pkg/cache.py:4`) is it",
        "`Cache.append` (`pkg/cache.py:5-6`)",
        "`pkg/cache.py:8` (`Cache.append`)",  # three lines away
        "pkg/cache.py:4 and pkg/cache.py#L4-L6",
        "```python\nx()  # pkg/cache.py:9 (last)\n```",
        "| a | b |\n| --- | --- |\n| x | `pkg/cache.py:4` (`Cache`) |",
        "cache.py:4 is the only one of its name",
        "`pkg/odd name.py:4` (`Cache`)",
        "at 12:30 on http://localhost:8000/x.py:99 and python:3.11, ratio 3:4, `a:1`, `torch.nn:2`",
        "[text](pkg/nothing.py)",
        "see pkg/cache.py:4. Then pkg/cache.py:5, and pkg/cache.py:9 (below) or pkg/cache.py:9 (Linux)",
        "`Cache.append(token)` (`pkg/cache.py:5`) and `class Cache` (`pkg/cache.py:4`)",
        "[text](pkg/cache.py#L4-L6) and [other](https://example.org/x/blob/main/gone.py#L99)",
        "./pkg/cache.py:4 and image:3.11, 10:45:30, 192.168.0.1:8080, std::vector:3, node:18-slim, a.py:3.11",
        "1. a\n   | a | b |\n   | --- | --- |\n   | x | `pkg/cache.py:4` (`Cache`) |",
        "1. a\n   - ```\n     pkg/cache.py:4 (Cache)\n     # TODO\n     ```\n   - b",
        "<!-- TODO: <name>, {x}\nand pkg/gone.py:4 -->\n\nx <!-- TBD --> y",
        '<details>\n<summary>More</summary>\n\n<p align="center"><img src="x.svg" alt="{a}"></p>\n\n</details>',
    ],
)
def test_what_is_right_is_not_complained_about(text: str, repo: Path) -> None:
    assert found(text, repo) == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x\n\nsee `pkg/gone.py:4`", 3, "pkg/gone.py:4: there is no such file"),
        ("`pkg/cache.py:11`", 1, "pkg/cache.py:11: the file has 10 lines"),
        ("`pkg/cache.py:0`", 1, "pkg/cache.py:0: the file has 10 lines"),
        ("`pkg/cache.py:9-8`", 1, "pkg/cache.py:9-8: the lines are the wrong way round"),
        ("`pkg/cache.py:9` (`Cache`)", 1, "it stands at line 4"),
        ("`Cache` (`pkg/cache.py:9`)", 1, "it stands at line 4"),
        ("`pkg/cache.py:4` (`Other`)", 1, "nor anywhere else"),
        ("`pkg/cache.py:4` (`ache`)", 1, "nor anywhere else"),  # a word, not a part of one
        ("a\nb pkg/cache.py:99", 2, "the file has 10 lines"),
        ("```\na\npkg/cache.py:9 (Cache)\n```", 3, "it stands at line 4"),
        ("| a | b |\n| --- | --- |\n| x | `pkg/cache.py:9` (`Cache`) |", 3, "it stands at line 4"),
        ("`twice.py:4`", 1, "2 files are called so"),
        ("`/etc/hosts.py:1`", 1, "leads out of the folders"),
        ("`../x/y.py:1`", 1, "leads out of the folders"),
        ("`pkg/data.h:1`", 1, "cannot be read as text"),
        ("It is at pkg/cache.py:99.", 1, "the file has 10 lines"),
        ("lines pkg/cache.py:9–11", 1, "the file has 10 lines"),
        ("`Cache.append(token)` (`pkg/cache.py:9`)", 1, "it stands at line 5"),
        ("`class Cache` (`pkg/cache.py:9`)", 1, "it stands at line 4"),
        ("see pkg/cache.py:9 (Cache)", 1, "it stands at line 4"),
        ("[text](pkg/cache.py#L99)", 1, "the file has 10 lines"),
        ("[text](pkg/gone.py#L4)", 1, "there is no such file"),
        ("[text](../pkg/cache.py#L4)", 1, "leads out of the folders"),
        ("a\n<details>pkg/cache.py:99\n</details>", 2, "the file has 10 lines"),
        ("<!-- a\nb -->\npkg/cache.py:99", 3, "the file has 10 lines"),
        ("a <!-- b\nc --> d\npkg/cache.py:99", 3, "the file has 10 lines"),
        (">" * 25 + " pkg/cache.py:99", 1, "the file has 10 lines"),
    ],
)
def test_a_pointer_that_does_not_hold(text: str, line: int, message: str, repo: Path) -> None:
    (finding,) = found(text, repo)
    assert finding[:2] == ("pointer", line)
    assert message in finding[2]


def test_a_label_names_a_folder(repo: Path, tmp_path: Path) -> None:
    assert found("`tree/pkg/cache.py:4` (`Cache`)", tmp_path / "one", tree=repo) == []


def test_links_are_relative_to_the_file_and_places_may_be(repo: Path) -> None:
    """As on GitHub: from docs/r.md, ../pkg/cache.py is the file beside docs/."""
    (repo / "docs").mkdir()
    (repo / "docs/near.py").write_text("x\n")

    def wrong(text: str) -> list[str]:
        roots = Roots({}, (repo,), beside=repo / "docs")
        return [finding.message for finding in review_text("docs/r.md", text, roots).findings]

    assert wrong("[a](../pkg/cache.py#L4) and [b](near.py#L1) and `near.py:1`") == []
    assert wrong("[a](../pkg/cache.py#L11)") == ["../pkg/cache.py:11: the file has 10 lines"]
    assert wrong("[a](pkg/cache.py#L4)") == ["pkg/cache.py:4: there is no such file"]  # there is no docs/pkg/
    assert wrong("[a](../../x/cache.py#L4)") == [
        "../../x/cache.py:4 leads out of the folders that are looked in: name it relative to one of them"
    ]


def test_what_is_nested_too_deep_is_said(repo: Path) -> None:
    review = review_text("r.md", "a\n\n" + ">" * 150 + " TODO", Roots())
    assert review.notes[0] == "line 3 is nested more than 100 deep: what stands in it was not looked at"


def test_a_link_out_of_the_folder_is_not_followed(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.py"
    outside.write_text(CODE)
    (repo / "pkg/link.py").symlink_to(outside)
    ((rule, _, message),) = found("`pkg/link.py:4`", repo)
    assert (rule, message) == ("pointer", "pkg/link.py:4: there is no such file")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("about {repo_name}", "{repo_name}"),
        ("see `{path:line}`", "{path:line}"),
        ("see `{what it does}`", "{what it does}"),
        ("A: [Answer with code references]", "[Answer with code references]"),
        ("**Date:** [YYYY-MM-DD]", "[YYYY-MM-DD]"),
        ("x <name> y", "<name>"),
        ("TODO write", "TODO"),
        ("it is TBD.", "TBD"),
        ("`...`", "..."),
        ("```\n[ASCII diagram of it]\n```", "[ASCII diagram of it]"),
        ("```text\nx()   # {path:line}\n```", "{path:line}"),
        ("- Precision: [supported dtypes]", "[supported dtypes]"),
        ("- **Compute Bound:** [operations]", "[operations]"),
        ("[Description of overlap strategy]", "[Description of overlap strategy]"),
        ("[Name]", "[Name]"),
    ],
)
def test_a_placeholder_that_is_left(text: str, left: str, repo: Path) -> None:
    findings = found(text, repo)
    assert [(rule, message.split(" is left")[0]) for rule, _, message in findings] == [("placeholder", left)]


@pytest.mark.parametrize(
    "text",
    [
        "costs `{batch_size} * {seq_len}`",
        "`# TODO: later` stands in the code",
        r"escaped \<b\> and \[Text\]",
        "- [ ] open\n- [x] done",
        "a [link](x.md) and <https://example.org>",
        "`f'{x}'` and `dict[str, int]`",
        "x<br>y",
        "## [Unreleased]",
        "shape [B, heads, S, D], [1], [^2], and [See `x`]",
        r"$\frac{a}{b}$ and $x_{i}^{j}$",
        "`<details>`, `[tensor]`",
    ],
)
def test_what_is_no_placeholder(text: str, repo: Path) -> None:
    assert found(text, repo) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("| a | b |\n| --- | --- |\n", 1),
        ("| a | b |\n| --- | --- |\n|  |  |", 3),
        ("| a | b |\n| --- | --- |\n| `x` |  |", 3),
        ("| ID | b |\n| --- | --- |\n| 1 | x |\n| 2 | |\n", 4),
        ("x\n\nnone found", 3),
        ("| a | b |\nx", 1),
        ("| a | b |\n| --- | --- |\n| none found | |", 3),
    ],
)
def test_a_table_that_is_not_filled(text: str, line: int, repo: Path) -> None:
    assert [(rule, at) for rule, at, _ in found(text, repo)] == [("table", line)]


def test_a_row_may_be_the_heading_of_others_and_words_may_be_quoted(repo: Path) -> None:
    assert found("| a | b |\n| --- | --- |\n| **group** | |\n| x | 1 |", repo) == []
    assert found('what says "none found" is `none found`', repo) == []


def test_a_table_that_says_where_was_looked(repo: Path) -> None:
    assert found("| a | b |\n| --- | --- |\n| none found (searched: x.py) |  |", repo) == []


BOX = "```\n┌────┐\n│ a  │\n└────┘\n```"


@pytest.mark.parametrize(
    "text",
    [
        BOX,
        "```\nModel\n├── a\n│   └── b\n└── c\n```",
        "```\n┌──┐   ┌──┐\n│a ├──▶│b │\n└─┬┘   └──┘\n  ▼\n  c\n```",
        '```mermaid\nflowchart TB\n  a["A"]\n  subgraph g["G"]\n    b["B (x)"]\n  end\n  a -->|"y"| b\n```',
        # The template's own, and what else Mermaid takes.
        "```mermaid\nflowchart TB\n  EP[Entrypoints] --> CORE[Core library]\n  LOOP --> EXEC[Execution / kernels]\n```",
        "```mermaid\ngraph LR;\n  A & B-->C{Ok?};C -- yes --> D((x));D -.-> E[(db)]:::big;classDef big fill:#fff\n```",
        "```mermaid\n%%{init: {}}%%\nflowchart\nsubgraph one [The first]\nA-->|to be| B\nend\nstyle A fill:#fff\n```",
        '```mermaid\nflowchart TD\n  A["two\nlines"] ==> B([x]) --- C[[y]] <--> D{{"z (1)"}}\n```',
        "```mermaid\nsequenceDiagram\n  A->>B: hi\n```",
        "```\n┌──────┐\n│ 模型 │\n└──────┘\n```",  # the two are two columns wide each
        "```\n┌────┐\n│ 模型 │\n└────┘\n```",  # or are not
        "```python\n" + "x" * 150 + "\n```",
    ],
)
def test_a_diagram_that_is_well_formed(text: str, repo: Path) -> None:
    assert found(text, repo) == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("```\n┌────┐\n│ a  │\n└───┘\n```", 4, "┘ in column 5 has nothing above"),
        ("```\n┌────┐\n│ a \n└────┘\n```", 2, "┐ in column 6 has nothing below"),
        ("```mermaid\nflowchart TB\n  a[A (x)] --> b[B]\n```", 3, "not a node with a label"),
        ('```mermaid\nflowchart TB\n  a["A] --> b["B"]\n```', 3, "not a node with a label"),
        ("```mermaid\nflowchart TB\n  a[A]\n  a --> \n```", 4, "not a node with a label"),
        ("```mermaid\nflowchart TB\n  a[A] -- > b[B]\n```", 3, "not a node with a label"),
        ('```mermaid\nflowchart TB\n  subgraph g["G"]\n  a["A"]\n```', 4, "has no end"),
        ("```mermaid\ngrph\n```", 2, "begins with flowchart"),
    ],
)
def test_a_diagram_that_is_broken(text: str, line: int, message: str, repo: Path) -> None:
    findings = found(text, repo)
    assert findings[0][:2] == ("diagram", line)
    assert message in findings[0][2]


def test_a_report_of_lmps_own_is_held_to_more() -> None:
    """What is a matter of taste elsewhere: 100 columns, quoted labels, no node without a label, bars that lead on."""
    mermaid = "```mermaid\nflowchart TB\n  {}\n```"
    box = "```\n┌────┐\n│ a  │\n│ b │\n│ c  │\n└────┘\n```"  # the bar of b is one to the left
    for text, line, message in (
        ("```\n→" + "x" * 100 + "\n```", 2, "101 columns wide"),
        (mermaid.format("a[A]"), 3, "not a node with a label"),
        (mermaid.format('a["A"]\n  a --> c'), 4, "leads to c"),
        (box, 4, "│ in column 5 has nothing above or below"),
        ("| a | b |\n| --- | --- |\n| x | y |\n| z |  |", 4, "nothing is said of z"),
    ):
        assert review_text("r.md", text, Roots()).findings == []
        ((_, at, why),) = reviewed(text)
        assert at == line
        assert message in why


# --- numbers ---------------------------------------------------------------------------------------------------------


def reviewed(text: str, *numbers: Entry, named: dict[str, int] | None = None) -> list[tuple[str, int, str]]:
    ledger = Ledger(kind="repository", subject="x", numbers=list(numbers))
    review = review_text("r.md", text, Roots(), ledger, Worth(None, {}, named or {}))
    return [(finding.rule, finding.line, finding.message) for finding in review.findings]


def entry(section: str, text: str, unit: str, name: str) -> Entry:
    return Entry(section=section, text=text, unit=unit, claim=Claim(expression="{a}", terms={"a": Term(name=name)}))


def test_a_number_that_is_what_it_claims_to_be() -> None:
    assert reviewed("# S\n\nit is 2.000 kB", entry("S", "2.000 kB", "B", "size"), named={"size": 2000}) == []


def test_a_number_that_has_changed_in_the_results() -> None:
    findings = reviewed("# S\n\nit is 2.000 kB", entry("S", "2.000 kB", "B", "size"), named={"size": 2001})
    assert findings == [("number", 3, "2.000 kB is 2.001 kB in the results")]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("it is 3.000 kB", "3.000 kB"),
        ("12.0 % of it", "12.0 %"),
        ("in 1.5 ms", "1.5 ms"),
        ("4 GFLOP", "4 GFLOP"),
        ("1.25 FLOPs/B", "1.25 FLOPs/B"),
        ("| a | b |\n| --- | --- |\n| x | 4,097 |", "4,097"),
        ("```\n|== 5 s ==|\n```", "5 s"),
    ],
)
def test_a_number_that_nobody_worked_out(text: str, number: str) -> None:
    findings = reviewed(f"# S\n\n{text}")
    assert [(rule, message.partition(" is no number")[0]) for rule, _, message in findings] == [("number", number)]


def test_a_number_of_another_section_is_none_of_this_one() -> None:
    text = "# S\n\n2.000 kB\n\n# T\n\n2.000 kB"
    findings = reviewed(text, entry("S", "2.000 kB", "B", "size"), named={"size": 2000})
    assert [(rule, line) for rule, line, _ in findings] == [("number", 7)]


def test_a_claim_on_what_is_not_known() -> None:
    findings = reviewed("# S\n\n2.000 kB", entry("S", "2.000 kB", "B", "size"))
    assert findings == [("number", 3, "2.000 kB cannot be worked out again: nothing is called size")]


def test_numbers_without_a_unit_in_prose_and_in_code_are_not_looked_at() -> None:
    assert reviewed("# S\n\n32 layers, `4 kB`, v5.23.0, file.py, 2026-11-21\n\n```python\nx = '5 s'\n```") == []


def test_without_a_ledger_it_says_so() -> None:
    review = review_text("r.md", "4 kB", Roots())
    assert review.findings == []
    assert review.notes == ["the numbers were not held against results: none belong to this file"]


# --- digits ----------------------------------------------------------------------------------------------------------

WRITTEN = """# S

There are 32 layers and 8 heads, by `pkg/cache.py:4`.

| a | b |
| --- | --- |
| x | of 3 |
| y | of 4 |

```
--> 16 --> 2
```

No digit here. Of 7.
"""


def of_digits(text: str) -> list[tuple[str, int, str]]:
    """What the review says of a text that was written as WRITTEN."""
    written = [tokens for _, tokens in lines_of_facts(read_markdown(WRITTEN))]
    findings = check_written(read_markdown(text), written)
    return [(finding.rule, finding.line, finding.message) for finding in findings]


def facts_of(text: str) -> list[tuple[int, str]]:
    """Line, kind and facts, without the checksum of the other words."""
    return [(line, re.sub(r"^([~|])\w{6}", r"\1", facts)) for line, facts in lines_of_facts(read_markdown(text))]


def test_lines_with_their_facts() -> None:
    assert facts_of(WRITTEN) == [
        (1, "~"),
        (3, "~ 32 8 pkg/cache.py:4"),
        (5, "~"),
        (7, "| x of 3"),
        (8, "| y of 4"),
        (11, "``` --> 16 --> 2"),
        (14, "~ no 7"),
    ]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("It is not read, by the cache.", "~ not read"),
        ("`x = a + b` in LlamaMLP or head_dim", "~ x = a + b LlamaMLP head_dim"),
        ("none found (searched: it)", "~ none-found"),
        ("| a | b |\n| --- | --- |\n| The name | A sentence on the decode of 3 words |", "| The name decode 3"),
        ("```python\nx  =  f(y)  # why\n```", "``` x = f(y) # why"),
        ("```\n│ a  1 │\n```", "``` a 1"),
    ],
)
def test_what_is_a_fact(text: str, facts: str) -> None:
    assert facts_of(text)[-1][1] == facts


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("It reads `a + b` once.", "It writes `a + b` once.", "writes stands where lmp wrote reads"),
        ("It reads `a + b` once.", "It reads `a - b` once.", "- stands where lmp wrote +"),
        ("It is done.", "It is not done.", "lmp did not write here: not"),
        ("It is not done.", "It is done.", "lmp wrote here: not"),
        ("- `a.py:3` has it", "- none found (searched: all)", "lmp did not write here that none was found"),
        ("```\na = 1\nb = 2\n```", "```\nb = 2\na = 1\n```", "lmp wrote this line at another place"),
        ("```\na --> b\n```", "```\nb --> a\n```", "b stands where lmp wrote a"),
    ],
)
def test_another_fact_in_the_place_of_one(old: str, new: str, message: str) -> None:
    written = [facts for _, facts in lines_of_facts(read_markdown(f"# S\n\n{old}\n\nThe end."))]
    found = [one.message for one in check_written(read_markdown(f"# S\n\n{new}\n\nThe end."), written)]
    assert any(message in one for one in found), found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- It reads `a`.\n- It has 3.", "- It has 3.\n- It reads `a`."),
        ("It reads `a` and is not done.", "It reads `a`\nand is not done."),
        ("```\nx = 1\n```", "```\n# mine\nx = 1\n```"),
        ("It reads `a`.", "Here it really reads `a`"),
    ],
)
def test_another_order_or_wording_of_sentences_is_his(old: str, new: str) -> None:
    written = [facts for _, facts in lines_of_facts(read_markdown(f"# S\n\n{old}\n\nThe end."))]
    assert list(check_written(read_markdown(f"# S\n\n{new}\n\nThe end."), written)) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("32 layers", "33 layers", ("number", 3, "33 stands where lmp wrote 32")),
        ("cache.py:4", "cache.py:5", ("pointer", 3, "pkg/cache.py:5 stands where lmp wrote pkg/cache.py:4")),
        ("of 3", "of 9", ("number", 7, "9 stands where lmp wrote 3")),
        ("16 -->", "15 -->", ("number", 11, "15 stands where lmp wrote 16")),
        ("Of 7", "Of 8", ("number", 14, "8 stands where lmp wrote 7")),
    ],
)
def test_a_digit_that_lmp_did_not_write(old: str, new: str, finding: tuple[str, int, str]) -> None:
    assert of_digits(WRITTEN.replace(old, new)) == [finding]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("| x | of 3 |\n", ""),
        ("Of 7.", ""),
        ("No digit here.", "No digit here.\n\nA remark on 5 things of 6."),
        ("There are", "In all there are"),
        ("# S", "# S\n\nBy 2 people."),
        ("and 8 heads, ", "and heads, "),
        ("\n", "\r\n"),
    ],
)
def test_what_a_reader_adds_or_takes_away_is_his(old: str, new: str) -> None:
    assert of_digits(WRITTEN.replace(old, new) if old else WRITTEN) == []
