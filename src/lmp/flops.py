"""FLOP table of all operators except matmuls: scalar operations per element, with the counted definition.

The numbers count the scalar operations of an operator's textbook definition. Each of these counts 1: ``+ - * /``, a
comparison in a max, exp, log, tanh, erf, sqrt, rsqrt, sin and cos. Engine and judge both read this table. Where FLOPs
depend on an argument alone, each has its own rule. Integer, boolean and indexing work is 0 FLOPs for every operator.

    flops = per_input * elements of the first floating input
            + per_output * elements of the first output
            + per_row * rows

``rows`` is the number of groups that a normalisation or a log softmax is computed over. It is 0 for other operators.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScalarOps:
    """Scalar operations of one operator, with the definition that they are counted from."""

    per_input: int = 0
    per_output: int = 0
    per_row: int = 0
    definition: str = ""


def _out(count: int, definition: str) -> ScalarOps:
    return ScalarOps(per_output=count, definition=definition)


def _each(count: int, definition: str, *, per_output: int = 0) -> ScalarOps:
    return ScalarOps(per_input=count, per_output=per_output, definition=definition)


FREE = ScalarOps(definition="moves, compares or selects values: no arithmetic")

TABLE: dict[str, ScalarOps] = {
    # one operation per element
    "add": _out(1, "a + b (one more with alpha != 1)"),
    "sub": _out(1, "a - b (one more with alpha != 1)"),
    "rsub": _out(1, "b - a (one more with alpha != 1)"),
    "mul": _out(1, "a * b"),
    "div": _out(1, "a / b"),
    "neg": _out(1, "0 - x"),
    "abs": _out(1, "max(x, -x), the comparison"),
    "reciprocal": _out(1, "1 / x"),
    "sqrt": _out(1, "sqrt(x)"),
    "rsqrt": _out(1, "rsqrt(x)"),
    "exp": _out(1, "exp(x)"),
    "exp2": _out(1, "exp2(x)"),
    "expm1": _out(2, "exp(x) - 1"),
    "log": _out(1, "log(x)"),
    "log2": _out(1, "log2(x)"),
    "log1p": _out(2, "log(1 + x)"),
    "sin": _out(1, "sin(x)"),
    "cos": _out(1, "cos(x)"),
    "tanh": _out(1, "tanh(x)"),
    "asinh": _out(5, "log(x + sqrt(x * x + 1))"),
    "erf": _out(1, "erf(x)"),
    "maximum": _out(1, "max(a, b)"),
    "minimum": _out(1, "min(a, b)"),
    "clamp": _out(1, "one comparison a bound"),
    "clamp_min": _out(1, "max(x, low)"),
    "clamp_max": _out(1, "min(x, high)"),
    "fmod": _out(1, "remainder of a / b"),
    "remainder": _out(1, "remainder of a / b"),
    "addcmul": _out(3, "a + value * b * c"),
    "addcdiv": _out(3, "a + value * b / c"),
    "lerp": _out(3, "a + w * (b - a)"),
    "polar": _out(4, "(r * cos(t), r * sin(t)): cos, sin, two products"),
    # products of vectors: torch's flop counter has no rule for them, so they are no matmuls here
    "mv": _each(2, "a product and an addition an element of the matrix"),
    "dot": _each(2, "a product and an addition an element of one vector"),
    "pow": _out(1, "x * x; e - 1 products for a whole e from 2 to 4, else exp(e * log(x)), 3"),
    "square": _out(1, "x * x"),
    # activations
    "relu": _out(1, "max(x, 0)"),
    "relu6": _out(2, "min(max(x, 0), 6)"),
    "threshold": _out(1, "x if x > t, one comparison"),
    "hardtanh": _out(2, "min(max(x, low), high)"),
    "leaky_relu": _out(2, "max(x, 0) or slope * x"),
    "sigmoid": _out(4, "1 / (1 + exp(-x)): negate, exp, add, divide"),
    "silu": _out(4, "x / (1 + exp(-x)): negate, exp, add, divide"),
    "gelu": _out(5, "erf form: 0.5 * x * (1 + erf(x / sqrt(2))): divide, erf, add, two products; tanh form 9"),
    "elu": _out(4, "max(x, 0) or a * (exp(x) - 1): compare, exp, subtract, product"),
    "softplus": _out(3, "log(1 + exp(x)): exp, add, log"),
    "log_sigmoid_forward": _out(4, "-log(1 + exp(-x)): negate, exp, add, log"),
    "mish": _out(5, "x * tanh(log(1 + exp(x))): exp, add, log, tanh, product"),
    "hardswish": _out(5, "x * min(max(x + 3, 0), 6) / 6"),
    "hardsigmoid": _out(4, "min(max(x + 3, 0), 6) / 6"),
    "glu": _out(5, "a * sigmoid(b)"),
    "_prelu_kernel": _out(2, "max(x, 0) or slope * x"),
    # softmax and reductions: counted per input element
    "_softmax": _each(5, "max, subtract, exp, sum, divide"),
    "_safe_softmax": _each(5, "max, subtract, exp, sum, divide"),
    "_log_softmax": ScalarOps(5, 0, 1, "max, subtract, exp, sum, subtract the log of the sum; the log once a row"),
    "logsumexp": _each(4, "max, subtract, exp, sum; a log and an addition of the max a result", per_output=2),
    "sum": _each(1, "one addition an element"),
    "mean": _each(1, "one addition an element, one division a result", per_output=1),
    "prod": _each(1, "one product an element"),
    "cumsum": _each(1, "one addition an element"),
    "cumprod": _each(1, "one product an element"),
    "amax": _each(1, "one comparison an element"),
    "amin": _each(1, "one comparison an element"),
    "max": _each(1, "one comparison an element"),
    "min": _each(1, "one comparison an element"),
    "argmax": _each(1, "one comparison an element"),
    "argmin": _each(1, "one comparison an element"),
    "var": _each(4, "add, subtract the mean, square, add; two divisions a result", per_output=2),
    "var_mean": _each(4, "add, subtract the mean, square, add; two divisions a result", per_output=2),
    "std": _each(4, "as var, and a square root a result", per_output=3),
    "linalg_vector_norm": _each(2, "square, add; a square root a result", per_output=1),
    # normalisations: add, subtract, square, add, scale per element; divide, divide, add eps, rsqrt per group
    "native_layer_norm": ScalarOps(5, 0, 4, "add, subtract, square, add, scale; a weight 1 more, a bias 1 more"),
    "native_group_norm": ScalarOps(5, 0, 4, "add, subtract, square, add, scale; a weight 1 more, a bias 1 more"),
    "_fused_rms_norm": ScalarOps(3, 0, 3, "square, add, scale; divide, add eps, rsqrt a row; a weight 1 more"),
    "native_batch_norm": ScalarOps(
        2, 0, 2, "subtract, scale; add eps, rsqrt a channel; weight and bias 1 more each; with statistics of the input "
        "(InstanceNorm) as native_group_norm: add, square, add more, two divisions a channel more"
    ),
    "_weight_norm_interface": ScalarOps(3, 0, 2, "v * g / |v|: square, add, scale; a square root and a division a row"),
    # pooling and resampling
    "max_pool": ScalarOps(definition="one comparison an element of each window"),
    "avg_pool": ScalarOps(definition="one addition an element of each window, one division a result"),
    "_adaptive_avg_pool2d": _each(1, "one addition an element, one division a result", per_output=1),
    "upsample_nearest": FREE,
    "upsample_linear1d": _out(3, "a weighted sum of 2 neighbours: 2 products, 1 addition, without weights"),
    "upsample_bilinear2d": _out(7, "a weighted sum of 4 neighbours: 4 products, 3 additions, without weights"),
    "upsample_bicubic2d": _out(31, "a weighted sum of 16 neighbours: 16 products, 15 additions, without weights"),
    "col2im": _each(1, "one addition an added value"),
    # scatters that add
    "index_add": ScalarOps(definition="one addition an added value"),
    "scatter_add": ScalarOps(definition="one addition an added value"),
    # moves, comparisons and selections
    **dict.fromkeys(
        (
            "_to_copy", "clone", "copy", "cat", "stack", "contiguous", "where", "masked_fill", "fill", "zero", "tril",
            "triu", "gather", "embedding", "index", "index_select", "take", "index_put", "index_fill", "masked_scatter",
            "scatter", "index_copy", "topk",
            "sort", "argsort", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
            "bitwise_and", "bitwise_or", "bitwise_not", "isnan", "isinf", "any", "all", "histc", "bincount", "arange",
            "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
            "scalar_tensor", "constant_pad_nd", "roll", "flip", "repeat", "floor", "ceil", "round", "trunc", "sign",
            "floor_divide", "one_hot", "masked_select", "nonzero", "unique_consecutive", "repeat_interleave",
            "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "linspace", "eye", "lift_fresh_copy",
            "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
            "replication_pad3d", "im2col", "pixel_shuffle", "pixel_unshuffle", "bucketize", "searchsorted",
        ),
        FREE,
    ),
}  # fmt: skip


COMPLEX = frozenset({"add", "sub", "neg", "mul"})
"""Arithmetic of complex numbers with a rule. Any other ends an analysis."""


def complex_operations(name: str, complex_factors: int) -> int:
    """Operations per element. ``(a + bi)(c + di)`` has four products and two additions.

    Any other operation has one for each part.
    """
    return 6 if name == "mul" and complex_factors == 2 else 2


def pow_operations(exponent: object) -> int:
    """Operations of ``x ** exponent`` per element.

    The exponents 0 and 1 need none, and 0.5, -0.5 and -1 one. Integer exponents from 2 to 4 are products. Any other is
    ``exp(e * log(x))``, which is three.
    """
    if exponent in (0, 1):
        return 0
    if exponent in (2, 3, 4):
        return int(exponent) - 1
    if exponent in (0.5, -0.5, -1):
        return 1
    return 3


INPUT_STATISTICS = ScalarOps(3, 0, 2, "add, square, add; two divisions a channel: the input's own mean and variance")
"""What a batch norm computes besides if its statistics are those of the input, as in InstanceNorm."""

NEIGHBOURS = {"_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 4}
"""Neighbours a side in an anti-aliased resampling that does not shrink."""

SAMPLED = ("upsample_bilinear2d", "upsample_nearest", "upsample_bicubic2d")
"""Interpolation of a grid sample, by the number of its mode."""

GELU_TANH = 9
"""FLOPs per element of ``0.5 * x * (1 + tanh(c * (x + d * x**3)))``.

Inside of tanh: two products for the cube, a product with d, an addition, a product with c. Then tanh, an addition, and
two products outside: 2 + 1 + 1 + 1 + 1 + 1 + 2 = 9.
"""
