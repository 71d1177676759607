"""gc tuning: keeps Python's garbage collector from scanning the same millions of objects repeatedly."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

_OWN_PROCESS = "torch" not in sys.modules
"""True if lmp was imported before torch. Otherwise the collector's settings belong to the user's program."""


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector. All objects that exist at the end are excluded from later collections.

    Importing torch and a model's module creates millions of permanent objects. Collections meanwhile take a quarter of
    the import time.
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


SELDOM = 200_000
"""New objects between two collections while modules are analysed (Python's default: 700)."""


@contextlib.contextmanager
def gc_seldom() -> Iterator[None]:
    """Run the garbage collector less often, because runs create many objects that live as long as the analysis."""
    before = gc.get_threshold()
    gc.set_threshold(max(SELDOM, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
