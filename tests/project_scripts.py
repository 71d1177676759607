"""Programs of the project that are in no package: files of scripts/ and benchmarks/, loaded by their place."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).parents[1]


def program(place: str) -> ModuleType:
    """The program at a place in the project, such as ``scripts/audit.py``, as a module under its file's name."""
    file = PROJECT / place
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses of the program look their module up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
