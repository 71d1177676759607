"""Symbolic sizes where plain sizes, numbers or types are expected: a log of a config, NumPy, ``dtype=int``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import sympy
import torch

from lmp.trace.recording import Recorder
from lmp.trace.symbols import ConcolicShapeEnv, expression, fake_mode, symbolic_int


@pytest.fixture
def env() -> ConcolicShapeEnv:
    return ConcolicShapeEnv()


@pytest.fixture
def source() -> Iterator[ModuleType]:
    module = ModuleType("a_source")
    sys.modules["a_source"] = module
    yield module
    del sys.modules["a_source"]


def test_a_config_with_symbolic_sizes_can_be_logged(env: ConcolicShapeEnv) -> None:
    with symbolic_int([]):
        assert json.loads(json.dumps({"size": env.size("n", 3)})) == {"size": "n"}
    with pytest.raises(TypeError):
        json.dumps({"size": env.size("n", 3)})


def test_numpy_takes_the_root_of_a_size(env: ConcolicShapeEnv) -> None:
    root = np.sqrt(env.size("n", 16))
    assert isinstance(root, torch.SymFloat)
    assert float(root) == 4.0


def test_int_stays_a_dtype_where_sources_use_it_as_one(source: ModuleType) -> None:
    with symbolic_int(["a_source"]):
        made = torch.zeros(2, dtype=vars(source)["int"])
    assert made.dtype == torch.int64
    assert torch.zeros.__name__ == "zeros"
    assert "int" not in vars(source)


def test_a_call_stands_at_the_same_instruction_with_and_without_symbolic_sizes() -> None:
    # Kernels of different runs are matched by the instruction that calls them.
    def instruction() -> int:
        made = torch.ones(Asks())
        return int(made[0])

    class Asks:
        def __index__(self) -> int:
            frame = sys._getframe(1)
            while frame.f_code.co_name != "instruction":
                assert frame.f_back is not None
                frame = frame.f_back
            seen.append(frame.f_lasti)
            return 1

    seen: list[int] = []
    instruction()
    with symbolic_int([]):
        instruction()
    frames = len(seen) // 2
    assert seen[:frames] == seen[frames:]


def test_a_product_with_something_added_keeps_its_sizes(env: ConcolicShapeEnv) -> None:
    # baddbmm's own kernel takes plain numbers only. [b, n, k] @ [b, k, m] = [b, n, m]
    class Adding(torch.nn.Module):
        def forward(self, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.baddbmm(bias, a, b, beta=0.5)

    b, n, k, m = (env.size(name, value) for name, value in zip("bnkm", (2, 3, 4, 5), strict=True))
    module = Adding()
    with fake_mode(env), torch.device("meta"):
        recorder = Recorder(module, torch.float32)
        given = torch.empty(b, 1, m), torch.empty(b, n, k), torch.empty(b, k, m)
        with recorder.before:
            before = module(*given)
        with recorder:
            out = module(*given)
    names = [sympy.Symbol(name, integer=True, positive=True) for name in "bnm"]
    assert [expression(s) for s in out.shape] == names
    assert [expression(s) for s in before.shape] == names
