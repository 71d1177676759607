"""Names kernels, and writes the sentence that explains the source of their numbers."""

from __future__ import annotations

from typing import Any

from lmp.flops import TABLE
from lmp.formula import Expr, to_text
from lmp.trace.rules import Operator, Tensor

NAMES = {
    "mm": "matrix multiplication",
    "addmm": "matrix multiplication",
    "bmm": "batched matrix multiplication",
    "baddbmm": "batched matrix multiplication",
    "_grouped_mm": "grouped matrix multiplication over experts",
    "scaled_dot_product_attention": "scaled dot product attention",
    "convolution": "convolution",
    "mul": "element-wise product",
    "add": "element-wise sum",
    "sub": "element-wise difference",
    "rsub": "element-wise difference",
    "div": "element-wise quotient",
    "neg": "negation",
    "pow": "power",
    "rsqrt": "reciprocal square root",
    "sqrt": "square root",
    "exp": "exponential",
    "cos": "cosine",
    "sin": "sine",
    "mean": "mean",
    "sum": "sum",
    "cumsum": "cumulative sum",
    "cat": "concatenation",
    "clone": "copy to contiguous memory",
    "copy": "copy into a tensor",
    "_to_copy": "conversion",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "topk": "top-k selection",
    "sort": "sort",
    "embedding": "row lookup",
    "index": "row gather",
    "index_put": "row scatter",
    "index_select": "row gather",
    "gather": "gather",
    "scatter": "scatter",
    "index_add": "scatter with addition",
    "where": "selection by a mask",
    "masked_fill": "fill by a mask",
    "arange": "index range",
    "full": "fill",
    "zeros": "fill with zeros",
    "ones": "fill with ones",
    "zeros_like": "fill with zeros",
    "fill": "fill",
    "zero": "fill with zeros",
    "histc": "histogram",
    "bitwise_not": "boolean not",
    "bitwise_and": "boolean and",
    "bitwise_or": "boolean or",
    "le": "comparison",
    "lt": "comparison",
    "ge": "comparison",
    "gt": "comparison",
    "eq": "comparison",
    "ne": "comparison",
    "floor_divide": "integer quotient",
    "native_layer_norm": "layer normalization",
    "native_group_norm": "group normalization",
    "_weight_norm_interface": "weight normalization",
    "native_batch_norm": "batch normalization",
    "_native_batch_norm_legit_no_training": "batch normalization",
    "_fused_rms_norm": "RMS normalization",
    "silu": "SiLU",
    "gelu": "GELU",
    "relu": "ReLU",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}


def operation(operator: Operator, causal: bool) -> str:
    """A short readable name of an operator."""
    name = NAMES.get(operator.name, operator.name.strip("_").replace("_", " "))
    if operator.name == "_to_copy" and operator.arguments.get("dtype") is not None:
        name = f"conversion to {str(operator.arguments['dtype']).removeprefix('torch.')}"
    return f"{name} (causal)" if causal else name


def explanation(operator: Operator) -> str:
    """The ATen operator, the shapes it was derived from, and the definition of its scalar FLOPs."""
    inputs = ", ".join(shape_text(t) for t in operator.inputs) or "nothing"
    outputs = ", ".join(shape_text(t) for t in operator.outputs) or "nothing"
    prefix = "" if operator.name == "scaled_dot_product_attention" else "aten."
    text = f"{prefix}{operator.name}{'_' if operator.in_place else ''}: {inputs} -> {outputs}"
    table = TABLE.get(operator.name)
    if table is not None and (table.per_input or table.per_output or table.per_row):
        return f"{text}. FLOPs an element: {table.definition}"
    return text


def shape_text(tensor: Tensor) -> str:
    """A shape in readable form, without the braces of formulas."""
    return f"[{', '.join(size_text(s) for s in tensor.shape)}]"


def size_text(size: Any) -> str:
    return to_text(size).replace("{", "").replace("}", "") if isinstance(size, Expr) else str(size)
