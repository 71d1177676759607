"""The code bases that `make repositories` fetches, each read once by a test process.

All tests of one of them are of one xdist group: under `--dist loadgroup` one process reads it, and no other.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lmp.codebase.facts import RepoFacts, Selection
from lmp.report.code_base import read_code_base

REPOSITORIES = Path(__file__).parents[1] / "build" / "repositories"
NAMES = ("fla-core-0.6.0", "liger-kernel-0.8.5", "mlx-lm-0.32.2", "sglang-0.3.6")


def of_each(argument: str, **settings: Any) -> pytest.MarkDecorator:
    """A test for each of them, in its group."""
    return pytest.mark.parametrize(
        argument, [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in NAMES], **settings
    )


@cache
def facts_of(name: str) -> RepoFacts:
    """Read as `lmp report` reads it."""
    return read_code_base(REPOSITORIES / name, Selection(), lambda done, total, file: None)
