"""Decode with two threads and a rising spin count of libgomp: spin_sweep.py [COUNT ...].

bpftrace counts, between the markers @@decode and @@end only, what the process asks of the kernel: system calls, futex
calls, the CPU taken away from it, and the parallel regions that torch opens (a uprobe on GOMP_parallel).
Prints one line a count.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parent.parent / "workloads"
COUNTS = (0, 1_000, 10_000, 100_000, 300_000)
STEPS = 16


def library() -> Path:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit("torch: not installed; pip install 'lmp[engine]'")
    return Path(found.origin).parent / "lib" / "libgomp.so.1"


def program() -> str:
    marker = "tracepoint:syscalls:sys_enter_write /pid == cpid/"
    return "\n".join(
        (
            f'{marker} {{ $text = str(args->buf); if (strncmp($text, "@@decode", 8) == 0) {{ @on = 1; }}',
            'if (strncmp($text, "@@end", 5) == 0) { @on = 0; } }',
            "tracepoint:raw_syscalls:sys_enter /@on && pid == cpid/ { @calls = count(); }",
            "tracepoint:syscalls:sys_enter_futex /@on && pid == cpid/ { @futex = count(); }",
            "tracepoint:sched:sched_switch /@on && pid == cpid && args->prev_state != 0/ { @slept = count(); }",
            "tracepoint:sched:sched_switch /@on && pid == cpid && args->prev_state == 0/ { @preempted = count(); }",
            f"uprobe:{library()}:GOMP_parallel /@on && pid == cpid/ {{ @regions = count(); }}",
        )
    )


def measured(count: int) -> str:
    decode = f"{sys.executable} {WORKLOADS / 'decode.py'} --steps {STEPS} --threads 2"
    env = {**os.environ, "OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": str(count)}
    done = subprocess.run(
        ["bpftrace", "-e", program(), "-c", decode], env=env, capture_output=True, text=True, check=False
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"phase": "decode"')]
    if done.returncode or not rows:
        sys.exit((done.stderr or done.stdout).strip().splitlines()[-1])
    seen = {name: int(number) for name, number in re.findall(r"^@(\w+): (\d+)$", done.stdout, re.M)}
    per_step = " ".join(
        f"{name}={seen.get(name, 0) / STEPS:.3f}" for name in ("calls", "futex", "slept", "preempted", "regions")
    )
    return f"spin={count} step_ms={rows[0]['median_ms']} least_ms={rows[0]['min_ms']} {per_step}"


def main() -> None:
    for count in [int(word) for word in sys.argv[1:]] or COUNTS:
        print(measured(count), flush=True)


if __name__ == "__main__":
    main()
