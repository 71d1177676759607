"""What an implementation report says of sizes, constraints, alternatives of a call, kept tensors and questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import Reported, implementation, line_of, written

FILES = {
    "gen/__init__.py": "",
    "gen/model.py": """import types
import torch
from torch import nn


def exists(value):
    return value is not None


def swap_and_sort(values):
    return torch.sort(values)


class Attention(nn.Module):
    def __init__(self, dim, heads=8, dim_head=64):
        super().__init__()
        if heads * dim_head != dim:
            raise ValueError("the heads do not divide it")
        assert dim % 2 == 1
        self.scale = torch.ones(1)
        self.gamma = nn.Parameter(torch.zeros(dim))

    def forward(self, x, mask=None):
        if exists(mask):
            x = x + mask
        return nn.functional.scaled_dot_product_attention(x, x, x * self.scale * self.gamma)


class Other(nn.Module):
    def forward(self, x):
        if exists(x):
            x = x * self.scale
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Runner:
    def __init__(self, weights):
        args = types.SimpleNamespace()
        args.n_layer = len(weights) // 12
        self.model = Attention(64)
        self.args = args
        self.buffer = torch.zeros(1, 4)

    def plain_step(self, token):
        return torch.argmax(self.model(token + self.buffer), dim=-1)

    def generate(self, token, n, max_new_tokens=16):
        for i in range(self.args.n_layer + n):
            if exists(token):
                token = self.plain_step(token)
        del self.buffer
        return token.to("cpu")
""",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("rules") / "gen", FILES)


@pytest.fixture(scope="module")
def report(root: Path) -> Reported:
    return implementation(root)


def test_sizes_of_constructors_and_of_what_the_code_fills(report: Reported, root: Path) -> None:
    sizes = report.section("3.1 Model Configuration")
    made = line_of(root, "gen/model.py", "def __init__(self, dim")
    assert f"| `num_heads` | `8` | default of `Attention(heads)` at `gen/model.py:{made}` |" in sizes
    assert f"| `head_dim` | `64` | default of `Attention(dim_head)` at `gen/model.py:{made}` |" in sizes
    filled = line_of(root, "gen/model.py", "args.n_layer =")
    assert f"| `num_layers` | `len(weights) // 12` | worked out at `gen/model.py:{filled}` |" in sizes


def test_alignment_is_a_multiple_and_not_a_parity(report: Reported) -> None:
    alignment = report.section("3.3 Constraints & Requirements").split("\n")[2]
    assert "`heads * dim_head != dim` raises an error in" in alignment
    assert "% 2" not in alignment


def test_a_small_helper_that_many_call_is_no_step(report: Reported) -> None:
    assert "(exists)" not in report.section("4. Component Analysis")
    assert "`exists`" not in report.section("5. Task/Operator Catalog")


def test_a_kept_tensor_is_of_its_class_until_it_is_deleted(report: Reported, root: Path) -> None:
    kept = report.section("6.3 Memory Lifecycle")
    deleted = line_of(root, "gen/model.py", "del self.buffer")
    row = next(line for line in kept.split("\n") if line.startswith("| `buffer`"))
    assert f"(`plain_step`) | until `del` at `gen/model.py:{deleted}` |" in row
    # ``Other`` reads a ``scale`` of its own; a parameter is no working tensor.
    scale = next(line for line in kept.split("\n") if line.startswith("| `scale`"))
    own = line_of(root, "gen/model.py", "def forward(self, x, mask=None)")
    assert f"| `gen/model.py:{own}` (`forward`) | that of `Attention` |" in scale
    assert "`gamma`" not in kept


def test_questions(report: Reported) -> None:
    assert "none found" in report.section("Q: What operations are fused?")
    # How many tokens are generated is not how many fit.
    assert "none found" in report.section("Q: What is the maximum supported sequence length?")


def test_what_has_no_kernel_says_so_once(report: Reported) -> None:
    assert report.section("3.2 Kernel Configuration").count("no kernel of its own") == 1
    assert "No kernel of its own" in report.section("8.1 Memory Access Pattern")
    assert "not judged, as it has no kernel of its own" in report.section("8.3 Bottleneck Analysis")
    assert "block table" not in report.section("A. Glossary")


def test_the_review_finds_nothing(report: Reported) -> None:
    assert [finding.message for finding in report.review.findings] == []


def test_layers_on_several_devices(tmp_path: Path) -> None:
    # Line 2 is given a map of devices, and line 7 hands one on. No call of a collective stands here.
    text = """class Net:
    def __init__(self, device_map):
        self.devices = device_map


def load(name):
    return AutoModel.from_pretrained(name, device_map="auto")
"""
    found = implementation(written(tmp_path / "net", {"net/load.py": text})).section("7.1 Parallelism Strategy")
    assert "- **Layers on several devices:** where they are asked for, at `net/load.py:2`, `net/load.py:7`." in found


def test_the_longest_sequence(tmp_path: Path) -> None:
    # A block beside no size of a model is a part of a sequence. The check refuses what is longer than the limit.
    config = """class Net:
    def check(self, length):
        if length > self.max_length:
            raise ValueError("too long")
"""
    press = """from dataclasses import dataclass


@dataclass
class PressConfig:
    block_size: int = 128
"""
    root = written(tmp_path / "net", {"net/config.py": config, "net/press.py": press})
    found = implementation(root)
    assert "block_size" not in found.section("3.1 Model Configuration")
    answer = found.section("Q: What is the maximum supported sequence length?")
    assert "`length > self.max_length` raises an error at `net/config.py:4`" in answer
    assert "block_size" not in answer


def test_a_size_that_is_asked_of_a_config_by_its_name_and_one_device(tmp_path: Path) -> None:
    # `BLOCK_SIZE` is a page of a cache, and no length of a sequence. One device holds all layers.
    files = {
        "engine.py": """from transformers import AutoModelForCausalLM

BLOCK_SIZE = 16


class Runner:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path, device_map="cuda")
        self.depth = getattr(self.model.config, "num_hidden_layers", getattr(self.model.config, "n_layer", None))
        self.pages = [BLOCK_SIZE] * self.depth

    def step(self, ids):
        return self.model(ids).logits
""",
    }
    found = implementation(written(tmp_path / "engine", files))
    assert found.review.findings == []
    sizes = found.section("3.1 Model Configuration")
    assert "| `num_layers` | set by the model's config |" in sizes
    assert "`BLOCK_SIZE`" not in sizes
    assert "Layers on several devices" not in found.section("7.1 Parallelism Strategy")
