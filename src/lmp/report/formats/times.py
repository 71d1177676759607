"""What each point of a sweep takes on a device: columns beside its costs, eager and serving side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lmp.errors import UsageError
from lmp.link.sweep import Chunk, Sweep
from lmp.predict.engines import GIB
from lmp.predict.screen.records import Card, CardRun
from lmp.report.terminal import Column

MOST_PREDICTED = 256
"""Points for which the time on a device is worked out."""
MOST_NOTES = 3
"""Different notes of the points that are shown."""


@dataclass(frozen=True)
class Times:
    """The answer card of each point, worked out once."""

    sweep: Sweep
    card_at: Callable[[Mapping[str, Any]], Card]
    """The card where these values replace those of the first point."""
    _known: dict[tuple[Any, ...], Card] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.sweep.size > MOST_PREDICTED:
            many = f"{self.sweep.size:,} points are too many for times on a device, which take {MOST_PREDICTED:,}"
            raise UsageError(f"{many}\nwiden a step, as in 1:256:*2, or leave out --device")

    def at(self, values: Mapping[str, Any]) -> Card:
        """The card of one point. ``values`` has those of the axes, and may have others."""
        own = {name: values[name] for name in self.sweep.axes}
        key = tuple(own.values())
        if key not in self._known:
            self._known[key] = self.card_at(own)
        return self._known[key]

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The ways to run the call, the same at each point."""
        first = self.at({name: values[0] for name, values in self.sweep.axes.items()})
        return tuple(run.engine for run in first.runs)

    @property
    def names(self) -> list[str]:
        """Names of the columns in files: ``vllm_us`` with the ends of its interval, and what follows from it."""
        return [f"{engine}_{name}" for engine in self.engines for name in FIGURES]

    def values(self, chunk: Chunk) -> dict[str, list[Any]]:
        """The columns of a chunk by name; None where there is no such figure."""
        axes = {name: chunk.values[name].tolist() for name in self.sweep.axes}
        cards = [self.at(dict(zip(axes, point, strict=True))) for point in zip(*axes.values(), strict=True)]
        return {
            f"{engine}_{name}": [FIGURES[name](card.runs[place]) for card in cards]
            for place, engine in enumerate(self.engines)
            for name in FIGURES
        }

    def warnings(self) -> list[str]:
        """What the points lack, for each engine with the first reason, and the notes of their cards."""
        cards = list(self._known.values())
        found = list(self._without(cards))
        notes = list(dict.fromkeys(note for card in cards for note in card.notes))
        more = len(notes) - MOST_NOTES
        return [*found, *notes[:MOST_NOTES], *([f"{more} more such notes, of other points"] if more > 0 else [])]

    def _without(self, cards: Sequence[Card]) -> Iterator[str]:
        for place, engine in enumerate(self.engines):
            reasons = [card.runs[place].reason for card in cards if card.runs[place].reason is not None]
            if reasons:
                yield f"{engine}: {len(reasons)} of {len(cards)} points have no time: {reasons[0]}"


FIGURES: Mapping[str, Callable[[CardRun], Any]] = {
    "us": lambda run: None if run.step_us is None else run.step_us.value,
    "us_low": lambda run: None if run.step_us is None else run.step_us.low,
    "us_high": lambda run: None if run.step_us is None else run.step_us.high,
    "tokens_per_s": lambda run: None if run.tokens_per_s is None else run.tokens_per_s.value,
    "held": lambda run: None if run.memory is None else run.memory.held,
    "fits": lambda run: None if run.memory is None else run.memory.fits,
}
"""Name of a column -> its figure: time with its 80 % interval, new tokens a second, bytes held on each GPU."""


# --- as people read them ---------------------------------------------------------------------------------------------


def columns(engines: Sequence[str]) -> list[Column]:
    """The columns of a table for people. They are dropped after those of the costs."""
    return [
        column
        for engine in engines
        for column in (
            Column(f"{engine}_ms", f"{engine} ms", 95),
            Column(f"{engine}_interval", "80 % interval", 91),
            Column(f"{engine}_tokens_per_s", "tokens/s", 93),
            Column(f"{engine}_gib", "GiB", 35),
        )
    ]


def cells(engines: Sequence[str], row: Mapping[str, Any]) -> list[str]:
    """The cells of `columns` for a row that has the columns of a file."""
    return [cell for engine in engines for cell in _cells(*(row[f"{engine}_{name}"] for name in FIGURES))]


def _cells(
    us: float | None, low: float, high: float, rate: float, held: int | None, fits: bool | None
) -> Iterator[str]:
    if us is None:
        yield from ("no fit" if fits is False else "-", "-", "-")
    else:
        yield from (f"{us / 1e3:,.3f}", f"{low / 1e3:,.3f} to {high / 1e3:,.3f}", f"{rate:,.0f}")
    yield "-" if held is None else f"{held / GIB:,.2f}"
