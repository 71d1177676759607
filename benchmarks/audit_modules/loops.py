"""Loops whose number of rounds depends on a size of the call, by literals and by arguments of the constructor."""

import torch
import torch.nn.functional as F
from torch import nn


class ChunkedFFN(nn.Module):
    """Some tokens at a time, by an argument."""

    def __init__(self, dim: int = 32, chunk: int = 96):
        super().__init__()
        self.chunk = chunk
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        parts = [x[:, i : i + self.chunk] for i in range(0, x.shape[1], self.chunk)]
        return torch.cat([self.down(F.gelu(self.up(part))) for part in parts], 1)


class LiteralChunks(nn.Module):
    """704 tokens at a time."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.cat([torch.relu(self.fc(x[:, i : i + 704])) for i in range(0, x.shape[1], 704)], 1)


class BatchParts(nn.Module):
    """Three sequences at a time."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.cat([self.fc(part).tanh() for part in x.split(3)], 0)


class TwoWayChunks(nn.Module):
    """Chunks of both batch and tokens."""

    def __init__(self, dim: int = 32, rows: int = 2, columns: int = 50):
        super().__init__()
        self.rows, self.columns = rows, columns
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        rows = [torch.cat([self.fc(c) for c in r.split(self.columns, 1)], 1) for r in x.split(self.rows)]
        return torch.cat(rows, 0)


class Halving(nn.Module):
    """A tree reduction: pairs of tokens are added until one is left."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        while x.shape[1] > 1:
            half = x.shape[1] // 2
            rest = x[:, 2 * half :]
            x = torch.cat([x[:, :half] + x[:, half : 2 * half], rest], 1)
        return self.fc(x)


class Recurrent(nn.Module):
    """One step a token."""

    def __init__(self, dim: int = 16):
        super().__init__()
        self.cell = nn.Linear(2 * dim, dim)
        self.dim = dim

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.dim)
        found = []
        for t in range(x.shape[1]):
            state = torch.tanh(self.cell(torch.cat([x[:, t], state], -1)))
            found.append(state)
        return torch.stack(found, 1)


class SharedDepth(nn.Module):
    """One layer applied several times, by an argument."""

    def __init__(self, dim: int = 32, depth: int = 3):
        super().__init__()
        self.depth = depth
        self.fc, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim)

    def forward(self, x):
        for _ in range(self.depth):
            x = x + self.fc(self.norm(x))
        return x


class FromOne(nn.Module):
    """A range that does not begin at 0, with a step."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        total = x[:, 0]
        for i in range(1, x.shape[1], 37):
            total = total + self.fc(x[:, i])
        return total


class Downwards(nn.Module):
    """Each round sees fewer tokens."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        found = []
        for i in range(x.shape[1], 0, -120):
            found.append(self.fc(x[:, :i]).mean(1))
        return torch.stack(found, 1)


class PairsOfChunks(nn.Module):
    """Attention of each chunk over itself and all chunks before it."""

    def __init__(self, dim: int = 32, chunk: int = 64):
        super().__init__()
        self.chunk = chunk
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        found = []
        for i in range(0, x.shape[1], self.chunk):
            end = min(i + self.chunk, x.shape[1])
            found.append(F.scaled_dot_product_attention(q[:, i:end], k[:, :end], v[:, :end]))
        return torch.cat(found, 1)
