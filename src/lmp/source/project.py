"""Where lmp works: in a project, which is a folder with ``vendor.lock`` or below one, or elsewhere.

A project has vendored sources, and its results are in it. Elsewhere the sources are those of the installed
distributions, and results go to the user's data folder. Nothing is written into the current folder then.
"""

from __future__ import annotations

import os
from pathlib import Path

LOCK_NAME = "vendor.lock"
RESULTS = "analysis_results"
REPORTS = "reports"

VARIABLE = "LMP_RESULTS"
"""Environment variable that names the results folder, in place of the default."""


def project_root(start: Path | None = None) -> Path | None:
    """The nearest folder with a lock, upwards from ``start`` (default: working directory); None outside a project."""
    start = (start or Path.cwd()).absolute()
    return next((folder for folder in (start, *start.parents) if (folder / LOCK_NAME).is_file()), None)


def data_folder() -> Path:
    """The user's folder for what lmp keeps outside a project."""
    from platformdirs import user_data_path

    return user_data_path("lmp", appauthor=False)


def results_folder() -> Path:
    """The results folder where none is given: that of `VARIABLE`, the project's, or the user's."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else _home() / RESULTS


def scratch_results_folder() -> Path:
    """The results folder of a command that only looks figures up, where none is given.

    In a project it is in the user's cache: a check leaves the checkout as it is.
    """
    if os.environ.get(VARIABLE) or project_root() is None:
        return results_folder()
    from platformdirs import user_cache_path

    return user_cache_path("lmp", appauthor=False) / RESULTS


def reports_folder() -> Path:
    """The folder for reports where none is given: the project's, or the user's."""
    return _home() / REPORTS


def is_users_own(folder: Path) -> bool:
    """True for a folder of the user's data, which a command has to name: nobody asked for it."""
    return project_root() is None and folder.is_relative_to(data_folder())


def _home() -> Path:
    return project_root() or data_folder()
