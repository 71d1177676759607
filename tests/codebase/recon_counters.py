"""Counts what stands in a repository apart from lmp.codebase: no syntax tree, only patterns on blanked text.

Comments and the insides of strings are blanked first, every other character stays at its place. The rules of what
counts are those that lmp.codebase documents; how they are applied is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PYTHON_TEXT = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>(?i:\b(?:rb|br|rf|fr|r|b|f|u))?
        (?:'{3}[^\\']*(?:(?:\\.|'(?!''))[^\\']*)*'{3}|"{3}[^\\"]*(?:(?:\\.|"(?!""))[^\\"]*)*"{3}
        |'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"))""",
    re.VERBOSE | re.DOTALL,
)
CPP_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)'""", re.DOTALL)
BRACKET = re.compile(r"[()\[\]{}]")
DEF = re.compile(r"^([ \t]*)(?:async\s+)?def\s+(\w+)\s*\(", re.MULTILINE)


def spaces(text: str) -> str:
    """As long as a text, with its lines."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def blank(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] in "#/":
        return spaces(text)
    # A string keeps its first and last quote, so that it is still seen to be one; the braces of an f-string hold code.
    if "f" in text[:2].lower() and "{" in text:
        parts = re.split(r"(\{[^{}]*\})", text)
        body = "".join(f" {part[1:-1]} " if part[:1] == "{" else spaces(part) for part in parts)
    else:
        body = spaces(text)
    return f"'{body[1:-1]}'"


@dataclass
class PythonFile:
    name: str
    text: str

    @cached_property
    def code(self) -> str:
        return PYTHON_TEXT.sub(blank, self.text)

    def has(self, *words: str) -> bool:
        """Whether one of the words stands in its text. What has none of them in its text has none in its code, which
        need not be looked at then: blanking is what takes most of the time."""
        return any(word in self.text for word in words)

    def bracket(self, at: int) -> int:
        """One past the bracket that closes the one at ``at``."""
        depth = 0
        for sign in BRACKET.finditer(self.code, at):
            depth += 1 if sign[0] in "([{" else -1
            if not depth:
                return sign.end()
        raise AssertionError(f"{self.name}: a bracket is not closed")

    def line(self, at: int) -> int:
        return self.code.count("\n", 0, at) + 1

    def imports(self, name: str) -> bool:
        return (
            re.search(rf"^\s*from\s+[\w.]+\s+import\s+(?:\([^)]*|[^\n(]*)\b{name}\b", self.code, re.MULTILINE)
            is not None
        )

    @cached_property
    def functions(self) -> list[tuple[str, int, int, int]]:
        """Each function's name, the place of its parameters' bracket, and where its body begins and ends."""
        found = []
        for match in DEF.finditer(self.code):
            body = self.bracket(match.end() - 1)
            end = re.compile(rf"^(?![ \t]{{{len(match[1].expandtabs()) + 1},}}|\s*$|[ \t]*\))", re.MULTILINE)
            below = self.code.find("\n", body) + 1 or len(self.code)
            after = end.search(self.code, below)
            found.append((match[2], match.end() - 1, body, after.start() if after else len(self.code)))
        return found


def python_files(root: Path) -> Iterator[PythonFile]:
    for path in sorted(root.rglob("*.py")):
        yield PythonFile(path.relative_to(root).as_posix(), path.read_text("utf-8"))


# Kernels

DECORATORS = {
    "triton": r"^[ \t]*@(?:triton|gluon)\.jit\b",
    "cute": r"^[ \t]*@cute\.(?:experimental\.)?kernel\b",
    "cutile": r"^[ \t]*@ct\.kernel\b",
    "flydsl": r"^[ \t]*@flyc\.kernel\b",
}
"""At the beginning of a line: a decorator and nothing else."""
OTHERS = {
    "triton": r"^\w+\s*=\s*triton\.jit\(",
    "tilelang": r"^[ \t]+with T\.Kernel\(",
    "metal": r"\bmx\.fast\.metal_kernel\(",
}


def python_kernels(file: PythonFile) -> dict[str, int]:
    counts: dict[str, int] = {}
    if not file.has(".jit", ".kernel", "T.Kernel(", "metal_kernel("):
        return counts
    for patterns in (DECORATORS, OTHERS):
        for language, pattern in patterns.items():
            found = len(re.findall(pattern, file.code, re.MULTILINE))
            if found:
                counts[language] = counts.get(language, 0) + found
    return counts


def cuda_kernels(root: Path) -> int:
    """``__global__``, or a macro for it, after which a body opens before a semicolon is met, outside of directives."""
    total = 0
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".cu", ".cuh", ".h", ".hpp", ".hip", ".cpp", ".cc"):
            continue
        text = CPP_TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), path.read_text("utf-8"))
        text = text.replace("\\\n", "  ")
        macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t][^\n{]*\b__global__\b[^\n{]*$", text, re.MULTILINE)
        text = re.sub(r"^[ \t]*#[^\n]*$", "", text, flags=re.MULTILINE)
        for match in re.finditer(r"\b(?:" + "|".join(["__global__", *macros]) + r")\b", text):
            total += next(iter(_braces(text, match.end())), "") == "{"
    return total


def _braces(text: str, at: int) -> Iterator[str]:
    """Braces and semicolons that stand in no round bracket."""
    depth = 0
    for letter in text[at : at + 20_000]:
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter in "{};":
            yield letter


# Flags


def argparse_flags(file: PythonFile) -> int:
    """``add_argument(`` with a first argument that is no ``*names``; its own definition is none."""
    if not file.has("add_argument"):
        return 0
    return len(re.findall(r"(?<!def )\badd_argument\(\s*(?![*\s)])", file.code))


def hand_flags(file: PythonFile) -> int:
    """Names that are compared with a string: ``== "--name"``, in a file that reads the arguments of the process."""
    if "sys.argv" not in file.code:
        return 0
    return len(set(re.findall(r"""==\s*["'](--[a-z][\w-]*)["']""", file.text)))


def split(text: str) -> list[str]:
    """At the commas that stand in no bracket."""
    parts, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(text[last:at])
            last = at + 1
    return [*parts, text[last:]]


def outside_brackets(text: str) -> str:
    """Without what stands inside of brackets, the brackets themselves kept."""
    depth, kept = 0, []
    for letter in text:
        depth -= letter in ")]}"
        kept.append(letter if not depth else " ")
        depth += letter in "([{"
    return "".join(kept)
