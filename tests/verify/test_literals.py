"""Numbers of the source that decide paths, and the sizes around them."""

from __future__ import annotations

import torch

from lmp.formula import to_text
from lmp.verify.literals import around, compared, literals

WIDE = 96


def halves(x: torch.Tensor, step: int = 40) -> torch.Tensor:
    parts = [x[i : i + step] for i in range(0, x.shape[0], step)]
    return parts[0]


class Cut(torch.nn.Module):
    def __init__(self, pieces: int = 24) -> None:
        super().__init__()
        self.pieces, self.count = pieces, 7

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = self.pieces
        if x.shape[1] > 300:
            x = torch.cat(list(x.split(size, 1)), 1)
        x = x * 1000
        return halves(x[:, :WIDE]) + self.helped(x)[: self.count]

    def helped(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.shape[0] % 5 else x + 2000


def test_numbers_that_decide_are_found_in_all_functions_and_others_are_not() -> None:
    # 300 compared, 24 the constructor's, 96 of the module, 40 a default, 5 a divisor, 7 an attribute
    assert set(literals([Cut()])) == {300, 24, 96, 40, 5, 7}
    assert set(literals([Cut(26)])) == {300, 26, 96, 40, 5, 7}


class Laddered(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = sum(x.shape[1] >= least for least in (45, 170))
        for most in [31]:
            x = x if x.shape[0] > most else x * steps
        return x


def test_numbers_of_a_sequence_that_is_gone_through_are_found() -> None:
    assert set(literals([Laddered()])) == {45, 170, 31}


def test_attributes_may_be_left_out() -> None:
    assert 7 not in literals([Cut()], without=("count",))


def test_pytorchs_own_code_is_left_out() -> None:
    assert literals([torch.nn.Linear(3, 4), torch.nn.MultiheadAttention(8, 2)]) == {}


def test_the_sizes_around_a_number() -> None:
    # beside 4; 8 and 16 are whole pieces, 13 = 3 * 4 + 1 and 21 = 5 * 4 + 1 have a rest of one, 7 and 11 of three
    assert sorted(around(4)) == [3, 4, 5, 7, 8, 11, 13, 16, 21]
    assert around(4, fewer=True) == (4, 5, 11)
    assert sorted(around(300, fewer=True)) == [299, 300, 301, 603, 901]


class Projected(torch.nn.Module):
    def __init__(self, config: torch.nn.Module, depth: int) -> None:
        super().__init__()
        if config.inner_size != config.hidden_size and depth > 3:
            self.project = torch.nn.Linear(2, 3)


def test_comparisons_of_a_constructor_are_found_in_variables() -> None:
    class Config(torch.nn.Module):
        inner_size = hidden_size = 8

    names = {"inner_size": "inner", "hidden_size": "hidden_size", "depth": "num_layers"}
    found = compared([Projected(Config(), 2)], names)
    assert [to_text(condition) for condition in found] == ["{inner} != {hidden_size}", "{num_layers} > 3"]


def test_comparisons_in_constructors_of_pytorch_are_found() -> None:
    names = {"kdim": "kdim", "vdim": "vdim", "embed_dim": "embed_dim"}
    found = map(to_text, compared([torch.nn.MultiheadAttention(8, 2)], names))
    # self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
    assert {"{kdim} == {embed_dim}", "{vdim} == {embed_dim}"} <= set(found)
