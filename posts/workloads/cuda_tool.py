"""Run a tool of the CUDA toolkit from PATH, from NVIDIA's wheels or from triton's: cuda_tool.py NAME ARGUMENTS."""

from __future__ import annotations

import os
import shutil
import site
import sys
from pathlib import Path

FOLDERS = ("nvidia/cu*/bin", "nvidia/*/bin", "triton/backends/nvidia/bin")


def find(name: str) -> str | None:
    """The tool's path; None if it is nowhere."""
    on_path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    packages = [Path(folder) for folder in (*site.getsitepackages(), *sys.path) if folder]
    wheels = [str(file) for base in packages for pattern in FOLDERS for file in base.glob(f"{pattern}/{name}")]
    return on_path or next(iter(wheels), None)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: cuda_tool.py NAME ARGUMENTS")
    tool = find(sys.argv[1])
    if tool is None:
        print(f"{sys.argv[1]}: not found; pip install 'lmp[lab]' has cuobjdump and nvdisasm", file=sys.stderr)
        sys.exit(127)
    os.execv(tool, [tool, *sys.argv[2:]])


if __name__ == "__main__":
    main()
