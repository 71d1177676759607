"""A report that is made with parts that a reader named: its loop leads where the reader says."""

from __future__ import annotations

from pathlib import Path

from small_repository import line_of, read, written

from lmp.codebase.parts import NamedParts, Parts, findings
from lmp.records import Provenance
from lmp.report.code_base import repository_making, studied

FILES = {
    "serve.py": """\
import torch
import plugins


class Server:
    def __init__(self):
        self.model = plugins.load("model")

    def generate(self, tokens):
        while len(tokens) < 9:
            logits = self.model.forward(tokens)
            tokens = torch.cat([tokens, self.draw(logits)])
        return tokens

    def draw(self, logits):
        return torch.multinomial(torch.softmax(logits, -1), 1)


if __name__ == "__main__":
    Server().generate(torch.zeros(1))
""",
    "nets.py": """\
from torch.nn.functional import scaled_dot_product_attention


class Net:
    def forward(self, x):
        return scaled_dot_product_attention(x, x, x)
""",
}


def named(root: Path) -> NamedParts:
    generate, forward = line_of(root, "serve.py", "def generate"), line_of(root, "nets.py", "def forward")
    call = {"caller": "Server.generate", "caller_file": "serve.py", "caller_line": generate, "dispatch": "registry"}
    to = {"callee": "Net.forward", "callee_file": "nets.py", "callee_line": forward}
    line = line_of(root, "serve.py", "self.model.forward")
    draw = {"callee": "Server.draw", "callee_file": "serve.py", "callee_line": line_of(root, "serve.py", "def draw")}
    at = {"section": "sampling", "role": "sample", "symbol": "Server.draw", "file": "serve.py"}
    parts = Parts.model_validate(
        {
            "parts": [{**at, "line": draw["callee_line"], "why": "Draws <one>\x1b[31m token."}],
            "nesting": [{**call, **to, "line": line}, {**call, **draw, "line": line + 1}],
            "absent": ["kv_cache"],
        }
    )
    return NamedParts(parts=parts, provenance=Provenance(stage="submitted", author="A *person*"))


def test_the_loop_leads_where_the_reader_says(tmp_path: Path) -> None:
    root = written(tmp_path / "served", FILES)
    facts = read(root)
    forward = f"nets.py:{line_of(root, 'nets.py', 'def forward')}"
    attends = f"return scaled_dot_product_attention(x, x, x){' ' * 32}# nets.py:{line_of(root, 'nets.py', 'return')}"
    plain = repository_making(facts, root)
    assert attends not in plain.plain.text  # what a plugin gives back cannot be read
    made = repository_making(facts, root, named=named(root))
    lines = made.plain.text.split("\n")
    called = next(at for at, line in enumerate(lines) if "logits = self.model.forward(tokens)" in line)
    assert lines[called + 1].strip().startswith("return scaled_dot_product_attention(x, x, x)"), lines[
        called : called + 4
    ]
    assert made.plain_review.findings == []
    assert "**LLM-related:** yes (signals: named by a reader: sampling" in made.plain.text
    # Nothing that a reader says becomes markup, or moves a terminal.
    assert r"`Draws <one>\x1b[31m token`" in made.plain.text
    assert (
        "**Parts:** named by A \\*person\\* from the code and submitted with lmp submit: 1 place and 2 calls"
        in "\n".join(lines)
    )
    assert f"| nesting | registry | `serve.py:{line_of(root, 'serve.py', 'self.model.forward')}` |" in "\n".join(lines)
    assert forward in made.plain.text
    # The report without them is what it was.
    assert repository_making(facts, root).plain.text == plain.plain.text


def test_what_stands_in_other_words_may_be_named(tmp_path: Path) -> None:
    # typer makes ``--model-name`` of an argument, and a destructor stands without its class. A call in an inner
    # function is one of the function around it.
    files = {
        **FILES,
        "start.py": """import typer

app = typer.Typer()


@app.command()
def start(
    model_name: str = "small",
):
    def inner():
        run(model_name)

    inner()


def run(name):
    return name
""",
        "pool.cpp": """#include "pool.h"

KvPool::~KvPool() {
  clear();
}
""",
    }
    root = written(tmp_path / "served", files)
    flag = {"section": "configuration", "role": "cli flag", "symbol": "--model-name", "file": "start.py", "line": 8}
    gone = {"section": "kv_cache", "role": "free", "symbol": "KvPool::~KvPool", "file": "pool.cpp", "line": 3}
    ends = {"caller": "start", "caller_file": "start.py", "caller_line": 7, "callee": "run", "callee_file": "start.py"}
    call = {**ends, "callee_line": line_of(root, "start.py", "def run"), "line": 11}
    facts = read(root)
    study = studied(facts, root)
    parts = Parts.model_validate({"parts": [flag, gone], "nesting": [call]})
    assert [each.message for each in findings(parts, study.reading, study.base.lines)] == []
    by = NamedParts(parts=parts, provenance=Provenance(stage="submitted", author="Ada"))
    for implementation in (False, True):
        made = repository_making(facts, root, implementation=implementation, named=by)
        assert [each.message for each in made.plain_review.findings] == []
        assert "`start.py:8` (`model_name`)" in made.plain.text


def test_pitfalls_of_a_reader_come_first(tmp_path: Path) -> None:
    # The rules know the assert too: it is told once, in the reader's words.
    files = {
        "serve.py": FILES["serve.py"].replace("        while len", "        assert len(tokens) > 0\n        while len")
    }
    root = written(tmp_path / "served", files)
    line = line_of(root, "serve.py", "assert len(tokens)")
    facts = read(root)
    assert f"serve.py:{line}`: `len(tokens) > 0` must hold" in repository_making(facts, root).plain.text
    told = {"trigger": "The prompt is empty.", "effect": "It <b>ends</b>.\x1b[31m", "fix": "Give one token."}
    parts = Parts.model_validate({"pitfalls": [{"symbol": "tokens", "file": "serve.py", "line": line, **told}]})
    by = NamedParts(parts=parts, provenance=Provenance(stage="submitted", author="Ada"))
    made = repository_making(facts, root, named=by)
    assert made.plain_review.findings == []
    items = made.plain.text.split("## Pitfalls / time sinks")[1].split("\n\n")[1].splitlines()
    what = f"- `serve.py:{line}` (`tokens`): `It <b>ends</b>.\\x1b[31m`"
    assert items[0] == f"{what} (how to detect: The prompt is empty; fix: Give one token)"
    assert not any("must hold" in item for item in items)
    assert "and 1 pitfall, which come before those of rules" in made.plain.text


def test_the_template_of_implementations_has_them_too(tmp_path: Path) -> None:
    root = written(tmp_path / "served", FILES)
    made = repository_making(read(root), root, implementation=True, named=named(root))
    assert made.plain_review.findings == []
    assert "Server.generate -> Net.forward" in made.plain.text
