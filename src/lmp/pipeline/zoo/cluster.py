"""Families on a Dask cluster: each is a task, and what it made comes back to the caller.

No more tasks are with the scheduler than its workers have threads. So a worker that dies takes down the families that
it ran and no others, and a family that kills its workers fails alone: `distributed` gives it to another worker as
often as ``distributed.scheduler.allowed-failures`` says.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmp.errors import ClusterUnavailable, UsageError
from lmp.pipeline.zoo import on_worker
from lmp.pipeline.zoo.parcels import NotValid, checked, unpacked
from lmp.pipeline.zoo.requests import Finished, Limits, Request
from lmp.records import ZooEntry

if TYPE_CHECKING:
    from distributed import Client, Future

ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?[^\s/:]+:\d{1,5}|((tcp|tls|ws|wss|ucx)://)?\[[0-9a-fA-F:]+\]:\d{1,5}")
INSTALL = "`--scheduler` needs the package distributed\nrun `pip install 'lmp[cluster]'`"
AGAIN = "what came back is kept: the same command goes on with the rest"
LOOK = 0.5
"""Seconds between two looks at the cluster where nothing comes back."""


@dataclass(frozen=True)
class Patience:
    """Seconds that are waited for a scheduler to answer, and for a worker to be there."""

    scheduler: float = 10.0
    workers: float = 60.0


class DaskCluster:
    """Runs families on the workers of a scheduler that somebody started.

    Raises UsageError for an address that is none, and where the extra ``cluster`` is missing.
    """

    def __init__(self, address: str, limits: Limits, patience: Patience | None = None) -> None:
        if not ADDRESS.fullmatch(address):
            raise UsageError(f"{address!r} is not the address of a scheduler\ngive one as in tcp://host:8786")
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise UsageError(INSTALL) from error
        self.address, self.limits = address, limits
        self.patience = patience or Patience()
        self.workers = "Dask workers"
        self._client: Client | None = None
        self._run = f"lmp-zoo-{uuid.uuid4().hex}"
        self._flying: dict[Future, Request] = {}
        self._woken = threading.Event()
        self._quiet = contextlib.ExitStack()

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        """Raises ClusterUnavailable where scheduler or workers are not there, are lost, or are of another lmp."""
        waiting = deque(requests)
        if not waiting:
            return
        try:
            client = self._connected()
            expected = self._compared(client, requests[0])
            self._tell(client, requests, started)
            crowd = Crowd(client, self.patience.workers, self._lost)
            while waiting or self._flying:
                threads = crowd.threads()
                self.workers = crowd.words
                while waiting and len(self._flying) < threads:
                    self._submit(client, waiting.popleft(), expected)
                self._woken.wait(LOOK)
                self._woken.clear()
                yield from self._landed()
        finally:
            self.close()

    def close(self) -> None:
        """Take back what is not done, stop what runs, and leave nothing on the workers."""
        client, self._client = self._client, None
        flying, self._flying = list(self._flying), {}
        if client is not None:
            with contextlib.suppress(Exception):  # whatever a cluster that is half gone says to it
                if client.status == "running":
                    client.cancel(flying, force=True)
                    client.run(on_worker.end, self._run, on_error="ignore")
            with contextlib.suppress(Exception):
                client.close(timeout=self.patience.scheduler)
        self._quiet.close()

    def _connected(self) -> Client:
        import dask
        from distributed import Client

        self._quiet.enter_context(_silent())
        self._quiet.enter_context(dask.config.set({"distributed.comm.timeouts.connect": f"{self.patience.scheduler}s"}))
        try:
            self._client = Client(self.address, timeout=self.patience.scheduler, set_as_default=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterUnavailable(
                f"no Dask scheduler answers at {self.address}\nstart one with `dask scheduler`, and workers with "
                f"`dask worker {self.address} --nthreads 1`"
            ) from error
        return self._client

    def _compared(self, client: Client, request: Request) -> str:
        """What every worker must have in common with this machine, after all that are there were asked."""
        try:
            client.wait_for_workers(1, timeout=self.patience.scheduler)
        except (OSError, TimeoutError) as error:
            raise ClusterUnavailable(
                f"the scheduler at {self.address} has no worker\n"
                f"start some with `dask worker {self.address} --nthreads 1 --nworkers N`"
            ) from error
        here = on_worker.facts(request.transformers, request.pytorch)
        answers = client.run(on_worker.facts, request.transformers, request.pytorch, on_error="return")
        for worker, there in sorted(answers.items()):
            if isinstance(there, ModuleNotFoundError):
                raise _unusable(worker, f"cannot import {there.name}")
            if isinstance(there, BaseException):
                raise _unusable(worker, f"has no sources to work on: {_first_line(there)}")
            differs = on_worker.differing(here, there)
            if differs:
                raise _unusable(worker, f"has {differs}")
        return json.dumps(here)

    def _tell(self, client: Client, requests: Sequence[Request], started: Callable[[Request], None]) -> None:
        """Workers log an event when they begin with a family."""
        known = {(request.family, request.task): request for request in requests}

        def told(event: tuple[float, Any]) -> None:
            _, message = event
            if isinstance(message, dict):
                request = known.get((message.get("family"), message.get("task")))  # type: ignore[arg-type]
                if request is not None:
                    started(request)

        client.subscribe_topic(self._run, told)

    def _submit(self, client: Client, request: Request, expected: str) -> None:
        future = client.submit(
            on_worker.analyse,
            json.dumps(request.to_json()),
            self.limits.seconds,
            self.limits.memory,
            self._run,
            expected,
            key=f"{self._run}-{request.task}-{request.family}",
            pure=False,
        )
        self._flying[future] = request
        future.add_done_callback(lambda _: self._woken.set())

    def _landed(self) -> Iterator[Finished]:
        for future, request in list(self._flying.items()):
            if future.status in ("cancelled", "lost"):
                raise self._lost()
            if not future.done():
                continue
            found = self._result(future, request)
            if found is not None:
                del self._flying[future]
                yield found

    def _result(self, future: Future, request: Request) -> Finished | None:
        """None where the worker that held it was lost meanwhile: then the family is run again."""
        if future.status == "error":
            return Finished(_failed(request, future.exception(timeout=self.patience.scheduler)))
        try:
            content = future.result(timeout=self.patience.scheduler)
        except (TimeoutError, OSError):
            return None
        try:
            parcel = unpacked(content)
            if parcel.refused:
                raise _unusable(parcel.worker, parcel.refused)
            return checked(parcel, request)
        except NotValid as error:
            return Finished(_not_made(request, "error", f"what a worker sent back was not kept: {error}"))

    def _lost(self) -> ClusterUnavailable:
        return ClusterUnavailable(f"the scheduler at {self.address} was lost\n{AGAIN}")


class Crowd:
    """The workers of a scheduler, as they come and go."""

    def __init__(self, client: Client, patience: float, lost: Callable[[], ClusterUnavailable]) -> None:
        self._client, self._patience, self._lost = client, patience, lost
        self._asked = self._seen = float("-inf")
        self._threads: dict[str, int] = {}
        self.words = "Dask workers"
        """As "4 threads of 2 Dask workers": the most that there were."""
        self._most = 0

    def threads(self) -> int:
        """Threads of all workers that are there now. Raises ClusterUnavailable where none is for too long."""
        now = time.monotonic()
        if now - self._asked >= LOOK:
            self._ask()
            self._asked = now
        if self._threads or self._seen == float("-inf"):
            self._seen = now
        elif now - self._seen > self._patience:
            raise ClusterUnavailable(f"no worker is left for {self._patience:g} s\nstart some; {AGAIN}")
        return sum(self._threads.values())

    def _ask(self) -> None:
        if self._client.status != "running":
            raise self._lost()
        try:
            self._threads = dict(self._client.nthreads())
        except (OSError, TimeoutError) as error:
            raise self._lost() from error
        count = sum(self._threads.values())
        if count > self._most:
            self._most, of = count, len(self._threads)
            threads, workers = "threads" if count > 1 else "thread", "workers" if of > 1 else "worker"
            self.words = f"{count} {threads} of {of} Dask {workers}"


def _unusable(worker: str, why: str) -> ClusterUnavailable:
    return ClusterUnavailable(
        f"the worker {worker} {why}\ngive it the same lmp and sources as here, or stop it; {AGAIN}"
    )


def _failed(request: Request, error: BaseException | None) -> ZooEntry:
    """Of a task that ended with an error: its workers died, or there is a bug on them."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        times = error.allowed_failures + 1
        return _not_made(request, "stopped", f"{times} workers died, one after the other, while they ran it")
    told = "nothing" if error is None else f"{type(error).__name__}: {_first_line(error)}"
    return _not_made(request, "error", f"a worker failed with {told}")


def _not_made(request: Request, status: str, reason: str) -> ZooEntry:
    return ZooEntry.model_validate(
        {
            "family": request.family,
            "task": request.task,
            "status": status,
            "cause": "lmp",
            "reason": reason,
            "fingerprint": request.fingerprint,
        }
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing of what `distributed` logs: what matters of it is told as errors."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
