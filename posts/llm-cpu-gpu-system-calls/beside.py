"""Run a program beside busy neighbours: beside.py N PROGRAM [ARGUMENT ...].

Each neighbour is one endless loop in a session of its own, so that the scheduler gives it a share of its own. The
neighbours end with the program, and also if this script is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

NOT_FOUND = 127
"""Exit code of shells for a program that is not there; the lab names its package then."""


def neighbour() -> int:
    """Start one. Returns its process id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    os.setsid()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass
    os._exit(0)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("usage: beside.py N PROGRAM [ARGUMENT ...]")
    busy = [neighbour() for _ in range(int(sys.argv[1]))]
    try:
        done = subprocess.run(sys.argv[2:], check=False)
    except OSError as error:
        print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_FOUND)
    finally:
        for each in busy:
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)
    sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


if __name__ == "__main__":
    main()
