"""Whether what devices send one another runs beside other work, and where the host waits."""

from __future__ import annotations

from collections.abc import Sequence

from lmp.report.document.parts import Block, Bullets, Code, Inline, Line
from lmp.report.facts import ModelFacts
from lmp.report.implementation.messages import Sent
from lmp.report.implementation.operators import joined
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.styles import FOLDER, Collective, Wait


def overlap_blocks(facts: ModelFacts, plans: Plans, sent: Sequence[Sent]) -> list[Block]:
    calls = list(dict.fromkeys(one.collective for one in sent))
    late = [c for c in calls if c.asynchronous]
    functional = [c for c in calls if c.symbol.endswith("_autograd")]
    direct = [c for c in calls if not c.asynchronous and c.symbol != "redistribute" and c not in functional]
    moved = [c for c in calls if c.symbol == "redistribute"]
    items: list[Line] = []
    if late:
        items.append(["asynchronous, so that other work may run meanwhile: ", *_pointers(facts, late)])
    else:
        items.append(f"async_op=True: none found (searched: {len(calls)} collectives of the model's styles, {FOLDER})")
    if direct:
        items.append(
            [
                "called without async_op, in the hook after the module's forward(): what follows on the stream waits "
                "for them: ",
                *_pointers(facts, direct),
            ]
        )
    if moved:
        items.append(
            [
                "by a redistribution of a DTensor whose result is turned into a local tensor in the same hook, which "
                "waits for it: ",
                *_pointers(facts, moved),
            ]
        )
    if functional:
        items.append(
            [
                "functional collectives, which start at once; the first use of their result waits: ",
                *_pointers(facts, functional),
            ]
        )
    waits = host_waits(plans)
    if waits:
        line: list[Inline] = ["the host waits for the device, which no CUDA graph can hold: "]
        for number, (way, wait) in enumerate(waits):
            where = facts.place(wait.file, wait.line, wait.symbol)
            line += ["; " if number else "", Code(f".{wait.symbol}()"), " of ", Code(way), " at ", where]
        items.append(line)
    if plans.stages:
        items.append(["pipeline stages wait for each message before they go on: ", *_pointers(facts, plans.stages)])
    if not calls and not plans.stages:
        items = []
    return [Bullets(items, searched=f"collectives in the forward hooks of the model's styles, {FOLDER}")]


def host_waits(plans: Plans) -> list[tuple[str, Wait]]:
    """Where ways to spread experts make the host wait for the device."""
    ways = [way for rule in plans.rules["expert"] if rule.style in plans.styles
            for way in plans.styles[rule.style].implementations]  # fmt: skip
    return list(dict.fromkeys((way.name, wait) for way in ways for wait in way.waits))


def _pointers(facts: ModelFacts, calls: Sequence[Collective]) -> list[Inline]:
    return joined([facts.place(c.file, c.line, c.symbol) for c in calls])
