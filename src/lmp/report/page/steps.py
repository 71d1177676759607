"""Formulas as a list of small steps that a page can work out: data, so that nothing has to be compiled there.

The list is that of `lmp.formula.lowering`; a step names the earlier ones that it works on by their index.
`static/exact.js` is the other half.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from lmp.formula import Condition, Expr, Lowered, Node, Ref, lower


class Steps:
    """Formulas and conditions, compiled. ``slot`` says at which index the value of one stands."""

    def __init__(self, formulas: Iterable[Expr | Condition]) -> None:
        self._lowered: Lowered = lower(formulas, pairs=True)
        self.names = self._lowered.names
        for instruction in self._lowered.instructions:
            if isinstance(instruction.node, Ref):
                raise TypeError(f"not a formula without references: {instruction.node!r}")

    def record(self) -> dict[str, Any]:
        """As JSON: whole numbers as text, because they may be larger than JSON's are everywhere."""
        constants = [
            [str(value.numerator), str(value.denominator)] if isinstance(value, Fraction) else [str(value)]
            for value in self._lowered.constants
        ]
        steps = [[instruction.operation, *instruction.operands] for instruction in self._lowered.instructions]
        return {"names": list(self.names), "constants": constants, "steps": steps}

    def slot(self, formula: Node) -> int:
        return self._lowered.index[formula]
