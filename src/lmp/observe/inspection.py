"""What ``lmp inspect`` finds out about a model. ``schemas/inspection.schema.json`` is generated from it."""

from __future__ import annotations

from pydantic import Field

from lmp.link.records import Figure
from lmp.records import ClassPath, ConfigOrigin, Record


class Tensor(Record):
    """A parameter or buffer of one module."""

    name: str
    shape: list[int]
    dtype: str
    tied_to: str | None = Field(
        default=None, description="path of the parameter that this one is the same as, counted there"
    )


class Module(Record):
    """A module with its descendants. Layers of a list that are alike stand once; the figures are those of one."""

    name: str = Field(description="attribute of the parent; of layers that are alike, with their indices: layers.0-31")
    path: str = Field(description="from the root; of layers that are alike, that of the first")
    class_name: ClassPath
    repeat: int = 1
    indices: list[int] = Field(default_factory=list, description="places in the list, of layers that are alike")
    parameters_count: int
    active_parameters_count: int | None = None
    weights: list[Tensor] = Field(default_factory=list)
    buffers: list[Tensor] = Field(default_factory=list)
    modules: list[Module] = Field(default_factory=list)


class CacheSegment(Record):
    """The cache holds ``constant_bytes + bytes_per_token * n`` bytes for one sequence of n tokens, n in this range."""

    from_tokens: int
    to_tokens: int | None = Field(default=None, description="the last one; None: without end")
    bytes_per_token: int | float
    constant_bytes: int | float
    steps_of: int | None = Field(
        default=None, description="the cache grows in steps: the figures are the average over so many tokens"
    )


class Cache(Record):
    """What the model keeps between two calls, for one sequence: measured by running it on the meta device.

    Without ``segments`` it could not be measured, or there is none: ``reason`` says which.
    """

    segments: list[CacheSegment] = Field(default_factory=list)
    reason: str | None = None
    of: str | None = Field(default=None, description="the part of the model that was run, where it is not the whole")
    encoder_bytes_per_token: int | float | None = Field(
        default=None, description="of cross-attention, a token of the encoder"
    )


class Totals(Record):
    """``parameters_count`` is each distinct parameter once. ``active``: of routed experts only those of one token."""

    parameters_count: int
    active_parameters_count: int | None = None
    active_reason: str | None = Field(default=None, description="why the active parameters are not known")
    weight_bytes: int
    buffer_bytes: int
    checkpoint_bytes: Figure | None = Field(
        default=None, description="of the parameters as a quantised checkpoint stores them, scales included"
    )
    checkpoint_reason: str | None = Field(default=None, description="why the checkpoint's bytes are not known")


class Inspection(Record):
    """What ``lmp inspect --json`` prints."""

    class_name: ClassPath
    config: ConfigOrigin
    distribution: str
    version: str
    dtype: str
    dtype_from: str = Field(description="config, option, or assumed: where the dtype is from")
    quantised: str | None = Field(
        default=None, description="the config's quantisation: checkpoint_bytes alone is of it"
    )
    totals: Totals
    cache: Cache | None = None
    tree: Module

    def cut(self, depth: int | None) -> Inspection:
        """A copy with the first ``depth`` levels of the tree: 0 is the root only, None is all."""
        return self if depth is None else self.model_copy(update={"tree": _cut(self.tree, depth)})


def _cut(module: Module, depth: int) -> Module:
    inner = [_cut(m, depth - 1) for m in module.modules] if depth else []
    return module.model_copy(update={"modules": inner})
