"""Templates of --inputs and --init, from the source of a class."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.source.own_file import own_class, own_file
from lmp.source.template import Template, template_of
from lmp.source.trees import find_trees
from lmp.workload.spec import parse_init, parse_inputs


def template(folder: Path, init: str, forward: str) -> Template:
    body = "\n".join(f"        {line}" for line in init.splitlines()[1:]) or "        pass"
    code = f"    def __init__({init.splitlines()[0]}):\n{body}\n    def {forward}\n"
    (folder / "blocks.py").write_text(f"from torch import nn\nclass Block(nn.Module):\n{code}")
    file = own_file(folder / "blocks.py", ())
    return template_of(own_class(file, "Block", find_trees(folder, extra=[folder])))


@pytest.mark.parametrize(
    ("init", "forward", "inputs", "constructor"),
    [
        # the size is a number in the layer that is called with the input
        (
            "self\nself.a = nn.Linear(8, 16)", "forward(self, x): return self.a(x)",
            "x: float[batch_size, seq_len, 8]", "",
        ),
        # it is an argument of the constructor: required, or with a default that --init has to state
        (
            "self, n: int\nself.a = nn.Linear(n, 16)", "forward(self, x): return self.a(x)",
            "x: float[batch_size, seq_len, n]", "n=SIZE",
        ),
        (
            "self, n: int = 64\nself.a = nn.LayerNorm(n)", "forward(self, x): return self.a(x)",
            "x: float[batch_size, seq_len, n]", "n=64",
        ),
        (
            "self, n=3\nself.a = nn.Linear(in_features=n, out_features=2)", "forward(self, x): return self.a(x)",
            "x: float[batch_size, seq_len, n]", "n=3",
        ),
        # other layers have other inputs
        ("self\nself.e = nn.Embedding(9, 4)", "forward(self, x): return self.e(x)", "x: int[batch_size, seq_len]", ""),
        (
            "self\nself.c = nn.Conv2d(3, 8, 1)", "forward(self, x): return self.c(x)",
            "x: float[batch_size, 3, HEIGHT, WIDTH]", "",
        ),
        # nothing in the source: a usual name, else a word to replace
        ("self, dim=64", "forward(self, x): return x", "x: float[batch_size, seq_len, dim]", "dim=64"),
        ("self", "forward(self, x): return x", "x: float[batch_size, seq_len, SIZE]", ""),
        ("self, n", "forward(self, x): return x", "x: float[batch_size, seq_len, SIZE]", "n=SIZE"),
        # by the names of the inputs; arguments with a default are left out
        (
            "self", "forward(self, input_ids, attention_mask, past=None): return input_ids",
            "input_ids: int[batch_size, seq_len], attention_mask: bool[batch_size, 1, seq_len, seq_len]", "",
        ),
        ("self", "forward(self, *, x, causal: bool, y=1): return x",
         "x: float[batch_size, seq_len, SIZE], causal=true", ""),
        # an object to construct
        (
            "self, config: Config", "forward(self, x): return x",
            "x: float[batch_size, seq_len, SIZE]", "config=Config()",
        ),
        # without an annotation: an argument whose attributes are read is no size
        (
            "self, dim, cfg\nself.a = nn.Linear(cfg.n, 1)", "forward(self, x): return x",
            "x: float[batch_size, seq_len, dim]", "dim=SIZE, cfg=VALUE",
        ),
        ("self", "forward(self): return 1", "", ""),
    ],
)  # fmt: skip
def test_templates(tmp_path: Path, init: str, forward: str, inputs: str, constructor: str) -> None:
    found = template(tmp_path, init, forward)
    assert (found.inputs, found.init) == (inputs, constructor)
    assert list(parse_inputs(found.inputs)) == [part.split(":")[0].split("=")[0] for part in split(inputs)]
    if not {"SIZE", "VALUE"} & set(found.open):
        parse_init(found.init)


def split(inputs: str) -> list[str]:
    """The inputs one by one: commas inside of brackets separate dimensions."""
    depth, parts = 0, [""]
    for letter in inputs:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        parts = [*parts, ""] if letter == "," and not depth else [*parts[:-1], parts[-1] + letter]
    return [part.strip() for part in parts if part.strip()]


def test_another_class_of_the_file_says_what_a_config_is(tmp_path: Path) -> None:
    one = "class One(nn.Module):\n    def __init__(self, config: Config): pass\n    def forward(self, x): return x\n"
    two = (
        "class Two(nn.Module):\n    def __init__(self, config): self.n = config.n\n    def forward(self, x): return x\n"
    )
    (tmp_path / "blocks.py").write_text(f"from torch import nn\n{one}{two}")
    file, trees = own_file(tmp_path / "blocks.py", ()), find_trees(tmp_path, extra=[tmp_path])
    assert template_of(own_class(file, "Two", trees)).init == "config=Config()"


def test_the_words_to_replace(tmp_path: Path) -> None:
    init = "self, n\nself.c = nn.Conv2d(3, 8, 1)"
    assert template(tmp_path, init, "forward(self, x): return self.c(x)").open == ("SIZE", "HEIGHT", "WIDTH")
    assert template(tmp_path, "self, dim=64", "forward(self, x): return x").open == ()
