"""Class paths and aliases to definitions. Expected lines are found by scanning the text, not by parsing."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import MakeTrees, write

import lmp.source
from lmp.errors import NotFound, TreeChanged, UsageError
from lmp.source.locate import ClassSource, locate
from lmp.source.trees import Trees, find_trees


def spans(path: Path, name: str) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The class's span with decorators, and its forward's, by indentation alone."""
    lines = path.read_text(encoding="utf-8").split("\n")
    head = next(i for i, line in enumerate(lines) if re.match(rf"class {name}\b", line))
    first = head
    while lines[first - 1].strip():  # decorators stand directly above
        first -= 1
    end = last_of_block(lines, head, 0)
    forward = None
    for i in range(head, end):
        if lines[i].startswith("    def forward("):
            forward = (i + 1, last_of_block(lines, i, 4))
    return (first + 1, end), forward


def last_of_block(lines: list[str], head: int, indent: int) -> int:
    """The last line of the block that starts at ``head``: the last one that is indented deeper, or closes its head."""
    last = head
    for i in range(head + 1, len(lines)):
        line = lines[i]
        if not line.strip():
            continue
        if len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith(")"):
            break
        if not line.lstrip().startswith("#"):
            last = i
    return last + 1


@pytest.mark.parametrize(
    ("class_path", "defined"),
    [
        ("torch.nn.Linear", "torch.nn.modules.linear.Linear"),
        ("torch.nn.modules.Linear", "torch.nn.modules.linear.Linear"),
        ("torch.nn.modules.linear.Linear", "torch.nn.modules.linear.Linear"),
        ("torch.nn.MultiheadAttention", "torch.nn.modules.activation.MultiheadAttention"),
        ("transformers.LlamaForCausalLM", "transformers.models.llama.modeling_llama.LlamaForCausalLM"),
        ("transformers.models.llama.LlamaForCausalLM", "transformers.models.llama.modeling_llama.LlamaForCausalLM"),
        ("transformers.LlamaModel", "transformers.models.llama.modeling_llama.LlamaModel"),
        ("transformers.models.llama.modeling_llama.LlamaMLP", "transformers.models.llama.modeling_llama.LlamaMLP"),
        ("transformers.GPT2LMHeadModel", "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel"),
        ("transformers.models.gpt2.modeling_gpt2.Conv1D", "transformers.pytorch_utils.Conv1D"),
        ("transformers.Conv1D", "transformers.pytorch_utils.Conv1D"),
        ("transformers.models.t5.modeling_t5.T5LayerNorm", "transformers.models.t5.modeling_t5.T5LayerNorm"),
        ("transformers.DeepseekV3Model", "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Model"),
    ],
)
def test_alias_to_definition(real: Trees, class_path: str, defined: str) -> None:
    found = locate(class_path, real)
    assert (found.class_path, found.requested) == (defined, class_path)
    class_lines, forward = spans(found.path, found.name)
    assert found.class_lines == class_lines
    assert found.lines == forward
    assert not found.inherited
    assert found.sha256 == hashlib.sha256(found.path.read_bytes()).hexdigest()
    assert found.path == found.tree.root / found.file


@pytest.mark.parametrize(
    ("class_path", "holder"),
    [
        ("torch.nn.BatchNorm2d", "torch.nn.modules.batchnorm._BatchNorm"),
        ("torch.nn.LazyLinear", "torch.nn.modules.linear.Linear"),
        (
            "transformers.models.gemma.modular_gemma.GemmaAttention",
            "transformers.models.llama.modeling_llama.LlamaAttention",
        ),
        (
            "transformers.LlamaForSequenceClassification",
            "transformers.modeling_layers.GenericForSequenceClassification",
        ),
    ],
)
def test_inherited_forward(real: Trees, class_path: str, holder: str) -> None:
    found = locate(class_path, real)
    assert found.inherited
    assert found.forward_class == holder
    assert found.lines == spans(found.forward_path, holder.rpartition(".")[2])[1]
    assert found.sha256 == hashlib.sha256(found.forward_path.read_bytes()).hexdigest()


def test_record_is_what_analyses_store(real: Trees) -> None:
    found = locate("transformers.models.llama.modeling_llama.LlamaMLP", real)
    record = found.record()
    assert record.file == "src/transformers/models/llama/modeling_llama.py"
    assert (record.lines, record.class_lines) == (found.lines, found.class_lines)
    assert (record.distribution, record.version) == ("transformers", found.tree.version)
    assert locate("transformers.LlamaForSequenceClassification", real).record().class_lines is None


def test_bases_and_resolution_order(real: Trees) -> None:
    found = locate("transformers.LlamaForCausalLM", real)
    assert found.bases == (
        "transformers.models.llama.modeling_llama.LlamaPreTrainedModel",
        "transformers.generation.utils.GenerationMixin",
    )
    assert found.mro[0] == found.class_path
    assert "torch.nn.modules.module.Module" in found.mro


# --- refusals, on the real trees -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "class_path",
    ["", "../../etc/passwd", "a/b", "torch..nn", ".torch", "torch.nn.", "torch nn", "torch.nn.Linear\n", "1a.b", "a-b"],
)
def test_class_path_must_be_dotted_names(real: Trees, class_path: str) -> None:
    with pytest.raises(UsageError, match="is not a class path"):
        locate(class_path, real)


@pytest.mark.parametrize(
    ("class_path", "message"),
    [
        ("torch.nn.Lineer", "torch.nn has no class Lineer\ndid you mean Linear"),
        ("transformers.models.llama.modeling_llama.LlamaMPL", "did you mean LlamaMLP"),
        ("transformers.LlamaModl", "transformers has no class LlamaModl\ndid you mean LlamaModel"),
        ("transformers.models.lama.Foo", "transformers.models has no module lama\ndid you mean llama"),
        ("torch.nn", "torch.nn is a module, not a class"),
        ("torch.nn.functional.relu", "torch.nn.functional.relu is a function, not a class"),
        ("nowhere.Foo", "no source tree holds a package 'nowhere'"),
        ("transfomers.models.llama.X", "did you mean transformers.models.llama.X?"),
        ("LlamaMLP", "did you mean transformers.models.llama.modeling_llama.LlamaMLP?"),
        ("linear", "did you mean torch.nn.Linear?"),
        ("qwen3", "did you mean Qwen/Qwen3-8B"),
        ("Zzzz", "give the full path, as in "),
        ("torch.nn.ModuleList", "torch.nn.modules.container.ModuleList has no forward() of its own and inherits none"),
        ("torch.nn.Module", "torch.nn.modules.module.Module has no forward()"),
    ],
)
def test_not_found(real: Trees, class_path: str, message: str) -> None:
    with pytest.raises(NotFound) as caught:
        locate(class_path, real)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2
    assert caught.value.searched


def test_not_a_module(real: Trees) -> None:
    with pytest.raises(UsageError, match=r"LlamaConfig is not a torch\.nn\.Module"):
        locate("transformers.LlamaConfig", real)


# --- odd trees -------------------------------------------------------------------------------------------------------

MODEL = "import torch\nfrom torch import nn\n\n"


def module(name: str, body: str = "    def forward(self, x):\n        return x\n", base: str = "nn.Module") -> str:
    return f"class {name}({base}):\n{body}"


def find(make_trees: MakeTrees, class_path: str, files: dict[str, str]) -> ClassSource:
    return locate(f"transformers.{class_path}", make_trees(files))


def test_chain_of_aliases(make_trees: MakeTrees) -> None:
    files = {
        "a.py": MODEL + module("Real") + "Alias = Real\n",
        "b.py": "from .a import Alias as Other\nfrom . import a as mod\nViaModule = mod.Alias\nMore: type = Other\n",
        "c/__init__.py": "from ..b import *\n",
    }
    for alias in ("a.Alias", "b.Other", "b.ViaModule", "b.More", "c.More", "c.mod.Real"):
        assert find(make_trees, alias, files).class_path == "transformers.a.Real"


def test_star_import_gives_what_all_names(make_trees: MakeTrees) -> None:
    files = {
        "a.py": MODEL + module("Open") + module("Hidden") + '__all__ = ["Open"]\n',
        "b.py": "from .a import *\n",
    }
    assert find(make_trees, "b.Open", files).class_path == "transformers.a.Open"
    with pytest.raises(NotFound, match="has no class Hidden"):
        find(make_trees, "b.Hidden", files)


def test_star_import_without_all_leaves_private_names(make_trees: MakeTrees) -> None:
    files = {"a.py": MODEL + module("Open") + module("_Hidden"), "b.py": "from .a import *\n"}
    assert find(make_trees, "b.Open", files).class_path == "transformers.a.Open"
    with pytest.raises(NotFound, match="has no class _Hidden"):
        find(make_trees, "b._Hidden", files)


def test_lazy_top_level(make_trees: MakeTrees) -> None:
    """Nothing imports it: only ``__all__`` in a file under models/ says that it is offered."""
    files = {
        "models/zed/modeling_zed.py": MODEL + module("ZedModel") + module("ZedMLP") + '__all__ = ["ZedModel"]\n',
        "models/zed/modular_zed.py": MODEL + module("ZedModel") + '__all__ = ["ZedModel"]\n',
        "models/abc/modeling_abc.py": MODEL + module("OtherName") + '__all__ = ["OtherName"]\n',
    }
    assert find(make_trees, "ZedModel", files).class_path == "transformers.models.zed.modeling_zed.ZedModel"
    assert find(make_trees, "OtherName", files).class_path == "transformers.models.abc.modeling_abc.OtherName"
    with pytest.raises(NotFound):
        find(make_trees, "ZedMLP", files)


def test_imports_under_type_checking(make_trees: MakeTrees) -> None:
    files = {
        "m/__init__.py": "import typing\nif typing.TYPE_CHECKING:\n    from .m import *\nelse:\n    lazy()\n",
        "m/m.py": MODEL + module("A"),
    }
    assert find(make_trees, "m.A", files).class_path == "transformers.m.m.A"


def test_optional_faster_class_is_not_followed_out(make_trees: MakeTrees) -> None:
    text = MODEL + module("Norm") + "try:\n    from apex import Fast\n    Norm = Fast\nexcept ImportError:\n    pass\n"
    assert find(make_trees, "a.Norm", {"a.py": text}).class_path == "transformers.a.Norm"


def test_forward_span_starts_at_def_and_class_span_at_decorator(make_trees: MakeTrees) -> None:
    text = MODEL + (
        "@final\n"  # line 4
        "@register('x')\n"
        "class A(nn.Module):\n"  # 6
        "    @no_grad()\n"
        "    @wrapped(\n"
        "        a=1,\n"
        "    )\n"
        "    def forward(\n"  # 11
        "        self, x\n"
        "    ):\n"
        "        return (\n"
        "            x\n"
        "        )\n"  # 16
        "\n"
        "    x = 1\n"  # 18
    )
    found = find(make_trees, "a.A", {"a.py": text})
    assert (found.class_lines, found.lines) == ((4, 18), (11, 16))


def test_last_definition_of_forward_counts(make_trees: MakeTrees) -> None:
    body = (
        "    @overload\n    def forward(self, x): ...\n    @overload\n    def forward(self, y): ...\n"
        "    def forward(self, z):\n        return z\n"
    )
    assert find(make_trees, "a.A", {"a.py": MODEL + module("A", body)}).lines == (9, 10)


def test_inherited_across_files(make_trees: MakeTrees) -> None:
    files = {
        "base.py": MODEL + module("Base"),
        "mid.py": "from .base import Base as B\n\n" + module("Mid", "    pass\n", "B"),
        "top.py": "from . import mid\n\n\n" + module("Top", "    size = 1\n", "mid.Mid"),
    }
    found = find(make_trees, "top.Top", files)
    assert found.inherited
    assert (found.forward_class, found.forward_file) == ("transformers.base.Base", "src/transformers/base.py")
    assert (found.class_lines, found.lines) == ((4, 5), (5, 6))
    assert found.mro[:3] == ("transformers.top.Top", "transformers.mid.Mid", "transformers.base.Base")


def test_resolution_order_is_c3_not_depth_first(make_trees: MakeTrees) -> None:
    text = (
        MODEL
        + module("Root")
        + module("Left", "    pass\n", "Root")
        + module("Right", base="Root")
        + module("Bottom", "    pass\n", "Left, Right")
    )
    assert find(make_trees, "a.Bottom", {"a.py": text}).forward_class == "transformers.a.Right"


def test_forward_that_is_an_alias(make_trees: MakeTrees) -> None:
    text = (
        MODEL
        + "def plain(self, x):\n    return x\n\n"
        + module("A", "    def run(self, x):\n        return x\n\n    forward = run\n")
        + module("B", "    forward = plain\n")
        + module("C", "    forward = A.run\n")
    )
    files = {"a.py": text}
    assert [find(make_trees, f"a.{name}", files).forward_qualname for name in "ABC"] == ["A.run", "plain", "A.run"]
    assert [find(make_trees, f"a.{name}", files).lines for name in "ABC"] == [(8, 9), (4, 5), (8, 9)]


def test_no_forward(make_trees: MakeTrees) -> None:
    with pytest.raises(NotFound) as caught:
        find(make_trees, "a.A", {"a.py": MODEL + module("A", "    pass\n")})
    assert str(caught.value) == (
        "transformers.a.A has no forward() of its own and inherits none\nanalyse a subclass that defines it"
    )
    assert caught.value.place is not None
    file, line = caught.value.place
    assert Path(file).read_text().splitlines()[line - 1].startswith("class A")


def test_base_outside_of_the_trees(make_trees: MakeTrees) -> None:
    text = (
        "from timm import Block\nimport torch\n"
        + module("A", base="Block")
        + module("B", base="Block, torch.nn.Module")
    )
    with pytest.raises(NotFound, match=r"its base timm\.Block is not in the sources"):
        find(make_trees, "a.A", {"a.py": text})
    found = find(make_trees, "a.B", {"a.py": text})
    assert found.notes == ("base timm.Block is not in the sources",)


def test_base_that_is_computed(make_trees: MakeTrees) -> None:
    with pytest.raises(NotFound, match=r"its base make\(1\) is not in the sources"):
        find(make_trees, "a.A", {"a.py": module("A", base="make(1)")})


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": "from .b import X\n", "b.py": "from .a import X\n"},
        {"a.py": "X = Y\nY = X\n"},
        {"a.py": "X = X\n"},
        {"a.py": "from .a import X\n"},
        {"a.py": "from .b import *\n", "b.py": "from .a import *\n"},
        {"a.py": "from . import a\nX = a.X\n"},
    ],
)
def test_circles_end(make_trees: MakeTrees, files: dict[str, str]) -> None:
    with pytest.raises(NotFound):
        find(make_trees, "a.X", files)


def test_circle_of_stars_still_finds(make_trees: MakeTrees) -> None:
    files = {"a.py": "from .b import *\n", "b.py": "from .a import *\nfrom .c import *\n", "c.py": MODEL + module("X")}
    assert find(make_trees, "a.X", files).class_path == "transformers.c.X"


@pytest.mark.parametrize("text", [module("A", "    pass\n", "A"), "class A(B): ...\nclass B(A): ...\n"])
def test_class_among_its_own_bases_ends(make_trees: MakeTrees, text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a torch\.nn\.Module"):
        find(make_trees, "a.A", {"a.py": text})


def test_syntax_error_names_file_and_line(make_trees: MakeTrees, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        find(make_trees, "a.A", {"a.py": "import torch\n\nclass A(:\n"})
    path = tmp_path / "transformers" / "src" / "transformers" / "a.py"
    assert str(caught.value).startswith(f"{path} is not valid Python at line 3: ")


def test_undecodable_file_names_file_and_line(make_trees: MakeTrees, tmp_path: Path) -> None:
    trees = make_trees({"a.py": ""})
    path = tmp_path / "transformers" / "src" / "transformers" / "a.py"
    path.write_bytes(b"x = 1\n# \xff\xfe\n")
    with pytest.raises(NotFound, match="cannot be decoded as utf-8 at line 2"):
        locate("transformers.a.A", trees)
    path.write_bytes(b"# -*- coding: latin-1 -*-\n# \xff\n" + (MODEL + module("A")).encode())
    assert locate("transformers.a.A", trees).lines == (7, 8)
    path.write_bytes(b"x = 1\0\n")
    with pytest.raises(NotFound, match=r"a\.py"):
        locate("transformers.a.A", trees)


def test_broken_file_on_a_side_way_is_no_matter(make_trees: MakeTrees) -> None:
    files = {"a.py": "from .good import *\nfrom .bad import *\n", "bad.py": "A = (", "good.py": MODEL + module("A")}
    assert find(make_trees, "a.A", files).class_path == "transformers.good.A"
    with pytest.raises(NotFound) as caught:
        find(make_trees, "a.Gone", {**files, "bad.py": "Gone = ("})
    assert any("is not valid Python" in search.found for search in caught.value.searched)


def test_windows_line_ends_and_form_feeds_count_as_python_counts(make_trees: MakeTrees, tmp_path: Path) -> None:
    trees = make_trees({"a.py": ""})
    path = tmp_path / "transformers" / "src" / "transformers" / "a.py"
    path.write_bytes((MODEL + "\x0c\n" + module("A")).replace("\n", "\r\n").encode())
    assert locate("transformers.a.A", trees).lines == (6, 7)


def test_link_out_of_the_tree_is_not_followed(make_trees: MakeTrees, tmp_path: Path) -> None:
    trees = make_trees({})
    outside = tmp_path / "outside.py"
    write(outside, MODEL + module("A"))
    (tmp_path / "transformers" / "src" / "transformers" / "a.py").symlink_to(outside)
    with pytest.raises(NotFound) as caught:
        locate("transformers.a.A", trees)
    assert any("symbolic link out of the tree" in search.found for search in caught.value.searched)


def test_changed_vendored_file_is_told(vendored: Path, real: Trees) -> None:
    path = vendored / "pytorch" / "torch" / "nn" / "modules" / "linear.py"
    good = path.read_bytes()
    try:
        path.write_bytes(good + b"\n")
        with pytest.raises(TreeChanged, match="run `lmp vendor` to restore the pinned sources"):
            locate("torch.nn.Linear", real)
    finally:
        path.write_bytes(good)


def test_changed_base_is_told(vendored: Path, real: Trees) -> None:
    path = vendored / "pytorch" / "torch" / "nn" / "modules" / "batchnorm.py"
    good = path.read_bytes()
    try:
        path.write_bytes(good.replace(b"def forward(", b"def backward("))
        with pytest.raises(TreeChanged, match=r"batchnorm\.py differs from torch"):
            locate("torch.nn.SyncBatchNorm", real)
    finally:
        path.write_bytes(good)


def test_torch_is_needed_only_where_it_is_read(make_trees: MakeTrees) -> None:
    text = MODEL + module("Own") + module("Sub", "    pass\n", "nn.Linear")
    trees = dataclasses.replace(make_trees({"a.py": text}), pytorch=None)
    assert locate("transformers.a.Own", trees).lines == (5, 6)
    for class_path in ("transformers.a.Sub", "torch.nn.Linear"):
        with pytest.raises(NotFound, match="the pytorch sources are not in"):
            locate(class_path, trees)


def test_extra_package(tmp_path: Path, make_trees: MakeTrees) -> None:
    make_trees({})
    write(tmp_path / "more" / "mine" / "__init__.py", "__version__ = '0.1'\nfrom .model import Net\n")
    write(tmp_path / "more" / "mine" / "model.py", MODEL + module("Net"))
    found = locate("mine.Net", find_trees(tmp_path, extra=[tmp_path / "more"]))
    assert (found.class_path, found.file, found.tree.version) == ("mine.model.Net", "mine/model.py", "0.1")


def test_clone_given_by_the_user(make_trees: MakeTrees, tmp_path: Path) -> None:
    make_trees({})
    write(tmp_path / "clone" / "src" / "transformers" / "__init__.py", '__version__ = "6.0.0.dev0"\n')
    write(tmp_path / "clone" / "src" / "transformers" / "a.py", MODEL + module("A"))
    found = locate("transformers.a.A", find_trees(tmp_path, transformers=tmp_path / "clone"))
    assert (found.tree.version, found.path) == ("6.0.0.dev0", tmp_path / "clone" / "src" / "transformers" / "a.py")


# --- costs -----------------------------------------------------------------------------------------------------------

IMPORTS = "import lmp.source.locate, lmp.source.lines, lmp.source.vendor, lmp.source.scratchpad"


def test_nothing_heavy_is_imported() -> None:
    heavy = "{'torch', 'transformers', 'pydantic', 'importlib.metadata', 'subprocess', 'hashlib', 'difflib'}"
    script = f"{IMPORTS}; import sys; found = {heavy} & set(sys.modules); assert not found, found"
    source = str(Path(lmp.source.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-S", "-c", script], env={"PYTHONPATH": source}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


# --- Python itself as the judge --------------------------------------------------------------------------------------


def test_agrees_with_python_on_all_of_torch_nn(real: Trees) -> None:
    """``inspect`` on the imported classes says the same file, lines and qualified name."""
    import torch

    compared = 0
    for name, cls in vars(torch.nn).items():
        if not inspect.isclass(cls) or not issubclass(cls, torch.nn.Module):
            continue
        if cls.forward.__qualname__ == "_forward_unimplemented":
            with pytest.raises(NotFound, match=r"has no forward\(\)"):
                locate(f"torch.nn.{name}", real)
            continue
        found = locate(f"torch.nn.{name}", real)
        forward = inspect.unwrap(cls.forward)
        text, first = inspect.getsourcelines(forward)
        first += next(i for i, line in enumerate(text) if line.lstrip().startswith("def "))
        last = inspect.getsourcelines(forward)[1] + len(text) - 1
        assert found.class_path == f"{cls.__module__}.{cls.__qualname__}"
        assert found.lines == (first, last), name
        assert (inspect.getsourcefile(forward) or "").endswith(found.forward_file), name
        compared += 1
    assert compared > 140
