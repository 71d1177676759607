"""Take the captures that need a GPU, of all posts, on a machine without lmp.

    gpu.py --build DIR             compile what they run (where nvcc is); DIR can then be carried to the GPU
    gpu.py --build DIR --out OUT   take the captures; OUT gets ID.txt and ID.json of each, and captures.tar.gz
    gpu.py --dry-run               list the commands

The captures are those of posts/*/lab.toml with `needs = "gpu"`. A refusal or a missing tool is a capture too. Packages
(*.deb, of strace and gdb, say) in DIR/packages are unpacked there and used. Copy a post's files into its captures/.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).resolve().parent
POSTS = WORKLOADS.parent
PROGRAMS = ("matmul", "bandwidth")
ARCHS = (80, 90, 100)
PLACES = ((WORKLOADS.parent.parent, "<repo>"), (Path(sys.prefix), "<venv>"), (Path.home(), "<home>"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build_gpu"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", help="ids of captures")
    parser.add_argument("--dry-run", action="store_true")
    return parser.parse_args()


def steps(only: list[str] | None) -> list[tuple[str, str, dict[str, Any]]]:
    """Post, id and rule of each capture that needs a GPU, in the order of the files."""
    found = []
    for file in sorted(POSTS.glob("*/lab.toml")):
        for name, rule in tomllib.loads(file.read_text(encoding="utf-8")).get("capture", {}).items():
            if rule.get("needs") == "gpu" and (not only or name in only):
                found.append((file.parent.name, name, rule))
    return found


def compile_commands(build: Path) -> list[list[str]]:
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHS]
    return [
        ["nvcc", "-O3", "-lineinfo", *targets, "-o", str(build / f"{each}_gpu"), str(WORKLOADS / "cuda" / f"{each}.cu")]
        for each in PROGRAMS
    ]


def filled(argv: list[str], build: Path, out: Path) -> list[str]:
    places = {"{python}": sys.executable, "{workloads}": str(WORKLOADS), "{build}": str(build), "{out}": str(out)}
    return [re.sub(r"\{\w+\}", lambda match: places.get(match[0], match[0]), word) for word in argv]


def unpack(build: Path) -> dict[str, str]:
    """The environment with the carried packages on PATH."""
    root = build / "unpacked"
    for package in sorted((build / "packages").glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=False)
    libraries = ":".join(str(root / each) for each in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"))
    env = dict(os.environ)
    if root.exists():
        env["PATH"] = f"{env['PATH']}:{root / 'usr/bin'}"
        env["LD_LIBRARY_PATH"] = f"{env.get('LD_LIBRARY_PATH', '')}:{libraries}"
    return env


def redacted(text: str, build: Path) -> str:
    for place, instead in ((build, "<build>"), *PLACES):
        text = text.replace(str(place), instead)
    return text


def first_line(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else None


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def run(argv: list[str], env: dict[str, str], limit: float) -> tuple[str, int | None, str, str]:
    """Output, exit code, status and message of one command."""
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            check=False,
            errors="replace",
        )
    except FileNotFoundError:
        return "", None, "missing", f"{Path(argv[0]).name} is not installed"
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), None, "timed_out", f"stopped after {limit:g} s"
    last = done.stdout.strip().splitlines()[-1:] or [""]
    return done.stdout, done.returncode, "ok" if done.returncode == 0 else "refused", last[0] if done.returncode else ""


def take(name: str, rule: dict[str, Any], build: Path, folder: Path, env: dict[str, str]) -> str:
    """Take one capture and write its two files. Returns its status."""
    scratch = build / f"{name}.out"
    argv = filled(rule["argv"], build, scratch)
    before, start = os.getloadavg(), time.time()
    tool = env.get("PATH") and shutil.which(argv[0], path=env["PATH"])
    pieces = []
    for number in range(1, rule.get("repeat", 1) + 1):
        scratch.unlink(missing_ok=True)
        own = {**env, **rule.get("env", {})}
        text, code, status, message = run([tool or argv[0], *argv[1:]], own, rule.get("limit_s", 120))
        text += "@@out\n" + scratch.read_text(errors="replace") if scratch.exists() else ""
        pieces.append(f"@@run {number}\n{text}" if rule.get("repeat", 1) > 1 else text)
        if status != "ok":
            break
    text = "".join(pieces)
    text = redacted(text, build)[: rule.get("max_bytes", 200_000)]
    workloads = [rule["workload"]] if isinstance(rule.get("workload"), str) else rule.get("workload", [])
    record = {
        "id": name,
        "argv": [redacted(word, build) for word in argv],
        "argv_template": rule["argv"],
        "env": rule.get("env", {}),
        "tool": rule["tool"],
        "tool_version": first_line(rule.get("version") or [argv[0], "--version"]),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": processor(),
        "cpus": os.cpu_count(),
        "threads": int(rule.get("env", {}).get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": first_line(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)),
        "load_before": list(before),
        "load_after": list(os.getloadavg()),
        "exit_code": code,
        "status": status,
        "message": redacted(message, build)[:500],
        "seconds": round(time.time() - start, 3),
        "repeat": len(pieces),
        "left_out": 0,
        "escaped": 0,
        "workload_sha256": {each: hashlib.sha256((WORKLOADS / each).read_bytes()).hexdigest() for each in workloads},
        "redactions": {},
        "output_sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return status


def main() -> None:
    options = arguments()
    build = options.build.resolve()
    found = steps(options.only)
    if options.dry_run:
        for argv in compile_commands(build):
            print("build", " ".join(argv))
        for post, name, rule in found:
            print(f"{post}/{name} (limit {rule.get('limit_s', 120)} s):", " ".join(filled(rule["argv"], build, build)))
        return
    build.mkdir(parents=True, exist_ok=True)
    for each, argv in zip(PROGRAMS, compile_commands(build), strict=True):
        if not (build / f"{each}_gpu").exists():
            subprocess.run(argv, check=True)
    if options.out is None:
        return
    env = unpack(build)
    for post, name, rule in found:
        print(f"{post}/{name}", flush=True)
        print("  " + take(name, rule, build, options.out / post, env), flush=True)
    with tarfile.open(options.out / "captures.tar.gz", "w:gz") as archive:
        for post in dict.fromkeys(post for post, _, _ in found):
            archive.add(options.out / post, arcname=post)


if __name__ == "__main__":
    main()
