"""Branches on sizes of the call and on arguments, far from small sizes."""

import torch.nn.functional as F
from torch import nn


class BeyondTokens(nn.Module):
    """A low-rank path beyond 331 tokens."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.full, self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, 4), nn.Linear(4, dim)

    def forward(self, x):
        return self.b(self.a(x)) if x.shape[1] > 331 else self.full(x)


class BeyondBatch(nn.Module):
    """Another operator from 13 sequences on."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.fc(x)
        return F.softmax(y, -1) if x.shape[0] >= 13 else F.relu(y)


class BeyondProduct(nn.Module):
    """A branch on the product of two sizes."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        if x.shape[0] * x.shape[1] > 5000:
            x = x.float()
        return self.fc(x.to(self.fc.weight.dtype))


class OddTokens(nn.Module):
    """Odd numbers of tokens are padded by one."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(2 * dim, dim)

    def forward(self, x):
        if x.shape[1] % 2:
            x = F.pad(x, (0, 0, 0, 1))
        return self.fc(x.reshape(x.shape[0], x.shape[1] // 2, -1))


class Ratio(nn.Module):
    """A branch on a quotient."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc(x) if x.shape[1] // x.shape[0] > 60 else self.fc(x.mean(1))


class LastTokens(nn.Module):
    """The last 200 tokens alone."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc(x[:, -200:])


class TopTokens(nn.Module):
    """At most 64 tokens are kept."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.score, self.fc = nn.Linear(dim, 1), nn.Linear(dim, dim)

    def forward(self, x):
        k = min(x.shape[1], 64)
        best = self.score(x).squeeze(-1).topk(k, 1).indices
        return self.fc(x.gather(1, best.unsqueeze(-1).expand(-1, -1, x.shape[-1])))


class ThreeWay(nn.Module):
    """Three arms, the last one far out."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim)

    def forward(self, x):
        if x.shape[1] < 17:
            return self.fc(x)
        if x.shape[1] <= 1170:
            return self.fc(self.norm(x))
        return self.norm(self.fc(x.mean(1)))


class ProjectIfUnequal(nn.Module):
    """The constructor compares two arguments."""

    def __init__(self, dim: int = 32, inner: int = 48):
        super().__init__()
        self.into = nn.Linear(dim, inner) if dim != inner else nn.Identity()
        self.fc = nn.Linear(inner, inner)

    def forward(self, x):
        return self.fc(self.into(x))


class FewHeads(nn.Module):
    """Keys are repeated only if there are fewer heads of them."""

    def __init__(self, dim: int = 48, heads: int = 6, kv_heads: int = 2):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        self.q = nn.Linear(dim, heads * self.size)
        self.kv = nn.Linear(dim, 2 * kv_heads * self.size)

    def forward(self, x):
        b, s, _ = x.shape
        q = self.q(x).view(b, s, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(b, s, self.kv_heads, 2 * self.size).transpose(1, 2).chunk(2, -1)
        if self.heads != self.kv_heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=s > 1).transpose(1, 2).reshape(b, s, -1)


class WideOnly(nn.Module):
    """A branch on a width at a literal."""

    def __init__(self, dim: int = 32):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.fc(x)
        return y.sigmoid() * x if x.shape[-1] >= 100 else y
