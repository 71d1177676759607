"""Families on this machine: some processes side by side."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from lmp.pipeline.zoo.nursery import Nursery
from lmp.pipeline.zoo.requests import Finished, Limits, Request


class LocalProcesses:
    """Runs families in as many nurseries as asked for."""

    def __init__(self, count: int, limits: Limits) -> None:
        self.workers = f"{count} process{'es' if count > 1 else ''}"
        self._nurseries = [Nursery(limits) for _ in range(count)]

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        done: queue.SimpleQueue[Finished | BaseException] = queue.SimpleQueue()
        for request in requests:
            waiting.put(request)

        def work(nursery: Nursery) -> None:
            try:
                while True:
                    request = waiting.get_nowait()
                    started(request)
                    done.put(Finished(nursery.run(request)))
            except queue.Empty:
                return
            except BaseException as error:  # told where the results are waited for
                done.put(error)

        for nursery in self._nurseries[: len(requests)]:
            threading.Thread(target=work, args=(nursery,), daemon=True).start()
        try:
            for _ in requests:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            self.close()

    def close(self) -> None:
        for nursery in self._nurseries:
            nursery.close()
