"""What a model holds in memory, from the atlas where it has the model; else the model is built on the meta device."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from lmp.atlas.archive import Atlas, Damaged
from lmp.atlas.asking import asked_atlas, say
from lmp.atlas.matching import exact_entry, is_usable
from lmp.atlas.records import HeldKept, HeldPeak, HeldPeaks, HeldRecord
from lmp.errors import first_line
from lmp.observe.held import Held, KeptLayer, Live, Weight
from lmp.store.fingerprint import sources_fingerprint

if TYPE_CHECKING:
    from lmp.analyze.session import Options

HOLDING = ("observe", "workload", "link/quantisation.py")
"""Parts of lmp that say what a model holds."""

TOKENS = (*range(1, 9), *(2**power for power in range(4, 18)))
"""Tokens of the calls whose peaks are stored."""


def held_by() -> str:
    """sha256 over the parts of lmp that say what a model holds."""
    return sources_fingerprint(HOLDING)


def hold(class_path: str | None, options: Options, dtype: str | None = None) -> Held:
    """What the class's model holds at the options' config. Raises as `lmp.observe.holding.hold`."""
    found = _stored(class_path, options, dtype)
    if found is not None:
        return found
    from lmp.observe.holding import hold as built

    return built(class_path, options, dtype)


def held_in_atlas(class_path: str | None, options: Options) -> Held | None:
    """What the model holds, if the atlas says it; nothing is built."""
    return _stored(class_path, options, None)


def _stored(class_path: str | None, options: Options, dtype: str | None) -> Held | None:
    """The atlas's answer; None if it has no entry of exactly this model."""
    from lmp.analyze.session import Session
    from lmp.atlas.models import class_of_config

    folder = asked_atlas(options)
    if folder is None:
        return None
    atlas = Atlas(folder)
    try:
        listed = exact_entry(atlas, class_path or class_of_config(options), options)
        if listed is None:
            return None
        entry = atlas.load(listed)
        record = entry.held
        if record is None or dtype not in (None, record.dtype):
            return None
        if not is_usable(entry, Session(options, lambda name, stage: None)):
            return None
    except Damaged as error:
        say(f"warning: {first_line(error)}; it is not used")
        return None
    older = "; OLDER than the installed rules of lmp" if listed.held_by != held_by() else ""
    say(f"from lmp's atlas: what {listed.model_id or listed.name} holds in memory{older}")
    return read(record)


# --- as a record -----------------------------------------------------------------------------------------------------


def record_of(held: Held, cases: Sequence[Mapping[str, int]]) -> HeldRecord:
    """The record, with the peaks of live activations for each of the ``cases``: values in place of the config's."""
    why = held.live(1, {})
    live = [] if isinstance(why, str) else [_peaks(held, sizes) for sizes in cases]
    return HeldRecord(
        class_name=held.class_name,
        dtype=held.dtype,
        element_size=held.element_size,
        quantised=held.quantised,
        weights=[
            (w.path, w.name, w.class_name, list(w.shape), w.element_size, str(w.stored), w.is_linear)
            for w in held.weights
        ],
        kept=[
            HeldKept(
                indices=list(one.indices),
                heads=one.heads,
                elements=one.elements,
                window=one.window,
                other_bytes=one.other_bytes,
                state_bytes=one.state_bytes,
            )
            for one in held.kept
        ],
        reason=held.reason,
        part=held.part,
        plan=dict(held.plan),
        config=dict(held.config),
        vision=None if held.vision is None else dict(held.vision),
        warnings=list(held.warnings),
        live=live,
        not_live=why if isinstance(why, str) else None,
    )


def _peaks(held: Held, sizes: Mapping[str, int]) -> HeldPeaks:
    """Peaks up to the first number of tokens at which the model does not run: its positions end there, say."""
    peaks = []
    for tokens in TOKENS:
        found = held.live(tokens, sizes)
        if isinstance(found, str):
            break
        peaks.append(HeldPeak(tokens=tokens, bytes=found.bytes, operator=found.operator, largest=list(found.largest)))
    return HeldPeaks(sizes=dict(sizes), peaks=peaks)


def read(record: HeldRecord) -> Held:
    """What the record says, with peaks between the stored ones worked out."""
    return Held(
        class_name=record.class_name,
        dtype=record.dtype,
        element_size=record.element_size,
        quantised=record.quantised,
        weights=tuple(
            Weight(path, name, class_name, tuple(shape), size, Fraction(stored), is_linear)
            for path, name, class_name, shape, size, stored, is_linear in record.weights
        ),
        kept=tuple(
            KeptLayer(tuple(one.indices), one.heads, one.elements, one.window, one.other_bytes, one.state_bytes)
            for one in record.kept
        ),
        reason=record.reason,
        part=record.part,
        plan=record.plan,
        config=record.config,
        vision=record.vision,
        warnings=tuple(record.warnings),
        live=functools.partial(_live, record),
    )


def _live(record: HeldRecord, tokens: int, sizes: Mapping[str, int]) -> Live | str:
    if record.not_live is not None:
        return record.not_live
    case = next((case for case in record.live if case.sizes == dict(sizes)), None)
    if case is None:
        return "the atlas has no run with these sizes"
    found = between(case.peaks, tokens)
    return found if found is not None else f"the atlas has no run with {tokens:,} tokens"


def between(peaks: Sequence[HeldPeak], tokens: int) -> Live | None:
    """The peak of a call of so many tokens; None beyond the stored ones.

    Live bytes of each moment of a call grow at least evenly with the tokens, so their maximum is convex. Between two
    stored peaks it is at most on the straight line, and exactly there if a third one is on that line too.
    """
    place = bisect.bisect_left([peak.tokens for peak in peaks], tokens)
    if place == len(peaks):
        return None
    above = peaks[place]
    if above.tokens == tokens or place == 0:
        return Live(above.bytes, above.operator, tuple(above.largest))
    below = peaks[place - 1]
    slope = Fraction(above.bytes - below.bytes, above.tokens - below.tokens)
    return Live(round(below.bytes + slope * (tokens - below.tokens)), above.operator, tuple(above.largest))
