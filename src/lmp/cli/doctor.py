"""``lmp doctor``: what is installed, vendored and configured. Packages are not imported; no secret is printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lmp.cli import options as o
from lmp.cli.output import write_json
from lmp.errors import LmpError

if TYPE_CHECKING:
    from lmp.source.trees import Tree

PYTHON = (3, 11)
UNUSABLE = 3
"""Exit code: something that lmp needs is missing."""


@o.takes(*o.FOLDERS, "as_json", "debug")
def doctor(common: o.Common) -> None:
    """Check the installation: what is there, what is missing, what to do."""
    from dataclasses import asdict

    checks = examine(common.results_folder, common.transformers, common.pytorch)
    if common.as_json:
        write_json({"usable": usable(checks), "checks": [asdict(check) for check in checks]})
    else:
        _print_checks(checks)
    if not usable(checks):
        raise typer.Exit(UNUSABLE)


@dataclass(frozen=True)
class Check:
    """A finding about one thing that lmp needs or can use."""

    name: str
    ok: bool
    found: str
    mend: str = ""
    """The command, or the action, that repairs it; empty if nothing is wrong."""
    needed: bool = True
    """True if lmp is of no use without it."""


def usable(checks: list[Check]) -> bool:
    return all(check.ok for check in checks if check.needed)


def examine(results: Path, transformers: Path | None = None, pytorch: Path | None = None) -> list[Check]:
    return [
        _python(),
        _engine("torch", "pytorch", (2, 11), "the trace engine and the judge execute modules with it"),
        _engine("transformers", "transformers", (5,), "lmp executes its models"),
        *_sources(transformers, pytorch),
        _results(results),
        _reports(),
        *_agents(),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= PYTHON, version, "" if sys.version_info >= PYTHON else "use Python 3.11")


def _engine(name: str, layout: str, least: tuple[int, ...], why: str) -> Check:
    """A package of the extra ``engine``. In a project its release must be that of the pinned sources."""
    from lmp.source.installed import INSTALL
    from lmp.source.project import project_root
    from lmp.source.trees import LAYOUTS

    proven = LAYOUTS[layout].pinned_version
    if project_root() is not None:
        return _package(name, proven.rpartition(".")[0], why, f"make setup, or: pip install -c constraints.txt {name}")
    found = _package(name, "", why, INSTALL)
    if not found.ok or found.found.partition("+")[0] == proven:
        return found
    release = [int(part) for part in found.found.split(".")[: len(least)] if part.isdecimal()]
    if tuple(release) < least:
        needs = f"{found.found}, but lmp needs {'.'.join(map(str, least))} or newer"
        return Check(name, False, needs, f"pip install --upgrade '{name}=={proven}'")
    return Check(name, True, f"{found.found}; lmp is proven on {proven}")


def _package(name: str, series: str, why: str, mend: str, needed: bool = True) -> Check:
    from importlib import metadata

    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, f"not installed ({why})", mend, needed)
    if series and not version.startswith(f"{series}."):
        return Check(name, False, f"{version}, but lmp needs {series}", mend, needed)
    return Check(name, True, version, needed=needed)


def _sources(transformers: Path | None, pytorch: Path | None) -> Iterator[Check]:
    from lmp.source.trees import LAYOUTS, find_trees

    for layout in LAYOUTS.values():
        name = f"{layout.name} sources"
        given = {"transformers": transformers, "pytorch": pytorch}[layout.name]
        try:
            trees = find_trees(**{layout.name: given})  # type: ignore[arg-type]
            yield _tree(name, trees.need(layout.name))
        except LmpError as error:
            what, _, then = str(error).partition("\n")
            yield Check(name, False, what, then)


def _tree(name: str, tree: Tree) -> Check:
    from lmp.source.project import LOCK_NAME
    from lmp.source.trees import check_tree, edited_files

    if tree.is_installed:
        about, differences = f"{tree.distribution} {tree.version} in {tree.package_dir}", edited_files(tree)
        state = f"with edits, analysed as they are: {_and_more(differences)}" if differences else "as installed"
        return Check(name, True, f"{about}, {state}")
    about = f"{tree.distribution} {tree.version} in {tree.root}"
    if not tree.pinned:
        return Check(name, True, f"{about}, not pinned by {LOCK_NAME}")
    differences = check_tree(tree)
    if differences:
        return Check(name, False, f"{about} differs from {LOCK_NAME}: {_and_more(differences)}", "lmp vendor")
    return Check(name, True, f"{about}, as {LOCK_NAME} says")


def _and_more(differences: list[str]) -> str:
    """The first difference, and the number of the others."""
    return differences[0] + (f" and {len(differences) - 1} more" if len(differences) > 1 else "")


def _results(folder: Path) -> Check:
    """Write a file and remove it: permissions alone do not say whether one can be written."""
    import contextlib

    from lmp.store.files import storage_errors, write_whole

    there = folder.exists()
    probe = folder / f".lmp-doctor-{os.getpid()}"
    try:
        with storage_errors(probe):
            write_whole(probe, "")
            probe.unlink()
    except LmpError as error:
        what, _, then = str(error).partition("\n")
        return Check("results", False, what, then)
    if not there:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return Check("results", True, f"{folder} can be written")


def _reports() -> Check:
    from lmp.report.extra import INSTALL, PACKAGES, missing

    lacking = missing()
    found = f"{len(PACKAGES)} packages" if not lacking else f"not installed: {', '.join(lacking)}"
    return Check("reports", not lacking, found, INSTALL, needed=False)


def _agents() -> Iterator[Check]:
    """What the agent engine needs, and whether it can run. A credential is named, never shown."""
    from lmp.agents.environment import CREDENTIALS, cli_version, credential
    from lmp.settings import settings_file

    mend = "pip install --force-reinstall claude-agent-sdk"
    sdk = _package("claude-agent-sdk", "0.2", "the agent engine uses it", mend, needed=False)
    yield sdk
    version = cli_version()
    yield Check("agents' program", version is not None, version or "not in the SDK's wheel", mend, needed=False)
    name = credential()
    missing = f"set one of {', '.join(CREDENTIALS)}; the trace engine needs none"
    yield Check("credential", name is not None, f"{name} is set" if name else "none is set", missing, needed=False)
    yield _settings(settings_file())
    able = sdk.ok and version is not None and name is not None
    yield Check("agent engine", able, "can run" if able else "cannot run: see above", needed=False)


def _settings(file: Path) -> Check:
    from lmp.agents.environment import chosen_engine
    from lmp.settings import read_settings

    try:
        settings = read_settings()
    except LmpError as error:
        what, _, then = str(error).partition("\n")
        return Check("settings", False, what, then)
    choice = chosen_engine("auto")
    given = ", ".join(f"{name}={value}" for name, value in settings.model_dump(exclude_defaults=True).items())
    where = f"{file}: {given}" if file.is_file() else f"none ({file})"
    return Check("settings", True, f"{where}; --engine auto is {choice.engine}")


def _print_checks(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import STACKED, console, indented

    out = console()
    if out.width < STACKED:
        for check in checks:
            mark = "ok" if check.ok else "MISSING" if check.needed else "-"
            out.print(Text(f"{mark} {check.name}", style="" if check.ok else "bold"))
            out.print(indented(check.found))
            if not check.ok and check.mend:
                out.print(indented(f"-> {check.mend}"))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        mark, style = ("ok", "green") if check.ok else ("missing", "bold red") if check.needed else ("-", "dim")
        table.add_row(Text(mark, style=style), Text(check.name), Text(check.found))
        if not check.ok and check.mend:
            table.add_row(Text(), Text(), Text(f"-> {check.mend}", style="bold"))
    out.print(table)
