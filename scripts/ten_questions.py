"""Ten questions of engineers and planners, each one command: run them, and say how long each took.

    python scripts/ten_questions.py            # all
    python scripts/ten_questions.py fit diff   # some, by name

The answers are held against arithmetic in tests/cli/test_ten_questions.py. The tenth is asked from a notebook,
whose own test executes it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

GPU = ("--device", "h100-sxm")
SHAPES = ("--inputs", "x: float[batch_size, seq_len, 256]")
MODULE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden_size: int = 256, inner: int = 512):
        super().__init__()
        self.up = nn.Linear(hidden_size, inner, bias=False)
        self.down = nn.Linear(inner, hidden_size, bias=False)

    def forward(self, x):
        hidden = self.up(x)
        hidden = torch.relu(hidden)
        return self.down(hidden)
"""


@dataclass(frozen=True)
class Question:
    name: str
    text: str
    command: tuple[str, ...]
    """What is typed after ``lmp``."""


QUESTIONS = (
    Question(
        "cost", "FLOPs and GB a token of Qwen3-30B-A3B at batch 16, 8k, fp8 weights",
        ("evaluate", "Qwen/Qwen3-30B-A3B", "--phase", "decode", "-b", "16", "-c", "8k", "--dtype", "w8a16"),
    ),
    Question(
        "dearest", "which operators dominate bytes at prefill 32k of DeepSeek-V3",
        ("evaluate", "deepseek-ai/DeepSeek-V3", "--phase", "prefill", "-b", "1", "-s", "32k", "--each", "operator",
         "--by", "bytes"),
    ),
    Question(
        "fit", "does Llama-3.1-70B with 128k and batch 8 fit on one 80 GB GPU, on four",
        ("memory", "meta-llama/Llama-3.1-70B", *GPU, "-b", "8", "-c", "128k"),
    ),
    Question(
        "own", "my own module, per line",
        ("evaluate", "my_model.py:Block", "-b", "2", "-s", "1k", "--each", "line", *SHAPES),
    ),
    Question(
        "diff", "Qwen3-8B against Llama-3.1-8B",
        ("diff", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B", "-b", "1", "-s", "2k"),
    ),
    Question(
        "plot", "a plot of intensity against batch size",
        ("evaluate", "meta-llama/Llama-3.1-8B", "--phase", "decode", "-b", "1:256:*2", "-c", "8k",
         "--plot", "plot.svg"),
    ),
    Question(
        "ci", "fail CI when decode bytes grow by 1 %",
        ("diff", "my_model.py:Block@HEAD", "-b", "16", "-s", "1", *SHAPES, "--fail-above", "bytes=1%"),
    ),
    Question(
        "latency", "latency on an H100",
        ("evaluate", "meta-llama/Llama-3.1-8B", *GPU, "--phase", "decode", "-b", "16", "-c", "8k"),
    ),
    Question(
        "tp", "with tensor parallelism 8",
        ("evaluate", "meta-llama/Llama-3.1-8B", *GPU, "--tp", "8", "--phase", "decode", "-b", "16", "-c", "8k"),
    ),
)  # fmt: skip
"""Nine of the ten, in the order of README.md, which has the same commands. The tenth is typed in Python."""


def prepare(folder: Path) -> None:
    """Put the user's own module into a folder, in a git repository with one commit."""
    (folder / "my_model.py").write_text(MODULE, encoding="utf-8")
    who = ("-c", "user.name=lmp", "-c", "user.email=lmp@example.org", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "my_model.py"), (*who, "commit", "-qm", "a block")):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, stdout=subprocess.DEVNULL)


def ask(question: Question, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a question in a folder that `prepare` made."""
    command = [sys.executable, "-m", "lmp", *question.command, *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def main(names: list[str]) -> int:
    unknown = set(names) - {question.name for question in QUESTIONS}
    if unknown:
        print(f"no question is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        for question in QUESTIONS:
            if names and question.name not in names:
                continue
            begun = time.perf_counter()
            done = ask(question, Path(place))
            seconds = time.perf_counter() - begun
            print(f"\n== {question.text}\n$ lmp {' '.join(question.command)}\n{done.stdout}")
            print(f"{seconds:.1f} s, exit code {done.returncode}")
            if done.returncode:
                failed += 1
                print(done.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
