"""A function's body as steps: the loops and branches that stand in it, and the calls that matter."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lmp.codebase.facts import Definition, Place

StepKind = Literal["loop", "branch", "call", "launch"]


@dataclass(eq=False)
class Step:
    kind: StepKind
    text: str
    """As it is written: ``while True:``, ``batch = self.schedule()``."""
    place: Place
    weight: float = 0
    """Of a call: how much it says of prefill, decode, scheduling, caching and sampling, from its name."""
    inside: list[Step] = field(default_factory=list)
    """Of a loop or branch what stands in it, of a call what the called function does, where that is shown."""
    parent: Step | None = None
    alone: str = ""
    """Of ``else:`` and ``elif …:`` how it reads where the branch before it is not shown."""
    before: Step | None = None
    node: Any = None
    """The call's syntax: an `ast.Call`, or the node of another language."""
    function: Definition | None = None
    """The function that it stands in."""
    target: Place | None = None
    name: str = ""
    """Qualname of what is called."""
    remark: str = ""
    """How it was found, where it does not stand in the code: ``one of 14 classes``, ``shown above``."""
    shown: bool = False

    @property
    def is_call(self) -> bool:
        return self.kind in ("call", "launch")

    @property
    def above(self) -> Iterator[Step]:
        """The steps around it, innermost first."""
        step = self.parent
        while step is not None:
            yield step
            step = step.parent

    def written(self) -> str:
        """As it reads among the steps that are shown."""
        return self.alone if self.alone and not (self.before and self.before.shown) else self.text

    def everything(self) -> Iterator[Step]:
        yield self
        for step in self.inside:
            yield from step.everything()


def shown(steps: list[Step]) -> Iterator[Step]:
    return (step for step in steps if step.shown)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def summed_up(node: Function) -> tuple[str, str] | None:
    """What the body of a function comes to in few words: what it returns, else what it sets, else what it calls."""
    own = list(_own(node))
    returned = [each.value for each in own if isinstance(each, ast.Return) and each.value is not None]
    # What is returned early, and a plain name, say nothing of what the function is for.
    made = [each for each in returned if not isinstance(each, ast.Name | ast.Constant)]
    if made:
        return "returns", _written(made[-1])
    kept = [ast.unparse(t) for each in own if isinstance(each, ast.Assign) for t in each.targets if _is_own(t)]
    if kept and not returned and 2 * len(kept) >= len(node.body):
        return "sets", ", ".join(dict.fromkeys(kept))
    called = [ast.unparse(each.func) for each in own if isinstance(each, ast.Call) and _is_plain(each.func)]
    named = [name for name in dict.fromkeys(called) if name not in _SMALL and not _ASIDE.match(name)]
    if named:
        return "calls", ", ".join(f"{name}()" for name in named[:4])
    return ("returns", _written(returned[0])) if returned else None


_SMALL = frozenset(dir(builtins))
_ASIDE = re.compile(
    r"(?:argparse|\w*parsers?|args|time|sys|os|logging|logger|log|warnings|json|re|copy|functools|gc)\.|parse_args$"
)
"""What a function does beside its work."""


def _own(node: Function) -> Iterator[ast.AST]:
    """Everything inside of a function but the functions in it, in the order of the code."""
    waiting: list[ast.AST] = list(reversed(node.body))
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(each)))


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_plain(node.value))


def _written(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())
