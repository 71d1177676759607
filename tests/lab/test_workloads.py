"""The workloads of the posts: readers against hand-written text, C programs against one another."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

POSTS = Path(__file__).resolve().parents[2] / "posts"
WORKLOADS = POSTS / "workloads"


def run(*argv: str | Path) -> str:
    return subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=True).stdout


def test_system_calls_are_counted_by_phase(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "7 100.000000 openat(AT_FDCWD, 1) = 3 <0.000010>\n"
        '7 101.000000 write(3, "@@decode\\n", 9) = 9 <0.000010>\n'
        "7 101.500000 futex(0x1, FUTEX_WAKE, 1) = 0 <0.250000>\n"
        "8 102.000000 futex(0x1, FUTEX_WAIT, 1 <unfinished ...>\n"
        "8 102.500000 <... futex resumed>) = 0 <0.500000>\n"
        '7 103.000000 write(3, "@@end\\n", 6) = 6 <0.000010>\n'
        "7 104.000000 exit_group(0) = ?\n"
    )
    rows = run(sys.executable, WORKLOADS / "phases.py", log).splitlines()
    assert rows[0].startswith("@@start  calls=1  threads=1")
    # The marker is no call of the phase; a call that the log interrupts counts once, with its time: 0.25 + 0.5.
    assert rows[2].startswith("@@decode  calls=2  threads=2  seconds=1.000")
    assert rows[3].split() == ["decode", "futex", "calls=2", "in_call_s=0.7500"]


def test_stacks_are_cut_at_a_frame_and_rare_ones_summed(tmp_path: Path) -> None:
    folded = tmp_path / "folded"
    folded.write_text("main;step;mm 3\nmain;other 9\nmain;warm;step;mm 2\nmain;step;cat 1\nmain;step;mul 1\n")
    assert run(sys.executable, WORKLOADS / "folded.py", folded, "step").splitlines() == [
        "step;mm 5",
        "[stacks seen once] 2",
    ]


def test_flops_of_an_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKLOADS))
    from isa import Instruction

    expected = {
        "FFMA R1, R2, R3, R4": 64,  # 32 threads, a multiplication and an addition
        "@P0 FADD R1, R2, R3": 32,
        "HMMA.16816.F32 R4, R8, R12, R4": 4096,  # 2 x 16 x 8 x 16
        "HGMMA.64x128x16.F32 R24, gdesc[UR4], R24": 65536,  # 2 x 64 x 128 x 16, of four warps
        "LDG.E R1, desc[UR4][R2.64]": 0,
        "vfmadd231ps -0x80(%rdx),%zmm2,%zmm8": 32,  # 16 lanes
        "vfmadd231ss (%rax),%xmm1,%xmm2": 2,
        "vaddps %ymm0,%ymm1,%ymm2": 8,
        "vmovups (%rax),%ymm0": 0,
    }
    assert {text: Instruction(0, text).flops for text in expected} == expected


def test_hot_loop_is_the_inner_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKLOADS))
    from isa import Instruction, hot_loop

    body = [
        Instruction(0x00, "MOV R1, RZ"),
        Instruction(0x10, "MOV R2, RZ"),
        Instruction(0x20, "FFMA R1, R2, R3, R1"),
        Instruction(0x30, "@P0 BRA 0x20"),
        Instruction(0x40, "@P1 BRA 0x10"),
        Instruction(0x50, "EXIT"),
    ]
    assert [each.address for each in hot_loop(body)] == [0x20, 0x30]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_versions_of_a_product_and_of_attention_agree(tmp_path: Path) -> None:
    for name in ("matmul", "attention"):
        run("gcc", "-O2", "-Wall", "-Werror", "-o", tmp_path / name, WORKLOADS / f"{name}.c", "-lm")
    versions = ("ijk", "jki", "ikj", "tiled", "vector", "packed")
    products = {json.loads(run(tmp_path / "matmul", each, "64", "1"))["sum"] for each in versions}
    # a[i] = i % 7 - 3 and b[i] = i % 5 - 2. The sum over C is the sum over k of (column sum of A) x (row sum of B).
    n = 64
    columns = [sum((i * n + k) % 7 - 3 for i in range(n)) for k in range(n)]
    rows = [sum((k * n + j) % 5 - 2 for j in range(n)) for k in range(n)]
    assert products == {sum(c * r for c, r in zip(columns, rows, strict=True))}
    sums = [json.loads(run(tmp_path / "attention", each, "200", "64", "1"))["sum"] for each in ("naive", "tiled")]
    assert sums[0] == pytest.approx(sums[1], abs=1e-3)
    assert sums[0] != 0


def test_gpu_script_lists_every_capture_that_needs_a_gpu() -> None:
    wanted = [
        f"{file.parent.name}/{name} "
        for file in sorted(POSTS.glob("*/lab.toml"))
        for name, rule in tomllib.loads(file.read_text(encoding="utf-8")).get("capture", {}).items()
        if rule.get("needs") == "gpu"
    ]
    listed = [line for line in run(sys.executable, WORKLOADS / "gpu.py", "--dry-run").splitlines() if "limit" in line]
    assert wanted
    assert [line[: len(start)] for line, start in zip(listed, wanted, strict=True)] == wanted
