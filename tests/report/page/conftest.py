"""The page of the small model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The random formulas of the formula language's tests, and the small model of the store's.
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import small_facts

from lmp.report.facts import ModelFacts
from lmp.report.page import page


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return small_facts.facts(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def small_page(facts: ModelFacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_facts.written(page(facts), tmp_path_factory.mktemp("page"))
