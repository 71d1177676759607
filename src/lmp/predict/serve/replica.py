"""A replica of several stages, or of GPUs that each attend to their own requests: lanes that take turns.

A pipeline of pp stages works on pp groups of requests in turn, each with a pp-th of them. A token passes all stages,
and each takes as long as the slowest. With data-parallel attention each GPU of a group has its own requests, and all
of them take one step together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lmp.predict.prediction import Total
from lmp.predict.serve.compose import Served, served
from lmp.predict.serve.stepper import Stepper
from lmp.predict.serve.workload import Workload


def of_replica(
    stepper: Stepper, workloads: Sequence[Workload], room: Sequence[float] | None = None, with_longest: bool = True
) -> list[Served]:
    """The answer for each workload of a whole replica. Arguments and errors are those of `served`."""
    parallel = stepper.served.parallel
    attending = parallel.tp if parallel.dp_attention else 1
    lanes = parallel.pp * attending
    if lanes == 1:
        return served(stepper, workloads, room, with_longest)
    each = [one.model_copy(update={"concurrency": math.ceil(one.concurrency / lanes)}) for one in workloads]
    found = served(stepper, each, None if room is None else [most / lanes for most in room], with_longest)
    return [_of_lanes(one, work, parallel.pp, attending) for one, work in zip(found, workloads, strict=True)]


def _of_lanes(one: Served, work: Workload, stages: int, attending: int) -> Served:
    lanes = stages * attending
    running = min(work.concurrency, one.running * lanes)
    # Where requests do not fill the lanes, some of them are empty in turn.
    full = running / (one.running * lanes)
    return replace(
        one,
        workload=work,
        running=running,
        decode=_times(one.decode, stages),
        prefill=_times(one.prefill, stages),
        longest=_times(one.longest, stages),
        tpot=_times(one.tpot, stages),
        tokens_per_s=_times(one.tokens_per_s, attending * full),
    )


def _times(total: Total, often: float) -> Total:
    us, low, high = total
    return us * often, low * often, high * often
