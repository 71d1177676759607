"""Shapes that decide on copies: strides, broadcasting, groups, transposed weights."""

import torch
import torch.nn.functional as F
from torch import nn


class TransposedLinear(nn.Module):
    """A bias-free Linear on a transposed convolution's output."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, 4, padding=3, groups=dim)
        self.fc = nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x):
        return self.fc(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))


class Strided(nn.Module):
    """Three strides of two: rests are dropped."""

    def __init__(self, dim: int = 16):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(dim, dim, 3, stride=2, padding=1) for _ in range(3))

    def forward(self, x):
        x = x.transpose(1, 2)
        for conv in self.convs:
            x = F.silu(conv(x))
        return x.transpose(1, 2)


class Windows(nn.Module):
    """Overlapping windows of 24 tokens, each 8 further."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        x = F.pad(x, (0, 0, 0, 24))
        return self.fc(x.unfold(1, 24, 8).mean(-1))


class OneHeadKeys(nn.Module):
    """Keys and values of one head, expanded."""

    def __init__(self, dim: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.q, self.kv = nn.Linear(dim, heads * 8), nn.Linear(dim, 16)

    def forward(self, x):
        b, s, _ = x.shape
        q = self.q(x).view(b, s, self.heads, 8).transpose(1, 2)
        k, v = self.kv(x).unsqueeze(1).expand(b, self.heads, s, 16).chunk(2, -1)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class MergeFour(nn.Module):
    """Four tokens become one; a rest is dropped."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(4 * dim, dim)

    def forward(self, x):
        whole = x.shape[1] // 4 * 4
        return self.fc(x[:, :whole].reshape(x.shape[0], -1, 4 * x.shape[2]))


class Outer(nn.Module):
    """A product of three by einsum."""

    def __init__(self, dim: int = 16, heads: int = 3):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, dim, dim))

    def forward(self, x):
        return torch.einsum("bsd,hde,bte->bhst", x, self.weight, x)
