"""Questions about data, asked of tensors that have none."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from lmp.errors import TraceFailed
from lmp.workload.questions import STANDS_FOR, Asked, Decisions, Rehearsed, UndecidedError, Yes, asking


class Asks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 0).all():
            return x + 1
        return x


class Reads(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


def test_a_truth_value_is_yes_and_its_line_is_kept() -> None:
    asked: Asked = {}
    x = torch.empty(2, 3, device="meta")
    with Yes(asked):
        assert Asks()(x) is not x
    ((file, line),) = asked
    assert file == __file__
    with open(__file__) as text:
        assert text.read().splitlines()[line - 1].strip() == "if (x > 0).all():"
    assert asked[file, line] == {f"{Asks.__module__}.Asks"}


def test_a_number_is_refused_with_its_line() -> None:
    with Yes({}), pytest.raises(TraceFailed, match=r"test_questions\.py:\d+ reads a number out of a tensor"):
        Reads()(torch.empty(2, device="meta"))


def test_tensors_with_data_answer_for_themselves() -> None:
    asked: Asked = {}
    with Yes(asked):
        assert not (torch.zeros(2) > 0).all()
        assert torch.tensor(7).item() == 7
    assert not asked


def test_torch_is_as_before() -> None:
    before = torch.Tensor.__bool__, torch.Tensor.item
    with pytest.raises(ZeroDivisionError), Yes({}):
        raise ZeroDivisionError
    assert (torch.Tensor.__bool__, torch.Tensor.item) == before


def test_a_mask_that_is_indexed_with_hits_everywhere() -> None:
    asked: Asked = {}
    rows, mask = torch.empty(4, 3, device="meta"), torch.empty(4, dtype=torch.bool, device="meta")
    with Yes(asked):
        assert rows[mask].shape == (4, 3)
        rows[mask] = torch.empty(4, 3, device="meta")
    assert len(asked) == 2
    real = torch.tensor([True, False, True, True])
    with Yes(asked):
        assert torch.zeros(4, 3)[real].shape == (3, 3)
    assert len(asked) == 2
    with pytest.raises(NotImplementedError):
        rows[mask]


def test_a_number_without_data_can_be_compared_and_nothing_else() -> None:
    asked: Asked = {}
    with Yes(asked):
        number = torch.empty((), dtype=torch.int64, device="meta").item()
        assert number <= 3
        assert number > 3
        with pytest.raises(TraceFailed, match="reads a number out of a tensor"):
            number + 1
        with pytest.raises(TraceFailed, match="reads a number out of a tensor"):
            int(number)
    assert len(asked) == 2


def test_choices_that_a_loop_goes_over_are_made_and_told() -> None:
    """Of 8 experts each of 5 tokens chooses 2: all choose the same ones, each of which sees all 5."""
    chosen: Asked = {}
    tokens = torch.empty(5, 3, device="meta")
    seen, total = [], torch.zeros_like(tokens)
    with Yes({}, chosen), torch.device("meta"):
        index = torch.empty(5, 2, dtype=torch.int64)
        mask = torch.nn.functional.one_hot(index, num_classes=8).permute(2, 1, 0)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, token = torch.where(mask[expert.item()])
            seen.append((int(expert), place.tolist(), tuple(tokens[token].shape)))
            total.index_add_(0, token, tokens[token])
    assert seen == [(0, [0] * 5, (5, 3)), (1, [1] * 5, (5, 3))]
    assert total.device.type == "meta"
    assert len(chosen) == 1
    with Yes({}), pytest.raises(NotImplementedError):  # unasked for, nothing is chosen
        torch.nn.functional.one_hot(index, num_classes=8).nonzero()


def test_rows_that_are_counted_for_each_expert_are_chosen_and_told() -> None:
    """Of 8 experts each of 5 tokens chooses 2: 5 rows for each of the first two, which a split can be made of."""
    chosen: Asked = {}
    rows = torch.empty(10, 3, device="meta")
    index = torch.empty(5, 2, dtype=torch.int64, device="meta")
    with Yes({}, chosen):
        sizes = torch.zeros(5, 8, device="meta").scatter(1, index, 1).long().sum(0).tolist()
        pieces = rows.split(sizes)
    assert sizes == [5, 5, 0, 0, 0, 0, 0, 0]
    assert [len(piece) for piece in pieces] == sizes
    assert len(chosen) == 1
    with Yes({}), pytest.raises(NotImplementedError):  # unasked for, nothing is chosen
        torch.zeros(5, 8, device="meta").scatter(1, index, 1).long().sum(0).tolist()


def test_chosen_indices_are_in_memory_that_the_operator_made() -> None:
    index = torch.empty(5, 2, dtype=torch.int64, device="meta")
    with Yes({}, {}):
        hot = torch.nn.functional.one_hot(index, num_classes=8).permute(2, 1, 0)[1:]
        marked = torch.zeros(5, 8, device="meta").scatter(1, index, 1)[:, :3]
    for entries, shape in ((hot, (5, 2, 8)), (marked, (5, 8))):
        made = getattr(entries.untyped_storage(), STANDS_FOR)
        assert (made.is_meta, entries.is_meta) == (True, False)
        assert made.shape == shape


def test_what_is_no_mark_is_no_choice() -> None:
    """A zero takes something out of what is there, and what else is there has no data."""
    chosen: Asked = {}
    index = torch.empty(5, 2, dtype=torch.int64, device="meta")
    with Yes({}, chosen):
        assert torch.ones(5, 8, dtype=torch.bool, device="meta").scatter(1, index, False).is_meta
        assert torch.zeros(5, 8, dtype=torch.bool, device="meta").scatter(1, index, True).sum() == 10
    assert len(chosen) == 1


def test_a_tensor_that_is_scattered_is_not_looked_at() -> None:
    asked: Asked = {}
    chosen: Asked = {}
    index, source = torch.empty(5, 2, dtype=torch.int64, device="meta"), torch.empty(5, 2, device="meta")
    with Yes(asked, chosen):
        assert torch.zeros(5, 8, device="meta").scatter(1, index, source).is_meta
    assert (asked, chosen) == ({}, {})


def test_more_indices_than_entries_are_no_choice() -> None:
    chosen: Asked = {}
    with Yes({}, chosen):
        index = torch.empty(5, 9, dtype=torch.int64, device="meta")
        assert torch.zeros(5, 8, device="meta").scatter(1, index, 1).is_meta
    assert not chosen


def test_each_place_of_a_mask_is_found_where_choices_are_made() -> None:
    asked: Asked = {}
    mask = torch.empty(4, 3, dtype=torch.bool, device="meta")
    with Yes(asked, {}):
        assert torch.nonzero(input=mask).shape == mask.nonzero().shape == (12, 2)
        assert [len(each) for each in torch.nonzero(mask, as_tuple=True)] == [12, 12]
    assert len(asked) == 2
    with Yes({}), pytest.raises(NotImplementedError):
        mask.nonzero()


class Halves(torch.nn.Module):
    """Divides by two until the sum is small: as often as its values say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.sum() > 1:
            x = x / 2
        return x


def test_what_was_rehearsed_is_answered_again_in_every_call() -> None:
    decisions = Decisions()
    with Rehearsed(decisions, rehearsing=True):
        Halves()(torch.tensor([2.0, 1.0]))
    # 3, 1.5, 0.75: twice more than 1, then not
    ((file, line),) = decisions.answers
    assert decisions.answers[file, line] == [True, True, False]
    assert decisions.described((file, line)) == ("while x.sum() > 1:", ["true", "true", "false"])
    with Rehearsed(decisions):
        for _ in range(2):  # each call from its first answer on
            assert Halves()(torch.empty(2, device="meta")).is_meta


def test_what_no_rehearsal_answered_is_undecided() -> None:
    with Rehearsed(Decisions()), pytest.raises(UndecidedError, match=r"test_questions\.py:\d+ depends on the values"):
        Halves()(torch.empty(2, device="meta"))


class Looks(torch.nn.Module):
    """Asks by way of the standard library, inside of a module of PyTorch's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: self.found.append(asking()))
        return x


def test_who_asks_is_the_modules_own_line_and_the_innermost_call() -> None:
    looks, found = Looks(), list[Any]()
    looks.found = found  # type: ignore[assignment]
    torch.nn.Sequential(looks)(torch.empty(1))
    (((file, line), call),) = found
    assert file == __file__
    with open(__file__) as text:
        assert text.read().splitlines()[line - 1].strip() == "stack.callback(lambda: self.found.append(asking()))"
    assert call is not None
    assert call.f_locals["self"] is looks
