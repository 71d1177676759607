"""An executor on a Dask cluster: each family is a task, and its result files return to the caller.

The scheduler never has more tasks than its workers have threads. So a worker that dies loses only its families in
flight. A family that kills its workers fails without the others: `distributed` moves it to other workers, as often as
``distributed.scheduler.allowed-failures`` allows.
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

from lmp.errors import ClusterUnavailable, UsageError, first_line
from lmp.records import ZooEntry
from lmp.zoo.requests import Finished, Limits, Request
from lmp.zoo.worker import analyse, differing, end, facts
from lmp.zoo.worker_results import InvalidResult, unpack, validated

if TYPE_CHECKING:
    from distributed import Client, Future

ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?[^\s/:]+:\d{1,5}|((tcp|tls|ws|wss|ucx)://)?\[[0-9a-fA-F:]+\]:\d{1,5}")
INSTALL = "`--scheduler` needs the package distributed\nrun `pip install 'lmp[cluster]'`"
AGAIN = "received results are kept: the same command continues with the rest"
POLL = 0.5
"""Seconds between two checks of the cluster while no result arrives."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds to wait for an answer of the scheduler, and for a worker."""

    scheduler: float = 10.0
    workers: float = 60.0


class DaskCluster:
    """Runs families on the workers of a running scheduler.

    Raises UsageError for an invalid address, and if the extra ``cluster`` is missing.
    """

    def __init__(self, address: str, limits: Limits, timeouts: Timeouts | None = None) -> None:
        if not ADDRESS.fullmatch(address):
            raise UsageError(f"{address!r} is not the address of a scheduler\ngive one as in tcp://host:8786")
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise UsageError(INSTALL) from error
        self.address, self.limits = address, limits
        self.timeouts = timeouts or Timeouts()
        self.workers = "Dask workers"
        self._client: Client | None = None
        self._run = f"lmp-zoo-{uuid.uuid4().hex}"
        self._in_flight: dict[Future, Request] = {}
        self._wake = threading.Event()
        self._settings = contextlib.ExitStack()

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        """Run the families and yield their results in order of completion.

        Raises ClusterUnavailable if the scheduler or the workers are missing, are lost, or have another lmp.
        """
        waiting = deque(requests)
        if not waiting:
            return
        try:
            client = self._connect()
            expected = self._check_workers(client, requests[0])
            self._subscribe(client, requests, started)
            pool = WorkerPool(client, self.timeouts.workers, self._lost)
            while waiting or self._in_flight:
                threads = pool.threads()
                self.workers = pool.description
                while waiting and len(self._in_flight) < threads:
                    self._submit(client, waiting.popleft(), expected)
                self._wake.wait(POLL)
                self._wake.clear()
                yield from self._completed()
        finally:
            self.close()

    def close(self) -> None:
        """Cancel the waiting tasks, stop the running ones, and remove all folders on the workers."""
        client, self._client = self._client, None
        in_flight, self._in_flight = list(self._in_flight), {}
        if client is not None:
            with contextlib.suppress(Exception):  # a partly lost cluster may raise anything
                if client.status == "running":
                    client.cancel(in_flight, force=True)
                    client.run(end, self._run, on_error="ignore")
            with contextlib.suppress(Exception):
                client.close(timeout=self.timeouts.scheduler)
        self._settings.close()

    def _connect(self) -> Client:
        import dask
        from distributed import Client

        self._settings.enter_context(_log_silenced())
        self._settings.enter_context(
            dask.config.set({"distributed.comm.timeouts.connect": f"{self.timeouts.scheduler}s"})
        )
        try:
            self._client = Client(self.address, timeout=self.timeouts.scheduler, set_as_default=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterUnavailable(
                f"no Dask scheduler answers at {self.address}\nstart one with `dask scheduler`, and workers with "
                f"`dask worker {self.address} --nthreads 1`"
            ) from error
        return self._client

    def _check_workers(self, client: Client, request: Request) -> str:
        """Check all present workers, and return the facts (as JSON) that every worker must share with this machine.

        Raises ClusterUnavailable without workers, or if one differs.
        """
        try:
            client.wait_for_workers(1, timeout=self.timeouts.scheduler)
        except (OSError, TimeoutError) as error:
            raise ClusterUnavailable(
                f"the scheduler at {self.address} has no worker\n"
                f"start some with `dask worker {self.address} --nthreads 1 --nworkers N`"
            ) from error
        here = facts(request.transformers, request.pytorch)
        answers = client.run(facts, request.transformers, request.pytorch, on_error="return")
        for worker, there in sorted(answers.items()):
            if isinstance(there, ModuleNotFoundError):
                raise _unusable(worker, f"cannot import {there.name}")
            if isinstance(there, BaseException):
                raise _unusable(worker, f"has no sources to work on: {first_line(there)}")
            differs = differing(here, there)
            if differs:
                raise _unusable(worker, f"has {differs}")
        return json.dumps(here)

    def _subscribe(self, client: Client, requests: Sequence[Request], started: Callable[[Request], None]) -> None:
        """Call ``started`` for each family that a worker begins, on the worker's event."""
        known = {(request.family, request.task): request for request in requests}

        def on_event(event: tuple[float, Any]) -> None:
            _, message = event
            if isinstance(message, dict):
                request = known.get((message.get("family"), message.get("task")))  # type: ignore[arg-type]
                if request is not None:
                    started(request)

        client.subscribe_topic(self._run, on_event)

    def _submit(self, client: Client, request: Request, expected: str) -> None:
        future = client.submit(
            analyse,
            json.dumps(request.to_json()),
            self.limits.seconds,
            self.limits.memory,
            self._run,
            expected,
            key=f"{self._run}-{request.task}-{request.family}",
            pure=False,
        )
        self._in_flight[future] = request
        future.add_done_callback(lambda _: self._wake.set())

    def _completed(self) -> Iterator[Finished]:
        for future, request in list(self._in_flight.items()):
            if future.status in ("cancelled", "lost"):
                raise self._lost()
            if not future.done():
                continue
            found = self._result(future, request)
            if found is not None:
                del self._in_flight[future]
                yield found

    def _result(self, future: Future, request: Request) -> Finished | None:
        """The result of a task; None if its worker was lost: the scheduler then runs the family again."""
        if future.status == "error":
            return Finished(_task_error(request, future.exception(timeout=self.timeouts.scheduler)))
        try:
            content = future.result(timeout=self.timeouts.scheduler)
        except (TimeoutError, OSError):
            return None
        try:
            result = unpack(content)
            if result.refused:
                raise _unusable(result.worker, result.refused)
            return validated(result, request)
        except InvalidResult as error:
            return Finished(_failed_entry(request, "error", f"what a worker sent back was not kept: {error}"))

    def _lost(self) -> ClusterUnavailable:
        return ClusterUnavailable(f"the scheduler at {self.address} was lost\n{AGAIN}")


class WorkerPool:
    """The workers of a scheduler. They may join and leave at any time."""

    def __init__(self, client: Client, timeout: float, lost: Callable[[], ClusterUnavailable]) -> None:
        self._client, self._timeout, self._lost = client, timeout, lost
        self._asked = self._seen = float("-inf")
        self._threads: dict[str, int] = {}
        self.description = "Dask workers"
        """The largest pool so far, such as "4 threads of 2 Dask workers"."""
        self._most = 0

    def threads(self) -> int:
        """Number of threads of all present workers. Raises ClusterUnavailable after ``timeout`` seconds without any."""
        now = time.monotonic()
        if now - self._asked >= POLL:
            self._ask()
            self._asked = now
        if self._threads or self._seen == float("-inf"):
            self._seen = now
        elif now - self._seen > self._timeout:
            raise ClusterUnavailable(f"no worker is left for {self._timeout:g} s\nstart some; {AGAIN}")
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
            self.description = f"{count} {threads} of {of} Dask {workers}"


def _unusable(worker: str, why: str) -> ClusterUnavailable:
    return ClusterUnavailable(
        f"the worker {worker} {why}\ngive it the same lmp and sources as here, or stop it; {AGAIN}"
    )


def _task_error(request: Request, error: BaseException | None) -> ZooEntry:
    """The entry for a task that ended with an error: its workers died, or a worker has a bug."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        times = error.allowed_failures + 1
        return _failed_entry(request, "stopped", f"{times} workers died, one after the other, while they ran it")
    text = "nothing" if error is None else f"{type(error).__name__}: {first_line(error)}"
    return _failed_entry(request, "error", f"a worker failed with {text}")


def _failed_entry(request: Request, status: str, reason: str) -> ZooEntry:
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


@contextlib.contextmanager
def _log_silenced() -> Iterator[None]:
    """Silence the log of `distributed`: the relevant problems are raised as errors."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
