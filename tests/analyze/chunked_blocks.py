"""Blocks whose path changes at sizes that points of a few tokens do not show: pieces, thresholds, rare branches."""

from __future__ import annotations

import torch
from torch import nn


class ChunkedFFN(nn.Module):
    """384 tokens at a time."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = []
        for i in range(0, x.shape[1], 384):
            out.append(self.down(torch.relu(self.up(x[:, i : i + 384]))))
        return torch.cat(out, 1)


class SplitBeyond(nn.Module):
    """One call up to 170 tokens, pieces of 48 beyond."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 170:
            return torch.cat([self.fc(c) for c in x.split(48, 1)], 1)
        return self.fc(x)


class BatchPieces(nn.Module):
    """Seven sequences at a time."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.fc(c) for c in x.split(7)], 0)


class Pieces(nn.Module):
    """Pieces of a length that the constructor is given."""

    def __init__(self, dim: int = 32, piece: int = 90) -> None:
        super().__init__()
        self.fc, self.piece = nn.Linear(dim, dim), piece

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.fc(c) for c in x.split(self.piece, 1)], 1)


class Cheaper(nn.Module):
    """A second product up to 230 tokens only."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        return y if x.shape[1] > 230 else self.fc(y)


class Projected(nn.Module):
    """A projection that exists for unequal widths only."""

    def __init__(self, dim: int = 24, width: int = 40) -> None:
        super().__init__()
        self.into = nn.Linear(dim, width) if width != dim else nn.Identity()
        self.fc = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.into(x))
