"""Small source trees, written by the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lmp.source.trees import Trees

TORCH = {
    "torch/version.py": "__version__ = '9.1.0+cpu'\n",
    "torch/__init__.py": "from . import nn\n",
    "torch/nn/__init__.py": "from torch.nn.modules import *\nfrom torch.nn import functional as functional\n",
    "torch/nn/functional.py": "def act(x):\n    return x + 1\n",
    "torch/nn/modules/__init__.py": "from .module import Module\n__all__ = ['Module']\n",
    "torch/nn/modules/module.py": (
        "def _forward_unimplemented(self, *input):\n    raise NotImplementedError\n\n"
        "class Module:\n    forward = _forward_unimplemented\n"
    ),
}

MakeTrees = Callable[[dict[str, str]], Trees]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
