"""All that one screen says of a call: the step, its dearest kernels, memory, and what would help most next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmp.atlas.holding import held_in_atlas
from lmp.errors import LmpError, UsageError, first_line
from lmp.formula import Number
from lmp.observe.held import Held
from lmp.predict.eager import beyond_positions
from lmp.predict.engines import GIB
from lmp.predict.holding import PART_OF_A_MODEL, held_by_formulas
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Answer, Ask, Subject, answer
from lmp.predict.screen.card import card
from lmp.predict.screen.changes import Change, changes
from lmp.predict.screen.dearest import Dear, dearest
from lmp.predict.screen.records import Card
from lmp.predict.screen.room import Room, room_or_why

if TYPE_CHECKING:
    from lmp.analyze.session import Options

MOST_KERNELS = 6


@dataclass(frozen=True)
class Wanted:
    """What is worked out beside the step."""

    changes: bool = True
    force: bool = False
    """Whether a model that does not fit is predicted."""


@dataclass(frozen=True)
class Whole:
    """One prediction, as it is shown."""

    answer: Answer
    dearest: tuple[Dear, ...]
    room: Room | str
    """Memory of the call; or why it is not known."""
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    card: Card


def held_quickly(subject: Subject, options: Options, given: Mapping[str, Number], tp: int) -> Held | str:
    """What the model holds by the atlas or by its formulas, or why neither tells. Nothing is built or run.

    The atlas has what the model of a config holds. Of one GPU of several, formulas say which weights are divided.
    """
    if not {"vocab_size"} & {*subject.model.parameters, *subject.model.values}:
        return PART_OF_A_MODEL
    others = given.keys() & subject.model.values.keys()
    stored = None if others or tp > 1 else held_in_atlas(subject.model.class_name, options)
    found = held_by_formulas(subject, given, tp) if stored is None else stored
    if isinstance(found, str) and tp > 1 and not others:
        return held_in_atlas(subject.model.class_name, options) or found
    return found


def held_of(subject: Subject, options: Options, ask: Ask) -> Held | str:
    """What the model holds in memory; or why that is not known: it is a part of a model, say.

    Torch is imported only where neither the atlas nor formulas tell, and for the stages of a pipeline.
    """
    found = held_quickly(subject, options, ask.given, ask.parallel.tp)
    if found == PART_OF_A_MODEL or not (isinstance(found, str) or ask.parallel.pp > 1):
        return found
    from lmp.atlas.holding import hold

    try:
        return hold(subject.model.class_name, options, None)
    except (LmpError, ImportError) as error:
        return first_line(error)


def whole(subject: Subject, ask: Ask, predictor: Predictor, held: Held | str, wanted: Wanted | None = None) -> Whole:
    """The prediction with its memory. A batch whose cache does not fit has a warning.

    Raises UsageError for a model that does not fit with one sequence, unless it is forced.
    """
    wanted = wanted or Wanted()
    found = answer(subject, ask, predictor)
    own = room_or_why(held, ask, subject)
    too_long = beyond_positions(subject.config, found.values)
    warnings = [] if too_long is None else [too_long]
    if isinstance(own, Room) and not own.fits:
        told = does_not_fit(own, ask)
        if own.largest_batch:
            told += f"; the largest batch at this length is {own.largest_batch:,}"
        elif not wanted.force:
            raise UsageError(f"{told}\n{_remedy(own)}")
        warnings.append(told)

    def fits(changed: Ask) -> str | None:
        more = room_or_why(held, changed, subject)
        if not isinstance(more, Room) or more.fits or not isinstance(own, Room):
            return None
        # What does not fit now is not refused again for each thing that is changed, unless it takes still more.
        return does_not_fit(more, changed) if own.fits or more.held > own.held else None

    more = changes(subject, found, predictor, fits) if wanted.changes else []
    answers = card(subject, ask, predictor, [found], held, force=True)
    return Whole(found, tuple(dearest(found, MOST_KERNELS)), own, tuple(more), tuple(warnings), answers)


def does_not_fit(own: Room, ask: Ask) -> str:
    """One sentence with what it takes and what there is."""
    takes, there = float(own.held / GIB), float(own.total / GIB)
    each = "" if ask.parallel.gpus == 1 else f" on each of {ask.parallel.gpus} GPUs"
    return f"it takes {takes:.1f} GiB{each}, and one {ask.device.name} has {there:.1f} GiB for it: it does not fit"


def _remedy(own: Room) -> str:
    tp = "no tp up to 64 fits" if own.smallest_tp is None else f"it fits with --tp {own.smallest_tp}"
    return f"{tp}; --force predicts the time all the same"
