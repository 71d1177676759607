"""Count the matrix products that torch's dispatcher runs, with a uprobe: count_calls.py SCRIPT ARGUMENTS.

bpftrace prints one number for each operator of OPERATORS.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

OPERATORS = ("mm", "linear", "scaled_dot_product_attention", "embedding")


def library() -> Path:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit("torch: not installed; pip install 'lmp[engine]'")
    return Path(found.origin).parent / "lib" / "libtorch_cpu.so"


def probe(operator: str) -> str:
    """Entry of at::_ops::OPERATOR::call, by the start of its mangled name."""
    symbol = f"_ZN2at4_ops{len(operator)}{operator}4callE*"
    return f'uprobe:{library()}:{symbol} /pid == cpid/ {{ @calls["{operator}"] = count(); }}'


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: count_calls.py SCRIPT ARGUMENTS")
    command = " ".join([sys.executable, *sys.argv[1:]])
    program = "\n".join(probe(operator) for operator in OPERATORS)
    os.execvp("bpftrace", ["bpftrace", "-e", program, "-c", command])


if __name__ == "__main__":
    main()
