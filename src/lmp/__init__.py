"""lmp: what every source line of a forward() costs.

    import lmp

    block = lmp.analyze(Block, inputs="x: float[batch_size, seq_len, hidden_size]", init="hidden_size=256")
    block.evaluate(batch_size=2, seq_len=512).totals.flops
    lmp.expand(model, inputs="ids: int[batch_size, seq_len]").to_frame()

Nothing is imported before it is used: ``import lmp`` takes milliseconds.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmp.api import Analysis, Evaluated, analyze, expand
    from lmp.errors import LmpError

__all__ = ["Analysis", "Evaluated", "LmpError", "analyze", "expand"]

_HOMES = {"LmpError": "lmp.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lmp' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES.get(name, "lmp.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``lmp.analyze`` the function. Python binds a folder of that name over it when it imports one."""

    @property
    def analyze(self) -> Any:
        return __getattr__("analyze")

    @analyze.setter
    def analyze(self, package: ModuleType) -> None:
        """Ignored: ``lmp.analyze.session`` and its neighbours are imported through ``sys.modules``."""


sys.modules[__name__].__class__ = _Package
