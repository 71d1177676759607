"""Walks the body of a Python function and of what it calls, as long as that says how a model is run."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lmp.codebase.facts import Definition, Place
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.nesting.callee import Callee, Callees, is_dispatch
from lmp.report.repository.nesting.resolving import Resolver
from lmp.report.repository.nesting.steps import Function, Step, StepKind
from lmp.report.repository.nesting.words import may_matter, weight

TEXT = 76
"""Characters of a step's text."""


class PythonWalk:
    """The steps of Python functions, and what their calls call."""

    def __init__(self, base: CodeBase, resolver: Resolver) -> None:
        self._base = base
        self.callees = Callees(base, resolver)

    def body(self, definition: Definition) -> list[Step]:
        """The steps of one function, calls not followed."""
        node = function_at(self._base, definition)
        if node is None:
            return []
        steps = _Body(self.callees, definition, node, self._base.by_name.keys()).block(node.body)
        _link(steps, None)
        return steps

    def callee(self, step: Step) -> Callee | None:
        """What a call calls; None where that is not of the repository."""
        if step.function is None:
            return None
        node = function_at(self._base, step.function)
        return None if node is None else self.callees.of(step.node, step.function, node)

    def runs_a_model(self, step: Step) -> bool:
        """``model(…)``, ``sampler(…)``, ``self.step_fn(…)``: what is given at run time."""
        name, receiver = _called(step.node.func)
        known = re.fullmatch(r"_?(model|forward|sampler|sample|(logits_?)?processor)(_fn|_call)?", name)
        return known is not None and not re.search(r"optim|lr_|sched|time|torch|nn|mx", receiver.lower())


_BUILTIN = frozenset(dir(builtins))


def _link(steps: Sequence[Step], parent: Step | None) -> None:
    for step in steps:
        step.parent = parent
        _link(step.inside, step)


def function_at(base: CodeBase, definition: Definition) -> Function | None:
    for node in _functions(base, definition.place.file):
        if node.name == definition.name and node.lineno == definition.place.line:
            return node
    return None


@lru_cache(maxsize=48)
def _functions(base: CodeBase, file: str) -> tuple[Function, ...]:
    try:
        tree = ast.parse(base.text(file) or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


@dataclass
class _Body:
    callees: Callees
    definition: Definition
    node: Function
    own: Collection[str]
    """Names that the repository defines."""
    taking: tuple[ast.AST | None, str] = (None, "")
    """A call whose result is kept, and what stands before it."""

    @property
    def file(self) -> str:
        return self.definition.place.file

    def block(self, body: Sequence[ast.stmt]) -> list[Step]:
        return [step for statement in body for step in self.statement(statement)]

    def statement(self, node: ast.stmt) -> Iterator[Step]:
        match node:
            case ast.While(test=test, body=body, orelse=orelse):
                yield from self.around("loop", f"while {_text(test)}:", node, [*self.calls(test), *self.block(body)])
                yield from self.block(orelse)
            case (
                ast.For(target=target, iter=iterable, body=body) | ast.AsyncFor(target=target, iter=iterable, body=body)
            ):
                yield from self.calls(iterable)
                text = f"for {_text(target)} in {_text(iterable)}:"
                yield from self.around("loop", text, node, self.block(body))
                yield from self.block(node.orelse)
            case ast.If():
                yield from self.branches(node)
            case ast.Match(subject=subject, cases=cases):
                for case in cases:
                    text = f"case {_text(case.pattern)}:  (of {_text(subject)})"
                    yield from self.around("branch", text, case.body[0], self.block(case.body))
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    yield from self.calls(item.context_expr)
                yield from self.block(node.body)
            case ast.Try():
                yield from self.block([*node.body, *node.orelse, *node.finalbody])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Raise() | ast.Assert():
                return
            case ast.Assign(targets=[target], value=value) if isinstance(value, (ast.Call, ast.Await)):
                taken = _text(target).strip("()") if isinstance(target, ast.Tuple) else _text(target)
                self.taking = value.value if isinstance(value, ast.Await) else value, f"{taken} = "
                yield from self.calls(node)
            case ast.Return(value=ast.Call() as value):
                self.taking = value, "return "
                yield from self.calls(node)
            case _:
                yield from self.calls(node)

    def branches(self, node: ast.If, before: Step | None = None) -> Iterator[Step]:
        if _never(node.test):
            return
        yield from self.calls(node.test)
        test = _text(node.test)
        alone = f"if {test}:"
        text = f"elif {test}:" if before else alone
        then = self.around("branch", text, node, self.block(node.body), alone, before)
        yield from then
        last = then[0] if then else before
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            yield from self.branches(node.orelse[0], last)
        elif node.orelse:
            yield from self.otherwise(test, node.orelse[0], self.block(node.orelse), last)

    def otherwise(self, test: str, node: ast.AST, inside: list[Step], before: Step | None) -> list[Step]:
        alone = f"if not ({test}):"
        return self.around("branch", "else:" if before else alone, node, inside, alone, before)

    def around(
        self,
        kind: StepKind,
        text: str,
        node: ast.AST,
        inside: list[Step],
        alone: str = "",
        before: Step | None = None,
    ) -> list[Step]:
        """A loop or branch is a step where something stands in it."""
        if not inside:
            return []
        place = Place(self.file, node.lineno)  # type: ignore[attr-defined]
        return [Step(kind, _cut(text), place, 0, inside, alone=_cut(alone), before=before)]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def calls(self, node: ast.AST) -> Iterator[Step]:
        """The calls of an expression in the order in which they run: arguments first."""
        if isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if isinstance(node, ast.IfExp):
            yield from self.calls(node.test)
            test = _text(node.test)
            then = self.around("branch", f"if {test}:", node.body, list(self.calls(node.body)))
            yield from then
            yield from self.otherwise(test, node.orelse, list(self.calls(node.orelse)), then[0] if then else None)
            return
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            inner = [step for child in _elements(node) for step in self.calls(child)]
            first = node.generators[0]
            text = f"for {_text(first.target)} in {_text(first.iter)}:"
            yield from self.calls(first.iter)
            yield from self.around("loop", text, node, inner)
            return
        for child in _in_order(node):
            yield from self.calls(child)
        if isinstance(node, ast.Call):
            yield from self.call(node)

    def call(self, node: ast.Call) -> Iterator[Step]:
        name, receiver = _called(node.func)
        line = getattr(node.func, "end_lineno", node.lineno)
        if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, (ast.Name, ast.Attribute)):
            kernel = _text(node.func.value).rpartition(".")[2]
            target = self.callees.kernel(kernel, self.file)
            if target is not None:
                text = _cut(f"{kernel}[{_text(node.func.slice)}](…)")
                yield Step("launch", text, Place(self.file, node.lineno), 3, target=target, name=kernel)
                return
        heavy: float = (
            3 if is_dispatch(node) or (name == "apply" and receiver[:1].isupper()) else weight(name, receiver)
        )
        if not heavy and name in self.own and name not in _BUILTIN and may_matter(name, receiver):
            # It says nothing by its name, but leads into the repository: shown where there is room.
            heavy = 0.4
        if heavy:
            place = Place(self.file, line)
            yield Step("call", self.text(node), place, heavy, node=node, function=self.definition)

    def text(self, node: ast.Call) -> str:
        """The call, with the names of its first arguments."""
        arguments = [_text(each) for each in node.args] + [f"{k.arg}=…" for k in node.keywords if k.arg]
        shown = ", ".join(arguments)
        before = self.taking[1] if self.taking[0] is node and len(self.taking[1]) <= 30 else ""
        return _cut(f"{before}{_text(node.func)}({shown if len(shown) <= 36 else _first(arguments)})")


def _first(arguments: list[str]) -> str:
    shown = ""
    for each in arguments:
        if len(shown) + len(each) > 34:
            return f"{shown}…"
        shown += f"{each}, "
    return shown.rstrip(", ")


def _called(node: ast.expr) -> tuple[str, str]:
    """Last name, and what stands before it."""
    if isinstance(node, ast.Attribute):
        return node.attr, _text(node.value)
    if isinstance(node, ast.Name):
        return node.id, ""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        # self.layers[i](…) runs what self.layers is made from.
        return _called(node.value)
    return "", ""


def _elements(node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> list[ast.expr]:
    return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call):
        yield node.func.value if isinstance(node.func, ast.Attribute) else node.func
        yield from node.args
        yield from (keyword.value for keyword in node.keywords)
        return
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        if node.value is not None:
            yield node.value
        return
    yield from ast.iter_child_nodes(node)


def _never(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Constant) and not test.value
    )


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _cut(text: str) -> str:
    if len(text) <= TEXT:
        return text
    end = ":" if text.endswith(":") else ""
    return text[: TEXT - 1 - len(end)].rstrip() + "…" + end
