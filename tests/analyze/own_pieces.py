"""Modules that work in pieces: of a literal, of an argument, over the batch, beyond a length, on all pieces before."""

import torch
import torch.nn.functional as F
from torch import nn


class Ranged(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 3 * dim)
        self.down = nn.Linear(3 * dim, dim)

    def forward(self, x):
        out = []
        for i in range(0, x.shape[1], 40):
            out.append(self.down(F.gelu(self.up(x[:, i : i + 40]))))
        return torch.cat(out, 1)


class SplitByArgument(nn.Module):
    def __init__(self, dim=32, piece=24):
        super().__init__()
        self.piece = piece
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        return torch.cat([self.up(part).relu() for part in x.split(self.piece, 1)], 1)


class RangedByArgument(nn.Module):
    def __init__(self, dim=32, piece=24):
        super().__init__()
        self.piece = piece
        self.up = nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x):
        out = []
        for i in range(0, x.shape[1], self.piece):
            out.append(self.up(x[:, i : i + self.piece].contiguous()).relu())
        return torch.cat(out, 1)


class OverTheBatch(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        return torch.cat([self.up(part).relu() for part in x.split(3)])


class Beyond(nn.Module):
    """One call up to 90 tokens, pieces of 32 beyond."""

    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, dim)

    def forward(self, x):
        if x.shape[1] > 90:
            return torch.cat([self.up(part) for part in x.split(32, 1)], 1)
        return self.up(x)


class While(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, dim)

    def forward(self, x):
        out, start = [], 0
        while start < x.size(1):
            out.append(self.up(x[:, start : start + 56]).relu())
            start += 56
        return torch.cat(out, 1)


class OnAllBefore(nn.Module):
    """Causal attention by pieces of queries: each works on the keys up to its end."""

    def __init__(self, dim=32):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).split(x.shape[-1], -1)
        out = []
        for i in range(0, x.shape[1], 48):
            keys, values = k[:, : i + 48], v[:, : i + 48]
            out.append((q[:, i : i + 48] @ keys.transpose(1, 2)).softmax(-1) @ values)
        return torch.cat(out, 1)


class WholeBlocks(nn.Module):
    """The tokens padded to whole blocks of 48."""

    def __init__(self, dim=32):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, s, d = x.shape
        pad = (-s) % 48
        q, k, v = self.qkv(F.pad(x, (0, 0, 0, pad))).view(b, -1, 48, 3, d).unbind(3)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).reshape(b, s + pad, d)[:, :s]


class LastTokens(nn.Module):
    def __init__(self, dim=32, piece=24):
        super().__init__()
        self.piece = piece
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        return self.up(x[:, -self.piece :])


class LastSixty(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        return self.up(x[:, -60:])


class LastOfBoth(nn.Module):
    """Keeps the last 44 of the tokens before and the new ones."""

    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x, past):
        return self.up(torch.cat([past, x], 1)[:, -44:]).relu()


class PiecesOfBoth(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x, past):
        return torch.cat([self.up(part).relu() for part in torch.cat([past, x], 1).split(36, 1)], 1)


class Halving(nn.Module):
    """A tree reduction: its number of rounds is a logarithm."""

    def __init__(self, dim=32):
        super().__init__()
        self.join = nn.Linear(2 * dim, dim)

    def forward(self, x):
        while x.shape[1] > 1:
            if x.shape[1] % 2:
                x = F.pad(x, (0, 0, 0, 1))
            x = self.join(torch.cat([x[:, ::2], x[:, 1::2]], -1))
        return x


class FewerEachRound(nn.Module):
    """Each round sees 50 tokens fewer: a rest of one token needs no copy."""

    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.stack([self.up(x[:, :i]).mean(1) for i in range(x.shape[1], 0, -50)], 1)


class SixToOne(nn.Module):
    """Six tokens become one, and a rest is dropped: one row of six needs no copy."""

    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(6 * dim, dim)

    def forward(self, x):
        whole = x.shape[1] // 6 * 6
        return self.up(x[:, :whole].reshape(x.shape[0], -1, 6 * x.shape[2]))


class InnerBranches(nn.Module):
    """Comparisons inside a branch, with another size than the branch, and a branch on the batch outside of it."""

    def __init__(self, dim=32, few=25, many=60):
        super().__init__()
        self.few, self.many = few, many
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        if x.shape[1] > self.few:
            if x.shape[0] * x.shape[1] > 3 * self.many:
                return self.up(x)
            return self.down(self.up(x)) if x.shape[1] >= self.many else self.up(x).relu()
        return x * 3 if x.shape[0] == 5 else self.down(self.up(x)).relu()


class Rest(nn.Module):
    """Every fifth token, and the rest beyond whole fives: a rest of one, and a single row of fives, need no copy."""

    def __init__(self, dim=32):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim)

    def forward(self, x):
        rest = x.shape[1] % 5
        found = self.up(x[:, ::5]).sum(1)
        return found + self.down(x[:, x.shape[1] - rest :]).sum(1) if rest else found


class AllRows(nn.Module):
    """112 rows of all sequences at a time."""

    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 3 * dim, bias=False)

    def forward(self, x):
        rows = x.flatten(0, 1)
        parts = [self.up(rows[i : i + 112]).relu() for i in range(0, rows.shape[0], 112)]
        return torch.cat(parts).view(x.shape[0], x.shape[1], -1)


class Gated(nn.Module):
    """Runs on long calls alone."""

    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        gate, value = self.up(x).chunk(2, -1)
        return torch.sigmoid(gate) * value


class AnotherClassBeyond(nn.Module):
    """Calls another class beyond 64 tokens: the first run does not call it."""

    def __init__(self, dim=32):
        super().__init__()
        self.short, self.long = nn.Linear(dim, dim), Gated(dim)

    def forward(self, x):
        if x.shape[1] > 64:
            return self.long(x)
        return self.short(x)
