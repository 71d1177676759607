"""Parallelism: which strategy a collective belongs to, by where it is called and what its group is named."""

from __future__ import annotations

from pathlib import Path

from small_repository import implementation, line_of, written

TEXT = """import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention


class Linear(torch.nn.Module):
    def forward(self, x):
        y = x @ self.weight
        dist.all_reduce(y)
        return y


class Trainer:
    def all_reduce(self, log):
        dist.all_reduce(log)

    def fit(self, model, batches):
        for batch in batches:
            loss = model(batch)
            loss.backward()
            self.all_reduce(loss)


def send(key):
    return dist.batch_isend_irecv([key])


def ring(q, k, v):
    for _ in range(4):
        k = send(k)
        out = scaled_dot_product_attention(q, k, v)
    return out


def loss(value, state):
    dist.all_reduce(value, group=state.ring_attn_group)
"""


def test_strategies_of_collectives(tmp_path: Path) -> None:
    root = written(tmp_path / "net", {"net/train.py": TEXT})
    report = implementation(root)
    found = report.section("7.1 Parallelism Strategy")
    # The layer's sum adds up its parts. That of the trainer is of what it logs; its own method of the name is none.
    layer, own = line_of(root, "net/train.py", "dist.all_reduce(y)"), line_of(root, "net/train.py", "self.all_reduce")
    assert f"**Tensor Parallelism:** Yes, at `net/train.py:{layer}`." in found
    assert f"`net/train.py:{own}`" not in report.section("7.2 Communication Patterns")
    # Attention sends its keys on; the loss names the group of the ring.
    sent, loss = line_of(root, "net/train.py", "batch_isend_irecv"), line_of(root, "net/train.py", "ring_attn_group")
    assert f"**Sequence Parallelism:** Yes, at `net/train.py:{loss}`, `net/train.py:{sent}`." in found
    assert "**Pipeline Parallelism:** Yes" not in found
    assert f"asynchronous calls at `net/train.py:{sent}`" in report.section("7.3 Compute-Communication Overlap")


def test_settings_are_candidates(tmp_path: Path) -> None:
    flags = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--ring_attn_size", type=int, default=1)
parser.add_argument("--tensor-parallel-size", type=int, default=1)
parser.parse_args()
"""
    found = implementation(written(tmp_path / "net", {"serve.py": flags})).section("7.1 Parallelism Strategy")
    assert "**Sequence Parallelism:** not determined, candidates: `serve.py:4` (`--ring_attn_size`)." in found
    assert "**Tensor Parallelism:** not determined, candidates: `serve.py:5` (`--tensor-parallel-size`)." in found
    assert "**Data Parallelism:** none found (searched: its wrappers, collectives and settings)." in found
