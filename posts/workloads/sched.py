"""Time of a process's threads on and off the CPU: sched.py FILE PART, of `perf sched record`.

PART is in the command line that was recorded. perf sched sees all processes of the machine; only those threads are
printed. preempted: runnable, while another task had the CPU; delay: woken, but not yet running; asleep: the rest.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass

SWITCH = re.compile(
    r"^\s*[\d.]+ \[\d+\]\s+(?P<task>.+?)\s+(?P<wait>[\d.]+)\s+(?P<delay>[\d.]+)\s+(?P<run>[\d.]+)\s+(?P<state>\S+)\s*$"
)
TASK = re.compile(r"\[(\d+)(?:/(\d+))?\]$")
LEAST_RUN_MS = 1


@dataclass
class Thread:
    process: int
    switches: int = 0
    run: float = 0
    delay: float = 0
    preempted: float = 0
    asleep: float = 0
    longest: float = 0
    """Longest time that the thread was preempted or delayed."""
    was_running: bool = False
    """It was runnable when it last left the CPU."""


def perf(*arguments: str) -> str:
    done = subprocess.run(["perf", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[-1])
    return done.stdout


def process_of(file: str, part: str) -> int:
    """The process that was recorded: the first that the file shows as started with exec."""
    text = perf("script", "-i", file, "--show-task-events", "-F", "comm,pid,tid,time,event")
    found = re.search(r"PERF_RECORD_COMM exec: \S+:(\d+)/\d+", text)
    if found is None:
        sys.exit(f"{part}: the file shows no process that was started")
    return int(found[1])


def threads(file: str, process: int) -> dict[int, Thread]:
    found: dict[int, Thread] = {}
    for line in perf("sched", "timehist", "--state", "-i", file).splitlines():
        switch = SWITCH.match(line)
        task = TASK.search(switch["task"]) if switch else None
        if switch is None or task is None:
            continue
        thread, owner = int(task[1]), int(task[2] or task[1])
        if owner != process:
            continue
        times = found.setdefault(thread, Thread(owner))
        times.switches += 1
        times.run += float(switch["run"])
        times.delay += float(switch["delay"])
        off = float(switch["wait"])
        times.preempted += off if times.was_running else 0
        times.asleep += 0 if times.was_running else off
        times.longest = max(times.longest, float(switch["delay"]), off if times.was_running else 0)
        times.was_running = switch["state"].startswith("R")
    return found


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: sched.py FILE PART")
    process = process_of(sys.argv[1], sys.argv[2])
    found = threads(sys.argv[1], process)
    busy = sorted((item for item in found.items() if item[1].run >= LEAST_RUN_MS), key=lambda item: -item[1].run)
    print(
        f"{'thread':<10}{'switches':>9}{'run_ms':>11}{'preempted_ms':>14}{'delay_ms':>10}{'asleep_ms':>11}{'longest_ms':>12}"
    )
    workers = 0
    for thread, times in busy:
        workers += thread != process
        name = "main" if thread == process else "worker" if workers == 1 else f"other{workers - 1}"
        row = f"{name:<10}{times.switches:>9}{times.run:>11.1f}{times.preempted:>14.1f}{times.delay:>10.1f}"
        print(f"{row}{times.asleep:>11.1f}{times.longest:>12.2f}")


if __name__ == "__main__":
    main()
