"""The same for C, C++ and CUDA, with tree-sitter: loops, branches, calls and launches of a function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lmp.codebase.facts import Definition, Place
from lmp.errors import UsageError
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.nesting.callee import Callee
from lmp.report.repository.nesting.steps import Step
from lmp.report.repository.nesting.words import weight
from lmp.report.repository.pieces import cut

LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
TEXT = 76


class NativeWalk:
    def __init__(self, base: CodeBase) -> None:
        self._base = base
        self._kernels = {kernel.name.rpartition("::")[2]: kernel.place for kernel in base.facts.kernels}

    def body(self, definition: Definition) -> list[Step]:
        """The steps of one function, calls not followed."""
        text = (self._base.text(definition.place.file) or "").encode()
        node = _function(self._base, definition.place.file, definition.place.line, definition.name)
        if node is None:
            return []
        steps = _Body(self, definition, text).block(node.child_by_field_name("body"))
        _link(steps, None)
        return steps

    def callee(self, step: Step) -> Callee | None:
        """By name: C has no other way, and C++ none that reading can take without a build."""
        name = step.node
        found = [each for each in self._base.by_name.get(name, ()) if each.kind != "class"]
        here = [each for each in found if step.function and each.place.file == step.function.place.file]
        chosen = here or found
        if not chosen:
            return None
        return Callee(chosen[0].qualname, chosen[0], "" if len(chosen) == 1 else f"one of {len(chosen)} of this name")

    def runs_a_model(self, step: Step) -> bool:
        return False

    def kernel(self, name: str) -> Place | None:
        return self._kernels.get(name)


def _link(steps: list[Step], parent: Step | None) -> None:
    for step in steps:
        step.parent = parent
        _link(step.inside, step)


@dataclass
class _Body:
    walk: NativeWalk
    definition: Definition
    text: bytes

    def block(self, node: Any) -> list[Step]:
        return [] if node is None else [step for child in node.named_children for step in self.statement(child)]

    def statement(self, node: Any) -> Iterator[Step]:
        if node.type in LOOPS:
            inside = self.block_or_one(node.child_by_field_name("body"))
            yield from self.around("loop", self.head(node), node, inside)
        elif node.type == "if_statement":
            yield from self.branches(node, None)
        elif node.type == "case_statement":
            inside = [step for child in node.named_children[1:] for step in self.statement(child)]
            yield from self.around("branch", self.head(node), node, inside)
        elif node.type in ("compound_statement", "switch_statement", "try_statement", "else_clause"):
            yield from self.block(node.child_by_field_name("body") or node)
        elif node.type in ("lambda_expression", "function_definition", "struct_specifier", "class_specifier"):
            return
        elif node.type in ("preproc_ifdef", "preproc_if", "preproc_else", "preproc_elif"):
            yield from self.block(node)
        else:
            yield from self.calls(node)

    def block_or_one(self, node: Any) -> list[Step]:
        if node is None:
            return []
        return self.block(node) if node.type == "compound_statement" else list(self.statement(node))

    def branches(self, node: Any, before: Step | None) -> Iterator[Step]:
        head = self.head(node)
        inside = self.block_or_one(node.child_by_field_name("consequence"))
        then = self.around("branch", f"else {head}" if before else head, node, inside, head, before)
        yield from then
        last = then[0] if then else before
        other = node.child_by_field_name("alternative")
        inner = other.named_children[0] if other is not None and other.type == "else_clause" else other
        if inner is not None and inner.type == "if_statement":
            yield from self.branches(inner, last)
        elif inner is not None:
            alone = f"if (!{head.removeprefix('if ').removesuffix(' {')}) {{"
            inside = self.block_or_one(inner)
            yield from self.around("branch", "else {" if last else alone, inner, inside, alone, last)

    def around(
        self, kind: str, text: str, node: Any, inside: list[Step], alone: str = "", before: Step | None = None
    ) -> list[Step]:
        if not inside:
            return []
        place = Place(self.definition.place.file, node.start_point[0] + 1)
        return [Step(kind, cut(text, TEXT), place, 0, inside, alone=cut(alone, TEXT), before=before)]  # type: ignore[arg-type]

    def head(self, node: Any) -> str:
        """What stands before the body of a loop or branch."""
        body = node.child_by_field_name("body") or node.child_by_field_name("consequence")
        end = body.start_byte if body is not None else node.end_byte
        words = " ".join(self.text[node.start_byte : end].decode("utf-8", "replace").split())
        return f"{words} {{" if body is not None else words.partition(":")[0] + ":"

    def calls(self, node: Any) -> Iterator[Step]:
        """Arguments first, as they run."""
        if node.type == "lambda_expression":
            return
        for child in node.named_children:
            yield from self.calls(child)
        line = node.start_point[0] + 1
        if node.type == "call_expression":
            function = node.child_by_field_name("function")
            written = self.text[function.start_byte : function.end_byte].decode("utf-8", "replace")
            bare = re.sub(r"<[^<>]*>$", "", written.split("<<<")[0].strip())
            name = re.split(r"::|\.|->", bare)[-1]
            launched = "<<<" in self.text[node.start_byte : node.end_byte].decode("utf-8", "replace").partition("(")[0]
            target = self.walk.kernel(name)
            if target is not None or launched:
                words = " ".join(self.text[node.start_byte : node.end_byte].decode("utf-8", "replace").split())
                yield Step(
                    "launch", cut(words, TEXT), Place(self.definition.place.file, line), 3, target=target, name=name
                )
                return
            heavy = weight(name, bare.removesuffix(name))
            if heavy:
                words = " ".join(self.text[node.start_byte : node.end_byte].decode("utf-8", "replace").split())
                yield Step(
                    "call",
                    cut(words, 60),
                    Place(self.definition.place.file, line),
                    heavy,
                    node=name,
                    function=self.definition,
                )


@lru_cache(maxsize=24)
def _tree(base: CodeBase, file: str) -> Any:
    try:
        import tree_sitter
        import tree_sitter_cuda
    except ImportError:
        raise UsageError("a report on a code base needs more packages: pip install lmp[report]") from None
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    return parser.parse((base.text(file) or "").encode())


def _function(base: CodeBase, file: str, line: int, name: str) -> Any:
    """The function definition of this name nearest to a line."""
    waiting, best = [_tree(base, file).root_node], None
    while waiting:
        node = waiting.pop()
        if node.type == "function_definition":
            declarator = node.child_by_field_name("declarator")
            if declarator is not None and name.encode() in declarator.text:
                away = abs(declarator.start_point[0] + 1 - line)
                if best is None or away < best[0]:
                    best = away, node
        waiting += [child for child in node.named_children if child.end_point[0] + 1 >= line - 3]
    return best[1] if best is not None and best[0] <= 6 else None
