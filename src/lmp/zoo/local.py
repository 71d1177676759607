"""An executor on this machine: parallel fork servers with one thread each."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from lmp.zoo.fork_server import ForkServer
from lmp.zoo.requests import Finished, Limits, Request


class LocalProcesses:
    """Runs families in ``count`` fork servers."""

    def __init__(self, count: int, limits: Limits) -> None:
        self.workers = f"{count} process{'es' if count > 1 else ''}"
        self._servers = [ForkServer(limits) for _ in range(count)]

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        done: queue.SimpleQueue[Finished | BaseException] = queue.SimpleQueue()
        for request in requests:
            waiting.put(request)

        def work(server: ForkServer) -> None:
            try:
                while True:
                    request = waiting.get_nowait()
                    started(request)
                    done.put(Finished(server.run(request)))
            except queue.Empty:
                return
            except BaseException as error:  # raised again in the thread that waits for the results
                done.put(error)

        for server in self._servers[: len(requests)]:
            threading.Thread(target=work, args=(server,), daemon=True).start()
        try:
            for _ in requests:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            self.close()

    def close(self) -> None:
        for server in self._servers:
            server.close()
