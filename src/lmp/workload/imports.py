"""Keeping Python's garbage collector from looking through the same millions of objects again and again."""

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


SELDOM = 50_000
"""New objects between two collections while modules are analysed (Python's own: 700)."""


@contextlib.contextmanager
def collected_seldom() -> Iterator[None]:
    """Let the garbage collector run less often: runs make many objects that live as long as the analysis."""
    before = gc.get_threshold()
    gc.set_threshold(max(SELDOM, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
