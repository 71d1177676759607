"""Ten questions of engineers and planners, each one command: run them, and say how long each took.

    python scripts/ten_questions.py            # all
    python scripts/ten_questions.py fit diff   # some, by name
    python scripts/ten_questions.py --venv DIR # seconds of those that need no torch, by the lmp of another environment

With --venv each is run three times, and the least is printed: wall clock, and processor time of the command and what it
starts. Make the environment by `python -m venv DIR && DIR/bin/pip install .`: it has no torch then.
The answers are held against arithmetic in tests/cli/test_ten_questions.py. The tenth is asked from a notebook,
whose own test executes it.
"""

from __future__ import annotations

import argparse
import os
import resource
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
    of_own_module: bool = False
    """Whether a module of the user's is executed, which takes torch."""


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
        of_own_module=True,
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
        of_own_module=True,
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


FURTHER = (
    Question(
        "memory", "does it fit, by lmp memory",
        ("memory", "meta-llama/Llama-3.1-70B", "-b", "8", "-c", "128k", *GPU),
    ),
    Question(
        "predict", "the time of an engine's step, by lmp predict",
        ("predict", "Qwen/Qwen3-30B-A3B", "--phase", "decode", "-b", "16", "-c", "8k", *GPU, "--engine", "vllm",
         "--dtype", "w8a16"),
    ),
    Question(
        "tp-experts", "with tensor parallelism 8, of a mixture of experts",
        ("evaluate", "Qwen/Qwen3-30B-A3B", "--phase", "decode", "-b", "16", "-c", "8k", *GPU, "--tp", "8"),
    ),
)  # fmt: skip
"""Commands whose seconds are told beside the questions'."""
RUNS = 3


def prepare(folder: Path) -> None:
    """Put the user's own module into a folder, in a git repository with one commit."""
    (folder / "my_model.py").write_text(MODULE, encoding="utf-8")
    who = ("-c", "user.name=lmp", "-c", "user.email=lmp@example.org", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "my_model.py"), (*who, "commit", "-qm", "a block")):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, stdout=subprocess.DEVNULL)


def ask(
    question: Question, folder: Path, *more: str, python: str = sys.executable, fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the command of a question in a folder that `prepare` made. ``fresh``: as one who has no results yet."""
    command = [python, "-m", "lmp", *question.command, *more]
    environment = dict(os.environ)
    if fresh:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LMP_", "XDG_", "PYTHON"))}
        environment = {**kept, "HOME": str(folder), "LMP_SETTINGS": os.devnull}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@dataclass(frozen=True)
class Seconds:
    """The least of several runs."""

    wall: float
    processor: float
    """Of the command and of what it starts."""


def seconds(question: Question, folder: Path, python: str, runs: int = RUNS) -> Seconds:
    """How long a question takes. Raises CalledProcessError for a command that fails."""
    found = []
    for _ in range(runs):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = ask(question, folder, python=python, fresh=True)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        done.check_returncode()
        found.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return Seconds(min(wall for wall, _ in found), min(used for _, used in found))


def time_all(questions: list[Question], python: str) -> int:
    """Print the seconds of each question, and how busy the machine is; what the environment lacks, in place of them."""
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        print(f"least of {RUNS} runs; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        print(f"{'wall s':>8} {'CPU s':>8}  question")
        for question in questions:
            try:
                took = seconds(question, Path(place), python)
            except subprocess.CalledProcessError as error:
                why = next((line for line in error.stderr.splitlines() if line.startswith("error: ")), error.stderr)
                print(f"{'-':>8} {'-':>8}  {question.text}: {why}")
                continue
            print(f"{took.wall:8.2f} {took.processor:8.2f}  {question.text}")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="questions, by name [default: all]")
    parser.add_argument("--venv", type=Path, metavar="DIR", help="time them with the lmp of this environment")
    given = parser.parse_args(arguments)
    names = given.names
    known = QUESTIONS if given.venv is None else (*QUESTIONS, *FURTHER)
    unknown = set(names) - {question.name for question in known}
    if unknown:
        print(f"no question is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if given.venv is not None:
        timed = [one for one in known if not one.of_own_module and (not names or one.name in names)]
        return time_all(timed, str(given.venv.absolute() / "bin" / "python"))
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
