"""Helpers of the judge's tests: run a module at a point."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def meta_model(transformers_tree: Path) -> Callable[..., Any]:
    """Builds a model of transformers from a config, on the meta device, in eval mode and bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, initialization

    from lmp.workload.arguments import recording

    def build(config: Any) -> Any:
        with torch.device("meta"), initialization.no_init_weights(), recording():
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        return model.eval()

    return build


@pytest.fixture
def line_of() -> Callable[[Any, str], int]:
    """Finds the line with the text in a class's source."""

    def find(cls: type[Any], text: str) -> int:
        lines, start = inspect.getsourcelines(cls)
        return next(start + index for index, line in enumerate(lines) if text in line)

    return find
