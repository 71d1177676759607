"""Counts the configurations of autotuned kernels by the text of the lists: lengths are multiplied.

What has a condition in it, or a name that is not one plain list of this file or of one that is imported, counts once:
lmp.codebase gives its expression.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from recon_counters import PythonFile, outside_brackets, split

TUNER = re.compile(r"(?:^[ \t]*@?|=\s*)(?:[\w.]*\.)?\w*autotune\w*\(", re.MULTILINE)
PLAIN = re.compile(r"-?[\d_]+|'[^']*'|\((?:\s*-?[\d_]+\s*,?)+\)")

BY_HAND = {
    # Sixteen tiles of block_t in 1..128 by block_d in 128, 256. tile <= 256: (1, 128), (1, 256), (2, 128), two warps
    # each. tile <= 4096: block_t 4..32 of 128 and 2..16 of 256, eight tiles, two warps each. The other five: one.
    # Three stages.
    "_conv_prefix_autotune_configs": (3 * 2 + 8 * 2 + 5 * 1) * 3,
}
"""Functions with loops and branches, worked out from their source."""


@dataclass
class Repository:
    files: dict[str, PythonFile]

    def configs(self, file: PythonFile) -> int:
        return sum(self.listed(file, given) for given in self.tuners(file))

    def tuners(self, file: PythonFile) -> list[str]:
        """What each autotuner of a kernel is given to choose from."""
        found = []
        if not (file.has("triton") and file.has("autotune")):
            return found
        if "triton" not in file.code or "autotune" not in file.code:
            return found
        for match in TUNER.finditer(file.code):
            end = file.bracket(match.end() - 1)
            decorates = re.match(r"\s*(?:@[^\n]*(?:\([^@]*\))?\s*)*?@(?:triton|gluon)\.jit\b", file.code[end:])
            called = re.match(r"\(\s*\w+\s*\)", file.code[end:])
            if not decorates and not called:
                continue
            arguments = [part.strip() for part in split(file.code[match.end() : end - 1])]
            named = [part.split("=", 1)[1].strip() for part in arguments if re.match(r"configs\s*=", part)]
            found.append(named[0] if named else arguments[0])
        return found

    def listed(self, file: PythonFile, text: str) -> int:
        text = text.strip()
        while text[:1] == "(" and _closes(text) and len(split(text[1:-1])) == 1:
            text = text[1:-1].strip()
        outside = outside_brackets(text)
        if re.search(r"\bif\b", outside):
            return 1
        if text[:1] == "[" and _closes(text):
            inner = text[1:-1]
            if re.search(r"\bfor\b", outside_brackets(inner)):
                return self.comprehension(file, inner)
            parts = [part.strip() for part in split(inner)]
            return sum(self.listed(file, part[1:]) if part[0] == "*" else 1 for part in parts if part)
        plus = [at for at, letter in enumerate(outside) if letter == "+"]
        if plus:
            return self.listed(file, text[: plus[0]]) + self.listed(file, text[plus[0] + 1 :])
        if re.fullmatch(r"\w+", text):
            constant = self.constant(file, text)
            return 1 if constant is None else self.listed(*constant)
        if call := re.fullmatch(r"(\w+)\(\s*\)", text):
            return self.function(file, call[1])
        return 1

    def comprehension(self, file: PythonFile, inner: str) -> int:
        outside = outside_brackets(inner)
        if re.search(r"\bif\b", outside):
            return 1
        marks = [match.start() for match in re.finditer(r"\bfor\b", outside)] + [len(inner)]
        total = 1
        for start, end in itertools.pairwise(marks):
            size = self.size(file, inner[start:end].split(" in ", 1)[1])
            if size is None:
                return 1
            total *= size
        return total

    def size(self, file: PythonFile, text: str) -> int | None:
        """How many elements a plain list has; None where it is none."""
        text = text.strip().rstrip(",")
        if text[:1] in "[(" and _closes(text):
            parts = [part.strip() for part in split(text[1:-1]) if part.strip()]
            names = all(PLAIN.fullmatch(part) or self.is_number(file, part) for part in parts)
            return len(parts) if names else None
        if re.fullmatch(r"\w+", text):
            constant = self.constant(file, text)
            return None if constant is None else self.size(*constant)
        return None

    def is_number(self, file: PythonFile, text: str) -> bool:
        constant = self.constant(file, text) if re.fullmatch(r"[A-Za-z_]\w*", text) else None
        return constant is not None and PLAIN.fullmatch(constant[1]) is not None

    def constant(self, file: PythonFile, name: str) -> tuple[PythonFile, str] | None:
        """What a name is set to, once and for all, in the file or in one that it is imported from."""
        found = list(re.finditer(rf"^{name}[ \t]*(?::[^=\n]+)?=(?!=)[ \t]*", file.code, re.MULTILINE))
        inside = re.findall(rf"^[ \t]+(?:global {name}\b|{name}[ \t]*=(?!=)[^\n]*(?<!,)$)", file.code, re.MULTILINE)
        if len(found) == 1 and not any("global" in each for each in inside):
            return file, _statement(file, found[0].end())
        taken = re.search(rf"^from\s+(\S+)\s+import\s+(?:\([^)]*|[^\n(]*)\b{name}\b", file.code, re.MULTILINE)
        if found or taken is None:
            return None
        other = self.module(taken[1])
        return None if other is None else self.constant(other, name)

    def module(self, dotted: str) -> PythonFile | None:
        path = dotted.replace(".", "/")
        return self.files.get(f"{path}.py") or self.files.get(f"{path}/__init__.py")

    def function(self, file: PythonFile, name: str) -> int:
        """One that only returns a list; by hand where it does more; once where that hangs on something."""
        if name in BY_HAND:
            return BY_HAND[name]
        for found, _, start, end in file.functions:
            if found == name:
                body = re.sub(r"^\s*:\s*(?:'[^']*')?", "", file.code[file.code.index(":", start) : end]).strip()
                if body.startswith("return"):
                    return self.listed(file, body.removeprefix("return"))
        return 1


def _closes(text: str) -> bool:
    """The first bracket is closed by the last character."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if not depth:
            return at == len(text) - 1
    return False


def _statement(file: PythonFile, at: int) -> str:
    """To the end of the line at which all brackets are closed."""
    depth, end = 0, at
    while end < len(file.code) and (depth or file.code[end] != "\n"):
        depth += (file.code[end] in "([{") - (file.code[end] in ")]}")
        end += 1
    return file.code[at:end].strip()
