"""A zoo of three families that do not exist, and an executor that runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lmp.records import ZooEntry
from lmp.source.auto import AUTO
from lmp.zoo.requests import Finished, Request

NAMES = ("ant", "bee", "cat")


class SyntheticExecutor:
    """An executor that gives each family the status set for it, and records the requests."""

    workers = "1 process"

    def __init__(self, **statuses: str) -> None:
        self.statuses = statuses
        self.asked: list[str] = []
        self.closed = False

    def run(self, requests: Sequence[Request], started: Callable[[Request], None]) -> Iterator[Finished]:
        for request in requests:
            started(request)
            self.asked.append(request.family)
            status = self.statuses.get(request.family, "verified")
            if status == "killed":
                raise KeyboardInterrupt
            entry = {"family": request.family, "task": request.task, "status": status}
            yield Finished(ZooEntry.model_validate({**entry, "fingerprint": request.fingerprint}))

    def close(self) -> None:
        self.closed = True


def clone(folder: Path) -> Path:
    """A clone of transformers that has nothing but the names of three families."""
    pairs = ", ".join(f'("{name}", "{name.title()}Model")' for name in NAMES)
    package = folder / "clone" / "src" / "transformers"
    (package / AUTO).parent.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "9.9.9"')
    (package / AUTO).write_text(f"MODEL_MAPPING_NAMES = OrderedDict([{pairs}])")
    return folder / "clone"
