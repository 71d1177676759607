"""Which engine makes the analyses: what was asked for, or what the user's settings and credentials say."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.settings import read_settings


@dataclass(frozen=True)
class Choice:
    """``why`` is what is said of it where it was not asked for by name."""

    engine: str
    why: str = ""


def chosen_engine(asked: str) -> Choice:
    """`auto` is the agent where the settings ask for it and a credential is set; else trace."""
    if asked != "auto":
        return Choice(asked)
    settings = read_settings()
    if settings.engine != "agent":
        return Choice("trace", "auto: the settings ask for no agents")
    from lmp.agents.environment import credential

    name = credential()
    if name is None:
        return Choice("trace", "auto: the settings ask for agents, and no credential is set")
    return Choice("agent", f"auto: the settings ask for agents, and {name} is set")
