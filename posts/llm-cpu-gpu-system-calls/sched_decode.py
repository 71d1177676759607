"""Time of a process's threads on and off the CPU in the decode steps: sched_decode.py FILE, of `perf sched record`.

The recording holds the markers too: writes to descriptor 3. The last of nine bytes is `@@decode`, the next of six bytes
`@@end`. perf sched sees all processes of the machine; only the threads of decode.py are printed.
preempted: runnable, while another task had the CPU; delay: woken, but not yet running; asleep: the rest.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))
from sched import SWITCH, TASK, Thread, perf, process_of  # noqa: E402

MARKER = re.compile(r"^\s*\S.*?\s(?P<process>\d+)/\d+\s+(?P<at>[\d.]+): .*sys_enter_write: .*count: 0x0*(?P<size>[0-9a-f]+)$")
LEAST_RUN_MS = 1


def phase(file: str, process: int) -> tuple[str, str]:
    """When the decode steps began and ended."""
    found = [MARKER.match(line) for line in perf("script", "-i", file, "-F", "comm,pid,tid,time,event,trace").splitlines()]
    own = [(int(each["size"], 16), each["at"]) for each in found if each and int(each["process"]) == process]
    starts = [at for size, at in own if size == len("@@decode\n")]
    ends = [at for size, at in own if size == len("@@end\n")]
    if not starts or not ends:
        sys.exit("the file does not have the markers of the decode steps")
    return starts[-1], ends[-1]


def threads(file: str, process: int, start: str, end: str) -> dict[int, Thread]:
    found: dict[int, Thread] = {}
    for line in perf("sched", "timehist", "--state", "--time", f"{start},{end}", "-i", file).splitlines():
        switch = SWITCH.match(line)
        task = TASK.search(switch["task"]) if switch else None
        if switch is None or task is None or int(task[2] or task[1]) != process:
            continue
        # A thread that runs or is runnable when the steps begin has no earlier switch here: it counts as runnable.
        times = found.setdefault(int(task[1]), Thread(process, was_running=True))
        off, delay = float(switch["wait"]), float(switch["delay"])
        times.switches += 1
        times.run += float(switch["run"])
        times.delay += delay
        times.preempted += off if times.was_running else 0
        times.asleep += 0 if times.was_running else off
        times.longest = max(times.longest, delay, off if times.was_running else 0)
        times.was_running = switch["state"].startswith("R")
    return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: sched_decode.py FILE")
    file = sys.argv[1]
    process = process_of(file, file)
    start, end = phase(file, process)
    found = threads(file, process, start, end)
    print(f"decode steps: {1000 * (float(end) - float(start)):.1f} ms")
    print(f"{'thread':<8}{'switches':>9}{'run_ms':>10}{'preempted_ms':>14}{'delay_ms':>10}{'asleep_ms':>11}{'longest_ms':>12}")
    for thread, times in sorted(found.items()):
        if times.run < LEAST_RUN_MS:
            continue
        row = f"{'main' if thread == process else 'worker':<8}{times.switches:>9}{times.run:>10.1f}{times.preempted:>14.1f}"
        print(f"{row}{times.delay:>10.1f}{times.asleep:>11.1f}{times.longest:>12.1f}")


if __name__ == "__main__":
    main()
