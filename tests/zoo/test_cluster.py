"""A real scheduler with workers as processes: what is lost is made again, what kills its workers fails alone."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed")

from dask_processes import Dask

from lmp.errors import ClusterUnavailable, UsageError
from lmp.records import ZooEntry, ZooSummary
from lmp.source.auto import families
from lmp.source.trees import find_trees
from lmp.store.results import Store
from lmp.zoo.cluster import DaskCluster, Timeouts
from lmp.zoo.entries import current_fingerprint
from lmp.zoo.requests import Finished, Limits, Request
from lmp.zoo.run import ZooOptions, run_zoo

LIMITS = Limits(60, 1 << 32)
TIMEOUTS = Timeouts(20, 20)
PRELOAD = ("--preload", "dask_preload")
LINEAR = "torch.nn.modules.linear.Linear"
PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("dask")


def request(name: str, results: Path) -> Request:
    return Request(name, "base", "XModel", str(results), None, None, None, "bfloat16", "f" * 64)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    found = Dask(tmp_path, allowed_failures=1)
    yield found
    found.stop()


def ignored(request: Request) -> None: ...


def ran(dask: Dask, results: Path, *names: str, started: Callable[[Request], None] = ignored) -> dict[str, Finished]:
    cluster = DaskCluster(dask.address, LIMITS, TIMEOUTS)
    return {f.entry.family: f for f in cluster.run([request(name, results) for name in names], started)}


def test_what_workers_made_comes_back(dask: Dask, tmp_path: Path) -> None:
    for name in ("one", "two"):
        dask.worker(name, *PRELOAD)
    begun: list[str] = []
    cluster = DaskCluster(dask.address, LIMITS, TIMEOUTS)
    asked_for = [request(f"slow-{i}", tmp_path / "results") for i in range(6)]
    found = list(cluster.run(asked_for, lambda request: begun.append(request.family)))
    assert sorted(f.entry.family for f in found) == [f"slow-{i}" for i in range(6)]
    assert {f.entry.status for f in found} == {"verified"}
    assert sorted(begun) == [f"slow-{i}" for i in range(6)]
    # Each of the two workers derived Linear with the first of its families.
    assert {name for f in found for name in f.files} == {f"{LINEAR}/module_analysis.json"}
    assert cluster.workers == "2 threads of 2 Dask workers"
    # Nothing of the run stays on the workers.
    assert list(tmp_path.glob("one/**/lmp-zoo-*")) == []


def test_a_poisoned_family_fails_alone(dask: Dask, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        dask.worker(name, *PRELOAD)
    found = ran(dask, tmp_path / "results", "slow-1", "poison", "slow-2", "slow-3", "slow-4")
    assert {name for name, f in found.items() if f.entry.status == "verified"} == {
        "slow-1",
        "slow-2",
        "slow-3",
        "slow-4",
    }
    entry = found["poison"].entry
    # Dask is told to allow one failure: the second is one too many.
    assert (entry.status, entry.reason) == ("stopped", "2 workers died, one after the other, while they ran it")


def test_what_a_worker_sends_is_checked(dask: Dask, tmp_path: Path) -> None:
    dask.worker("one", *PRELOAD)
    found = ran(dask, tmp_path, "liar", "buggy", "quick")
    reasons = {name: f.entry.reason for name, f in found.items()}
    assert reasons == {
        "liar": "what a worker sent back was not kept: its entry is of something else than was asked for",
        "buggy": "a worker failed with TypeError: no such thing",
        "quick": None,
    }


def test_workers_of_another_lmp_are_refused(dask: Dask, tmp_path: Path) -> None:
    dask.worker("one", *PRELOAD, PRELOAD_OTHER_LMP="1")
    with pytest.raises(ClusterUnavailable, match=r"has lmp's rules older instead of \w+, transformers 5.22.0 instead"):
        ran(dask, tmp_path, "quick")


def test_a_worker_of_another_lmp_that_comes_later_is_refused(dask: Dask, tmp_path: Path) -> None:
    dask.worker("one", *PRELOAD)
    came: list[str] = []

    def started(request: Request) -> None:
        if not came:
            came.append(request.family)
            dask.worker("late", *PRELOAD, PRELOAD_OTHER_LMP="1")

    with pytest.raises(ClusterUnavailable, match="received results are kept"):
        ran(dask, tmp_path, *(f"slow-{i}" for i in range(60)), started=started)


def test_no_scheduler_and_no_worker(dask: Dask, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterUnavailable, match="no Dask scheduler answers at"):
            list(DaskCluster(nobody, LIMITS, Timeouts(1, 1)).run([request("quick", tmp_path)], print))
    with pytest.raises(ClusterUnavailable, match="has no worker\nstart some with"):
        list(DaskCluster(dask.address, LIMITS, Timeouts(1, 1)).run([request("quick", tmp_path)], print))
    assert list(DaskCluster(nobody, LIMITS).run([], print)) == []


def test_no_worker_is_left(dask: Dask, tmp_path: Path) -> None:
    worker = dask.worker("one", *PRELOAD)
    cluster = DaskCluster(dask.address, LIMITS, Timeouts(20, 2))
    with pytest.raises(ClusterUnavailable, match="no worker is left for 2 s\nstart some; received results are kept"):
        list(cluster.run([request("endless", tmp_path)], lambda _: worker.send_signal(signal.SIGKILL)))


def test_a_scheduler_that_is_lost(dask: Dask, tmp_path: Path) -> None:
    dask.worker("one", *PRELOAD)
    cluster = DaskCluster(dask.address, LIMITS, Timeouts(5, 5))
    requests = [request("quick", tmp_path), request("endless", tmp_path)]
    running = cluster.run(requests, ignored)
    assert next(running).entry.family == "quick"
    threading.Timer(0.5, dask.scheduler.send_signal, [signal.SIGKILL]).start()
    with pytest.raises(ClusterUnavailable, match="was lost\nreceived results are kept: the same command continues"):
        next(running)


def test_closing_takes_back_what_is_pending(dask: Dask, tmp_path: Path) -> None:
    """As Ctrl-C does: the generator is left where it stands."""
    dask.worker("one", *PRELOAD)
    cluster = DaskCluster(dask.address, LIMITS, TIMEOUTS)
    running = cluster.run([request(f"slow-{i}", tmp_path) for i in range(40)], ignored)
    first = next(running)
    cluster.close()
    assert first.entry.status == "verified"
    # The worker is free for another run, and does not go on with the old one.
    assert set(ran(dask, tmp_path, "quick")) == {"quick"}


def test_analyses_of_others_are_never_written_over(dask: Dask, tmp_path: Path) -> None:
    sys.path.insert(0, str(PROJECT / "tests" / "store"))
    import analyses

    store = Store(tmp_path / "results")
    store.save(analyses.linear(engine="submitted"))
    dask.worker("one", *PRELOAD)
    found = ran(dask, tmp_path / "results", "quick")
    assert found["quick"].files == {}


@pytest.mark.parametrize("address", ["", "here", "tcp://here", "tcp://a b:1", "file:///x:1", "http://here:8786"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a scheduler"):
        DaskCluster(address, LIMITS)


def test_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'lmp\[cluster\]'"):
        DaskCluster("tcp://127.0.0.1:8786", LIMITS)


# --- real families ---------------------------------------------------------------------------------------------------


class Watching:
    """Kills a worker with all that it runs, once, shortly after a family has begun on it."""

    def __init__(self, worker: subprocess.Popen[bytes]) -> None:
        self.worker = worker
        self.begun: list[str] = []
        self.ended_in_order: list[str] = []

    def known(self, entries: object, to_do: int) -> None: ...

    def started(self, request: Request) -> None:
        self.begun.append(request.family)
        if len(self.begun) == 2:  # one on each of the two
            threading.Timer(1.0, self.worker.send_signal, [signal.SIGKILL]).start()

    def ended(self, entry: ZooEntry) -> None:
        self.ended_in_order.append(entry.family)


NAMES = ("gpt2", "openai-gpt", "opt")


def test_a_worker_that_is_killed_in_the_middle_loses_nothing(
    dask: Dask, tmp_path: Path, transformers_tree: Path
) -> None:
    options = ZooOptions(tmp_path / "results")
    doomed = dask.worker("one")
    dask.worker("two")
    watching = Watching(doomed)
    chosen = [family for family in families(find_trees(PROJECT), "causal-lm") if family.name in NAMES]
    cluster = DaskCluster(dask.address, Limits(300, 1 << 32), Timeouts(60, 60))
    while len(nthreads(dask)) < 2:
        time.sleep(0.1)
    (summary,) = run_zoo(chosen, options, cluster, watching)
    assert doomed.poll() == -signal.SIGKILL
    assert [(entry.family, entry.status, entry.reason) for entry in sorted_entries(summary)] == [
        (name, "verified", None) for name in sorted(NAMES)
    ]
    assert len(watching.begun) == 4  # the one that was lost began twice
    assert summary.run is not None
    assert summary.run.workers == "2 threads of 2 Dask workers"
    store = Store(options.results)
    for entry in summary.entries:
        assert entry.class_name is not None
        model = store.load_model(entry.class_name)
        assert model is not None
        assert model.verification.status == "verified"
        # Every class that it was linked from is here too, though another family may have made it on its worker.
        assert [name for name in model.parts if not store.file(name).is_file()] == []
        assert entry.fingerprint == current_fingerprint(find_trees(PROJECT), "sdpa", "bfloat16")


def sorted_entries(summary: ZooSummary) -> list[ZooEntry]:
    return sorted(summary.entries, key=lambda entry: entry.family)


def nthreads(dask: Dask) -> dict[str, int]:
    from distributed import Client

    with Client(dask.address, set_as_default=False) as client:
        return dict(client.nthreads())
