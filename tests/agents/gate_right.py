"""Right analyses by lmp's own engine, made once, and the gates of their classes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from gate_classes import CLASSES

from lmp.agents.gate import Gate
from lmp.agents.subject import ClassSubject
from lmp.analyze.session import Options, Session
from lmp.records import Draft
from shared_results import Analysed, copied


@pytest.fixture(scope="session")
def options(tmp_path_factory: pytest.TempPathFactory, analysed: Analysed) -> Options:
    found = Options(results=tmp_path_factory.mktemp("right"))
    for class_path in CLASSES:
        copied(analysed(class_path), found.results)
    return found


@pytest.fixture(scope="session")
def session(options: Options) -> Session:
    return Session(options, lambda name, stage: None, takes_foreign=True)


@pytest.fixture(scope="session")
def gates(session: Session) -> dict[str, Gate]:
    """One gate a class: what it has executed is kept."""
    return {name: Gate(ClassSubject(session, name)) for name in CLASSES}


@pytest.fixture(scope="session")
def drafts(options: Options) -> dict[str, dict[str, Any]]:
    found = {}
    for name in CLASSES:
        data = json.loads((options.results / name / "module_analysis.json").read_text())
        found[name] = {field: data[field] for field in Draft.model_fields if field in data}
    return found


@pytest.fixture
def draft(drafts: dict[str, dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """A right draft of a class, to be changed at will."""
    return lambda name: copy.deepcopy(drafts[name])
