"""Decode with two threads and a rising spin count of libgomp: spin_sweep.py [COUNT ...].

Each count is run twice. The first run has no tracer and gives the times. In the second, bpftrace counts between the markers
@@decode and @@end what the process asks of the kernel: system calls, futex calls, sleeps, the CPU taken away from it, and
the parallel regions that torch opens (a uprobe on GOMP_parallel). Prints one line a count.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def run(argv: list[str], count: int) -> tuple[dict[str, Any], str]:
    """The program's line of the decode steps, and all that was printed."""
    env = {**os.environ, "OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": str(count)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"phase": "decode"')]
    if done.returncode or not rows:
        sys.exit((done.stderr or done.stdout).strip().splitlines()[-1])
    return rows[0], done.stdout


def measured(count: int) -> str:
    decode = [sys.executable, str(WORKLOADS / "decode.py"), "--steps", str(STEPS), "--threads", "2"]
    untraced, _ = run(decode, count)
    traced, printed = run(["bpftrace", "-e", program(), "-c", " ".join(decode)], count)
    seen = {name: int(number) for name, number in re.findall(r"^@(\w+): (\d+)$", printed, re.M)}
    per_step = " ".join(
        f"{name}={seen.get(name, 0) / STEPS:.3f}" for name in ("calls", "futex", "slept", "preempted", "regions")
    )
    times = f"step_ms={untraced['median_ms']} cpu_ms={untraced['cpu_ms']} traced_ms={traced['median_ms']}"
    return f"spin={count} {times} {per_step}"


def main() -> None:
    for count in [int(word) for word in sys.argv[1:]] or COUNTS:
        print(measured(count), flush=True)


if __name__ == "__main__":
    main()
