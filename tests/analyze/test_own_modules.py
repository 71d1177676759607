"""Classes of the user's own: verified, with formulas in their own sizes, reused, and made again if necessary."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from evaluation import evaluate_analysis
from executed import executed
from lmp.analyze.modules import analyze_modules, load_for_evaluation, verify_module
from lmp.analyze.session import Options, Outcome
from lmp.errors import NotFound, UsageError
from lmp.link.records import EvaluatedTotals
from lmp.records import ModuleAnalysis
from lmp.store import fingerprint as fingerprints

PACKAGE = "ownpkg"
X = "x: float[batch_size, seq_len, dim]"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a user's package, importable while these tests run."""
    folder = tmp_path_factory.mktemp("home")
    (folder / PACKAGE).mkdir()
    (folder / PACKAGE / "__init__.py").write_text("")
    shutil.copy(Path(__file__).with_name("own_blocks.py"), folder / PACKAGE / "blocks.py")
    before = list(sys.path)
    yield folder
    sys.path[:] = before
    for name in [n for n in sys.modules if n.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def options(home: Path, tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Options:
    return Options(results=tmp_path_factory.mktemp("results"), paths=(home,))


Analyse = Callable[..., ModuleAnalysis]


@pytest.fixture(scope="module")
def analyse(options: Options) -> Analyse:
    def run(name: str, inputs: str = X, init: str = "") -> ModuleAnalysis:
        return requested(outcomes(name, replace(options, inputs=inputs, init=init))).analysis

    return run


def outcomes(name: str, options: Options) -> list[Outcome]:
    return analyze_modules([f"{PACKAGE}.blocks.{name}"], options, lambda c, s: None)


def requested(found: list[Outcome]) -> Outcome:
    return next(o for o in found if o.requested)


def totals(name: str, options: Options, **values: int) -> EvaluatedTotals:
    analysis, lookup = load_for_evaluation(f"{PACKAGE}.blocks.{name}", options, lambda c, s: None)
    evaluation = evaluate_analysis(analysis, lookup, values)
    assert evaluation.verification == "verified"
    return evaluation.totals


def counted(name: str, arguments: dict[str, Any], *inputs: torch.Tensor) -> int:
    """FLOPs of torch's own counter for the same class on the meta device: it lacks rules for attention on the CPU."""
    cls = getattr(sys.modules[f"{PACKAGE}.blocks"], name)
    with FlopCounterMode(display=False) as mode, torch.no_grad(), torch.device("meta"):
        cls(**arguments).eval()(*(x.to("meta") for x in inputs))
    return int(mode.get_total_flops())


def test_an_mlp(analyse: Analyse, options: Options) -> None:
    found = analyse("MLP", init="dim=12, hidden=40")
    assert found.verification.status == "verified"
    assert found.parameters == {
        "batch_size": "inputs.x.shape[0]", "seq_len": "inputs.x.shape[1]",
        "bias": "init.bias", "dim": "init.dim", "hidden": "init.hidden",
    }  # fmt: skip
    assert found.values == {"bias": 0, "dim": 12, "hidden": 40}
    assert found.fixed == {"act": "'silu'"}
    got = totals("MLP", options, batch_size=2, seq_len=3)
    # Two products of 2*3 rows: 2 * 6*12*40 each; silu is 4 per element of 6*40.
    assert (got.matmul_flops, got.flops) == (4 * 6 * 12 * 40, 4 * 6 * 12 * 40 + 4 * 240)
    # Read: 6*12 inputs and 12*40 weights, 6*40, 6*40 and 40*12 weights; written: 6*40 twice and 6*12. 2 bytes each.
    assert (got.read, got.write) == (2 * (72 + 480 + 240 + 240 + 480), 2 * (240 + 240 + 72))
    assert got.parameters_count == 2 * 12 * 40
    assert totals("MLP", options, batch_size=2, seq_len=3, bias=1).flops == got.flops + 6 * 40 + 6 * 12


def test_a_norm_with_an_upcast(analyse: Analyse, options: Options) -> None:
    found = analyse("RMSNorm", init="dim=16")
    assert found.verification.status == "verified"
    assert found.assumptions == ["{a_bytes} != 4"]
    # For 2*3 rows of 16: square, mean (16 additions and a division), epsilon, rsqrt, product, and the weight.
    assert totals("RMSNorm", options, batch_size=2, seq_len=3).flops == 6 * (16 + 17 + 1 + 1 + 16 + 16)


def test_attention_with_a_causal_mask(analyse: Analyse, options: Options) -> None:
    found = analyse("Attention", init="dim=32, num_heads=4")
    assert found.verification.status == "verified"
    assert [k.causal for k in found.kernels if k.category == "attention"] == [True]
    x = torch.randn(2, 7, 32)
    got = totals("Attention", options, batch_size=2, seq_len=7)
    assert got.matmul_flops == counted("Attention", {"dim": 32, "num_heads": 4}, x)
    # Of 2*7 rows: 2*32*96 and 2*32*32; scores and their product with the values 2 * 2*7*7*32 for each of 2 sequences.
    assert got.matmul_flops == 14 * 2 * 32 * (96 + 32) + 2 * 4 * 7 * 7 * 32


def test_attention_with_a_mask_of_its_own(options: Options, tmp_path: Path) -> None:
    options = replace(options, results=tmp_path)
    asked = replace(options, inputs=f"{X}, mask: bool[seq_len, seq_len]", init="dim=32, num_heads=4")
    found = requested(outcomes("Attention", asked)).analysis
    assert found.verification.status == "verified"
    assert not any(k.causal for k in found.kernels)
    assert totals("Attention", options, batch_size=2, seq_len=7).matmul_flops == 14 * 2 * 32 * 128 + 2 * 4 * 49 * 32


def test_what_a_class_calls_is_analysed_too(analyse: Analyse, options: Options) -> None:
    found = analyse("Block", "x: float[batch_size, seq_len, hidden_size]", "hidden_size=64")
    assert found.verification.status == "verified"
    assert found.values == {"hidden_size": 64, "num_heads": 4}
    references = {k.path: k.flops for k in found.kernels if k.kernel_type == "composite"}
    assert list(references) == ["norm1", "attn", "norm2", "mlp"]
    assert "hidden=4 * {hidden_size}" in references["mlp"]
    x = torch.randn(3, 5, 64)
    assert totals("Block", options, batch_size=3, seq_len=5).matmul_flops == counted("Block", {"hidden_size": 64}, x)
    x = torch.randn(1, 9, 96)
    got = totals("Block", options, batch_size=1, seq_len=9, hidden_size=96, num_heads=2)
    assert got.matmul_flops == counted("Block", {"hidden_size": 96, "num_heads": 2}, x)
    # Two norms, 96 * 4*96 attention and 2 * 96 * 4*96 MLP weights, and the biases of attention.
    assert got.parameters_count == 2 * 96 + 4 * 96 * 96 + 4 * 96 + 8 * 96 * 96


def test_a_loop_over_layers_is_a_repeat(analyse: Analyse, options: Options) -> None:
    found = analyse("Stack", "x: float[batch_size, seq_len, hidden_size]", "hidden_size=32, num_layers=3")
    assert found.verification.status == "verified"
    assert [k.repeat for k in found.kernels if k.kernel_type == "composite"] == ["{num_layers}"]
    x = torch.randn(2, 5, 32)
    got = totals("Stack", options, batch_size=2, seq_len=5, num_layers=7)
    assert got.matmul_flops == counted("Stack", {"hidden_size": 32, "num_layers": 7}, x)


def test_an_instance_of_another_kind_is_written_out(analyse: Analyse, options: Options) -> None:
    found = analyse("TwoKinds", init="dim=8")
    assert found.verification.status == "verified"
    by_line = {line: [k for k in found.kernels if k.line == line] for line in {k.line for k in found.kernels}}
    smooth, rough = (by_line[line] for line in sorted(by_line))
    assert [k.path for k in smooth] == ["smooth"]
    # Its own relu between the two Linears that it calls.
    assert [k.path or k.operation for k in rough] == ["rough.up", "ReLU", "rough.down"]
    # 2*3 rows, twice 2 products of 8*16; silu 4 and relu 1 per element of 6*16.
    assert totals("TwoKinds", options, batch_size=2, seq_len=3).flops == 2 * 4 * 6 * 8 * 16 + 5 * 96


def test_a_call_that_an_analysis_is_not_for_is_written_out(analyse: Analyse, options: Options) -> None:
    found = analyse("Pooled", "x: float[batch_size, width, 4, 6]")
    assert found.verification.status == "verified"
    assert [k.path or k.operation for k in found.kernels] == ["mean", "up"]
    # 3 pictures of 8 channels: 24 additions and a division each; then a product of 3 rows, 8 by 8.
    assert totals("Pooled", options, batch_size=3).flops == 3 * 8 * 25 + 2 * 3 * 8 * 8


def test_the_fewest_tokens_are_an_assumption(analyse: Analyse, options: Options) -> None:
    found = analyse("Grouped", "x: float[batch_size, seq_len, width]")
    assert found.verification.status == "verified"
    assert "{seq_len} >= 4" in found.assumptions
    # 11 tokens are two groups and a remainder, of 8 channels each: a product of 2 rows, 8 by 8, in each of 3 sequences.
    at = {"batch_size": 3, "seq_len": 11}
    assert totals("Grouped", options, **at).matmul_flops == 2 * (3 * 2) * 8 * 8


def test_sizes_that_a_module_refuses_are_told(analyse: Analyse) -> None:
    found = analyse("Placed", "x: float[batch_size, seq_len, width]")
    assert found.verification.status == "verified"
    skipped = [text for text in found.verification.checks if text.startswith("skipped")]
    assert skipped == ["skipped long prefill: batch_size=2, seq_len=150, cache_len=0: the module does not run there"]


def test_a_single_token_whose_cost_depends_on_data_is_left_out(analyse: Analyse) -> None:
    found = analyse("Picked", "x: float[batch_size, seq_len, width]")
    assert found.verification.status == "verified"
    assert found.assumptions == ["{seq_len} != 1"]


def test_a_sequential_is_what_it_holds(analyse: Analyse, options: Options) -> None:
    found = analyse("Net", init="dim=16")
    assert found.verification.status == "verified"
    assert [k.path for k in found.kernels] == ["net.0", "net.1", "net.2"]
    x = torch.randn(2, 3, 16)
    assert totals("Net", options, batch_size=2, seq_len=3).matmul_flops == counted("Net", {"dim": 16}, x)


def test_two_inputs_and_a_length_of_their_own(analyse: Analyse, options: Options) -> None:
    found = analyse("Cross", f"{X}, memory: float[batch_size, source, dim]", "dim=16")
    assert found.verification.status == "verified"
    assert found.parameters["source"] == "inputs.memory.shape[1]"
    assert "source" not in found.values
    with pytest.raises(UsageError, match="source has no value"):
        totals("Cross", options, batch_size=2, seq_len=3)
    got = totals("Cross", options, batch_size=2, seq_len=3, source=5)
    assert got.matmul_flops == counted("Cross", {"dim": 16}, torch.randn(2, 3, 16), torch.randn(2, 5, 16))


def test_a_cache_that_is_an_input(analyse: Analyse, options: Options) -> None:
    past = "float[batch_size, heads, cache_len, dim // heads]"
    found = analyse("Cached", f"{X}, past_k: {past}, past_v: {past}", "dim=32")
    assert found.verification.status == "verified"
    assert found.parameters["cache_len"] == "inputs.past_k.shape[2]"
    cache = torch.randn(3, 4, 11, 8)
    got = totals("Cached", options, batch_size=3, seq_len=2, cache_len=11)
    assert got.matmul_flops == counted("Cached", {"dim": 32}, torch.randn(3, 2, 32), cache, cache)


def test_a_decision_on_values_is_said(analyse: Analyse, options: Options) -> None:
    found = analyse("Branch", init="dim=8")
    assert found.verification.status == "verified"
    line = 1 + Path(__file__).with_name("own_blocks.py").read_text().splitlines().index("        if (x == x).all():")
    assert [(d.file, d.line, d.code, d.taken) for d in found.decisions] == [
        (f"{PACKAGE}/blocks.py", line, "if (x == x).all():", ["true"])
    ]
    assert found.not_taken_lines == [line + 2]
    # The path taken: 2*3 rows of 8 to 16.
    assert totals("Branch", options, batch_size=2, seq_len=3).matmul_flops == 2 * 6 * 8 * 16
    assert verify_module(f"{PACKAGE}.blocks.Branch", options).analysis.verification.status == "verified"


def test_a_loop_over_tokens(analyse: Analyse, options: Options) -> None:
    found = analyse("Recurrent", init="dim=8")
    assert found.verification.status == "verified"
    assert {str(k.repeat) for k in found.kernels if k.kernel_type == "composite"} == {"{seq_len}"}
    # 7 steps of 2 rows, 16 to 8.
    assert totals("Recurrent", options, batch_size=2, seq_len=7).matmul_flops == 7 * 2 * 2 * 16 * 8


@pytest.mark.parametrize(
    ("name", "inputs", "sizes", "shapes"),
    [
        pytest.param(
            *("Tagger", "ids: int[batch_size, seq_len]", {"vocab": 90, "dim": 20, "hidden": 12, "tags": 7}, None),
            marks=pytest.mark.long,
        ),
        (
            "Continued",
            "x: float[seq_len, batch_size, dim], state: float[1, batch_size, hidden]",
            {"dim": 20, "hidden": 12},
            [(13, 3, 5), (1, 3, 9)],
        ),
    ],
)
def test_a_recurrent_layer_inside(
    analyse: Analyse, options: Options, name: str, inputs: str, sizes: dict[str, int], shapes: list[Any] | None
) -> None:
    found = analyse(name, inputs, ", ".join(f"{n}={v}" for n, v in sizes.items()))
    assert found.verification.status == "verified"
    assert not found.pinned
    assert sizes.keys() <= found.parameters.keys()
    other = {"vocab": 50, "dim": 5, "hidden": 9, "tags": 4}
    other = {n: other[n] for n in sizes}
    given = [torch.randn(shape) for shape in shapes] if shapes else [torch.zeros(3, 13, dtype=torch.int64)]
    got = totals(name, options, batch_size=3, seq_len=13, **other)
    assert got.matmul_flops == counted(name, other, *given)


def test_a_convolution(analyse: Analyse, options: Options) -> None:
    found = analyse("Conv", "x: float[batch_size, 3, height, width]")
    assert found.verification.status == "verified"
    got = totals("Conv", options, batch_size=2, height=20, width=24)
    assert got.matmul_flops == counted("Conv", {}, torch.randn(2, 3, 20, 24))
    # 20*24 places of 8 filters of 3*9; (20-3)//2+1 = 9 by (24-3)//2+1 = 11 of 16 filters of 8*9; 16 to 10.
    assert got.matmul_flops == 2 * 2 * (480 * 8 * 27 + 99 * 16 * 72 + 160)


def test_a_config_object(analyse: Analyse, options: Options) -> None:
    found = analyse("Outer", "idx: int[batch_size, seq_len]", "config=Config(n_embd=24)")
    assert found.verification.status == "verified"
    assert found.parameters["n_embd"] == "init.config.n_embd"
    assert found.values == {"bias": 1, "n_embd": 24, "n_layer": 2, "vocab": 50}
    got = totals("Outer", options, batch_size=2, seq_len=3, n_layer=5)
    # Of 2*3 rows: 5 times 24*24, and 24*50. The table is tied to the head: counted once.
    assert got.matmul_flops == 2 * 6 * (5 * 24 * 24 + 24 * 50)
    assert got.parameters_count == 5 * (24 * 24 + 24 + 2 * 24) + 50 * 24


def test_a_class_of_transformers_inside(analyse: Analyse, options: Options) -> None:
    found = analyse("Plain", init="dim=16")
    assert found.verification.status == "verified"
    # 2*3 rows, three products of 16*48.
    assert totals("Plain", options, batch_size=2, seq_len=3).matmul_flops == 2 * 6 * 3 * 16 * 48


# --- the store -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(options: Options, home: Path, tmp_path: Path) -> Options:
    """A separate results folder, with MLP and RMSNorm in it."""
    kept = replace(options, results=tmp_path)
    shutil.copytree(options.results / "torch.nn.modules.linear.Linear", tmp_path / "torch.nn.modules.linear.Linear")
    outcomes("MLP", replace(kept, inputs=X, init="dim=12, hidden=40"))
    return kept


def test_it_is_reused_for_the_same_call_only(stored: Options) -> None:
    again = replace(stored, inputs=X, init="dim=12,hidden=40")
    assert requested(outcomes("MLP", again)).reused
    assert requested(outcomes("MLP", stored)).reused
    assert not requested(outcomes("MLP", replace(again, init="dim=12, hidden=44"))).reused
    assert requested(outcomes("MLP", stored)).analysis.values["hidden"] == 44


def test_it_is_verified_from_what_it_says_of_itself(stored: Options) -> None:
    name = f"{PACKAGE}.blocks.MLP"
    assert verify_module(name, stored).analysis.verification.status == "verified"
    file = stored.results / name / "module_analysis.json"
    data = json.loads(file.read_text())
    # One activation too many.
    changed = [{**k, "flops": f"2 * ({k['flops']})"} if k["operation"] == "SiLU" else k for k in data["kernels"]]
    file.write_text(json.dumps({**data, "kernels": changed}))
    assert verify_module(name, stored).analysis.verification.status == "failed"


@pytest.mark.parametrize(
    ("name", "inputs", "init"),
    [
        ("TwoKinds", X, "dim=8"),  # calls a user's class, twice in ways that its analysis does not cover
        ("Branch", X, "dim=8"),  # branches on values of tensors
        ("Block", "x: float[batch_size, seq_len, hidden_size]", "hidden_size=64"),
    ],
)
def test_another_judge_judges_it_in_its_own_call(
    name: str, inputs: str, init: str, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked = replace(options, results=tmp_path)
    asked = replace(unasked, inputs=inputs, init=init)
    before = requested(outcomes(name, asked)).analysis
    assert before.verification.status == "verified"
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    stages: list[str] = []
    for each in (unasked, asked):
        found = analyze_modules([f"{PACKAGE}.blocks.{name}"], each, lambda c, stage: stages.append(stage))
        outcome = requested(found)
        assert outcome.reused
        assert outcome.analysis.kernels == before.kernels
        assert outcome.analysis.verification == before.verification
        # The first time it is judged in its own call; the second time it is up to date.
        assert set(stages) == ({"reading", "verifying"} if each is unasked else {"reading"})
        stages.clear()


def test_another_source_is_another_analysis(stored: Options, home: Path) -> None:
    file = home / PACKAGE / "blocks.py"
    before = file.read_text()
    try:
        file.write_text(before + "\n# changed\n")
        assert not requested(outcomes("MLP", stored)).reused
    finally:
        file.write_text(before)


def test_a_part_of_another_kind_is_not_taken_for_it(stored: Options) -> None:
    # TwoKinds refers to MLP with silu; then MLP is analysed with relu: the reference is no longer valid.
    found = requested(outcomes("TwoKinds", replace(stored, inputs=X, init="dim=8"))).analysis
    assert found.given is not None
    assert [name for name in found.refers_to if not name.startswith("torch.")] == [f"{PACKAGE}.blocks.MLP"]
    outcomes("MLP", replace(stored, inputs=X, init="dim=8, hidden=16, act='relu'"))
    again = requested(outcomes("TwoKinds", stored))
    assert not again.reused
    assert totals("TwoKinds", stored, batch_size=2, seq_len=3).flops == 2 * 4 * 6 * 8 * 16 + 5 * 96


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inputs", "init", "message"),
    [
        (
            "MLP",
            "x: float[batch_size, seq_len, 9]",
            "dim=8, hidden=16",
            r"MLP\.forward\(\) does not run with x: bfloat16",
        ),
        ("MLP", "x: float[dim]", None, r"MLP\(\) needs dim and hidden, which --init does not name"),
        ("MLP", None, "dim=8", "--init is given without --inputs"),
        ("Cross", X, "dim=8", r"Cross\.forward\(\) needs memory"),
    ],
)
def test_calls_that_cannot_be(options: Options, name: str, inputs: str | None, init: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        outcomes(name, replace(options, inputs=inputs, init=init))


def test_inputs_are_for_ones_own(options: Options) -> None:
    llama = "transformers.models.llama.modeling_llama.LlamaMLP"
    with pytest.raises(UsageError, match=r"are for classes of your own and of torch\.nn, but transformers"):
        analyze_modules([llama], replace(options, inputs=X), lambda c, s: None)
    with pytest.raises(UsageError, match="are for one class"):
        analyze_modules(["torch.nn.Linear", "torch.nn.ReLU"], replace(options, inputs=X), lambda c, s: None)


def test_a_folder_without_the_package(options: Options, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no source tree holds a package 'ownpkg'"):
        outcomes("MLP", replace(options, paths=(tmp_path,)))


def test_a_class_of_a_single_file(tmp_path: Path, options: Options) -> None:
    (tmp_path / "lonely_module.py").write_text(
        "import torch\n\n\nclass Double(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    )
    here = replace(options, paths=(tmp_path,), inputs="x: float[batch_size, 5]")
    found = analyze_modules(["lonely_module.Double"], here, lambda c, s: None)[0].analysis
    assert found.verification.status == "verified"
    assert found.source.file == "lonely_module.py"
    assert [(k.line, k.flops) for k in found.kernels] == [(6, "5 * {batch_size}")]


@pytest.mark.parametrize(
    ("tokens", "each"),
    # twice the input costs 1 per element, two additions 2, a softmax 5
    [(3, 5), (4, 2), (64, 2), (65, 1), (66, 1), (100, 1), (101, 1)],
)
def test_thresholds_of_the_tokens_are_paths(analyse: Analyse, tokens: int, each: int) -> None:
    analysis = analyse("Thresholds", "x: float[batch_size, seq_len]")
    found = evaluate_analysis(analysis, lambda name: analysis, {"batch_size": 2, "seq_len": tokens})
    assert found.totals.flops == 2 * tokens * each


def test_a_projection_of_a_transposed_convolution(analyse: Analyse, options: Options) -> None:
    """Linear's own analysis is of a dense input: here ATen copies the input first, so its operators are inlined."""
    found = analyse("ConvMixer", init="dim=12, kernel=4")
    assert found.verification.status == "verified"
    assert list(found.inlined) == ["torch.nn.modules.linear.Linear"]
    cls = sys.modules[f"{PACKAGE}.blocks"].ConvMixer
    for batch, tokens, dim, kernel in ((3, 7, 10, 4), (1, 33, 14, 5), (5, 1, 6, 2), (4, 90, 18, 3)):
        got = totals("ConvMixer", options, batch_size=batch, seq_len=tokens, dim=dim, kernel=kernel)
        ran = executed(functools.partial(cls, dim, kernel), (batch, tokens, dim))
        assert (got.flops, got.read, got.write) == ran
    # At 4 x 90 tokens of 18: the copy reads and writes all 6,480 inputs of the projection, 2 bytes each.
    line = next(k for k in found.kernels if k.operation == "copy to contiguous memory")
    assert "{batch_size} * {seq_len} * {dim}" in line.memory_access.read
