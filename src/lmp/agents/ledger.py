"""The cost of one command's agents together, over parallel tasks and over resumes: one cap for all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmp.errors import CapReached, InvalidAnalysis
from lmp.store.files import storage_errors, write_whole

SMALLEST = 0.01
"""Dollars of the smallest share: a task could not even start with less."""


@dataclass(frozen=True)
class Share:
    """The part of the caps that one task may use. None means no limit."""

    usd: float | None
    turns: int | None


class _Session(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task: str
    usd: float = 0.0
    turns: int = 0


class _Aside(BaseModel):
    """A granted share that is not settled."""

    model_config = ConfigDict(extra="forbid")

    task: str
    usd: float | None
    turns: int | None


class _Book(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sessions: dict[str, _Session] = Field(default_factory=dict)
    granted: dict[str, _Aside] = Field(default_factory=dict)
    unknown: list[_Aside] = Field(default_factory=list)


class Ledger:
    """The ledger in the file ``path``, continued if it exists, and written whole at every change.

    ``grant`` reserves a share, ``settle`` replaces it by the real cost. A share that was never settled, because the
    command or the CLI was killed, counts as spent: the CLI does not know its cost later. A task whose share was too
    small gets another one. ``cap_usd`` and ``cap_turns`` None mean no limit. One process at a time.
    """

    def __init__(self, path: Path, cap_usd: float | None = None, cap_turns: int | None = None) -> None:
        self.path, self.cap_usd, self.cap_turns = path, cap_usd, cap_turns
        self._book = _read(path)
        # The processes with these shares are gone.
        self._book.unknown += self._book.granted.values()
        self._book.granted = {}

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
        """Dollars that are not spent; some of them may be reserved. None if there is no cap."""
        return None if self.cap_usd is None else max(0.0, self.cap_usd - self.spent)

    @property
    def unknown(self) -> list[tuple[str, float | None]]:
        """Tasks of unknown cost, with the most that they can have spent; None if nothing limited it."""
        return [(share.task, share.usd) for share in self._book.unknown]

    def grant(self, name: str, running_or_waiting: int = 1) -> Share:
        """Reserve a share for the task ``name``: what is free, divided by the number of unfinished tasks.

        Raises CapReached if nothing is left.
        """
        self._mark_unknown(name)
        aside = [*self._book.granted.values(), *self._book.unknown]
        among = max(1, running_or_waiting)
        usd, turns = None, None
        if self.cap_usd is not None:
            usd = (self.cap_usd - self.spent - sum(share.usd or 0.0 for share in aside)) / among
        if self.cap_turns is not None:
            free = self.cap_turns - self.turns - sum(share.turns or 0 for share in aside)
            turns = min(max(1, free // among), free)
        if usd is not None and usd < SMALLEST:
            raise CapReached(f"{self.state()}: nothing is left for {name}\ncontinue with a higher `--max-budget-usd`")
        if turns is not None and turns < 1:
            raise CapReached(f"all {self.cap_turns} turns are used or set aside: none is left for {name}")
        self._book.granted[name] = _Aside(task=name, usd=usd, turns=turns)
        self._write()
        return Share(usd, turns)

    def settle(self, name: str, session: str | None, cost_usd: float | None, turns: int = 0) -> None:
        """Book the cost of ``name``, and free the rest of its share.

        ``cost_usd`` is of the whole ``session``, resumes included, so only its difference is added; ``turns`` are those
        since the last call. A cost of None is not known: the share stays reserved.
        """
        if session is not None and cost_usd is not None:
            booked = self._book.sessions.setdefault(session, _Session(task=name))
            booked.turns += turns
            booked.usd = max(booked.usd, cost_usd)
            self._book.granted.pop(name, None)
        else:
            self._mark_unknown(name)
        self._write()

    def release(self, name: str) -> None:
        """Free the share of a task that spent nothing, as the service was never asked."""
        if self._book.granted.pop(name, None) is not None:
            self._write()

    def state(self) -> str:
        """The state in one line, for people."""
        unknown = [share.usd for share in self._book.unknown]
        known = f"${self.spent:.2f}" + ("" if self.cap_usd is None else f" of ${self.cap_usd:.2f}") + " spent"
        if not unknown:
            return known
        most = f"at most ${sum(usd or 0.0 for usd in unknown):.2f}" if None not in unknown else "no limit was set"
        return f"{known}, {len(unknown)} of unknown cost ({most})"

    def _mark_unknown(self, name: str) -> None:
        share = self._book.granted.pop(name, None)
        if share is not None:
            self._book.unknown.append(share)

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
