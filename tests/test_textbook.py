"""Every entry of the FLOP table against its textbook definition, written here with numbers that count their operations.

A `Number` adds 1 to the count for each ``+ - * /`` and each comparison, and so do the functions below. A maximum or a
sum over n numbers is n operations. The definition runs on one small call; the judge's counter counts PyTorch's operator
in the same call. A bias is one addition, and a shape or an index is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lmp.flops import FREE
from lmp.trace.rules import definitions
from lmp.verify.counter import Counter

aten = torch.ops.aten


class Number:
    """A scalar of a definition: its value does not matter, its operations are counted."""

    count = 0

    def _operation(self, other: Any = None) -> Number:
        Number.count += 1
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _operation


def operation(*numbers: Any) -> Number:
    """One scalar operation: exp, log, tanh, erf, sqrt, rsqrt, sin, cos, or a comparison of two numbers."""
    Number.count += 1
    return X


X = Number()
exp = log = tanh = erf = sqrt = rsqrt = sin = cos = maximum = minimum = compare = operation


def total(numbers: Iterable[Number]) -> Number:
    return [X + number for number in numbers][-1]


def largest(numbers: Iterable[Number]) -> Number:
    return [maximum(X, number) for number in numbers][-1]


def xs(n: int) -> list[Number]:
    return [X] * n


# -- definitions of one element ----------------------------------------------------------------------------------------


def sigmoid(x: Number) -> Number:
    return 1 / (1 + exp(-x))


def piecewise(x: Number, below: Callable[[], Any]) -> None:
    """``x if x > t else below()``: one comparison, and the dearer branch."""
    compare(x)
    below()


def gelu_tanh(x: Number) -> Number:
    return 0.5 * x * (1 + tanh(0.797 * (x + 0.045 * (x * x * x))))


def weighted(neighbours: int) -> Number:
    """A weighted sum of neighbours, without its own zero: n products and n - 1 additions. The weights are given."""
    found = X * X
    for _ in range(neighbours - 1):
        found = found + X * X
    return found


ELEMENT: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], Any], Callable[[], Any]]] = {
    # operator: (its call on a and b of 3 x 4 elements, its definition for one element)
    "add": (lambda a, b: a + b, lambda: X + X),
    "sub": (lambda a, b: a - b, lambda: X - X),
    "rsub": (lambda a, b: torch.rsub(a, b), lambda: X - X),
    "mul": (lambda a, b: a * b, lambda: X * X),
    "div": (lambda a, b: a / b, lambda: X / X),
    "neg": (lambda a, b: -a, lambda: -X),
    "abs": (lambda a, b: a.abs(), lambda: maximum(X)),  # max(x, -x): the sign costs nothing, the comparison 1
    "reciprocal": (lambda a, b: a.reciprocal(), lambda: 1 / X),
    "sqrt": (lambda a, b: a.sqrt(), lambda: sqrt(X)),
    "rsqrt": (lambda a, b: a.rsqrt(), lambda: rsqrt(X)),
    "exp": (lambda a, b: a.exp(), lambda: exp(X)),
    "exp2": (lambda a, b: a.exp2(), lambda: exp(X)),
    "expm1": (lambda a, b: a.expm1(), lambda: exp(X) - 1),
    "log": (lambda a, b: a.log(), lambda: log(X)),
    "log2": (lambda a, b: a.log2(), lambda: log(X)),
    "log1p": (lambda a, b: a.log1p(), lambda: log(1 + X)),
    "sin": (lambda a, b: a.sin(), lambda: sin(X)),
    "cos": (lambda a, b: a.cos(), lambda: cos(X)),
    "tanh": (lambda a, b: a.tanh(), lambda: tanh(X)),
    "asinh": (lambda a, b: a.asinh(), lambda: log(X + sqrt(X * X + 1))),
    "erf": (lambda a, b: a.erf(), lambda: erf(X)),
    "maximum": (lambda a, b: torch.maximum(a, b), lambda: maximum(X, X)),
    "minimum": (lambda a, b: torch.minimum(a, b), lambda: minimum(X, X)),
    "clamp": (lambda a, b: a.clamp(0.0, 1.0), lambda: minimum(maximum(X, X), X)),
    "clamp_min": (lambda a, b: a.clamp_min(0.0), lambda: maximum(X, X)),
    "clamp_max": (lambda a, b: a.clamp_max(0.0), lambda: minimum(X, X)),
    "fmod": (lambda a, b: torch.fmod(a, b), lambda: X / X),
    "remainder": (lambda a, b: torch.remainder(a, b), lambda: X / X),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=2), lambda: X + 2 * X * X),
    "addcdiv": (lambda a, b: torch.addcdiv(a, a, b, value=2), lambda: X + 2 * X / X),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.5), lambda: X + 0.5 * (X - X)),
    "polar": (lambda a, b: torch.polar(a.float(), b.float()), lambda: (X * cos(X), X * sin(X))),
    "pow": (lambda a, b: a**3, lambda: X * X * X),
    "square": (lambda a, b: aten.square(a), lambda: X * X),
    "relu": (lambda a, b: F.relu(a), lambda: maximum(X, X)),
    "relu6": (lambda a, b: F.relu6(a), lambda: minimum(maximum(X, X), X)),
    "threshold": (lambda a, b: F.threshold(a, 0.1, 0.0), lambda: compare(X)),
    "hardtanh": (lambda a, b: F.hardtanh(a), lambda: minimum(maximum(X, X), X)),
    "leaky_relu": (lambda a, b: F.leaky_relu(a), lambda: piecewise(X, lambda: 0.1 * X)),
    "_prelu_kernel": (lambda a, b: F.prelu(a, b[0, :1]), lambda: piecewise(X, lambda: X * X)),
    "sigmoid": (lambda a, b: a.sigmoid(), lambda: sigmoid(X)),
    "silu": (lambda a, b: F.silu(a), lambda: X / (1 + exp(-X))),
    "gelu": (lambda a, b: F.gelu(a), lambda: 0.5 * X * (1 + erf(X / 1.41))),
    "gelu in its tanh form": (lambda a, b: F.gelu(a, approximate="tanh"), lambda: gelu_tanh(X)),
    "elu": (lambda a, b: F.elu(a), lambda: piecewise(X, lambda: 1.0 * (exp(X) - 1))),
    "softplus": (lambda a, b: F.softplus(a), lambda: log(1 + exp(X))),
    "log_sigmoid_forward": (lambda a, b: F.logsigmoid(a), lambda: -log(1 + exp(X))),  # log(1 / (1 + exp(-x)))
    "mish": (lambda a, b: F.mish(a), lambda: X * tanh(log(1 + exp(X)))),
    "hardswish": (lambda a, b: F.hardswish(a), lambda: X * minimum(maximum(X + 3, X), X) / 6),
    "hardsigmoid": (lambda a, b: F.hardsigmoid(a), lambda: minimum(maximum(X + 3, X), X) / 6),
}


# -- definitions of a whole call ---------------------------------------------------------------------------------------


def softmax(row: Sequence[Number]) -> None:
    top = largest(row)
    powers = [exp(x - top) for x in row]
    whole = total(powers)
    for power in powers:
        power / whole


def log_softmax(row: Sequence[Number]) -> None:
    top = largest(row)
    moved = [x - top for x in row]
    of_all = log(total(exp(x) for x in moved))
    for x in moved:
        x - of_all


def logsumexp(row: Sequence[Number]) -> Number:
    top = largest(row)
    return top + log(total(exp(x - top) for x in row))


def mean(row: Sequence[Number]) -> Number:
    return total(row) / len(row)


def variance(row: Sequence[Number]) -> tuple[list[Number], Number]:
    """The row less its mean, and its variance."""
    middle = mean(row)
    moved = [x - middle for x in row]
    return moved, mean([x * x for x in moved])


def normalised(row: Sequence[Number], affine: int = 0) -> None:
    moved, spread = variance(row)
    scale = rsqrt(spread + 1e-5)
    for x in moved:
        x = x * scale
        for _ in range(affine):  # a weight and a bias
            x = x * X


def rms_normalised(row: Sequence[Number]) -> None:
    scale = rsqrt(mean([x * x for x in row]) + 1e-5)
    for x in row:
        x * scale * X


def batch_normalised(row: Sequence[Number]) -> None:
    """A channel with the mean and the variance of the training, then weight and bias."""
    scale = rsqrt(X + 1e-5)
    for x in row:
        (x - X) * scale * X + X


def weight_normalised(row: Sequence[Number]) -> None:
    factor = X / sqrt(total(x * x for x in row))
    for x in row:
        x * factor


def solved(rows: int, divides: bool) -> None:
    """One column by forward substitution. The sum of row i has i terms."""
    for i in range(rows):
        x = X
        for _ in range(i):
            x = x - X * X
        if divides:
            x / X


def squared_error(n: int, reduced: bool) -> None:
    squares = [(X - X) * X for _ in range(n)]
    if reduced:
        mean(squares)


def distance(n: int) -> None:
    """Of two rows: the root of the sum of the squared differences."""
    moved = [X - X for _ in range(n)]
    sqrt(total(x * x for x in moved))


def times(n: int, definition: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(n):
            definition()

    return run


def neighbours(before: int, after: int, least: int) -> int:
    """Neighbours a side of an anti-aliased resampling."""
    return max(least, ceil(least * before / after))


A, B = (3, 4), (5,)
IMAGE = (2, 6, 7, 9)
"""Two images of 6 channels, 7 x 9 pixels."""
PIXELS = 7 * 9

WHOLE: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any], Callable[[], Any]]] = {
    # operator: (shapes of its inputs, its call, its definition for the whole call)
    "mv": ((A, (4,)), lambda a, b: aten.mv(a, b), times(3, lambda: total(X * X for _ in range(4)))),
    "dot": ((B, B), lambda a, b: aten.dot(a, b), lambda: total(X * X for _ in range(5))),
    "glu": (((3, 8),), lambda a: F.glu(a), times(12, lambda: X * sigmoid(X))),
    "_softmax": ((A,), lambda a: a.softmax(-1), times(3, lambda: softmax(xs(4)))),
    "_safe_softmax": ((A,), lambda a: aten._safe_softmax(a, -1), times(3, lambda: softmax(xs(4)))),
    "_log_softmax": ((A,), lambda a: a.log_softmax(-1), times(3, lambda: log_softmax(xs(4)))),
    "_log_softmax of columns": ((A,), lambda a: a.log_softmax(0), times(4, lambda: log_softmax(xs(3)))),
    "logsumexp": ((A,), lambda a: a.logsumexp(-1), times(3, lambda: logsumexp(xs(4)))),
    "sum": ((A,), lambda a: a.sum(-1), times(3, lambda: total(xs(4)))),
    "mean": ((A,), lambda a: a.mean(-1), times(3, lambda: mean(xs(4)))),
    "prod": ((A,), lambda a: a.prod(-1), times(3, lambda: [X * x for x in xs(4)])),
    "cumsum": ((A,), lambda a: a.cumsum(-1), times(3, lambda: [X + x for x in xs(4)])),
    "cumprod": ((A,), lambda a: a.cumprod(-1), times(3, lambda: [X * x for x in xs(4)])),
    "amax": ((A,), lambda a: a.amax(-1), times(3, lambda: largest(xs(4)))),
    "amin": ((A,), lambda a: a.amin(-1), times(3, lambda: largest(xs(4)))),
    "max": ((A,), lambda a: a.max(-1), times(3, lambda: largest(xs(4)))),
    "min": ((A,), lambda a: a.min(-1), times(3, lambda: largest(xs(4)))),
    "argmax": ((A,), lambda a: a.argmax(-1), times(3, lambda: largest(xs(4)))),
    "argmin": ((A,), lambda a: a.argmin(-1), times(3, lambda: largest(xs(4)))),
    "var": ((A,), lambda a: a.var(-1), times(3, lambda: variance(xs(4)))),
    "var_mean": ((A,), lambda a: torch.var_mean(a, -1), times(3, lambda: variance(xs(4)))),
    "std": ((A,), lambda a: a.std(-1), times(3, lambda: sqrt(variance(xs(4))))),
    "linalg_vector_norm": (
        (A,), lambda a: torch.linalg.vector_norm(a, dim=-1), times(3, lambda: sqrt(total(x * x for x in xs(4)))),
    ),
    "native_layer_norm": (
        (A, (4,), (4,)), lambda a, w, b: F.layer_norm(a, (4,), w, b), times(3, lambda: normalised(xs(4), affine=2)),
    ),
    "native_group_norm": (
        (IMAGE, (6,), (6,)),
        lambda a, w, b: F.group_norm(a, 2, w, b),
        times(2 * 2, lambda: normalised(xs(3 * PIXELS), affine=2)),  # 2 images, 2 groups of 3 channels each
    ),
    "_fused_rms_norm": ((A, (4,)), lambda a, w: F.rms_norm(a, (4,), w), times(3, lambda: rms_normalised(xs(4)))),
    "native_batch_norm": (
        (IMAGE, *[(6,)] * 4),
        lambda a, m, v, w, b: F.batch_norm(a, m, v, w, b),
        times(6, lambda: batch_normalised(xs(2 * PIXELS))),
    ),
    "native_batch_norm with statistics of the input": (
        (IMAGE, (6,), (6,)),
        lambda a, w, b: F.batch_norm(a, None, None, w, b, training=True),
        times(6, lambda: normalised(xs(2 * PIXELS), affine=2)),
    ),
    "native_batch_norm as an instance norm": (
        (IMAGE,), lambda a: F.instance_norm(a), times(2 * 6, lambda: normalised(xs(PIXELS))),
    ),
    "_weight_norm_interface": (
        (A, (3, 1)), lambda v, g: aten._weight_norm_interface(v, g, 0), times(3, lambda: weight_normalised(xs(4))),
    ),
    # a window of 2 x 2 in steps of 2: 3 x 4 results of each of 12 channels
    "max_pool": ((IMAGE,), lambda a: F.max_pool2d(a, 2), times(12 * 12, lambda: largest(xs(4)))),
    "avg_pool": ((IMAGE,), lambda a: F.avg_pool2d(a, 2), times(12 * 12, lambda: mean(xs(4)))),
    # 7 x 9 pixels to 7 x 3: windows of 1 x 3
    "_adaptive_avg_pool2d": (
        (IMAGE,), lambda a: aten._adaptive_avg_pool2d(a, (7, 3)), times(12 * 21, lambda: mean(xs(3))),
    ),
    "upsample_linear1d": (
        ((2, 3, 5),), lambda a: F.interpolate(a, 8, mode="linear"), times(2 * 3 * 8, lambda: weighted(2)),
    ),
    "upsample_bilinear2d": (
        (IMAGE,), lambda a: F.interpolate(a, (8, 10), mode="bilinear"), times(12 * 80, lambda: weighted(4)),
    ),
    "upsample_bicubic2d": (
        (IMAGE,), lambda a: F.interpolate(a, (8, 10), mode="bicubic"), times(12 * 80, lambda: weighted(16)),
    ),
    "_upsample_bilinear2d_aa": (
        (IMAGE,),
        lambda a: F.interpolate(a, (5, 4), mode="bilinear", antialias=True),
        times(12 * 20, lambda: weighted(neighbours(7, 5, 2) * neighbours(9, 4, 2))),
    ),
    "_upsample_bicubic2d_aa": (
        (IMAGE,),
        lambda a: F.interpolate(a, (5, 4), mode="bicubic", antialias=True),
        times(12 * 20, lambda: weighted(neighbours(7, 5, 4) * neighbours(9, 4, 4))),
    ),
    "grid_sampler_2d": (
        (IMAGE, (2, 3, 5, 2)), lambda a, grid: F.grid_sample(a, grid, align_corners=False),
        times(2 * 6 * 3 * 5, lambda: weighted(4)),
    ),
    # 2 x 2 values at each of 5 x 8 places of a window in steps of 1, each added to its pixel
    "col2im": (
        ((1, 4, 5 * 8),), lambda a: F.fold(a, (6, 9), (2, 2)), times(4 * 40, lambda: X + X),
    ),
    "index_add": ((A, A), lambda a, b: a.index_add(0, torch.zeros(3, dtype=torch.long), b), times(12, lambda: X + X)),
    "scatter_add": (
        (A, A), lambda a, b: a.scatter_add(0, torch.zeros(3, 4, dtype=torch.long), b), times(12, lambda: X + X),
    ),
    # x_i * W_ij * y_j, summed over i and j, for 3 rows and 6 results
    "_trilinear": (
        ((3, 4), (3, 5), (6, 4, 5)),
        lambda x, y, w: F.bilinear(x, y, w),
        times(3 * 6, lambda: total(X * X * X for _ in range(4 * 5))),
    ),
    "linalg_solve_triangular": (
        ((4, 4), (4, 3)),
        lambda a, b: torch.linalg.solve_triangular(a.float(), b.float(), upper=False),
        times(3, lambda: solved(4, divides=True)),
    ),
    "linalg_solve_triangular with a diagonal of 1": (
        ((4, 4), (4, 3)),
        lambda a, b: torch.linalg.solve_triangular(a.float(), b.float(), upper=False, unitriangular=True),
        times(3, lambda: solved(4, divides=False)),
    ),
    "mse_loss": ((A, A), lambda a, b: F.mse_loss(a, b), lambda: squared_error(12, reduced=True)),
    "mse_loss unreduced": (
        (A, A), lambda a, b: F.mse_loss(a, b, reduction="none"), lambda: squared_error(12, reduced=False),
    ),
    "_euclidean_dist": (
        (A, (6, 4)), lambda a, b: aten._euclidean_dist(a, b), times(3 * 6, lambda: distance(4)),
    ),
}  # fmt: skip


def counted(definition: Callable[[], Any]) -> int:
    Number.count = 0
    definition()
    return Number.count


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def executed(function: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """FLOPs of a call on the meta device by the judge's counter."""
    with torch.device("meta"):
        module = Call(function)
        counter = Counter(module, torch.bfloat16)
        with torch.no_grad(), counter:
            module(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))
    assert not counter.uncounted
    return counter.flops


@pytest.mark.parametrize("name", ELEMENT)
def test_an_operator_of_elements(name: str) -> None:
    function, definition = ELEMENT[name]
    assert executed(function, A, A) == 3 * 4 * counted(definition) > 0


@pytest.mark.parametrize("name", WHOLE)
def test_an_operator_of_groups_of_elements(name: str) -> None:
    shapes, function, definition = WHOLE[name]
    assert executed(function, *shapes) == counted(definition) > 0


def test_every_entry_of_the_table_has_a_definition_here() -> None:
    named = {name for name, entry in definitions().items() if entry != FREE}
    assert named == {name.split(" ")[0] for name in (*ELEMENT, *WHOLE)}


def test_an_instance_norm_is_a_group_norm_of_each_channel() -> None:
    # 3 recordings of 7 channels with 13 samples: 21 rows. A row is 5 * 13 + 4 operations: 21 * 69 = 1,449.
    both = (lambda a: F.instance_norm(a), lambda a: F.group_norm(a, 7))
    assert [executed(norm, (3, 7, 13)) for norm in both] == [1449, 1449]


def test_a_number_counts_its_operations() -> None:
    assert counted(lambda: X + X * 2 - 1 / X) == 4
    assert counted(lambda: total(xs(7))) == 7
    assert counted(lambda: exp(-X)) == 2
