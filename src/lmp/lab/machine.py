"""What a machine is, as far as a measurement depends on it, and snapshots of its counters."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ASK_S = 20
"""Longest wait for a tool's version."""


@dataclass(frozen=True)
class Machine:
    kernel: str
    cpu: str
    cpus: int
    memory: int
    gpu: str | None


def machine() -> Machine:
    return Machine(
        kernel=f"{platform.system()} {platform.release()}",
        cpu=_cpu(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=_gpu(),
    )


def load() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def version_line(argv: Sequence[str]) -> str | None:
    """The line with a version, else the first, of what a short command prints; None if it cannot run."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    # nvcc prints its release on the fourth line.
    return next((line for line in lines if re.search(r"\d\.\d", line)), lines[0])[:200] if lines else None


def _cpu() -> str:
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    found = version_line(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    return found if found is not None and "," in found else None


# --- snapshots -------------------------------------------------------------------------------------------------------

Counters = dict[str, tuple[int, str]]
"""Row -> its count and its description."""


def snapshot(kind: str) -> Counters:
    """The counters of one kind now; empty where the kernel does not have them."""
    return {"interrupts": _interrupts, "loadavg": _loadavg, "psi": _psi}[kind]()


def changes(kind: str, before: Counters, after: Counters) -> list[str]:
    """Lines ``name before after change description`` of the rows that changed, under a line ``@@interrupts``."""
    lines = [f"@@{kind}", "name before after change"]
    for name in dict.fromkeys([*before, *after]):
        (first, what), (last, _) = before.get(name, (0, "")), after.get(name, (0, ""))
        if first != last:
            lines.append(f"{name} {first} {last} {last - first} {what}".rstrip())
    if not before and not after:
        lines.append("not there: the kernel does not have this file")
    return lines


def _interrupts() -> Counters:
    found: Counters = {}
    for line in _lines("/proc/interrupts")[1:]:
        name, _, rest = line.partition(":")
        counts = re.match(r"(?:\s+\d+)*", rest)
        numbers = counts[0].split() if counts else []
        # ERR and MIS have one number, and no processor.
        found[name.strip()] = (sum(map(int, numbers)), " ".join(rest[counts.end() if counts else 0 :].split()))
    return found


def _loadavg() -> Counters:
    return {f"load_{minutes}min_x100": (round(v * 100), "") for minutes, v in zip((1, 5, 15), load(), strict=True)}


def _psi() -> Counters:
    found: Counters = {}
    for resource in ("cpu", "memory", "io"):
        for line in _lines(f"/proc/pressure/{resource}"):
            total = re.search(r"total=(\d+)", line)
            if total:
                found[f"{resource}.{line.split()[0]}"] = (int(total[1]), "microseconds stalled")
    return found


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
