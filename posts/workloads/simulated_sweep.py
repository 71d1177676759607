"""Simulated cache misses of attention.c by number of tokens: simulated_sweep.py PROGRAM VARIANT TOKENS... [-- VALGRIND OPTIONS].

Prints one JSON line a number of tokens. A score is one pair of a query and a key.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD_SIZE = "64"
COUNTS = {
    "ir": re.compile(r"Collected : (\d+)"),
    "d1": re.compile(r"D1  misses:\s+([\d,]+)"),
    "ll": re.compile(r"LLd misses:\s+([\d,]+)"),
}


def counted(program: str, variant: str, tokens: str, options: list[str]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        out = f"--callgrind-out-file={Path(folder) / 'out'}"
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", *options, out]
        command += [program, variant, tokens, HEAD_SIZE, "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {name: pattern.search(done.stderr) for name, pattern in COUNTS.items()}
    missing = [name for name, match in found.items() if match is None]
    if done.returncode or missing:
        sys.exit(f"valgrind ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return {name: int(match[1].replace(",", "")) for name, match in found.items() if match}


def main() -> None:
    words, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    program, variant, *tokens = words.split() if words.strip() else ["", ""]
    if not tokens:
        sys.exit("usage: simulated_sweep.py PROGRAM VARIANT TOKENS... [-- VALGRIND OPTIONS]")
    for t in tokens:
        counts = counted(program, variant, t, options.split())
        a_score = round(counts["d1"] / int(t) ** 2, 4), round(counts["ll"] / int(t) ** 2, 4)
        row = {"variant": variant, "T": int(t), **counts, "d1_score": a_score[0], "ll_score": a_score[1]}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
