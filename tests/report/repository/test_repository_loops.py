"""The loop that a report shows where no model can be followed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from small_repository import line_of, read, reported, written

from lmp.codebase.graph.records import Function
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.nest import Drawer
from lmp.report.repository.study import Study

PIPELINE = """import torch
import tiktoken


class Net:
    def forward(self, tokens, state):
        return tokens, state


class Pipeline:
    def __init__(self, model):
        self.model = model

    def sample_token(self, logits):
        return torch.multinomial(torch.softmax(logits, -1), 1)

    def generate(self, tokens, count):
        state = None
        for i in range(count):
            while tokens:
                out, state = self.model.forward(tokens[:256], state)
                tokens = tokens[256:]
            tokens = [self.sample_token(out)]
        return tokens
"""


def test_a_loop_that_draws_counts_where_the_model_is_handed_in(tmp_path: Path) -> None:
    root = written(tmp_path / "net", {"README.md": "# net\n\nA language model.\n", "net/pipeline.py": PIPELINE})
    loop = reported(root).section("Prefill vs decode loop (real nesting)").split("\n")
    defined = line_of(root, "net/pipeline.py", "def generate")
    assert any(f"`net/pipeline.py:{defined}` (`generate`)" in line for line in loop)
    # The call that is lost stands within the loop that it is written in, with why.
    at = line_of(root, "net/pipeline.py", "while tokens:")
    within = next(number for number, line in enumerate(loop) if f"net/pipeline.py:{at}" in line)
    assert loop[within + 1].startswith("      self.model.forward(")
    assert "not resolved: forward of an object that is not known here" in loop[within + 2]


DECODER = """import tiktoken
import torch


class Net(torch.nn.Module):
    def forward(self, tokens):
        scores = torch.softmax(torch.matmul(tokens, tokens.mT), -1)
        return torch.matmul(scores, tokens)


class Decoder:
    def __init__(self):
        self.model = Net()

    def sample_token(self, logits):
        return torch.multinomial(torch.softmax(logits, -1), 1)

    def generate(self, tokens, count, greedy):
        for i in range(count):
            logits = self.model(tokens)
            if greedy:
                tokens = logits[-1:]
            else:
                tokens = torch.stack(
                    [logits[-1], *self.sample_token(logits)])
        return tokens
"""


def test_an_else_whose_other_branch_is_not_drawn_says_what_it_is(tmp_path: Path) -> None:
    root = written(tmp_path / "net", {"README.md": "# net\n\nA language model.\n", "net.py": DECODER})
    loop = reported(root).section("Prefill vs decode loop (real nesting)")
    # The branch of `greedy` calls nothing.
    assert "if greedy:" not in loop.replace("(not: if greedy:)", "")
    at = line_of(root, "net.py", "else:")
    assert re.search(rf"else: +# net\.py:{at}\n +# \(not: if greedy:\)\n", loop)
    # The line of the call is the end of a statement, which says nothing alone.
    assert re.search(rf" self\.sample_token\(…\) +# net\.py:{at + 2}\n", loop)


def test_both_branches_of_a_choice_have_their_condition(tmp_path: Path) -> None:
    # The second of the two calls stands behind an ``else`` without a colon: without the condition both would be run.
    # An argument on a line of its own is no statement, and what asks an unknown object for its length leads nowhere.
    text = """import tiktoken
import torch


def attention(x):
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def sample_token(x):
    return torch.multinomial(attention(x), 1)


def is_first():
    return torch.argmax(torch.zeros(1))


class Data:
    def __len__(self):
        return 3


def generate(model, x, loader, whole):
    for _ in range(loader.__len__()):
        x = model(x)
        x = (
            attention(x)
            if whole
            else sample_token(x)
        )
        print(
            shown=is_first(),
        )
    return x


if __name__ == "__main__":
    generate(torch.nn.Linear(2, 2), torch.zeros(2), [], True)
"""
    found = reported(written(tmp_path / "run", {"README.md": "# run\n\nA language model.\n", "run.py": text}))
    loop = found.section("Prefill vs decode loop (real nesting)")
    lines = [line.strip() for line in loop.split("\n")]
    assert any(line.startswith("attention(x)") for line in lines)
    assert "# (if whole)" in lines
    assert any(line.startswith("else sample_token(x)") for line in lines)
    assert any(line.startswith("is_first(…)") for line in lines)
    assert "Data.__len__" not in loop
    assert found.review.findings == []


def test_a_branch_behind_a_closing_brace() -> None:
    lines = [
        "void run(int width) {",
        "  if (width == 2) {",
        "    launch(2);",
        "  } else if (width == 3) {",
        "    launch(3);",
        "  } else {",
        "    launch(4);",
        "  }",
        "}",
    ]
    function = Function("run", "run", "a.cu", 1, 9, native=True)
    around = {
        line: [(step.text, step.place.line) for step in Drawer.around(lines, line, function, {})] for line in (3, 5, 7)
    }
    assert around == {3: [("if (width == 2) {", 2)], 5: [("} else if (width == 3) {", 4)], 7: [("} else {", 6)]}


LONG = """import torch
import torch.nn.functional as F


class Blocks:
    def __init__(self):
        self.free_blocks = []

    def left(self):
        return len(self.free_blocks)

    def can_allocate(self, count):
        return self.checked(count)

    def checked(self, count):
        return self.counted(count) <= self.left()

    def counted(self, count):
        return torch.tensor(count).sum()


class Model(torch.nn.Module):
    def forward(self, x):
        return self.attend(x)

    def attend(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Engine:
    def __init__(self):
        self.blocks = Blocks()
        self.model = Model()

    def generate(self, tokens):
        while True:
            if self.blocks.can_allocate(len(tokens)):
                tokens = self.grown(tokens)
            left = self.blocks.left()
            logits = self.model(tokens)
            tokens = torch.cat([tokens, torch.multinomial(logits, 1)])

    def grown(self, tokens):
        return torch.cat([tokens, tokens])
"""


def test_a_test_is_drawn_once_and_a_getter_not_at_all(tmp_path: Path) -> None:
    root = written(tmp_path / "engine", {"engine.py": LONG})
    found = reported(root)
    assert found.review.findings == []
    nesting = found.section("Prefill vs decode loop (real nesting)")
    # The line of the test stands once; what it asks stands further in than what it leads to.
    assert nesting.count("if self.blocks.can_allocate(len(tokens)):") == 1
    lines = [line for line in nesting.split("\n") if "self.checked(count)" in line or "self.grown(tokens)" in line]
    asked, led = (len(line) - len(line.lstrip()) for line in lines)
    assert asked == led + 2
    # ``left`` only gives a length.
    assert "left = self.blocks.left()" not in nesting


def test_what_leads_to_attention_gets_room_first(tmp_path: Path) -> None:
    root = written(tmp_path / "engine", {"engine.py": LONG})
    study = Study(CodeBase(read(root), root, {}), root)
    (loop,) = (each for each in study.reading.functions if each.name == "generate")
    drawer = replace(study._drawer, wanted=set(study.reading.functions))
    assert {each.name for each in drawer.leading} == {"forward", "attend", "generate"}
    # All of it: the test comes first, and so does what it asks. The five calls of the loop with the statements around
    # them count as eleven lines: of thirteen, the model has the other two.
    every, few = drawer._nest(loop, 40), drawer._nest(loop, 13)
    texts = [step.text for step in every.every()]
    assert texts.index("return self.checked(count)") < texts.index("return self.attend(x)")
    texts = [step.text for step in few.every()]
    assert "return self.attend(x)" in texts
    assert "return self.checked(count)" not in texts
    assert few.left_out > 0


def test_of_loops_that_train_the_outermost_is_shown(tmp_path: Path) -> None:
    source = """import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Engine:
    def __init__(self, model: Model):
        self.model = model

    def run(self, batches):
        for batch in batches:
            self.model(batch).sum().backward()


class Trainer:
    def __init__(self):
        self.engine = Engine(Model())

    def fit(self, data):
        for batches in data:
            self.engine.run(batches)
"""
    root = written(tmp_path / "net", {"train.py": source})
    loops = Study(CodeBase(read(root), root, {}), root).loops
    assert [each.qualname for each in loops] == ["Trainer.fit", "Engine.run"]


def test_tensors_of_a_cache_have_the_shape_that_is_written(tmp_path: Path) -> None:
    source = """import torch
import torch.nn.functional as F


class KVCache:
    def __init__(self, layers, pages, size):
        self.keys = torch.zeros(
            (layers, pages, size),
            dtype=torch.float16,
        )
        self.values = torch.zeros((layers, pages, size))

    def update(self, at, k, v):
        self.keys[at] = k
        self.values[at] = v


class Model(torch.nn.Module):
    def forward(self, x, cache: KVCache):
        cache.update(0, x, x)
        return F.scaled_dot_product_attention(x, cache.keys, cache.values)


def generate(model: Model, tokens):
    cache = KVCache(2, 8, 16)
    while True:
        logits = model(tokens, cache)
        tokens = torch.cat([tokens, torch.multinomial(logits, 1)])
"""
    found = reported(written(tmp_path / "engine", {"engine.py": source}))
    assert found.review.findings == []
    text = found.section("KV cache")
    # Each stands once, however many rows keep it; a call over several lines is one.
    assert text.count("`torch.zeros((layers, pages, size), dtype=torch.float16,)` at `engine.py:7` (`keys`)") == 1
    assert text.count("`torch.zeros((layers, pages, size))` at `engine.py:11` (`values`)") == 1
