"""Stacks of a perf.data file as folded lines, `frame;frame count`: folded.py FILE. Addresses without a name are [unknown]."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(([^)]*)\)$")
HEADER = re.compile(r"^(\S.*?)\s+\d+.*:\s*$")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: folded.py FILE")
    done = subprocess.run(
        ["perf", "script", "-i", sys.argv[1], "-F", "comm,tid,time,ip,sym,dso,symoff"],
        capture_output=True,
        text=True,
        check=False,
    )
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
    for stack, count in stacks.most_common():
        print(stack, count)


if __name__ == "__main__":
    main()
