"""Buffers with sizes of their own: tables, masks, paddings."""

import torch
import torch.nn.functional as F
from torch import nn


class RopeTable(nn.Module):
    """A table of 512 positions: more tokens raise."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.register_buffer("cos", torch.ones(512, dim))

    def forward(self, x):
        return x * self.cos[: x.shape[1]]


class MaskBuffer(nn.Module):
    """A square mask of a limited size, cut to the tokens."""

    def __init__(self, dim: int = 32, most: int = 300):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.register_buffer("mask", torch.ones(most, most, dtype=torch.bool).tril())

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = x.shape[1]
        scores = (q @ k.transpose(1, 2)).masked_fill(~self.mask[:s, :s], float("-inf"))
        return scores.softmax(-1) @ v


class PaddedBlocks(nn.Module):
    """Tokens padded to a multiple of 48, and cut again."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(48, 48)

    def forward(self, x):
        b, s, d = x.shape
        x = F.pad(x, (0, 0, 0, -s % 48))
        x = self.fc(x.view(b, -1, 48, d).transpose(2, 3)).transpose(2, 3)
        return x.reshape(b, -1, d)[:, :s]


class RelativeBias(nn.Module):
    """Distances beyond a limit share one row of a table."""

    def __init__(self, heads: int = 4, most: int = 20):
        super().__init__()
        self.most = most
        self.table = nn.Embedding(2 * most + 1, heads)

    def forward(self, x):
        place = torch.arange(x.shape[1], device=x.device)
        distance = (place[:, None] - place[None]).clamp(-self.most, self.most) + self.most
        return x.mean(-1)[:, None, :, None] + self.table(distance).permute(2, 0, 1)


class FloatBuffer(nn.Module):
    """A buffer in float32 whatever the module's dtype."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.register_buffer("scale", torch.ones(dim, dtype=torch.float32))

    def forward(self, x):
        return (x.float() * self.scale).to(x.dtype)


class GrowingTable(nn.Module):
    """A table is interpolated beyond 197 rows."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, 197, dim))

    def forward(self, x):
        table = self.table
        if x.shape[1] > 197:
            table = F.interpolate(table.transpose(1, 2), size=x.shape[1], mode="linear").transpose(1, 2)
            return x + table
        return x + table[:, : x.shape[1]]


class SharedBatchBuffer(nn.Module):
    """Queries of the module's own, expanded to the batch."""

    def __init__(self, dim: int = 32, queries: int = 7):
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(1, queries, dim))
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        q = self.fc(self.queries.expand(x.shape[0], -1, -1))
        return F.scaled_dot_product_attention(q, x, x)


class SegmentSum(nn.Module):
    """Decays inside chunks, a state between them, as a selective state space does."""

    def __init__(self, dim: int = 16, chunk: int = 64):
        super().__init__()
        self.chunk = chunk
        self.decay = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, d = x.shape
        x = F.pad(x, (0, 0, 0, -s % self.chunk)).view(b, -1, self.chunk, d)
        within = self.decay(x).cumsum(2)
        states = within[:, :, -1].cumsum(1)
        before = F.pad(states[:, :-1], (0, 0, 1, 0)).unsqueeze(2)
        return (within + before).reshape(b, -1, d)[:, :s]


class IndexTable(nn.Module):
    """Positions through an index buffer, wrapped around."""

    def __init__(self, dim: int = 32, period: int = 60):
        super().__init__()
        self.period = period
        self.table = nn.Embedding(period, dim)

    def forward(self, x):
        return x + self.table(torch.arange(x.shape[1], device=x.device) % self.period)
