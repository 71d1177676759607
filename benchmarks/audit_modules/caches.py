"""States that a caller passes in: their length is a size of its own."""

import torch
import torch.nn.functional as F
from torch import nn


class Appended(nn.Module):
    """Keys and values behind those of before."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, past):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = torch.cat([past, k], 1), torch.cat([past, v], 1)
        return F.scaled_dot_product_attention(q, k, v)


class Ring(nn.Module):
    """The last 150 entries alone."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, past):
        kept = torch.cat([past, self.fc(x)], 1)[:, -150:]
        return F.scaled_dot_product_attention(x, kept, kept), kept.clone()


class CompressedMemory(nn.Module):
    """A long memory is pooled by 16."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, past):
        if past.shape[1] > 256:
            past = F.avg_pool1d(past.transpose(1, 2), 16, ceil_mode=True).transpose(1, 2)
        past = self.fc(past)
        return F.scaled_dot_product_attention(x, past, past)


class UpcastLong(nn.Module):
    """A long memory is kept in float32."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, past):
        if past.shape[1] > x.shape[1] + 90:
            past = past.float()
        return self.fc(x) + past.mean(1, keepdim=True).to(x.dtype)


class LongerOfTwo(nn.Module):
    """What is shorter is padded to the other."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, past):
        most = max(x.shape[1], past.shape[1])
        x, past = (F.pad(t, (0, 0, 0, most - t.shape[1])) for t in (x, past))
        return self.fc(x + past)
