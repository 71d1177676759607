"""What the agents of one command cost together, over parallel tasks and over resumes: one cap for all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmp.errors import CapReached, InvalidAnalysis
from lmp.store.files import storage_errors, write_whole

SMALLEST = 0.01
"""Dollars: with less than this a task could not even be begun."""


@dataclass(frozen=True)
class Share:
    """What one task may use. None means no limit."""

    usd: float | None
    turns: int | None


class _Session(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task: str
    usd: float = 0.0
    turns: int = 0


class _Reserved(BaseModel):
    model_config = ConfigDict(extra="forbid")

    usd: float | None
    turns: int | None


class _Book(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sessions: dict[str, _Session] = Field(default_factory=dict)
    reserved: dict[str, _Reserved] = Field(default_factory=dict)


class Ledger:
    """A book of ``path``, which is gone on with when it is there, and is written whole at every change.

    ``grant`` sets a share aside, ``settle`` turns it into what was really used. A share that was never settled, because
    the command was killed or the cost never became known, stays set aside until a task of its name asks again: nothing
    that may have been spent is taken for free. A task whose share was too small asks again with ``grant``.
    ``cap_usd`` and ``cap_turns`` None mean no limit. One process at a time.
    """

    def __init__(self, path: Path, cap_usd: float | None = None, cap_turns: int | None = None) -> None:
        self.path, self.cap_usd, self.cap_turns = path, cap_usd, cap_turns
        self._book = _read(path)

    @property
    def spent(self) -> float:
        """Dollars, by the client's estimate."""
        return sum(session.usd for session in self._book.sessions.values())

    @property
    def turns(self) -> int:
        return sum(session.turns for session in self._book.sessions.values())

    def spent_on(self, name: str) -> float:
        """Dollars of one task, over all its sessions."""
        return sum(session.usd for session in self._book.sessions.values() if session.task == name)

    @property
    def left(self) -> float | None:
        """Dollars that are not spent; part of them can be set aside. None where there is no cap."""
        return None if self.cap_usd is None else max(0.0, self.cap_usd - self.spent)

    @property
    def unsettled(self) -> dict[str, float | None]:
        """Tasks whose share is set aside, and the dollars of it: at most this much may have been spent besides."""
        return {name: share.usd for name, share in self._book.reserved.items()}

    def grant(self, name: str, running_or_waiting: int = 1) -> Share:
        """A share for the task ``name``: what is free, divided by the tasks that have need of it, this one included.

        Raises CapReached where nothing is left.
        """
        others = {key: share for key, share in self._book.reserved.items() if key != name}
        among = max(1, running_or_waiting)
        usd, turns = None, None
        if self.cap_usd is not None:
            usd = (self.cap_usd - self.spent - sum(share.usd or 0.0 for share in others.values())) / among
        if self.cap_turns is not None:
            free = self.cap_turns - self.turns - sum(share.turns or 0 for share in others.values())
            turns = min(max(1, free // among), free)
        if usd is not None and usd < SMALLEST:
            raise CapReached(f"{self._state()}: nothing is left for {name}\ngo on with a higher `--max-budget-usd`")
        if turns is not None and turns < 1:
            raise CapReached(f"all {self.cap_turns} turns are used or set aside\ngo on with a higher `--max-turns`")
        self._book.reserved = {**others, name: _Reserved(usd=usd, turns=turns)}
        self._write()
        return Share(usd, turns)

    def settle(self, name: str, session: str | None, cost_usd: float | None, turns: int = 0) -> None:
        """Books what ``name`` used, and frees the rest of its share.

        ``cost_usd`` is of the whole ``session``, resumes included, so only its difference is added; ``turns`` are those
        since the last time. A cost of None, or without a session, is not known: the share stays set aside.
        """
        if session is not None:
            booked = self._book.sessions.setdefault(session, _Session(task=name))
            booked.turns += turns
            booked.usd = max(booked.usd, cost_usd or 0.0)
        if session is not None and cost_usd is not None:
            self._book.reserved.pop(name, None)
        self._write()

    def release(self, name: str) -> None:
        """Frees the share of a task that certainly used nothing: it was never begun."""
        if self._book.reserved.pop(name, None) is not None:
            self._write()

    def _state(self) -> str:
        aside = sum(share.usd or 0.0 for share in self._book.reserved.values())
        return f"${self.spent:.2f} of ${self.cap_usd:.2f} are spent, ${aside:.2f} set aside"

    def _write(self) -> None:
        with storage_errors(self.path):
            write_whole(self.path, self._book.model_dump_json(indent=2) + "\n")


def _read(path: Path) -> _Book:
    with storage_errors(path):
        if not path.exists():
            return _Book()
        text = path.read_text()
    try:
        return _Book.model_validate_json(text)
    except ValidationError as error:
        raise InvalidAnalysis(f"{path} is not a ledger of lmp's\nmove it away to begin a new one") from error
