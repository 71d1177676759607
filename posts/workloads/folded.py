"""Stacks as folded lines, `frame;frame count`.

folded.py FILE           of a perf.data file
folded.py FILE FRAME     of a folded file (py-spy -f raw), only stacks that hold FRAME, from there on

Stacks that were seen once are one line, their sum.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(([^)]*)\)$")
HEADER = re.compile(r"^(\S.*?)\s+\d+.*:\s*$")


def of_perf(file: str) -> Counter[str]:
    """Stacks of a perf.data file."""
    fields = "comm,tid,time,ip,sym,dso,symoff"
    done = subprocess.run(["perf", "script", "-i", file, "-F", fields], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    stacks: Counter[str] = Counter()
    for block in done.stdout.split("\n\n"):
        lines = block.strip("\n").splitlines()
        header = HEADER.match(lines[0]) if lines else None
        frames = [FRAME.match(line) for line in lines[1:]]
        names = [found[1].split("(")[0].replace(";", ":") for found in frames if found]
        if header and names:
            stacks[";".join([header[1], *reversed(names)])] += 1
    return stacks


def of_text(file: str, root: str) -> Counter[str]:
    """Stacks of a folded file that hold the frame `root`, from that frame on."""
    stacks: Counter[str] = Counter()
    for line in Path(file).read_text(encoding="utf-8", errors="replace").splitlines():
        stack, _, count = line.rpartition(" ")
        start = stack.find(root)
        if start >= 0 and count.isdecimal():
            stacks[stack[start:]] += int(count)
    return stacks


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: folded.py FILE [FRAME]")
    stacks = of_perf(sys.argv[1]) if len(sys.argv) == 2 else of_text(sys.argv[1], sys.argv[2])
    once = sum(count for count in stacks.values() if count == 1)
    for stack, count in stacks.most_common():
        if count > 1:
            print(stack, count)
    if once:
        print("[stacks seen once]", once)


if __name__ == "__main__":
    main()
