"""The engine's rules compared with two independent counters: torch's own, and the judge's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import flop_registry

from lmp.trace.recording import Recorder
from lmp.trace.rules import RULES, Operator, Tensor, cost
from lmp.verify.counter import Counter
from lmp.verify.operators import Traffic, grouped_mm_flop

BF16 = torch.bfloat16
aten = torch.ops.aten

# -- torch.utils.flop_counter ------------------------------------------------------------------------------------------


def shape_of(value: Any) -> Any:
    return Tensor(value, "a_bytes") if isinstance(value, tuple) else value


def matmul_flops(name: str, out: tuple[int, ...], **arguments: Any) -> int:
    known = {key: shape_of(value) for key, value in arguments.items()}
    return int(cost(Operator(name, known, (Tensor(out, "a_bytes"),))).matmul_flops)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (10, 4, 3), (7, 128, 5), (1, 4096, 11008)])
def test_matmuls_equal_torchs_formulas(m: int, k: int, n: int) -> None:
    formula = flop_registry
    expected = formula[aten.mm]((m, k), (k, n), out_val=(m, n))
    assert matmul_flops("mm", (m, n), self=(m, k), mat2=(k, n)) == expected == 2 * m * k * n
    expected = formula[aten.addmm]((n,), (m, k), (k, n), out_val=(m, n))
    assert matmul_flops("addmm", (m, n), self=(n,), mat1=(m, k), mat2=(k, n)) == expected
    expected = formula[aten.bmm]((6, m, k), (6, k, n), out_val=(6, m, n))
    assert matmul_flops("bmm", (6, m, n), self=(6, m, k), mat2=(6, k, n)) == expected
    expected = formula[aten.baddbmm]((6, m, n), (6, m, k), (6, k, n), out_val=(6, m, n))
    assert matmul_flops("baddbmm", (6, m, n), self=(6, m, n), batch1=(6, m, k), batch2=(6, k, n)) == expected
    expected = grouped_mm_flop((m, k), (6, k, n))
    assert matmul_flops("_grouped_mm", (m, n), self=(m, k), mat2=(6, k, n)) == expected
    assert matmul_flops("grouped_mm_fallback", (m, n), input=(m, k), weight=(6, k, n)) == expected


@pytest.mark.parametrize(
    ("x", "weight", "out", "transposed"),
    [
        ((2, 4, 10), (6, 4, 3), (2, 6, 8), False),
        ((2, 4, 10), (6, 2, 3), (2, 6, 8), False),  # two groups
        ((1, 8, 9, 9), (8, 1, 3, 3), (1, 8, 7, 7), False),  # depthwise
        ((2, 3, 5, 6, 7), (4, 3, 2, 2, 2), (2, 4, 4, 5, 6), False),
        ((2, 4, 10), (4, 6, 3), (2, 6, 21), True),
        ((2, 4, 5, 6), (4, 3, 2, 2), (2, 6, 10, 12), True),  # two groups
    ],
)
def test_convolutions_equal_torchs_formula(
    x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], transposed: bool
) -> None:
    formula = flop_registry[aten.convolution]
    expected = formula(x, weight, None, [1], [0], [1], transposed, [0], 1, out_val=out)
    assert matmul_flops("convolution", out, input=x, weight=weight, bias=None, transposed=transposed) == expected


@pytest.mark.parametrize(
    ("q", "keys", "value"),
    [
        ((2, 4, 3, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
        ((1, 32, 1, 128), (1, 32, 4097, 128), (1, 32, 4097, 128)),
        ((2, 4, 5, 24), (2, 4, 5, 24), (2, 4, 5, 12)),  # values of another size than queries and keys
    ],
)
def test_attention_equals_torchs_formula(q: tuple[int, ...], keys: tuple[int, ...], value: tuple[int, ...]) -> None:
    expected = flop_registry[aten._scaled_dot_product_flash_attention](q, keys, value, out_val=None)
    out = (*q[:-1], value[-1])
    name = "scaled_dot_product_attention"
    assert matmul_flops(name, out, query=q, key=keys, value=value, attn_mask=None) == expected


def test_torch_has_no_forward_rule_that_the_engine_lacks() -> None:
    names = {str(op).removeprefix("aten.") for op in flop_registry}
    forward = {n for n in names if "backward" not in n and "attention" not in n}
    # Backend-specific convolutions and fp8 matmuls: none of them is dispatched on the meta device.
    backends = {"_convolution", "cudnn_convolution", "convolution_overrideable", "_slow_conv2d_forward", "_scaled_mm"}
    assert forward - backends <= RULES.keys()
    assert not {"mv", "dot", "polar"} & names  # in the table of scalar operations, because torch does not count them


# -- the judge ---------------------------------------------------------------------------------------------------------


class Holder(torch.nn.Module):
    """A module whose forward is a given function. It has a weight and a buffer."""

    def __init__(self, function: Callable[..., Any], device: str) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.zeros(4, 3, dtype=BF16, device=device), requires_grad=False)
        self.scale = torch.nn.Parameter(torch.ones(4, dtype=BF16, device=device), requires_grad=False)
        self.register_buffer("table", torch.zeros(9, 4, dtype=BF16, device=device))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def by_unit(moves: list[Any]) -> Traffic:
    found = Traffic()
    for move in moves:
        if move.unit == "w_bytes":
            found += Traffic(w=move.elements)
        elif move.unit == "a_bytes":
            found += Traffic(a=move.elements)
        else:
            found += Traffic(literal=move.elements * move.unit)
    return found


def both(function: Callable[..., Any], device: str, *args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Costs of one execution by the engine's rules and by the judge's."""
    module = Holder(function, device).eval()
    recorder, counter = Recorder(module, BF16), Counter(module, BF16)
    with torch.no_grad():
        with recorder:
            module(*args)
        with counter:
            module(*args)
    costs = [e.cost for e in recorder.recording.operators]
    engine = {
        "flops": sum(c.matmul_flops + c.scalar_flops for c in costs),
        "matmul_flops": sum(c.matmul_flops for c in costs),
        "read": by_unit([m for c in costs for m in c.reads]),
        "write": by_unit([m for c in costs for m in c.writes]),
        "uncounted": sorted({e.operator.name for e in recorder.recording.operators if not e.cost.counted}),
    }
    judge = {name: getattr(counter, name) for name in ("flops", "matmul_flops", "read", "write")}
    judge["uncounted"] = sorted({name.split(".")[1].removesuffix("_") for name in counter.uncounted})
    return engine, judge


def zeros(device: str, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


def turned(x: torch.Tensor) -> None:
    """Two operators on one tensor whose shape differs for the second. The shape is restored at the end."""
    x + 1
    F.layer_norm(x.transpose_(0, 1), (6,))
    x.transpose_(0, 1)


OPERATORS: dict[str, Callable[..., Any]] = {
    # x: 6 x 4, y: 6 x 4, image: 2 x 4 x 8 x 8, rows: 5 row numbers, cells: 6 x 3 column numbers, mask: 6 x 4 booleans
    "mm": lambda m, a: a.x @ m.weight,
    "bmm": lambda m, a: torch.bmm(a.batch, a.batch.transpose(1, 2)),
    "addmm": lambda m, a: F.linear(a.x, a.y[:3], a.y[0, :3]),
    "addmm scaled": lambda m, a: torch.addmm(a.x, a.x, a.square, beta=0.5, alpha=2),
    "baddbmm": lambda m, a: torch.baddbmm(a.wide, a.batch, a.batch.transpose(1, 2), beta=0, alpha=0.5),
    "mv": lambda m, a: a.x @ m.scale,
    "dot": lambda m, a: torch.dot(m.scale, a.x[0]),
    "convolution": lambda m, a: F.conv2d(a.image, a.kernel, m.scale[:3], stride=2, padding=1),
    "convolution in groups": lambda m, a: F.conv2d(a.image, a.kernel[:2, :2], groups=2),
    "convolution transposed": lambda m, a: F.conv_transpose2d(a.image, a.kernel.transpose(0, 1), m.scale[:3], stride=2),
    "attention": lambda m, a: F.scaled_dot_product_attention(a.heads, a.heads, a.values),
    "attention with a mask": lambda m, a: F.scaled_dot_product_attention(a.heads, a.heads, a.values, a.seen),
    "embedding": lambda m, a: F.embedding(a.rows, m.table),
    "index": lambda m, a: m.table[a.rows],
    "index twice": lambda m, a: m.table[a.columns, a.columns],
    "index_select": lambda m, a: a.x.index_select(0, a.rows),
    "gather": lambda m, a: a.x.gather(1, a.cells),
    "take": lambda m, a: torch.take(a.x, a.cells),
    "index_put": lambda m, a: a.x.index_put((a.rows,), a.y[:5]),
    "index_put of a row": lambda m, a: a.x.index_put((a.rows,), m.scale),
    "index_put of a number": lambda m, a: a.x.index_put((a.rows,), a.number),
    "index_put of columns": lambda m, a: aten.index_put(a.x, [None, a.columns], a.number),
    "index_put that adds": lambda m, a: a.x.index_put_((a.rows,), a.y[:5], accumulate=True),
    "index_put into a buffer": lambda m, a: m.table.index_put_((a.rows,), a.y[:5]),
    "index_put into a copy of a buffer": lambda m, a: m.table.index_put((a.rows,), a.y[:5]),
    "index_copy": lambda m, a: a.x.index_copy_(0, a.rows, a.y[:5]),
    "index_fill": lambda m, a: a.x.index_fill(1, a.columns, 1.0),
    "index_add": lambda m, a: a.x.index_add_(0, a.rows, a.y[:5]),
    "index_add scaled": lambda m, a: a.x.index_add(0, a.rows, a.y[:5], alpha=2),
    "scatter": lambda m, a: a.x.scatter(1, a.cells, a.y[:, :3]),
    "scatter of more than is taken": lambda m, a: a.x.scatter(1, a.cells, a.y),
    "scatter of a number": lambda m, a: a.x.scatter_(1, a.cells, 1.0),
    "scatter that adds": lambda m, a: a.x.scatter(1, a.cells, a.y[:, :3], reduce="add"),
    "scatter_add": lambda m, a: a.x.scatter_add(1, a.cells, a.y),
    "masked_scatter": lambda m, a: a.x.masked_scatter(a.mask, a.y),
    "masked_fill": lambda m, a: a.x.masked_fill(a.mask, 0.0),
    "where": lambda m, a: torch.where(a.mask, a.x, a.y),
    "add": lambda m, a: a.x + a.y,
    "add of a tensor to itself": lambda m, a: a.x + a.x,
    "add of a broadcast": lambda m, a: a.x + m.scale.expand(6, 4),
    "add scaled": lambda m, a: torch.add(a.x, a.y, alpha=3),
    "sub in place": lambda m, a: a.x.sub_(a.y, alpha=2),
    "rsub": lambda m, a: torch.rsub(a.x, 1),
    "mul by a 0-dimensional": lambda m, a: a.x * a.number,
    "integer mul": lambda m, a: a.rows * a.rows,
    "integer shift": lambda m, a: a.rows << 2,
    "comparison": lambda m, a: a.x > a.y,
    "mean of integers": lambda m, a: a.rows.sum(),
    "pow 3": lambda m, a: a.x**3,
    "pow -0.5": lambda m, a: a.x**-0.5,
    "pow of a number": lambda m, a: 2.0**a.x,
    "gelu": lambda m, a: F.gelu(a.x),
    "gelu tanh": lambda m, a: F.gelu(a.x, approximate="tanh"),
    "silu": lambda m, a: F.silu(a.x, inplace=True),
    "clamp": lambda m, a: a.x.clamp(0, 1),
    "clamp from below": lambda m, a: a.x.clamp(min=0),
    "softmax": lambda m, a: F.softmax(a.x, -1),
    "softmax in float32": lambda m, a: F.softmax(a.x, -1, dtype=torch.float32),
    "log_softmax": lambda m, a: F.log_softmax(a.x, -1),
    "log_softmax of columns": lambda m, a: F.log_softmax(a.x, 0),
    "mean": lambda m, a: a.x.mean(-1, keepdim=True),
    "mean of everything": lambda m, a: a.x.mean(),
    "var": lambda m, a: a.x.var(-1),
    "cumsum": lambda m, a: a.x.cumsum(-1),
    "max": lambda m, a: a.x.max(-1),
    "topk": lambda m, a: a.x.topk(2),
    "vector norm": lambda m, a: torch.linalg.vector_norm(a.x, dim=-1),
    "layer_norm": lambda m, a: F.layer_norm(a.x, (4,), m.scale, m.scale),
    "layer_norm without weights": lambda m, a: F.layer_norm(a.x, (4,)),
    "rms_norm": lambda m, a: F.rms_norm(a.x, (4,), m.scale),
    "group_norm": lambda m, a: F.group_norm(a.image, 2, m.scale, m.scale),
    "weight norm": lambda m, a: torch.ops.aten._weight_norm_interface(a.x, a.x.mean(-1, keepdim=True), 0),
    "batch_norm with statistics of the input": lambda m, a: F.batch_norm(a.image, None, None, m.scale, training=True),
    "instance_norm": lambda m, a: F.instance_norm(a.image),
    "batch_norm": lambda m, a: F.batch_norm(a.image, m.scale, m.scale, m.scale, m.scale),
    "max_pool2d": lambda m, a: F.max_pool2d(a.image, 2),
    "avg_pool2d": lambda m, a: F.avg_pool2d(a.image, (2, 4)),
    "avg_pool2d of one image": lambda m, a: F.avg_pool2d(a.image[0], 2),
    "adaptive_avg_pool2d": lambda m, a: F.adaptive_avg_pool2d(a.image, 2),
    "upsample": lambda m, a: F.interpolate(a.image, scale_factor=2),
    "upsample bilinear": lambda m, a: F.interpolate(a.image, scale_factor=2, mode="bilinear"),
    "upsample bicubic": lambda m, a: F.interpolate(a.image, scale_factor=2, mode="bicubic"),
    "upsample anti-aliased": lambda m, a: F.interpolate(a.image.float(), (3, 16), mode="bilinear", antialias=True),
    "upsample bicubic, smaller": lambda m, a: F.interpolate(a.image.float(), (5, 5), mode="bicubic", antialias=True),
    "samples of a grid": lambda m, a: F.grid_sample(a.image, a.grid, align_corners=False),
    "nearest samples of a grid": lambda m, a: F.grid_sample(a.image, a.grid, mode="nearest", align_corners=False),
    "bicubic samples of a grid": lambda m, a: F.grid_sample(a.image, a.grid, mode="bicubic", align_corners=False),
    "mean squared error": lambda m, a: F.mse_loss(a.x, a.y),
    "squared errors": lambda m, a: F.mse_loss(a.x, a.y, reduction="none"),
    "distances": lambda m, a: aten._euclidean_dist(a.x, a.three[0]),
    "im2col": lambda m, a: F.unfold(a.image, 3),
    "col2im": lambda m, a: F.fold(F.unfold(a.image, 3), (8, 8), 3),
    "bucketize": lambda m, a: torch.bucketize(a.x, a.edges),
    "view in place": lambda m, a: (a.x.unsqueeze_(0), a.x.squeeze_(0)),
    "a tensor that was transposed in place": lambda m, a: turned(a.y),
    "bilinear": lambda m, a: F.bilinear(a.x, a.y, a.three),
    "clone of an expanded tensor": lambda m, a: m.scale.expand(6, 4).contiguous(),
    "cat": lambda m, a: torch.cat([a.x, a.x, a.y]),
    "copy_": lambda m, a: a.x.copy_(m.scale),
    "fill_": lambda m, a: a.x.fill_(a.number),
    "zero_": lambda m, a: a.x.zero_(),
    "zeros_like": lambda m, a: torch.zeros_like(a.x),
    "new_zeros": lambda m, a: a.x.new_zeros(3, 3),
    "full": lambda m, a: torch.full((3, 3), 1.0, device=a.x.device),
    "arange": lambda m, a: torch.arange(7, device=a.x.device),
    "upcast": lambda m, a: a.x.float() * 2,
    "tril": lambda m, a: a.x.tril(),
    "views": lambda m, a: a.x.view(24).unsqueeze(0).expand(3, 24).transpose(0, 1)[1:],
    "index_put by a mask": lambda m, a: aten.index_put(a.x, [a.mask], a.number) if a.x.is_meta else None,
    "index_put by a mask of rows": lambda m, a: aten.index_put(a.x, [a.mask[:, 0]], a.y[:2]) if a.x.is_meta else None,
    "complex product": lambda m, a: a.complex * a.complex,
    "complex and real product": lambda m, a: a.complex * 3.0,
    "complex quotient": lambda m, a: a.complex / a.complex,
    "complex copy": lambda m, a: a.complex.clone(),
    "polar": lambda m, a: torch.polar(a.x.float(), a.y.float()),
    "an operator without a rule": lambda m, a: torch.linalg.matrix_exp(a.square.float()),
}  # fmt: skip


class Arguments:
    """Small tensors of every kind, new for each execution, because some operators change them."""

    def __init__(self, device: str) -> None:
        self.x, self.y = zeros(device, 6, 4), zeros(device, 6, 4)
        self.square, self.number = zeros(device, 4, 4), zeros(device)
        self.batch, self.wide = zeros(device, 2, 5, 3), zeros(device, 2, 5, 5)
        self.image, self.kernel = zeros(device, 2, 4, 8, 8), zeros(device, 3, 4, 3, 3)
        self.grid, self.edges = zeros(device, 2, 5, 7, 2), zeros(device, 9)
        self.three = zeros(device, 7, 4, 4)
        self.heads, self.values = zeros(device, 2, 2, 5, 8), zeros(device, 2, 2, 5, 6)
        self.seen = zeros(device, 1, 1, 5, 5, dtype=torch.bool).expand(2, 1, 5, 5)
        self.mask = zeros(device, 6, 4, dtype=torch.bool)
        self.rows, self.columns = zeros(device, 5, dtype=torch.int64), zeros(device, 2, dtype=torch.int64)
        self.cells = zeros(device, 6, 3, dtype=torch.int64)
        self.complex = zeros(device, 3, 4, dtype=torch.complex64)


def case(name: str, device: str) -> Any:
    return pytest.param(name, device)


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize(("name", "device"), [case(n, d) for n in OPERATORS for d in ("cpu", "meta")])
def test_engine_and_judge_agree(name: str, device: str) -> None:
    engine, judge = both(OPERATORS[name], device, Arguments(device))
    assert engine == judge
    missing = {"an operator without a rule": ["linalg_matrix_exp"], "complex quotient": ["div"]}
    assert engine["uncounted"] == missing.get(name, [])


@pytest.mark.parametrize("rows", [3, 20])
def test_engine_and_judge_agree_on_grouped_matmuls(rows: int) -> None:
    x, ends = zeros("meta", rows, 16), zeros("meta", 8, dtype=torch.int32)
    engine, judge = both(lambda m, w: torch._grouped_mm(x, w, offs=ends), "meta", zeros("meta", 8, 16, 32))
    assert engine == judge
    assert engine["flops"] == 2 * rows * 16 * 32
