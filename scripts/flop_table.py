"""Writes docs/flops.md, the page with the definition of FLOPs, from the table in lmp.flops.

python scripts/flop_table.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "flops.md"

sys.path.insert(0, str(ROOT / "src"))

from lmp.flops import FREE, GELU_TANH, TABLE, ScalarOps, pow_operations  # noqa: E402
from lmp.trace.rules import definitions  # noqa: E402

HEAD = """\
# FLOPs

<!-- Made by scripts/flop_table.py from src/lmp/flops.py and src/lmp/trace/rules.py: change it there. -->

lmp states two figures. `matmul_flops` is what `torch.utils.flop_counter` counts. `flops` adds all other floating-point
work, by the one table below. Nothing is estimated: both are exact for the operators that ran.

## Matmuls

| operator | FLOPs |
| --- | --- |
| `mm` `addmm` `bmm` `baddbmm` | `2 * batch * M * K * N` |
| `convolution` | `2 * N * positions * elements of the weight`; the output's positions, the input's if transposed |
| `scaled_dot_product_attention` | `2 * B * heads * Sq * Sk * (D_qk + D_v)`, causal or not |
| `_grouped_mm` `grouped_mm_fallback` | `2 * rows * K * N` over all rows, whatever the routing |

A multiply-add is 2. A bias is not in these figures: it is one addition per output element, in `flops`. So is a scale of
`addmm` and `baddbmm` (`alpha`, `beta`) other than 1: one product per output element each. The rule for grouped matmuls
is lmp's, because torch 2.13's counter has none. Everything else equals that counter exactly.

## Everything else

The principle: count the scalar operations of the operator's textbook definition. Each of `+ - * /`, comparison in a
max, exp, log, tanh, erf, sqrt, rsqrt, sin and cos is 1. Integer, boolean and indexing work is 0 in every operator. An
operator that is not listed is not counted as 0: it is named under `uncounted`.

| operator | FLOPs | what is counted |
| --- | --- | --- |
"""

TAIL = """\

*input*, *output*: an element of the first floating input, of the first output. *row*: a group that is normalised
together (a token of a layer norm, a channel of a batch norm). *arguments*: the number depends on them, as the last
column says.

| no FLOPs, only bytes |
| --- |
| {free} |

| `x ** e` | FLOPs |
| --- | --- |
| `e` = 0, 1 | 0 |
| `e` = 2, 3, 4 | {square}, {cube}, {fourth} |
| `e` = 0.5, -0.5, -1 | 1 |
| any other | {other} |

GELU in its tanh form is {gelu_tanh}: six products, two additions, a tanh in `0.5 * x * (1 + tanh(c * (x + d * x**3)))`.

## Why, and how others count

The principle is applied literally, so that every number can be computed from the definition beside it. Tools share no
convention. To compare figures, you must know the tool that made them.

| | multiply-add | bias of a linear layer | softmax | layer norm | GELU | SiLU |
| --- | --- | --- | --- | --- | --- | --- |
| here | 2 | 1 | 5 | 5, weight and bias 1 each; 4 per row | 5, tanh form 9 | 4 |
| `torch.utils.flop_counter` | 2 | 0 | 0 | 0 | 0 | 0 |
| [ELECTRA's FLOP script][electra] | 2 | 1 | 5 | 5 | 8 | |
| [TensorFlow's profiler][tensorflow] | 2 | | 5 | | | |
| [LLM-Viewer][llm-viewer] | 2 | 0 | 5 | 7 | 2 | 2 |
| [DeepSpeed][deepspeed], [calflops][calflops] | 2 | 0 | 1 | 5, without weight 4 | 1 | 1 |
| [ptflops][ptflops] | 1 | 1, once per layer | 1 | 1 | 1 | 1 |
| [thop][thop] | 1 | 0 | 3 | 2 | | |
| [fvcore][fvcore] | 1 | 0 | no rule | 5, without weight 4 | no rule | no rule |

An empty cell: the source does not state it. All figures are for one element. LLM-Viewer's 2 is for any activation of an
MLP. Where they come from:

- **Softmax** is 5 (max, subtract, exp, sum, divide) for ELECTRA, TensorFlow and LLM-Viewer, as here. It is 3 for thop:
  exp, sum and divide, without the shift by the maximum, which every implementation makes. It is 1 for DeepSpeed,
  calflops and ptflops, as any activation.
- **Layer norm** is 5 for ELECTRA: sum; square and sum; a bias, a scale. It is 4 or 5 for fvcore, which calls that a
  rough estimate. DeepSpeed and calflops have the same numbers. LLM-Viewer counts 7: sum, subtract, pow, sum, divide,
  multiply, add. Here a layer norm with weight and bias has 7 too: add, subtract, square, add, scale, weight, bias. Work
  per row (two divisions, eps, rsqrt) is counted once per row.
- **GELU** is 8 for ELECTRA, in its tanh form. It is 1 for tools that count an activation as one operation. Here the
  tanh form is 9; PyTorch's default, with erf, is 5.
- **rsqrt** is 2 for TensorFlow (a root and a reciprocal). Here it is 1, because it is one scalar function. TensorFlow
  also counts comparisons (`Less`, `Equal`). Here they are no arithmetic, except in a maximum.
- **Whole models.** Training reports count matmuls only. PaLM's utilisation takes `6 N + 12 L H Q T` per token (as
  [nanoGPT][nanogpt] quotes its Appendix B): parameters and attention, forward and backward. [Megatron-LM][megatron]
  adds up the matmuls of a layer, with half of the attention matrix because of the causal mask. Here causal attention is
  counted in full, as in torch's counter, and the kernel says `causal`.
- **torchinfo** counts multiply-adds by layer. Functions that are not modules (`torch.matmul`, `torch.mul`) are [not in
  it][torchinfo-126], nor was a [bias][torchinfo-14].

Multiply by 2 to compare a figure of ptflops, thop or fvcore with one that counts a multiply-add as two.

[electra]: https://github.com/google-research/electra/blob/62e478a/flops_computation.py
[tensorflow]: https://github.com/tensorflow/tensorflow/blob/0304934/tensorflow/python/profiler/internal/flops_registry.py
[llm-viewer]: https://github.com/hahnyuan/LLM-Viewer/blob/01b269d/model_analyzer.py
[deepspeed]: https://github.com/deepspeedai/DeepSpeed/blob/127756f/deepspeed/profiling/flops_profiler/profiler.py
[calflops]: https://github.com/MrYxJ/calculate-flops.pytorch/blob/086d419/calflops/pytorch_ops.py
[ptflops]: https://github.com/sovrasov/flops-counter.pytorch/blob/022a654/ptflops/pytorch_ops.py
[thop]: https://github.com/Lyken17/pytorch-OpCounter/blob/572085f/thop/vision/calc_func.py
[fvcore]: https://github.com/facebookresearch/fvcore/blob/017141c/fvcore/nn/jit_handles.py
[nanogpt]: https://github.com/karpathy/nanoGPT/blob/0011cd4/model.py
[megatron]: https://github.com/NVIDIA/Megatron-LM/blob/001b00c/megatron/training/training.py
[torchinfo-126]: https://github.com/TylerYep/torchinfo/issues/126
[torchinfo-14]: https://github.com/TylerYep/torchinfo/issues/14
"""


def flops(entry: ScalarOps) -> str:
    """The number of an entry in words: ``5 per input, 4 per row``."""
    parts = [(entry.per_input, "input"), (entry.per_output, "output"), (entry.per_row, "row")]
    return ", ".join(f"{count} per {what}" for count, what in parts if count) or "arguments"


def text() -> str:
    """The whole page."""
    rows = [f"| `{n}` | {flops(e)} | {e.definition} |" for n, e in definitions().items() if e != FREE]
    tail = TAIL.format(
        free=", ".join(f"`{name}`" for name in sorted(n for n, e in TABLE.items() if e == FREE)),
        square=pow_operations(2),
        cube=pow_operations(3),
        fourth=pow_operations(4),
        other=pow_operations(5),
        gelu_tanh=GELU_TANH,
    )
    return HEAD + "\n".join(rows) + "\n" + tail


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text(), encoding="utf-8")
    print(PAGE)
