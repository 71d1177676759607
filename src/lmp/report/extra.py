"""The packages of the extra `report`: heavy ones, of no use to other commands."""

from __future__ import annotations

from importlib import metadata

from lmp.errors import UsageError

PACKAGES = (
    "jinja2",
    "matplotlib",
    "pathspec",
    "plotly",
    "tree-sitter",
    "tree-sitter-cpp",
    "tree-sitter-cuda",
)
INSTALL = "pip install 'lmp[report]'"


def missing() -> list[str]:
    """Those that are not installed. None is imported for it."""
    return [name for name in PACKAGES if not _is_there(name)]


def check_extra() -> None:
    """Raises UsageError where one is missing, before any work is done."""
    lacking = missing()
    if lacking:
        raise UsageError(f"reports need {', '.join(lacking)}, which is not installed\ninstall it: {INSTALL}")


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
