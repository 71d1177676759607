"""Attention of one layer as modules, so that lmp derives what each line should cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Naive(nn.Module):
    """The score matrix is written to memory three times: as product, scaled, and after softmax."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        return torch.matmul(torch.softmax(scores, dim=-1), v)


class Sdpa(nn.Module):
    """One operator; on a CPU torch runs its flash attention."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)
