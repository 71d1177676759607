"""Computational lines, and the functions that a forward() calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic import MakeTrees, write

from lmp.errors import NotFound
from lmp.source.lines import called_functions, forward_lines, function_lines, line_text
from lmp.source.locate import locate
from lmp.source.trees import Trees


def listed(tmp_path: Path, body: str) -> list[tuple[int, int]]:
    """The computational spans of a function whose body's first line is line 1."""
    path = tmp_path / "f.py"
    write(path, "def f(self, x, y):\n" + "".join(f"    {line}\n" for line in body.split("\n")))
    return [(s.first - 1, s.last - 1) for s in function_lines(path, "f").statements]


@pytest.mark.parametrize(
    "line",
    [
        "y = self.proj(x)",
        "y = x + 1",
        "y = -x",
        "y = x @ y",
        "y = x[0]",
        "x[0] = y",
        "x += y",
        "return x * y",
        "return self.f(x)",
        "y: Tensor = f(x)",
        "y = x > 0",
        "assert x.sum() == 0",
        "f(x)",
        "y = [g(z) for z in x]",
        "y = (z := f(x))",
        "self.cache = f(x)",
        "y = not f(x)",
        "y = len(x.view(1))",
        "y = await f(x)",
    ],
)
def test_may_compute(tmp_path: Path, line: str) -> None:
    assert listed(tmp_path, line) == [(1, 1)]


@pytest.mark.parametrize(
    "line",
    [
        '"""Text."""',
        "pass",
        "y = x",
        "y = None",
        "y = 3 * 4",
        "y = -1",
        "y = (x, -1, self.head_dim)",
        "y: list[int]",
        "y: Optional[int] = None",
        "return",
        "return x",
        "return x, y",
        "raise ValueError(f'{x.shape[0] + 1} is wrong')",
        "import math",
        "from a import b",
        "global z",
        "y = x is None",
        "y = not x",
        "y = isinstance(x, int)",
        "y = len(x)",
        "logger.warning_once(f'{x.shape[0]}')",
        "warnings.warn('a' + 'b')",
        "del x",
        "y = x.T",
    ],
)
def test_cannot_compute(tmp_path: Path, line: str) -> None:
    assert listed(tmp_path, line) == []


def test_headers_of_compound_statements(tmp_path: Path) -> None:
    body = (
        "if x.any():\n"  # 1
        "    y = x\n"
        "elif (\n"  # 3
        "    y[0]\n"
        "):\n"
        "    y = f(x)\n"  # 6
        "else:\n"
        "    y = x + 1\n"  # 8
        "for a in self.layers:\n"
        "    x = a(x)\n"  # 10
        "for a in self.layers[: self.n]:\n"  # 11
        "    pass\n"
        "while x > 0:\n"  # 13
        "    break\n"
        "with torch.no_grad(), other:\n"  # 15
        "    y = x\n"
        "if x is None:\n"
        "    return y * 2\n"  # 18
        "try:\n"
        "    y = f(x)\n"  # 20
        "except ValueError:\n"
        "    y = g(x)\n"  # 22
        "finally:\n"
        "    h(x)\n"  # 24
        "match x.shape[0]:\n"  # 25
        "    case 1 if y > 0:\n"  # 26
        "        f(x)"  # 27
    )
    singles = [1, 6, 8, 10, 11, 13, 15, 18, 20, 22, 24, 25, 26, 27]
    assert listed(tmp_path, body) == sorted([(3, 4), *((line, line) for line in singles)])


def test_statement_over_several_lines_is_one(tmp_path: Path) -> None:
    assert listed(tmp_path, "y = f(\n    x,\n    y,\n)\nreturn (\n    y\n    + 1\n)") == [(1, 4), (5, 8)]


def test_nested_functions_have_their_own_lines(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    write(path, "def f(x):\n    def g(y):\n        return y + 1\n    class C:\n        z = 1 + x\n    return g(x)\n")
    assert [s.first for s in function_lines(path, "f").statements] == [6]
    nested = function_lines(path, "f.<locals>.g")
    assert ([s.first for s in nested.statements], nested.lines) == ([3], (2, 3))


def test_code_is_the_line_without_its_indentation(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    write(path, "class A:\n    def f(self, x):\n        y = g(  # why\n            x)\n        return y\n")
    function = function_lines(path, "A.f")
    assert [(s.code, s.last) for s in function.statements] == [("y = g(  # why", 4)]
    assert line_text(path, 4) == "x)"
    assert function.statement_at(4) == function.statements[0]
    assert function.statement_at(5) is None


def test_no_such_function(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    write(path, "def f(x):\n    return x\n")
    with pytest.raises(NotFound, match=r"has no function A\.f"):
        function_lines(path, "A.f")


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    write(path, "def f(x):\n    return x\n")
    assert not function_lines(path, "f").statements
    write(path, "def f(x):\n    return x + 1\n")
    assert function_lines(path, "f").statements


# --- the real trees --------------------------------------------------------------------------------------------------


def line_of(path: Path, start: str) -> int:
    """The only line of the file that starts so."""
    lines = [i for i, line in enumerate(path.read_text().split("\n"), 1) if line.startswith(start)]
    assert len(lines) == 1, lines
    return lines[0]


def test_llama_attention_calls_the_four(real: Trees) -> None:
    source = locate("transformers.models.llama.modeling_llama.LlamaAttention", real)
    called = {function.qualname: function for function in called_functions(source, real)}
    for name in ("apply_rotary_pos_emb", "rotate_half", "eager_attention_forward", "repeat_kv"):
        assert called[name].lines[0] == line_of(source.path, f"def {name}(")
        assert called[name].file == "src/transformers/models/llama/modeling_llama.py"
        assert called[name].statements


def test_llama_mlp_has_one_line(real: Trees) -> None:
    source = locate("transformers.models.llama.modeling_llama.LlamaMLP", real)
    (statement,) = forward_lines(source).statements
    text = source.path.read_text().split("\n")[statement.first - 1]
    assert statement.code == text.strip()
    assert re.match(
        r"down_proj = self\.down_proj\(self\.act_fn\(self\.gate_proj\(x\)\) \* self\.up_proj\(x\)\)", text.strip()
    )
    assert called_functions(source, real) == []


def test_functions_of_torch_are_those_of_torch(real: Trees) -> None:
    called = called_functions(locate("torch.nn.LayerNorm", real), real)
    assert [(function.qualname, function.file) for function in called] == [("layer_norm", "torch/nn/functional.py")]


def test_conv_calls_its_own_method(real: Trees) -> None:
    called = {function.qualname for function in called_functions(locate("torch.nn.Conv1d", real), real)}
    assert "Conv1d._conv_forward" in called


# --- synthetic -------------------------------------------------------------------------------------------------------


def test_called_functions_are_followed(make_trees: MakeTrees) -> None:
    files = {
        "helpers.py": "def far(x):\n    return near(x)\ndef near(x):\n    return x + 1\ndef unused(x):\n    return x\n",
        "a.py": (
            "from torch import nn\nfrom torch.nn import functional as F\nfrom .helpers import far as renamed, unused\n"
            "class Base(nn.Module):\n"
            "    def step(self, x):\n        return self.own(x)\n"
            "    def own(self, x):\n        return x - 1\n"
            "    def forward(self, x, unused):\n"
            "        def inner(y):\n            return y * 2\n"
            "        x = F.act(renamed(self.step(x)))\n"
            "        return inner(unused(x))\n"
            "class A(Base):\n"
            "    def own(self, x):\n        return super().own(x) * 3\n"
        ),
    }
    trees = make_trees(files)
    called = [function.qualname for function in called_functions(locate("transformers.a.A", trees), trees)]
    # F.act is in the other tree; `unused` is a parameter here, which hides the import; A.own overrides Base.own
    # in Base.step, and calls it.
    assert sorted(called) == ["A.own", "Base.forward.<locals>.inner", "Base.own", "Base.step", "far", "near"]


def test_function_kept_by_init_is_called(make_trees: MakeTrees) -> None:
    text = (
        "from functools import partial\nfrom torch import nn\n"
        "def slow(x):\n    return x + 1\ndef size(n):\n    return n + 1\ndef part(n, x):\n    return x + n\n"
        "class A(nn.Module):\n"
        "    def __init__(self, n):\n"
        "        self.step = fast or slow\n        self.part = partial(part, 1)\n        self.n = size(n)\n"
        "    def forward(self, x):\n"
        "        return self.step(self.part(x)) * self.n\n"
    )
    trees = make_trees({"a.py": text})
    called = called_functions(locate("transformers.a.A", trees), trees)
    assert sorted(function.qualname for function in called) == ["part", "slow"]  # size() ran before forward()


def test_recursive_functions_end(make_trees: MakeTrees) -> None:
    text = (
        "from torch import nn\ndef f(x):\n    return g(x)\ndef g(x):\n    return f(x)\n"
        "class A(nn.Module):\n    def forward(self, x):\n        return self.forward(f(x))\n"
    )
    trees = make_trees({"a.py": text})
    source = locate("transformers.a.A", trees)
    assert [function.qualname for function in called_functions(source, trees)] == ["f", "g"]


def test_forward_that_is_an_alias_of_a_function_elsewhere(make_trees: MakeTrees) -> None:
    files = {
        "h.py": "def helper(x):\n    return x * 2\ndef run(self, x):\n    return helper(x)\n",
        "a.py": "from torch import nn\nfrom .h import run\nclass A(nn.Module):\n    forward = run\n",
    }
    trees = make_trees(files)
    source = locate("transformers.a.A", trees)
    assert [s.code for s in forward_lines(source).statements] == ["return helper(x)"]
    assert [function.qualname for function in called_functions(source, trees)] == ["helper"]
