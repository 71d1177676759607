"""A session for a prompt: what is made for it is not stored, and is made only as long as a prompt may take."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from lmp.analyze.modules import analysis_of
from lmp.analyze.session import Session
from lmp.errors import Missing
from lmp.records import Lookup, ModelAnalysis, ModuleAnalysis
from lmp.store.results import Store

SECONDS = 4.0
"""Processor seconds for all analyses that a prompt needs and that are not stored. Time on a loaded machine would make
the prompt depend on the load."""


class UnwrittenStore(Store):
    """Stored results can be read; what is saved is in the session's memory alone."""

    def save(self, analysis: ModuleAnalysis) -> Path:
        return self.file(analysis.class_name, analysis.config.name)

    def save_model(self, model: ModelAnalysis) -> Path:
        return self.model_file(model.class_name, model.config.name)

    def set_aside(self, analysis: ModuleAnalysis) -> Path:
        return self.file(analysis.class_name, analysis.config.name)

    def drop_draft(self, class_path: str, config: str = "") -> None: ...


class _OutOfTime(BaseException):
    """No Exception: nothing that handles errors of a class may take it for one."""


def unwritten(session: Session) -> Session:
    """The session, which stores nothing from now on."""
    session.store = UnwrittenStore(session.store.root)
    tell = session.progress
    session.progress = lambda name, stage: None if stage == "stored" else tell(name, stage)
    return session


def made_in_time(session: Session, seconds: float = SECONDS) -> Lookup:
    """A look-up that makes missing analyses, ``seconds`` for all of them. Raises Missing once they are used up."""
    left = [seconds]

    def lookup(class_path: str) -> ModuleAnalysis:
        known = dict(session.known)
        try:
            if left[0] <= 0:  # what is stored needs no time
                return session.lookup(class_path)
            with _limited(left):
                return analysis_of(class_path, session)
        except (_OutOfTime, Missing):
            session.known = known
            raise Missing(
                f"making it takes longer than a prompt may: run `lmp analyze-module {class_path}` first",
                classes=(class_path,),
            ) from None

    return lookup


@contextlib.contextmanager
def _limited(left: list[float]) -> Iterator[None]:
    """Raise _OutOfTime in the block when the processor time that is left is used up. ``left`` goes down."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield  # signals are the main thread's: a server has no limit
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, left[0])
    try:
        yield
    finally:
        left[0], _ = signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
