"""The lines of a draft: their text is the file's, and every line that computes is in one of the lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmp.errors import NotFound
from lmp.records import Draft, DraftKernel, GateFinding
from lmp.source.lines import (
    FunctionSource,
    Statement,
    called_functions,
    enclosing_function,
    forward_lines,
    statement_starts,
)
from lmp.source.locate import ClassSource
from lmp.source.parsed import parse
from lmp.source.trees import Trees

SHOWN = 5
"""Up to so many uncovered lines of a function are findings of their own; more of them are one finding."""


@dataclass(frozen=True)
class DraftLines:
    """Checks the lines of drafts of one class."""

    source: ClassSource
    trees: Trees

    @cached_property
    def functions(self) -> list[FunctionSource]:
        """forward(), and the plain functions in its file that it calls."""
        called = called_functions(self.source, self.trees)
        return [forward_lines(self.source), *(f for f in called if f.path == self.source.forward_path)]

    def path_of(self, file: str | None) -> Path | None:
        if file is None or file == self.source.forward_file:
            return self.source.forward_path
        return self.trees.path_of(file)

    def statement_start(self, file: str | None, line: int) -> int:
        """The first line of the statement that a line belongs to."""
        path = self.path_of(file)
        return line if path is None else statement_starts(path).get(line, line)

    def statement(self, file: str | None, line: int) -> tuple[str, int]:
        """File and first line of the statement that a line belongs to."""
        return file or self.source.forward_file, self.statement_start(file, line)

    # -- kernels ---------------------------------------------------------------------------------------------------

    def check_kernels(self, draft: Draft) -> tuple[Draft, list[GateFinding]]:
        """The draft with the file's own text at each line, and a finding for each line that cannot be."""
        findings: list[GateFinding] = []
        placed: list[DraftKernel] = []
        for index, kernel in enumerate(draft.kernels):
            file = None if kernel.file == self.source.forward_file else kernel.file
            problem = self._problem(file, kernel.line) or self._other_text(file, kernel.line, kernel.code)
            if problem is not None:
                findings.append(GateFinding(rule="line", message=problem, kernel=index, line=kernel.line, file=file))
                placed.append(kernel)
                continue
            path = self.path_of(file)
            assert path is not None
            function = enclosing_function(path, kernel.line)
            name = function.qualname.rpartition(".")[2] if function is not None else None
            update = {
                "file": file,
                "code": parse(path).code(kernel.line),
                "function": None if name == "forward" else name,
            }
            placed.append(kernel.model_copy(update=update))
        return draft.model_copy(update={"kernels": placed}), findings

    def _problem(self, file: str | None, line: int) -> str | None:
        path = self.path_of(file)
        if path is None:
            return (
                f"{str(file)[:100]!r} is not a file of the sources; give it relative to its tree, as in "
                f"{self.source.forward_file}"
            )
        try:
            last = len(parse(path).lines)
        except NotFound as error:
            return str(error).splitlines()[0]
        if not 1 <= line <= last:
            return f"line {line} is not in the file, which has {last}"
        if line not in statement_starts(path):
            return f"line {line} is empty, a comment or the end of a block: no statement stands there"
        if path == self.source.forward_path and not self._inside(line):
            return f"line {line} is outside of forward() and of the functions that it calls: {self._spans()}"
        if enclosing_function(path, line) is None:
            return f"line {line} of {file} is in no function"
        return None

    def _inside(self, line: int) -> bool:
        return any(first <= line <= last for first, last in (f.lines for f in self.functions))

    def _spans(self) -> str:
        return ", ".join(f"{f.qualname} {f.lines[0]}-{f.lines[1]}" for f in self.functions[:8])

    def _other_text(self, file: str | None, line: int, code: str) -> str | None:
        """A message if ``code`` is neither the text of the line nor of its whole statement."""
        path = self.path_of(file)
        assert path is not None
        parsed, wanted = parse(path), _plain(code)
        if not wanted or wanted in (_plain(parsed.code(line)), _plain(self._statement(path, line))):
            return None
        there = [n for n, text in enumerate(parsed.lines, start=1) if _plain(text) == wanted]
        near = sorted(there, key=lambda n: abs(n - line))[:1]
        hint = f"; the text that was given is line {near[0]}" if near else ""
        return f"code is not the text of line {line}, which is {parsed.code(line)!r}{hint}"

    def _statement(self, path: Path, line: int) -> str:
        starts = statement_starts(path)
        return " ".join(parse(path).lines[n - 1] for n in sorted(starts) if starts[n] == starts.get(line))

    # -- lines without a kernel ------------------------------------------------------------------------------------

    def check_lists(self, draft: Draft, costing: Collection[int]) -> Iterator[GateFinding]:
        """Findings about free_lines and not_taken_lines. ``costing`` are the kernels that claim a cost."""
        with_costs = {self.statement(draft.kernels[i].file, draft.kernels[i].line) for i in costing}
        free = {self.statement(None, line) for line in draft.free_lines}
        elsewhere = [(file, line) for file, lines in draft.free_lines_elsewhere.items() for line in lines]
        listed = [
            *(("free_lines", None, line) for line in draft.free_lines),
            *(("free_lines_elsewhere", file, line) for file, line in elsewhere),
            *(("not_taken_lines", None, line) for line in draft.not_taken_lines),
        ]
        for name, file, line in listed:
            problem, rule = self._problem(file, line), "line"
            if problem is None:
                rule = "free line"
                if self.statement(file, line) in with_costs:
                    problem = f"line {line} is listed, and a kernel of it claims a cost; leave out one of the two"
                elif name == "not_taken_lines" and self.statement(None, line) in free:
                    problem = f"line {line} is in free_lines too: it runs, or it does not"
            if problem is not None:
                found = {"rule": rule, "message": f"{name}: {problem}", "line": line, "file": file}
                yield GateFinding.model_validate(found)

    def uncovered(self, draft: Draft, every_function: bool = False) -> Iterator[GateFinding]:
        """Findings for lines that compute and are in no list: of forward(), and of functions in its file.

        A function without any listed line may not run at all: execution decides. If the class cannot be executed,
        ``every_function`` includes such functions.
        """
        own = self.source.forward_file
        listed = {k.line for k in draft.kernels if k.file in (None, own)}
        listed |= {*draft.free_lines, *draft.not_taken_lines}
        for index, function in enumerate(self.functions):
            missed = [s for s in function.statements if not any(s.first <= line <= s.last for line in listed)]
            if missed and (index == 0 or every_function or len(missed) < len(function.statements)):
                yield from _missed(function, missed)


def _missed(function: FunctionSource, missed: Sequence[Statement]) -> Iterator[GateFinding]:
    due = "give a kernel, or list it in free_lines if it runs and costs nothing, in not_taken_lines if it does not run"
    if len(missed) <= SHOWN:
        for statement in missed:
            message = f"line {statement.first} computes and is in no list: {statement.code!r}; {due}"
            yield GateFinding(rule="coverage", message=message, line=statement.first)
        return
    lines = ", ".join(str(statement.first) for statement in missed)
    message = f"{len(missed)} lines of {function.qualname} compute and are in no list: {lines}; of each: {due}"
    yield GateFinding(rule="coverage", message=message, line=missed[0].first)


def _plain(text: str) -> str:
    return "".join(text.split())


def kernels_by_statement(kernels: Iterable[DraftKernel], lines: DraftLines) -> dict[tuple[str, int], list[int]]:
    """Statement -> indices of its kernels."""
    found: dict[tuple[str, int], list[int]] = {}
    for index, kernel in enumerate(kernels):
        found.setdefault(lines.statement(kernel.file, kernel.line), []).append(index)
    return found
