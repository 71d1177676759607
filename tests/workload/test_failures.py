"""Whose error it is that ended a run: the module's, or lmp's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lmp
from lmp.errors import TraceFailed
from lmp.records import Record
from lmp.workload.failures import blame, hand_on, owner_of
from lmp.workload.paths import forward_arguments
from lmp.workload.questions import UndecidedError, Yes
from lmp.workload.standalone import StandaloneWorkload


def ended_with(run: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what is asked
        run()
    return caught.value


class Module(torch.nn.Module):
    """Fails as it is told."""

    def __init__(self, how: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> Any:
        return self.how(x)


def unbound(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 100:
        y = x
    return y  # as Falcon's forward() where num_ln_in_parallel_attn is 3


@pytest.mark.parametrize(
    "how",
    [
        unbound,
        lambda x: x.no_such_attribute,
        lambda x: undefined_name,  # type: ignore[name-defined]  # noqa: F821
        lambda x: x + "text",  # raised by a builtin of PyTorch's
        lambda x: torch.nn.functional.pad(x, None),  # raised inside PyTorch's Python code
        lambda x: x[object()],  # goes through the policy's own __getitem__
        lambda x: json.dumps(x),  # raised inside the standard library
        lambda x: open("/nowhere/at/all"),  # noqa: SIM115
    ],
)
def test_what_the_module_does_wrong_is_the_modules(how: Callable[[torch.Tensor], Any]) -> None:
    def run() -> None:
        with Yes({}):
            hand_on(Module(how), torch.empty(2, device="meta"))

    assert blame(ended_with(run)) == "module"


def test_arguments_that_a_module_does_not_take_are_its_refusal() -> None:
    # The frame that calls is lmp's, where hand_on() says on whose behalf.
    assert blame(ended_with(lambda: hand_on(Module(unbound), x=1, y=2))) == "module"
    linear = StandaloneWorkload(torch.nn.Linear)
    linear._fixed["no_such_argument"] = 1
    assert blame(ended_with(lambda: linear.build({}))) == "module"


@pytest.mark.parametrize(
    "call",
    [
        lambda: forward_arguments(None),  # type: ignore[arg-type]
        lambda: owner_of(None),  # type: ignore[arg-type]
        lambda: StandaloneWorkload(None),  # type: ignore[arg-type]  # the standard library raises, for lmp
    ],
)
def test_lmps_own_mistakes_are_lmps(call: Callable[[], object]) -> None:
    error = ended_with(call)
    assert isinstance(error, (TypeError, AttributeError))
    assert blame(error) == "lmp"


def test_a_mistake_of_lmps_below_the_module_is_lmps() -> None:
    """As in a mode of lmp's that sees the module's operators."""
    assert blame(ended_with(lambda: Module(lambda x: forward_arguments(x))(torch.empty(2)))) == "lmp"  # type: ignore[arg-type]


def test_sizes_are_noticed_anywhere_and_what_lmp_says_on_purpose_is_about_the_module() -> None:
    # A ValueError out of lmp's own frame: the number of a config that does not fit.
    error = ended_with(lambda: Record.model_validate({"no": "such field"}))
    assert isinstance(error, ValueError)
    assert blame(error) == "module"
    for said in (TraceFailed("it does not run"), UndecidedError(("blocks.py", 12))):
        assert blame(said) == "module"


def test_whose_file_it_is() -> None:
    assert owner_of(str(lmp.__file__)) == "lmp"
    assert owner_of(str(torch.nn.functional.__file__)) == "torch"
    assert owner_of(str(os.__file__)) == "python"
    assert owner_of(str(json.__file__)) == "python"
    assert owner_of("<frozen importlib._bootstrap>") == "python"
    assert owner_of(str(pytest.__file__)) == "module"  # an installed package is what a module uses
    assert owner_of(__file__) == owner_of("<string>") == owner_of("<stdin>") == "module"
