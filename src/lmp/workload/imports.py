"""Importing large packages without Python's garbage collector looking through them again and again."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

_OWN_PROCESS = "torch" not in sys.modules
"""Whether lmp came before torch: in a program that had it already, the collector is that program's own."""


@contextlib.contextmanager
def collected_later() -> Iterator[None]:
    """Pause the garbage collector; what exists afterwards is left out of later collections.

    Importing torch and a model's module makes millions of objects that stay: collecting meanwhile is a quarter of the
    time it takes.
    """
    if not gc.isenabled() or not _OWN_PROCESS:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
