"""Modules in the style of users' code."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class MLP(nn.Module):
    def __init__(self, dim, hidden, bias=False, act="silu"):
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)
        self.act = {"silu": F.silu, "relu": F.relu}[act]

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        b, s, d = x.shape
        q, k, v = (
            t.view(b, s, self.num_heads, int(d / self.num_heads)).transpose(1, 2) for t in self.qkv(x).split(d, dim=-1)
        )
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, s, d))


class Block(nn.Module):
    def __init__(self, hidden_size, num_heads=4):
        super().__init__()
        self.norm1 = RMSNorm(hidden_size)
        self.attn = Attention(hidden_size, num_heads)
        self.norm2 = RMSNorm(hidden_size)
        self.mlp = MLP(hidden_size, 4 * hidden_size)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Stack(nn.Module):
    def __init__(self, hidden_size, num_layers):
        super().__init__()
        self.layers = nn.ModuleList([Block(hidden_size) for _ in range(num_layers)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class TwoKinds(nn.Module):
    """Two instances of one class that differ in cost: one that the analysis does not apply to is inlined."""

    def __init__(self, dim):
        super().__init__()
        self.smooth = MLP(dim, 2 * dim)
        self.rough = MLP(dim, 2 * dim, act="relu")

    def forward(self, x):
        x = self.smooth(x)
        return self.rough(x)


class Net(nn.Module):
    def __init__(self, dim, out=10):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, out))

    def forward(self, x):
        return self.net(x)


class Cross(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x, memory):
        k, v = self.kv(memory).chunk(2, dim=-1)
        weights = torch.softmax(self.q(x) @ k.transpose(1, 2), dim=-1)
        return weights @ v


class Cached(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)

    def forward(self, x, past_k, past_v):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
        return F.scaled_dot_product_attention(q, k, v)


class Branch(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.one = nn.Linear(dim, dim, bias=False)
        self.two = nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x):
        if (x == x).all():
            return self.two(x)
        return self.one(x)


class Recurrent(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.cell = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = torch.tanh(self.cell(torch.cat([x[:, t], state], dim=-1)))
        return state


class Conv(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, 2 * channels, 3, stride=2, bias=False)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(2 * channels, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.head(self.pool(x).flatten(1))


@dataclass
class Config:
    n_embd: int = 32
    n_layer: int = 2
    bias: bool = True


class Inner(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        return x + self.proj(self.norm(x))


class Outer(nn.Module):
    def __init__(self, config, vocab=50):
        super().__init__()
        self.wte = nn.Embedding(vocab, config.n_embd)
        self.blocks = nn.ModuleList([Inner(config) for _ in range(config.n_layer)])
        self.head = nn.Linear(config.n_embd, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx):
        x = self.wte(idx)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Plain(nn.Module):
    """A class of transformers inside a user's class."""

    def __init__(self, dim):
        super().__init__()
        from transformers.models.llama.modeling_llama import LlamaConfig, LlamaMLP, LlamaRMSNorm

        self.norm = LlamaRMSNorm(dim)
        self.mlp = LlamaMLP(LlamaConfig(hidden_size=dim, intermediate_size=3 * dim, num_attention_heads=2))

    def forward(self, x):
        return self.mlp(self.norm(x))


class Thresholds(torch.nn.Module):
    """Compares the number of tokens at lines without an operator."""

    def forward(self, x):
        if x.shape[1] > 64:
            return x * 2
        if x.shape[1] % 2 == 0:
            return x + 1 + 1
        return x.softmax(-1)


class Grouped(nn.Module):
    """Pools four tokens into one: it rejects three tokens."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.pool = nn.AvgPool1d(4)
        self.up = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.up(self.pool(x.transpose(1, 2)).transpose(1, 2))


class Placed(nn.Module):
    """Has positions for 64 tokens, and rejects more."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.up = nn.Linear(width, width, bias=False)

    def forward(self, x):
        if x.shape[1] > 64:
            raise ValueError("64 tokens at most")
        return self.up(x)


class Picked(nn.Module):
    """Selects tokens by their values if there is a single one; else takes all."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.up = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.up(x[x.sum(-1) > 0] if x.shape[1] == 1 else x)


class Pooled(nn.Module):
    """Pools to one position: the analysis of the pool does not apply to a result of one."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.up = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.up(self.pool(x).flatten(1))


class Tagger(nn.Module):
    """Recurrent layers in both directions between an embedding and a linear layer."""

    def __init__(self, vocab: int, dim: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(self.embed(ids))
        return self.out(states)


class Continued(nn.Module):
    """A recurrent layer that gets its first state."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(dim, hidden)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(x, state)
        return states


class ConvMixer(nn.Module):
    """A convolution over time, then a projection without bias: the projection's input lies transposed in memory."""

    def __init__(self, dim: int = 24, kernel: int = 3):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel, padding=kernel - 1, groups=dim)
        self.out = nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))[..., : x.shape[1]]
        return self.out(F.silu(y).transpose(1, 2))
