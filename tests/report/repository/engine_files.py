"""A serving engine in six files, with the constructions that make following of calls hard."""

from __future__ import annotations

FILES = {
    "README.md": """# nanoserve

nanoserve is a small engine that serves language models with paged attention.

## Features

- Continuous batching with a paged KV cache
- Prefill and decode in one step loop

```bash
pip install -e .
```
""",
    "pyproject.toml": """[project]
name = "nanoserve"
description = "A small serving engine for language models"

[project.scripts]
nanoserve = "nanoserve.cli:main"
""",
    "nanoserve/__init__.py": "",
    "nanoserve/cli.py": '''"""The command line."""
import argparse
import os

from nanoserve.engine import LLMEngine


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-num-seqs", type=int, default=256, help="Sequences in one batch")
    parser.add_argument("--temperature", type=float, default=0.7)
    args = parser.parse_args()
    port = os.environ["NANO_PORT"]
    debug = os.environ.get("NANO_DEBUG", "0")
    engine = LLMEngine(args.max_num_seqs)
    engine.generate()


if __name__ == "__main__":
    main()
''',
    "nanoserve/engine.py": '''"""The loop."""
from nanoserve.runner import ModelRunner
from nanoserve.scheduler import Scheduler


class LLMEngine:
    """Runs requests to their end."""

    def __init__(self, most):
        self.scheduler = Scheduler(most)
        self.runner = ModelRunner()

    def step(self):
        seqs, is_prefill = self.scheduler.schedule()
        tokens = self.runner.run(seqs, is_prefill)
        self.scheduler.postprocess(seqs, tokens)

    def generate(self):
        while not self.scheduler.is_finished():
            self.step()
''',
    "nanoserve/scheduler.py": '''"""Which sequences run next."""
from nanoserve.block_manager import BlockManager


class Scheduler:
    """Chooses what runs next, and preempts where blocks run out."""

    def __init__(self, most):
        self.most = most
        self.waiting = []
        self.running = []
        self.block_manager = BlockManager(64)

    def is_finished(self):
        return not self.waiting and not self.running

    def add(self, seq):
        self.waiting.append(seq)

    def schedule(self):
        while self.waiting:
            seq = self.waiting[0]
            if not self.block_manager.can_allocate(seq):
                break
            self.block_manager.allocate(seq)
            self.running.append(self.waiting.pop(0))
        if self.running:
            return self.running, True
        for seq in self.running:
            self.preempt(seq)
        return self.running, False

    def preempt(self, seq):
        # TODO: swap to the host instead of computing it again
        self.block_manager.deallocate(seq)

    def postprocess(self, seqs, tokens):
        for seq, token in zip(seqs, tokens):
            seq.append_token(token)
''',
    "nanoserve/block_manager.py": '''"""Blocks of the KV cache."""


class BlockManager:
    """Gives blocks of the KV cache to sequences."""

    def __init__(self, count):
        self.free_blocks = list(range(count))
        self.block_tables = {}

    def can_allocate(self, seq):
        return len(self.free_blocks) > 0

    def allocate(self, seq):
        self.block_tables[seq] = [self.free_blocks.pop()]

    def deallocate(self, seq):
        self.free_blocks += self.block_tables.pop(seq)
''',
    "nanoserve/runner.py": '''"""Runs the model."""
import torch

from nanoserve.model import LlamaForCausalLM
from nanoserve.sampler import Sampler

try:
    import flash_attn
except ImportError:
    flash_attn = None


class ModelRunner:
    """Prepares batches, runs the model and samples."""

    def __init__(self):
        self.model = LlamaForCausalLM()
        self.sampler = Sampler()
        self.kv_cache = torch.zeros(2, 4, 8, 16)

    def prepare_prefill(self, seqs):
        return seqs

    def prepare_decode(self, seqs):
        return seqs[-1:]

    def run(self, seqs, is_prefill):
        batch = self.prepare_prefill(seqs) if is_prefill else self.prepare_decode(seqs)
        logits = self.model(batch)
        forward = getattr(self, "forward_" + self.mode)(batch)
        return self.sampler(logits)

    def forward_eager(self, batch):
        if torch.cuda.get_device_capability()[0] < 8:
            raise RuntimeError("nanoserve needs compute capability 8.0 or newer")
        return self.model(batch)

    def forward_graph(self, batch):
        return self.model(batch)
''',
    "nanoserve/model.py": '''"""The model."""
import torch
from torch import nn


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()

    def forward(self, x):
        return self.self_attn(x)


class Attention(nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class LlamaForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
''',
    "nanoserve/sampler.py": '''"""Sampling."""
from torch import nn


class Sampler(nn.Module):
    """Takes the next token of each sequence."""

    def forward(self, logits):
        return logits.argmax(-1)
''',
    "tests/test_engine.py": """from nanoserve.engine import LLMEngine


class FakeScheduler:
    def schedule(self):
        return []


def test_engine():
    assert LLMEngine(1)
""",
}
