"""What would be sent to an agent of either stage about a class, as a command asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lmp.agents.open_places import open_places, reached
from lmp.agents.reading import callee_of
from lmp.agents.told import Told, analyzer_prompt, expander_prompt
from lmp.errors import UsageError
from lmp.pipeline.facts import config_of, facts_of

if TYPE_CHECKING:
    from lmp.pipeline.module import Session
    from lmp.records import ModuleAnalysis

Lookup = Callable[[str], "ModuleAnalysis"]


def told_of_class(session: Session, class_path: str, lookup: Lookup | None = None) -> Told:
    """Stage 1. The classes that it calls are analysed first, where nothing is stored of them."""
    session.ask([class_path])
    source = session.locate(class_path)
    return analyzer_prompt(facts_of(session, source, lookup or session.lookup), session.trees)


def told_of_model(session: Session, class_path: str, lookup: Lookup | None = None) -> Told:
    """Stage 2: the open places below a class, whose analyses are made where they are missing."""
    session.ask([class_path])
    lookup = lookup or session.lookup
    name = session.locate(class_path).class_path
    told, count = _told(session, lookup(name), lookup)
    if not count:
        raise UsageError(f"nothing is open in {name} or below it, so there is nothing to ask\nrun `lmp expand {name}`")
    return told


def told_of_places(session: Session, root: ModuleAnalysis, lookup: Lookup) -> Told:
    """Stage 2, of a class whose analysis is there. Raises Missing for one below it that is not."""
    return _told(session, root, lookup)[0]


def _told(session: Session, root: ModuleAnalysis, lookup: Lookup) -> tuple[Told, int]:
    """With the number of open places."""
    parts = list(reached(root, lookup))
    places = [place for part in parts for place in open_places(part, lookup)]
    callees = [callee_of(part) for part in parts if part.class_name != root.class_name]
    config = config_of(session, root.class_name) if places else {}
    return expander_prompt(root.class_name, places, config, callees, session.trees), len(places)
