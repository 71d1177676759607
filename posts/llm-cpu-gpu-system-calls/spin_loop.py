"""Machine code around the addresses of libgomp that perf sampled most: spin_loop.py FILE, of `perf record`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

BEFORE, BEHIND = 3, 14
"""Instructions that are shown around each address."""


def printed(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[-1])
    return done.stdout


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: spin_loop.py FILE")
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        sys.exit("torch: not installed; pip install 'lmp[engine]'")
    library = Path(torch.origin).parent / "lib" / "libgomp.so.1"
    report = printed("perf", "report", "--stdio", "--no-children", "-g", "none", "--percent-limit", "3", "-i", sys.argv[1])
    sampled = [int(found, 16) for found in re.findall(r"libgomp\S*\s+\[\.\] (0x[0-9a-f]+)", report)]
    if not sampled:
        sys.exit("no address of libgomp has 3 per cent of the samples: the threads did not spin, or libgomp has symbols")
    code = re.findall(r"^ +([0-9a-f]+):\t(.*)$", printed("objdump", "-d", "--no-show-raw-insn", str(library)), re.M)
    places = {int(address, 16): number for number, (address, _) in enumerate(code)}
    for address in sampled:
        if address not in places:
            sys.exit(f"{address:#x} is no instruction of {library.name}")
        print(f"@@{library.name}, around {address:#x}")
        first = places[address] - BEFORE
        for where, instruction in code[first : places[address] + BEHIND]:
            print(f"{'=>' if int(where, 16) == address else '  '} {where}:  {instruction.split('#')[0].strip()}")


if __name__ == "__main__":
    main()
