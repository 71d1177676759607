"""Code that runs on a Dask worker: one family per thread, each thread with its own fork server and results folder."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lmp.errors import LmpError
from lmp.records import ZooEntry
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME
from lmp.zoo.fork_server import ForkServer
from lmp.zoo.requests import Limits, Request
from lmp.zoo.worker_results import WorkerResult


@dataclass(frozen=True)
class Workspace:
    """Fork server and results folder of one thread in one run. Families share analyses of common classes there."""

    server: ForkServer
    folder: Path


_workspaces: dict[tuple[str, int], Workspace] = {}
_ended: set[str] = set()
_lock = threading.Lock()


@functools.cache
def facts(transformers: str | None, pytorch: str | None) -> dict[str, str]:
    """Versions and hashes, by name, that two machines must share to get the same results.

    Raises NotFound if the sources are missing.
    """
    from lmp.source.trees import find_trees
    from lmp.store.fingerprint import sources_fingerprint
    from lmp.zoo.entries import DECIDING

    trees = find_trees(None, Path(transformers) if transformers else None, Path(pytorch) if pytorch else None, [])
    found = {"lmp's rules": sources_fingerprint(DECIDING)[:12]}
    for name in ("transformers", "pytorch"):
        tree = trees.need(name)
        found[name] = f"{tree.version} {tree.sha256[:12]}" if tree.sha256 else tree.version
    return found


def differing(here: dict[str, str], there: dict[str, str]) -> str:
    """A worker's facts that differ from the caller's, as text; empty if all agree."""
    found = [(name, there.get(name, "missing"), mine) for name, mine in here.items() if there.get(name) != mine]
    return ", ".join(f"{name} {theirs} instead of {mine}" for name, theirs, mine in found)


def analyse(request_text: str, seconds: float, memory: int, run: str, expected_text: str) -> bytes:
    """Run one family and return a packed `WorkerResult`. The arguments are text and numbers, readable by any Python."""
    from distributed import get_worker

    worker = get_worker()
    request = Request(**json.loads(request_text))
    try:
        differs = differing(json.loads(expected_text), facts(request.transformers, request.pytorch))
        if differs:
            return WorkerResult(worker.address, refused=f"has {differs}").pack()
        worker.log_event(run, {"family": request.family, "task": request.task})
        workspace = _workspace(run, Path(worker.local_directory), Limits(seconds, memory))
        if workspace is None:
            return WorkerResult(worker.address, refused="was told that the run is over").pack()
        request = replace(request, results=str(workspace.folder))
        before = _stamps(workspace.folder)
        entry = workspace.server.run(request)
        files = _contents(entry, request, before)
    except LmpError as error:
        return WorkerResult(worker.address, refused=f"cannot run families: {error}").pack()
    return WorkerResult(worker.address, entry.model_dump(mode="json", exclude_none=True), files).pack()


def end(run: str) -> None:
    """Stop a run's families on this worker and remove its folders."""
    with _lock:
        _ended.add(run)
        ended = [_workspaces.pop(key) for key in list(_workspaces) if key[0] == run]
    _clear(ended)


def _clear(workspaces: list[Workspace]) -> None:
    for workspace in workspaces:
        workspace.server.close()
        shutil.rmtree(workspace.folder, ignore_errors=True)


def _workspace(run: str, folder: Path, limits: Limits) -> Workspace | None:
    """The workspace of this thread, created if necessary; None if the run is over.

    A thread has one at most. The workspace of an earlier run whose caller never called `end` is removed here.
    """
    thread = threading.get_ident()
    with _lock:
        if run in _ended:
            return None
        if (run, thread) in _workspaces:
            return _workspaces[run, thread]
        left = [_workspaces.pop(key) for key in list(_workspaces) if key[1] == thread]
        made = _workspaces[run, thread] = Workspace(ForkServer(limits), folder / f"{run}-{thread}")
    _clear(left)
    return made


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Modification time and size of each stored analysis."""
    found = {}
    for file in (file for name in (FILE_NAME, MODEL_FILE_NAME) for file in folder.glob(f"*/{name}")):
        with contextlib.suppress(OSError):
            stat = file.stat()
            found[file] = (stat.st_mtime_ns, stat.st_size)
    return found


def _contents(entry: ZooEntry, request: Request, before: dict[Path, tuple[int, int]]) -> dict[str, str]:
    """Text of the model's files and of all other files that this family wrote, by path in the results folder.

    The model's files may be from earlier families.
    """
    now = _stamps(request.folder)
    found = {file for file, stamp in now.items() if before.get(file) != stamp}
    found |= set(_of_model(entry, request))
    found.add(request.folder / request.config_name)
    return {
        file.relative_to(request.folder).as_posix(): file.read_text(encoding="utf-8")
        for file in sorted(found)
        if file.is_file()
    }


def _of_model(entry: ZooEntry, request: Request) -> Iterator[Path]:
    from lmp.store.results import Store
    from lmp.zoo.family import files_of

    if entry.class_name is None:
        return
    store = Store(request.folder)
    model = store.load_model(entry.class_name, entry.config)
    if model is not None:
        yield from files_of(model, store)
