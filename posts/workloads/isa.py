"""Read machine code: list a function's hot loop, or count its instructions by kind.

    isa.py loop FILE FUNCTION          instructions of the loop with the most arithmetic
    isa.py histogram FILE...           one row a function: instructions, FLOPs and FLOPs per instruction of that loop

FILE is a cubin (read with cuobjdump) or a program for x86-64 (read with objdump). FLOPs are those of one warp on a GPU,
of one thread on a CPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cuda_tool import find

SASS_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
X86_LINE = re.compile(r"^\s+([0-9a-f]+):\s+(\S.*?)\s*$")
LANES = {"xmm": 4, "ymm": 8, "zmm": 16}
WARP = 32


@dataclass(frozen=True)
class Instruction:
    address: int
    text: str

    @property
    def name(self) -> str:
        """The mnemonic with its modifiers, without a predicate."""
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split()[0]

    @property
    def flops(self) -> int:
        """FLOPs of one warp (SASS) or one thread (x86); a multiplication with an addition counts two."""
        shape = re.match(r"HMMA\.(\d+?)(8|16)(8|16|32)\.", self.name)
        if shape:
            m, n, k = map(int, shape.groups())
            return 2 * m * n * k
        group = re.match(r"HGMMA\.(\d+)x(\d+)x(\d+)\.", self.name)
        if group:  # one instruction for the four warps of a group
            m, n, k = map(int, group.groups())
            return 2 * m * n * k // 4
        if self.name.split(".")[0] == "FFMA":
            return 2 * WARP
        if self.name.split(".")[0] in ("FADD", "FMUL"):
            return WARP
        packed = re.match(r"v(fmadd|add|mul)\w*?(ps|ss)$", self.name)
        if packed:
            register = re.search(r"%([xyz]mm)", self.text)
            lanes = LANES[register[1]] if packed[2] == "ps" and register else 1
            return lanes * (2 if packed[1] == "fmadd" else 1)
        return 0

    def target(self) -> int | None:
        """Address that a branch goes to, if it is in the text."""
        found = re.search(r"\bBRA\b.*?\b0x([0-9a-f]+)", self.text) or re.match(r"j\w+\s+([0-9a-f]+)\b", self.text)
        return int(found[1], 16) if found else None


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{Path(argv[0]).name}: {done.stderr.strip()[:300]}")
    return done.stdout


def functions(file: str) -> dict[str, list[Instruction]]:
    """Function -> its instructions, in the order of the file."""
    if file.endswith(".cubin"):
        tool = find("cuobjdump")
        if tool is None:
            sys.exit("cuobjdump: not found; pip install 'lmp[lab]' has it")
        text, header, line = run([tool, "--dump-sass", file]), re.compile(r"Function : (\w+)"), SASS_LINE
    else:
        text = run(["objdump", "-d", "--no-show-raw-insn", file])
        header, line = re.compile(r"^[0-9a-f]+ <(\w+)>:"), X86_LINE
    found: dict[str, list[Instruction]] = {}
    name = ""
    for row in text.splitlines():
        start, instruction = header.search(row), line.match(row)
        if start:
            name = start[1]
        elif instruction and name:
            found.setdefault(name, []).append(Instruction(int(instruction[1], 16), instruction[2]))
    return found


def hot_loop(body: list[Instruction]) -> list[Instruction]:
    """The loop with the highest share of arithmetic; of nested loops thus the inner one. Empty if there is none."""
    loops = []
    for i, instruction in enumerate(body):
        to = instruction.target()
        if to is not None and body[0].address <= to < instruction.address:
            loops.append([each for each in body[: i + 1] if each.address >= to])
    busy = [loop for loop in loops if any(each.flops for each in loop)]
    return max(busy, key=lambda loop: sum(each.flops for each in loop) / len(loop), default=[])


def kind(instruction: Instruction) -> str:
    name = instruction.name
    if instruction.flops:
        return "tensor" if "MMA." in name else "float"
    if re.match(r"LDG|LDS|STS|LDSM|STG|BAR", name):
        return name.split(".")[0]
    if re.match(r"v?(mov|broadcast|unpck|shuf|perm|insert)\w*", name):
        return "load" if "(" in instruction.text else "move"
    return "other"


KINDS = ("tensor", "float", "LDG", "LDS", "LDSM", "STS", "BAR", "load", "move", "other")


def histogram(files: list[str]) -> None:
    print(f"{'file':<24}{'function':<18}{'all':>5}{'loop':>6}{'flops':>8}{'flops/instr':>13}  kinds in the loop")
    for file in files:
        for name, body in functions(file).items():
            loop = hot_loop(body)
            flops = sum(each.flops for each in loop)
            if not loop:
                continue
            counts = Counter(kind(each) for each in loop)
            row = f"{Path(file).name:<24}{name:<18}{len(body):>5}{len(loop):>6}{flops:>8}{flops / len(loop):>13.2f}"
            print(row + "  " + " ".join(f"{each}={counts[each]}" for each in KINDS if counts[each]))


def main() -> None:
    if len(sys.argv) > 3 and sys.argv[1] == "loop":
        body = functions(sys.argv[2]).get(sys.argv[3])
        if body is None:
            sys.exit(f"{sys.argv[3]}: no such function in the file")
        for instruction in hot_loop(body):
            print(f"{instruction.address:04x}  {instruction.text}")
    elif len(sys.argv) > 2 and sys.argv[1] == "histogram":
        histogram(sys.argv[2:])
    else:
        sys.exit((__doc__ or "").strip())


if __name__ == "__main__":
    main()
