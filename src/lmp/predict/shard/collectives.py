"""Rows of `lmp predict-op` for what a group of GPUs moves."""

from __future__ import annotations

from lmp.errors import UsageError
from lmp.predict.devices import Device
from lmp.predict.rows import Collective as CollectiveRow
from lmp.predict.shard.records import Collective

LIBRARIES = {"all_reduce": ("nccl", "custom")}
"""Kind -> the libraries of which the faster one is taken: NCCL, and an engine's own kernel. Others are NCCL's."""


def rows_of(collective: Collective, device: Device) -> tuple[CollectiveRow, ...]:
    """The rows of which the faster is meant. A send of B bytes is the all-gather of two GPUs that moves B each way.

    Raises UsageError for a device whose datasheet has no link.
    """
    if device.link is None:
        raise UsageError(
            f"the datasheet of {device.name} has no link between GPUs, so collectives cannot be predicted\n"
            "leave --tp, --ep and --pp out, or give `link` in a file with --devices"
        )
    kind, gpus, size = collective.kind, collective.gpus, collective.bytes
    if kind == "send":
        kind, gpus, size = "all_gather", 2, 2 * size
    return tuple(
        CollectiveRow.model_validate(
            {"op": "collective", "kind": kind, "gpus": gpus, "bytes": max(1, size), "library": library,
             "device": device.name}
        )
        for library in LIBRARIES.get(kind, ("nccl",))
    )  # fmt: skip
