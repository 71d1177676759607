"""Tiers of the tests, the copy of transformers that they run, and the results that they share."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import shared_results
from fetched_repositories import NAMES, REPOSITORIES
from lmp.analyze.session import Options
from lmp.source.trees import find_trees
from lmp.workload.load import use_transformers_tree
from shared_results import PROJECT, Analysed

# No test asserts a time: a loaded machine must not fail one.
settings.register_profile("lmp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lmp")

# -- tiers -------------------------------------------------------------------------------------------------------------

SLOW = {
    "browser": "Chromium",
    "code_bases": "four fetched code bases",
    "dask": "a Dask scheduler with workers",
    "default_family": "a whole model at its default or its published config",
    "pages": "every command of README.md and docs/",
    "service": "Claude's real command line against a scripted service",
    "wheel": "the wheel, built and installed into an empty environment from the package index",
}
"""Fixture -> what makes a test that asks for it slow."""

ENGINE = {
    "transformers_tree": "models of transformers on the meta device",
    "derivation": "formulas derived for modules that are not of transformers",
    "process": "lmp in a process of its own",
}
"""Fixture -> what a test of the engine's tier runs. All other tests are of the unit tier."""

GROUPS = {"browser": "browser", "dask": "dask", "small": "small models", "wheel": "wheel"}
"""Fixture -> xdist group: one process runs all tests of a group, because what they share takes long to make."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier and its group, by the fixtures that it asks for, directly or not.

    A test that is marked as slow or long itself, as one of several cases may be, stays in that tier alone.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.get_closest_marker("slow") is None and item.get_closest_marker("long") is None:
            item.add_marker("slow" if fixtures & SLOW.keys() else "engine" if fixtures & ENGINE.keys() else "unit")
        for name in fixtures & GROUPS.keys():
            item.add_marker(pytest.mark.xdist_group(GROUPS[name]))


@pytest.fixture(scope="session")
def code_bases() -> Path:
    """The folder of the code bases that `make repositories` fetches."""
    if gone := [name for name in NAMES if not (REPOSITORIES / name).is_dir()]:
        pytest.skip(f"{', '.join(gone)} not there: run `make repositories`")
    return REPOSITORIES


@pytest.fixture(scope="session")
def default_family(transformers_tree: Path) -> None:
    """Names the cost of a test; see `SLOW`."""


@pytest.fixture(scope="session")
def derivation() -> None:
    """Names the cost of a test; see `ENGINE`."""


@pytest.fixture(scope="session")
def process() -> None:
    """Names the cost of a test; see `ENGINE`."""


# -- the sources that run ----------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Choose the copy before any test module can import one; leave no credential or setting of who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE_"))]:
        del os.environ[name]
    os.environ["LMP_SETTINGS"] = os.devnull
    os.environ.pop("LMP_RESULTS", None)
    # Tests of the engine analyse: an answer from the atlas would hide what they test. Tests of the atlas ask for it.
    os.environ["LMP_ATLAS"] = "off"
    # Outside a project lmp writes into the user's data folder: tests have one of their own.
    os.environ["XDG_DATA_HOME"] = str(Path(tempfile.gettempdir()) / "lmp-tests-data")
    tree = find_trees(PROJECT).transformers
    if tree is not None:
        use_transformers_tree(tree.package_dir.parent)
    if not hasattr(config, "workerinput"):  # the process that starts the others
        shared_results.remove_old()


@pytest.fixture(scope="session")
def transformers_tree() -> Path:
    """The vendored transformers package, which ``import transformers`` takes in this process."""
    tree = find_trees(PROJECT).transformers
    if tree is None:
        pytest.skip("transformers is not vendored: run `lmp vendor`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

    assert Path(str(transformers.__file__)).resolve().parent == tree.package_dir.resolve()
    return tree.package_dir


# -- shared results ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared_options(transformers_tree: Path) -> Options:
    """Options of the shared results folder, for tests that only read analyses of torch's and transformers' classes."""
    return Options(results=shared_results.results())


@pytest.fixture(scope="session")
def analysed(shared_options: Options) -> Analysed:
    """``analysed("torch.nn.Linear")``: the shared analyses of a class and of all that it refers to."""
    return lambda class_path: shared_results.analysed(class_path, shared_options)


@pytest.fixture(scope="session")
def small(shared_options: Options) -> Callable[[str], Options]:
    """``small("small-llama")``: options of the shared results at a config of tests/data/configs."""
    return lambda name: replace(shared_options, config_file=PROJECT / "tests" / "data" / "configs" / f"{name}.json")
