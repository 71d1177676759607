"""Measures the effect of the Python build: one family of the zoo, analysed with several builds in rotation, in one run.

    .venv/bin/python benchmarks/pythons.py /usr/bin/python3.11 [PYTHON...] [--family apertus] [--rounds 2]

The first build is the Python of this environment. The others have the same version and use its packages. Ends with 1 if
they produce different entries.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from lmp.zoo.entries import read_summary

SRC = Path(__file__).parents[1] / "src"
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--family", default="apertus")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    own = "{}.{}".format(*sys.version_info[:2])
    for python in given.pythons:
        version = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True).stdout.strip()
        if version != own:
            sys.exit(f"{python} is Python {version}; packages that are compiled for {own} cannot be used with it")
    seconds: dict[str, list[float]] = defaultdict(list)
    found = set()
    for _ in range(given.rounds):
        for python in (sys.executable, *given.pythons):
            began = time.monotonic()
            found.add(entry(python, given.family))
            seconds[python].append(time.monotonic() - began)
    first = min(seconds[sys.executable])
    for python, took in seconds.items():
        print(f"{python}: {', '.join(f'{s:.1f}' for s in took)} s; {first / min(took):.2f} x the first")
    if len(found) == 1:
        return 0
    print("THEY DO NOT COME TO THE SAME ENTRY")
    return 1


def entry(python: str, family: str) -> str:
    """What becomes of a family, less what it took."""
    paths = [str(SRC), sysconfig.get_path("purelib")]
    with tempfile.TemporaryDirectory(prefix="lmp-pythons-") as name:
        folder = Path(name)
        places = ["--results", str(folder / "results"), "--reports", str(folder / "reports")]
        command = [python, "-m", "lmp", "zoo", family, "--task", "causal-lm", "--jobs", "1", "--quiet", *places]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        (made,) = read_summary(folder / "reports" / "zoo" / "causal-lm.json").entries
    return made.model_copy(update={"seconds": 0, "cpu_seconds": 0, "peak_bytes": 0}).model_dump_json()


if __name__ == "__main__":
    sys.exit(main())
