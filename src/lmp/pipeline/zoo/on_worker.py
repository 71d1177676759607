"""What runs on a worker of a cluster: one family a thread, in a nursery and a results folder of the thread's own."""

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
from lmp.pipeline.zoo.nursery import Nursery
from lmp.pipeline.zoo.parcels import Parcel
from lmp.pipeline.zoo.requests import Limits, Request
from lmp.records import ZooEntry
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME


@dataclass(frozen=True)
class Place:
    """Of one thread in one run. What families share is in ``folder``, so that it is derived once."""

    nursery: Nursery
    folder: Path


_places: dict[tuple[str, int], Place] = {}
_ended: set[str] = set()
_lock = threading.Lock()


@functools.cache
def facts(transformers: str | None, pytorch: str | None) -> dict[str, str]:
    """What two machines must have in common for their results to be the same: name -> version or hash.

    Raises NotFound where the sources are not there.
    """
    from lmp.pipeline.zoo.entries import DECIDING
    from lmp.source.trees import find_trees
    from lmp.store.fingerprint import sources_fingerprint

    trees = find_trees(None, Path(transformers) if transformers else None, Path(pytorch) if pytorch else None, [])
    found = {"lmp's rules": sources_fingerprint(DECIDING)[:12]}
    for name in ("transformers", "pytorch"):
        tree = trees.need(name)
        found[name] = f"{tree.version} {tree.sha256[:12]}" if tree.sha256 else tree.version
    return found


def differing(here: dict[str, str], there: dict[str, str]) -> str:
    """What a worker has that is not what the caller has, in words; empty where they are the same."""
    found = [(name, there.get(name, "missing"), mine) for name, mine in here.items() if there.get(name) != mine]
    return ", ".join(f"{name} {theirs} instead of {mine}" for name, theirs, mine in found)


def analyse(request_text: str, seconds: float, memory: int, run: str, expected_text: str) -> bytes:
    """Run one family; a packed `Parcel`. Arguments are text and numbers, so that workers of any Python take them."""
    from distributed import get_worker

    worker = get_worker()
    request = Request(**json.loads(request_text))
    try:
        differs = differing(json.loads(expected_text), facts(request.transformers, request.pytorch))
        if differs:
            return Parcel(worker.address, refused=f"has {differs}").packed()
        worker.log_event(run, {"family": request.family, "task": request.task})
        place = _place(run, Path(worker.local_directory), Limits(seconds, memory))
        if place is None:
            return Parcel(worker.address, refused="was told that the run is over").packed()
        request = replace(request, results=str(place.folder))
        before = _stamps(place.folder)
        entry = place.nursery.run(request)
        files = _files(entry, request, before)
    except LmpError as error:
        return Parcel(worker.address, refused=f"cannot run families: {error}").packed()
    return Parcel(worker.address, entry.model_dump(mode="json", exclude_none=True), files).packed()


def end(run: str) -> None:
    """Stop whatever of this run goes on here, and remove what it left."""
    with _lock:
        _ended.add(run)
        ended = [_places.pop(key) for key in list(_places) if key[0] == run]
    _clear(ended)


def _clear(places: list[Place]) -> None:
    for place in places:
        place.nursery.close()
        shutil.rmtree(place.folder, ignore_errors=True)


def _place(run: str, folder: Path, limits: Limits) -> Place | None:
    """That of this thread; None where the run is over.

    A thread has one at most: what a caller left who did not say that its run is over goes with the next one.
    """
    thread = threading.get_ident()
    with _lock:
        if run in _ended:
            return None
        if (run, thread) in _places:
            return _places[run, thread]
        left = [_places.pop(key) for key in list(_places) if key[1] == thread]
        place = _places[run, thread] = Place(Nursery(limits), folder / f"{run}-{thread}")
    _clear(left)
    return place


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """When each stored analysis was written, and how long it is."""
    found = {}
    for file in (file for name in (FILE_NAME, MODEL_FILE_NAME) for file in folder.glob(f"*/{name}")):
        with contextlib.suppress(OSError):
            stat = file.stat()
            found[file] = (stat.st_mtime_ns, stat.st_size)
    return found


def _files(entry: ZooEntry, request: Request, before: dict[Path, tuple[int, int]]) -> dict[str, str]:
    """What belongs to the model, also where an earlier family made it, and what else this family made."""
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
    from lmp.pipeline.zoo.family import files_of
    from lmp.store.results import Store

    if entry.class_name is None:
        return
    store = Store(request.folder)
    model = store.load_model(entry.class_name, entry.config)
    if model is not None:
        yield from files_of(model, store)
