"""PyTorch's modules with given arguments and inputs: stored beside the plain ones, right at other sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from evaluation import evaluate_analysis
from lmp.analyze.modules import analyze_modules, execution_of, load_for_evaluation, verify_module
from lmp.analyze.session import Options, Session
from lmp.errors import TraceFailed, UsageError
from lmp.link.records import EvaluatedTotals

IMAGE = "input: float[batch_size, channels, height, width]"
STEP = "input: float[batch_size, input_size]"
FIRST = "input: float[batch_size, seq_len, input_size]"
TIME = "input: float[seq_len, batch_size, input_size]"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, transformers_tree: object) -> Options:
    return Options(results=tmp_path_factory.mktemp("results"))


def ask(options: Options, inputs: str, init: str) -> Options:
    return replace(options, inputs=inputs, init=init)


def totals(name: str, options: Options, **values: int) -> EvaluatedTotals:
    analysis, lookup = load_for_evaluation(f"torch.nn.{name}", options, lambda c, s: None)
    evaluation = evaluate_analysis(analysis, lookup, values)
    assert evaluation.verification == "verified"
    return evaluation.totals


CALLS = {
    "LSTMCell": (
        STEP,
        "input_size=24, hidden_size=36",
        {"batch_size": 7, "input_size": 5, "hidden_size": 9, "bias": 0},
    ),
    "GRUCell": (STEP, "input_size=24, hidden_size=36", {"batch_size": 7, "input_size": 5, "hidden_size": 9}),
    "RNNCell": (STEP, "input_size=24, hidden_size=36", {"batch_size": 7, "input_size": 5, "hidden_size": 9}),
    "PixelShuffle": (IMAGE, "upscale_factor=2", {"upscale_factor": 3, "channels": 45, "height": 7, "width": 3}),
    "PixelUnshuffle": (IMAGE, "downscale_factor=2", {"downscale_factor": 3, "channels": 5, "height": 9, "width": 21}),
    "Unfold": (IMAGE, "kernel_size=3", {"kernel_size": 2, "stride": 3, "channels": 5, "height": 11, "width": 17}),
    "Fold": (
        "input: float[batch_size, channels, (output_size-kernel_size+1)*(output_size-kernel_size+1)]",
        "output_size=16, kernel_size=2",
        {"output_size": 11, "kernel_size": 3, "channels": 45},
    ),
    "LocalResponseNorm": (IMAGE, "size=5", {"size": 4, "channels": 9, "height": 7, "width": 13}),
    "LPPool1d": ("input: float[batch_size, channels, length]", "norm_type=2, kernel_size=3", {"length": 61}),
    "LPPool2d": (IMAGE, "norm_type=2, kernel_size=3", {"kernel_size": 4, "height": 41, "width": 15}),
}


@pytest.mark.parametrize("name", CALLS)
def test_at_sizes_of_no_derivation(name: str, options: Options) -> None:
    inputs, init, sizes = CALLS[name]
    own = ask(options, inputs, init)
    found = next(o.analysis for o in analyze_modules([f"torch.nn.{name}"], own, lambda c, s: None) if o.requested)
    assert found.verification.status == "verified"
    assert not found.pinned
    assert not found.uncounted
    session = Session(own, lambda c, s: None)
    session.ask([found.class_name])
    execution = execution_of(found.class_name, session, found)
    here = {**execution.workload.hints, "batch_size": 5, "seq_len": 1, "cache_len": 0, **sizes}
    assert sizes.keys() - {"batch_size"} <= found.parameters.keys()
    assert execution.holds_at(found, here) is True


def test_plain_results_and_those_of_a_call_are_apart(options: Options) -> None:
    plain = analyze_modules(["torch.nn.Linear"], options, lambda c, s: None)[0]
    own = ask(options, "input: float[batch_size, in_features]", "in_features=8, out_features=24")
    called = analyze_modules(["torch.nn.Linear"], own, lambda c, s: None)[0]
    other = analyze_modules(
        ["torch.nn.Linear"], replace(own, init="in_features=8, out_features=40"), lambda c, s: None
    )[0]
    folders = {found.file.parent.name for found in (plain, called, other)}
    assert len(folders) == 3
    assert all(name.startswith("torch.nn.modules.linear.Linear") for name in folders)
    assert sum("@call-" in name for name in folders) == 2
    # Each is found again with its own options, and without options the plain one.
    assert analyze_modules(["torch.nn.Linear"], own, lambda c, s: None)[0].reused
    assert analyze_modules(["torch.nn.Linear"], options, lambda c, s: None)[0].analysis == plain.analysis
    assert verify_module("torch.nn.Linear", own).file == called.file
    assert "seq_len" in plain.analysis.parameters
    assert "seq_len" not in called.analysis.parameters
    # 3 x 8 times 8 x 24 and a bias: 2*3*8*24 + 3*24 = 1224.
    assert totals("Linear", own, batch_size=3).flops == 1224


def test_a_class_that_lmp_cannot_call_says_how_to_say_it(options: Options) -> None:
    with pytest.raises(TraceFailed, match=r"does not run on its own.*\nsay how it is called, as in --init"):
        analyze_modules(["torch.nn.GRU"], options, lambda c, s: None)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("hidden_size=8", r"LSTM\(\) needs input_size"),
        ("input_size=8, hidden_size=8, num_layer=2", "did you mean num_layers"),
        ("input_size=8, hidden_size=8, proj_size=8", "proj_size has to be smaller than hidden_size"),
    ],
)
def test_arguments_of_a_constructor_that_hands_them_on(options: Options, init: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        analyze_modules(["torch.nn.LSTM"], ask(options, TIME, init), lambda c, s: None)


def test_gru_cell(options: Options) -> None:
    own = ask(options, f"{STEP}, hx: float[batch_size, hidden_size]", "input_size=24, hidden_size=36")
    got = totals("GRUCell", own, batch_size=3, input_size=7, hidden_size=11, bias=1)
    # [3, 7] x [7, 33] and [3, 11] x [11, 33]: 2*3*7*33 = 1386 and 2*3*11*33 = 2178.
    assert got.matmul_flops == 1386 + 2178
    # Two biases of 33 for 3 rows: 198. Then on 3*11 = 33 elements: r = sigmoid(a + b), z = sigmoid(c + d),
    # n = tanh(e + r * f), h' = (h - n) * z + n: 4 additions, 2 products, 1 subtraction, 1 tanh, 2 sigmoids of 4.
    assert got.flops == 3564 + 198 + 33 * (4 + 2 + 1 + 1 + 2 * 4)
    # Reads: weights 33*7 + 33*11 and biases 2*33 are 660; the products read 21 + 33; 7 operators read two gates each
    # and 3 one: 33 * 17 = 561. Writes: two products of 99, and 10 gates of 33.
    assert (got.read, got.write) == (2 * (660 + 54 + 561), 2 * (198 + 330))
    assert got.parameters_count == 660


def test_unfold(options: Options) -> None:
    got = totals(
        "Unfold", ask(options, IMAGE, "kernel_size=3"),
        batch_size=2, channels=3, height=8, width=9, kernel_size=3, stride=2, dilation=1,
    )  # fmt: skip
    # Positions: (8 - 3)//2 + 1 = 3 by (9 - 3)//2 + 1 = 4. 2 images of 3*9 rows and 12 columns: 648 elements.
    assert (got.flops, got.read, got.write) == (0, 2 * 2 * 3 * 8 * 9, 2 * 648)


def test_local_response_norm(options: Options) -> None:
    got = totals(
        "LocalResponseNorm", ask(options, IMAGE, "size=5"), batch_size=2, channels=5, height=4, width=6, size=3
    )
    # 2*5*4*6 = 240 elements: a square 1, the mean of 3 channels 3 additions and a division, times alpha, plus k, to the
    # power 0.75 (log, product, exp: 3), a division.
    assert got.flops == 240 * (1 + 4 + 1 + 1 + 3 + 1)
    # Padded: 2*(5 + 1 + 1)*4*6 = 336. Reads: square 240, pad 240, pool 336, three steps of 240, the division 480.
    assert (got.read, got.write) == (2 * (240 + 240 + 336 + 3 * 240 + 480), 2 * (240 + 336 + 5 * 240))


LAYERS = {
    "LSTM": (TIME, "input_size=24, hidden_size=36"),
    "GRU": (FIRST, "input_size=24, hidden_size=36, num_layers=2, batch_first=true, bidirectional=true"),
    "RNN": (FIRST, "input_size=24, hidden_size=36, batch_first=true, nonlinearity='relu', bias=false"),
}


@pytest.mark.parametrize("name", ["GRU", pytest.param("RNN", marks=pytest.mark.long)])
def test_recurrent_layers_at_sizes_of_no_derivation(name: str, options: Options) -> None:
    inputs, init = LAYERS[name]
    own = ask(options, inputs, init)
    sizes = {"batch_size": 5, "seq_len": 23, "input_size": 10, "hidden_size": 7}
    got = totals(name, own, **sizes)
    analysis, _ = load_for_evaluation(f"torch.nn.{name}", own, lambda c, s: None)
    assert not analysis.pinned
    assert any("{seq_len}" in str(kernel.repeat) for kernel in analysis.kernels)
    # What is no variable is said with its value.
    assert {"num_layers", "bidirectional", "bias"} <= analysis.fixed.keys() | analysis.parameters.keys()
    arguments = {"RNN": {"nonlinearity": "relu", "bias": False}, "GRU": {"num_layers": 2, "bidirectional": True}}
    with FlopCounterMode(display=False) as mode, torch.no_grad(), torch.device("meta"):
        layer = getattr(torch.nn, name)(10, 7, batch_first=True, **arguments[name])
        layer(torch.empty(5, 23, 10))
    assert got.matmul_flops == mode.get_total_flops()


def test_lstm(options: Options) -> None:
    got = totals("LSTM", ask(options, *LAYERS["LSTM"]), batch_size=3, seq_len=5, input_size=7, hidden_size=11)
    # A token: [3, 7] x [7, 44] and [3, 11] x [11, 44] are 2*3*7*44 = 1848 and 2*3*11*44 = 2904.
    assert got.matmul_flops == 5 * (1848 + 2904)
    # Two biases of 44 for 3 rows, their sum 3*44; on 3*11 = 33 elements 3 sigmoids of 4, 2 tanh, 3 products, 1 sum.
    assert got.flops == got.matmul_flops + 5 * (264 + 132 + 33 * (12 + 2 + 3 + 1))
    # Reads of a token: weights 44*7 + 44*11 and biases 88 are 880; inputs 21 and 33; the sum of both products 2*132;
    # sigmoids and tanh 132; f * c, i * g and their sum 3*66; tanh 33; the last product 66. Then 3 stacks: 5*33, 33, 33.
    assert got.read == 2 * (5 * (880 + 21 + 33 + 264 + 132 + 3 * 66 + 33 + 66) + 165 + 66)
    # Writes of a token: 3*132, then 132, and 5 times 33. Two states of zeros, and the stacks.
    assert got.write == 2 * (5 * (3 * 132 + 132 + 5 * 33) + 66 + 165 + 66)


ENCODER = "d_model=48, nhead=6, dim_feedforward=96, batch_first=true"


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("TransformerEncoderLayer", f"{ENCODER}, norm_first=true, bias=false"),
        ("TransformerEncoder", f"encoder_layer=TransformerEncoderLayer({ENCODER}), num_layers=3"),
    ],
)
def test_transformer_encoders(name: str, init: str, options: Options) -> None:
    own = ask(options, "src: float[batch_size, seq_len, d_model]", init)
    sizes = {"batch_size": 3, "seq_len": 21, "d_model": 40, "nhead": 5, "dim_feedforward": 72}
    analysis, _ = load_for_evaluation(f"torch.nn.{name}", own, lambda c, s: None)
    got = totals(name, own, **{n: v for n, v in sizes.items() if n in (*analysis.parameters, "batch_size", "seq_len")})
    assert not analysis.pinned
    assert sizes.keys() <= analysis.parameters.keys()
    layers = 3 if name == "TransformerEncoder" else 1
    # A layer: three projections and one back, 2*63*40*40 each; both products of attention, 2*3*21*21*40 each; two
    # products with 72, 2*63*40*72 each.
    assert got.matmul_flops == layers * (4 * 2 * 63 * 1600 + 2 * 2 * 3 * 441 * 40 + 2 * 2 * 63 * 40 * 72)
