"""A function's body as steps: the loops and branches that stand in it, and the calls that matter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lmp.recon.facts import Definition, Place

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
