"""A made-up library of kernels that replaces modules of another package: what a report on it must say."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import Reported, line_of, reported, written

NORM = """import torch
import triton
import triton.language as tl


@triton.jit
def square(x):
    return x * x


@triton.jit
def norm_fwd_kernel(X, Y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(X + at)
    var = tl.sum(square(x)) / n
    tl.store(Y + at, x / var)


def norm_forward(x):
    y = torch.empty_like(x)
    norm_fwd_kernel[(1,)](x, y, 8, BLOCK=8)
    return y


class NormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return norm_forward(x)
"""
SMALL = """import triton


@triton.jit
def small_kernel(X):
    pass


def scale_decode(x):
    small_kernel[(1,)](x)
"""
PATCH = """from lib.functional import fast_norm
from lib.ops.small import scale_decode


def apply_fast_to_llama():
    from transformers.models.llama import modeling_llama

    modeling_llama.norm = fast_norm


def apply_fast_to_qwen():
    from transformers.models.qwen import modeling_qwen

    modeling_qwen.norm = fast_norm
    modeling_qwen.limit = 7


def _apply_fast(name):
    return TABLE[name]()


TABLE = {
    "llama": apply_fast_to_llama,
    "llama2": apply_fast_to_llama,
    "llama3": apply_fast_to_llama,
    "qwen": apply_fast_to_qwen,
    "qwen2": apply_fast_to_qwen,
}
"""
FILES = {
    "lib/__init__.py": "from lib.functional import fast_norm\n",
    "lib/functional.py": (
        "from lib.ops.norm import NormFunction\n\n\ndef fast_norm(x):\n    return NormFunction.apply(x)\n"
    ),
    "lib/ops/__init__.py": "",
    "lib/ops/norm.py": NORM,
    "lib/ops/small.py": SMALL,
    "lib/patch.py": PATCH,
    # A folder of the package by the name of another package, which it does not hide.
    "lib/triton/__init__.py": "",
    "lib/triton/cache.py": "def cached_attention(x):\n    return x\n\n\ndef rotary(x):\n    return x\n",
    "pyproject.toml": '[project]\nname = "lib"\ndescription = "Kernels for language models"\n',
    "csrc/extra/setup.py": "from setuptools import setup\n\nsetup()\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("kernels") / "lib", FILES)


@pytest.fixture(scope="module")
def report(root: Path) -> Reported:
    return reported(root)


def test_the_review_finds_nothing_in_it(report: Reported) -> None:
    assert report.review.findings == []


def test_a_package_is_not_hidden_by_a_folder_of_its_name(report: Reported) -> None:
    # Imported by norm.py and small.py.
    assert "Triton in 2 files" in report.section("Architecture map (one diagram)")


def test_an_operator_is_shown_from_its_public_function_to_its_kernel(report: Reported) -> None:
    nesting = report.section("Prefill vs decode loop (real nesting)")
    # The larger kernel of the function that other files take, not what is named by a phase.
    assert nesting.index("(`fast_norm`)") < nesting.index("(`scale_decode`)")
    assert "norm_fwd_kernel[(1,)](x, y, 8, BLOCK=8)" in nesting


def test_what_takes_the_place_of_other_packages_definitions(report: Reported, root: Path) -> None:
    backends = report.section("Kernel hotspots / backends")
    own, first = (
        line_of(root, "lib/functional.py", "def fast_norm"),
        line_of(root, "lib/patch.py", "modeling_llama.norm"),
    )
    assert (
        f"`lib/functional.py:{own}` (`fast_norm`) takes the place of `transformers.models.llama.modeling_llama.norm`"
        f" at `lib/patch.py:{first}`, and of others at 1 more place (2 modules in all)"
    ) in backends
    assert "limit" not in backends


def test_a_kernel_that_others_call_is_said_to_be_called(report: Reported, root: Path) -> None:
    line = line_of(root, "lib/ops/norm.py", "square(x)) / n")
    kernels = report.section("Appendix D: kernels")
    assert f"no launch found: called by `norm_fwd_kernel` at `lib/ops/norm.py:{line}`" in kernels


def test_a_mapping_is_a_place_to_add_an_entry(report: Reported, root: Path) -> None:
    line = line_of(root, "lib/patch.py", "TABLE = {")
    assert f"| add an entry to `TABLE` | `lib/patch.py:{line}` (`TABLE`) | a mapping of 5 names" in report.text


def test_a_folder_is_no_released_package(report: Reported) -> None:
    install = report.section("Install / build")
    assert "`pip install csrc/extra` (what it does: builds and installs a folder of it" in install


def test_files_that_name_their_classes_alike_make_a_folder_to_add_to(tmp_path: Path) -> None:
    files = {f"pkg/models/m{n}.py": f"class M{n}:\n    pass\n\n\nEntry = M{n}\n" for n in range(8)}
    text = reported(written(tmp_path / "r", {"pkg/__init__.py": "", "pkg/models/__init__.py": "", **files})).text
    assert "8 files there each set `Entry`, as `pkg/models/m0.py:5` (`Entry`)" in text


def test_a_loop_that_decodes_messages_runs_no_model(tmp_path: Path) -> None:
    source = """class Worker:
    def _run(self):
        while True:
            message = self.decoder.decode(self.socket.recv())
            self.process_batch(message)


class KVCache:
    def append(self, x):
        return x

    def free(self, x):
        return x


class Attention:
    pass
"""
    text = reported(written(tmp_path / "r", {"m.py": source})).text
    assert "Loop that runs a model: none found" in text


def test_what_puts_an_operator_in_another_ones_place_is_none(tmp_path: Path) -> None:
    files = {
        "kit/__init__.py": "",
        "kit/norm.py": NORM.replace("lib.", "kit."),
        "kit/swap.py": """import torch
from kit.norm import norm_forward


def swap(name, new):
    setattr(torch.nn.functional, name, new)


def install():
    swap("layer_norm", norm_forward)
""",
    }
    found = reported(written(tmp_path / "kit", files))
    assert found.review.findings == []
    components = found.section("Key components (with code locations)")
    assert "| operator | `kit/norm.py:" in components
    assert "`install`" not in components
    assert "| operator | `kit/swap.py" not in components
