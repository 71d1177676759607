"""lmp: what every source line of a forward() costs.

    import lmp

    m = lmp.model("Qwen/Qwen3-8B")
    m.decode(batch=[1, 8, 64], cache=8192, weights="fp8", device="h100-sxm")
    m.prefill(batch=1, tokens=range(1024, 32769, 1024))
    block = lmp.analyze(Block, inputs="x: float[batch_size, seq_len, hidden_size]", init="hidden_size=256")
    block.evaluate(batch_size=2, seq_len=512).totals.flops
    lmp.expand(model, inputs="ids: int[batch_size, seq_len]").to_frame()
    lmp.predict("Qwen/Qwen3-8B", "h100-sxm", "decode", batch_size=16, cache_len=8192, engine="vllm").ms

Nothing is imported before it is used: ``import lmp`` takes milliseconds.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmp.api import Analysis, Evaluated, Model, Predicted, analyze, expand, model, predict
    from lmp.errors import LmpError

__all__ = ["Analysis", "Evaluated", "LmpError", "Model", "Predicted", "analyze", "expand", "model", "predict"]

_HOMES = {"LmpError": "lmp.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lmp' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES.get(name, "lmp.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Callable(ModuleType):
    """The package ``lmp.predict`` as a function too: ``lmp.predict(...)`` beside ``lmp.predict.memory``."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return __getattr__("predict")(*args, **keywords)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(__getattr__("predict"))


class _Package(ModuleType):
    """Keeps ``lmp.analyze`` and ``lmp.predict`` callable. Python binds folders of these names over the functions."""

    @property
    def analyze(self) -> Any:
        return __getattr__("analyze")

    @analyze.setter
    def analyze(self, package: ModuleType) -> None:
        """Ignored: ``lmp.analyze.session`` and its neighbours are imported through ``sys.modules``."""

    @property
    def predict(self) -> Any:
        import importlib

        package = importlib.import_module("lmp.predict")
        package.__class__ = _Callable
        return package

    @predict.setter
    def predict(self, package: ModuleType) -> None:
        """Ignored: the package is found in ``sys.modules``."""


sys.modules[__name__].__class__ = _Package
