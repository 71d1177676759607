"""A family's process: one that crashes, hangs, eats memory or says nothing costs itself alone."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmp.analyze.session import Progress
from lmp.records import ZooEntry
from lmp.source.trees import find_trees
from lmp.zoo import family, fork_server_main
from lmp.zoo.fork_server import entry_of
from lmp.zoo.requests import Limits, Request

REQUEST = Request(
    family="alpha",
    task="base",
    class_name="AlphaModel",
    results="results",
    transformers=None,
    pytorch=None,
    attention=None,
    dtype="bfloat16",
    fingerprint="0",
)
LIMITS = Limits(seconds=1.0, memory=1 << 40)

Ran = Callable[..., ZooEntry]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ran:
    """What comes of a family whose analysis is the given function, run in a child of this process."""

    def run(work: Callable[[Request, Progress], Any], limits: Limits = LIMITS) -> ZooEntry:
        monkeypatch.setattr(family, "analyse_family", work)
        reader, writer = os.pipe()
        answer = tmp_path / "entry.json"
        with os.fdopen(reader, "rb", buffering=0) as requests, os.fdopen(writer, "wb"):
            outcome = fork_server_main._run({**REQUEST.to_json(), "answer": str(answer), **vars(limits)}, requests)
        entry = ZooEntry.model_validate_json(answer.read_bytes()) if answer.exists() else None
        return entry_of(REQUEST, limits, outcome, entry)

    return run


def verified(request: Request, progress: Progress) -> ZooEntry:
    return ZooEntry(family=request.family, task=request.task, status="verified")


def test_what_a_child_found_comes_back_with_what_it_took(ran: Ran) -> None:
    entry = ran(verified, Limits(60, 1 << 40))
    assert (entry.family, entry.status) == ("alpha", "verified")
    assert entry.fingerprint == REQUEST.fingerprint
    assert entry.peak_bytes > 2**20  # no Python process is smaller than a megabyte
    assert entry.seconds > 0


def test_a_child_that_hangs_is_stopped(ran: Ran) -> None:
    def hang(request: Request, progress: Progress) -> None:
        progress("models.alpha.AlphaModel", "reading")
        progress("models.alpha.AlphaBlock", "tracing")
        time.sleep(600)

    entry = ran(hang)
    assert (entry.status, entry.cause, entry.class_name) == ("stopped", "lmp", "models.alpha.AlphaModel")
    # It waits and uses no CPU time: four times the limit of one second is what it may take of wall time.
    assert entry.reason == "it took more than 4 s of wall time; --time-limit gives it more (at AlphaBlock: tracing)"


def test_a_child_that_does_not_come_to_an_end_is_stopped_by_its_cpu_time(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spin(request: Request, progress: Progress) -> None:
        while True:
            pass

    if fork_server_main._cpu_seconds(os.getpid()) == 0:
        pytest.skip("this system does not tell the CPU time of a process in /proc")
    # Not by wall time, however little of a processor it gets.
    monkeypatch.setattr(fork_server_main, "WALL_TIME_FACTOR", 1000)
    entry = ran(spin, Limits(0.5, 1 << 40))
    assert entry.reason == "it took more than 0.5 s of CPU time; --time-limit gives it more"


def test_one_that_a_signal_ended_is_told_by_the_class_that_it_was_at() -> None:
    if find_trees().pytorch is None:
        pytest.skip("no sources are vendored here")
    entry = entry_of(REQUEST, LIMITS, {"code": -9, "at": "torch.nn.Linear", "stage": "tracing"}, None)
    assert entry.reason == "its process was killed by SIGKILL (at Linear: tracing)"
    assert entry.place is not None
    assert entry.place.startswith("torch/nn/modules/linear.py:")
    # Of what stands nowhere, nothing is said.
    assert entry_of(REQUEST, LIMITS, {"code": -9, "at": "models.alpha.Alpha", "stage": "tracing"}, None).place is None


def test_cpu_time_is_that_of_the_process() -> None:
    told = fork_server_main._cpu_seconds(os.getpid())
    if told == 0:
        pytest.skip("this system does not tell the CPU time of a process in /proc")
    # The standard library asks the kernel by another call; /proc counts in hundredths.
    assert abs(told - time.process_time()) < 0.5


def test_a_child_that_eats_memory_is_stopped(ran: Ran) -> None:
    def eat(request: Request, progress: Progress) -> None:
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 20)))

    # It begins with what this process has; a quarter of a gigabyte more is soon eaten.
    most = fork_server_main._resident(os.getpid()) + (1 << 28)
    if most == 1 << 28:
        pytest.skip("this system does not tell the memory of a process in /proc")
    entry = ran(eat, Limits(60, most))
    assert entry.status == "stopped"
    assert entry.reason is not None
    assert entry.reason.endswith("GB of memory; --memory-limit gives it more")


def test_a_child_that_crashes_is_told_of(ran: Ran) -> None:
    faulthandler.disable()  # pytest's: it would write a traceback for the child
    entry = ran(lambda request, progress: os.kill(os.getpid(), signal.SIGSEGV), Limits(60, 1 << 40))
    assert (entry.status, entry.reason) == ("stopped", "its process was killed by SIGSEGV")


def test_a_child_that_says_nothing_is_told_of(ran: Ran) -> None:
    entry = ran(lambda request, progress: os._exit(7), Limits(60, 1 << 40))
    assert (entry.status, entry.reason) == ("stopped", "its process ended with code 7 and said nothing")
