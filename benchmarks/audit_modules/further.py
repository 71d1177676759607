"""Further kinds: inner branches, caches, routing, pieces of all rows, rests, sizes that two arguments decide."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Nested(nn.Module):
    """Nested conditionals on two sizes."""

    def __init__(self, dim=32, a=40, b=90):
        super().__init__()
        self.a, self.b = a, b
        self.f, self.g, self.h = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x):
        s = x.shape[1]
        if s > self.a:
            if s * x.shape[0] > self.b * 4:
                return self.f(x)
            if s >= self.b:
                return self.g(self.f(x))
            return self.h(x)
        elif x.shape[0] == 3:
            return x * 2
        return self.g(x)


class SplitList(nn.Module):
    """torch.split with a list."""

    def __init__(self, dim=32, first=10):
        super().__init__()
        self.n = first
        self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, x):
        n = min(self.n, x.shape[1])
        p, q = x.split([n, x.shape[1] - n], 1)
        return self.a(p).sum(1) + self.b(q).sum(1).chunk(2, -1)[0]


class RingCache(nn.Module):
    """Cache of fixed size, written modulo its length."""

    def __init__(self, dim=32, size=64):
        super().__init__()
        self.size = size
        self.kv = nn.Linear(dim, dim)
        self.register_buffer("cache", torch.zeros(1, size, dim))

    def forward(self, x):
        k = self.kv(x)
        slots = torch.arange(x.shape[1], device=x.device) % self.size
        cache = self.cache.expand(x.shape[0], -1, -1).clone()
        cache[:, slots] = k
        filled = min(x.shape[1], self.size)
        return F.scaled_dot_product_attention(x, cache[:, :filled], cache[:, :filled])


class SinkWindow(nn.Module):
    """Attention to sinks and a sliding window."""

    def __init__(self, dim=32, sinks=4, window=60):
        super().__init__()
        self.s, self.w = sinks, window
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, past):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = torch.cat([past, k], 1), torch.cat([past, v], 1)
        if k.shape[1] > self.s + self.w:
            k = torch.cat([k[:, : self.s], k[:, -self.w :]], 1)
            v = torch.cat([v[:, : self.s], v[:, -self.w :]], 1)
        return F.scaled_dot_product_attention(q, k, v), k, v


class CapacityMoE(nn.Module):
    """Top-k routing with a capacity that is rounded up."""

    def __init__(self, dim=32, experts=4, top_k=2):
        super().__init__()
        self.e, self.k = experts, top_k
        self.r = nn.Linear(dim, experts)
        self.w = nn.Parameter(torch.zeros(experts, dim, dim))

    def forward(self, x):
        b, s, d = x.shape
        flat = x.reshape(-1, d)
        n = flat.shape[0]
        cap = max(4, math.ceil(n * self.k / self.e * 1.25))
        cap = min(cap, n)
        scores = self.r(flat).softmax(-1)
        top, where = scores.t().topk(cap, dim=-1)
        got = flat[where.reshape(-1)].view(self.e, cap, d)
        out = torch.bmm(got, self.w) * top.unsqueeze(-1)
        return torch.zeros_like(flat).index_add(0, where.reshape(-1), out.reshape(-1, d)).view(b, s, d)


class EarlyExit(nn.Module):
    """Fewer layers for few tokens."""

    def __init__(self, dim=32, layers=5):
        super().__init__()
        self.l = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))

    def forward(self, x):
        for i, f in enumerate(self.l):
            if x.shape[1] < 20 * i:
                break
            x = x + f(x)
        return x


class ChunkedLoss(nn.Module):
    """Cross-entropy over chunks of the flattened tokens."""

    def __init__(self, dim=32, vocab=100, chunk=128):
        super().__init__()
        self.c = chunk
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, x, labels):
        flat, lab = x.flatten(0, 1), labels.flatten()
        total = x.new_zeros(())
        for i in range(0, flat.shape[0], self.c):
            logits = self.head(flat[i : i + self.c]).float()
            total = (
                total + (logits.logsumexp(-1) - logits.gather(-1, lab[i : i + self.c].unsqueeze(-1)).squeeze(-1)).sum()
            )
        return total / flat.shape[0]


class T5Buckets(nn.Module):
    """Bucketed relative positions."""

    def __init__(self, dim=32, heads=4, buckets=32, most=128):
        super().__init__()
        self.h, self.nb, self.m = heads, buckets, most
        self.t = nn.Embedding(buckets, heads)
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, s, d = x.shape
        p = torch.arange(s, device=x.device)
        rel = p[None] - p[:, None]
        half = self.nb // 2
        side = (rel > 0).long() * half
        rel = rel.abs()
        exact = half // 2
        large = exact + (torch.log(rel.float() / exact) / math.log(self.m / exact) * (half - exact)).long()
        bucket = side + torch.where(rel < exact, rel, large.clamp(max=half - 1))
        bias = self.t(bucket).permute(2, 0, 1).unsqueeze(0)
        q, k, v = (t.view(b, s, self.h, d // self.h).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return ((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v).transpose(1, 2).reshape(b, s, d)


class StridedTail(nn.Module):
    """Every third token, then the tail that is left over."""

    def __init__(self, dim=32, step=3):
        super().__init__()
        self.n = step
        self.f, self.g = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        s = x.shape[1]
        y = self.f(x[:, :: self.n])
        r = s - s % self.n
        return y.sum(1) + (self.g(x[:, r:]).sum(1) if s % self.n else 0)


class PadBatch(nn.Module):
    """A batch is padded to a multiple of 4 and grouped."""

    def __init__(self, dim=32):
        super().__init__()
        self.f = nn.Linear(4 * dim, dim)

    def forward(self, x):
        b = x.shape[0]
        x = F.pad(x, (0, 0, 0, 0, 0, -b % 4))
        y = x.view(-1, 4, x.shape[1], x.shape[2]).permute(0, 2, 1, 3).flatten(2)
        return self.f(y)[: (b + 3) // 4]


class CumBuffer(nn.Module):
    """Running sums in blocks of a buffer's length."""

    def __init__(self, dim=32, length=50):
        super().__init__()
        self.register_buffer("w", torch.ones(length))
        self.f = nn.Linear(dim, dim)

    def forward(self, x):
        s, n = x.shape[1], self.w.shape[0]
        w = self.w.repeat(s // n + 1)[:s]
        return self.f((x * w[:, None]).cumsum(1))


class Ladder(nn.Module):
    """Three paths by the number of tokens, in a table of thresholds."""

    def __init__(self, dim=32):
        super().__init__()
        self.f = nn.ModuleList(nn.Linear(dim, dim * (i + 1)) for i in range(3))

    def forward(self, x):
        i = sum(x.shape[1] >= t for t in (33, 260))
        return self.f[i](x)


class TopP(nn.Module):
    """Keeps a quarter of the tokens, at least four."""

    def __init__(self, dim=32):
        super().__init__()
        self.s = nn.Linear(dim, 1)
        self.f = nn.Linear(dim, dim)

    def forward(self, x):
        k = max(4, x.shape[1] // 4)
        k = min(k, x.shape[1])
        i = self.s(x).squeeze(-1).topk(k, dim=1).indices
        y = x.gather(1, i.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        return x.scatter_add(1, i.unsqueeze(-1).expand(-1, -1, x.shape[-1]), self.f(y))


class LinearAttn(nn.Module):
    """Kernelised attention: chooses the cheaper order of products."""

    def __init__(self, dim=32):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if x.shape[1] > x.shape[2]:
            return q @ (k.transpose(1, 2) @ v)
        return (q @ k.transpose(1, 2)) @ v


class UNet(nn.Module):
    """Down by two twice, up and concatenate, cropped to equal lengths."""

    def __init__(self, dim=8):
        super().__init__()
        self.a, self.b = nn.Conv1d(dim, 2 * dim, 3, 2, 1), nn.Conv1d(2 * dim, 4 * dim, 3, 2, 1)
        self.u, self.v = nn.ConvTranspose1d(4 * dim, 2 * dim, 2, 2), nn.ConvTranspose1d(4 * dim, dim, 2, 2)

    def forward(self, x):
        x = x.transpose(1, 2)
        a = F.relu(self.a(x))
        b = F.relu(self.b(a))
        u = self.u(b)[..., : a.shape[-1]]
        y = self.v(torch.cat([u, a], 1))[..., : x.shape[-1]]
        return (x + y).transpose(1, 2)


class GRUState(nn.Module):
    """A GRU cell over every fourth token."""

    def __init__(self, dim=16):
        super().__init__()
        self.c = nn.GRUCell(dim, dim)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], x.shape[2])
        for t in range(0, x.shape[1], 4):
            h = self.c(x[:, t], h)
        return h


class Speculate(nn.Module):
    """Drafts a literal number of tokens if the cache is long."""

    def __init__(self, dim=32):
        super().__init__()
        self.f, self.g = nn.Linear(dim, dim), nn.Linear(dim, 4 * dim)

    def forward(self, x, past):
        t = past.shape[1] + x.shape[1]
        if t > 128 and x.shape[1] == 1:
            return self.g(x).view(x.shape[0], 4, x.shape[2])
        if past.shape[1] >= 2 * x.shape[1]:
            return self.f(torch.cat([past[:, -x.shape[1] :], x], 1))
        return self.f(x)


class Mixed(nn.Module):
    """Tokens mixed by a matrix as wide as the longest sequence, cut to the tokens."""

    def __init__(self, dim=32, longest=80):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(longest, longest))
        self.f = nn.Linear(dim, dim)

    def forward(self, x):
        s = min(x.shape[1], self.w.shape[0])
        y = self.w[:s, :s] @ x[:, :s]
        return torch.cat([self.f(y), x[:, s:]], 1)


class BatchBranch(nn.Module):
    """Another product for few rows, as a decode kernel."""

    def __init__(self, dim=32, few=6):
        super().__init__()
        self.few = few
        self.w = nn.Parameter(torch.zeros(dim, dim))

    def forward(self, x):
        rows = x.shape[0] * x.shape[1]
        if rows <= self.few:
            return (x.unsqueeze(-2) * self.w).sum(-1)
        if rows % 8 == 0:
            return x @ self.w.t()
        pad = -rows % 8
        return (F.pad(x.flatten(0, 1), (0, 0, 0, pad)) @ self.w.t())[:rows].view_as(x)


class Hash(nn.Module):
    """LSH-like buckets: tokens sorted and cut into buckets, with the one before."""

    def __init__(self, dim=32, bucket=16):
        super().__init__()
        self.b = bucket
        self.qk = nn.Linear(dim, dim)

    def forward(self, x):
        B, s, d = x.shape
        x = F.pad(x, (0, 0, 0, -s % self.b))
        q = self.qk(x).view(B, -1, self.b, d)
        prev = torch.cat([q[:, -1:], q[:, :-1]], 1)
        k = torch.cat([prev, q], 2)
        return F.scaled_dot_product_attention(q, k, k).flatten(1, 2)[:, :s]


class SlidingUnfold(nn.Module):
    """Whole windows only: fewer tokens raise."""

    def __init__(self, dim=16, window=8, step=4):
        super().__init__()
        self.w = window
        self.st = step
        self.fc = nn.Linear(dim * window, dim)

    def forward(self, x):
        y = x.unfold(1, self.w, self.st)
        return self.fc(y.transpose(2, 3).flatten(2))
