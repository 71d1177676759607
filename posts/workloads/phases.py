"""Count the system calls of a strace log by phase: phases.py LOG, of `strace -f -ttt -T -o LOG ...`.

A phase goes from one marker (`@@name`) to the next. Waiting calls of several threads overlap: their times add up to
more than the phase.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict

LINE = re.compile(r"^(?P<pid>\d+)\s+(?P<at>\d+\.\d+) (?P<call>\w+)\(.*?(?:<(?P<took>\d+\.\d+)>)?$")
RESUMED = re.compile(r"^(?P<pid>\d+)\s+\d+\.\d+ <\.\.\. (?P<call>\w+) resumed>.*?<(?P<took>\d+\.\d+)>$")
MARKER = re.compile(r'write\(\d+, "@@(\w+)\\n"')
SHOWN = 8


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: phases.py LOG")
    phase, order = "start", ["start"]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    took: dict[str, Counter[str]] = defaultdict(Counter)
    threads: dict[str, set[str]] = defaultdict(set)
    times: dict[str, list[float]] = defaultdict(list)
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            line = line.rstrip("\n")
            marker = MARKER.search(line)
            if marker:
                phase = marker[1]
                order.append(phase)
            found, resumed = LINE.match(line), RESUMED.match(line)
            if found:
                if not marker:
                    counts[phase][found["call"]] += 1
                threads[phase].add(found["pid"])
                times[phase].append(float(found["at"]))
            took_by = found or resumed
            if took_by and took_by["took"]:
                took[phase][took_by["call"]] += float(took_by["took"])
    for phase in dict.fromkeys(order):
        seconds = times[phase][-1] - times[phase][0] if times[phase] else 0
        total = sum(counts[phase].values())
        print(f"@@{phase}  calls={total}  threads={len(threads[phase])}  seconds={seconds:.3f}")
        for call, count in counts[phase].most_common(SHOWN):
            print(f"  {phase:<8} {call:<18} calls={count:<7} in_call_s={took[phase][call]:.4f}")


if __name__ == "__main__":
    main()
