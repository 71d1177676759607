"""Memory of a prediction's call on each GPU, as ``lmp memory`` works it out at the same sizes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lmp.errors import LmpError, first_line
from lmp.observe.held import Held
from lmp.predict.engines import Settings
from lmp.predict.holding import with_every_logits
from lmp.predict.memory import Asked, Memory, memory
from lmp.predict.quantising import narrowed
from lmp.predict.screen.asking import Ask, Subject


@dataclass(frozen=True)
class Room:
    """Bytes on the GPU with the least room."""

    held: Fraction
    """Weights, cache of the call's sequences, activations and reserve."""
    total: Fraction
    weights: Fraction
    cache: Fraction
    fits: bool
    smallest_tp: int | None
    """GPUs of a tensor-parallel group on which it fits; None if on none that is tried."""
    largest_batch: int | None
    kv_token: Fraction
    """Bytes that one token more adds to the cache of one sequence."""
    each: Fraction
    """Bytes that one sequence more adds: of its cache and, without an engine, of its activations."""

    @property
    def free(self) -> Fraction:
        """Negative where it does not fit."""
        return self.total - self.held


def room(held: Held, ask: Ask, subject: Subject | None = None) -> Room:
    """Memory of the asked call. Raises UsageError for what `lmp.predict.memory.memory` refuses.

    ``subject``: formulas that tell the logits of every position, which a call without an engine returns.
    """
    asked = asked_of(ask)
    if asked.whole_batch and subject is not None:
        held = with_every_logits(held, subject, ask.given)
    found = memory(narrowed(held, ask.given.get("w_bytes")), ask.device, asked)
    stage = found.stage
    batch, tokens = found.asked.batch_size or 1, found.asked.cache_len or 0
    cache = stage.cache_bytes(batch, tokens)
    return Room(
        stage.weight_bytes + stage.activation_bytes + stage.reserve + stage.batch_bytes(batch, tokens),
        _total(found), stage.weight_bytes, cache, found.fits, found.smallest_tp, found.largest_batch,
        stage.cache_bytes(1, tokens + 1) - stage.cache_bytes(1, tokens),
        stage.batch_bytes(2, tokens) - stage.batch_bytes(1, tokens),
    )  # fmt: skip


def room_or_why(held: Held | str, ask: Ask, subject: Subject) -> Room | str:
    """Memory of the asked call; or why it is not known: what the model holds is not, say."""
    if isinstance(held, str):
        return held
    try:
        return room(held, ask, subject)
    except LmpError as error:
        return first_line(error)


def asked_of(ask: Ask) -> Asked:
    """The call as ``lmp memory`` is asked for it: a serving engine's own allocations where the profile is of one."""
    batch = int(ask.given.get("batch_size", 1))
    new, cached = (int(ask.given.get(name, 0)) for name in ("seq_len", "cache_len"))
    tokens = max(1, new + cached)
    kv = ask.given.get("kv_bytes")
    serving = ask.profile is not None and ask.profile.kernels is not None
    settings = Settings(max_num_seqs=max(batch, Settings.max_num_seqs), max_model_len=tokens) if serving else None
    return Asked(
        ask.parallel.tp,
        ask.parallel.pp,
        batch,
        tokens,
        None if kv is None else Fraction(kv),
        max(1, new),
        settings,
        whole_batch=not serving,
    )


def _total(found: Memory) -> Fraction:
    engine = found.asked.engine
    return found.total if engine is None else found.total * engine.utilization
