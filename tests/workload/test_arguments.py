"""Constructors' arguments, seen while a module is built."""

from __future__ import annotations

import pytest
import torch

from lmp.workload.arguments import constructor_arguments, recording


class Base(torch.nn.Module):
    def __init__(self, width: int, depth: int = 2) -> None:
        super().__init__()
        self.width = width


class Derived(Base):
    def __init__(self, size: int, *, half: bool = True, name: str = "x") -> None:
        halved = size // 2  # what a constructor computes is no argument
        super().__init__(halved)


class Holder(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = Base(size + 1)
        self.layers = torch.nn.ModuleList(Derived(size * i) for i in range(1, 3))


class Broken(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        raise ValueError("in the middle")


def built(cls: type[torch.nn.Module], *args: int, **kwargs: int) -> torch.nn.Module:
    with recording():
        return cls(*args, **kwargs)


def test_arguments_by_name_with_defaults():
    assert constructor_arguments(built(Base, 3)) == {"width": 3, "depth": 2}
    assert constructor_arguments(built(Base, depth=5, width=3)) == {"width": 3, "depth": 5}


def test_of_a_derived_class_its_own():
    assert constructor_arguments(built(Derived, 8)) == {"size": 8, "half": True, "name": "x"}


def test_of_each_module_inside():
    holder = built(Holder, 4)
    assert constructor_arguments(holder) == {"size": 4}
    assert constructor_arguments(holder.inner) == {"width": 5, "depth": 2}
    assert [constructor_arguments(m)["size"] for m in holder.layers] == [4, 8]


def test_of_pytorchs_modules():
    found = constructor_arguments(built(torch.nn.Conv1d, 4, 6, 3, groups=2))
    expected = {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "stride": 1, "groups": 2, "bias": True}
    assert {name: found[name] for name in expected} == expected


def test_a_module_built_elsewhere_has_none():
    assert constructor_arguments(Base(3)) == {}


def test_the_constructor_is_put_back():
    original = torch.nn.Module.__init__
    with recording():
        assert torch.nn.Module.__init__ is not original
    assert torch.nn.Module.__init__ is original


def test_the_constructor_is_put_back_after_an_error():
    original = torch.nn.Module.__init__
    with pytest.raises(ValueError, match="in the middle"):
        built(Broken, 3)
    assert torch.nn.Module.__init__ is original


def test_recordings_may_be_nested():
    original = torch.nn.Module.__init__
    with recording():
        assert constructor_arguments(built(Base, 3)) == {"width": 3, "depth": 2}
        assert constructor_arguments(Base(4)) == {"width": 4, "depth": 2}
    assert torch.nn.Module.__init__ is original
