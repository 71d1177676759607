"""What is read of sources: where values of a config are read, what is raised, what is quoted. On files written here."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmp.records import Kernel, MemoryAccess
from lmp.report.document.markdown import plain
from lmp.report.implementation.configuration import _short as value_told
from lmp.report.implementation.constraints import raised
from lmp.report.implementation.dispatch import answers
from lmp.report.implementation.drawing import cut, spread
from lmp.report.implementation.reads import descriptions, marked, reads_of
from lmp.report.implementation.sources import Piece, Sources, standing
from lmp.report.implementation.steps import kernels_told, steps_of
from lmp.source.trees import Tree

MODEL = """
class Block:
    def __init__(self, config):
        self.width = config.hidden_size
        self.heads = getattr(config, "num_heads", 4)
        kind = self.config.rope["kind"]
        table = config.rope
        self.base = table.get("base", 1)
        generation_config.top_k
        for name in ["use_cache", "window"]:
            getattr(self.config, name, None)
        for kind in self.kinds:
            getattr(self.config, f"output_{kind}", False)

    def forward(self, x):
        if x.shape[-1] != self.width:
            raise ValueError("width")
        assert x.dim() == 3, "rank"
        return x

    def unused(self):
        raise RuntimeError("never reached")
"""
CONFIG = '''
class BlockConfig:
    """
    Args:
        hidden_size (`int`, *optional*, defaults to 8):
            Width of the `Block`. More of it costs more.
    """

    attribute_map = {"hidden_size": "d_model"}

    def validate_width(self):
        if self.d_model % 2:
            raise ValueError("odd")
'''


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources((_piece(tmp_path, "model.py", MODEL),), (), (_piece(tmp_path, "config.py", CONFIG),))


def _piece(folder: Path, name: str, text: str) -> Piece:
    package = folder / "pkg"
    package.mkdir(exist_ok=True)
    path = package / name
    path.write_text(text)
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.ClassDef)
    return Piece(Tree("own", folder, package, "own", "1"), path, node, True)


def _facts(**settings: Any) -> Any:
    flows = SimpleNamespace(phases={})
    return SimpleNamespace(settings=settings, trees=SimpleNamespace(transformers=None), flows=flows)


def test_reads_are_found_by_name_getattr_key_and_alias(sources: Sources) -> None:
    found = reads_of(_facts(d_model=8, num_heads=4, rope={}, use_cache=True, output_attentions=False), sources)
    lines = {name: [pointer.line for pointer in places] for name, places in found.items()}
    # Under the config's own name; in the config's class itself, self is the config.
    assert lines["d_model"] == [4, 12]
    assert lines["num_heads"] == [5]
    assert lines["rope.kind"] == [6]
    assert lines["rope.base"] == [8]
    # A name out of a list that a loop goes over; a beginning that an f-string ends.
    assert lines["use_cache"] == [10]
    assert lines["output_attentions"] == [13]
    assert "top_k" not in lines


def test_descriptions_are_first_sentences_of_the_docstring(sources: Sources) -> None:
    assert descriptions(_facts(), sources) == {"hidden_size": "Width of the `Block`."}


def test_backquotes_of_a_docstring_become_code() -> None:
    assert [plain(piece) for piece in marked("Width of `Block` <b>")] == ["Width of ", "Block", " <b>"]
    assert marked("an odd ` one") == ["an odd ` one"]


def test_what_is_raised_where_the_class_runs(sources: Sources) -> None:
    told = ["".join(map(plain, line)) for line in raised(_facts(), sources) if isinstance(line, list)]
    assert told == [
        "self.d_model % 2 raises ValueError in BlockConfig.validate_width, own/pkg/config.py:13 (ValueError)",
        "x.shape[-1] != self.width raises ValueError in Block.forward, own/pkg/model.py:17 (ValueError)",
        "not (x.dim() == 3) fails an assertion in Block.forward, own/pkg/model.py:18 (assert)",
    ]


def test_what_is_raised_in_a_function_that_did_not_run_says_so(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    path = package / "masks.py"
    path.write_text("def join(a):\n    if not a:\n        raise ValueError\n\n\ndef make(a):\n    assert a\n")
    tree = Tree("own", tmp_path, package, "own", "1")
    functions = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
    read = Sources((), tuple(Piece(tree, path, node, True) for node in functions), ())
    line = SimpleNamespace(function="make")
    flow = SimpleNamespace(ops=[SimpleNamespace(frames=[SimpleNamespace(lines=[line])])])
    facts = _facts()
    facts.flows.phases["prefill"] = flow
    told = ["".join(map(plain, line)) for line in raised(facts, read) if isinstance(line, list)]
    assert told == [
        "not a raises ValueError in join, own/pkg/masks.py:3 (ValueError); no operator of the runs shown comes from "
        "there",
        "not (a) fails an assertion in make, own/pkg/masks.py:7 (assert)",
    ]


def test_a_symbol_on_the_line_goes_before_one_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("first = 1\nsecond = 2\n\n\n\n\nfar = 3\n")
    assert standing(path, 2, "first", "second") == "second"
    assert standing(path, 2, "first") == "first"
    assert standing(path, 2, "far", None) is None


# --- drawing ---------------------------------------------------------------------------------------------------------


def test_two_ends_of_a_row() -> None:
    assert "".join(map(plain, spread(["left"], ["right"], 12))) == "left   right"
    assert "".join(map(plain, cut(["abcdef"], 4))) == "abc…"


# --- steps -----------------------------------------------------------------------------------------------------------


def _kernel(line: int, read: str = "1", **more: Any) -> Kernel:
    given = {"operation": "element-wise product", "analysis": "aten.mul: [n] -> [n]. FLOPs an element: a * b", **more}
    return Kernel(
        kernel_type="basic",
        line=line,
        code="x",
        category="elementwise",
        flops="1",
        memory_access=MemoryAccess(read=read, write="0"),
        **given,
    )


def test_kernels_of_a_line_stand_together() -> None:
    steps = steps_of([_kernel(1), _kernel(1), _kernel(2, function="f"), _kernel(1)])
    assert [(step.line, len(step.kernels)) for step in steps] == [(1, 2), (2, 1), (1, 1)]


def test_equal_kernels_are_told_once() -> None:
    assert list(kernels_told([_kernel(1), _kernel(1), _kernel(1, repeat="{n}")])) == [
        "2 × aten.mul: [n] -> [n]",
        "aten.mul: [n] -> [n], × n",
    ]


def test_a_kernel_that_runs_sometimes_says_when() -> None:
    [told] = kernels_told([_kernel(1, read="where({seq_len} > 1, {n}, 0)")])
    assert told == "aten.mul: [n] -> [n]; only where seq_len > 1"


def test_what_decides_on_a_kernel_is_told_with_its_condition() -> None:
    function = ast.parse("""
def can(weight):
    if weight.small:
        return False
    if weight.device == "cuda":
        if weight.new:
            return capability() >= 8
        return False
    return True
""").body[0]
    # In the order of the source: the first whose conditions hold answers, so that the second False is what is left of
    # the block of "cuda".
    assert answers(function, "cuda") == [
        "False if weight.small",
        "capability() >= 8 if weight.device == 'cuda' and weight.new",
        "False if weight.device == 'cuda'",
        "True",
    ]


def test_what_is_asked_of_the_devices_type_is_answered() -> None:
    function = ast.parse("""
def can(weight):
    if weight.device.type == "tpu":
        return 1
    if weight.odd and weight.device.type == "cpu" or weight.small and weight.device.type != "cpu":
        return 2
    if weight.device.type == "cuda":
        if weight.new:
            return 3
        return 4
    return 5
""").body[0]
    # Nothing runs on a TPU or CPU; the block of "cuda" ends in a return, so that 5 is never reached.
    assert answers(function, "cuda") == ["2 if weight.small", "3 if weight.new", "4"]
    assert answers(function, "cpu") == ["2 if weight.odd", "5"]


def test_a_long_list_of_different_values_is_cut() -> None:
    # More than 60 characters; 48 numbers that are all different, and 36 and 12 of two kinds.
    assert value_told(list(range(48))) == "48 values: 0, 1, 2, 3, 4, 5, …"
    assert value_told([1] * 36 + [0] * 12) == "48 values: 36 × 1, 12 × 0"
