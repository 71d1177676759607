"""Stacks of a perf.data file as folded lines, `frame;frame count`: stacks.py FILE.

A frame without a symbol is named by its library, since torch's libgomp has none; a frame that repeats is written once.
Stacks that were seen once are one line, their sum.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(([^)]*)\)$")
HEADER = re.compile(r"^(\S.*?)\s+\d+.*:\s*$")
LONGEST = 60


def named(symbol: str, library: str) -> str:
    if symbol == "[unknown]":
        return f"[{library.rsplit('/', 1)[-1].strip('[]')}]"
    return symbol.split("(")[0].replace(";", ":")[:LONGEST]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: stacks.py FILE")
    fields = "comm,tid,time,ip,sym,dso,symoff"
    done = subprocess.run(["perf", "script", "-i", sys.argv[1], "-F", fields], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    stacks: Counter[str] = Counter()
    for block in done.stdout.split("\n\n"):
        lines = block.strip("\n").splitlines()
        header = HEADER.match(lines[0]) if lines else None
        found = [FRAME.match(line) for line in lines[1:]]
        names = [named(frame[1], frame[2]) for frame in reversed(found) if frame]
        names = [name for at, name in enumerate(names) if at == 0 or name != names[at - 1]]
        if header and names:
            stacks[";".join([header[1], *names])] += 1
    for stack, count in stacks.most_common():
        if count > 1:
            print(stack, count)
    once = sum(count for count in stacks.values() if count == 1)
    if once:
        print("[stacks seen once]", once)


if __name__ == "__main__":
    main()
