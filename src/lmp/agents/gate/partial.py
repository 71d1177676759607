"""The part of a draft that can be compared with execution though other parts have mistakes of form."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lmp.agents.gate.formulas import COSTS, Slot
from lmp.formula import free_variables
from lmp.records import UNIVERSAL, Draft, FindingKind, GateFinding

OF_A_LINE = frozenset(
    {
        FindingKind.amount,
        FindingKind.negative,
        FindingKind.formula,
        FindingKind.uncovered,
        FindingKind.listed_free,
        FindingKind.listed_not_taken,
        FindingKind.other_class,
        FindingKind.other_path,
    }
)
"""Kinds of findings that are true of a line whatever is wrong elsewhere."""


def sound_kernels(
    draft: Draft, slots: Sequence[Slot], findings: Sequence[GateFinding], wrong: Collection[str]
) -> list[int]:
    """Indices of the kernels without a mistake of form. ``wrong``: parameters whose path leads nowhere.

    None if an assumption cannot be read: nothing says then at which sizes the formulas are to hold.
    """
    if any(finding.kernel is None and finding.rule == "grammar" for finding in findings):
        return []
    if any(slot.kernel is None and not _is_sound(slot, draft, wrong) for slot in slots):
        return []
    faulty = {finding.kernel for finding in findings}
    faulty |= {slot.kernel for slot in slots if not _is_sound(slot, draft, wrong)}
    read = {index: {slot.quantity for slot in slots if slot.kernel == index} for index in range(len(draft.kernels))}
    return [index for index, known in read.items() if index not in faulty and known >= set(COSTS)]


def _is_sound(slot: Slot, draft: Draft, wrong: Collection[str]) -> bool:
    used = free_variables(slot.node)
    return not used & set(wrong) and not used - draft.parameters.keys() - set(UNIVERSAL)


def reduced(
    draft: Draft, slots: Sequence[Slot], kept: Sequence[int], wrong: Collection[str]
) -> tuple[Draft, list[Slot]]:
    """The draft with these kernels alone, and without the parameters whose path leads nowhere; and its formulas."""
    number = {old: new for new, old in enumerate(kept)}
    part = draft.model_copy(
        update={
            "kernels": [draft.kernels[index] for index in kept],
            "parameters": {name: path for name, path in draft.parameters.items() if name not in wrong},
            "pinned": {name: value for name, value in draft.pinned.items() if name not in wrong},
        }
    )
    own = [
        slot if slot.kernel is None else _renumbered(slot, number[slot.kernel])
        for slot in slots
        if slot.kernel is None or slot.kernel in number
    ]
    return part, own


def _renumbered(slot: Slot, kernel: int) -> Slot:
    return Slot(kernel, slot.line, slot.quantity, slot.node)
