"""The facts of a class for its prompt, with what execution shows of it where it can be executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lmp.agents.facts import Callee, Executed, Facts, called_classes, read_facts
from lmp.agents.reading import callee_of
from lmp.errors import LmpError
from lmp.records import ModuleAnalysis

if TYPE_CHECKING:
    from lmp.pipeline.making import Making
    from lmp.pipeline.module import Session
    from lmp.source.locate import ClassSource

Lookup = Callable[[str], ModuleAnalysis]


def facts_of(session: Session, source: ClassSource, lookup: Lookup, making: Making | None = None) -> Facts:
    """What a prompt says of a class. ``lookup`` gives the analyses of the classes that it calls, or raises an LmpError:
    then the prompt says that there is none. ``making`` runs the class, where that is there already."""
    executed, why_not, config = _executed(session, source, making)
    options = session.options
    return read_facts(
        source,
        session.trees,
        executed,
        config=config or dict(session.config or {}),
        origin=session.origin.origin,
        setting=f"in {options.dtype}, attention {config.get('_attn_implementation') or options.attention or 'sdpa'}",
        why_not=why_not,
        callees=tuple(_callee(name, lookup) for name in called_classes(source, session.trees, executed)),
    )


def config_of(session: Session, class_path: str) -> dict[str, Any]:
    """The plain values of the config that a class is analysed at, as far as they are known without executing it."""
    try:
        making = session.making(session.locate(class_path))
        from lmp.pipeline.described import plain_config

        return plain_config(making) or dict(session.config or {})
    except (LmpError, ImportError):
        return dict(session.config or {})


def _executed(
    session: Session, source: ClassSource, making: Making | None
) -> tuple[Executed | None, str, dict[str, Any]]:
    """What running it shows, or why it does not run; and the plain values of its config."""
    config: dict[str, Any] = {}
    try:
        making = making or session.making(source)
        from lmp.pipeline.described import executed, plain_config

        config = plain_config(making)
        return executed(making), "", config
    except LmpError as error:
        return None, str(error).splitlines()[0], config
    except ImportError as error:
        return None, f"it cannot be imported: {error}", config


def _callee(class_path: str, lookup: Lookup) -> Callee:
    try:
        return callee_of(lookup(class_path))
    except LmpError as error:
        why = str(error).splitlines()[0]
        return Callee(class_path, {}, missing=f"no analysis of it: {why}")
