"""The public API: what it offers, what it answers, and that a user's module and process stay as they were."""

from __future__ import annotations

import inspect
import json
import linecache
import os
import random
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.utils.flop_counter import FlopCounterMode

import lmp
from lmp.errors import NotFound, StorageError, UsageError
from lmp.records import ModelAnalysis

ROOT = Path(__file__).parents[2]


class Feed(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Ties, buffers, tensors kept beside them, dropout, hooks: all that a copy must not disturb."""

    def __init__(self, dim: int = 16, layers: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(30, dim)
        self.layers = nn.ModuleList([Feed(dim, 2 * dim) for _ in range(layers)])
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(dim)
        self.head = nn.Linear(dim, 30, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.full((dim,), 0.5))
        self.kept = torch.arange(dim, dtype=torch.float32)
        self.calls = 0

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.table(ids) * self.scale + self.kept
        for layer in self.layers:
            x = x + self.drop(layer(x))
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not today")


class Undecided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) if torch.isfinite(x).all() else x


IDS = "ids: int[batch_size, seq_len]"
LLAMA = "transformers.models.llama.modeling_llama.LlamaMLP"


def flops_of(module: nn.Module, *inputs: torch.Tensor) -> int:
    """torch's own count, of the module itself with data."""
    with FlopCounterMode(display=False) as mode, torch.no_grad():
        module.eval()(*inputs)
    return int(mode.get_total_flops())


# --- what it offers --------------------------------------------------------------------------------------------------


def test_exported_names() -> None:
    assert lmp.__all__ == [
        "Analysis", "Evaluated", "LmpError", "Model", "Predicted", "analyze", "expand", "model", "predict",
    ]  # fmt: skip
    assert dir(lmp) == sorted(lmp.__all__)
    for name in lmp.__all__:
        assert getattr(lmp, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        lmp.analyse  # noqa: B018


def test_predict_is_a_function_and_a_package() -> None:
    import lmp.predict.memory as own

    assert lmp.predict.memory is own  # type: ignore[attr-defined]
    assert list(inspect.signature(lmp.predict).parameters)[:3] == ["model", "device", "phase"]


def test_a_prediction_has_a_bound_an_interval_and_its_provenance() -> None:
    (file,) = (ROOT / "analysis_results").glob("*.LlamaForCausalLM@*/model_analysis.json")
    llama = lmp.Analysis(ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8")))
    found = lmp.predict(llama, "h100-sxm", "decode", batch_size=2, cache_len=1024, engine="vllm")
    time, low, high = found.ms
    assert found.least_ms <= low <= time <= high
    # Weights of 15 GB in 16 bits at 3.35 TB/s take 4.5 ms: nothing reads them faster.
    assert found.least_ms > 4.4
    assert found.bound == "memory"
    assert sum(found.provenance.values()) == pytest.approx(1)
    assert found.tokens_per_s[0] == pytest.approx(2000 / time)
    frame = found.to_frame()
    assert (frame["us"] * frame["repeat"]).sum() / 1000 == pytest.approx(time)
    assert json.loads(found.to_json())["bounded_by"] == "memory"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"phase": "decode"}, "a decode step has one new token on a cache"),
        ({"phase": "prefill"}, "a prefill has new tokens and an empty cache"),
        ({}, "the size of the call is missing"),
        ({"seq_len": 1, "device": "h100smx"}, "there is no device"),
        ({"seq_len": 1, "engine": "vlm"}, "did you mean vllm"),
        ({"seq_len": 1, "dtype": "fp9"}, "there is no dtype"),
    ],
)
def test_predictions_that_cannot_be_made(arguments: dict[str, Any], message: str) -> None:
    arguments = {"device": "h100-sxm", **arguments}
    with pytest.raises(UsageError, match=message):
        lmp.predict("torch.nn.Linear", **arguments)


def test_importing_lmp_imports_nothing() -> None:
    code = (
        "import sys, lmp; dir(lmp); print(*({'torch', 'pydantic', 'numpy', 'sympy', 'transformers'} & {*sys.modules}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == ""


# --- what it answers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def analysed() -> lmp.Analysis:
    return lmp.analyze(Model(), inputs=IDS)


def test_a_live_module(analysed: lmp.Analysis) -> None:
    assert analysed.status == "verified"
    assert analysed.class_name == f"{__name__}.Model"
    # Its own sizes are numbers.
    assert analysed.record.parameters == {"batch_size": "inputs.ids.shape[0]", "seq_len": "inputs.ids.shape[1]"}
    assert analysed.record.dtype == "float32"
    assert analysed.record.given is not None
    assert analysed.record.given.live
    totals = analysed.evaluate(batch_size=2, seq_len=5).totals
    assert totals.matmul_flops == flops_of(Model(), torch.zeros(2, 5, dtype=torch.int64))
    # Of 2*5 rows: in each of three layers 16 to 32 and back; then 16 to 30.
    assert totals.matmul_flops == 2 * 10 * (3 * 2 * 16 * 32 + 16 * 30)
    # The table is the head's too; and the norm's weight and bias.
    assert totals.parameters_count == 30 * 16 + 3 * 2 * 16 * 32 + 2 * 16


def test_its_layers_stand_once(analysed: lmp.Analysis) -> None:
    layers = [k for k in analysed.record.kernels if k.operation.endswith(": Feed")]
    assert [(k.path, k.repeat) for k in layers] == [("layers.0", 3)]


def test_a_class_has_formulas_in_its_sizes() -> None:
    found = lmp.analyze(Feed, inputs="x: float[batch_size, seq_len, dim]", init={"dim": 8, "hidden": 24})
    assert found.status == "verified"
    assert found.record.values == {"dim": 8, "hidden": 24}
    # 2*3 rows, 8 to 24 and back.
    assert found.evaluate(2, 3).totals.matmul_flops == 4 * 6 * 8 * 24
    assert found.evaluate(2, 3, hidden=5).totals.matmul_flops == 4 * 6 * 8 * 5
    with pytest.raises(UsageError, match="has no parameter 'width'"):
        found.evaluate(2, 3, width=5)


def test_a_class_path_is_as_on_the_command_line(tmp_path: Path) -> None:
    found = lmp.analyze("torch.nn.Linear", results=tmp_path)
    assert found.evaluate(2, 3, in_features=8, out_features=5, bias=0).totals.flops == 2 * 6 * 8 * 5
    assert (tmp_path / "torch.nn.modules.linear.Linear" / "module_analysis.json").is_file()
    assert lmp.analyze(nn.Linear, results=tmp_path).record == found.record


def test_a_sequential_with_a_shape() -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    found = lmp.analyze(net, inputs={"input": ("batch_size", 16)})
    assert found.status == "verified"
    # Two products of 3 rows, biases of 32 and 4, and 32 comparisons.
    assert found.evaluate(3).totals.flops == 2 * 3 * (16 * 32 + 32 * 4) + 3 * (32 + 4) + 3 * 32


def test_a_tensor_gives_its_own_sizes() -> None:
    found = lmp.analyze(Feed(8, 24), inputs={"x": torch.zeros(5, 8)})
    assert found.record.parameters == {}
    assert found.evaluate().totals.matmul_flops == 4 * 5 * 8 * 24


def test_a_module_on_the_meta_device_in_half_precision() -> None:
    with torch.device("meta"):
        module = Feed(8, 24).to(torch.float16)
    found = lmp.analyze(module, inputs="x: float[batch_size, 8]")
    assert (found.status, found.record.dtype) == ("verified", "float16")
    # Weights of 2 * 8*24, rows of 8, 24 and 24 elements in, 24, 24 and 8 out, 2 bytes each.
    assert found.evaluate(3).totals.read == 2 * (2 * 8 * 24 + 3 * (8 + 24 + 24))


def test_the_bytes_of_an_element_are_those_of_the_dtype() -> None:
    found = lmp.analyze(Feed(8, 24), inputs="x: float[batch_size, 8]")
    assert found.evaluate(3).totals.read == 4 * (2 * 8 * 24 + 3 * (8 + 24 + 24))
    assert found.evaluate(3, w_bytes=1).totals.read == 1 * 2 * 8 * 24 + 4 * 3 * (8 + 24 + 24)


@pytest.mark.parametrize("size", [Fraction(17, 32), "17/32", "0.53125", Decimal("0.53125"), 0.53125])
def test_bytes_may_be_fractions(size: Any) -> None:
    found = lmp.analyze(Feed(8, 24), inputs="x: float[batch_size, 8]").evaluate(3, w_bytes=size, a_bytes="1/3")
    # 384 weights; 3 * (8 + 24 + 24) activations that are read
    assert found.totals.read == 384 * Fraction(17, 32) + 168 * Fraction(1, 3) == 260
    assert type(found.totals.read) is int
    assert found.values["w_bytes"] == Fraction(17, 32)
    assert found.values["kv_bytes"] == found.values["a_bytes"] == Fraction(1, 3)
    data = json.loads(found.to_json())
    assert data["values"]["w_bytes"] == 0.53125
    assert data["values"]["a_bytes"] == "1/3"


@pytest.mark.parametrize("size", [0, -1, float("nan"), float("inf"), "1/0", "2 bytes", True])
def test_bytes_that_no_element_has(size: Any) -> None:
    found = lmp.analyze(Feed(8, 24), inputs="x: float[batch_size, 8]")
    for name in ("w_bytes", "a_bytes", "kv_bytes"):
        with pytest.raises(UsageError, match=f"{name} is set to"):
            found.evaluate(3, **{name: size})


def test_a_decision_on_values_of_a_live_module() -> None:
    found = lmp.analyze(Undecided(), inputs="x: float[batch_size, 4]")
    assert found.status == "verified"
    assert [d.taken for d in found.record.decisions] == [["true"]]


def test_expanded(analysed: lmp.Analysis) -> None:
    expanded = lmp.expand(analysed)
    assert isinstance(expanded.record, ModelAnalysis)
    assert expanded.status == "verified"
    assert expanded.record.parts.keys() >= {f"{__name__}.Feed", "torch.nn.modules.linear.Linear"}
    assert expanded.evaluate(2, 5).totals == analysed.evaluate(2, 5).totals
    with pytest.raises(UsageError, match="an Analysis is expanded as it is"):
        lmp.expand(analysed, inputs=IDS)


def test_frames(analysed: lmp.Analysis) -> None:
    pytest.importorskip("pandas")
    frame = analysed.evaluate(2, 5).to_frame()
    assert list(frame.columns) == [
        "path", "class_name", "line", "operation", "category", "repeat", "flops", "read", "write",
    ]  # fmt: skip
    assert (frame["repeat"] * frame["flops"]).sum() == analysed.evaluate(2, 5).totals.flops
    formulas = analysed.to_frame()
    assert len(formulas) == len(analysed.record.kernels)
    assert set(lmp.expand(analysed).to_frame()["path"]) >= {"layers.0.up", "head"}


def test_files(analysed: lmp.Analysis, tmp_path: Path) -> None:
    file = analysed.save(tmp_path)
    assert file == tmp_path / f"{__name__}.Model" / "module_analysis.json"
    assert file.read_text() == analysed.to_json()
    assert (tmp_path / f"{__name__}.Feed" / "module_analysis.json").is_file()
    totals = json.loads(analysed.evaluate(2, 5).to_json())["totals"]
    assert totals["flops"] == analysed.evaluate(2, 5).totals.flops
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        analysed.save(tmp_path / "file")


def cell(number: int, text: str) -> None:
    """Run a text as a notebook runs a cell: no file, and its lines where tracebacks look for them."""
    name = f"/tmp/ipykernel_0/{number}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    code = compile(text, name, "exec")
    types.FunctionType(code, vars(sys.modules["__main__"]))()


def test_classes_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    cell(1, "from torch import nn\n\nclass In(nn.Module):\n    def forward(self, x):\n        return x * 2\n")
    cell(2, "class Out(In):\n    def forward(self, x):\n        return super().forward(x) + 1\n")
    cell(3, "class Both(nn.Sequential):\n    def forward(self, x):\n        return self[0](x) + self[1](x)\n")
    both = vars(sys.modules["__main__"])
    found = lmp.analyze(both["Both"](both["In"](), both["Out"]()), inputs="x: float[batch_size, 8]")
    assert found.status == "verified"
    assert found.class_name == "__main__.Both"
    assert [(k.line, k.path) for k in found.record.kernels] == [(3, "0"), (3, "1"), (3, None)]
    assert found.record.kernels[0].code == "return self[0](x) + self[1](x)"
    # Of 3*8 elements: doubled twice, one added, and both added up.
    assert found.evaluate(3).totals.flops == 4 * 24


# --- what it refuses -------------------------------------------------------------------------------------------------


class Locked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def without_source() -> nn.Module:
    """As of a class that was made from a text: its code names a file that is none."""
    forward = types.FunctionType(Broken.forward.__code__.replace(co_filename="<string>"), globals())
    made: nn.Module = type("Made", (nn.Module,), {"forward": forward, "__module__": "lmp_nowhere"})()
    return made


@pytest.mark.parametrize(
    ("target", "options", "error", "message"),
    [
        (Feed(8, 8), {}, UsageError, "inputs are missing"),
        (Feed(8, 8), {"inputs": "x: float[batch_size, 8]", "init": "dim=8"}, UsageError, "init is given with a live"),
        (Feed(8, 8), {"inputs": "x: float[batch_size, 9]"}, UsageError, r"does not run with x: float32\[2, 9\]"),
        (Feed(8, 8), {"inputs": {"x": object()}}, UsageError, "x is <object object"),
        (Feed, {"inputs": "x: float[8]", "init": {"dim": [1], "hidden": object()}}, UsageError, "hidden is <object"),
        (Locked(), {"inputs": "x: float[2]"}, UsageError, r"Locked cannot be copied: TypeError: cannot pickle"),
        (Broken(), {"inputs": "x: float[batch_size, 4]"}, UsageError, r"not today \(test_analyses\.py:\d+\)"),
        (nn.Linear, {"inputs": "x: float[2]"}, UsageError, r"Linear\.forward\(\) takes no x"),
        (LLAMA, {"inputs": "x: float[2]"}, UsageError, "for classes of your own or of torch.nn and for live modules"),
        (3, {"inputs": "x: float[2]"}, UsageError, "3 is not a module, a module class or a class path"),
        (Feed(8, 8), {"dtyp": "float32"}, TypeError, r"analyze\(\) got an unexpected keyword argument 'dtyp'"),
        (without_source(), {"inputs": "x: float[2]"}, NotFound, "there is no source of lmp_nowhere.Made"),
    ],
)
def test_what_cannot_be_used(target: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lmp.analyze(target, **options)


def test_a_class_inside_a_function() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    with pytest.raises(NotFound, match="Inner is defined inside a function"):
        lmp.analyze(Inner(), inputs="x: float[2]")


# --- what stays as it was --------------------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What the user's hooks, on one module and on all, have heard."""
    found: list[str] = []
    handles = [
        nn_module.register_module_forward_pre_hook(lambda *_: found.append("any module's forward")),
        nn_module.register_module_forward_hook(lambda *_: found.append("any module was run")),
    ]
    yield found
    for handle in handles:
        handle.remove()


def state_of_torch() -> list[Any]:
    hooks = {n: dict(v) for n, v in vars(nn_module).items() if n.startswith("_global_") and isinstance(v, dict)}
    return [
        torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state()), torch.get_default_dtype(),
        torch.get_default_device(), torch.is_grad_enabled(), hooks, torch.nn.functional.scaled_dot_product_attention,
        torch.nn.Module.__init__, torch.nn.init.normal_, list(sys.path), dict(os.environ), sys.gettrace(),
        torch.overrides._get_current_function_mode_stack(),
    ]  # fmt: skip


def described(module: nn.Module) -> list[Any]:
    """Everything that one can see of a module: identities, data, flags."""
    tensors = [
        (name, id(t), t.data_ptr(), t.requires_grad, t.device, t.dtype, id(t.grad), t.detach().clone().tolist())
        for name, t in (*module.named_parameters(remove_duplicate=False), *module.named_buffers())
    ]
    inner = [
        (name, id(m), m.training, {k: (id(v), repr(v)) for k, v in vars(m).items() if k != "_modules"})
        for name, m in module.named_modules()
    ]
    return [tensors, inner]


def hooked(module: nn.Module, heard: list[str]) -> nn.Module:
    module.register_forward_hook(lambda *_: heard.append("forward"))
    module.register_forward_pre_hook(lambda *_: heard.append("before forward"))
    module.register_full_backward_hook(lambda *_: heard.append("backward"))
    module.register_state_dict_pre_hook(lambda *_: heard.append("state"))
    return module


@pytest.mark.parametrize("target", [Model, Broken, Undecided, Locked], ids=lambda c: c.__name__)
@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_a_live_module_stays_as_it_was(target: type[nn.Module], training: bool, heard: list[str]) -> None:
    module = hooked(target().train(training), heard)
    for index, parameter in enumerate(module.parameters()):
        parameter.requires_grad_(index % 2 == 0)
        parameter.grad = torch.ones_like(parameter) if index % 2 == 0 else None
    inputs = IDS if target is Model else "x: float[batch_size, 4]"
    torch.set_default_dtype(torch.float64)
    try:
        before, around = described(module), state_of_torch()
        failed = False
        try:
            lmp.analyze(module, inputs=inputs)
        except lmp.LmpError:
            failed = True
        assert failed == (target in (Broken, Locked))
        assert described(module) == before
        assert state_of_torch() == around
        assert heard == []
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_class_leaves_the_process_as_it_was(heard: list[str]) -> None:
    around = state_of_torch()
    with torch.inference_mode():
        lmp.analyze(Feed, inputs="x: float[batch_size, dim]", init="dim=8, hidden=12", fresh=True)
        assert torch.is_inference_mode_enabled()
    assert state_of_torch() == around
    assert heard == []


# --- anywhere --------------------------------------------------------------------------------------------------------

AFTER_TRANSFORMERS = """
import os, sys
import transformers
from transformers.models.llama.modeling_llama import LlamaMLP
import lmp
installed = os.path.dirname(os.path.dirname(transformers.__file__))
path = list(sys.path)
first = lmp.analyze(LlamaMLP)
assert first.status == "verified", first.record.verification
assert first.sources["transformers"] == installed, first.sources
assert first.record.source.file == "src/transformers/models/llama/modeling_llama.py"
# Three products of 2*16 rows, 4,096 by 11,008: the class's default config.
assert lmp.expand(first).evaluate(2, 16).totals.matmul_flops == 3 * 2 * 32 * 4096 * 11008
os.chdir(sys.argv[1])
# In a project too: the copy that runs is the imported one.
again = lmp.analyze("transformers.models.llama.modeling_llama.LlamaRMSNorm")
assert (again.status, again.sources["transformers"]) == ("verified", installed)
assert sys.path == path and transformers.logging.get_verbosity() == 30
"""

BEFORE_TRANSFORMERS = """
import os, sys
import lmp
assert lmp.analyze("transformers.models.llama.modeling_llama.LlamaRMSNorm").status == "verified"
import transformers
from huggingface_hub import constants
# lmp runs offline and without warnings. The process that it runs in does not.
assert not constants.HF_HUB_OFFLINE and "HF_HUB_OFFLINE" not in os.environ
assert transformers.logging.get_verbosity() == 30
"""


@pytest.mark.parametrize("code", [AFTER_TRANSFORMERS, BEFORE_TRANSFORMERS])
def test_around_an_import_of_transformers(code: str, tmp_path: Path, process: None) -> None:
    """In a folder that is no project, where the installed packages are read."""
    left_out = ("PYTHON", "HF_", "TRANSFORMERS_")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(left_out)} | {
        "PYTHONPATH": str(ROOT / "src"),
        "LMP_RESULTS": str(tmp_path / "results"),
    }
    command = [sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["results"]


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmp.source.installed.package_folder", lambda name: None)
    with pytest.raises(lmp.LmpError, match=r"^torch and transformers are not installed: .*\ninstall them: pip install"):
        lmp.analyze("torch.nn.Linear")
