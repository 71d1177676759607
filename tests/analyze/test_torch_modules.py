"""PyTorch's own modules, standalone: verified, with variables named after constructor arguments."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from evaluation import evaluate_analysis
from executed import executed
from lmp.analyze.modules import analyze_modules, load_for_evaluation
from lmp.analyze.session import Options

NAMES = """Linear Bilinear Embedding LayerNorm RMSNorm GroupNorm BatchNorm1d BatchNorm2d Conv1d Conv2d Conv3d
ConvTranspose1d ConvTranspose2d MaxPool2d AvgPool2d AdaptiveAvgPool2d GELU SiLU ReLU Softmax Dropout
MultiheadAttention Identity Upsample"""
MODULES = re.findall(r"\w+", NAMES)


@pytest.mark.parametrize("name", MODULES)
def test_it_is_verified(name: str, shared_options: Options) -> None:
    found = next(
        o.analysis for o in analyze_modules([f"torch.nn.{name}"], shared_options, lambda c, s: None) if o.requested
    )
    assert found.verification.status == "verified"
    assert found.verification.points >= 5
    assert not found.uncounted


def totals(name: str, shared_options: Options, **values: int) -> Any:
    analysis, lookup = load_for_evaluation(name, shared_options, lambda c, s: None)
    return evaluate_analysis(analysis, lookup, values).totals


def test_linear(shared_options: Options) -> None:
    # [3, 5, 7] x [7, 11]: 2*3*5*7*11 = 2310, and one bias addition per result: 3*5*11 = 165.
    got = totals("torch.nn.Linear", shared_options, batch_size=3, seq_len=5, in_features=7, out_features=11, bias=1)
    assert (got.matmul_flops, got.flops) == (2310, 2475)
    # Reads 3*5*7 inputs, 7*11 weights and 11 biases, writes 165 results, 2 bytes each.
    assert (got.read, got.write) == (2 * (105 + 77 + 11), 2 * 165)
    assert got.parameters_count == 88
    assert (
        totals("torch.nn.Linear", shared_options, batch_size=3, seq_len=5, in_features=7, out_features=11, bias=0).flops
        == 2310
    )


def test_convolution_with_stride_padding_and_groups(shared_options: Options) -> None:
    # Height (9 + 2*1 - 3)//2 + 1 = 5, width (8 + 2*1 - 3)//2 + 1 = 4; 2 groups of 2 input channels each.
    got = totals(
        "torch.nn.Conv2d", shared_options, batch_size=2, in_channels=4, out_channels=6, kernel_size=3, stride=2,
        padding=1, dilation=1, groups=2, bias=1, height=9, width=8, seq_len=1,
    )  # fmt: skip
    # 2 flops * 2 images * 5*4 positions * 6 output channels * 2 input channels of the group * 9 taps = 8640.
    assert got.matmul_flops == 2 * 2 * 5 * 4 * 6 * 2 * 9
    assert got.flops == got.matmul_flops + 2 * 6 * 5 * 4  # one bias addition per result
    # Reads 2*4*9*8 inputs, 6*2*9 weights, 6 biases; writes 2*6*5*4 results.
    assert (got.read, got.write) == (2 * (576 + 108 + 6), 2 * 240)


def test_embedding_reads_rows_and_not_the_table(shared_options: Options) -> None:
    got = totals("torch.nn.Embedding", shared_options, batch_size=2, seq_len=3, num_embeddings=50_000, embedding_dim=8)
    # 6 indices of 8 bytes and 6 rows of 8 elements; 6*8 elements written.
    assert (got.flops, got.read, got.write) == (0, 6 * 8 + 6 * 8 * 2, 6 * 8 * 2)


@pytest.mark.parametrize(("batch_size", "seq_len", "norm_first"), [(3, 7, 1), (2, 12, 0), (1, 9, 1), (5, 1, 0)])
def test_an_encoder_layer_without_biases(
    batch_size: int, seq_len: int, norm_first: int, shared_options: Options
) -> None:
    """Its projections get a transposed input: with weights as loaded, ATen copies it and multiplies once."""
    sizes = {"d_model": 30, "nhead": 5, "dim_feedforward": 77}
    flags = {"batch_first": 1, "norm_first": norm_first, "bias": 0}
    got = totals(
        "torch.nn.TransformerEncoderLayer", shared_options, batch_size=batch_size, seq_len=seq_len, **sizes, **flags
    )
    flags_of_torch = {name: bool(value) for name, value in flags.items()}
    ran = executed(lambda: torch.nn.TransformerEncoderLayer(**sizes, **flags_of_torch), (batch_size, seq_len, 30))
    assert (got.flops, got.read, got.write) == ran


@pytest.mark.parametrize(("images", "channels", "height", "width"), [(3, 7, 13, 1), (1, 10, 6, 11), (5, 2, 4, 4)])
def test_an_instance_norm_computes_its_statistics(
    images: int, channels: int, height: int, width: int, shared_options: Options
) -> None:
    sizes = {"batch_size": images, "num_features": channels, "height": height, "width": width}
    got = totals("torch.nn.InstanceNorm2d", shared_options, **sizes, seq_len=1)
    # Each picture's channel is a row: 5 operations a pixel, 4 a row.
    assert got.flops == images * channels * (5 * height * width + 4)
    ran = executed(lambda: torch.nn.InstanceNorm2d(channels), (images, channels, height, width))
    assert (got.flops, got.read, got.write) == ran
